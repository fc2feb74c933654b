"""CPU time, memory and socket figures of servers, from Linux's /proc. On other systems all are 0."""

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kcast.loadtest.clusters.servers import ServerStat
from kcast.pubsub.endpoint import Address

_PROC = Path("/proc")
_ANY = ("0.0.0.0", "::")


class Socket(NamedTuple):
    """The figures of a UDP socket, as in `ServerStat`."""

    queue_bytes: int
    kernel_drops: int


def read_sockets(process_id: int | None = None) -> dict[Address, Socket]:
    """Returns all UDP sockets in a process's network namespace, by the address that they are bound to.

    None stands for this process.
    """
    folder = _PROC / ("self" if process_id is None else str(process_id)) / "net"
    found: dict[Address, Socket] = {}
    for name in ("udp", "udp6"):
        try:
            lines = (folder / name).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address = _address(fields[1])
            before = found.get(address, Socket(0, 0))
            queue_bytes = int(fields[4].partition(":")[2], 16)
            found[address] = Socket(before.queue_bytes + queue_bytes, before.kernel_drops + int(fields[-1]))
    return found


def stat_of(
    process_id: int | None, addresses: Sequence[Address], sockets: Mapping[Address, Socket]
) -> ServerStat:
    """Returns the figures of a process with sockets bound to these addresses, or to all; 0 for no process."""
    if process_id is None:
        return ServerStat()
    cpu_ns, rss_bytes = _read_process(process_id)
    bound = {*addresses, *((host, port) for _, port in addresses for host in _ANY)}
    own = [sockets[address] for address in bound if address in sockets]
    return ServerStat(
        cpu_ns, rss_bytes, sum(each.kernel_drops for each in own), sum(each.queue_bytes for each in own)
    )


def _read_process(process_id: int) -> tuple[int, int]:
    """The CPU time of all threads in ns, and resident bytes; 0 if there is no such process."""
    try:
        stat = (_PROC / str(process_id) / "stat").read_text("ascii", "replace")
    except OSError:
        return 0, 0
    # The second field, the name in parentheses, may contain anything. Counted from 1, the state follows it as
    # field 3; utime is 14, stime 15, rss 24.
    fields = stat.rpartition(")")[2].split()
    ticks = int(fields[14 - 3]) + int(fields[15 - 3])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK"), int(fields[24 - 3]) * os.sysconf("SC_PAGE_SIZE")


def _address(text: str) -> Address:
    """An address from the kernel's notation: words of 32 bits in the machine's byte order."""
    host, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(host[start : start + 8], 16)) for start in range(0, len(host), 8))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)
