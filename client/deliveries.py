"""Makes deliveries of copies: the first of each that can be read, and the gaps between them. Sans-IO.

PROTOCOL §9.

copy -> subscribed to, by way of this server? -> first copy? -> can it be read? -> delivery, gap filled
"""

from collections import Counter

from kcast.client import envelope as enveloping
from kcast.client.dedup import CopyFilter
from kcast.client.events import Delivery, Drop, GapFilled
from kcast.client.gaps import GapTracker
from kcast.client.session import Session
from kcast.client.subscriptions import Subscriptions


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
        self, line: bytes, session: Session, now: float, clock_offset_s: float
    ) -> list[Delivery | GapFilled]:
        """Takes a copy that a server has brought, without its LF; returns what to tell of it.

        `clock_offset_s` makes seconds since 1970 of `now`.
        """
        self._counts["copies_received"] += 1
        wire_topic, _, message = line.partition(b" ")
        subscription = self._subscriptions.get(wire_topic)
        if subscription is None or session not in subscription.believed:
            self._drops[Drop.NOT_SUBSCRIBED] += 1
            return []
        server, topic = session.server.name, subscription.name
        if not self._copies.is_new(line, server, not enveloping.is_enveloped(message), now):
            self._counts["duplicates"] += 1
            return []
        read = enveloping.read(message) if b" " in line else Drop.MALFORMED_MESSAGE
        if isinstance(read, Drop):
            self._drops[read] += 1
            return []
        publisher, seq, payload, attributes = read
        self._counts["deliveries"] += topic[:1] != b"\0"
        delivery = Delivery(topic, payload, server, publisher, seq, attributes, now + clock_offset_s)
        if publisher is None or seq is None:
            return [delivery]
        filled = self.gaps.heard(topic, publisher, seq, now)
        return [delivery] if filled is None else [delivery, filled]
