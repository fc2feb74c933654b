"""What Linux's kernel knows of the machines on its own links: who answers ARP or neighbour discovery.

The kernel is asked by netlink (RTM_GETNEIGH, rtnetlink(7)), which any user may do. Its answer is the
machine's own word, but how long it is depends on what others on the link did, so there is a bound.
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

ANSWER_BYTES_MAX = 16 * 1024 * 1024  # some 200,000 neighbours; the default of gc_thresh3 is 1024 a family

# <linux/netlink.h>, <linux/rtnetlink.h>, <linux/neighbour.h>
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_RTM_NEWNEIGH = 28
_RTM_GETNEIGH = 30
_NLM_F_REQUEST_DUMP = 0x301
_NDA_DST = 1
_NUD_UNRESOLVED = 0x01 | 0x20  # INCOMPLETE, FAILED
_NUD_RESOLVED = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80  # REACHABLE to PROBE, NOARP, PERMANENT

_MESSAGE = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_NEIGHBOUR = struct.Struct("=BxxxiHBB")  # ndmsg: family, interface, state, flags, type
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
_REQUEST = _MESSAGE.pack(_MESSAGE.size + _NEIGHBOUR.size, _RTM_GETNEIGH, _NLM_F_REQUEST_DUMP, 1, 0)
_REQUEST += _NEIGHBOUR.pack(socket.AF_UNSPEC, 0, 0, 0, 0)

_RECEIVE_BYTES = 65_536
_IP_BYTES = {int(socket.AF_INET): 4, int(socket.AF_INET6): 16}


class Neighbours(NamedTuple):
    """IP addresses on the machine's own links. One that is resolved on any link is not unresolved."""

    resolved: frozenset[str]
    unresolved: frozenset[str]


def ask_kernel() -> Neighbours | None:
    """Returns what the kernel knows now; None if it cannot be asked. Never blocks."""
    answer = []
    size_bytes = 0
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK) as sock:
            sock.send(_REQUEST)
            # The kernel writes the next part when one has been read, so there is always one to read.
            while size_bytes < ANSWER_BYTES_MAX:
                part = sock.recv(_RECEIVE_BYTES)
                answer.append(part)
                size_bytes += len(part)
                if is_last(part):
                    break
    except OSError:
        return None
    return None if any(map(_is_refused, answer[-1:])) else parse(answer)


def parse(answer: list[bytes]) -> Neighbours:
    """Reads the parts of an answer. What is cut short or of another kind is passed over."""
    resolved: set[str] = set()
    unresolved: set[str] = set()
    for part in answer:
        for kind, body in _messages(part):
            if kind != _RTM_NEWNEIGH or len(body) < _NEIGHBOUR.size:
                continue
            family, _, state, _, _ = _NEIGHBOUR.unpack_from(body)
            if not state & (_NUD_RESOLVED | _NUD_UNRESOLVED):
                continue
            ip = _destination(family, body)
            if ip:
                (resolved if state & _NUD_RESOLVED else unresolved).add(ip)
    return Neighbours(frozenset(resolved), frozenset(unresolved - resolved))


def is_last(part: bytes) -> bool:
    """Whether nothing follows this part of an answer."""
    return any(kind in (_NLMSG_DONE, _NLMSG_ERROR) for kind, _ in _messages(part)) or not part


def _is_refused(part: bytes) -> bool:
    """Whether the kernel answers with an error instead, as one that has no such request does."""
    return any(kind == _NLMSG_ERROR and body[:4].strip(b"\0") for kind, body in _messages(part))


def _messages(part: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the type and the body of each message."""
    start = 0
    while start + _MESSAGE.size <= len(part):
        length, kind, _, _, _ = _MESSAGE.unpack_from(part, start)
        if not _MESSAGE.size <= length <= len(part) - start:
            return
        yield kind, part[start + _MESSAGE.size : start + length]
        start += _aligned(length)


def _destination(family: int, body: bytes) -> str:
    """Returns the IP address that a neighbour has; nothing if none is told."""
    start = _NEIGHBOUR.size
    while start + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, start)
        if not _ATTRIBUTE.size <= length <= len(body) - start:
            break
        if kind == _NDA_DST and length - _ATTRIBUTE.size == _IP_BYTES.get(family):
            return socket.inet_ntop(family, body[start + _ATTRIBUTE.size : start + length])
        start += _aligned(length)
    return ""


def _aligned(length: int) -> int:
    return (length + 3) & ~3
