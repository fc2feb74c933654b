"""UDP sockets that receive and send bursts: many datagrams in one system call, if the kernel can.

A system call costs the same for one datagram as for sixty-four, and it is nearly all that a copy costs. So
Linux is asked for runs of equally long datagrams from one peer in one call (UDP_GRO), and gets runs to one
peer in one call (UDP_SEGMENT). If either is missing, the same bytes go one datagram at a time. Linux also
tells of unreachable peers, of overflows of the buffer, and when datagrams came, and lets a server send by
several sockets. `KCAST_SOCKETS=portable` in the environment does without all of these, as other systems do.
"""

import errno
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from threading import Lock
from typing import TYPE_CHECKING

from kcast.pubsub import clock
from kcast.pubsub.endpoint import Address, Burst, Transmit
from kcast.pubsub.inlet import BURSTS_MAX, Inlet
from kcast.pubsub.outlet import Outlet, plain_address
from kcast.pubsub.sockets import (
    BUFFER_BYTES_DEFAULT,
    IP_RECVERR,
    IPV6_RECVERR,
    SO_REUSEPORT,
    grow_buffers,
    read_memory,
    set_filter,
    try_option,
    uses_linux,
)

if TYPE_CHECKING:  # what only servers need, is imported once it is used
    from kcast.pubsub.sending import Outlets

UNREACHABLE_REPORTS_MAX = 256  # per call of `unreachable`
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES)  # firewalls that say so, too

_EXTENDED_ERRNO = struct.Struct("=I")  # the first field of sock_extended_err

_ERROR_CONTROL_BYTES = 512


def open_socket(
    host: str,
    port: int,
    *,
    receive_buffer_bytes: int = BUFFER_BYTES_DEFAULT,
    send_buffer_bytes: int = BUFFER_BYTES_DEFAULT,
    report_unreachable: bool = False,
    dual_stack: bool = True,
) -> socket.socket:
    """Opens a non-blocking UDP socket bound to an IP address and a port; port 0 is any free one.

    `::` takes IPv4 too, unless `dual_stack` is off. The buffers are made as large as wanted, or as the system
    allows: see `UdpPort.receive_buffer_bytes`. With `report_unreachable` (Linux), ICMP errors are kept for
    `UdpPort.unreachable`.

    Raises ValueError if `host` is no IP address or a link-local one, and OSError if it cannot be bound. A
    port that another socket has is always an error.
    """
    try:
        address = ip_address(host)
    except ValueError:
        raise ValueError(f"{host!r} is not an IP address; give one, names are not looked up") from None
    if address.version == 6 and address.is_link_local:
        raise ValueError(
            f"{host} is link-local: it is ambiguous without an interface, which addresses in kcast cannot "
            "name; give another address of this machine"
        )
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6 and address.is_unspecified:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        # The default holds about 90 full datagrams. A flush may be more, and the excess would be lost.
        grow_buffers(sock, receive_bytes=receive_buffer_bytes, send_bytes=send_buffer_bytes)
        if report_unreachable and uses_linux():
            sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


