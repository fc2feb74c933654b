"""client/session/session.py: what answers tell of the server besides leases, and where it is asked.

PROTOCOL §5.1, §5.8, §7.6.
"""

from itertools import pairwise

import pytest

from kcast.client.events import Outcome
from kcast.client.session.liveness import Change
from kcast.pubsub import wire
from kcast.pubsub.endpoint import datagrams
from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX
from tests.support.fake_server import V4, V6, FakeServer, Talk, topics_of

DRAIN = {"drain": "1"}
COOKIE = b"A" * 32


def leased(*topics: bytes, server: FakeServer | None = None) -> Talk:
    talk = Talk(server)
    talk.want(*topics)
    talk.mint()
    assert talk.is_leased(*topics)
    talk.notices()
    talk.asked.clear()
    return talk


def vouched() -> Talk:
    """A session that holds a publish lease."""
    talk = Talk()
    talk.session.publish(b"t first\n", 0, True)
    talk.exchange()
    assert talk.outcomes() == [(0, Outcome.RECEIPT)]
    talk.asked.clear()
    return talk


@pytest.fixture
def talk() -> Talk:
    return vouched()


# --- The audience (§5.7) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "audience"),
    [
        ({"audience": "0"}, 0),
        ({"audience": "9999999"}, 9_999_999),
        ({"bare": "0", "audience": "12"}, 12),
        ({}, None),
        *(({"audience": text}, None) for text in ("", "-1", "x", "1.5", "10000000", "+1")),
    ],
)
def test_receipt_may_tell_the_audience(talk: Talk, told: dict[str, str], audience: int | None) -> None:
    """What is no number of at most seven digits tells nothing."""
    talk.server.attributes = told
    for handle in (1, 2):
        talk.session.publish(b"t %d\n" % handle, handle, True)
    talk.exchange()
    (settled,) = talk.session.take_settled()
    assert [parcel.handle for parcel in settled.parcels] == [1, 2]
    assert settled[1:] == (Outcome.RECEIPT, audience, "")


# --- Draining (§7.6) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ask", "renew", "publish", "ping", "refusal"])
def test_every_answer_tells_of_draining(how: str) -> None:
    if how == "ask":
        talk = Talk()
        talk.want(b"t")
        (asked,) = talk.send()
        talk.reply(wire.Challenge(asked.nonce, COOKIE, 0, DRAIN))
    elif how == "renew":
        talk = leased(b"t")
        talk.server.attributes = DRAIN
        talk.run(20)
    else:
        talk = vouched()
        talk.session.publish(b"t m\n", 1, how != "ping")
        (asked,) = talk.send()
        replies: dict[str, wire.Reply] = {
            "publish": wire.Receipt(asked.nonce, 60, COOKIE, 0, DRAIN),
            "ping": wire.Pong(asked.nonce, 60, DRAIN),
            "refusal": wire.Refusal(asked.nonce, "rate", None, DRAIN),
        }
        talk.reply(replies[how])
    assert talk.session.is_draining
    assert talk.session.is_alive
    assert talk.changes() == [Change.DRAINING]


def test_draining_is_told_once_and_ends_with_an_answer_that_does_not_say_it() -> None:
    talk = leased(b"t")
    talk.server.attributes = DRAIN
    talk.run(100)
    assert talk.changes() == [Change.DRAINING]
    assert talk.is_leased(b"t"), "live leases go on being renewed"
    talk.server.attributes = {}
    talk.run(20)
    assert not talk.session.is_draining
    assert talk.changes() == [Change.TRUSTED], "who was sent away may come back"


def test_an_old_answer_does_not_end_draining(talk: Talk) -> None:
    for handle in (1, 2):
        talk.session.publish(b"t m\n", handle, True)
        talk.send()
    first, second = talk.asked
    talk.reply(wire.Receipt(second.nonce, 60, COOKIE, 0, DRAIN))
    talk.reply(wire.Receipt(first.nonce, 60, COOKIE, 0))
    assert talk.session.is_draining


def test_a_draining_server_is_asked_every_renewal_interval_whether_it_still_is(talk: Talk) -> None:
    """Clients that want no lease there ask too: otherwise a publisher would avoid the server for ever."""
    talk.server.attributes = DRAIN
    talk.session.publish(b"t m\n", 1, True)
    talk.run(100)
    steps = [after.at - before.at for before, after in pairwise(talk.asked)]
    assert steps == [20.0] * 5
    talk.server.attributes = {}
    talk.server.restart()
    talk.run(20)
    assert not talk.session.is_draining
    assert talk.changes() == [Change.DRAINING, Change.TRUSTED, Change.FORGOT]
    talk.asked.clear()
    talk.run(100)
    assert talk.asked == []


def test_a_draining_server_is_paid_nothing() -> None:
    talk = leased(b"t", server=FakeServer(bits=8))
    talk.want(b"new")
    talk.exchange()
    assert talk.session.is_minting
    talk.server.attributes, talk.server.refused = DRAIN, {b"new": "drain"}
    talk.run(100)
    assert talk.session.is_draining
    assert not talk.session.is_minting
    assert talk.is_leased(b"t")
    talk.server.attributes, talk.server.refused = {}, {}
    talk.run(20)
    talk.mint()
    assert talk.is_leased(b"t", b"new")


