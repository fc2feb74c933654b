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
