"""A log's ids in order, with counts and fingerprints of any range, and its heads. Sans-IO. PROTOCOL §9.12.

An id is 24 bytes here, and so is a bound: ids from `lo` on, and before `hi`.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import NamedTuple

from kcast.client.history.ids import BEGIN, END, ID_BYTES, ID_CHARS, from_text, to_text

CHUNK_IDS_MAX = 256
FINGERPRINT_BYTES = 12
LOWEST, HIGHEST = bytes(ID_BYTES), b"\xff" * ID_BYTES  # bounds before and after all ids
_SUM_MASK = (1 << 256) - 1


class Block(NamedTuple):
    """How many entries a range has, and the fingerprint of their ids."""

    entries: int
    fingerprint: bytes


def bound_text(bound: bytes) -> str:
    """Returns a bound as the shortest text that means it."""
    return END if bound == HIGHEST else to_text(bound).rstrip(BEGIN) or BEGIN


def parse_bound(text: str) -> bytes | None:
    """Reads a bound, of up to 32 characters; None where it is none."""
    if text == END:
        return HIGHEST
    return from_text(text.ljust(ID_CHARS, BEGIN)) if 0 < len(text) <= ID_CHARS else None


def bound_between(before: bytes, after: bytes) -> bytes:
    """Returns the bound with the shortest text that parts two ids: more than the one, at most the other."""
    one, other = to_text(before), to_text(after)
    size = next(at for at in range(ID_CHARS) if one[at] != other[at]) + 1
    found = parse_bound(other[:size])
    assert found is not None
    return found


def after(entry_id: bytes) -> bytes:
    """Returns the bound right after an id."""
    return (int.from_bytes(entry_id, "big") + 1).to_bytes(ID_BYTES, "big")


def _weight(entry_id: bytes) -> int:
    return int.from_bytes(blake2b(entry_id, digest_size=32).digest(), "big")


class _Chunk:
    """Some ids in a row, end to end, and the sum of their hashes."""

    __slots__ = ("ids", "sum")

    def __init__(self, ids: bytearray) -> None:
        self.ids = ids
        self.sum = self.sum_of(0, len(self))

    def __len__(self) -> int:
        return len(self.ids) // ID_BYTES

    def at(self, place: int) -> bytes:
        """Returns the id at a place."""
        return bytes(self.ids[place * ID_BYTES : (place + 1) * ID_BYTES])

    def place(self, bound: bytes) -> int:
        """Returns the place of the first id from a bound on."""
        return bisect_left(range(len(self)), bound, key=self.at)

    def sum_of(self, start: int, stop: int) -> int:
        """Returns the sum of the hashes from one place to another."""
        ids = bytes(self.ids[start * ID_BYTES : stop * ID_BYTES])
        return sum([_weight(ids[at : at + ID_BYTES]) for at in range(0, len(ids), ID_BYTES)])


class Index:
    """Ids in order."""

    def __init__(self, ids: Iterable[bytes] = ()) -> None:
        inside = sorted(ids)
        step = CHUNK_IDS_MAX // 2
        self._chunks = [
            _Chunk(bytearray(b"".join(inside[at : at + step]))) for at in range(0, len(inside), step)
        ]
        self._firsts = inside[::step]
        self._before = [(0, 0)]  # ids before each chunk, and the sum of their hashes, as far as known
        self._count = len(inside)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, entry_id: bytes) -> bool:
        return next(self.ids(entry_id, after(entry_id)), None) is not None

    @property
    def first(self) -> bytes | None:
        """The first id; None where there is none."""
        return self._firsts[0] if self._firsts else None

    def last_before(self, bound: bytes) -> bytes | None:
        """Returns the last id before a bound; None where there is none."""
        number = bisect_left(self._firsts, bound) - 1
        return None if number < 0 else self._chunks[number].at(self._chunks[number].place(bound) - 1)

    def add(self, entry_id: bytes) -> bool:
        """Takes an id in; returns whether it is new."""
        if not self._chunks:
            self._firsts, self._chunks = [entry_id], [_Chunk(bytearray(entry_id))]
            self._count = 1
            return True
        number = max(0, bisect_right(self._firsts, entry_id) - 1)
        chunk = self._chunks[number]
        place = chunk.place(entry_id)
        if place < len(chunk) and chunk.at(place) == entry_id:
            return False
        del self._before[number + 1 :]
        chunk.ids[place * ID_BYTES : place * ID_BYTES] = entry_id
        chunk.sum += _weight(entry_id)
        self._firsts[number] = chunk.at(0)
        self._count += 1
        if len(chunk) > CHUNK_IDS_MAX:
            half = CHUNK_IDS_MAX // 2 * ID_BYTES
            upper = _Chunk(chunk.ids[half:])
            del chunk.ids[half:]
            chunk.sum -= upper.sum
            self._chunks.insert(number + 1, upper)
            self._firsts.insert(number + 1, upper.at(0))
        return True

    def remove(self, entry_id: bytes) -> bool:
        """Takes an id out; returns whether it was there."""
        number = bisect_right(self._firsts, entry_id) - 1
        if number < 0:
            return False
        chunk = self._chunks[number]
        place = chunk.place(entry_id)
        if place == len(chunk) or chunk.at(place) != entry_id:
            return False
        del self._before[number + 1 :]
        del chunk.ids[place * ID_BYTES : (place + 1) * ID_BYTES]
        chunk.sum -= _weight(entry_id)
        self._count -= 1
        if chunk.ids:
            self._firsts[number] = chunk.at(0)
        else:
            del self._chunks[number], self._firsts[number]
        return True

    def ids(self, lo: bytes = LOWEST, hi: bytes = HIGHEST) -> Iterator[bytes]:
        """Yields the ids of a range in order. The index must not change meanwhile."""
        first = max(0, bisect_right(self._firsts, lo) - 1)
        for chunk in self._chunks[first : bisect_left(self._firsts, hi)]:
            yield from map(chunk.at, range(chunk.place(lo), chunk.place(hi)))

    def count(self, lo: bytes, hi: bytes) -> int:
        """Returns how many ids a range has."""
        return self._until(hi)[0] - self._until(lo)[0]

    def block(self, lo: bytes, hi: bytes) -> Block:
        """Returns the number and the fingerprint of the ids of a range."""
        before, below = self._until(lo)
        count, total = self._until(hi)
        data = (count - before).to_bytes(8, "big") + ((total - below) & _SUM_MASK).to_bytes(32, "big")
        fingerprint = blake2b(data, digest_size=FINGERPRINT_BYTES, person=b"kcastfp1")
        return Block(count - before, fingerprint.digest())

    def bounds(self, lo: bytes, hi: bytes, parts: int) -> list[bytes]:
        """Returns bounds that cut a range into as many parts, of equal count but for 1: the upper bound of
        each, the last of which is `hi`."""
        start, count = self._until(lo)[0], self.count(lo, hi)
        cuts = sorted({count * part // parts for part in range(1, parts)} - {0, count})
        return [*(bound_between(self._at(start + cut - 1), self._at(start + cut)) for cut in cuts), hi]

    def _at(self, place: int) -> bytes:
        """Returns the id at a place, which is before a bound that `_until` was asked for."""
        number = bisect_right(self._before, place, key=itemgetter(0)) - 1
        return self._chunks[number].at(place - self._before[number][0])

    def _until(self, bound: bytes) -> tuple[int, int]:
        """Returns how many ids are before a bound, and the sum of their hashes."""
        number = bisect_left(self._firsts, bound) - 1
        if number < 0:
            return 0, 0
        for chunk in self._chunks[len(self._before) - 1 : number]:
            count, total = self._before[-1]
            self._before.append((count + len(chunk), total + chunk.sum))
        count, total = self._before[number]
        chunk = self._chunks[number]
        place = chunk.place(bound)
        return count + place, total + (chunk.sum if place == len(chunk) else chunk.sum_of(0, place))


class Heads:
    """The ids that are no parent of another. They come in any order, each once."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []  # in order
        self._awaited: list[bytes] = []  # parents that have not come, in order

    def add(self, entry_id: bytes, parents: Sequence[bytes], missing: Sequence[bytes]) -> None:
        """Takes an id and its parents; `missing` are those of them that have not come."""
        for each in parents:
            _remove(self.ids, each)
        for each in missing:
            insort(self._awaited, each)
        if not _remove(self._awaited, entry_id):
            insort(self.ids, entry_id)

    def rise(self, floor: bytes) -> None:
        """Forgets what is below a floor."""
        for each in self.ids, self._awaited:
            del each[: bisect_left(each, floor)]


def _remove(ids: list[bytes], entry_id: bytes) -> bool:
    """Takes an id out of some in order; returns whether it was there."""
    at = bisect_left(ids, entry_id)
    is_there = ids[at : at + 1] == [entry_id]
    del ids[at : at + is_there]
    return is_there
