"""Recipients of what a client's core tells: inboxes of subscriptions, streams, and who listens to events.

A topic may have several subscriptions. One that has a guard gets what its guard lets pass, and nothing else.
"""

import heapq
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Any

from kcast.client.driving.inbox import DeliveryInbox, Inbox
from kcast.client.events import Delivery, Drop, Event, Gap, GapFilled, LeaseRefused, LeasesChanged, Limited
from kcast.client.layers.limit import Windows
from kcast.client.messages.guard_and_writer import Guard
from kcast.client.receiving.order import Sequencer


class Recipients:
    """The inboxes that there are; those that are `holding` deliveries put them in order, each with the time
    at which the first is due. What has to go for something newer is counted in `drops`."""

    def __init__(self, drops: Counter[Drop]) -> None:
        self._drops = drops
        self._by_topic: dict[bytes, list[DeliveryInbox]] = {}
        self._by_guard: dict[Guard, DeliveryInbox] = {}
        self.holding: list[tuple[float, int, DeliveryInbox]] = []  # a heap; the number is `id` of the inbox
        self._in_heap: set[DeliveryInbox] = set()
        self._streams = _Streams()
        self.unheard: Collection[bytes] = ()  # topics of layers: nobody listens to their leases and gaps

    def subscribed(self) -> list[DeliveryInbox]:
        """Returns the inboxes of all subscriptions, each once."""
        plain = (inbox for inboxes in self._by_topic.values() for inbox in inboxes)
        return list({id(inbox): inbox for inbox in (*plain, *self._by_guard.values())}.values())

    # --- Subscriptions --------------------------------------------------------------------------------

    def add(self, topic: bytes, inbox: DeliveryInbox) -> None:
        """Lets an inbox have what comes on a topic, or what its guard lets pass."""
        if inbox.guard is None:
            self._by_topic.setdefault(topic, []).append(inbox)
        else:
            self._by_guard[inbox.guard] = inbox

    def begin(self, inbox: DeliveryInbox) -> None:
        """Begins an inbox all of whose topics were added."""
        self._streams.begin(inbox)

    def remove(self, topic: bytes, inbox: DeliveryInbox) -> bool:
        """Lets an inbox have a topic no more; returns whether it was the topic's last one without a guard."""
        inboxes = self._by_topic.get(topic, [])
        if inbox in inboxes:
            inboxes.remove(inbox)
            if not inboxes:
                del self._by_topic[topic]
                return True
        return False

    def end(self, inbox: DeliveryInbox) -> None:
        """Lets go of what an inbox holds, and ends it."""
        if inbox.guard is not None:
            self._by_guard.pop(inbox.guard, None)
        if inbox.sequencer is not None:
            self._put(inbox, inbox.sequencer.release_all())
        inbox.end()

    def end_all(self) -> None:
        """Ends all waiting."""
        for inbox in self.subscribed():
            if inbox.sequencer is not None:
                self._put(inbox, inbox.sequencer.release_all())
            inbox.end()
        self._streams.end()

    # --- Streams and listeners ------------------------------------------------------------------------

    def merge(self, inbox: Inbox[Any], sources: Sequence[Inbox[Any]]) -> None:
        """Lets one inbox take the items of several: see `_Streams.merge`."""
        self._count_gone(self._streams.merge(inbox, sources, self.subscribed()))

    def unmerge(self, inbox: Inbox[Any]) -> None:
        """Ends an inbox, and lets its sources keep what comes to them from now on."""
        self._streams.unmerge(inbox)

    def listen(self, inbox: Inbox[Event]) -> None:
        """Puts events into an inbox, as long as somebody refers to it."""
        self._streams.listen(inbox)

    def ignore(self, inbox: Inbox[Event]) -> None:
        """Ends an inbox of events."""
        self._streams.ignore(inbox)

    # --- What is told ---------------------------------------------------------------------------------

    def deliver(self, deliveries: Sequence[Delivery], now: float) -> None:
        """Gives deliveries of one topic to those who subscribe to it without a guard."""
        for inbox in self._by_topic.get(deliveries[0].topic, ()):
            self._put_in_order(inbox, deliveries, now)

    def deliver_guarded(self, guard: Guard, delivery: Delivery, now: float) -> None:
        """Gives a delivery to the subscription that has this guard."""
        inbox = self._by_guard.get(guard)
        if inbox is not None:
            self._put_in_order(inbox, (delivery,), now)

    def _put_in_order(self, inbox: DeliveryInbox, deliveries: Sequence[Delivery], now: float) -> None:
        sequencer = inbox.sequencer
        if inbox.windows is not None:
            deliveries = [each for each in deliveries if self._is_within(inbox.windows, each, now)]
        if sequencer is None:
            self._put(inbox, deliveries)
            return
        self._put(inbox, [ready for each in deliveries for ready in sequencer.put(each, now)])
        self._look_later(inbox, sequencer)

    def _is_within(self, windows: Windows, delivery: Delivery, now: float) -> bool:
        """Whether a sender is within a subscription's limit. Those who listen are told of one that is not."""
        sender = delivery.sender or delivery.publisher or ""
        over = windows.take(sender, len(delivery.payload), now)
        if over is None:
            return True
        self._drops[Drop.LIMITED] += 1
        if over.is_first:
            self.tell(Limited(delivery.topic, sender, over.wait_s), None)
        return False

    def _look_later(self, inbox: DeliveryInbox, sequencer: Sequencer) -> None:
        """Sees to it that what an inbox holds is released in time."""
        due_at = sequencer.next_timeout()
        if due_at is not None and inbox not in self._in_heap:
            self._in_heap.add(inbox)
            heapq.heappush(self.holding, (due_at, id(inbox), inbox))

    def tell(self, event: Event, guard: Guard | None) -> bool:
        """Gives an event to those who listen, and numbers of leases to subscriptions. Returns False where
        nobody is to know of it."""
        if isinstance(event, LeasesChanged):
            self._put_leases(event, guard)
        match event:
            case LeasesChanged() | LeaseRefused() | Gap() | GapFilled():
                if event.topic[:1] == b"\0" or event.topic in self.unheard:
                    return False  # kcast's own: nobody has asked for it, also where it comes late
        for listener in self._streams.listening():
            self._put(listener, (event,))
        return True

    def _put_leases(self, event: LeasesChanged, guard: Guard | None) -> None:
        if guard is None:
            inboxes: Iterable[DeliveryInbox] = self._by_topic.get(event.topic, ())
        else:
            inboxes = (self._by_guard[guard],) if guard in self._by_guard else ()
        for inbox in inboxes:
            inbox.put_leases(event.topic, event.leased, event.wanted)

    def release(self, now: float, has_read_all: bool) -> float:
        """Delivers what inboxes have held long enough; returns when more is due, infinite while nothing is.

        What is waited for may have arrived, and not have been read: then it waits once more as long at most.
        """
        due = []
        while self.holding and self.holding[0][0] <= now:
            due.append(heapq.heappop(self.holding)[2])
        for inbox in due:
            self._in_heap.discard(inbox)
            if (sequencer := inbox.sequencer) is not None:
                self._put(inbox, sequencer.release(now if has_read_all else now - sequencer.hold_s))
                self._look_later(inbox, sequencer)
        return self.holding[0][0] if self.holding else inf

    def _put(self, inbox: Inbox[Any], items: Sequence[Event]) -> None:
        if items:
            self._count_gone(inbox.put(items))

    def _count_gone(self, gone: Iterable[object]) -> None:
        for each in gone:
            if isinstance(each, Delivery):
                self._drops[Drop.SLOW_CONSUMER] += 1


