"""driving/watches.py: who hears what comes on kcast's own topics, and what is said there."""

from collections.abc import Sequence
from math import inf
from typing import cast

from kcast.client.clusters.watch import Listen, News, Say
from kcast.client.core import ClientCore
from kcast.client.driving.watches import Watches

TOPIC = b"\0group/x"


class Calls:
    """Notes what a core is asked for."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def subscribe(self, topic: bytes, now: float, *, is_own: bool) -> None:
        self.made.append("subscribe")

    def unsubscribe(self, topic: bytes) -> None:
        self.made.append("unsubscribe")

    def publish(self, topic: bytes, payload: bytes, now: float, *, is_own: bool, raw: bool = False) -> None:
        self.made.append("publish raw" if raw else "publish")


class Told:
    """A watch that has this news at its next look."""

    def __init__(self, news: News) -> None:
        self.look_at, self.news = 0.0, news
        self.heard: list[bytes] = []

    def look(self, now: float) -> Sequence[News]:
        self.look_at = inf
        return [self.news]

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        self.heard.append(payload)

    def state(self) -> None:
        return None

    def close(self) -> None:
        pass


def test_two_watches_listen_on_one_topic_until_the_last_one_leaves() -> None:
    calls, first, second = Calls(), Told(Listen((TOPIC,))), Told(Listen((TOPIC,)))
    watches = Watches(cast("ClientCore", calls))
    for watch in (first, second):
        watches.add(watch)
    watches.look(0.0)
    watches.hear(TOPIC, b"both", 0.0)
    for watch, left in ((second, {TOPIC}), (first, set[bytes]())):
        watch.look_at, watch.news = 0.0, Listen(())
        watches.look(1.0)
        assert set(watches.topics) == left and ("unsubscribe" in calls.made) is not bool(left)
        if left:
            watches.hear(TOPIC, b"one", 1.0)
    assert (first.heard, second.heard) == ([b"both", b"one"], [b"both"])


def test_what_a_watch_says_has_no_publishers_name() -> None:
    calls, watch = Calls(), Told(Say(TOPIC, b"head"))
    watches = Watches(cast("ClientCore", calls))
    watches.add(watch)
    watches.look(0.0)
    assert calls.made == ["publish raw"]
