"""Sends bursts by one UDP socket, in as few system calls as the kernel allows.

Nothing here blocks, and nothing is queued. What the kernel does not take at once is dropped and counted: a
late copy is worth less than the next one, and a slow subscriber must not hold up the others.

Where native code was built for it, one call of sendmmsg(2) sends many; what fails comes back here.
"""

import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from kcast.pubsub.endpoint import Address, Transmit, datagram_count
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.sockets import UDP_SEGMENT, try_option, uses_linux

try:
    from kcast.pubsub import _sender
except ImportError:
    _native: Any = None  # not built, or for another system
else:
    _native = _sender.send_all

SEGMENTS_MAX = 64  # per call: UDP_MAX_SEGMENTS of older kernels; newer ones take 128
CALL_BYTES_MAX = 65_507  # per call, with any number of segments: the longest IPv4 datagram
UNSEGMENTED_MAX = 1024  # destinations remembered as not reachable with segments

_SEGMENT_SIZE = struct.Struct("=H")  # what UDP_SEGMENT takes

# No NIC checksums (EIO), or a path MTU below the segment's size (EINVAL; in newer kernels EMSGSIZE).
_SEGMENTATION_ERRNOS = frozenset((errno.EIO, errno.EINVAL, errno.EMSGSIZE))
_FULL_ERRNOS = frozenset((errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS))
# These say nothing of the destination.
_NO_REFUSALS = _FULL_ERRNOS | {errno.ENOMEM, errno.EMSGSIZE, errno.EBADF}


