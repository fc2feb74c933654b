"""pubsub/server.py: what the protocol asks of a server, paragraph by paragraph (PROTOCOL §2, §4 to §7).

Limits, work, draining and open servers have files of their own, which share what stands first here.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.limits import (
    COOKIE_LEASE_LIFE_S,
    COOKIE_PUBLISH_LIFE_S,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MIN,
    Limits,
)
from kcast.pubsub.server import Server
from tests.support import wire_vectors
from tests.support.server_core import (
    CLIENT,
    NONCE_MAX,
    OTHER,
    OWN,
    START,
    THIRD,
    answer,
    ask,
    flushed,
    handshake,
    lease,
    new_server,
    open_server,
    publish,
    publish_lease,
    send,
    sent,
    vouched,
)

DATAGRAMS: list[dict[str, Any]] = json.loads(wire_vectors.FILE.read_text(encoding="ascii"))["datagrams"]


@pytest.fixture
def server() -> Server:
    return new_server()


# --- §2, §5.2: what is dropped before it is looked at -------------------------------------------------


@pytest.mark.parametrize("vector", DATAGRAMS, ids=lambda vector: str(vector["description"]))
def test_datagram_vectors(vector: dict[str, Any], server: Server) -> None:
    """§2.1 to §2.3"""
    send(server, bytes.fromhex(vector["datagram_hex"]))
    whole = {Drop.OVERSIZE, Drop.EMPTY, Drop.TOO_MANY_LINES} & set(server.drops)
    assert whole == (set() if vector["verdict"] == "taken" else {Drop(vector["verdict"])})
    assert (Drop.UNTERMINATED in server.drops) is vector["unterminated"]
    handled = sum(server.drops.values()) - server.drops[Drop.UNTERMINATED] + server.counts["answers_sent"]
    assert handled == (len(vector["lines_hex"]) if vector["verdict"] == "taken" else 1)


Provoke = Callable[[Server, bytes], None]


def bare(*sequence: bytes, source: Address = CLIENT) -> Provoke:
    def provoke(server: Server, cookie: bytes) -> None:
        for datagram in sequence:
            send(server, datagram, source)

    return provoke


def proven(*sequence: bytes) -> Provoke:
    """As `bare`, from an address with a publish lease: of others only the first request is looked at."""

    def provoke(server: Server, cookie: bytes) -> None:
        publish_lease(server)
        bare(*sequence)(server, cookie)

    return provoke


def burst(*sequence: bytes) -> Provoke:
    def provoke(server: Server, cookie: bytes) -> None:
        server.receive(Burst(b"".join(sequence), len(sequence[0]), CLIENT), START)

    return provoke


def waiting_too_long(server: Server, cookie: bytes) -> None:
    """One of two copies leaves; the other waits for the uplink until its lease has ended."""
    lease(server, THIRD, b"t")
    send(server, vouched(cookie, b"t longer than a burst"), CLIENT, START + 58)
    for wait_s in (59, 75):
        flushed(server, START + wait_s)


def two_publishers(line: bytes) -> Provoke:
    """The same line from two networks."""

    def provoke(server: Server, cookie: bytes) -> None:
        publish(server, line)
        publish(server, line, source=THIRD)

    return provoke


def vouching(
    *lines: bytes,
    cut: int | None = None,
    source: Address = CLIENT,
    later_s: float = 0.0,
    after: Callable[[Server], object] = lambda server: None,
) -> Provoke:
    def provoke(server: Server, cookie: bytes) -> None:
        after(server)
        send(server, vouched(cookie, *lines)[:cut], source, START + later_s)

    return provoke


# Each reason -> what provokes it once, and nothing else, at a server where OTHER has a lease on `t`, which
# is all there is room for but where SERVERS says otherwise; the cookie is CLIENT's.
PROVOCATIONS: dict[Drop, list[Provoke]] = {
    Drop.OWN_ADDRESS: [bare(b"x\n", source=OWN), bare(b"", source=OWN)],
    Drop.OVERSIZE: [bare(b"t " + b"x" * 1198 + b"\n"), bare(b"\n" * 1201)],
    Drop.EMPTY: [bare(b""), bare(b"\n"), bare(b"\n" * 1200)],
    Drop.TOO_MANY_LINES: [bare(b"t\n" * 65), bare(b"%~ N\n" + b"t m\n" * 64), vouching(*[b"t"] * 64)],
    Drop.UNTERMINATED: [bare(ask() + b"x"), bare(ask() + b"\n" + b"x" * 900)],
    Drop.SHORT: [bare(ask()[:191]), vouching(cut=191), bare(b"%~ N\n"), bare(b"%! N\n")],
    Drop.MALFORMED: [bare(b"%!".ljust(192, b"\n")), bare(b"%! N C -".ljust(192, b"\n")), bare(b"%?\n"),
                     bare(b"%~ \n"), proven(b"%~ \n"), proven(b"%?x\n")],
    Drop.REPLY_VERB: [*(bare(verb + b" N\n") for verb in wire.REPLY_VERBS), vouching(b"%+ x"),
                      bare(wire.format_line(wire.Pong(b"N", 1)))],
    Drop.UNKNOWN_VERB: [bare(b"%# N\n"), bare(b"%\n"), bare(b"%@p.1 x\n"), vouching(b"%zz")],
    Drop.MISPLACED: [vouching(b"%? N"), vouching(b"%~ N"), vouching(b"%?x"),
                     proven(b"%~ N\n%! N " + b"A" * 32 + b" -\n"),
                     proven(b"%~ N\n".ljust(9, b"\n") + b"%!x\n")],
    Drop.EXTRA_REQUEST: [proven(ask() + b"%? M\n"), proven(ask() + b"%~ M\n"), proven(b"%~ N\n%~ M\n"),
                         proven(b"%~ N\n%?x\n"), bare(ask() + b"%? M\n"),
                         bare(b"%~ N\n\n%~ M is behind it\n")],
    Drop.STRANGER: [burst(ask(), ask()), burst(b"%~ N".ljust(20, b"\n"), b"%~ M\n")],
    Drop.COOKIE_FOREIGN: [vouching(b"t", source=OTHER), vouching(b"t", later_s=COOKIE_PUBLISH_LIFE_S + 1),
                          bare(vouched(b"A" * 32, b"t"))],
    Drop.COOKIE_OLD: [vouching(b"t", later_s=COOKIE_LEASE_LIFE_S + 1)],
    Drop.CHALLENGE_RATE: [bare(ask(), ask()), bare(b"%~ N".ljust(20, b"\n"), ask())],
    Drop.UNVOUCHED_SUBSCRIBE: [bare(b"t\n"), bare(b"%c3\n"), bare(b"t\r\n"), bare(ask() + b"t\n"),
                               bare(b"t\n" + ask())],
    Drop.UNVOUCHED_PUBLISH: [bare(b"t m\n"), bare(b" \n"), bare(b"%c3 m\n"), bare(ask() + b"t m\n"),
                             bare(b"%~ N\n".ljust(20, b"\n") + b"t m\n"), bare(b"t m\n" + ask())],
    Drop.COPY: [bare(b"\nt m\n"), bare(b"\n\n%c3 m\n")],
    Drop.CONTROL_BYTE: [bare(b"t \x1b[2J\n"), bare(b"t m\r\n"), vouching(b"t \x7f"), vouching(b"\x01 m")],
    Drop.BACKLOG: [proven(b"t 1\n", b"t 2\n", b"t 3\n")],
    Drop.CREDIT: [proven(*[b"t ".ljust(1149, b"m") + b"\n"] * 57)],
    Drop.EGRESS_RATE: [two_publishers(b"t ".ljust(999, b"m"))],
    Drop.LATE: [waiting_too_long],
    Drop.PUBLISH_RATE: [vouching(b"t b", after=lambda server: publish(server, b"t a"))],
    Drop.TOPIC: [vouching(b"%41"), vouching(b"t\r"), vouching(b"%c3 m"), vouching(b"x" * 256)],
    Drop.WORK: [vouching(b"new")],
    Drop.DRAIN: [vouching(b"new", after=lambda server: server.start_drain(START))],
    Drop.FULL: [vouching(b"new"), vouching(b"t")],
    Drop.ADDRESS: [vouching(b"a", b"b")],
    Drop.PREFIX: [vouching(b"a"), vouching(b"t")],
    Drop.TOPICS: [vouching(b"new"), vouching(b"t", b"new")],
    Drop.PUBLISHERS: [vouching(after=lambda server: publish_lease(server, THIRD)),
                      vouching(b"t m", after=lambda server: publish_lease(server, THIRD))],
    Drop.NO_SUBSCRIBER: [vouching(b"u m"), vouching(b"u ")],
}  # fmt: skip

SERVERS: dict[Drop, Callable[[], Server]] = {
    Drop.CHALLENGE_RATE: lambda: new_server(limits=Limits(challenges_per_s=4)),
    Drop.COPY: lambda: open_server(),
    Drop.CONTROL_BYTE: lambda: open_server(),
    Drop.BACKLOG: lambda: new_server(limits=Limits(uplink_bytes_per_s=1000)),
    Drop.EGRESS_RATE: lambda: new_server(limits=Limits(egress_bytes_per_s=100)),
    Drop.LATE: lambda: new_server(limits=Limits(uplink_bytes_per_s=1000)),
    Drop.PUBLISH_RATE: lambda: new_server(limits=Limits(publishes_per_s=1)),
    Drop.WORK: lambda: new_server(work_bits=1),
    Drop.DRAIN: lambda: new_server(),
    Drop.ADDRESS: lambda: new_server(limits=Limits(leases_per_address=1)),
    Drop.PREFIX: lambda: new_server(limits=Limits(leases_per_prefix=1)),
    Drop.TOPICS: lambda: new_server(limits=Limits(topics=1)),
    Drop.PUBLISHERS: lambda: new_server(limits=Limits(publishers=1)),
}


@pytest.mark.parametrize(
    ("drop", "provoke"), [(drop, provoke) for drop, ways in PROVOCATIONS.items() for provoke in ways]
)
def test_each_reason_to_drop_is_counted_alone(drop: Drop, provoke: Provoke) -> None:
    server = SERVERS.get(drop, lambda: new_server(limits=Limits(leases=1)))()
    lease(server, OTHER, b"t")
    cookie = handshake(server)
    assert not server.drops
    provoke(server, cookie)
    assert server.drops == {drop: 1}


def test_every_reason_to_drop_has_a_provocation() -> None:
    in_test_crowds = {Drop.CROWD}
    assert set(PROVOCATIONS) == set(Drop) - in_test_crowds


# --- §4: the note's two messages ----------------------------------------------------------------------


def test_copy_is_the_published_line_as_it_came(server: Server) -> None:
    """§4.1, §3.2: servers never look into messages."""
    lease(server, OTHER, b"t")
    cookie = handshake(server)
    for message in (b"m", b"", b" ", b"%41 not canonical", b"\x00\r\xff", b"%@p.1 x", b"%? N"):
        assert send(server, vouched(cookie, b"t " + message))[1:] == [(OTHER, b"t " + message + b"\n")]


def test_subscribe_and_publish_share_a_datagram(server: Server) -> None:
    """§4.1: the publisher that subscribes gets its own copy."""
    back = send(server, vouched(handshake(server), b"t", b"t m"))
    assert [where for where, _ in back] == [CLIENT, CLIENT]
    assert back[1][1] == b"t m\n"


def test_nothing_is_taken_or_forwarded_for_who_has_shown_nothing(server: Server) -> None:
    """§4.2"""
    lease(server, OTHER, b"t")
    assert send(server, b"t\nt m\n") == []
    assert len(server.leases) == 1
    assert server.drops == {Drop.UNVOUCHED_SUBSCRIBE: 1, Drop.UNVOUCHED_PUBLISH: 1}


def test_publish_lease_lets_bare_lines_through_and_no_bare_subscribe(server: Server) -> None:
    """§4.2, §7.2"""
    lease(server, OTHER, b"t")
    publish_lease(server)
    assert send(server, b"t a\nt\nt b\n") == [(OTHER, b"t a\nt b\n")]
    assert server.drops == {Drop.UNVOUCHED_SUBSCRIBE: 1}
    assert len(server.leases) == 1


def test_lines_of_a_subscriber_are_put_together_in_order(server: Server) -> None:
    """§4.3: from several datagrams and sources, whatever topics each wants; those of a source in order."""
    lease(server, OTHER, b"t", b"u")
    lease(server, THIRD, b"u")
    publish_lease(server)
    publish_lease(server, OTHER)
    for source, datagram in ((CLIENT, b"t 1\nu 1\n"), (OTHER, b"u 2\nt 2\n"), (CLIENT, b"t 3\nv 1\n")):
        server.receive(Burst(datagram, len(datagram), source), START)
    back = sent(server.flush(START))
    assert sorted(back) == [(OTHER, b"t 1\nu 1\nu 2\nt 2\nt 3\n"), (THIRD, b"u 1\nu 2\n")]
    assert server.flush(START) == []


def test_lines_of_a_topic_stay_in_order_between_bursts_and_single_datagrams(server: Server) -> None:
    """§4.3: also where a burst could be forwarded as it came."""
    lease(server, OTHER, b"t")
    publish_lease(server)
    for data, segment_bytes in ((b"t 1\n", 4), (b"t 2\nt 3\n", 4), (b"t 4\n", 4), (b"t 5\nt 6\n", 4)):
        server.receive(Burst(data, segment_bytes, CLIENT), START)
    copies = b"".join(data for _, data in sent(server.flush(START)))
    assert copies.split() == [b"t", b"1", b"t", b"2", b"t", b"3", b"t", b"4", b"t", b"5", b"t", b"6"]


def test_answers_are_told_from_copies(server: Server) -> None:
    lease(server, OTHER, b"t")
    publish_lease(server)
    server.receive(Burst(b"t m\n", 4, CLIENT), START)
    server.receive(Burst(ask(), len(ask()), THIRD), START)
    told = {tuple(transmit.destinations): transmit.is_answer for transmit in server.flush(START)}
    assert told == {(OTHER,): False, (THIRD,): True}


@pytest.mark.parametrize("line", [b"t\n", b"t m\n", ask(), b"%~ N".ljust(192, b"\n")])
def test_own_address_gets_nothing(line: bytes) -> None:
    """§4.4: no lease, nor anything else, for whoever claims to be the server."""
    server = new_server(open_to=lambda source: True)
    assert send(server, line, OWN) == []
    server.receive(Burst(line * 5, len(line), OWN), START)  # each datagram counts, however they were joined
    assert server.drops == {Drop.OWN_ADDRESS: 6}
    assert len(server.leases) == 0


# --- §5: control lines --------------------------------------------------------------------------------


def test_attributes_of_requests_are_ignored(server: Server) -> None:
    """§5.1"""
    (challenge,) = answer(server, b"%? A v=2 x=\n".ljust(192, b"\n"))
    assert isinstance(challenge, wire.Challenge)
    line = b"%%! V %b - v=2\nt\n" % challenge.cookie
    (receipt,) = answer(server, line.ljust(192, b"\n"))
    assert isinstance(receipt, wire.Receipt)


@pytest.mark.parametrize("size", [REQUEST_BYTES_MIN - 1, REQUEST_BYTES_MIN])
def test_requests_are_at_least_as_long_as_the_longest_answer(size: int, server: Server) -> None:
    """§5.2: 191 bytes get silence and a counter, 192 an answer."""
    cookie = handshake(server)
    for request in (ask(), vouched(cookie), vouched(cookie, b"t"), vouched(b"A" * 32)):
        server.drops.clear()
        assert bool(answer(server, request[:size])) is (size == REQUEST_BYTES_MIN)
        assert server.drops[Drop.SHORT] == (size < REQUEST_BYTES_MIN)
    assert len(server.leases) == (size == REQUEST_BYTES_MIN)


@pytest.mark.parametrize("left_s", [60, 9, 1])
def test_ping_is_answered_where_its_datagram_is_as_long(left_s: int, server: Server) -> None:
    """§5.2, §5.5"""
    publish_lease(server)
    now = START + 60 - left_s
    pong = b"%%: N %d\n" % left_s
    assert send(server, b"%~ N\n".ljust(len(pong) - 1, b"\n"), now=now) == []
    assert server.drops == {Drop.SHORT: 1}
    assert send(server, b"%~ N\n".ljust(len(pong), b"\n"), now=now) == [(CLIENT, pong)]


def test_first_of_several_requests_is_answered(server: Server) -> None:
    """§5.2"""
    (challenge,) = answer(server, ask(b"first") + b"%? second\n%~ third\n")
    assert isinstance(challenge, wire.Challenge)
    assert challenge.nonce == b"first"
    assert answer(server, b"%~ first\n" + ask(b"second")) == [wire.Pong(b"first", 0)]


def test_answers_fed_back_get_no_answer() -> None:
    """§5.2: no packet sets two servers talking for ever."""
    servers = [new_server(1, limits=Limits(leases=1)), new_server(2, open_to=lambda source: True)]
    cookie = handshake(servers[0])
    requests = [ask(), vouched(cookie, b"t", b"%41", b"u"), vouched(b"A" * 32), b"%~ N".ljust(192, b"\n")]
    for request in (request for request in requests for _ in range(2)):
        for _, reply in send(servers[0], request):
            for padded in (reply, reply.ljust(192, b"\n")):
                assert [send(server, padded, OTHER) for server in servers] == [[], []]


def test_ask_is_answered_with_a_cookie_and_nothing_is_kept(server: Server) -> None:
    """§5.3, §6.1"""
    for port in range(50):
        (challenge,) = answer(server, ask(NONCE_MAX), ("198.51.100.9", port))
        assert isinstance(challenge, wire.Challenge)
        assert (challenge.nonce, challenge.bits, challenge.attributes) == (NONCE_MAX, 0, {})
    assert (len(server.leases), len(server.publish_leases), server.next_timeout()) == (0, 0, None)


@pytest.mark.parametrize("topic_or_publish", [b"t", b"t m"])
def test_bad_cookie_is_answered_with_a_fresh_one_and_nothing_is_done(
    topic_or_publish: bytes, server: Server
) -> None:
    """§5.4, §5.6"""
    lease(server, OTHER, b"t")
    foreign = handshake(new_server(2))
    (challenge,) = answer(server, vouched(foreign, topic_or_publish, nonce=b"mine"))
    assert isinstance(challenge, wire.Challenge)
    assert challenge.nonce == b"mine"
    assert (len(server.leases), len(server.publish_leases)) == (1, 0)
    assert server.counts["messages_received"] == 0
    (receipt,) = answer(server, vouched(challenge.cookie, topic_or_publish))
    assert isinstance(receipt, wire.Receipt)


def test_receipt_names_the_ttl_and_brings_a_good_cookie() -> None:
    """§5.4, §5.7"""
    server = new_server(ttl_s=45.9)
    (receipt,) = answer(server, vouched(handshake(server), b"t", nonce=NONCE_MAX))
    assert isinstance(receipt, wire.Receipt)
    assert (receipt.nonce, receipt.ttl_s, receipt.bits) == (NONCE_MAX, 45, 0)
    (again,) = answer(server, vouched(receipt.cookie, b"t"), now=START + 128)
    assert isinstance(again, wire.Receipt)


@pytest.mark.parametrize(
    ("lines", "receipt", "refused"),
    [
        ([], True, None), ([b"a"], True, None), ([b"a m"], True, None),
        ([b"%41"], False, ("topic", 0b1)),
        ([b"%41", b"a"], True, ("topic", 0b1)),
        ([b"a", b"%41"], True, ("topic", 0b10)),
        ([b"a", b"b", b"c", b"d"], True, ("full", 0b1100)),
        ([b"%41", b"a", b"b", b"c"], True, ("topic", 0b1001)),
        ([b"a", b"b", b"c", b"%41"], True, ("full", 0b1100)),
        ([b"a m", b"%41"], True, ("topic", 0b1)),
        ([b"x m", b"%41", b"y m", b"a", b"%? N", b"%41"], True, ("topic", 0b101)),
        ([b"%41"] * 63, False, ("topic", 2**63 - 1)),
        ([b"a"] * 62 + [b"%41"], True, ("topic", 1 << 62)),
        ([b"a m"] * 62 + [b"%41"], True, ("topic", 1)),
    ],
)  # fmt: skip
def test_partial_refusals(lines: list[bytes], receipt: bool, refused: tuple[str, int] | None) -> None:
    """§5.4, §5.8: `%+` where anything was done, `%-` where any was refused, bit i for subscribe line i."""
    server = new_server(limits=Limits(leases=2))
    replies = answer(server, vouched(handshake(server), *lines, nonce=NONCE_MAX))
    kinds = [type(reply) for reply in replies]
    assert kinds == [wire.Receipt] * receipt + [wire.Refusal] * (refused is not None)
    assert all(reply and reply.nonce == NONCE_MAX for reply in replies)
    if refused is not None:
        assert isinstance(replies[-1], wire.Refusal)
        assert (replies[-1].reason, replies[-1].lines) == refused


@pytest.mark.parametrize("ttl_s", [0.9, 10_000_000, float("nan")])
def test_ttl_that_no_receipt_can_tell_is_the_callers_fault(ttl_s: float) -> None:
    with pytest.raises(ValueError, match=rf"ttl_s is {ttl_s}: give 1 to 9999999 seconds"):
        Server(secret=bytes(32), ttl_s=ttl_s)


def test_pong_tells_whole_seconds_left(server: Server) -> None:
    """§5.9: 0 is none; never more than is left."""
    ping = b"%~ N".ljust(20, b"\n")
    assert answer(server, ping) == [wire.Pong(b"N", 0)]
    publish_lease(server)
    for after_s, left in ((0.0, 60), (0.5, 59), (59.0, 1), (59.5, 0), (60.0, 0), (61.0, 0)):
        assert answer(server, ping, now=START + after_s) == [wire.Pong(b"N", left)]


def test_ping_rides_among_publishes_anywhere(server: Server) -> None:
    """§5.5"""
    lease(server, OTHER, b"t")
    publish_lease(server)
    back = send(server, b"t a\n%~ N\nt b\n")
    assert back == [(CLIENT, b"%: N 60\n"), (OTHER, b"t a\nt b\n")]


# --- §7: leases ---------------------------------------------------------------------------------------


def test_lease_lives_for_its_ttl_and_not_a_moment_longer(server: Server) -> None:
    """§7.1: also where no timeout was handled, and where a renewal came between."""
    lease(server, OTHER, b"t")
    publish_lease(server, now=START + 50)
    assert send(server, b"t a\n", now=START + 59.999) == [(OTHER, b"t a\n")]
    assert send(server, b"t b\n", now=START + 60) == []
    assert server.next_timeout() == START + 60
    server.handle_timeout(START + 60)
    assert server.counts["leases_expired"] == 1
    assert server.next_timeout() == START + 110
    lease(server, OTHER, b"t", now=START + 70)
    assert send(server, b"t c\n", now=START + 109) == [(OTHER, b"t c\n")]


@pytest.mark.parametrize(
    ("lines", "opens"), [([], True), ([b"t m"], True), ([b"t", b"t m"], True), ([b"t"], False)]
)
def test_publish_lease_is_opened_by_a_publish_or_by_no_line_at_all(
    lines: list[bytes], opens: bool, server: Server
) -> None:
    """§7.2"""
    answer(server, vouched(handshake(server), *lines))
    assert (server.publish_leases.left_s(CLIENT, START) == 60) is opens


def test_publish_lease_ends_on_time_and_belongs_to_one_port(server: Server) -> None:
    """§7.2"""
    publish_lease(server)
    lease(server, OTHER, b"t", now=START + 30)
    assert send(server, b"t m\n", (CLIENT[0], CLIENT[1] + 1), START + 30) == []
    assert send(server, b"t m\n", now=START + 59.999) == [(OTHER, b"t m\n")]
    assert send(server, b"t m\n", now=START + 60) == []
    assert server.drops == {Drop.UNVOUCHED_PUBLISH: 2}
    server.handle_timeout(START + 60)
    assert len(server.publish_leases) == 0


def test_bare_publishes_do_not_prolong_a_publish_lease(server: Server) -> None:
    """§7.2: only vouching does."""
    publish_lease(server)
    send(server, b"t m\n%~ N\n", now=START + 30)
    assert server.publish_leases.next_expiry() == START + 60
    publish_lease(server, now=START + 40)
    assert server.publish_leases.next_expiry() == START + 100


# --- Any bytes ----------------------------------------------------------------------------------------

TOKENS = st.sampled_from(
    [*(b"%? N", b"%! ", b"%~ N", b"%= N ", b"%+ N 60 ", b"A" * 32, b" -", b"\n", b"\n" * 90, b"t", b" "),
     *(b"m", b"%41", b"%c3", b"\xff", b"\r", b"%@p.1 x", b"t m\n", b"t\n")]
)  # fmt: skip


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(st.one_of(TOKENS, st.binary(max_size=4)), max_size=30).map(b"".join), st.integers(1, 1400))
def test_any_bytes_get_at_most_one_answer_no_longer_than_themselves(data: bytes, segment_bytes: int) -> None:
    for server in (new_server(), open_server()):
        publish_lease(server)
        requests = list(datagrams(data, segment_bytes))
        answered = server.counts["answers_sent"]
        server.receive(Burst(data, segment_bytes, CLIENT), START)
        replies = [reply for _, reply in sent(server.flush(START)) if reply.startswith(b"%")]
        assert server.counts["answers_sent"] - answered == len(replies) <= len(requests)
        assert sum(map(len, replies)) <= len(data)
        assert all(len(reply) <= REPLY_BYTES_MAX for reply in replies)
        touched = len(server.leases) + server.counts["messages_received"] + len(replies)
        assert touched or server.drops
