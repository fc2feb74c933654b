"""Makes deliveries of copies: the first of each that can be read, and the gaps between them. Sans-IO.

PROTOCOL §9.

copy -> subscribed to, by way of this server? -> first copy? -> can it be read? -> delivery, gap filled
"""

from collections import Counter
from collections.abc import Iterable

from kcast.client import envelope as enveloping
from kcast.client.dedup import CopyFilter
from kcast.client.events import Delivery, Drop, Event
from kcast.client.gaps import GapTracker
from kcast.client.session import Session
from kcast.client.subscriptions import Subscriptions
from kcast.pubsub.endpoint import Burst, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

_new = tuple.__new__  # makes a NamedTuple in half the time: without a Python call


class Deliveries:
    """What has come of the topics that are subscribed to, and the `gaps` in that. It adds to `counts` and
    `drops`. Where None is given for `copies` or `gaps`, they have their usual bounds."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        copies: CopyFilter | None,
        gaps: GapTracker | None,
        counts: Counter[str],
        drops: Counter[Drop],
    ) -> None:
        self._subscriptions = subscriptions
        self._copies = CopyFilter() if copies is None else copies  # one is false while it is empty
        self.gaps = GapTracker() if gaps is None else gaps
        self._counts = counts
        self._drops = drops

    def take(
        self, lines: Iterable[bytes], session: Session, now: float, clock_offset_s: float, told: list[Event]
    ) -> None:
        """Takes copies that a server has brought, without their LF; adds what to tell of them to `told`.

        `clock_offset_s` makes seconds since 1970 of `now`.
        """
        server, at = session.name, now + clock_offset_s
        is_new, heard, drops = self._copies.is_new, self.gaps.heard, self._drops
        copies = duplicates = deliveries = 0
        start = topic = None  # of the last line: its topic with the space, and its topic if it counts
        try:
            for line in lines:
                copies += 1
                if start is None or not line.startswith(start):
                    wire_topic, _, _ = line.partition(b" ")
                    start = wire_topic + b" "
                    subscription = self._subscriptions.get(wire_topic)
                    is_believed = subscription is not None and session in subscription.believed
                    topic = subscription.name if subscription is not None and is_believed else None
                if topic is None:
                    drops[Drop.NOT_SUBSCRIBED] += 1
                    continue
                message = line[len(start) :]
                if not is_new(line, server, not message.startswith(enveloping.BEGINNING), now):
                    duplicates += 1
                    continue
                read = enveloping.read(message) if len(line) >= len(start) else Drop.MALFORMED_MESSAGE
                if isinstance(read, Drop):
                    drops[read] += 1
                    continue
                publisher, seq, payload, attributes = read
                deliveries += topic[:1] != b"\0"
                told.append(_new(Delivery, (topic, payload, server, publisher, seq, attributes, at)))
                if publisher is not None and seq is not None:
                    filled = heard(topic, publisher, seq, now)
                    if filled is not None:
                        told.append(filled)
        finally:
            self._counts["copies_received"] += copies
            self._counts["duplicates"] += duplicates
            self._counts["deliveries"] += deliveries


def has_only_copies(burst: Burst) -> bool:
    """Whether each datagram of a burst has whole lines, at least one, and none that begins with `%`.

    Then it is one run of lines. All else is looked at datagram by datagram.
    """
    data, segment_bytes = burst.data, burst.segment_bytes
    if data.startswith(b"%") or b"\n%" in data or not data.endswith(b"\n"):
        return False
    if segment_bytes > DATAGRAM_BYTES_MAX or data[segment_bytes - 1 :: segment_bytes].strip(b"\n"):
        return False
    may_be_blank = b"\n" in data[::segment_bytes]
    return not may_be_blank or all(each.strip(b"\n") for each in datagrams(data, segment_bytes))