class Outlet:
    """Sends by a bound socket. For one thread at a time.

    `errors` counts datagrams that were not sent, by errno's name. `on_refusal` is told of destinations to
    which the kernel does not send, whatever the datagram. With `reports_unreachable` the socket keeps ICMP
    errors. `is_native` allows native code.
    """

    def __init__(
        self,
        sock: socket.socket,
        errors: Counter[str],
        *,
        batching: bool = True,
        reports_unreachable: bool = False,
        on_refusal: Callable[[Address], None] | None = None,
        is_native: bool = True,
    ) -> None:
        self._socket = sock
        self._sendto = sock.sendto
        self._errors = errors
        self._is_ipv6 = sock.family == socket.AF_INET6
        self._reports_unreachable = reports_unreachable
        self._on_refusal = on_refusal
        # Kernels before 4.18 ignore UDP_SEGMENT on a call, and would send the run as a single datagram. They
        # refuse it as an option. The value 0 is its default, and leaves the size to each call.
        self.sends_batches = (
            batching and uses_linux() and try_option(sock, socket.IPPROTO_UDP, UDP_SEGMENT, 0)
        )
        self._native = _native if is_native and self.sends_batches else None
        self._unsegmented: set[Address] = set()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def replace(self, sock: socket.socket) -> None:
        """Sends by another socket of the same kind from now on, and closes the one before.

        What the kernel has not put on the wire yet is still sent.
        """
        self._socket.close()
        self._socket = sock
        self._sendto = sock.sendto
        if self.sends_batches:
            try_option(sock, socket.IPPROTO_UDP, UDP_SEGMENT, 0)

    def send_all(self, transmits: list[Transmit]) -> None:
        """Sends each transmit to each of its destinations. Never raises."""
        if self._native is None:
            for data, segment_bytes, destinations, _ in transmits:
                self.send(data, segment_bytes, destinations)
            return
        descriptor, place = self._socket.fileno(), (0, 0, 0)
        while (failure := self._native(descriptor, self._is_ipv6, transmits, place)) is not None:
            code, (index, to, start) = failure
            data, segment_bytes, destinations, _ = transmits[index]
            end = start + _piece_bytes(segment_bytes)
            destination = _mapped(destinations[to]) if self._is_ipv6 else destinations[to]
            self._send_again(OSError(code, os.strerror(code)), data[start:end], segment_bytes, destination)
            place = index, to, end

    def send(self, data: bytes, segment_bytes: int, addresses: Sequence[Address]) -> None:
        """Sends datagrams of `segment_bytes` (the last may be shorter) to each address. Never raises."""
        size_bytes = len(data)
        if size_bytes <= segment_bytes:
            self.send_datagram(data, addresses)
            return
        destinations = [_mapped(address) for address in addresses] if self._is_ipv6 else addresses
        if not self.sends_batches:
            for destination in destinations:
                self._send_singly(data, segment_bytes, destination)
            return
        sendmsg = self._socket.sendmsg
        # A socket option for the size would make calls 7 % cheaper. But it would hold for all processes
        # and threads that share the socket, and they would cut runs at each other's sizes.
        control = _segment_control(segment_bytes)
        fits = size_bytes <= CALL_BYTES_MAX and size_bytes <= SEGMENTS_MAX * segment_bytes
        for piece in (data,) if fits else _pieces(data, segment_bytes):
            buffers = (piece,)
            for destination in destinations:
                if self._unsegmented and destination in self._unsegmented:
                    self._send_singly(piece, segment_bytes, destination)
                    continue
                try:
                    sendmsg(buffers, control, 0, destination)
                except OSError as error:
                    self._send_again(error, piece, segment_bytes, destination)

    def send_datagram(self, data: bytes, addresses: Sequence[Address]) -> None:
        """Sends one datagram to each address. Never raises."""
        sendto = self._sendto
        for destination in [_mapped(address) for address in addresses] if self._is_ipv6 else addresses:
            try:
                sendto(data, destination)
            except OSError as error:
                self._send_again(error, data, len(data), destination)

    # --- One datagram at a time, and failed calls -----------------------------------------------------

    def _send_singly(self, data: bytes, segment_bytes: int, destination: Address) -> bool:
        """Sends a run with one call per datagram. Returns False if a call failed, which ends the run."""
        for start in range(0, len(data), segment_bytes):
            datagram = data[start : start + segment_bytes]
            error = self._call(datagram, segment_bytes, destination)
            if error is not None and self._may_be_stale(error):
                error = self._call(datagram, segment_bytes, destination)
            if error is not None:
                # The next datagram would fail likewise: so one failed call for a run, not 64.
                self._give_up(error, len(data) - start, segment_bytes, destination)
                return False
        return True

    def _send_again(self, error: OSError, data: bytes, segment_bytes: int, destination: Address) -> None:
        """Sends again what a call failed to send, if that can help; else counts it."""
        last_error: OSError | None = error
        if self._may_be_stale(error):
            last_error = self._call(data, segment_bytes, destination)
        if last_error is None:
            return
        if len(data) <= segment_bytes or last_error.errno not in _SEGMENTATION_ERRNOS:
            self._give_up(last_error, len(data), segment_bytes, destination)
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

    def _may_be_stale(self, error: OSError) -> bool:
        """Whether a call may have failed with the ICMP error of an earlier call, without sending anything."""
        return error.errno not in _FULL_ERRNOS and (
            self._reports_unreachable or error.errno == errno.ECONNREFUSED
        )

    def _give_up(self, error: OSError, byte_count: int, segment_bytes: int, destination: Address) -> None:
        self._errors[errno_name(error)] += datagram_count(byte_count, segment_bytes)
        if self._on_refusal is not None and error.errno not in _NO_REFUSALS:
            self._on_refusal(plain_address(destination))


def plain_address(sockaddr: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """Turns the kernel's form of an address into ours: mapped IPv4 as IPv4, without scope and flow."""
    host = sockaddr[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    elif "%" in host:
        host = host[: host.index("%")]
    return host, sockaddr[1]


def errno_name(error: OSError) -> str:
    """Returns the name by which an error is counted."""
    if isinstance(error, socket.gaierror):
        return "EAFNOSUPPORT"  # an IPv6 destination on an IPv4 socket
    return errno.errorcode.get(error.errno or 0, "EUNKNOWN")


def _piece_bytes(segment_bytes: int) -> int:
    return min(SEGMENTS_MAX, CALL_BYTES_MAX // segment_bytes) * segment_bytes


def _pieces(data: bytes, segment_bytes: int) -> Sequence[bytes]:
    """Cuts the run into pieces that one call can take."""
    piece_bytes = _piece_bytes(segment_bytes)
    return [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]


@lru_cache(DATAGRAM_BYTES_MAX)
def _segment_control(segment_bytes: int) -> Sequence[tuple[int, int, bytes]]:
    return [(socket.IPPROTO_UDP, UDP_SEGMENT, _SEGMENT_SIZE.pack(segment_bytes))]


def _mapped(address: Address) -> Address:
    """Turns our form of an address into that of an IPv6 socket."""
    return address if ":" in address[0] else ("::ffff:" + address[0], address[1])
