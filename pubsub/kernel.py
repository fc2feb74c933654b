"""Which settings of the kernel hold a server back, and the commands that change them."""

import os
from collections.abc import Sequence
from pathlib import Path

from kcast.pubsub.kernel_filter import FILTER_BYTES
from kcast.pubsub.listen import is_loopback
from kcast.pubsub.log import Log
from kcast.pubsub.neighbours import ask_kernel
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT, uses_linux
from kcast.pubsub.udp import UdpPort

UDP_MEM = Path("/proc/sys/net/ipv4/udp_mem")
OPTION_MEMORY = Path("/proc/sys/net/core/optmem_max")
OPTION_BYTES = 131_072  # the default of newer kernels
NEIGHBOURS_MAX = "/proc/sys/net/ipv{}/neigh/default/gc_thresh3"
NEIGHBOURS_SHARE = 0.8  # of what fits: more than this is nearly full


def warn_of_kernel(receive_buffer_bytes: int, ports: Sequence[UdpPort], log: Log) -> None:
    """Warns of each setting that matters to these ports, which are those of all servers of a command.

    `receive_buffer_bytes` is what was wanted.
    """
    granted = min(port.receive_buffer_bytes for port in ports)
    if granted < receive_buffer_bytes:
        log.warning(
            "receive-buffer",
            f"the receive buffer has {granted} bytes, less than the {receive_buffer_bytes} wanted, so "
            "datagrams are lost sooner while the server is busy; raise the limit with: "
            f"sysctl -w net.core.rmem_max={receive_buffer_bytes}",
            granted_bytes=granted,
            wanted_bytes=receive_buffer_bytes,
        )
    granted = min(port.send_buffer_bytes for port in ports)
    if granted < BUFFER_BYTES_DEFAULT:
        log.warning(
            "send-buffer",
            f"the send buffer has {granted} bytes, less than the {BUFFER_BYTES_DEFAULT} wanted, so copies "
            "are lost sooner where much is sent at once; raise the limit with: "
            f"sysctl -w net.core.wmem_max={BUFFER_BYTES_DEFAULT}",
            granted_bytes=granted,
            wanted_bytes=BUFFER_BYTES_DEFAULT,
        )
    if not uses_linux():
        return
    # Twice, since the kernel counts its own bookkeeping, too.
    wanted, given = 2 * sum(port.receive_buffer_bytes for port in ports), _udp_memory_bytes()
    if given is not None and wanted > given:
        pages = -(-wanted // os.sysconf("SC_PAGE_SIZE"))
        log.warning(
            "udp-memory",
            f"full receive buffers take {wanted} bytes, but the kernel gives all UDP sockets together "
            f"{given}; lower --receive-buffer, or raise the limit with: "
            f"sysctl -w net.ipv4.udp_mem='{pages} {pages} {2 * pages}'",
            wanted_bytes=wanted,
            given_bytes=given,
        )
    option_bytes = _number_in(OPTION_MEMORY)
    if option_bytes is not None and option_bytes < FILTER_BYTES:
        log.warning(
            "option-memory",
            f"the kernel gives a socket's filter {option_bytes} bytes, less than the {FILTER_BYTES} wanted, "
            "so in a flood more of what strangers send reaches the server; raise the limit with: "
            f"sysctl -w net.core.optmem_max={OPTION_BYTES}",
            given_bytes=option_bytes,
            wanted_bytes=FILTER_BYTES,
        )
    if not all(is_loopback(port.address) for port in ports):
        _warn_of_neighbours(log)


def _warn_of_neighbours(log: Log) -> None:
    known = ask_kernel()
    if known is None:
        log.warning(
            "neighbours",
            "the kernel does not tell which neighbours answer, so subscribers on a link of this machine that "
            "vanish cost the others copies; let the server open AF_NETLINK sockets, or let less wait for "
            "such neighbours with: sysctl -w net.ipv4.neigh.DEVICE.unres_qlen_bytes=8192 "
            "net.ipv6.neigh.DEVICE.unres_qlen_bytes=8192",
        )
        return
    for version in (4, 6):
        count = sum((":" in ip) is (version == 6) for ip in known.resolved | known.unresolved)
        most = _number_in(Path(NEIGHBOURS_MAX.format(version)))
        if most is not None and count > most * NEIGHBOURS_SHARE:
            log.warning(
                "neighbours",
                f"the kernel knows {count} machines on its own links, and no more than {most} fit; what is "
                "meant for others is lost without a trace; raise the limit with: "
                f"sysctl -w net.ipv{version}.neigh.default.gc_thresh3={4 * most}",
                neighbours=count,
                neighbours_max=most,
            )


def _udp_memory_bytes() -> int | None:
    """Returns from where on the kernel stints all UDP sockets together; None if it does not tell."""
    try:
        _, pressure_pages, _ = map(int, UDP_MEM.read_text().split())
    except (OSError, ValueError):
        return None
    return pressure_pages * os.sysconf("SC_PAGE_SIZE")


def _number_in(file: Path) -> int | None:
    """Returns the value of a setting that is one number; None if the kernel does not tell it."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
