"""Bursts of publishes: taken whole, they are what their datagrams are one by one. PROTOCOL §4.3."""

from kcast.pubsub import wire
from kcast.pubsub.bursts import publishes_by_topic, whole_topic
from kcast.pubsub.endpoint import datagrams

HEAD_BYTES = 2


def check(data: bytes) -> None:
    """Takes a byte for the datagrams' length, one for the most lines of each, and what arrives."""
    if len(data) <= HEAD_BYTES:
        return
    segment_bytes, lines_max, burst = 1 + data[0], 2 + data[1] % 63, data[HEAD_BYTES:]
    assert publishes_by_topic(burst, segment_bytes, lines_max) == naive_publishes_by_topic(
        burst, segment_bytes, lines_max
    )
    cut = [wire.split_lines(datagram) for datagram in datagrams(burst, segment_bytes)]
    lines = [line for datagram, _ in cut for line in datagram]
    topics = {line.partition(b" ")[0] for line in lines}
    is_whole = (
        not any(is_unterminated for _, is_unterminated in cut)
        and all(b" " in line for line in lines)
        and len(topics) == 1
        and all(map(wire.is_topic, topics))
        and max(len(datagram) for datagram, _ in cut) <= lines_max
        and burst[0] != 0x0A  # what begins with a blank line is left to those who look at each datagram
    )
    assert whole_topic(burst, segment_bytes, lines_max) == ((*topics, len(lines)) if is_whole else None)


def naive_publishes_by_topic(
    data: bytes, segment_bytes: int, lines_max: int
) -> dict[bytes, list[bytes]] | None:
    """What `publishes_by_topic` is to return."""
    by_topic: dict[bytes, list[bytes]] = {}
    for datagram in datagrams(data, segment_bytes):
        lines, unterminated = wire.split_lines(datagram)
        if unterminated or datagram.count(b"\n") > lines_max:
            return None
        for line in lines:
            if line.startswith(b"%") or b" " not in line:
                return None
            by_topic.setdefault(line[: line.index(b" ")], []).append(line)
    return by_topic or None
