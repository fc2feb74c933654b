"""UDP sockets as bursts: many datagrams for one system call, where the kernel can. Used by all drivers.

A system call costs the same whether it moves one datagram or sixty-four, and is nearly all that a copy
costs. So Linux is asked for runs of equal datagrams from one peer in one call (UDP_GRO), and handed runs
to one peer in one call (UDP_SEGMENT). Where either is missing, the same bytes go one datagram at a time.

Nothing here blocks, and nothing is queued: what the kernel does not take at once is dropped and counted,
for a late copy is worth less than the next one, and a slow subscriber must not cost the others anything.
"""

import errno
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from types import TracebackType

from kcast.pubsub.endpoint import Address, Burst, Transmit

BUFFER_BYTES_DEFAULT = 4 * 1024 * 1024  # what arrives in 10 ms at 400 MB/s
RECEIVE_CALLS_MAX = 32  # per wake-up, as libuv: so that timers run however much arrives
UNREACHABLE_REPORTS_MAX = 256  # per call of `unreachable`

SEGMENTS_MAX = 64  # per call: UDP_MAX_SEGMENTS of older Linux; newer ones take 128
CALL_BYTES_MAX = 65_507  # per call, however many segments: the longest IPv4 datagram
UNSEGMENTED_MAX = 1024  # destinations remembered as taking no segments

# Linux's numbers, for which the socket module has no names: <linux/udp.h>, <asm-generic/socket.h>,
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


def open_socket(
    host: str,
    port: int,
    *,
    receive_buffer_bytes: int = BUFFER_BYTES_DEFAULT,
    send_buffer_bytes: int = BUFFER_BYTES_DEFAULT,
    report_unreachable: bool = False,
    dual_stack: bool = True,
) -> socket.socket:
    """A non-blocking UDP socket bound to an IP address and a port; port 0 is any free one.

    `::` takes IPv4 too, unless `dual_stack` is off. The buffers get as close to the wanted sizes as the
    system allows; `UdpPort.receive_buffer_bytes` tells how close. With `report_unreachable` (Linux), ICMP
    errors are kept for `UdpPort.unreachable`.

    Raises ValueError where `host` is no IP address, or one that means something on one link only; OSError
    where it cannot be bound: a port that another socket has is an error always.
    """
    try:
        address = ip_address(host)
    except ValueError:
        raise ValueError(f"{host!r} is not an IP address; give one, names are not looked up") from None
    if address.version == 6 and address.is_link_local:
        raise ValueError(
            f"{host} is link-local: it says nothing without the interface, which addresses in kcast cannot "
            "name; give another address of this machine"
        )
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6 and address.is_unspecified:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        _grow_buffer(sock, socket.SO_RCVBUF, _SO_RCVBUFFORCE, receive_buffer_bytes)
        # The default holds some 90 full datagrams, and a flush is more; the excess would be lost at once.
        _grow_buffer(sock, socket.SO_SNDBUF, _SO_SNDBUFFORCE, send_buffer_bytes)
        if report_unreachable and sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


