"""How a server's datagrams leave: answers, copies, and what is meant for doubtful destinations, each by a
socket of its own, from the same address and port.

What the kernel has taken and not yet put on the wire is charged to the socket that sent it, and a socket
whose buffer is full takes nothing more, for nobody. On a server's own link that is a trap: packets for a
machine that is gone wait for ARP or neighbour discovery, up to some 200 kB for each, 3 s long, time and
again. So copies leave by another socket than answers. When much is waiting in one of the two, the kernel is
asked which neighbours do not answer. Those are set aside (`kcast.pubsub.set_aside`): a third socket sends
them the few datagrams that they still get. And a socket whose buffer they have filled is replaced.

What arrives is the port's own socket's alone: see `open_sender`.
"""

import ctypes
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress

from kcast.pubsub.endpoint import Address, Transmit, datagram_count
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.neighbours import Neighbours, ask_kernel
from kcast.pubsub.outlet import Outlet
from kcast.pubsub.set_aside import SetAside
from kcast.pubsub.sockets import (
    BUFFER_BYTES_DEFAULT,
    SO_ATTACH_FILTER,
    SO_ATTACH_REUSEPORT_CBPF,
    SO_REUSEPORT,
    Memory,
    grow_buffers,
    read_memory,
)

# Shares of a send buffer. More than the first is much: then the kernel is asked. And after each such step.
PRESSURE_SHARE = 1 / 4
STEP_SHARE = 1 / 16
CALL_BYTES_MAX = 2 * DATAGRAM_BYTES_MAX + 1024  # what a datagram is charged at most: bookkeeping, too

ASKING_SHARE = 1 / 50  # of the time, at most
ASKING_S_MAX = 0.05  # in one go: some 200 times where there are 100 neighbours, 25 where there are 1000
RECOVERY_PAUSE_S = 0.1  # how often the kernel is asked whether those set aside answer again
WAITING_S = 3.0  # how long a packet waits for a neighbour: mcast_solicit * retrans_time_ms
LEFT_BYTES_MAX = 32 * 1024 * 1024  # in that time, of buffers that are left behind

# A filter of one instruction, BPF_RET | BPF_K: 0 bytes of a datagram, or the group's socket 0.
_RETURN_0 = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0), 8)
_PROGRAM = struct.pack("@HP", 1, ctypes.addressof(_RETURN_0))


def open_sender(main: socket.socket, send_buffer_bytes: int) -> socket.socket:
    """Opens a socket that sends from the address and port of `main`, and takes in nothing (Linux).

    `main` was bound without SO_REUSEPORT, so a port that anybody else has was an error. Only now do the two
    form a group, which has a program that gives all that arrives to the first member: `main`. Broadcasts go
    to every member, so the sender also has a filter that takes nothing. Others of the same user could join
    the group by setting SO_REUSEPORT; nothing would arrive there.

    Raises OSError where the system has none of this.
    """
    main.setsockopt(socket.SOL_SOCKET, SO_REUSEPORT, 1)
    sender = socket.socket(main.family, socket.SOCK_DGRAM)
    try:
        sender.setblocking(False)
        if main.family == socket.AF_INET6:
            is_single = main.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_single)
        grow_buffers(sender, send_bytes=send_buffer_bytes)
        sender.setsockopt(socket.SOL_SOCKET, SO_REUSEPORT, 1)
        sender.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, _PROGRAM)
        sender.bind(main.getsockname()[:2])
        sender.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, _PROGRAM)
    except BaseException:
        sender.close()
        raise
    return sender


