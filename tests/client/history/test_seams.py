"""What the core has for logs: guards that take messages, writers with attributes, one server a message."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

import pytest

from kcast.client.errors import MessageTooLarge
from kcast.client.events import Drop, Event
from kcast.client.messages.guard_and_writer import TAKEN, Proven, Taken
from kcast.client.messages.lines import Publisher
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, Burst
from tests.support.client_lab import PUB, SUB, Lab


class Taking:
    """Takes what comes, at first sight or later, and repeats at first sight, too."""

    mark = b"\0taking "

    def __init__(self) -> None:
        self.glanced: list[bytes] = []
        self.judged: list[bytes] = []

    def places(self, name: bytes, unix_s: float, lead_s: float) -> tuple[Mapping[bytes, bool], float]:
        return {name: True}, inf

    def glance(self, wire_topic: bytes, message: bytes, unix_s: float) -> bytes | Taken:
        self.glanced.append(message)
        return TAKEN if b"glance" in message else message

    def judge(self, name: bytes, claim: bytes, unix_s: float) -> Proven | Taken | Drop:
        self.judged.append(claim)
        return TAKEN

    def take_events(self) -> Sequence[Event]:
        return []


class Ready:
    """Writes a line that was made before."""

    is_once = True

    def place(self, name: bytes, unix_s: float) -> bytes:
        return name

    def lines(self, wire_topic: bytes, payloads: Sequence[bytes], unix_s: float) -> tuple[int, list[bytes]]:
        return 0, [b"%b %b\n" % (wire_topic, payload) for payload in payloads]


def test_a_guard_may_take_messages_itself_and_what_is_taken_at_a_glance_is_not_remembered() -> None:
    lab = Lab()
    client, guard = lab.client(SUB), Taking()
    client.subscribe(b"t", lab.now, guard=guard)
    other = lab.client(PUB, seed=2)
    lab.run(1)
    list(client.events())
    for _ in range(2):
        for payload in (b"%@AUTHOR.1 glance", b"%@AUTHOR.2 judge"):
            other.publish(b"t", payload, lab.now, writer=Ready())
            lab.run(1)
    assert [*client.events()] == [] and not client.drops and client.counts["deliveries"] == 0
    assert guard.glanced.count(b"%@AUTHOR.1 glance") == 2 and guard.judged == [b"%@AUTHOR.2 judge"]


@pytest.mark.parametrize(("policy", "servers"), [(Policy(5, 3, 5), 1), (Policy(5, 5, 3), 5)])
def test_one_server_is_enough_where_subscribers_use_all(policy: Policy, servers: int) -> None:
    lab = Lab(policy)
    client = lab.client()
    client.publish(b"t", b"x", lab.now)
    lab.run(1)
    lab.down.add(("192.0.2.1", 7400))
    lab.published(client)  # so that it is known to be dead
    lab.run(30)
    used = set()
    for _ in range(40):
        lab.sent.clear()
        client.publish(b"t", b"%@AUTHOR.1 x", lab.now, writer=Ready())
        lab.run(0.1)
        lines = [to for to, data in lab.sent if b"%@AUTHOR.1 x" in data]
        assert len(set(lines)) == servers
        used.update(lines)
    assert servers > 1 or used == {(f"192.0.2.{host}", 7400) for host in range(2, 6)}


def test_of_servers_that_take_messages_one_that_has_sent_some_on_is_enough() -> None:
    lab = Lab(Policy(5, 5, 5))
    client = lab.client(SUB)
    client.subscribe(b"u", lab.now)
    lab.run(1)
    copy, server = b"u m\n", ("192.0.2.3", 7400)
    client.receive(Burst(copy, len(copy), server), lab.now)

    def used() -> Counter[Address]:
        lab.sent.clear()
        for _ in range(40):
            client.publish(b"t", b"%@AUTHOR.1 x", lab.now, writer=Ready())
            lab.run(0.1)
        return Counter(to for to, data in lab.sent if b"%@AUTHOR.1 x" in data)

    assert 40 > used()[server] > 30, "others are tried, too"
    lab.run(5)
    assert used()[server] < 20


def test_signed_messages_have_attributes_and_prove_whenever_they_were_sent() -> None:
    pytest.importorskip("cryptography")
    pytest.importorskip("nacl")
    from kcast.client.sealed.guards import SignedGuard, senders_of
    from kcast.client.sealed.writers import SignedWriter
    from tests.support.groups import ALICE, BOB

    publisher = Publisher("p")
    writer = SignedWriter(lambda: publisher, ALICE.signer)
    attributes = {"c": "zVOQzhc_s--"}
    first, (line,) = writer.lines(b"t", [b"old"], 1000.0, attributes)
    message = line[2:-1]
    guard = SignedGuard(senders_of(frozenset([ALICE.signer.key])), 2_000_000.0)
    assert guard.glance(b"t", message, 2_000_000.0) is Drop.TOO_OLD
    for _ in range(2):  # it remembers nothing
        proven = guard.prove(b"t", message)
        assert isinstance(proven, Proven)
        assert (proven.payload, proven.seq, proven.attributes) == (b"old", first, attributes)
    assert guard.prove(b"u", message) is Drop.BAD_SIGNATURE
    assert guard.prove(b"t", message.replace(b"old", b"new")) is Drop.BAD_SIGNATURE
    assert guard.prove(b"t", b"%@p.1 old") is Drop.UNSIGNED
    of_bob = SignedGuard(senders_of(frozenset([BOB.signer.key])), 0.0)
    assert of_bob.prove(b"t", message) is Drop.UNAUTHORISED

    def fits(size: int, spare_bytes: int) -> bool:
        try:
            writer.lines(b"t", [b"a" * size], 1000.0, attributes, spare_bytes)
        except MessageTooLarge:
            return False
        return True

    size = next(size for size in range(1200, 0, -1) if fits(size, 0))
    assert not fits(size, 1) and fits(size - 14, 14)