class UdpPort:
    """A bound UDP socket that gives and takes bursts; closes it. For one thread at a time.

    `batching=False` does without UDP_GRO and UDP_SEGMENT, as on systems that lack them. With `kernel_times`
    (Linux), bursts tell when the kernel took them in. If no other socket has asked for that before, the
    kernel begins a moment later: until then they tell when they were read.

    `send_errors` counts the datagrams that were not sent, `receive_errors` the failed calls, both by
    errno's name; `link_local_count` the datagrams dropped because their source means something on one link
    only, so that no answer could find it. `receives_batches`, `sends_batches` and `tells_times` say what the
    kernel does.
    """

    def __init__(self, sock: socket.socket, *, batching: bool = True, kernel_times: bool = False) -> None:
        self.send_errors: Counter[str] = Counter()
        self.receive_errors: Counter[str] = Counter()
        self.link_local_count = 0
        self._socket = sock
        self._is_ipv6 = sock.family == socket.AF_INET6
        is_linux = sys.platform == "linux"
        batching = batching and is_linux
        self.tells_times = (
            kernel_times and is_linux and _try_option(sock, socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        )
        self._control_bytes = _TIMED_CONTROL_BYTES if self.tells_times else _CONTROL_BYTES
        # UDP_SEGMENT has to be asked for: kernels before 4.18 ignore it on a call, and would send the
        # whole run as a single datagram. 0 is its default, and leaves the size to each call.
        self.receives_batches = batching and _try_option(sock, socket.IPPROTO_UDP, _UDP_GRO, 1)
        self.sends_batches = batching and _try_option(sock, socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
        self._unsegmented: set[Address] = set()
        self._epoll: select.epoll | None = None
        self.reports_unreachable = False
        if sys.platform == "linux" and sock.getsockopt(socket.IPPROTO_IP, _IP_RECVERR):
            self.reports_unreachable = True
            # gevent's patches take epoll away, and its own loop bears a POLLERR.
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
        """What to watch for reading. Not always the socket's own descriptor.

        A waiting ICMP error makes a socket's poll say POLLERR, at which libuv (so uvloop) gives up the
        descriptor for good. An epoll instance around the socket is merely readable then.
        """
        return self._socket.fileno() if self._epoll is None else self._epoll.fileno()

    @property
    def address(self) -> Address:
        """Where it is bound."""
        return _address(self._socket.getsockname())

    @property
    def receive_buffer_bytes(self) -> int:
        """How large the receive buffer is: what `open_socket` was asked for, or less."""
        size_bytes = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        # Linux doubles what is asked, to have room for its own bookkeeping, and tells the double.
        return size_bytes // 2 if sys.platform == "linux" else size_bytes

    @property
    def overflow_count(self) -> int:
        """How often the kernel dropped what arrived, because the receive buffer was full; 0 if unknown.

        A run of datagrams that was dropped whole may count once. Modulo 2^32, as the kernel counts.
        """
        # SO_MEMINFO tells at any time; SO_RXQ_OVFL, only when a later datagram gets through.
        if sys.platform != "linux":
            return 0
        try:
            drops: int = _MEMINFO.unpack(
                self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
            )[-1]
        except (OSError, struct.error):
            return 0
        return drops

    def receive(self) -> list[Burst]:
        """What has arrived, or as much of it as 32 calls bring. Then the descriptor stays readable."""
        bursts = []
        # A reused buffer would be slower: copying out of it costs more than letting `recvmsg` allocate.
        recvmsg, control_bytes, tells_times = self._socket.recvmsg, self._control_bytes, self.tells_times
        for _ in range(RECEIVE_CALLS_MAX):
            try:
                data, control, _, source = recvmsg(_RECEIVE_BYTES, control_bytes)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno == errno.EBADF:
                    raise
                # An ICMP error of some earlier send; what has arrived is still there.
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
        for data, segment_bytes, addresses in transmits:
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
            # As a socket option the size would make calls 7 % cheaper, and be shared by all that share the
            # socket: after a fork, or between threads, runs would be cut at each other's sizes.
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
        """Destinations at whose port nothing listens, by ICMP reports since the last call; each once.

        Empty unless the socket was opened with `report_unreachable`. Then it has to be called at every
        wake-up: reports left waiting keep the descriptor readable, and take room in the receive buffer.
        A report is a hint: whoever knows both ports can forge it.
        """
        found: dict[Address, None] = {}
        if sys.platform != "linux" or not self.reports_unreachable:
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
                # Of all ICMP codes, of both families, only port unreachable becomes this errno.
                if _EXTENDED_ERRNO.unpack_from(value)[0] == errno.ECONNREFUSED:
                    found[_address(destination)] = None
        return list(found)

    # --- One datagram at a time, and what is done when a call fails -----------------------------------

    def _send_singly(self, data: bytes, segment_bytes: int, destination: Address) -> bool:
        """Sends a run one datagram a call; False where the kernel stopped taking them."""
        for start in range(0, len(data), segment_bytes):
            datagram = data[start : start + segment_bytes]
            error = self._call(datagram, segment_bytes, destination)
            if error is not None and _may_be_stale(error, self.reports_unreachable):
                error = self._call(datagram, segment_bytes, destination)
            if error is not None:
                # What one datagram met, the next would meet: one failing call for a run, not 64.
                self._count_unsent(error, len(data) - start, segment_bytes)
                return False
        return True

    def _send_again(self, error: OSError, data: bytes, segment_bytes: int, destination: Address) -> None:
        """Sends what a call failed to, if that can help; counts it if it cannot."""
        last_error: OSError | None = error
        if _may_be_stale(error, self.reports_unreachable):
            last_error = self._call(data, segment_bytes, destination)
        if last_error is None:
            return
        if len(data) <= segment_bytes or last_error.errno not in _SEGMENTATION_ERRNOS:
            self._count_unsent(last_error, len(data), segment_bytes)
        elif self._send_singly(data, segment_bytes, destination):
            # Remembered of this destination alone. Who can narrow the path to itself, by forging ICMP
            # say, must not thereby make the server slow for everyone.
            if len(self._unsegmented) >= UNSEGMENTED_MAX:
                self._unsegmented.clear()
            self._unsegmented.add(destination)

    def _call(self, data: bytes, segment_bytes: int, destination: Address) -> OSError | None:
        """One system call for a datagram or a run; the error it ended in, if any."""
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
    """The run in pieces that one call takes."""
    piece_bytes = min(SEGMENTS_MAX, CALL_BYTES_MAX // segment_bytes) * segment_bytes
    if len(data) <= piece_bytes:
        return (data,)
    return [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]


def _told(control: Iterable[tuple[int, int, bytes]], data_bytes: int) -> tuple[int, int]:
    """A segment's length, and when the first came, in ns since 1970: from what came beside the data."""
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
    """Whether a call may have failed with the ICMP error of an earlier one, instead of doing its work."""
    return error.errno not in _FULL_ERRNOS and (reports_unreachable or error.errno == errno.ECONNREFUSED)


def _errno_name(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "EAFNOSUPPORT"  # an IPv6 destination on an IPv4 socket
    return errno.errorcode.get(error.errno or 0, "EUNKNOWN")


def _address(sockaddr: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """The kernel's form in ours: mapped IPv4 as IPv4, without scope and flow."""
    host = sockaddr[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    elif "%" in host:
        host = host[: host.index("%")]
    return host, sockaddr[1]


def _mapped(address: Address) -> Address:
    """Our form of an address as an IPv6 socket takes it."""
    return address if ":" in address[0] else ("::ffff:" + address[0], address[1])


def _grow_buffer(sock: socket.socket, option: int, force_option: int, size_bytes: int) -> None:
    if sys.platform == "linux":
        if not _try_option(sock, socket.SOL_SOCKET, force_option, size_bytes):
            sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)  # silently no more than the system's limit
        return
    while not _try_option(sock, socket.SOL_SOCKET, option, size_bytes) and size_bytes > _RECEIVE_BYTES:
        size_bytes //= 2


def _try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True
