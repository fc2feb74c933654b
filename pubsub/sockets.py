"""What Linux adds to UDP sockets: constants, buffers, and whether any of it is used."""

import os
import socket
import struct
import sys
from typing import NamedTuple

from kcast.pubsub.errors import KcastError

SOCKETS_VARIABLE = "KCAST_SOCKETS"  # the environment variable that may say `portable`
BUFFER_BYTES_DEFAULT = 4 * 1024 * 1024  # what arrives in 10 ms at 400 MB/s

# Linux constants that the socket module has no names for: <linux/udp.h>, <asm-generic/socket.h>,
# <linux/in.h>, <linux/in6.h>.
UDP_SEGMENT = 103
UDP_GRO = 104
SO_REUSEPORT = 15
SO_ATTACH_FILTER = 26
SO_DETACH_FILTER = 27
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
SO_ATTACH_REUSEPORT_CBPF = 51
SO_MEMINFO = 55
IP_RECVERR = 11
IPV6_RECVERR = 25

_MEMINFO = struct.Struct("=9I")  # SK_MEMINFO_*, <linux/sock_diag.h>
_BUFFER_BYTES_MIN = 65_536
_INSTRUCTION_BYTES = 8  # struct sock_filter


class Memory(NamedTuple):
    """What the kernel holds for a socket. Bytes are those of its own bookkeeping, not of payload."""

    sending_bytes: int
    sending_bytes_max: int
    overflow_count: int  # datagrams that were dropped as they arrived, also by a filter
    receiving_bytes: int = 0
    receiving_bytes_max: int = BUFFER_BYTES_DEFAULT


def uses_linux() -> bool:
    """Whether sockets are used in Linux's own ways: on Linux, unless KCAST_SOCKETS says `portable`.

    Raises KcastError if it says anything else.
    """
    wanted = os.environ.get(SOCKETS_VARIABLE, "")
    if wanted not in ("", "portable"):
        raise KcastError(f"{SOCKETS_VARIABLE} is {wanted!r}: set it to `portable`, or unset it")
    return sys.platform == "linux" and not wanted


def read_memory(sock: socket.socket) -> Memory | None:
    """Returns what the kernel holds for a socket now (SO_MEMINFO); None if it does not tell."""
    try:
        told = _MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size))
    except (OSError, struct.error):
        return None
    return Memory(
        sending_bytes=told[2],
        sending_bytes_max=told[3],
        overflow_count=told[8],
        receiving_bytes=told[0],
        receiving_bytes_max=told[1],
    )


def grow_buffers(
    sock: socket.socket, *, receive_bytes: int | None = None, send_bytes: int | None = None
) -> None:
    """Makes a socket's buffers as large as wanted, or as the system allows."""
    for option, force_option, size_bytes in (
        (socket.SO_RCVBUF, SO_RCVBUFFORCE, receive_bytes),
        (socket.SO_SNDBUF, SO_SNDBUFFORCE, send_bytes),
    ):
        if size_bytes is not None:
            _grow_buffer(sock, option, force_option, size_bytes)


def _grow_buffer(sock: socket.socket, option: int, force_option: int, size_bytes: int) -> None:
    if uses_linux():
        if not try_option(sock, socket.SOL_SOCKET, force_option, size_bytes):
            sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)  # the system's limit cuts it silently
        return
    while not try_option(sock, socket.SOL_SOCKET, option, size_bytes) and size_bytes > _BUFFER_BYTES_MIN:
        size_bytes //= 2


def set_filter(sock: socket.socket, program: bytes | None) -> bool:
    """Lets a classic BPF program decide what arrives at a socket; None ends that. Returns whether it does.

    If not, the socket has no filter. While the kernel replaces one, both count against net.core.optmem_max:
    if that is too little, the old one goes first, and what arrives in between passes.
    """
    if program is not None and _attach_filter(sock, program):
        return True
    is_gone = try_option(sock, socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    return is_gone if program is None else _attach_filter(sock, program)


def _attach_filter(sock: socket.socket, program: bytes) -> bool:
    import ctypes  # which clients, who import this module, do not need

    code = ctypes.create_string_buffer(program, len(program))
    filter_program = struct.pack("@HP", len(program) // _INSTRUCTION_BYTES, ctypes.addressof(code))
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_program)
    except OSError:
        return False
    return True


def try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    """Sets an option. Returns whether the system has it."""
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True