class Outlets:
    """Sends a server's answers and copies. For one thread at a time.

    `open_socket` opens a socket that takes in nothing, as `open_sender` does. It is called for each of the
    three, and to replace one; if the first calls raise OSError, so does this. `errors` counts datagrams that
    were not sent, by errno's name or by why their destination is set aside. `is_native` allows native code.
    `clock` is monotonic; `ask` tells of neighbours.
    """

    def __init__(
        self,
        open_socket: Callable[[], socket.socket],
        errors: Counter[str],
        *,
        clock: Callable[[], float],
        is_native: bool = True,
        ask: Callable[[], Neighbours | None] = ask_kernel,
    ) -> None:
        self._open_socket = open_socket
        self._errors = errors
        self._clock = clock
        self._ask = ask
        self._set_aside = SetAside()
        with ExitStack() as stack:
            answers, copies, doubtful = (stack.enter_context(open_socket()) for _ in range(3))
            self._answers = _WatchedOutlet(answers, errors, self._refused)
            self._copies = _WatchedOutlet(copies, errors, self._refused, is_native=is_native)
            self._doubtful = Outlet(doubtful, errors, on_refusal=self._trial_failed)
            stack.pop_all()
        self._has_failed = False
        self._asking_s = ASKING_S_MAX
        self._leavable_bytes = float(LEFT_BYTES_MAX)
        self._asked_at = self._left_at = clock()

    def close(self) -> None:
        """Closes its sockets."""
        for outlet in (self._answers, self._copies, self._doubtful):
            outlet.close()

    @property
    def aside_count(self) -> int:
        """The number of destinations that are set aside."""
        return len(self._set_aside)

    def send(self, transmits: Iterable[Transmit]) -> None:
        """Sends each transmit to each of its destinations. Never blocks or raises."""
        copies, aside = self._copies, self._set_aside
        together: list[Transmit] = []
        if aside:
            aside.sweep(self._clock())
        is_any_aside = bool(aside)
        for each in transmits:
            data, segment_bytes, destinations, line_count = each
            # Most concern nobody who is set aside, and whoever is must not make these cost more.
            if is_any_aside and aside.concerns(destinations):
                destinations = self._without_aside(data, segment_bytes, destinations)
                each = each._replace(destinations=destinations)
            calls = len(destinations)
            if len(data) > segment_bytes:
                calls *= -(-len(data) // DATAGRAM_BYTES_MAX)
            # Most are copies of one datagram. To count them is cheaper than to look at the buffer.
            if calls <= copies.room_calls and line_count:
                copies.room_calls -= calls
                together.append(each)
                continue
            if together:
                copies.send_all(together)
                together = []
            outlet = copies if line_count else self._answers
            self._send_with_care(outlet, data, segment_bytes, destinations)
            is_any_aside = bool(aside)
        if together:
            copies.send_all(together)

    def _send_with_care(
        self, outlet: "_WatchedOutlet", data: bytes, segment_bytes: int, destinations: Sequence[Address]
    ) -> None:
        """Sends to as many at a time as there is room for, and little to those set aside meanwhile."""
        calls = datagram_count(len(data), DATAGRAM_BYTES_MAX)
        start = 0
        while start < len(destinations):
            if outlet.room_calls < calls:
                self._look(outlet)
            count = max(1, outlet.room_calls // calls)
            some = destinations[start : start + count]
            start += count
            if self._set_aside and self._set_aside.concerns(some):
                some = self._without_aside(data, segment_bytes, some)
            outlet.room_calls -= len(some) * calls
            outlet.send(data, segment_bytes, some)

    def _without_aside(self, data: bytes, segment_bytes: int, some: Sequence[Address]) -> list[Address]:
        """Returns those destinations that are not set aside. Of the others, each may get a trial."""
        now = self._clock()
        if self._set_aside.has_unresolved and now >= self._asked_at + RECOVERY_PAUSE_S:
            self._learn(now)
        well = []
        for destination in some:
            reason = self._set_aside.reason(destination)
            if not reason:
                well.append(destination)
                continue
            unsent = datagram_count(len(data), segment_bytes)
            if self._set_aside.try_now(destination, now):
                unsent -= 1
                self._try(data[:segment_bytes], destination)
            if unsent:
                self._errors[reason] += unsent
        return well

    def _try(self, datagram: bytes, destination: Address) -> None:
        self._has_failed = False
        self._doubtful.send(datagram, len(datagram), (destination,))
        if not self._has_failed:
            self._set_aside.accepted(destination)

    def _trial_failed(self, _: Address) -> None:
        self._has_failed = True

    def _refused(self, destination: Address) -> None:
        self._set_aside.refused(destination, self._clock())

    # --- What the kernel holds and knows --------------------------------------------------------------

    def _look(self, outlet: "_WatchedOutlet") -> None:
        """Sets how much may be sent before the next look. Under pressure, learns who does not answer."""
        if not outlet.is_under_pressure():
            return
        now = self._clock()
        if self._learn(now):
            # What waits for them in the buffer stays there until the kernel gives up. It is left behind.
            self._leavable_bytes += (now - self._left_at) * LEFT_BYTES_MAX / WAITING_S
            self._leavable_bytes = min(LEFT_BYTES_MAX, self._leavable_bytes)
            self._left_at = now
            if self._leavable_bytes >= outlet.waiting_bytes:
                self._leavable_bytes -= outlet.waiting_bytes
                with suppress(OSError):
                    outlet.replace(self._open_socket())
                    outlet.is_under_pressure()  # the new one is not

    def _learn(self, now: float) -> bool:
        """Asks the kernel about neighbours, unless that takes too much time. Returns whether any are new."""
        self._asking_s = min(ASKING_S_MAX, self._asking_s + ASKING_SHARE * (now - self._asked_at))
        self._asked_at = now
        if self._asking_s <= 0:
            return False
        neighbours = self._ask()
        self._asking_s -= self._clock() - now
        return neighbours is not None and self._set_aside.learn(
            neighbours.resolved, neighbours.unresolved, now
        )


_UNKNOWN = Memory(sending_bytes=0, sending_bytes_max=BUFFER_BYTES_DEFAULT, overflow_count=0)


class _WatchedOutlet(Outlet):
    """An outlet that knows how much waited in its socket, and how much may be sent before the next look.

    That is `room_calls`, in datagrams.
    """

    def __init__(
        self,
        sock: socket.socket,
        errors: Counter[str],
        on_refusal: Callable[[Address], None],
        *,
        is_native: bool = True,
    ) -> None:
        super().__init__(sock, errors, on_refusal=on_refusal, is_native=is_native)
        self.room_calls = 0
        self.waiting_bytes = 0

    def is_under_pressure(self) -> bool:
        """Looks, and sets `room_calls`. Returns whether so much is waiting that others may suffer."""
        memory = read_memory(self._socket) or _UNKNOWN
        much_bytes = int(memory.sending_bytes_max * PRESSURE_SHARE)
        step_bytes = int(memory.sending_bytes_max * STEP_SHARE)
        self.waiting_bytes = memory.sending_bytes
        self.room_calls = max(step_bytes, much_bytes - self.waiting_bytes) // CALL_BYTES_MAX
        return self.waiting_bytes >= much_bytes
