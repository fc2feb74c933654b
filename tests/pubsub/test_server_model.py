"""A server against a simple model: what PROTOCOL promises holds after whatever was asked of it. §4 to §7.

The model knows who was promised what until when, and nothing of tables. What it leaves open (a lease whose
promise is over, in the table of the note) may be either way.
"""

from collections.abc import Sequence
from math import floor
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import (
    COOKIE_LEASE_LIFE_S,
    COOKIE_PUBLISH_LIFE_S,
    COOKIE_TIME_STEP_S,
    RENEWALS_PER_TTL,
    REPLY_BYTES_MAX,
    Limits,
)
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import price_bits
from tests.simulation.taps import TapRecord
from tests.support.forms import Seeds
from tests.support.server_core import CLIENT, OTHER, OWN, START, THIRD, flushed, minted, new_server, sent

pytestmark = pytest.mark.long

STEPS = 40

ADDRESSES = st.sampled_from((CLIENT, OTHER, THIRD))
TOPICS = st.lists(st.sampled_from((b"t", b"u", b"v%20w")), min_size=1, max_size=3)
TIMES_S = st.sampled_from((0.001, 1.0, 5.0, 9.5, 12.0, 20.0, 30.0, 59.999, 60.0, 128.0, 3600.0))
LIMITS = {"wide": Limits(), "narrow": Limits(leases=3, leases_per_address=2, topics=2, publishers=1)}


class Cookie(NamedTuple):
    text: bytes
    owner: Address
    issued_at: float


class Lease(NamedTuple):
    """Until when a lease was promised, and until when it can last."""

    promised_until: float
    ends_by: float


class Vouched(NamedTuple):
    """A datagram that shows a cookie."""

    source: Address
    cookie: Cookie
    stamp: bytes | None
    topics: Sequence[bytes]
    lines: Sequence[bytes]


