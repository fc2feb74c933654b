"""What a client watches while it runs: the cluster's file or signed list, and the files of its groups.

    engine's turn -> look, of whatever is due -> another cluster, events: the engine's
                                              -> topics to listen on, words to say: done here
    a delivery on one of kcast's own topics -> hear, of the watch whose topic it is

Nobody waits for any of it. The engine asks once a turn, at `look_at`.
"""

from contextlib import suppress
from math import inf

from kcast.client.clusters.watch import Change, Listen, Say, Stop, Watch
from kcast.client.core import ClientCore
from kcast.client.events import Event
from kcast.pubsub.errors import KcastError


class Watches:
    """All watches of one client. `look_at` is when `look` has something to do, infinite for never, and
    `topics` are those of kcast's own on which some of them listen, with these."""

    def __init__(self, core: ClientCore) -> None:
        self.look_at = inf
        self._core = core
        self._all: list[Watch] = []
        self.topics: dict[bytes, set[Watch]] = {}

    def add(self, watch: Watch) -> None:
        """Looks at one more."""
        self._all.append(watch)
        self.look_at = min(self.look_at, watch.look_at)

    def look(self, now: float) -> list[Change | Stop | Event]:
        """Returns what is new for the client: what is only about kcast's own topics is done."""
        found: list[Change | Stop | Event] = []
        for watch in self._all:
            for news in watch.look(now) if now >= watch.look_at else ():
                match news:
                    case Listen(topics):
                        self._listen(watch, topics, now)
                    case Say(topic, payload):
                        # What does not fit, or has to wait too long, another client says, or this one later.
                        # Raw: a publisher's name would tell which topics and groups are one process's.
                        with suppress(KcastError):
                            self._core.publish(topic, payload, now, raw=True, is_own=True)
                    case _:
                        found.append(news)
        self.look_at = min((watch.look_at for watch in self._all), default=inf)
        return found

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        """Takes a message on one of `topics`."""
        for watch in self.topics[topic]:
            watch.hear(topic, payload, now)
            self.look_at = min(self.look_at, watch.look_at)

    def close(self) -> None:
        """Ends what is under way."""
        for watch in self._all:
            watch.close()

    def _listen(self, watch: Watch, topics: tuple[bytes, ...], now: float) -> None:
        for topic in sorted(self.topics.keys() - topics):
            self.topics[topic].discard(watch)
            if not self.topics[topic]:
                del self.topics[topic]
                self._core.unsubscribe(topic)
        for topic in topics:
            self._core.subscribe(topic, now, is_own=True)
            self.topics.setdefault(topic, set()).add(watch)
