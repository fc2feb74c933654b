"""Routing: published lines in, transmits to subscribers out. PROTOCOL §4.3. Sans-IO.

A batch of bursts is routed first, then each subscriber gets all its lines in as few datagrams as they fit:
the number of system calls, not of bytes, is what a copy costs. A burst whose lines are all of one topic
leaves as it came, without being cut into lines.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.table import LeaseTable


class Router:
    """Routes by the leases of `table`; `counts` are told of `copies_sent`.

    `marks_copies`: every datagram of copies begins with a blank line, as an open server's do (§4.4).
    """

    def __init__(self, table: LeaseTable, counts: Counter[str], *, marks_copies: bool = False) -> None:
        self._table = table
        self._counts = counts
        self._mark = b"\n" if marks_copies else b""
        self._bursts: list[Transmit] = []
        self._lines_by_topic: defaultdict[bytes, list[bytes]] = defaultdict(list)

    def forward(self, topic: bytes, lines: list[bytes]) -> int:
        """Takes lines (without LF) of one topic; they leave with the next `flush`.

        Returns how many do not fit in a datagram of copies: those that the mark makes too long.
        """
        fitting = lines
        if self._mark:
            fitting = [line for line in lines if len(self._mark) + len(line) < DATAGRAM_BYTES_MAX]
        if fitting:
            self._lines_by_topic[topic] += fitting
        return len(lines) - len(fitting)

    def forward_burst(
        self, data: bytes, segment_bytes: int, topic: bytes, line_count: int, now: float
    ) -> bool:
        """Takes a burst of one topic, to leave as it came; False where nobody wants it."""
        assert not self._mark
        subscribers = self._table.subscribers(topic, now)
        if not subscribers:
            return False
        waiting = self._lines_by_topic.pop(topic, None)
        if waiting:
            # What came before it leaves before it.
            line_count += len(waiting)
            self._bursts.append(Transmit(*wire.pack_lines(waiting), subscribers))
        self._counts["copies_sent"] += line_count * len(subscribers)
        self._bursts.append(Transmit(data, segment_bytes, subscribers))
        return True

    def flush(self, now: float) -> tuple[list[Transmit], dict[bytes, int]]:
        """What is to be sent; and of topics that nobody wanted, how many lines."""
        unwanted: dict[bytes, int] = {}
        wanted: dict[bytes, list[bytes]] = {}
        topics_of: defaultdict[Address, list[bytes]] = defaultdict(list)
        transmits, self._bursts = self._bursts, []
        for topic, lines in self._lines_by_topic.items():
            subscribers = self._table.subscribers(topic, now)
            if not subscribers:
                unwanted[topic] = len(lines)
                continue
            self._counts["copies_sent"] += len(lines) * len(subscribers)
            size_bytes = len(lines[0]) if len(lines) == 1 else sum(map(len, lines))
            if size_bytes > DATAGRAM_BYTES_MAX // 2:
                # Enough for a datagram by itself: packed once for all its subscribers. To copy it for each
                # would let a few busy topics and many odd sets of them fill the memory.
                transmits.append(Transmit(*wire.pack_lines(lines, mark=self._mark), subscribers))
                continue
            wanted[topic] = lines
            for address in subscribers:
                topics_of[address].append(topic)
        self._lines_by_topic.clear()
        transmits += self._pack_for_each(wanted, topics_of)
        return transmits, unwanted

    def _pack_for_each(
        self, lines_of: dict[bytes, list[bytes]], topics_of: dict[Address, list[bytes]]
    ) -> Iterator[Transmit]:
        """Each subscriber's lines together; one packing for equal sets of topics."""
        audiences: defaultdict[tuple[bytes, ...], list[Address]] = defaultdict(list)
        for address, topics in topics_of.items():
            audiences[tuple(topics)].append(address)
        for topics_wanted, addresses in audiences.items():
            lines = [line for topic in topics_wanted for line in lines_of[topic]]
            yield Transmit(*wire.pack_lines(lines, mark=self._mark), addresses)


def whole_topic(data: bytes, segment_bytes: int, lines_max: int) -> tuple[bytes, int] | None:
    """The topic of a burst whose every non-blank line is a publish of it, and the number of lines.

    None for other bursts, and for those with more than `lines_max` lines in a datagram. Decided by counting,
    without cutting 64 KB into lines: all lines start with `topic SP` when that prefix stands at the start and
    after every LF that ends a non-blank line.
    """
    topic, space, _ = data[:DATAGRAM_BYTES_MAX].partition(b" ")
    if not space or data[-1:] != b"\n" or data[segment_bytes - 1 :: segment_bytes].strip(b"\n"):
        return None
    prefix = topic + b" "
    # Most bursts of several topics show it in their second datagram: they need not be counted through.
    second = data[segment_bytes : 2 * segment_bytes].lstrip(b"\n")
    if second and not second.startswith(prefix):
        return None
    line_count = 1 + data.count(b"\n" + prefix)
    line_counts = [datagram.count(b"\n") for datagram in datagrams(data, segment_bytes)]
    if sum(line_counts) != line_count and b"\n\n" in data:
        line_counts = [len(wire.split_lines(datagram)[0]) for datagram in datagrams(data, segment_bytes)]
    if sum(line_counts) != line_count or max(line_counts) > lines_max or not wire.is_topic(topic):
        return None
    return topic, line_count


def publishes_by_topic(data: bytes, segment_bytes: int, lines_max: int) -> dict[bytes, list[bytes]] | None:
    """The lines (without LF) of a burst that is nothing but publishes, by topic, each topic's in order.

    None for bursts that have to be looked at datagram by datagram: with subscribe or control lines (or topics
    that begin with an escape), with bytes after a last LF, or with more than `lines_max` lines in a datagram,
    padding counted.
    """
    if data[-1:] != b"\n" or data[segment_bytes - 1 :: segment_bytes].strip(b"\n"):
        return None
    if data.startswith(b"%") or b"\n%" in data:
        return None
    for start in range(0, len(data), segment_bytes):
        if data.count(b"\n", start, start + segment_bytes) > lines_max:
            return None
    by_topic: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for line in data.split(b"\n"):
        topic, space, _ = line.partition(b" ")
        if space:
            by_topic[topic].append(line)
        elif line:
            return None
    return by_topic or None