class Machine(RuleBasedStateMachine):
    server: Server

    @initialize(
        table=st.sampled_from(("ttl", "fifo")), limits=st.sampled_from(sorted(LIMITS)),
        work_bits=st.sampled_from((0, 0, 2)), ttl_s=st.sampled_from((60.0, 20.0)),
    )  # fmt: skip
    def begin(self, table: str, limits: str, work_bits: int, ttl_s: float) -> None:
        self.tap = TapRecord()
        self.server = new_server(
            table=table, limits=LIMITS[limits], work_bits=work_bits, ttl_s=ttl_s, tap=self.tap
        )
        self.now = START
        self.count = 0
        self.cookies: list[Cookie] = []
        self.leases: dict[tuple[bytes, Address], Lease] = {}
        self.publish_until: dict[Address, float] = {}
        self.sent: list[Vouched] = []
        self.is_draining = False

    # --- What may happen

    @rule(source=ADDRESSES)
    def ask(self, source: Address) -> None:
        (reply,) = self.exchange(source, wire.Ask(self.nonce()))
        self.keep_cookie(reply, source)

    @precondition(lambda self: self.cookies)
    @rule(data=st.data(), topics=TOPICS, pays=st.booleans())
    def subscribe(self, data: st.DataObject, topics: list[bytes], pays: bool) -> None:
        cookie = data.draw(st.sampled_from(self.cookies[-6:]))
        bits = price_bits(self.server.work_bits, len(set(topics)))
        stamp = minted(cookie.text, topics, bits) if pays and bits else None
        self.vouch(Vouched(cookie.owner, cookie, stamp, topics, ()))

    @precondition(lambda self: self.cookies)
    @rule(data=st.data(), topics=TOPICS, wants=st.booleans())
    def publish(self, data: st.DataObject, topics: list[bytes], wants: bool) -> None:
        cookie = data.draw(st.sampled_from(self.cookies[-6:]))
        lines = [topic + b" %d" % self.number() for topic in topics]
        self.vouch(Vouched(cookie.owner, cookie, None, topics[:1] if wants else (), lines))

    @rule(source=ADDRESSES)
    def renew(self, source: Address) -> None:
        """What clients do: they ask for a cookie, and renew all that was promised."""
        topics = [topic for topic, address in self.promised() if address == source]
        self.ask(source)
        if topics:
            self.vouch(Vouched(source, self.cookies[-1], None, topics, ()))

    @rule(source=ADDRESSES)
    def stay(self, source: Address) -> None:
        """A client that stays longer than a ttl."""
        for _ in range(RENEWALS_PER_TTL + 1):
            self.renew(source)
            self.wait(self.server.ttl_s / RENEWALS_PER_TTL)
        self.publish_to_all(source)

    @rule(source=ADDRESSES)
    def publish_to_all(self, source: Address) -> None:
        """Shows who gets copies of what."""
        self.ask(source)
        lines = [topic + b" all %d" % self.number() for topic in (b"t", b"u", b"v%20w")]
        self.vouch(Vouched(source, self.cookies[-1], None, (), lines))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        self.vouch(data.draw(st.sampled_from(self.sent[-6:])))

    @precondition(lambda self: self.cookies)
    @rule(data=st.data(), topics=TOPICS, victim=ADDRESSES)
    def forge(self, data: st.DataObject, topics: list[bytes], victim: Address) -> None:
        cookie = data.draw(st.sampled_from(self.cookies[-6:]))
        lines = [topics[0] + b" forged %d" % self.number()]
        self.vouch(Vouched(victim, cookie, None, topics, lines))

    @rule(source=ADDRESSES, topics=TOPICS)
    def publish_bare(self, source: Address, topics: list[bytes]) -> None:
        """§7.2: whether a publish lease stands, a pong tells; it can stand for a ttl at most."""
        (pong,) = self.exchange(source, wire.Ping(self.nonce()))
        assert isinstance(pong, wire.Pong)
        assert pong.left_s <= max(0.0, self.publish_until.get(source, 0.0) - self.now)
        lines = [topic + b" bare %d" % self.number() for topic in topics]
        replies = self.exchange(source, None, lines, forwards=pong.left_s > 0 or None)
        assert not replies

    @rule(time_s=TIMES_S)
    def wait(self, time_s: float) -> None:
        until = self.now + time_s
        while (due_at := self.server.next_timeout()) is not None and due_at <= until:
            self.now = max(self.now, due_at)
            if self.server.is_drained(self.now):
                break  # what is due is to end
            self.server.handle_timeout(self.now)
            assert not flushed(self.server, self.now)
        self.now = until
        self.server.handle_timeout(self.now)

    @rule()
    def drain(self) -> None:
        self.server.start_drain(self.now)
        self.is_draining = True

    # --- What is promised

    def vouch(self, vouched: Vouched) -> None:
        """Sends a datagram with a cookie, and holds what comes of it against the promises."""
        source, cookie, stamp, topics, lines = vouched
        self.sent.append(vouched)
        age_s = self.now - cookie.issued_at
        life_s = COOKIE_LEASE_LIFE_S if topics else COOKIE_PUBLISH_LIFE_S
        first = wire.Vouch(self.nonce(), cookie.text, stamp)
        if cookie.owner != source or age_s > life_s:
            replies = self.exchange(source, first, (*topics, *lines), forwards=False)
            assert [type(reply) for reply in replies] == [wire.Challenge], "a bad cookie was taken"
            self.keep_cookie(replies[0], source)
            return
        before = dict(self.leases)
        ends_by = self.now + self.server.ttl_s
        if lines or not topics:
            self.publish_until[source] = ends_by
        # A subscriber that publishes too gets its own line, if its lease comes first.
        self.leases |= {
            (topic, source): Lease(before.get((topic, source), Lease(0.0, 0.0)).promised_until, ends_by)
            for topic in topics
        }
        replies = self.exchange(source, first, (*topics, *lines), forwards=True)
        refused = 0
        for reply in replies:
            if isinstance(reply, wire.Refusal):
                assert reply.lines is not None
                refused = reply.lines
                first_refused = topics[(refused & -refused).bit_length() - 1]
                self.check_reason(reply.reason, first_refused, vouched, before)
        for index, topic in enumerate(topics):
            lease = before.get((topic, source))
            if refused >> index & 1:
                assert lease is None or lease.promised_until <= self.now, "a lease that stands was refused"
        for reply in replies:
            if isinstance(reply, wire.Receipt):
                assert 1 <= reply.ttl_s <= self.server.ttl_s
                self.keep_cookie(reply, source)
                granted = {topic for index, topic in enumerate(topics) if not refused >> index & 1}
                until = self.now + reply.ttl_s
                kept = {topic for topic in granted if (source, topic) in self.tap.leases}
                self.leases |= {(topic, source): Lease(until, ends_by) for topic in kept}
        assert refused or any(isinstance(reply, wire.Receipt) for reply in replies)

    def check_reason(
        self, reason: str, topic: bytes, vouched: Vouched, before: dict[tuple[bytes, Address], Lease]
    ) -> None:
        """§5.8: what a refusal says of a new lease is so."""
        # Leases that the same datagram has opened before the refused one count, too.
        limits, source = self.server.limits, vouched.source
        standing = {key for key, lease in before.items() if lease.ends_by > self.now}
        standing |= {(each, source) for each in vouched.topics}
        match reason:
            case "full":
                assert len(standing) > limits.leases
            case "address":
                assert sum(address == source for _, address in standing) > limits.leases_per_address
            case "topics":
                assert len({each for each, _ in standing}) > limits.topics
            case "work":
                assert (self.server.work_bits and vouched.stamp is None) or len(set(vouched.topics)) > 1
            case "drain":
                assert self.is_draining
            case _:
                pytest.fail(f"{topic!r} was refused for {reason}")

    def exchange(
        self,
        source: Address,
        first: wire.Request | None,
        lines: Sequence[bytes] = (),
        *,
        forwards: bool | None = False,
    ) -> list[wire.Reply]:
        """Sends a datagram; returns the answer's lines. Checks who gets copies: None leaves that open."""
        ended = [line + b"\n" for line in lines]
        datagram = b"".join(ended) if first is None else wire.request_datagram(first, ended)
        self.server.receive(Burst(datagram, len(datagram), source), self.now)
        out = flushed(self.server, self.now)
        self.push_out()
        answers = sent(transmit for transmit in out if transmit.is_answer)
        assert len(answers) == (first is not None)
        for to, answer in answers:
            assert to == source and len(answer) <= min(len(datagram), REPLY_BYTES_MAX)
        copies = sent(transmit for transmit in out if not transmit.is_answer)
        self.check_copies(copies, [line for line in lines if b" " in line], forwards)
        replies = [wire.parse_reply(line) for _, answer in answers for line in wire.split_lines(answer)[0]]
        found = [reply for reply in replies if reply is not None]
        assert len(found) == len(replies)
        for reply in found[:1]:
            assert first is not None and reply.nonce == first.nonce
            assert reply.attributes.get("drain") == ("1" if self.is_draining else None)
        return found

    def push_out(self) -> None:
        """§7.10: a full table may end leases before their time."""
        for address, topic in self.tap.take_evicted():
            limits, standing = self.server.limits, list(self.tap.leases)
            assert len(standing) >= limits.leases or len({each for _, each in standing}) >= limits.topics
            if (address, topic) not in self.tap.leases:
                self.leases[topic, address] = Lease(self.now, self.now)

    def check_copies(
        self, copies: Sequence[tuple[Address, bytes]], lines: Sequence[bytes], forwards: bool | None
    ) -> None:
        """§4.1, §7.1: who holds a lease gets each line once; whose lease has ended gets none."""
        found = sorted((to, line) for to, data in copies for line in wire.split_lines(data)[0])
        may = [
            (address, line)
            for line in lines
            for (topic, address), lease in self.leases.items()
            if line.startswith(topic + b" ") and lease.ends_by > self.now
        ]
        must = [(to, line) for to, line in may if self.leases[line.split()[0], to].promised_until > self.now]
        if forwards is False:
            assert not found
        assert len(found) == len(set(found)) and set(found) <= set(may), "a copy without a lease"
        if forwards:
            assert set(must) <= set(found), "a copy is missing"

    @invariant()
    def is_bounded(self) -> None:
        if hasattr(self, "server"):
            standing = sum(lease.ends_by > self.now for lease in self.leases.values())
            assert len(self.server.leases) <= min(standing, self.server.limits.leases)
            counts = self.server.counts
            assert counts["unproven_bytes_sent"] <= counts["unproven_bytes_received"]

    # --- Helpers

    def promised(self) -> list[tuple[bytes, Address]]:
        """The leases that are promised now."""
        return [key for key, lease in self.leases.items() if lease.promised_until > self.now]

    def keep_cookie(self, reply: wire.Reply, owner: Address) -> None:
        assert isinstance(reply, wire.Challenge | wire.Receipt), reply
        assert reply.bits == self.server.work_bits and owner != OWN
        issued_at = floor(self.now / COOKIE_TIME_STEP_S) * COOKIE_TIME_STEP_S
        self.cookies.append(Cookie(reply.cookie, owner, issued_at))

    def nonce(self) -> bytes:
        return b"N%d" % self.number()

    def number(self) -> int:
        self.count += 1
        return self.count


SETTINGS = settings(
    derandomize=True,
    max_examples=300,
    stateful_step_count=STEPS,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_promises_hold(seeds: Seeds) -> None:
    examples = sum(1 for _ in seeds(60, 300))
    run_state_machine_as_test(Machine, settings=settings(SETTINGS, max_examples=examples))
