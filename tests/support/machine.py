"""What this machine has."""

import socket


def has_ipv6() -> bool:
    """Whether there is an IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def has_loopback_network() -> bool:
    """Whether all of 127.0.0.0/8 is the loopback, as Linux has it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.4", 0))
    except OSError:
        return False
    return True
