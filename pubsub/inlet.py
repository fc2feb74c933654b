"""Receives bursts from one UDP socket, in as few system calls as the kernel allows.

The kernel joins only what came to it as one run, or what its network card brought together (UDP_GRO). Other
datagrams come one by one, and a core would look at each for itself. So publishes of one source that came one
after the other are joined here, by the same rule: all are equally long, but for the last. What begins with a
control line is left alone, since of a stranger's burst a server answers one.

Where native code was built for it, one call of recvmmsg(2) receives many.
"""

import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import eq
from typing import Any

from kcast.pubsub.endpoint import Burst, datagram_count
from kcast.pubsub.outlet import errno_name, plain_address
from kcast.pubsub.sockets import SO_TIMESTAMPNS, UDP_GRO, try_option, uses_linux

try:
    from kcast.pubsub import _receiver
except ImportError:
    _native: Any = None  # not built, or for another system
else:
    _native = _receiver.receive

BURSTS_MAX = 32  # in one go, as in libuv, so that timers run however much arrives
BYTES_MAX = 65_536  # ... or until so much has come; the call that brings more is the last
BYTES_MIN = 128  # that a datagram counts for

_GRO_SIZE = struct.Struct("=i")  # what UDP_GRO brings
_TIMESPEC = struct.Struct("@ll")  # what SO_TIMESTAMPNS brings

_RECEIVE_BYTES = 65_536
_CONTROL_BYTES = socket.CMSG_SPACE(_GRO_SIZE.size)
_TIMED_CONTROL_BYTES = _CONTROL_BYTES + socket.CMSG_SPACE(_TIMESPEC.size)
_EMPTY_ERRNOS = (errno.EAGAIN, errno.EWOULDBLOCK)


class Inlet:
    """Receives from a bound socket. For one thread at a time.

    `errors` counts failed calls, by errno's name. `batching=False` does without UDP_GRO. With `kernel_times`
    bursts tell when the kernel received them, and are not joined, since each has a time of its own.
    `is_native` allows native code.
    """

    def __init__(
        self,
        sock: socket.socket,
        errors: Counter[str],
        *,
        batching: bool = True,
        kernel_times: bool = False,
        is_native: bool = True,
    ) -> None:
        self._socket = sock
        self._errors = errors
        self._is_ipv6 = sock.family == socket.AF_INET6
        self.tells_times = (
            kernel_times and uses_linux() and try_option(sock, socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        )
        self._control_bytes = _TIMED_CONTROL_BYTES if self.tells_times else _CONTROL_BYTES
        self.receives_batches = batching and uses_linux() and try_option(sock, socket.IPPROTO_UDP, UDP_GRO, 1)
        self._joins = batching and not kernel_times
        self._native = _native if is_native and batching and uses_linux() else None
        self.link_local_count = 0
        self.has_more = False
        """Whether more may have arrived than the last `receive` returned."""

    def receive(self, bursts_max: int = BURSTS_MAX, bytes_max: int = BYTES_MAX) -> list[Burst]:
        """Returns what has arrived, in order: so much, or little more. Raises OSError on a closed socket."""
        if self._native is None:
            return self._receive(bursts_max, bytes_max)
        bursts: list[Burst] = []
        for _ in range(bursts_max):
            taken, number, link_local_count = self._native(
                self._socket.fileno(), bursts_max - len(bursts), bytes_max, self._joins, Burst
            )
            bursts += taken
            self.link_local_count += link_local_count
            self.has_more = number not in _EMPTY_ERRNOS
            if not number or not self.has_more:
                break
            self._note(OSError(number, os.strerror(number)))
        return joined(bursts) if self._joins and len(bursts) > 1 else bursts  # those of several calls

    def _receive(self, bursts_max: int, bytes_max: int) -> list[Burst]:
        """Does the same with a call for each datagram or run."""
        bursts: list[Burst] = []
        burst_count = size_bytes = 0
        last_source = None
        # A reused buffer is slower: copying out of it costs more than the allocation in `recvmsg`.
        recvmsg, control_bytes, tells_times = self._socket.recvmsg, self._control_bytes, self.tells_times
        self.has_more = True
        while burst_count < bursts_max and size_bytes < bytes_max:
            try:
                data, control, _, source = recvmsg(_RECEIVE_BYTES, control_bytes)
            except BlockingIOError:
                self.has_more = False
                break
            except OSError as error:
                self._note(error)
                burst_count += 1
                continue
            segment_bytes, kernel_ns = len(data), 0
            if tells_times:
                segment_bytes, kernel_ns = _told(control, segment_bytes)
            elif control:
                (segment_bytes,) = _GRO_SIZE.unpack(control[0][2])
            if self._is_ipv6:
                if source[3]:
                    self.link_local_count += datagram_count(len(data), segment_bytes)
                    size_bytes += BYTES_MIN
                    continue
                source = plain_address(source)
            bursts.append(Burst(data, segment_bytes, source, kernel_ns))
            size_bytes += max(len(data), BYTES_MIN)
            if source != last_source or not self._joins:
                last_source = source
                burst_count += 1
        return joined(bursts) if self._joins and len(bursts) > 1 else bursts

    def _note(self, error: OSError) -> None:
        """Counts an ICMP error, which an earlier send caused. What has arrived is still there."""
        if error.errno == errno.EBADF:
            raise error
        self._errors[errno_name(error)] += 1


def joined(bursts: Sequence[Burst]) -> list[Burst]:
    """Joins neighbours of one source, as far as these are one burst: all but the last are equally long."""
    sources = [burst.source for burst in bursts]
    if not any(map(eq, sources, islice(sources, 1, None))):
        return list(bursts)  # as where many publish, each now and then
    result: list[Burst] = []
    parts: list[bytes] = []
    size_bytes = 0
    first = bursts[0]
    for burst in bursts:
        data, segment_bytes, source, _ = burst
        is_next = (
            parts
            and source == first.source
            and data
            and not data.startswith(b"%")
            and first.segment_bytes
            and not first.data.startswith(b"%")
            and size_bytes + len(data) <= BYTES_MAX
            and not size_bytes % first.segment_bytes
            and (segment_bytes == first.segment_bytes or len(data) <= segment_bytes < first.segment_bytes)
        )
        if not is_next:
            if parts:
                result.append(first if len(parts) == 1 else first._replace(data=b"".join(parts)))
            first, parts, size_bytes = burst, [], 0
        parts.append(data)
        size_bytes += len(data)
    result.append(first if len(parts) == 1 else first._replace(data=b"".join(parts)))
    return result


def _told(control: Iterable[tuple[int, int, bytes]], data_bytes: int) -> tuple[int, int]:
    """Reads control data: a segment's length, and when the kernel received the first, in ns since 1970."""
    segment_bytes, kernel_ns = data_bytes, 0
    for level, kind, value in control:
        if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
            (segment_bytes,) = _GRO_SIZE.unpack(value)
        elif (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            kernel_ns = seconds * 10**9 + nanoseconds
    return segment_bytes, kernel_ns