class _Streams:
    """The stream that takes the items of all inboxes, and the inboxes of events. One that nobody refers to
    any more is forgotten."""

    def __init__(self) -> None:
        # Weakly: see `Inbox`.
        self._catch_all: Callable[[], Inbox[Any] | None] = lambda: None
        # (A WeakSet could change while another thread walks it.)
        self._listeners: list[weakref.ref[Inbox[Event]]] = []

    def merge(
        self, inbox: Inbox[Any], sources: Sequence[Inbox[Any]], others: Iterable[Inbox[Any]]
    ) -> list[object]:
        """Lets one inbox take the items of several; without any, those of all others, later ones too. Returns
        what had to go for it.

        Raises ValueError where another inbox, or a function, takes those of a source.
        """
        if not sources and self._catch_all() is not None:
            raise ValueError("there is a stream of all subscriptions already: use that, or close it first")
        if any(source.target is not source for source in sources):
            raise ValueError("one of these is part of another stream: use that, or close it first")
        if any(source.is_called for source in sources):
            raise ValueError("one of these has an on_delivery, to which its deliveries go: leave it out")
        free = (each for each in others if each.target is each and not each.is_called)
        gone = [item for source in sources or free for item in inbox.take_over(source)]
        if sources:
            inbox.end_with_sources()
        else:
            self._catch_all = weakref.ref(inbox)
        return gone

    def unmerge(self, inbox: Inbox[Any]) -> None:
        """Ends an inbox, and lets its sources keep what comes to them from now on."""
        if inbox is self._catch_all():
            self._catch_all = lambda: None
        inbox.give_back()

    def begin(self, inbox: Inbox[Any]) -> None:
        """Lets the stream of all take what will come to a new inbox, if there is one."""
        stream = self._catch_all()
        if stream is not None and not inbox.is_called:
            stream.take_over(inbox)

    def listen(self, inbox: Inbox[Event]) -> None:
        """Lets an inbox have events."""
        self._listeners = [weakref.ref(inbox), *map(weakref.ref, self.listening())]

    def ignore(self, inbox: Inbox[Event]) -> None:
        """Ends an inbox of events."""
        self._listeners = [weakref.ref(other) for other in self.listening() if other is not inbox]
        inbox.end()

    def listening(self) -> list[Inbox[Event]]:
        """Returns the inboxes of events."""
        return [inbox for reference in self._listeners if (inbox := reference()) is not None]

    def end(self) -> None:
        """Ends all of them."""
        stream = self._catch_all()
        for inbox in (*([] if stream is None else [stream]), *self.listening()):
            inbox.end()
