"""Routes publishes: who gets which lines, and in which datagrams. PROTOCOL §4.3. Sans-IO.

`survey` looks at what arrived as a whole: are these only publishes, how many, and how many copies do they
cause? `Packer` gathers the lines that each subscriber gets, and packs them in few datagrams, once for all who
want the same. Both take *routes*, which say for each topic who has leased it (`kcast.pubsub.table`).

Text is handled in large pieces, since a call costs more than the bytes: what is looked at line by line costs
ten times as much as what is counted.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress
from operator import eq, mul
from typing import NamedTuple, Protocol, cast

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX


class Many:
    """Subscribers of a topic that are too many for a route. Its length is the number of those that publishers
    pay for (`kcast.pubsub.audience`)."""

    __slots__ = ("_paid_count",)

    def __init__(self, paid_count: int) -> None:
        self._paid_count = paid_count

    def __len__(self) -> int:
        return self._paid_count


Route = tuple[Address, ...] | Many
"""The subscribers of a topic."""


class Routes(Protocol):
    """The routes of topics (wire form). A topic that nobody has leased has an empty one."""

    def __getitem__(self, topic: bytes, /) -> Route:
        """Returns a topic's route."""


class Survey(NamedTuple):
    """What lines cause: `copies` of them, with `size_bytes` altogether. If they can leave as they came,
    `topic` is the one that all are of."""

    lines: int
    copies: int
    size_bytes: int
    topic: bytes | None


def survey(data: bytes, segment_bytes: int, lines_max: int, routes: Routes) -> Survey | None:
    """Surveys datagrams of `segment_bytes` in which all lines that are not blank are publishes.

    Returns None for others: those with a subscribe or control line, with bytes after the last LF of a
    datagram, with more than `lines_max` lines in one, or without any line.
    """
    if data.find(b"\n") == len(data) - 1:  # one line: what a publisher sends that sends little
        topic, space, _ = data.partition(b" ")
        count = len(routes[topic])
        if not space or len(data) > segment_bytes or (not count and wire.is_control(data)):
            return None
        return Survey(1, count, (len(data) - 1) * count, None)
    if data[-1:] != b"\n" or data[segment_bytes - 1 :: segment_bytes].strip(b"\n"):
        return None
    whole = whole_topic(data, segment_bytes, lines_max) if len(data) > segment_bytes else None
    if whole is not None:
        topic, line_count = whole
        count = len(routes[topic])
        return Survey(line_count, line_count * count, len(data) * count, topic if count else None)
    lines = list(filter(None, data.split(b"\n")))
    if not lines or (len(lines) > lines_max and _has_too_many(data, segment_bytes, lines_max)):
        return None
    topics = [line.partition(b" ")[0] for line in lines]
    counts = list(map(len, map(routes.__getitem__, topics)))
    # A subscribe line is its topic. And a control line is of no topic that can be leased.
    if any(map(eq, topics, lines)) or (not all(counts) and _has_control(lines, counts)):
        return None
    return Survey(len(lines), sum(counts), sum(map(mul, map(len, lines), counts)), None)


