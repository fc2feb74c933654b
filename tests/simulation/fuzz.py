"""Any bytes, to either core: nothing raises, nothing is amplified, and all of it is accounted for."""

from random import Random
from typing import Any

from kcast.client import cluster as clusters
from kcast.client.core import ClientCore
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.limits import REPLY_BYTES_MAX, Limits
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import Mint, price_bits
from tests.simulation.attacker import made_datagram, made_line, mutated, random_bytes, token
from tests.simulation.ledger import is_answer, is_control, lines_of

SERVER: Address = ("192.0.2.1", 7400)
CLIENT: Address = ("198.51.100.1", 20_001)
PUBLISHER: Address = ("198.51.100.2", 20_002)
STRANGER: Address = ("203.0.113.9", 53)
TOPICS = [b"room/0", b"weather/oslo", b"a b%\n", b"long/" * 45]


def sent(transmits: list[Transmit]) -> list[tuple[Address, bytes]]:
    return [
        (to, data)
        for transmit in transmits
        for to in transmit.destinations
        for data in datagrams(transmit.data, transmit.segment_bytes)
    ]


def ask(server: Server, source: Address, now: float) -> bytes:
    """A cookie for this address, by the rules."""
    request = wire.request_datagram(wire.Ask(b"nonce"))
    server.receive(Burst(request, len(request), source), now)
    ((_, answer),) = sent(server.flush(now))
    reply = wire.parse_reply(lines_of(answer)[0])
    assert isinstance(reply, wire.Challenge)
    return reply.cookie


class ServerFuzz:
    """A server with a subscriber and a publisher, and whatever else the fuzzer makes it keep.

    `settings` are the server's. After so many steps it drains.
    """

    def __init__(self, rng: Random, drain_after: int, **settings: Any) -> None:
        self.rng = rng
        self.now = 1000.0
        settings = {"limits": Limits(leases=50)} | settings
        self.server = Server(secret=rng.randbytes(32), own_addresses=frozenset((SERVER,)), **settings)
        self._drain_after = drain_after
        self._steps = 0
        self.cookies: dict[Address, bytes] = {}
        self._renew()

    def _renew(self) -> None:
        """By the rules: the subscriber's leases and the publisher's, or all would soon be expired."""
        for source, topics in ((CLIENT, TOPICS), (PUBLISHER, [])):
            cookie = self.cookies[source] = ask(self.server, source, self.now)
            names = [wire.encode_topic(topic) for topic in topics]
            bits = price_bits(self.server.work_bits, len(names))
            stamp = Mint(cookie, names, bits).work(100_000) if bits else None
            vouch = wire.Vouch(b"nonce", cookie, stamp)
            request = wire.request_datagram(vouch, [name + b"\n" for name in names])
            self.server.receive(Burst(request, len(request), source), self.now)
            self.server.flush(self.now)

    def datagram(self) -> tuple[bytes, Address]:
        """Something to throw at it, and from where."""
        rng = self.rng
        source = rng.choice((CLIENT, PUBLISHER, STRANGER, SERVER))
        match rng.randrange(4):
            case 0:
                return random_bytes(rng), source
            case 1:
                return made_datagram(rng, TOPICS), source
            case _:
                cookie = self.cookies.get(source, token(rng, 32))
                first = rng.choice(
                    (wire.Vouch(token(rng, 11), cookie, None), wire.Ask(token(rng, 11)), wire.Ping(b"p"))
                )
                lines = [made_line(rng, TOPICS) + b"\n" for _ in range(rng.randint(0, 3))]
                data = wire.request_datagram(first, lines)
                return (mutated(rng, data) if rng.random() < 0.6 else data), source

    def step(self) -> None:
        """One datagram, or a burst of equal ones, and what must hold of what came of it."""
        self._steps += 1
        if not self._steps % 100:
            self._renew()
        if self._steps == self._drain_after:
            self.server.start_drain(self.now)
        data, source = self.datagram()
        count = self.rng.choice((1, 1, 1, 4)) if 0 < len(data) <= 1200 else 1
        self.now += self.rng.choice((0.0, 0.001, 0.5))
        before = self._accounted()
        received_before = self._received()
        self.server.receive(Burst(data * count, len(data), source), self.now)
        if self.rng.random() < 0.2:
            self.server.handle_timeout(self.now)
        out = sent(self.server.flush(self.now))
        answers = [(to, answer) for to, answer in out if is_answer(answer)]
        assert len(answers) <= count, f"{len(answers)} answers to {count} of {data!r}"
        for to, answer in answers:
            assert to == source and len(answer) <= min(len(data), REPLY_BYTES_MAX), f"{answer!r} to {data!r}"
        for to, copy in out:
            assert is_answer(copy) or (to in self.cookies and set(lines_of(copy)) <= set(lines_of(data)))
        counts = self.server.counts
        assert counts["unproven_bytes_sent"] <= counts["unproven_bytes_received"]
        assert self._received() - received_before == count, f"{data!r} is not counted"
        assert self._accounted() - before >= count, f"{data!r} is not accounted for"

    def _received(self) -> int:
        return self.server.counts["datagrams_received"] + self.server.drops[Drop.OWN_ADDRESS]

    def _accounted(self) -> int:
        counts = self.server.counts
        return counts["answers_sent"] + counts["messages_received"] + self.server.drops.total()


