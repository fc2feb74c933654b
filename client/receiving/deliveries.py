"""Makes deliveries of copies: the first of each that can be read, and the gaps between them. Sans-IO.

PROTOCOL §9.

copy -> subscribed to, by way of this server? -> first copy? -> can it be read? -> delivery, gap filled
     -> or, where a guard judges: at first sight sound? -> first copy? -> proven? -> delivery, gap filled
"""

from collections import Counter
from collections.abc import Iterable

from kcast.client.events import Delivery, Drop
from kcast.client.messages import envelope as enveloping
from kcast.client.messages.guard_and_writer import Guard, Guarded, Taken, Told
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.receiving.gaps import GapTracker, Key
from kcast.client.receiving.native import Numbers
from kcast.client.receiving.subscriptions import Subscription, Subscriptions
from kcast.client.session.session import Session
from kcast.pubsub.endpoint import Burst, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

_new = tuple.__new__  # makes a NamedTuple in half the time: without a Python call


class Deliveries:
    """What has come of the topics that are subscribed to, and the `gaps` in that. It adds to `counts` and
    `drops`. Where None is given for `copies` or `gaps`, they have their usual bounds.

    `unheard` are numbers that were delivered, of which it was not looked yet what gaps they make or fill.
    """

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
        self.unheard: Numbers = {}
        self._unheard_at = 0.0

    def take(
        self, data: bytes, session: Session, now: float, clock_offset_s: float, told: list[Told]
    ) -> None:
        """Takes copies that a server has brought, each with its LF; adds what to tell of them to `told`.

        `clock_offset_s` makes seconds since 1970 of `now`. Call `hear` once all is taken that has come.
        """
        server, received_at_s = session.name, now + clock_offset_s
        if self.unheard and now != self._unheard_at:
            self.hear(told)
        self._unheard_at = now
        if self._copies.native is None:
            self._take_lines([line for line in data.split(b"\n") if line], session, now, received_at_s, told)
            return

        def name_of(wire_topic: bytes) -> bytes | None:
            subscription = self._subscriptions.get(wire_topic)
            is_believed = subscription is not None and session in subscription.believed
            return subscription.plain_name if subscription is not None and is_believed else None

        at, counts = 0, self._counts
        while True:
            at, copies, duplicates, deliveries = self._copies.take(
                data, at, name_of, server, now, received_at_s, told, self.unheard
            )
            counts["copies_received"] += copies
            counts["duplicates"] += duplicates
            counts["deliveries"] += deliveries
            if at >= len(data):
                return
            end = data.find(b"\n", at)
            self._take_lines((data[at:end],), session, now, received_at_s, told)
            at = end + 1

    def hear(self, told: list[Told]) -> None:
        """Looks at the numbers that were delivered since the last call; adds to `told` what they fill."""
        numbers, self.unheard = self.unheard, {}
        for key, seqs in numbers.items():
            if len(seqs) > 1:
                told += self.gaps.heard_all(key, seqs, self._unheard_at)
            elif (filled := self.gaps.heard(key, seqs[0], self._unheard_at)) is not None:
                told.append(filled)

    def _take_lines(
        self, lines: Iterable[bytes], session: Session, now: float, at: float, told: list[Told]
    ) -> None:
        """Takes copies, without their LF. `at` is in seconds since 1970."""
        server, numbers = session.name, self.unheard
        is_new, drops = self._copies.is_new, self._drops
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
                    topic = subscription.plain_name if subscription is not None and is_believed else None
                if topic is None:
                    if subscription is not None and is_believed:
                        known, told_of = self._take_guarded(line, subscription, server, now, at, told)
                        duplicates += known
                        deliveries += told_of
                    else:
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
                told.append(
                    _new(Delivery, (topic, payload, server, publisher, seq, attributes, at, None, None, None))
                )
                if publisher is not None and seq is not None:
                    key = topic, publisher
                    if key in numbers:
                        numbers[key].append(seq)
                    else:
                        numbers[key] = [seq]
        finally:
            self._counts["copies_received"] += copies
            self._counts["duplicates"] += duplicates
            self._counts["deliveries"] += deliveries

    def _take_guarded(
        self,
        line: bytes,
        subscription: Subscription,
        server: str,
        now: float,
        at: float,
        told: list[Told],
    ) -> tuple[int, int]:
        """Takes a copy on a topic that guards judge, for each of those who want it. Returns the numbers of
        duplicates and of deliveries, of all of them together."""
        wire_topic, _, message = line.partition(b" ")
        duplicates = deliveries = 0
        for guard, name in subscription.takers.items():
            found: tuple[Delivery, Key | None] | Taken | Drop | None
            if guard is None:
                found = self._read_unproven(line, message, name, server, now, at)
            else:
                found = self._judge(guard, line, wire_topic, message, name, server, now, at)
                told += [Guarded(guard, event) for event in guard.take_events()]
            if found is None:
                duplicates += 1
            elif isinstance(found, Drop):
                self._drops[found] += 1
            elif not isinstance(found, Taken):
                delivery, key = found
                deliveries += 1
                told.append(delivery if guard is None else Guarded(guard, delivery))
                if key is not None and delivery.seq is not None:
                    self.unheard.setdefault(key, []).append(delivery.seq)
        return duplicates, deliveries

    def _judge(
        self,
        guard: Guard,
        line: bytes,
        wire_topic: bytes,
        message: bytes,
        name: bytes,
        server: str,
        now: float,
        at: float,
    ) -> tuple[Delivery, Key | None] | Taken | Drop | None:
        """Returns what a guard makes of a copy, with what its numbers are known by; None for a duplicate."""
        claim = guard.glance(wire_topic, message, at)
        if isinstance(claim, Drop | Taken):
            return claim
        if not self._copies.is_new(guard.mark + line, server, False, now):
            return None
        proven = guard.judge(name, claim, at)
        if isinstance(proven, Drop | Taken):
            return proven
        payload, publisher, seq, attributes, sender, group, sent_at, by = proven
        delivery = Delivery(name, payload, server, publisher, seq, attributes, at, sender, group, sent_at)
        return delivery, (name, publisher, guard.mark + by)

    def _read_unproven(
        self, line: bytes, message: bytes, name: bytes, server: str, now: float, at: float
    ) -> tuple[Delivery, Key | None] | Drop | None:
        """Returns what a subscription without a guard makes of a copy, as `_judge` does."""
        if not self._copies.is_new(line, server, not enveloping.is_enveloped(message), now):
            return None
        read = enveloping.read(message)
        if isinstance(read, Drop):
            return read
        publisher, seq, payload, attributes = read
        key = None if publisher is None else (name, publisher)
        return Delivery(name, payload, server, publisher, seq, attributes, at), key


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
