"""sealed/guards.py: what each line of `client/vectors/sealed.json` meets, and each mutant; in clients, too.
PROTOCOL §9.6, §9.7."""

from random import Random
from typing import Any

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.events import Delivery, Drop
from kcast.client.messages.guard_and_writer import Guarded, Proven
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.sealed.signing import parse_key
from kcast.client.sealed.topics import hidden
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from tests.support.forms import Seeds
from tests.support.sealed_by_hand import OPS, Writer, body
from tests.support.sealed_guards import EPOCHS, READ_AT_S, VECTORS, guard_of, judged
from tests.support.takers import TAKERS
from tests.support.vector_lines import message_lines, sealed_lines

LINES = VECTORS["lines"]
lines = pytest.mark.parametrize("vector", LINES, ids=lambda vector: vector["what"])


def line_of(vector: dict[str, Any]) -> bytes:
    line: str = vector["line"]
    return line.encode().removesuffix(b"\n")


def expected(vector: dict[str, Any]) -> Proven | Drop:
    message = vector["message"]
    sender: str = message["sender"]
    if vector["drop"]:
        return Drop(vector["drop"])
    by = parse_key(sender)
    assert by is not None
    return Proven(
        payload=message["content"].encode(),
        publisher=message["publisher"],
        seq=message["seq"] if message["count"] is None else message["count"],
        attributes=message["attributes"],
        sender=sender,
        group=EPOCHS[0].group if vector["epochs"] else None,
        sent_at=message["sent_ms"] / 1000,
        by=by,
    )


@lines
def test_a_line_is_taken_once(vector: dict[str, Any]) -> None:
    guard, name = guard_of(vector), vector["topic"].encode()
    assert judged(guard, name, line_of(vector)) == expected(vector)
    assert judged(guard, name, line_of(vector)) is Drop.REPLAYED


@lines
def test_mutants_meet_their_drop_and_leave_the_line_to_be_taken(vector: dict[str, Any]) -> None:
    name, one_for_all = vector["topic"].encode(), guard_of(vector)
    for mutant in vector["mutants"]:
        found = judged(guard_of(vector), name, line_of(mutant))
        assert found == mutant["drop"], mutant["description"]
        assert judged(one_for_all, name, line_of(mutant)) == mutant["drop"], mutant["description"]
    assert judged(one_for_all, name, line_of(vector)) == expected(vector)


@lines
def test_every_byte_counts(vector: dict[str, Any]) -> None:
    """Whatever byte of a line is changed, it is dropped, or another line that was never published."""
    guard, name, line = guard_of(vector), vector["topic"].encode(), line_of(vector)
    for at in range(len(line)):
        for change in (1, 4, 0x80):
            changed = line[:at] + bytes([line[at] ^ change]) + line[at + 1 :]
            if b"\n" not in changed:
                assert isinstance(judged(guard, name, changed), Drop), (at, change)
    assert judged(guard, name, line) == expected(vector)


@pytest.mark.parametrize(
    ("attributes", "drop"),
    [("r=a", None), ("r=a;T=text/plain", Drop.NOT_UNDERSTOOD), ("S=x", Drop.NOT_UNDERSTOOD)],
)
def test_names_in_upper_case_must_be_understood_inside_too(attributes: str, drop: Drop | None) -> None:
    """§9.2, §9.7"""
    (vector,) = [each for each in LINES if each["what"] == "sealed"]
    line = Writer(OPS, vector["topic"]).line(7, body(1, "rain", attributes)).removesuffix(b"\n")
    guard = guard_of(vector)
    found = judged(guard, NAME, line)
    assert found is drop if drop else isinstance(found, Proven)
    assert judged(guard, NAME, line) is Drop.REPLAYED


# In a client: native code and Python tell, count and remember the same.

SERVERS: tuple[Address, ...] = (("192.0.2.1", 7400), ("192.0.2.2", 7400))
NAME = b"weather/oslo"


def run(seed: int, *, is_native: bool) -> tuple[object, ...]:
    """What a client makes of datagrams in which all kinds of lines are mixed."""
    rng, now = Random(seed), 1000.0
    core = ClientCore(lab(SERVERS, Policy(2, 2, 2)), rng, copies=CopyFilter(is_native=is_native))
    core.clock_offset_s = READ_AT_S - now
    signed = next(vector for vector in LINES if vector["what"] == "signed")
    sealed = next(vector for vector in LINES if vector["what"] == "sealed")
    guards = [guard_of(signed), guard_of(sealed)]
    at = {id(guard): number for number, guard in enumerate(guards)}
    for guard in guards:
        core.subscribe(NAME, now, guard=guard)
    if seed % 2:
        core.subscribe(NAME, now)
    core.subscribe(b"t", now)
    core.flush(now)
    assert wire.encode_topic(hidden(EPOCHS[0].topic_secret, NAME)) in core._subscriptions
    pool = (message_lines(), message_lines(NAME), sealed_lines(), [line_of(signed), line_of(sealed)])
    told: list[object] = []
    for _ in range(60):
        chosen = [rng.choice(rng.choice(pool)) for _ in range(6)]
        while sum(map(len, chosen)) + len(chosen) > DATAGRAM_BYTES_MAX:
            chosen.pop()
        data = b"".join(line + b"\n" for line in chosen)
        core.receive(Burst(data, len(data), rng.choice(SERVERS)), now)
        core.flush(now)
        for each in core.events():
            told.append((each.event, at[id(each.guard)]) if isinstance(each, Guarded) else each)
    return told, core.counts, core.drops


def test_native_code_hands_guarded_topics_back(seeds: Seeds) -> None:
    for seed in seeds(1, 6):
        found = [run(seed, is_native=each) for each in TAKERS.values()]
        assert all(each == found[0] for each in found)
        told, _, drops = found[0]
        assert isinstance(told, list) and isinstance(drops, dict)
        deliveries = [each for each in told if isinstance(each, tuple) and isinstance(each[0], Delivery)]
        assert {number for _, number in deliveries} == {0, 1}, "each guard has let something pass"
        known = {(each.publisher, each.seq, each.sender, number) for each, number in deliveries}
        assert len(known) == len(deliveries)
        assert drops[Drop.BAD_SIGNATURE] and drops[Drop.NOT_OPENED] and drops[Drop.UNSIGNED]
        plain = [each for each in told if isinstance(each, Delivery) and each.topic == NAME]
        assert bool(plain) == bool(seed % 2), "who asks for no proof gets what guards drop"