def test_nothing_is_sent_bare_to_a_server_that_may_have_stopped(talk: Talk) -> None:
    """It drains for more than a renewal interval: so bare is right within one of the last answer."""
    for wait_s, verb in ((19.9, "~"), (19.9, "~"), (20.1, "!")):
        talk.now += wait_s
        talk.session.publish(b"t m\n", 1, False)
        talk.exchange()
        assert talk.verbs(since=talk.now) == verb
    talk.server.attributes = DRAIN
    talk.now += 1
    for verb in ("~", "!"):
        talk.session.publish(b"t m\n", 1, False)
        talk.exchange()
        assert talk.verbs(since=talk.now) == verb
        talk.now += 1


def test_a_late_pong_does_not_end_a_publish_lease_that_was_renewed_since(talk: Talk) -> None:
    talk.session.publish(b"t m\n", 1, False)
    (ping,) = talk.send()
    talk.session.publish(b"t m\n", 2, True)
    talk.exchange()
    talk.reply(wire.Pong(ping.nonce, 0))
    talk.session.publish(b"t m\n", 3, False)
    assert [asked.verb for asked in talk.send()] == ["."]


# --- Size (§5.8) --------------------------------------------------------------------------------------


def test_a_server_takes_all_lines_as_many_a_datagram_as_it_says() -> None:
    """The vouch line counts. The same topics and lines go again at once, and nobody is told."""
    talk = Talk(FakeServer(lines_max=16))
    topics = topics_of(100)
    talk.want(*topics)
    for number in range(100):
        talk.session.publish(b"t %d\n" % number, number, True)
    talk.exchange()
    assert talk.is_leased(*topics)
    assert talk.server.published == [b"t %d" % number for number in range(100)]
    assert sorted(talk.outcomes()) == [(number, Outcome.RECEIPT) for number in range(100)]
    assert set(talk.changes()) == {Change.LEASES}
    talk.asked.clear()
    talk.run(25)
    assert {1 + len(asked.lines) for asked in talk.asked if asked.verb == "!"} <= set(range(1, 17))
    assert len(talk.asked) < 20


def test_no_answer_makes_it_less_than_one_line_beside_the_vouch_line(talk: Talk) -> None:
    for number in range(3):
        talk.session.publish(b"t %d\n" % number, number, True)
    seen = []
    for _ in range(10):
        for asked in talk.send():
            seen.append(len(asked.messages))
            talk.reply(wire.Refusal(asked.nonce, "size", None, {"lines": "0"}))
    assert seen == [3, 1, 1, 1]
    assert talk.outcomes() == [(number, Outcome.REFUSED) for number in range(3)]


@pytest.mark.parametrize("lines", ["64", "9999", "x", "-1", "1.5", "", "99999999999999999999"])
def test_a_number_that_helps_nobody_is_as_none(lines: str, talk: Talk) -> None:
    for number in range(63):
        talk.session.publish(b"t %d\n" % number, number, True)
    for expected in (63, 31):
        asked = talk.send()[0]
        assert len(asked.messages) == expected
        talk.reply(wire.Refusal(asked.nonce, "size", None, {"lines": lines}))


def test_refused_sizes_of_datagrams_under_way_shrink_them_once(talk: Talk) -> None:
    for number in range(300):
        talk.session.publish(b"t %d\n" % number, number, True)
    for asked in talk.send():
        talk.reply(wire.Refusal(asked.nonce, "size", None, {"lines": "33"}))
    assert [len(asked.messages) for asked in talk.send()] == [32] * 9 + [12]


def test_a_restarted_server_is_trusted_with_long_datagrams_again() -> None:
    talk = leased(*topics_of(60), server=FakeServer(lines_max=7))
    talk.server.restart()
    talk.server.lines_max = LINES_PER_DATAGRAM_MAX
    talk.run(45)
    assert max(len(asked.topics) for asked in talk.asked) == 60


def test_bare_lines_keep_to_it_too_and_every_ping_is_answered() -> None:
    """§5.2: a ping's datagram is as long as a pong, and be there two lines in it."""
    talk = Talk(FakeServer(lines_max=2))
    for number in range(3):
        talk.session.publish(b"t \n", number, True)
    talk.exchange()
    talk.asked.clear()
    for number in range(5):
        talk.session.publish(b"t \n", number, False)
    sending = talk.session.datagrams_to_send(talk.now)
    parts = [each for data, size in sending for each in datagrams(data, size)]
    assert [len(wire.split_lines(part)[0]) for part in parts] == [2, 2, 1, 1]
    assert parts[-1].startswith(b"%~ ")
    assert len(parts[-1]) >= len(wire.format_line(wire.Pong(b"n" * 11, 9_999_999, DRAIN)))


