"""UDP sockets that receive and send bursts: many datagrams in one system call, if the kernel can.

A system call costs the same for one datagram as for sixty-four, and it is nearly all that a copy costs. So
Linux is asked for runs of equally long datagrams from one peer in one call (UDP_GRO), and gets runs to one
peer in one call (UDP_SEGMENT). If either is missing, the same bytes go one datagram at a time. Linux also
tells of unreachable peers, of overflows of the buffer, and when datagrams came. `KCAST_SOCKETS=portable` in
the environment does without all of these, as other systems do.

Nothing here blocks, and nothing is queued. What the kernel does not take at once is dropped and counted: a
late copy is worth less than the next one, and a slow subscriber must not hold up the others.
"""

import errno
import os
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from types import TracebackType

from kcast.pubsub.endpoint import Address, Burst, Transmit
from kcast.pubsub.errors import KcastError

SOCKETS_VARIABLE = "KCAST_SOCKETS"  # the environment variable that may say `portable`
BUFFER_BYTES_DEFAULT = 4 * 1024 * 1024  # what arrives in 10 ms at 400 MB/s
RECEIVE_CALLS_MAX = 32  # per wake-up, as in libuv, so that timers run however much arrives
UNREACHABLE_REPORTS_MAX = 256  # per call of `unreachable`

SEGMENTS_MAX = 64  # per call: UDP_MAX_SEGMENTS of older kernels; newer ones take 128
CALL_BYTES_MAX = 65_507  # per call, with any number of segments: the longest IPv4 datagram
UNSEGMENTED_MAX = 1024  # destinations remembered as not reachable with segments

# Linux constants that the socket module has no names for: <linux/udp.h>, <asm-generic/socket.h>,
# <linux/in.h>, <linux/in6.h>.
_UDP_SEGMENT = 103
_UDP_GRO = 104
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SO_MEMINFO = 55
_IP_RECVERR = 11
_IPV6_RECVERR = 25

_SEGMENT_SIZE = struct.Struct("=H")  # what UDP_SEGMENT takes
_GRO_SIZE = struct.Struct("=i")  # what UDP_GRO brings
_TIMESPEC = struct.Struct("@ll")  # what SO_TIMESTAMPNS brings
_MEMINFO = struct.Struct("=9I")  # the last is SK_MEMINFO_DROPS
_EXTENDED_ERRNO = struct.Struct("=I")  # the first field of sock_extended_err

_RECEIVE_BYTES = 65_536
_CONTROL_BYTES = socket.CMSG_SPACE(_GRO_SIZE.size)
_TIMED_CONTROL_BYTES = _CONTROL_BYTES + socket.CMSG_SPACE(_TIMESPEC.size)
_ERROR_CONTROL_BYTES = 512

# No NIC checksums (EIO), or a path MTU below the segment's size (EINVAL; in newer kernels EMSGSIZE).
_SEGMENTATION_ERRNOS = frozenset((errno.EIO, errno.EINVAL, errno.EMSGSIZE))
_FULL_ERRNOS = frozenset((errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS))


def uses_linux() -> bool:
    """Whether sockets are used in Linux's own ways: on Linux, unless KCAST_SOCKETS says `portable`.

    Raises KcastError if it says anything else.
    """
    wanted = os.environ.get(SOCKETS_VARIABLE, "")
    if wanted not in ("", "portable"):
        raise KcastError(f"{SOCKETS_VARIABLE} is {wanted!r}: set it to `portable`, or unset it")
    return sys.platform == "linux" and not wanted


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
        _grow_buffer(sock, socket.SO_RCVBUF, _SO_RCVBUFFORCE, receive_buffer_bytes)
        # The default holds about 90 full datagrams. A flush may be more, and the excess would be lost.
        _grow_buffer(sock, socket.SO_SNDBUF, _SO_SNDBUFFORCE, send_buffer_bytes)
        if report_unreachable and uses_linux():
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


