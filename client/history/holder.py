"""What a log answers to those who ask it. Sans-IO. PROTOCOL §9.12.

It keeps nothing of those who ask but how much they had in this second: who gets no answer, or a part of one,
asks again. A question names somebody's mailbox. Only where its WORD shows that who asks reads that mailbox,
more than a few lines are sent there: so nobody else's is flooded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, islice
from math import ceil, inf

from kcast.client.events import Drop
from kcast.client.history.host import Held, SyncHost
from kcast.client.history.index import Block
from kcast.client.history.words import PARTS_MAX, Ask, Keep, Kept, Parts, Sent, What, short_of
from kcast.client.messages import base64url

REQUESTS_MAX = 200  # in a second, of all ...
SIZE_BYTES_MAX = 4_000_000
SHARE_OF_ONE = 4  # ... and a quarter of both of one mailbox
LINES_UNPROVEN = 8  # in a second, to a mailbox that has not shown that it asks
LINE_BYTES = 40  # about what a line has beside its message
PART_ENTRIES = 24
REQUEST_ENTRIES = 10_000  # a question that looks at so many more, or publishers, counts as another one
KEEPS_MAX = 64
KEEP_S = 10.0


@dataclass(slots=True)
class _Used:
    """What was said in this second."""

    requests: int = 0
    lines: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class _Keep:
    """Somebody waits until ids are on disk."""

    at: float
    until: float
    ids: set[bytes] = field(default_factory=set)


class Answers:
    """A log's answers. `draw_delay` gives the seconds after which a question to all is answered."""

    def __init__(self, host: SyncHost, held: Held, draw_delay: Callable[[], float]) -> None:
        self._host = host
        self._held = held
        self._draw_delay = draw_delay
        self._key = host.rng.randbytes(16)
        self._second_ends = -inf
        self._all = _Used()
        self._used: dict[tuple[str, bool], _Used] = {}
        self._keeps: dict[tuple[str, str], _Keep] = {}

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        return min((min(keep.at, keep.until) for keep in self._keeps.values()), default=inf)

    def handle_timeout(self, now: float) -> None:
        """Says what is on disk, to those who have asked."""
        for (mine, q), keep in list(self._keeps.items()):
            if keep.at <= now:
                keep.at = inf
                there = set(self._held.on_disk(sorted(keep.ids)))
                used = self._admit(mine, False, now) if there else None
                if used is not None:
                    self._say(used, mine, Kept(q, frozenset(short_of(each, q) for each in there)), now)
                    keep.ids -= there
            if keep.until <= now or not keep.ids:
                del self._keeps[mine, q]

    def committed(self, now: float) -> None:
        """More is on disk: who waits for that is told."""
        for keep in self._keeps.values():
            if keep.at == inf:
                keep.at = now

    def hear_keep(self, keep: Keep, now: float) -> None:
        """Takes the question who has some ids on disk, which is answered after a while; once more where what
        it asks for comes to be there later."""
        self._keeps.pop((keep.mine, keep.q), None)
        if len(self._keeps) >= KEEPS_MAX:
            self._host.drops[Drop.LIMITED] += 1
            del self._keeps[next(iter(self._keeps))]
        self._keeps[keep.mine, keep.q] = _Keep(now + self._draw_delay(), now + KEEP_S, set(keep.ids))

    def hear(self, word: Ask | What, now: float) -> None:
        """Answers a question at once, or not at all."""
        proof = self._word_for(word.mine)
        used = self._admit(word.mine, word.word == proof, now)
        if used is None:
            return
        if isinstance(word, What):
            self._say_parts(word, used, now)
            return
        for each in (used, self._all):
            each.requests += len(self._held.runs) // REQUEST_ENTRIES if word.runs else 0
        room = min(SIZE_BYTES_MAX // SHARE_OF_ONE - used.size_bytes, SIZE_BYTES_MAX - self._all.size_bytes)
        most = word.lines_max if word.word == proof else LINES_UNPROVEN - 1 - used.lines
        most = min(most, word.lines_max)
        if most <= 0:
            self._host.drops[Drop.LIMITED] += 1
            return
        lines, next_ = self._lines(word, most)
        sizes = accumulate(len(message) + LINE_BYTES for _, message in lines)
        fit = sum(size_bytes <= room for size_bytes in sizes)
        if fit < len(lines):
            next_ = lines[fit][0]
            if not fit:
                self._host.drops[Drop.LIMITED] += 1
                return
        for _, message in lines[:fit]:
            self._host.copy(word.mine, message, now)
            self._count(used, len(message))
        self._say(used, word.mine, Sent(word.q, next_, fit, proof), now)

    # --- Answers --------------------------------------------------------------------------------------

    def _lines(self, word: Ask, most: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Returns what is lacking: ids and messages, and the bound up to which there is no more."""
        held = self._held
        if word.shorts is None:
            assert not isinstance(word.runs, str)
            lines, next_ = held.lacking(word.lo, word.hi, word.start, word.stop, word.runs, most)
            return list(lines), next_
        shorts, q = word.shorts, word.q
        lacking = (each for each in held.index.ids(word.lo, word.hi) if short_of(each, q) not in shorts)
        ids = list(islice(lacking, most + 1))
        next_ = ids.pop() if len(ids) > most else word.hi
        return list(held.messages(ids)), next_

    def _say_parts(self, word: What, used: _Used, now: float) -> None:
        index = self._held.index
        count = index.count(word.lo, word.hi)
        for each in (used, self._all):
            each.requests += count // REQUEST_ENTRIES
        parts = list[tuple[bytes, Block]]()
        low = word.lo
        for bound in index.bounds(word.lo, word.hi, min(PARTS_MAX, max(2, ceil(count / PART_ENTRIES)))):
            parts.append((bound, index.block(low, bound)))
            low = bound
        while len(bytes(said := Parts(word.q, parts))) > self._host.room_bytes:
            parts.pop()  # about these is asked again
        self._say(used, word.mine, said, now)

    # --- The budget -----------------------------------------------------------------------------------

    def _word_for(self, mine: str) -> str:
        """Returns what shows that who asks reads this mailbox."""
        return base64url.encode(blake2b(mine.encode(), digest_size=6, key=self._key).digest())

    def _admit(self, mine: str, is_proven: bool, now: float) -> _Used | None:
        """Counts a request; returns what was used by its mailbox, or None where that is too much."""
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._all = _Used()
            self._used.clear()
        used = self._used.get((mine, is_proven)) or _Used()
        is_over = (
            self._all.requests >= REQUESTS_MAX
            or used.requests >= REQUESTS_MAX // SHARE_OF_ONE
            or (not is_proven and used.lines >= LINES_UNPROVEN)
        )
        if is_over:
            self._host.drops[Drop.LIMITED] += 1
            return None
        self._used[mine, is_proven] = used
        for each in (used, self._all):
            each.requests += 1
        return used

    def _count(self, used: _Used, size_bytes: int) -> None:
        for each in (used, self._all):
            each.lines += 1
            each.size_bytes += size_bytes + LINE_BYTES

    def _say(self, used: _Used, mine: str, word: Sent | Parts | Kept, now: float) -> None:
        self._count(used, len(bytes(word)))
        self._host.say(mine, word, now)