def whole_topic(data: bytes, segment_bytes: int, lines_max: int) -> tuple[bytes, int] | None:
    """Returns the topic and the number of lines of a burst whose non-blank lines are all publishes of it.

    Returns None for other bursts, and for more than `lines_max` lines in a datagram. To be fast, it
    counts prefixes and does not cut 64 KB into lines. All lines are publishes of the topic if the burst
    begins with `topic SP`, and if `LF topic SP` occurs once for each further non-blank line.
    """
    topic, space, _ = data[:DATAGRAM_BYTES_MAX].partition(b" ")
    if not space or data[-1:] != b"\n" or data[segment_bytes - 1 :: segment_bytes].strip(b"\n"):
        return None
    prefix = topic + b" "
    # Most bursts of several topics show another topic in the second datagram: then nothing is counted.
    second = data[segment_bytes : 2 * segment_bytes].lstrip(b"\n")
    if second and not second.startswith(prefix):
        return None
    needle = b"\n" + prefix
    newline_count = data.count(b"\n")
    # Counted in as few pieces as show that no datagram has too many.
    datagrams_of_piece = max(1, lines_max * len(data) // (newline_count * segment_bytes))
    line_counts = _line_counts(data, needle, datagrams_of_piece * segment_bytes)
    if max(line_counts) > lines_max and datagrams_of_piece > 1:
        line_counts = _line_counts(data, needle, segment_bytes)
    if sum(line_counts) != newline_count and b"\n\n" in data:
        newline_count = sum(len(wire.split_lines(each)[0]) for each in datagrams(data, segment_bytes))
    if sum(line_counts) != newline_count or max(line_counts) > lines_max or not wire.is_topic(topic):
        return None
    return topic, newline_count


def _line_counts(data: bytes, needle: bytes, piece_bytes: int) -> list[int]:
    """Returns how many lines begin in each piece: the first, and those where LF and what follows is `needle`.

    Each piece ends with LF, so the search in the next one begins with the LF before it.
    """
    count = data.count
    line_counts = [1 + count(needle, 0, piece_bytes)]
    for end in range(2 * piece_bytes, len(data) + piece_bytes, piece_bytes):
        line_counts.append(count(needle, end - piece_bytes - 1, end))
    return line_counts


def _has_too_many(data: bytes, segment_bytes: int, lines_max: int) -> bool:
    """Whether a datagram has more lines than it may; blank ones do not count."""
    count = data.count
    for start in range(0, len(data), segment_bytes):
        end = start + segment_bytes
        if count(b"\n", start, end) > lines_max and len(wire.split_lines(data[start:end])[0]) > lines_max:
            return True
    return False


def _has_control(lines: Sequence[bytes], counts: Sequence[int]) -> bool:
    return any(not count and wire.is_control(line) for line, count in zip(lines, counts, strict=True))


class Packer:
    """The lines that each subscriber gets. Its length is the number of subscribers."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._places: defaultdict[Address, list[int]] = defaultdict(list)  # of a subscriber's lines in these

    def __len__(self) -> int:
        return len(self._places)

    def add(self, data: bytes, routes: Routes) -> tuple[int, int, list[bytes]]:
        """Takes publishes for those who have leased their topics.

        Returns the number of copies, their bytes, and the lines (without LF) that it left: nobody has leased
        their topic, or too many have.
        """
        lines = list(filter(None, data.split(b"\n")))
        found = [routes[line.partition(b" ")[0]] for line in lines]
        left: list[bytes] = []
        if not all(found) or Many in map(type, found):
            taken = [bool(route) and type(route) is tuple for route in found]
            left = [line for line, is_taken in zip(lines, taken, strict=True) if not is_taken]
            lines, found = list(compress(lines, taken)), list(compress(found, taken))
        places, place = self._places, len(self._lines)
        for route in cast("list[tuple[Address, ...]]", found):
            for address in route:
                places[address].append(place)
            place += 1
        self._lines += lines
        counts = list(map(len, found))
        return sum(counts), sum(map(mul, map(len, lines), counts)), left

    def add_for(self, data: bytes, addresses: Sequence[Address]) -> None:
        """Takes publishes for all of these subscribers."""
        lines = list(filter(None, data.split(b"\n")))
        added = range(len(self._lines), len(self._lines) + len(lines))
        for address in addresses:
            self._places[address] += added
        self._lines += lines

    def pack(self, mark: bytes) -> list[Transmit]:
        """Returns what each subscriber gets, and forgets it. Each datagram begins with `mark` (§4.4)."""
        addresses_of: defaultdict[tuple[int, ...], list[Address]] = defaultdict(list)
        for address, places in self._places.items():
            addresses_of[tuple(places)].append(address)
        all_lines, packed = self._lines, list[Transmit]()
        for chosen, addresses in addresses_of.items():
            lines = [all_lines[place] for place in chosen]
            packed.append(Transmit(*wire.pack_lines(lines, mark=mark), addresses, len(lines)))
        self._lines, self._places = [], defaultdict(list)
        return packed


class PackerLike(Protocol):
    """A `Packer` of one of the two routers."""

    def __len__(self) -> int:
        """Returns the number of subscribers."""

    def add(self, data: bytes, routes: Routes, /) -> tuple[int, int, list[bytes]]:
        """Does as `Packer.add`."""

    def add_for(self, data: bytes, addresses: Sequence[Address], /) -> None:
        """Does as `Packer.add_for`."""

    def pack(self, mark: bytes, /) -> Sequence[Transmit]:
        """Does as `Packer.pack`."""


class Router(NamedTuple):
    """One of the two routers, which do the same. `survey` returns a tuple of what a `Survey` has."""

    survey: Callable[[bytes, int, int, Routes], Survey | None]
    make_packer: Callable[[], PackerLike]


PYTHON = Router(survey, Packer)
