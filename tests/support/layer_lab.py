"""A layer without a network: what it says is written down, and what it hears is given by hand."""

from collections import Counter
from collections.abc import Sequence
from math import inf
from random import Random
from typing import Any

from kcast.client.events import Delivery, Drop
from kcast.client.layers.words import Asked, Presence, Present, Word, parse_presence, parse_word
from kcast.pubsub.errors import KcastError

TOPIC, HERE = b"calc", b"{calc}/here"
ME, ADA, BOB = "MMMMMMMMMMM", "AAAAAAAAAAA", "BBBBBBBBBBB"


class FakeHost:
    """A host whose leases stand at once, or as `stands` says."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = Random(seed)
        self.drops: Counter[Drop] = Counter()
        self.stands: Sequence[tuple[int, int]] = ((2, 2), (2, 2))
        self.said: list[tuple[bytes, bytes]] = []
        self.error: KcastError | None = None

    def publish(self, topic: bytes, payload: bytes, now: float) -> None:
        if self.error is not None:
            raise self.error
        self.said.append((topic, payload))

    def each_leases(self) -> Sequence[tuple[int, int]]:
        return self.stands

    def take(self) -> list[tuple[str, Presence | Word]]:
        """What was said since the last call: where, and the word."""
        said, self.said = self.said, []
        found: list[tuple[str, Any]] = []
        for topic, payload in said:
            word = parse_presence(payload) if topic == HERE else parse_word(payload)
            assert word is not None, payload
            found.append((topic.rpartition(b"/")[2].decode(), word))
        return found


class FakeWaiter:
    """Who waits for a request: what it was told, once."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.is_cancelled = False
        self.is_seen = False  # an error of asyncio's that is not is complained of

    def done(self) -> bool:
        return self.is_cancelled or bool(self.told)

    def set_result(self, result: Any, /) -> None:
        self.told.append(result)

    def set_exception(self, error: BaseException, /) -> None:
        self.told.append(error)

    def exception(self) -> BaseException | None:
        self.is_seen = True
        return None


def heard(topic: bytes, word: object, sender: str | None = None, publisher: str | None = "p") -> Delivery:
    """A message with a word, or with any bytes."""
    payload = word if isinstance(word, bytes) else bytes(word)  # type: ignore[call-overload]
    return Delivery(topic, payload, "s", publisher, 1, {}, 0.0, sender)


def present(member: str, *methods: str, seconds: int = 6, sender: str | None = None) -> Delivery:
    return heard(HERE, Present(member, seconds, methods), sender)


def advance(layer: Any, until: float) -> None:
    """Lets a layer do what is due until then."""
    now = -inf
    for _ in range(10_000):
        if layer.is_over or layer.next_at > until:
            return
        now = max(layer.next_at, now)
        layer.handle_timeout(until if now == -inf else now)
    raise AssertionError("it is due again and again")


def asked_of(said: list[tuple[str, Presence | Word]]) -> list[tuple[str, Asked]]:
    """The requests among what was said."""
    return [(where, word) for where, word in said if isinstance(word, Asked)]
