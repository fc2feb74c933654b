"""Tells the first copy of a message from the rest. PROTOCOL §9.3.

Copies are recognised by the whole line, never by the sequence number they claim. Anyone may publish, so
anyone could publish the next number first, which would silence the real message. A changed byte makes another
message. Lines are kept whole and not as short hashes, because whoever can make two lines collide could
silence one with the other.

A raw line may be published twice on purpose ("on", "off", "on"; a sensor that says the same every five
seconds), and nothing in it tells the two apart. Copies of one message come within a moment, each by another
server. So a delivery of a raw line stays *open* for two seconds. A copy belongs to the oldest open delivery
that its server has not brought yet; where there is none, it is a new message. To count copies per server for
longer would be wrong where publishers draw servers at random: after a hundred equal messages each server has
brought sixty, and the next forty from any of them would be taken for old.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from math import inf

from kcast.client.events import Delivery
from kcast.client.messages.guard_and_writer import Told
from kcast.client.receiving.native import TAKE, Numbers

WINDOW_COUNT = 65_536
WINDOW_BYTES = 16 * 1024 * 1024
WINDOW_S = 120.0
RAW_OPEN_S = 2.0
RAW_OPEN_MAX = 64  # deliveries of one raw line

# Memory that Python needs besides the line itself, so that the bound is one on memory.
_ENTRY_BYTES = 250
_DELIVERY_BYTES = 350


_make_delivery = partial(tuple.__new__, Delivery)


@dataclass(slots=True)
class _RawDelivery:
    at: float
    servers: list[Hashable]


@dataclass(slots=True)
class _RawLine:
    at: float
    open: list[_RawDelivery] = field(default_factory=list)


class CopyFilter:
    """Remembers lines for `window_s` seconds since their last copy, within bounds of count and bytes.

    `native` is native code that takes usual copies; None where there is none, or it is not allowed.
    """

    def __init__(
        self,
        window_count: int = WINDOW_COUNT,
        window_bytes: int = WINDOW_BYTES,
        window_s: float = WINDOW_S,
        *,
        is_native: bool = True,
    ) -> None:
        self.native = TAKE if is_native else None
        self._window_count = window_count
        self._window_bytes = window_bytes
        self._window_s = window_s
        # When the last copy came, as a bare number if possible: a client may remember tens of thousands of
        # lines, and each object beside them is one more for the garbage collector to visit.
        self._seen: OrderedDict[bytes, float | _RawLine] = OrderedDict()
        self._size_bytes = 0
        self._none_old_before = -inf

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def size_bytes(self) -> int:
        """Estimated memory of all that is remembered."""
        return self._size_bytes

    def is_new(self, line: bytes, server: Hashable, raw: bool, now: float) -> bool:
        """Remembers a copy; returns whether it is the first, and so to be delivered.

        `server` is the name of the server that brought it, whichever of its addresses it came from.
        """
        if now >= self._none_old_before:
            self._forget_old(now)
        remembered = self._seen
        is_known = line in remembered
        if is_known:
            remembered.move_to_end(line)
        else:
            self._make_room(len(line) + _ENTRY_BYTES + (_DELIVERY_BYTES if raw else 0))
            self._size_bytes += len(line) + _ENTRY_BYTES
        if not raw:
            remembered[line] = now
            return not is_known
        seen = remembered.get(line)
        if isinstance(seen, _RawLine):
            seen.at = now
        else:
            seen = remembered[line] = _RawLine(now)
        return self._opens_delivery(seen, server, now)

    def take(
        self,
        data: bytes,
        at: int,
        name_of: Callable[[bytes], bytes | None],
        server: str,
        now: float,
        received_at_s: float,
        told: list[Told],
        numbers: Numbers,
    ) -> tuple[int, int, int, int]:
        """Takes usual copies in native code, which there must be: see `kcast.client.receiving.native.Take`.

        Returns where it has stopped, and the numbers of copies, duplicates and deliveries.
        """
        assert self.native is not None
        if now >= self._none_old_before:
            self._forget_old(now)
        at, self._size_bytes, copies, duplicates, deliveries = self.native(
            *(data, at, name_of, self._seen, self._window_count, self._window_bytes, self._size_bytes),
            *(now, received_at_s, server, _make_delivery, told, numbers),
        )
        return at, copies, duplicates, deliveries

    def _opens_delivery(self, seen: _RawLine, server: Hashable, now: float) -> bool:
        still_open = [delivery for delivery in seen.open if delivery.at + RAW_OPEN_S > now]
        unbrought = next((delivery for delivery in still_open if server not in delivery.servers), None)
        if unbrought is None:
            still_open = [*still_open[1 - RAW_OPEN_MAX :], _RawDelivery(now, [server])]
        else:
            unbrought.servers.append(server)
        self._size_bytes += (len(still_open) - len(seen.open)) * _DELIVERY_BYTES
        seen.open = still_open
        while self._size_bytes > self._window_bytes and len(self._seen) > 1:
            self._forget_oldest()  # never this line's own entry, which is the youngest
        return unbrought is None

    def _forget_old(self, now: float) -> None:
        oldest_at = now
        while self._seen and (oldest_at := _at(next(iter(self._seen.values())))) + self._window_s <= now:
            self._forget_oldest()
        self._none_old_before = (oldest_at if self._seen else now) + self._window_s

    def _make_room(self, size_bytes: int) -> None:
        # Called only for a new line: a duplicate takes no room, and must not cost another line its place.
        room_bytes = self._window_bytes - size_bytes
        while self._seen and (len(self._seen) >= self._window_count or self._size_bytes > room_bytes):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        line, seen = self._seen.popitem(last=False)
        self._size_bytes -= len(line) + _ENTRY_BYTES
        if isinstance(seen, _RawLine):
            self._size_bytes -= len(seen.open) * _DELIVERY_BYTES


def _at(seen: float | _RawLine) -> float:
    return seen.at if isinstance(seen, _RawLine) else seen