class UdpPort:
    """Receives and sends bursts on a bound UDP socket, which it owns. For one thread at a time.

    `batching=False` does without UDP_GRO and UDP_SEGMENT, as some kernels of Linux do. With `kernel_times`
    (Linux), bursts tell when the kernel received them. If no other socket has asked for that before, the
    kernel begins a moment later; until then they tell when they were read. `is_native` allows native code.

    `refused` are what `take_refused` would return. `send_errors` counts datagrams that were not sent, by
    errno's name, or by why their destination is set aside; `receive_errors` counts failed calls, by errno's
    name. `receives_batches`, `sends_batches` and `tells_times` say what the kernel supports.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        batching: bool = True,
        kernel_times: bool = False,
        is_native: bool = True,
    ) -> None:
        self.send_errors: Counter[str] = Counter()
        self.receive_errors: Counter[str] = Counter()
        self._socket = sock
        self._is_linux = uses_linux()
        self._is_native = is_native
        self._inlet = Inlet(
            sock, self.receive_errors, batching=batching, kernel_times=kernel_times, is_native=is_native
        )
        self._epoll: select.epoll | None = None
        self.reports_unreachable = False
        if self._is_linux and sock.getsockopt(socket.IPPROTO_IP, IP_RECVERR):
            self.reports_unreachable = True
            # gevent's patches remove epoll; its own loop can cope with POLLERR.
            if hasattr(select, "epoll"):
                self._epoll = select.epoll()
                self._epoll.register(sock, select.EPOLLIN)
        self.refused: dict[Address, None] = {}
        self._outlet = Outlet(
            sock,
            self.send_errors,
            batching=batching,
            reports_unreachable=self.reports_unreachable,
            on_refusal=self.refused.setdefault if self.reports_unreachable else None,
        )
        self._outlets: Outlets | None = None
        self._is_sifting = False
        self._kernel_count = self._sieved_count = self._overflow_count = 0
        self._counting = Lock()  # any thread may ask for the counts

    def __enter__(self) -> "UdpPort":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket, and those that `open_outlets` has opened."""
        if self._outlets is not None:
            self._outlets.close()
        if self._epoll is not None:
            self._epoll.close()
        self._socket.close()

    def fileno(self) -> int:
        """Returns the descriptor to watch for reading. It need not be the socket's own.

        A waiting ICMP error makes poll report POLLERR for a socket; libuv, and so uvloop, then stops watching
        it for good. An epoll instance around the socket only becomes readable.
        """
        return self._socket.fileno() if self._epoll is None else self._epoll.fileno()

    @property
    def receives_batches(self) -> bool:
        """Whether the kernel brings a run of datagrams in one call."""
        return self._inlet.receives_batches

    @property
    def tells_times(self) -> bool:
        """Whether bursts tell when the kernel received them."""
        return self._inlet.tells_times

    @property
    def link_local_count(self) -> int:
        """How many datagrams were dropped because their source is link-local, which no answer could reach."""
        return self._inlet.link_local_count

    @property
    def sends_batches(self) -> bool:
        """Whether a run of datagrams takes one call."""
        return self._outlet.sends_batches

    @property
    def address(self) -> Address:
        """The address to which it is bound."""
        return plain_address(self._socket.getsockname())

    @property
    def receive_buffer_bytes(self) -> int:
        """The size of the receive buffer: what `open_socket` was asked for, or less."""
        return self._buffer_bytes(socket.SO_RCVBUF)

    @property
    def send_buffer_bytes(self) -> int:
        """The size of the send buffer: what `open_socket` was asked for, or less."""
        return self._buffer_bytes(socket.SO_SNDBUF)

    def _buffer_bytes(self, option: int) -> int:
        size_bytes = self._socket.getsockopt(socket.SOL_SOCKET, option)
        # Linux doubles the size to have room for its own bookkeeping, and reports the double.
        return size_bytes // 2 if sys.platform == "linux" else size_bytes

    @property
    def overflow_count(self) -> int:
        """How often the kernel dropped what arrived because the receive buffer was full; 0 if unknown.

        A run of datagrams that is dropped whole may count once.
        """
        self._count_drops()
        return self._overflow_count

    @property
    def sieved_count(self) -> int:
        """How often the kernel dropped what arrived while `sift` had set a filter."""
        self._count_drops()
        return self._sieved_count

    @property
    def waiting_share(self) -> float:
        """How full the receive buffer is, from 0 to 1; 0 if unknown."""
        memory = read_memory(self._socket) if self._is_linux else None
        return 0.0 if memory is None else memory.receiving_bytes / max(1, memory.receiving_bytes_max)

    def sift(self, program: bytes | None) -> bool:
        """Lets a filter drop what it does not pass; None ends that. Returns False if the system cannot."""
        if not self._is_linux:
            return False
        self._count_drops()
        if program is None and not self._is_sifting:
            return True
        is_set = set_filter(self._socket, program)
        self._is_sifting = is_set and program is not None
        return is_set

    def _count_drops(self) -> None:
        """Adds what the kernel has dropped since the last look to one of the counts.

        It counts modulo 2^32: some hours of a flood.
        """
        with self._counting:
            # SO_MEMINFO tells at any time, SO_RXQ_OVFL only when a later datagram gets through.
            memory = read_memory(self._socket) if self._is_linux else None
            if memory is None:
                return
            new_count = (memory.overflow_count - self._kernel_count) % 2**32
            self._kernel_count = memory.overflow_count
            if self._is_sifting:
                self._sieved_count += new_count
            else:
                self._overflow_count += new_count

    def receive(self, bursts_max: int = BURSTS_MAX) -> list[Burst]:
        """Returns what has arrived, in order: this number of bursts, or little more."""
        return self._inlet.receive(bursts_max)

    @property
    def has_more(self) -> bool:
        """Whether more may have arrived than the last `receive` returned."""
        return self._inlet.has_more

    def send(self, transmits: Iterable[Transmit]) -> None:
        """Sends each transmit to each of its destinations. Never blocks or raises: see `send_errors`."""
        if self._outlets is not None:
            self._outlets.send(transmits)
            return
        send = self._outlet.send
        for data, segment_bytes, destinations, _ in transmits:
            send(data, segment_bytes, destinations)

    def open_outlets(self) -> bool:
        """Lets copies leave by another socket than answers from now on, as `kcast.pubsub.sending` says.

        Returns False where the system cannot: then all leaves by the one socket, as before. Of several
        servers each calls it after the fork, so that their parent has fewer descriptors open.
        """
        if not self._is_linux:
            return False
        from kcast.pubsub.sending import Outlets, open_sender

        size_bytes = self.send_buffer_bytes
        try:
            self._outlets = Outlets(
                lambda: open_sender(self._socket, size_bytes),
                self.send_errors,
                clock=clock.now,
                is_native=self._is_native,
            )
        except OSError:
            # Else others could join the port, and would be given a part of what arrives.
            try_option(self._socket, socket.SOL_SOCKET, SO_REUSEPORT, 0)
            return False
        return True

    def unreachable(self) -> list[Address]:
        """Returns destinations at whose port nothing listens, each once, by ICMP since the last call.

        Empty unless the socket was opened with `report_unreachable`. If it was, call this at every wake-up:
        waiting reports keep the descriptor readable, and take room in the receive buffer. A report is only a
        hint: anyone who knows both ports can forge it.
        """
        found: dict[Address, None] = {}
        if not self.reports_unreachable:
            return []
        for _ in range(UNREACHABLE_REPORTS_MAX):
            try:
                _, control, _, destination = self._socket.recvmsg(
                    0, _ERROR_CONTROL_BYTES, socket.MSG_ERRQUEUE
                )
            except BlockingIOError:
                break
            for level, kind, value in control:
                if (level, kind) not in (
                    (socket.IPPROTO_IP, IP_RECVERR),
                    (socket.IPPROTO_IPV6, IPV6_RECVERR),
                ):
                    continue
                # In both families only the ICMP code "port unreachable" becomes this errno.
                if (code := _EXTENDED_ERRNO.unpack_from(value)[0]) == errno.ECONNREFUSED:
                    found[plain_address(destination)] = None
                elif code in _NO_WAY:
                    self.refused[plain_address(destination)] = None
        return list(found)

    def take_refused(self) -> Sequence[Address]:
        """Returns destinations to which at the moment nothing gets through, each once, as the system said
        when something was sent there, or ICMP did. Empty as `unreachable` is, and as much of a hint."""
        refused = list(self.refused)
        self.refused.clear()
        return refused
