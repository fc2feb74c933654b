"""pubsub/server.py: every limit, its refusal on the wire, its counters; and the order of what is checked.

PROTOCOL §5.2, §5.8, §7.5.
"""

import random
from collections import Counter
from typing import Any

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, COOKIE_PUBLISH_LIFE_S, Limits
from kcast.pubsub.server import Server
from tests.support.forms import Seeds
from tests.support.server_core import (
    CLIENT,
    OTHER,
    OWN,
    START,
    THIRD,
    answer,
    ask,
    handshake,
    lease,
    new_server,
    publish,
    publish_lease,
    send,
    vouched,
)

PING = b"%~ P".ljust(20, b"\n")


def limited(**limits: int) -> Server:
    return new_server(limits=Limits(**limits))


def refusals(server: Server, datagram: bytes, address: Address = CLIENT, now: float = START) -> wire.Refusal:
    """The refusal in the answer to a datagram."""
    (refusal,) = [r for r in answer(server, datagram, address, now) if isinstance(r, wire.Refusal)]
    return refusal


# --- Leases: refused on the wire, counted twice, and only where they are new --------------------------

HOME: Address = ("127.0.0.1", 1)
V4_OTHER: Address = ("198.51.101.1", 1000)
V6_SAME_48: Address = ("2001:db8:0:ffff::9", 1)  # as THIRD
V4_SAME_24: Address = ("198.51.100.255", 9)  # as CLIENT and OTHER


@pytest.mark.parametrize(
    ("limits", "before", "address", "topics", "reason", "hexmap"),
    [
        ({"leases": 1}, [(OTHER, b"t")], CLIENT, [b"a"], "full", 0b1),
        ({"leases": 3}, [(OTHER, b"t")], CLIENT, [b"a", b"b", b"c"], "full", 0b100),
        ({"leases_per_address": 1}, [(CLIENT, b"t")], CLIENT, [b"a", b"b"], "address", 0b11),
        ({"leases_per_address": 2}, [], CLIENT, [b"a", b"b", b"c"], "address", 0b100),
        ({"leases_per_address": 2}, [], HOME, [b"a", b"b", b"c"], "address", 0b100),
        ({"leases_per_prefix": 1}, [(OTHER, b"t")], CLIENT, [b"t"], "prefix", 0b1),
        ({"leases_per_prefix": 2}, [(OTHER, b"t")], V4_SAME_24, [b"a", b"b"], "prefix", 0b10),
        ({"leases_per_prefix": 1}, [(THIRD, b"t")], V6_SAME_48, [b"a"], "prefix", 0b1),
        ({"topics": 1}, [(OTHER, b"t")], CLIENT, [b"t", b"u"], "topics", 0b10),
        ({"topics": 1}, [(OTHER, b"t")], CLIENT, [b"u", b"t", b"v"], "topics", 0b101),
    ],
)
def test_new_lease_over_a_limit_is_refused(
    limits: dict[str, int],
    before: list[tuple[Address, bytes]],
    address: Address,
    topics: list[bytes],
    reason: str,
    hexmap: int,
) -> None:
    server = limited(**limits)
    for holder, topic in before:
        lease(server, holder, topic)
    leased = len(server.leases)
    refusal = refusals(server, vouched(handshake(server, address), *topics), address)
    assert (refusal.reason, refusal.lines, refusal.attributes) == (reason, hexmap, {})
    assert server.drops == {Drop(reason): hexmap.bit_count()}
    assert server.refusals == {reason: 1}
    assert len(server.leases) == leased + len(topics) - hexmap.bit_count()
    assert server.counts["leases_opened"] == len(server.leases)


@pytest.mark.parametrize(
    "limits", [{"leases": 2}, {"leases_per_address": 2}, {"leases_per_prefix": 2}, {"topics": 2}]
)
@pytest.mark.parametrize("table", ["ttl", "fifo"])
def test_what_stands_is_renewed_whatever_limit_is_reached(limits: dict[str, int], table: str) -> None:
    """§5.8: and new ones may come in its place when it ends."""
    server = new_server(table=table, limits=Limits(**limits))
    lease(server, CLIENT, b"a", b"b")
    for after_s in (20.0, 40.0):
        now = START + after_s
        replies = answer(server, vouched(handshake(server, now=now), b"new", b"b"), now=now)
        assert [type(reply) for reply in replies] == [wire.Receipt, wire.Refusal]
        assert replies[1] and replies[1][2] == 0b01
    assert server.counts["leases_renewed"] == 2
    now = START + 60  # `a` ends, `b` lives until 100
    lease(server, CLIENT, b"new", now=now)
    assert list(server.leases.subscribers(b"b", START + 99)) == [CLIENT]
    assert list(server.leases.subscribers(b"a", START + 61)) == []