class UdpPort:
    """Receives and sends bursts on a bound UDP socket, which it owns. For one thread at a time.

    `batching=False` does without UDP_GRO and UDP_SEGMENT, as some kernels of Linux do. With `kernel_times`
    (Linux), bursts tell when the kernel received them. If no other socket has asked for that before, the
    kernel begins a moment later; until then they tell when they were read.

    `send_errors` counts datagrams that were not sent, `receive_errors` failed calls, both by errno's name.
    `link_local_count` counts datagrams that were dropped because their source is a link-local address, which
    no answer could reach. `receives_batches`, `sends_batches` and `tells_times` say what the kernel supports.
    """

    def __init__(self, sock: socket.socket, *, batching: bool = True, kernel_times: bool = False) -> None:
        self.send_errors: Counter[str] = Counter()
        self.receive_errors: Counter[str] = Counter()
        self.link_local_count = 0
        self._socket = sock
        self._is_ipv6 = sock.family == socket.AF_INET6
        self._is_linux = uses_linux()
        batching = batching and self._is_linux
        self.tells_times = (
            kernel_times and self._is_linux and _try_option(sock, socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        )
        self._control_bytes = _TIMED_CONTROL_BYTES if self.tells_times else _CONTROL_BYTES
        # Kernels before 4.18 ignore UDP_SEGMENT on a call, and would send the run as a single datagram. They
        # refuse it as an option. The value 0 is its default, and leaves the size to each call.
        self.receives_batches = batching and _try_option(sock, socket.IPPROTO_UDP, _UDP_GRO, 1)
        self.sends_batches = batching and _try_option(sock, socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
        self._unsegmented: set[Address] = set()
        self._epoll: select.epoll | None = None
        self.reports_unreachable = False
        if self._is_linux and sock.getsockopt(socket.IPPROTO_IP, _IP_RECVERR):
            self.reports_unreachable = True
            # gevent's patches remove epoll; its own loop can cope with POLLERR.
            if hasattr(select, "epoll"):
                self._epoll = select.epoll()
                self._epoll.register(sock, select.EPOLLIN)

    def __enter__(self) -> "UdpPort":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket."""
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
    def address(self) -> Address:
        """The address to which it is bound."""
        return _address(self._socket.getsockname())

    @property
    def receive_buffer_bytes(self) -> int:
        """The size of the receive buffer: what `open_socket` was asked for, or less."""
        size_bytes = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        # Linux doubles the size to have room for its own bookkeeping, and reports the double.
        return size_bytes // 2 if sys.platform == "linux" else size_bytes

    @property
    def overflow_count(self) -> int:
        """How often the kernel dropped what arrived because the receive buffer was full; 0 if unknown.

        A run of datagrams that is dropped whole may count once. The kernel counts modulo 2^32.
        """
        # SO_MEMINFO tells at any time, SO_RXQ_OVFL only when a later datagram gets through.
        if not self._is_linux:
            return 0
        try:
            drops: int = _MEMINFO.unpack(
                self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
            )[-1]
        except (OSError, struct.error):
            return 0
        return drops

    def receive(self) -> list[Burst]:
        """Returns what has arrived, or as much as 32 calls bring; then the descriptor stays readable."""
        bursts = []
        # A reused buffer is slower: copying out of it costs more than the allocation in `recvmsg`.
        recvmsg, control_bytes, tells_times = self._socket.recvmsg, self._control_bytes, self.tells_times
        for _ in range(RECEIVE_CALLS_MAX):
            try:
                data, control, _, source = recvmsg(_RECEIVE_BYTES, control_bytes)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise
                # An ICMP error caused by an earlier send. What has arrived is still there.
                self.receive_errors[_errno_name(error)] += 1
                continue
            segment_bytes, kernel_ns = len(data), 0
            if tells_times:
                segment_bytes, kernel_ns = _told(control, segment_bytes)
            elif control:
                (segment_bytes,) = _GRO_SIZE.unpack(control[0][2])
            if self._is_ipv6:
                if source[3]:
                    self.link_local_count += max(1, -(-len(data) // max(1, segment_bytes)))
                    continue
                source = _address(source)
            bursts.append(Burst(data, segment_bytes, source, kernel_ns))
        return bursts

    def send(self, transmits: Iterable[Transmit]) -> None:
        """Sends each transmit to each of its destinations. Never blocks or raises: see `send_errors`."""
        sendto, sendmsg = self._socket.sendto, self._socket.sendmsg
        for data, segment_bytes, addresses, _ in transmits:
            destinations = [_mapped(address) for address in addresses] if self._is_ipv6 else addresses
            if len(data) <= segment_bytes:
                for destination in destinations:
                    try:
                        sendto(data, destination)
                    except OSError as error:
                        self._send_again(error, data, segment_bytes, destination)
                continue
            if not self.sends_batches:
                for destination in destinations:
                    self._send_singly(data, segment_bytes, destination)
                continue
            # A socket option for the size would make calls 7 % cheaper. But it would hold for all processes
            # and threads that share the socket, and they would cut runs at each other's sizes.
            control = _segment_control(segment_bytes)
            for piece in _pieces(data, segment_bytes):
                buffers = (piece,)
                for destination in destinations:
                    if self._unsegmented and destination in self._unsegmented:
                        self._send_singly(piece, segment_bytes, destination)
                        continue
                    try:
                        sendmsg(buffers, control, 0, destination)
                    except OSError as error:
                        self._send_again(error, piece, segment_bytes, destination)

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
                    (socket.IPPROTO_IP, _IP_RECVERR),
                    (socket.IPPROTO_IPV6, _IPV6_RECVERR),
                ):
                    continue
                # In both families only the ICMP code "port unreachable" becomes this errno.
                if _EXTENDED_ERRNO.unpack_from(value)[0] == errno.ECONNREFUSED:
                    found[_address(destination)] = None
        return list(found)

    # --- One datagram at a time, and failed calls -----------------------------------------------------

    def _send_singly(self, data: bytes, segment_bytes: int, destination: Address) -> bool:
        """Sends a run with one call per datagram. Returns False if a call failed, which ends the run."""
        for start in range(0, len(data), segment_bytes):
            datagram = data[start : start + segment_bytes]
            error = self._call(datagram, segment_bytes, destination)
            if error is not None and _may_be_stale(error, self.reports_unreachable):
                error = self._call(datagram, segment_bytes, destination)
            if error is not None:
                # The next datagram would fail likewise: so one failed call for a run, not 64.
                self._count_unsent(error, len(data) - start, segment_bytes)
                return False
        return True

    def _send_again(self, error: OSError, data: bytes, segment_bytes: int, destination: Address) -> None:
        """Sends again what a call failed to send, if that can help; else counts it."""
        last_error: OSError | None = error
        if _may_be_stale(error, self.reports_unreachable):
            last_error = self._call(data, segment_bytes, destination)
        if last_error is None:
            return
        if len(data) <= segment_bytes or last_error.errno not in _SEGMENTATION_ERRNOS:
            self._count_unsent(last_error, len(data), segment_bytes)
        elif self._send_singly(data, segment_bytes, destination):
            # Remembered for this destination alone. A peer that can make its own path narrow, such as by
            # forged ICMP, must not make the server slow for all.
            if len(self._unsegmented) >= UNSEGMENTED_MAX:
                self._unsegmented.clear()
            self._unsegmented.add(destination)

    def _call(self, data: bytes, segment_bytes: int, destination: Address) -> OSError | None:
        """Makes one system call for a datagram or a run. Returns its error, if any."""
        try:
            if len(data) <= segment_bytes:
                self._socket.sendto(data, destination)
            else:
                self._socket.sendmsg((data,), _segment_control(segment_bytes), 0, destination)
        except OSError as error:
            return error
        return None

    def _count_unsent(self, error: OSError, byte_count: int, segment_bytes: int) -> None:
        self.send_errors[_errno_name(error)] += max(1, -(-byte_count // max(1, segment_bytes)))


def _pieces(data: bytes, segment_bytes: int) -> Sequence[bytes]:
    """Cuts the run into pieces that one call can take."""
    piece_bytes = min(SEGMENTS_MAX, CALL_BYTES_MAX // segment_bytes) * segment_bytes
    if len(data) <= piece_bytes:
        return (data,)
    return [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]


def _told(control: Iterable[tuple[int, int, bytes]], data_bytes: int) -> tuple[int, int]:
    """Reads control data: a segment's length, and when the kernel received the first, in ns since 1970."""
    segment_bytes, kernel_ns = data_bytes, 0
    for level, kind, value in control:
        if (level, kind) == (socket.IPPROTO_UDP, _UDP_GRO):
            (segment_bytes,) = _GRO_SIZE.unpack(value)
        elif (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            kernel_ns = seconds * 10**9 + nanoseconds
    return segment_bytes, kernel_ns


def _segment_control(segment_bytes: int) -> list[tuple[int, int, bytes]]:
    return [(socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT_SIZE.pack(segment_bytes))]


def _may_be_stale(error: OSError, reports_unreachable: bool) -> bool:
    """Whether a call may have failed with the ICMP error of an earlier call, without sending anything."""
    return error.errno not in _FULL_ERRNOS and (reports_unreachable or error.errno == errno.ECONNREFUSED)


def _errno_name(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "EAFNOSUPPORT"  # an IPv6 destination on an IPv4 socket
    return errno.errorcode.get(error.errno or 0, "EUNKNOWN")


def _address(sockaddr: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """Turns the kernel's form of an address into ours: mapped IPv4 as IPv4, without scope and flow."""
    host = sockaddr[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    elif "%" in host:
        host = host[: host.index("%")]
    return host, sockaddr[1]


def _mapped(address: Address) -> Address:
    """Turns our form of an address into that of an IPv6 socket."""
    return address if ":" in address[0] else ("::ffff:" + address[0], address[1])


def _grow_buffer(sock: socket.socket, option: int, force_option: int, size_bytes: int) -> None:
    if uses_linux():
        if not _try_option(sock, socket.SOL_SOCKET, force_option, size_bytes):
            sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)  # the system's limit cuts it silently
        return
    while not _try_option(sock, socket.SOL_SOCKET, option, size_bytes) and size_bytes > _RECEIVE_BYTES:
        size_bytes //= 2


def _try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True
