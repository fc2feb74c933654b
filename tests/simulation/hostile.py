"""Servers that lie. Each is a real one whose answers and copies pass through some tricks on their way out.

So what a client gets fits its requests, and the lie reaches as deep into its state as a lie can. No checker
judges these servers. What they make up counts as published by an attacker (`Ledger.forge`).

A trick of answers takes the replies of a datagram and returns those that are sent in their place. A trick of
copies takes a transmit, and returns what is sent in its place.
"""

import heapq
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.server import Server
from kcast.pubsub.wire import Challenge, Pong, Receipt, Refusal, Reply
from tests.simulation.attacker import made_datagram, mutated, token
from tests.simulation.hosts import ServerHost
from tests.simulation.ledger import is_answer, lines_of, topic_of

if TYPE_CHECKING:
    from kcast.pubsub.endpoint import Endpoint
    from tests.simulation.world import World

AnswerTrick = Callable[[Random, list[Reply]], list[Reply]]
CopyTrick = Callable[[Random, Transmit], list[Transmit]]

LATE_S = 10.0
PRICES = (0, 1, 6, 12, 18, 24, 25, 99)
SECONDS = (0, 1, 2, 3, 60, 9_999_999)
NUMBERS = ("", "0", "1", "2", "9", "24", "63", "99", "-3", "16383", "16384", "9999999999", "9" * 40, "x")
REASONS = ("topic", "full", "address", "prefix", "topics", "work", "drain", "rate", "size", "because")
NAMES = ("bare", "audience", "keep", "bits", "lines", "drain", "head", "credit", "unheard-of")


# --- Tricks of answers -------------------------------------------------------------------------------


def _changed(reply: Reply, **fields: Any) -> Reply:
    """The reply with other fields, of which it may lack some."""
    return reply._replace(**{name: value for name, value in fields.items() if hasattr(reply, name)})


def _with(reply: Reply, name: str, value: str) -> Reply:
    return reply._replace(attributes={**reply.attributes, name: value})


def asks_any_price(rng: Random, replies: list[Reply]) -> list[Reply]:
    return [_changed(reply, bits=rng.choice(PRICES)) for reply in replies]


def sells_and_forgets(rng: Random, replies: list[Reply]) -> list[Reply]:
    """Sells leases at a high price, and soon knows nothing of them."""
    if rng.random() < 0.3:
        return [Challenge(reply.nonce, token(rng, 32), 10) for reply in replies[:1]]
    return [_changed(reply, bits=10) for reply in replies]


def sells_and_breaks(rng: Random, replies: list[Reply]) -> list[Reply]:
    """Sells leases, and refuses to renew them."""
    if rng.random() < 0.4:
        return [Refusal(reply.nonce, rng.choice(("full", "work")), 2**16 - 1) for reply in replies[:1]]
    return [_changed(reply, bits=8) for reply in replies]


def makes_keeping_dear(rng: Random, replies: list[Reply]) -> list[Reply]:
    return [_with(reply, "keep", rng.choice(NUMBERS)) for reply in replies]


def drains_to_and_fro(rng: Random, replies: list[Reply]) -> list[Reply]:
    return [_with(reply, "drain", rng.choice("01")) for reply in replies]


def promises_any_time(rng: Random, replies: list[Reply]) -> list[Reply]:
    return [_changed(reply, ttl_s=rng.choice(SECONDS), left_s=rng.choice(SECONDS)) for reply in replies]


def gives_any_credit(rng: Random, replies: list[Reply]) -> list[Reply]:
    return [_with(reply, "credit", rng.choice(NUMBERS)) for reply in replies]


def mistakes_nonces(rng: Random, replies: list[Reply]) -> list[Reply]:
    return [_changed(reply, nonce=token(rng, rng.choice((1, 11, 22)))) for reply in replies]


def adds_attributes(rng: Random, replies: list[Reply]) -> list[Reply]:
    """Known and unknown ones, with any value, up to the length of a datagram."""
    values = (*NUMBERS, "=", "!" * 30, "~" * rng.choice((1, 33, 300, 1050)))
    return [_with(reply, rng.choice(NAMES), rng.choice(values)) for reply in replies]


def refuses_anything(rng: Random, replies: list[Reply]) -> list[Reply]:
    attributes = {name: rng.choice(NUMBERS) for name in ("bits", "lines") if rng.random() < 0.7}
    refused = rng.choice((None, 0, 1, 2**64 - 1, rng.getrandbits(64)))
    refusals: list[Reply] = [
        Refusal(reply.nonce, rng.choice(REASONS), refused, attributes) for reply in replies[:1]
    ]
    return rng.choice((refusals, replies[:1] + refusals))


def forgets_always(rng: Random, replies: list[Reply]) -> list[Reply]:
    return [Challenge(reply.nonce, token(rng, 32), rng.choice((0, 0, 5))) for reply in replies[:1]]


def shrinks_datagrams(rng: Random, replies: list[Reply]) -> list[Reply]:
    lines = rng.choice(("0", "1", "2", "3", "64", ""))
    return [Refusal(reply.nonce, "size", None, {"lines": lines}) for reply in replies[:1]]


def answers_another_question(rng: Random, replies: list[Reply]) -> list[Reply]:
    (nonce, *_), cookie = replies[0], token(rng, 32)
    return [rng.choice((Challenge(nonce, cookie, 0), Receipt(nonce, 60, cookie, 0), Pong(nonce, 60)))]


def contradicts_itself(rng: Random, replies: list[Reply]) -> list[Reply]:
    return replies + answers_another_question(rng, replies) + refuses_anything(rng, replies)