def test_fifo_does_not_push_out_what_the_same_datagram_renews() -> None:
    """The oldest lease of all may stand behind a new topic in the datagram that renews it."""
    server = new_server(table="fifo", limits=Limits(leases=2))
    for after_s, address in ((0, CLIENT), (1, V4_OTHER)):
        lease(server, address, b"t", now=START + after_s)
    now = START + 40
    refusals(server, vouched(handshake(server, THIRD, now), b"x"), THIRD, now)  # less is promised from now on
    lease(server, CLIENT, b"old", now=START + 60)
    lease(server, V4_OTHER, b"t", now=START + 75)
    now = START + 100
    replies = answer(server, vouched(handshake(server, now=now), b"new", b"old"), now=now)
    assert isinstance(replies[0], wire.Receipt)
    assert list(server.leases.subscribers(b"old", now)) == [CLIENT]
    assert server.drops[Drop.TOPIC] == 0


# --- Too many lines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "lines", "fits"), [(64, 63, True), (64, 64, False), (5, 4, True), (5, 5, False)]
)
def test_too_many_lines_are_told_the_limit_and_nothing_is_done(limit: int, lines: int, fits: bool) -> None:
    """§5.8: the vouch line is counted; `lines=` is the most that the server takes."""
    server = limited(lines_per_datagram=limit)
    lease(server, OTHER, b"t")
    cookie = handshake(server)
    datagram = vouched(cookie, *[b"t", b"t m"] * (lines // 2), *[b"t m"] * (lines % 2))
    replies = answer(server, datagram)
    if fits:
        assert isinstance(replies[0], wire.Receipt)
        return
    assert replies == [wire.Refusal(b"V", "size", None, {"lines": str(limit)})]
    assert server.drops == {Drop.TOO_MANY_LINES: 1}
    assert server.refusals == {"size": 1}
    assert len(server.leases) == 1
    assert len(server.publish_leases) == 0
    assert server.counts["messages_received"] == 0


def test_too_many_bare_lines_are_dropped_whole_in_silence() -> None:
    server = limited(lines_per_datagram=3)
    lease(server, OTHER, b"t")
    publish_lease(server)
    assert len(send(server, b"t m\n" * 3)) == 1
    assert send(server, b"t m\n" * 4) == []
    assert send(server, b"t m\n" * 3 + ask()) == []
    assert server.drops == {Drop.TOO_MANY_LINES: 2}


# --- Rates of publishing ------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"publishes_per_s": 10}, {"copies_per_s": 20}])
def test_publishing_too_much_is_refused_with_nothing_done(limits: dict[str, int]) -> None:
    """§5.8: neither lines nor leases of the datagram."""
    server = limited(**limits)
    lease(server, OTHER, b"t")
    lease(server, THIRD, b"t")
    publish(server, *[b"t m"] * 10)
    for _ in range(2):
        server.counts["copies_sent"] = 0
        refusal = refusals(server, vouched(handshake(server), b"new", b"t m", b"t n"))
        assert (refusal.reason, refusal.lines, refusal.attributes) == ("rate", None, {})
        assert server.counts["copies_sent"] == 0
    assert server.drops == {Drop.PUBLISH_RATE: 4}
    assert server.refusals == {"rate": 2}
    assert server.counts["messages_received"] == 10
    assert len(server.leases) == 2
    publish(server, b"t m", now=START + 0.2)


@pytest.mark.parametrize(
    "limits", [{"publishes_per_s": 5}, {"copies_per_s": 10}, {"publishes_per_s": 5, "copies_per_s": 10}]
)
@pytest.mark.parametrize("data", [b"t 1\nt 2\nt 3\nt 4\nt 5\n", b"t 1\nt 2\nt 3\nt 4\nu 5\n"])
@pytest.mark.parametrize("segment_bytes", [4, 1200])
def test_bursts_of_bare_lines_pay_for_lines_and_copies(
    limits: dict[str, int], data: bytes, segment_bytes: int
) -> None:
    """Also those that leave as they came. Two subscribers: five lines make ten copies."""
    server = limited(**limits)
    for address in (OTHER, THIRD):
        lease(server, address, b"t", b"u")
    publish_lease(server)
    forwarded = []
    for now in (START, START, START + 0.5, START + 0.5):
        server.counts["copies_sent"] = 0
        server.receive(Burst(data, segment_bytes, CLIENT), now)
        server.flush(now)
        forwarded.append(server.counts["copies_sent"])
    assert forwarded == [10, 0, 10, 0]


@pytest.mark.parametrize("limits", [{"publishes_per_s": 2}, {"copies_per_s": 2}])
@pytest.mark.parametrize("data", [b"t 1\n" * 64, b"t 1\nu 2\n" * 32])
def test_rate_is_overdrawn_by_a_datagram_and_not_by_a_burst(limits: dict[str, int], data: bytes) -> None:
    """Else a burst of the kernel's making would be forwarded whole, and its sender be shut out for long."""
    server = limited(**limits)
    lease(server, OTHER, b"t", b"u")
    publish_lease(server)
    server.receive(Burst(data, 4, CLIENT), START)
    server.flush(START)
    assert server.counts["copies_sent"] == 2
    assert server.drops == {Drop.PUBLISH_RATE: 62}


def test_bare_lines_which_anyone_may_forge_do_not_shut_out_who_vouches() -> None:
    server = limited(publishes_per_s=2)
    publish_lease(server)
    send(server, b"t forged\n" * 3)
    send(server, b"t forged\n" * 3)
    assert server.drops[Drop.PUBLISH_RATE] == 3
    publish(server, b"t mine")


def test_rate_is_of_one_ip_and_spares_its_subscribes() -> None:
    """All ports of an IP share it: there are 65,535 of them."""
    server = limited(publishes_per_s=2)
    neighbour = CLIENT[0], CLIENT[1] + 1
    lease(server, OTHER, b"t")
    publish(server, b"t 1", b"t 2")
    assert refusals(server, vouched(handshake(server), b"t 3")).reason == "rate"
    (refusal,) = answer(server, vouched(handshake(server, neighbour), b"t 3"), neighbour)
    assert isinstance(refusal, wire.Refusal)
    lease(server, CLIENT, b"t")
    publish(server, b"t 1", b"t 2", source=OTHER)


def test_rate_of_a_network_is_some_times_that_of_an_ip() -> None:
    server = limited(publishes_per_s=2)
    lease(server, THIRD, b"t")
    for number in range(1, 9):
        publish(server, b"t 1", b"t 2", source=(f"203.0.113.{number}", 1))
    ninth = "203.0.113.9", 1
    (refusal,) = answer(server, vouched(handshake(server, ninth), b"t 3"), ninth)
    assert isinstance(refusal, wire.Refusal)
    publish(server, b"t 1", source=CLIENT)


@pytest.mark.parametrize(
    ("data", "segment_bytes"),
    [
        (b"t 1\n", 1200), (b"t 1\nt 2\n", 1200), (b"t 1\nt 2\n", 4), (b"t 1\nu 2\n", 4),
        (b"t 1\nu 2\n%41 3\n", 1200), (b"t 1\n\n\n\n%41 3\n\n", 7),
    ],
)  # fmt: skip
def test_bare_lines_over_the_rate_are_dropped_and_pongs_say_0_for_a_while(
    data: bytes, segment_bytes: int
) -> None:
    """§5.9: so that the client vouches again, and is told."""
    server = limited(publishes_per_s=1)
    lease(server, OTHER, b"t")
    publish_lease(server)
    assert answer(server, PING) == [wire.Pong(b"P", 60)]
    assert len(send(server, b"t 0\n" * 3)) == 1
    assert answer(server, PING) == [wire.Pong(b"P", 60)], "all was forwarded so far"
    server.receive(Burst(data, segment_bytes, CLIENT), START)
    assert server.flush(START) == []
    assert server.drops == {Drop.PUBLISH_RATE: data.count(b" ")}
    assert answer(server, PING, now=START + 9.9) == [wire.Pong(b"P", 0)]
    assert answer(server, PING, now=START + 10.0) == [wire.Pong(b"P", 50)]
    assert server.counts["messages_received"] == 3


def test_who_published_too_much_is_not_let_go_bare_again_at_once() -> None:
    """§5.9: it would go on, and never hear of it."""
    server = limited(publishes_per_s=1)
    publish_lease(server)
    send(server, b"t 0\nt 1\n")
    send(server, b"t 2\n")
    cookie = handshake(server)
    for later_s, bare in ((5.0, "0"), (9.9, "0"), (11.0, None)):
        (receipt,) = answer(server, vouched(cookie, b"t m"), now=START + later_s)
        assert isinstance(receipt, wire.Receipt)
        assert receipt.attributes.get("bare") == bare
    assert server.drops[Drop.PUBLISHERS] == 0


# --- Answers to strangers -----------------------------------------------------------------------------


def test_answers_to_strangers_are_bounded_and_the_rest_gets_silence() -> None:
    """§5.2: `%=`, for whatever reason, and the pong of none; a network has its part, and what is not used."""
    server = limited(challenges_per_s=10)
    lease(server, OTHER, b"t")  # one of the ten
    answered = Counter[str]()
    for number in range(60):
        source = ("203.0.113.1", 1000 + number)
        kind, request = [("ask", ask()), ("ping", PING), ("foreign", vouched(b"A" * 32, b"t"))][number % 3]
        answered[kind] += len(answer(server, request, source))
    assert answered == {"ask": 2, "ping": 2, "foreign": 1}
    assert server.drops == {Drop.CHALLENGE_RATE: 55, Drop.COOKIE_FOREIGN: 20}
    assert server.counts["cookies_issued"] == 4
    assert len(answer(server, ask(), now=START + 1)) == 1


def test_strangers_of_other_networks_are_answered_beside_a_flood() -> None:
    """A part of the answers is divided evenly among networks, as far as they can be told apart."""
    server = limited(challenges_per_s=200)
    for second in range(5):
        now = START + second
        for number in range(20_000):
            server.receive(Burst(ask(), 192, (f"203.0.{number % 50}.{number % 250}", 1000 + number)), now)
            server.flush(now)
        if second > 0:  # in the first nobody knows yet how many will ask
            assert len(answer(server, ask(), now=now)) == 1
    assert server.counts["cookies_issued"] <= 5 * 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1"])
def test_strangers_on_loopback_are_always_answered(host: str) -> None:
    """Health checks among them, which must not fail because of a flood from elsewhere."""
    server = limited(challenges_per_s=1)
    for number in range(5):
        assert len(answer(server, ask(), (host, 1000 + number))) == 1
        assert len(answer(server, PING, (host, 1000 + number))) == 1
    assert server.drops == {}


def test_who_has_a_good_cookie_is_not_touched_by_a_flood_of_strangers() -> None:
    """§5.2: renewals, publishes, new leases, pongs."""
    server = limited(challenges_per_s=5)
    cookie = handshake(server)
    lease(server, OTHER, b"t")
    publish(server, source=CLIENT)
    for port in range(1000):
        answer(server, ask(), ("203.0.113.1", port))
    assert server.drops[Drop.CHALLENGE_RATE] == 999
    for lines in ([b"a"], [b"a"], [b"a", b"b", b"t m"]):
        (receipt,) = answer(server, vouched(cookie, *lines))
        assert isinstance(receipt, wire.Receipt)
    assert answer(server, PING) == [wire.Pong(b"P", 60)]
    assert server.counts["leases_renewed"] == 2


def test_who_must_hear_of_the_rate_hears_it_though_strangers_flood() -> None:
    """§5.9: its pong says 0, but it is no stranger."""
    server = limited(challenges_per_s=5, publishes_per_s=1)
    publish_lease(server)
    for port in range(1000):
        answer(server, ask(), ("203.0.113.1", port))
    send(server, b"t 0\nt 1\n")
    send(server, b"t 2\n")
    assert answer(server, PING) == [wire.Pong(b"P", 0)]


def test_strangers_never_get_more_bytes_than_they_sent(seeds: Seeds) -> None:
    """§5.2: whatever they send, in all and each by itself; the server's own counters agree."""
    for seed in seeds(4, 20):
        rng = random.Random(seed)
        server = new_server(head="h" * 32, work_bits=24, limits=Limits(challenges_per_s=rng.choice((0, 40))))
        server.start_drain(START)
        sent_bytes = received_bytes = answered_bytes = 0
        now = START
        for _ in range(400):
            now += rng.choice((0.0, 0.01, 0.1))
            source = ("203.0.113.1", rng.randrange(1, 9))
            nonce = b"n" * rng.randint(1, 22)
            kinds: list[list[wire.Request]] = [
                [wire.Ask(nonce)],
                [wire.Ping(nonce)],
                [wire.Ping(nonce), wire.Ask(nonce)],
                [wire.Vouch(nonce, b"A" * 32, None)],
            ]
            requests = b"".join(wire.format_line(request) for request in rng.choice(kinds))
            datagram = requests + rng.choice((b"", b"t\n", b"t m\n"))
            datagram = datagram.ljust(rng.choice((0, 20, 60, 191, 192, 1200)), b"\n")
            back = send(server, datagram, source, now)
            assert sum(len(data) for _, data in back) <= len(datagram)
            assert all(where == source for where, _ in back)
            sent_bytes += len(datagram)
            received_bytes += sum(len(data) for _, data in back)
            answered_bytes += len(datagram) if back else 0
            assert server.counts["unproven_bytes_sent"] == received_bytes <= sent_bytes
            assert server.counts["unproven_bytes_received"] == answered_bytes >= received_bytes
        assert received_bytes > 1000


# --- The order of what is checked ---------------------------------------------------------------------

# For each check, from the first to the last, what makes a vouched datagram fail it: a change of the server's
# options, of the server when it stands, or of the datagram that is sent.
Change = dict[str, Any]
CHECKS: list[tuple[Drop, Change]] = [
    (Drop.OWN_ADDRESS, {"source": OWN}),
    (Drop.OVERSIZE, {"size": 1201}),
    (Drop.SHORT, {"cut": True}),
    (Drop.MALFORMED, {"malformed": True}),
    (Drop.COOKIE_FOREIGN, {"later_s": COOKIE_PUBLISH_LIFE_S + 1}),
    (Drop.TOO_MANY_LINES, {"lines": 5}),
    (Drop.COOKIE_OLD, {"later_s": COOKIE_LEASE_LIFE_S + 1}),
    (Drop.PUBLISH_RATE, {"spend": True}),
    (Drop.DRAIN, {"drain": True}),
    (Drop.WORK, {"work_bits": 24}),
    (Drop.ADDRESS, {"leases_per_address": 1}),
    (Drop.PREFIX, {"leases_per_prefix": 1}),
    (Drop.TOPICS, {"topics": 1}),
    (Drop.FULL, {"leases": 1}),
]


def drops_with(change: Change) -> Counter[Drop]:
    """What a datagram is dropped for that publishes a line and asks for a lease on `new`."""
    names = {"leases", "leases_per_address", "leases_per_prefix", "topics"} & set(change)
    limits = Limits(publishes_per_s=1, lines_per_datagram=5, **{name: change[name] for name in names})
    server = new_server(limits=limits)
    later_s = change.get("later_s", 0.0)
    lease(server, CLIENT, b"t")
    publish_lease(server, OTHER)
    server._price.least_bits = change.get("work_bits", 0)
    cookie, now = handshake(server), START + later_s
    server._price.least_bits = 0
    lease(server, CLIENT, b"t", now=now) if later_s else None
    if change.get("spend"):
        publish(server, b"t 1", b"t 2", now=now)
    if change.get("drain"):
        server.start_drain(now)
    server.drops.clear()
    lines = [b"new", b"u m"] + [b"u m"] * change.get("lines", 0)
    datagram = vouched(cookie, *lines)
    if change.get("malformed"):
        datagram = b"%!_" + datagram[3:]
    if change.get("cut"):
        datagram = datagram.rstrip(b"\n") + b"\n"
    send(server, datagram.ljust(change.get("size", 0), b"\n"), change.get("source", CLIENT), now)
    del server.drops[Drop.NO_SUBSCRIBER]  # the line that was published
    return server.drops


@pytest.mark.parametrize("first", range(len(CHECKS)), ids=lambda index: str(CHECKS[index][0]))
def test_checks_come_in_their_order(first: int) -> None:
    """Of two that fail, the one that comes first is what is counted: alone, where it ends the matter."""
    drop, change = CHECKS[first]
    lines = change.get("lines", 0) + 1
    count = lines if drop == Drop.PUBLISH_RATE else 1
    assert drops_with(change) == {drop: count}
    for later, later_change in CHECKS[first + 1 :]:
        together = {**later_change, **change}
        if {"later_s", "size", "cut"} & set(change) & set(later_change):
            continue
        if {"size", "cut"} <= set(together):
            continue  # a datagram is not both
        assert drop in drops_with(together), (drop, later)
        assert later not in drops_with(together), (drop, later)
