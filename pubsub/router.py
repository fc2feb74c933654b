"""Routing: takes published lines, returns what to send to subscribers. PROTOCOL §4.3. Sans-IO.

A batch of bursts is routed first. Then each subscriber gets all its lines in as few datagrams as possible,
because a copy costs system calls, hardly bytes. A burst whose lines are all of one topic leaves as it came,
without being cut into lines.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.table import LeaseTable


class Router:
    """Routes by the leases of `table`, and counts `copies_sent` in `counts`.

    With `marks_copies` every datagram of copies begins with a blank line, as at an open server (§4.4).
    """

    def __init__(self, table: LeaseTable, counts: Counter[str], *, marks_copies: bool = False) -> None:
        self._table = table
        self._counts = counts
        self._mark = b"\n" if marks_copies else b""
        self._bursts: list[Transmit] = []
        self._lines_by_topic: defaultdict[bytes, list[bytes]] = defaultdict(list)

    def forward(self, topic: bytes, lines: list[bytes]) -> int:
        """Takes lines (without LF) of one topic; they leave with the next `flush`.

        Returns the number of lines that are left out because the mark makes them too long for a datagram.
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
        """Takes a burst of one topic, to leave as it came. Returns False if nobody subscribed to it."""
        assert not self._mark
        subscribers = self._table.subscribers(topic, now)
        if not subscribers:
            return False
        waiting = self._lines_by_topic.pop(topic, None)
        if waiting:
            # Lines that came before the burst leave before it.
            line_count += len(waiting)
            self._bursts.append(Transmit(*wire.pack_lines(waiting), subscribers))
        self._counts["copies_sent"] += line_count * len(subscribers)
        self._bursts.append(Transmit(data, segment_bytes, subscribers))
        return True

    def flush(self, now: float) -> tuple[list[Transmit], dict[bytes, int]]:
        """Returns what to send, and the number of lines by topic for topics without a subscriber."""
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
                # Enough to fill a datagram alone, so it is packed once for all its subscribers. If it were
                # copied for each set of topics, a few busy topics in many sets could fill the memory.
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
        """Packs each subscriber's lines together, once for subscribers with the same topics."""
        audiences: defaultdict[tuple[bytes, ...], list[Address]] = defaultdict(list)
        for address, topics in topics_of.items():
            audiences[tuple(topics)].append(address)
        for topics_wanted, addresses in audiences.items():
            lines = [line for topic in topics_wanted for line in lines_of[topic]]
            yield Transmit(*wire.pack_lines(lines, mark=self._mark), addresses)


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
    line_count = 1 + data.count(b"\n" + prefix)
    line_counts = [datagram.count(b"\n") for datagram in datagrams(data, segment_bytes)]
    if sum(line_counts) != line_count and b"\n\n" in data:
        line_counts = [len(wire.split_lines(datagram)[0]) for datagram in datagrams(data, segment_bytes)]
    if sum(line_counts) != line_count or max(line_counts) > lines_max or not wire.is_topic(topic):
        return None
    return topic, line_count


def publishes_by_topic(data: bytes, segment_bytes: int, lines_max: int) -> dict[bytes, list[bytes]] | None:
    """Returns the lines (without LF) of a burst that has only publishes, by topic, in their order.

    Returns None for bursts that must be looked at datagram by datagram: those with subscribe or control lines
    (or topics that begin with an escape), with bytes after the last LF of a datagram, or with more than
    `lines_max` lines in a datagram, blank ones included.
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