# --- Other refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["address", "prefix", "topics", "full", "drain", "unheard-of"])
def test_refused_leases_do_not_stand_and_are_asked_for_an_interval_later(reason: str) -> None:
    talk = leased(b"t", b"u")
    talk.server.refused = {b"t": reason}
    del talk.server.leases[b"t"]
    talk.run(20)
    assert talk.notices() == [(Change.LEASES, b"t", ""), (Change.REFUSED, b"t", reason)]
    assert talk.is_leased(b"u")
    refused_at = talk.asked[-1].at
    talk.server.refused = {}
    talk.run(20)
    assert talk.is_leased(b"t")
    assert max(asked.at for asked in talk.asked if b"t" in asked.topics) - refused_at >= 16


def test_rate_refuses_a_datagrams_lines_and_no_lease() -> None:
    talk = vouched()
    talk.session.publish(b"t m\n", 1, True)
    (asked,) = talk.send()
    talk.reply(wire.Refusal(asked.nonce, "rate", None))
    assert talk.outcomes() == [(1, Outcome.REFUSED)]
    talk = leased(b"t")
    talk.now += 20
    (asked,) = talk.send()
    talk.reply(wire.Refusal(asked.nonce, "rate", None))
    assert talk.session.is_leased(b"t")
    assert talk.notices() == [(Change.REFUSED, b"t", "rate")]


def test_a_paid_lease_that_is_refused_is_not_paid_again_while_the_stamp_is_good() -> None:
    talk = Talk(FakeServer(bits=6, refused={b"t": "full"}))
    talk.want(b"t")
    talk.mint()
    talk.run(110)
    stamps = [asked.stamp for asked in talk.asked if asked.stamp]
    assert len(stamps) >= 5
    assert len(set(stamps)) == 1
    assert not talk.session.is_minting
    talk.run(200, tries_per_s=10**6)
    assert len({asked.stamp for asked in talk.asked if asked.stamp}) in (3, 4), "one for each cookie's life"
    talk.server.refused = {}
    talk.run(20, tries_per_s=10**6)
    assert talk.is_leased(b"t")


# --- Heads (§5.1) -------------------------------------------------------------------------------------


# --- Addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "families", "first"),
    [
        ((V4, V6), (4, 6), V4),
        ((V6, V4), (4, 6), V6),
        ((V6, V4), (4,), V4),
        ((V4, V6), (6,), V6),
        ((V6,), (4,), None),
        ((V4,), (), None),
    ],
)
def test_the_first_address_of_a_family_that_we_have(
    addresses: tuple[tuple[str, int], ...], families: tuple[int, ...], first: tuple[str, int] | None
) -> None:
    talk = Talk(addresses=addresses, families=families)
    assert talk.session.address == first
    talk.want(b"t")
    talk.exchange()
    assert {asked.address for asked in talk.asked} == ({first} if first else set())


def test_a_server_that_is_lost_at_one_address_is_asked_at_the_other() -> None:
    talk = Talk(addresses=(V4, V6))
    talk.want(b"t", b"u")
    talk.exchange()
    talk.notices()
    talk.up = {V6}
    talk.run(19)
    talk.asked.clear()
    talk.run(4)
    lost, leases = [Change.SUSPECTED, Change.LOST], [Change.LEASES] * 2
    assert talk.changes() == [*lost, *leases, Change.RETURNED, *leases]
    assert talk.session.address == V6
    assert talk.is_leased(b"t", b"u")
    asked_there = [asked for asked in talk.asked if asked.address == V6]
    assert [asked.verb for asked in asked_there] == ["?", "!"], "a cookie is good at one address only"
    assert asked_there[0].at - talk.asked[0].at < 3
    talk.run(300)
    assert {asked.address for asked in talk.asked if asked.at > asked_there[0].at} == {V6}
    assert talk.notices() == []


def test_a_server_that_is_dead_is_asked_at_each_address_once_an_interval() -> None:
    talk = Talk(addresses=(V4, V6))
    talk.want(b"t")
    talk.exchange()
    talk.up = set()
    talk.run(100)
    talk.asked.clear()
    talk.run(600)
    assert [asked.address for asked in talk.asked[:4]] in ([V4, V6] * 2, [V6, V4] * 2)
    for address in (V4, V6):
        times = [asked.at for asked in talk.asked if asked.address == address]
        steps = [after - before for before, after in pairwise(times)]
        assert min(steps) >= 10
        assert max(steps) <= 20
    assert talk.changes() == [Change.LEASES, Change.SUSPECTED, Change.LOST, Change.LEASES]
    talk.up = {V4}
    talk.run(20)
    assert talk.changes() == [Change.RETURNED, Change.LEASES]


def test_what_was_under_way_to_the_old_address_is_settled_and_its_answers_are_ignored() -> None:
    talk = Talk(addresses=(V4, V6))
    talk.want(b"t")
    talk.exchange()
    talk.up = set()
    talk.run(20.5)
    old = talk.asked[-1]
    while not talk.session.is_lost:
        talk.session.publish(b"t m\n", 1, True)
        talk.run(0.2)
    outcomes = talk.outcomes()
    assert outcomes and set(outcomes) == {(1, Outcome.NO_ANSWER)}
    late = wire.Receipt(old.nonce, 60, COOKIE, 0)
    assert talk.session.handle_replies([late], talk.now) == 1
    assert talk.session.address == V6