class ClientFuzz:
    """A client with leases asked for and publishes on their way."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 1000.0
        self.core = ClientCore(clusters.lab([SERVER], Policy(1, 1, 1)), rng)
        for topic in TOPICS:
            self.core.subscribe(topic, self.now)
        self.core.publish(b"room/0", b"first", self.now)
        self.asked: list[bytes] = []
        self._ever_asked: set[bytes] = set()  # late answers have their use, too
        self._note(self.core.flush(self.now))

    def _note(self, transmits: list[Transmit]) -> None:
        nonces = [
            line.split(b" ")[1] for _, data in sent(transmits) for line in lines_of(data) if is_control(line)
        ]
        self.asked = (self.asked + nonces)[-4:]
        self._ever_asked.update(nonces)

    def _reply(self) -> bytes:
        """An answer as a server might give it, to what was asked or to nothing."""
        rng = self.rng
        nonce, cookie = rng.choice((*self.asked, token(rng, 11))), token(rng, 32)
        reason = rng.choice(("full", "work", "rate", "size", "drain", "address", "x-"))
        number = rng.choice(("0", "2", "64", "99", "-1", "x", ""))
        attributes = {
            rng.choice(("drain", "bits", "lines", "bare", "head", "audience")): rng.choice(("0", "1", number))
        }
        reply = rng.choice(
            (
                wire.Challenge(nonce, cookie, rng.choice((0, 0, 2, 30, 99)), {"head": "h"}),
                wire.Receipt(
                    nonce, rng.choice((0, 1, 60, 9_999_999)), cookie, rng.choice((0, 2)), attributes
                ),
                wire.Refusal(nonce, reason, rng.choice((None, 0, 1, 2**64 - 1)), attributes),
                wire.Pong(nonce, rng.choice((0, 5, 9_999_999)), attributes),
            )
        )
        return wire.format_line(reply)

    def step(self) -> None:
        """One datagram, and what must hold of what came of it."""
        rng, core = self.rng, self.core
        match rng.randrange(4):
            case 0:
                data = random_bytes(rng)
            case 1:
                data = made_datagram(rng, TOPICS)
            case 2:
                data = self._reply() + rng.choice((b"", self._reply(), made_line(rng, TOPICS) + b"\n"))
            case _:
                data = mutated(rng, self._reply())
        self.now += rng.choice((0.0, 0.01, 1.0))
        core.handle_timeout(self.now)
        if core.is_minting:
            core.work(rng.choice((1, 10, 1000)), self.now)
        self._note(core.flush(self.now))  # what it sends of its own accord is no answer
        core.events()
        before = core.counts["copies_received"] + core.drops.total()
        received_before = core.counts["datagrams_received"]
        core.receive(Burst(data, len(data), rng.choice((SERVER, SERVER, SERVER, STRANGER))), self.now)
        out = core.flush(self.now)
        events = core.events()
        assert core.counts["datagrams_received"] == received_before + 1
        words = {word for line in lines_of(data) for word in line.split(b" ")}
        if not words & self._ever_asked:
            assert not out, f"{data!r}, which answers nothing, makes the client send {out!r}"
            accounted = core.counts["copies_received"] + core.drops.total() - before
            assert accounted, f"{data!r} is not accounted for: {events}"
        self._note(out)
        if rng.random() < 0.05:
            core.publish(rng.choice(TOPICS), b"more", self.now, confirm=rng.random() < 0.5)
            self._note(core.flush(self.now))