def says_nothing(rng: Random, replies: list[Reply]) -> list[Reply]:
    return []


ANSWER_TRICKS: tuple[AnswerTrick, ...] = (
    asks_any_price,
    sells_and_forgets,
    sells_and_breaks,
    makes_keeping_dear,
    drains_to_and_fro,
    promises_any_time,
    gives_any_credit,
    mistakes_nonces,
    adds_attributes,
    refuses_anything,
    forgets_always,
    shrinks_datagrams,
    answers_another_question,
    contradicts_itself,
    says_nothing,
)


# --- Tricks of copies --------------------------------------------------------------------------------


def swallows(rng: Random, transmit: Transmit) -> list[Transmit]:
    """Gives receipts, and forwards nothing."""
    return []


def sends_again(rng: Random, transmit: Transmit) -> list[Transmit]:
    return [transmit] * rng.randint(2, 5)


def invents(rng: Random, transmit: Transmit) -> list[Transmit]:
    """Sends made-up lines of the same topics: raw, of this publisher, and of publishers by the dozen."""
    lines = []
    for line in lines_of(transmit.data):
        if not wire.is_topic(topic_of(line)):
            continue
        publisher = rng.choice((token(rng, 11), line.partition(b"%@")[2].partition(b".")[0] or b"who"))
        number = rng.choice((1, 2, 3, 4, 900, 10**17))
        lines.append(topic_of(line) + b" %%@%b.%d invented\n" % (publisher, number))
        lines.append(topic_of(line) + b" " + token(rng, 8) + b"\n")
    packed, segment_bytes = wire.pack_lines([line[:-1] for line in lines])
    return [transmit, Transmit(packed, segment_bytes, transmit.destinations)]


def spoils(rng: Random, transmit: Transmit) -> list[Transmit]:
    spoiled = mutated(rng, transmit.data[: transmit.segment_bytes])[:DATAGRAM_BYTES_MAX] or b"\n"
    return [Transmit(spoiled, len(spoiled), transmit.destinations)]


COPY_TRICKS: tuple[CopyTrick, ...] = (swallows, sends_again, invents, spoils)


# --- The servers -------------------------------------------------------------------------------------


class Liar:
    """An endpoint before a server's core: what leaves the core is changed, and some of it comes late."""

    def __init__(self, core: Server, host: "HostileServer") -> None:
        self._core = core
        self._host = host
        self._late: list[tuple[float, int, Transmit]] = []
        self._sent = 0

    def receive(self, burst: Burst, now: float) -> None:
        self._core.receive(burst, now)

    def handle_timeout(self, now: float) -> None:
        self._core.handle_timeout(now)

    def next_timeout(self) -> float | None:
        ends = (self._core.next_timeout(), self._late[0][0] if self._late else None)
        return min((at for at in ends if at is not None), default=None)

    def flush(self, now: float) -> list[Transmit]:
        host, rng, sending = self._host, self._host.rng, []
        for transmit in self._core.flush(now):
            changed = self._answers(transmit) if is_answer(transmit.data) else self._copies(transmit)
            for each in changed:
                if rng.random() < host.lateness:
                    self._sent += 1
                    heapq.heappush(self._late, (now + rng.uniform(0, LATE_S), self._sent, each))
                else:
                    sending.append(each)
        while self._late and self._late[0][0] <= now:
            sending.append(heapq.heappop(self._late)[2])
        if sending and rng.random() < host.noise:
            data = made_datagram(rng, host.world.topics)
            sending.append(Transmit(data, len(data), sending[0].destinations))
        for transmit in sending:
            for datagram in datagrams(transmit.data, transmit.segment_bytes):
                host.world.ledger.forge(datagram)
        return sending

    def _answers(self, transmit: Transmit) -> list[Transmit]:
        rng = self._host.rng
        parsed = [wire.parse_reply(line) for line in lines_of(transmit.data)]
        replies = [reply for reply in parsed if reply is not None]
        for trick in self._host.answer_tricks:
            if replies and rng.random() < self._host.zeal:
                replies = trick(rng, replies)
        data = b"".join(map(wire.format_line, replies))
        return [Transmit(data, len(data), transmit.destinations)] if data else []

    def _copies(self, transmit: Transmit) -> list[Transmit]:
        rng, transmits = self._host.rng, [transmit]
        for trick in self._host.copy_tricks:
            if rng.random() < self._host.zeal:
                transmits = [changed for each in transmits for changed in trick(rng, each)]
        return transmits


class HostileServer(ServerHost):
    """A server of the list, with tricks of its own. It is never restarted on purpose."""

    def __init__(self, world: "World", name: str, addresses: tuple[Address, ...]) -> None:
        self.rng = Random(f"hostile {world.options.seed} {name}")
        self.answer_tricks = self.rng.sample(ANSWER_TRICKS, self.rng.randint(0, 3))
        self.copy_tricks = self.rng.sample(COPY_TRICKS, self.rng.randint(0 if self.answer_tricks else 1, 2))
        self.zeal = self.rng.choice((0.2, 0.6, 1.0))
        self.lateness = self.rng.choice((0.0, 0.0, 0.3))
        self.noise = self.rng.choice((0.0, 0.0, 0.3))
        super().__init__(world, name, addresses)

    @property
    def endpoint(self) -> "Endpoint":
        return self._liar

    def _start(self) -> None:
        super()._start()
        self._liar = Liar(self.core, self)

    def drain(self, restart_after_s: float | None = None) -> None:
        """Goes on: it says `drain=1` whenever it likes."""

    def _show(self, packets: list[Any], now: float, transmits: list[Transmit]) -> None:
        """Shows nothing: no checker judges it."""
