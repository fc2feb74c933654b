"""Tells the first copy of a message from the rest. PROTOCOL §9.3.

Copies are recognised by the whole line, never by the sequence number they claim: anyone may publish, so
anyone could publish the next number first and so silence the real message. A changed byte makes another
message.

A raw line may be published twice and mean it ("on", "off", "on"), so for raw lines copies are counted per
server: the i-th copy from one server is new only if fewer than i were delivered. Lines are kept whole and
not as short hashes, because whoever can make two lines collide could silence one with the other.
"""

from collections import OrderedDict

from pubsub.endpoint import Address

WINDOW_COUNT = 65_536
WINDOW_BYTES = 16 * 1024 * 1024
WINDOW_S = 120.0
_ENTRY_BYTES = 200  # what Python needs besides the line itself, so that the bound is one on memory


class _Seen:
    __slots__ = ("at", "delivered", "from_server")

    def __init__(self, now: float) -> None:
        self.at = now
        self.delivered = 0
        self.from_server: dict[Address, int] | None = None


class CopyFilter:
    """Remembers lines for `window_s` seconds since their last copy, within bounds of count and bytes."""

    def __init__(
        self,
        window_count: int = WINDOW_COUNT,
        window_bytes: int = WINDOW_BYTES,
        window_s: float = WINDOW_S,
    ) -> None:
        self._window_count = window_count
        self._window_bytes = window_bytes
        self._window_s = window_s
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def size_bytes(self) -> int:
        """Estimated memory of what is remembered."""
        return self._size_bytes

    def is_new(self, line: bytes, server: Address, raw: bool, now: float) -> bool:
        """Whether this copy is to be delivered; remembers it."""
        self._forget_old(now)
        seen = self._seen.get(line)
        if seen is None:
            self._make_room(len(line) + _ENTRY_BYTES)
            seen = self._seen[line] = _Seen(now)
            self._size_bytes += len(line) + _ENTRY_BYTES
        else:
            seen.at = now
            self._seen.move_to_end(line)
        if not raw:
            new = seen.delivered == 0
        else:
            if seen.from_server is None:
                seen.from_server = {}
            seen.from_server[server] = nth = seen.from_server.get(server, 0) + 1
            new = nth > seen.delivered
        seen.delivered += new
        return new

    def _forget_old(self, now: float) -> None:
        while self._seen and next(iter(self._seen.values())).at + self._window_s <= now:
            self._forget_oldest()

    def _make_room(self, size_bytes: int) -> None:
        # Only for a new line: a further copy takes no room, and must not cost another line its place.
        while self._seen and (
            len(self._seen) >= self._window_count or self._size_bytes + size_bytes > self._window_bytes
        ):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        line, _ = self._seen.popitem(last=False)
        self._size_bytes -= len(line) + _ENTRY_BYTES
