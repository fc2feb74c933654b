"""client/driving/inbox.py with an engine: what waits until it is taken, and streams of several; no driver."""

import gc
from typing import Any

import pytest

from kcast.client.driving.engine import Engine
from kcast.client.driving.inbox import DeliveryInbox, Inbox
from kcast.client.events import Delivery, Drop, Event, LeasesChanged
from tests.client.driving.test_engine import Bell, opened

pytestmark = pytest.mark.world


def subscribed(engine: Engine, topic: bytes, **options: Any) -> DeliveryInbox:
    inbox = DeliveryInbox(Bell(), **({"size_max": 10} | options))
    engine.subscribe([topic], inbox)
    return inbox


def come(engine: Engine, *numbers: int, topic: bytes = b"t") -> None:
    for number in numbers:
        engine.tell((Delivery(topic, b"%d" % number, "s", "p", number),), 0.0)


def numbers_in(inbox: Inbox[Any]) -> list[int | None]:
    return [item.seq if isinstance(item, Delivery) else None for item in inbox.items]


def merged(engine: Engine, *sources: Inbox[Any], size_max: int = 10) -> Inbox[Any]:
    inbox: Inbox[Any] = Inbox(Bell(), size_max)
    engine.merge(inbox, sources)
    return inbox


def test_inbox_keeps_the_newest_and_tells_what_had_to_go() -> None:
    bell = Bell()
    inbox: Inbox[str] = Inbox(bell, 2)
    assert [list(inbox.put(items)) for items in ("ab", "c", "defg")] == [[], ["a"], ["b", "c", "d", "e"]]
    inbox.end()
    inbox.end()
    assert (list(inbox.items), inbox.is_ended, bell.wakes) == (["f", "g"], True, 4)


def test_each_delivery_that_had_to_go_is_counted_once_wherever_it_was() -> None:
    """Also what an event pushes out, what does not fit when streams are joined, and what was held."""
    with opened() as engine:
        first, second = subscribed(engine, b"t"), subscribed(engine, b"u", hold_s=5.0)
        come(engine, 1, 2, 3)
        events: Inbox[Event] = Inbox(Bell(), 10)
        engine.listen(events)
        stream = merged(engine, first, second, events, size_max=2)
        assert (numbers_in(stream), engine.core.drops[Drop.SLOW_CONSUMER]) == ([2, 3], 1)
        engine.tell((LeasesChanged(b"t", 0, 1),), 0.0)
        assert (numbers_in(stream), engine.core.drops[Drop.SLOW_CONSUMER]) == ([3, None], 2)
        come(engine, 7, 8, topic=b"u")  # 1 to 6 are missing
        engine.unsubscribe([b"u"], second)
        assert (numbers_in(stream), engine.core.drops[Drop.SLOW_CONSUMER]) == ([7, 8], 3), (
            "no event is counted"
        )


def test_what_waits_in_a_stream_is_queued() -> None:
    with opened() as engine:
        sources = [subscribed(engine, b"t"), subscribed(engine, b"t"), subscribed(engine, b"t")]
        stream = merged(engine, *sources[:2])
        come(engine, 1)
        assert len(stream.items) == 2
        assert sum(len(inbox.items) for inbox in {each.target for each in sources}) == 3


def test_stream_of_all_outlives_the_subscriptions_of_the_moment() -> None:
    with opened() as engine:
        stream = merged(engine)
        for number in range(1, 4):
            inbox = subscribed(engine, b"t")
            come(engine, number)
            engine.unsubscribe([b"t"], inbox)
        assert numbers_in(stream) == [1, 2, 3]
        assert not stream.is_ended
        assert not stream._sources, "what has ended is forgotten"
    assert stream.is_ended


def test_stream_ends_with_the_last_of_its_sources() -> None:
    with opened() as engine:
        first, second = subscribed(engine, b"t"), subscribed(engine, b"u")
        engine.unsubscribe([b"u"], second)
        stream = merged(engine, first, first, second)
        assert not stream.is_ended
        engine.unsubscribe([b"t"], first)
        assert stream.is_ended
        assert merged(engine, second).is_ended


def test_stream_that_nobody_refers_to_gives_its_sources_back() -> None:
    with opened() as engine:
        inbox = subscribed(engine, b"t")
        for sources in ((inbox,), ()):
            for number in (1, 2):
                stream = merged(engine, *sources)
                come(engine, number)
                assert numbers_in(stream) == [number]
                del stream
                gc.collect()
        come(engine, 3)
        assert numbers_in(inbox) == [3]


@pytest.mark.parametrize(("hold_s", "error"), [(-1, ValueError), (float("nan"), ValueError),
                                               (float("inf"), ValueError), ("1", TypeError)])  # fmt: skip
def test_hold_that_makes_no_sense(hold_s: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="hold_s"):
        DeliveryInbox(Bell(), 10, hold_s)


@pytest.mark.parametrize(("size_max", "error"), [(0, ValueError), ("1", TypeError), (1.5, TypeError)])
def test_queue_that_makes_no_sense(size_max: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="queue_max"):
        Inbox(Bell(), size_max)
