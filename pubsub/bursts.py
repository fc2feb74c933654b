"""Bursts that need not be looked at datagram by datagram: those that have only publishes. PROTOCOL §4.3."""

from collections import defaultdict

from kcast.pubsub import wire
from kcast.pubsub.endpoint import datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX


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
    lines = data.split(b"\n")
    if len(lines) > lines_max and max(_newline_counts(data, segment_bytes)) > lines_max:
        return None
    by_topic: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for line in lines:
        topic, space, _ = line.partition(b" ")
        if space:
            by_topic[topic].append(line)
        elif line:
            return None
    return by_topic or None


def _line_counts(data: bytes, needle: bytes, piece_bytes: int) -> list[int]:
    """Returns how many lines begin in each piece: the first, and those where LF and what follows is `needle`.

    Each piece ends with LF, so the search in the next one begins with the LF before it.
    """
    count = data.count
    line_counts = [1 + count(needle, 0, piece_bytes)]
    for end in range(2 * piece_bytes, len(data) + piece_bytes, piece_bytes):
        line_counts.append(count(needle, end - piece_bytes - 1, end))
    return line_counts


def _newline_counts(data: bytes, segment_bytes: int) -> list[int]:
    """Returns the number of lines in each datagram, blank ones included."""
    count = data.count
    return [count(b"\n", start, start + segment_bytes) for start in range(0, len(data), segment_bytes)]
