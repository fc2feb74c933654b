"""client/session/lease_requests.py: how leases are asked for, paid, and renewed, with a made-up server.

PROTOCOL §5.11, §7.
"""

from itertools import pairwise
from operator import sub

import pytest

from kcast.client.session.lease_requests import (
    AGAIN_S_MAX,
    PAID_REQUESTS_MAX,
    RENEWAL_INTERVAL_S_MIN,
    REQUESTS_MAX,
    renewal_interval_s,
)
from kcast.client.session.leases import Leases
from kcast.client.session.liveness import Change, Liveness
from kcast.client.session.stamps import topics_max
from kcast.pubsub import stamp, wire
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, WORK_BITS_MAX
from tests.client.session.test_session_lies import Liar
from tests.support.fake_server import V4, Asked, FakeServer, Talk, topics_of
from tests.support.forms import few_of


def asking(bits: int) -> Talk:
    """A session that has asked for a lease at this price."""
    talk = Talk(FakeServer(bits=bits))
    talk.want(b"t")
    talk.exchange()
    return talk


def leased(*topics: bytes, bits: int = 0, rtt_s: float = 0.0) -> Talk:
    """A session whose leases stand, at a price from now on."""
    talk = Talk(rtt_s=rtt_s)
    talk.want(*topics)
    talk.run(rtt_s * 3)
    assert talk.is_leased(*topics)
    talk.server.bits = bits
    talk.run(25)
    talk.notices()
    talk.asked.clear()
    return talk


# --- Several requests at a time -----------------------------------------------------------------------


def test_as_many_requests_are_under_way_as_may_be() -> None:
    talk = Talk(rtt_s=0.2)
    talk.want(*topics_of(1200))
    talk.exchange()
    assert talk.verbs() == "?"
    talk.run(0.2)
    assert talk.verbs() == "?" + "!" * REQUESTS_MAX
    talk.run(0.2)
    assert talk.verbs() == "?" + "!" * 2 * REQUESTS_MAX
    assert len({topic for asked in talk.asked for topic in asked.topics}) == 2 * REQUESTS_MAX * 63


@pytest.mark.parametrize(("count", "size", "until_s"), few_of([(5000, 10, 2.5), (2000, 255, 14.0)]))
def test_thousands_of_leases_stand_in_spite_of_a_long_round_trip(
    count: int, size: int, until_s: float
) -> None:
    """200 ms and a ttl of 60 s: with one request at a time, 2000 of these topics would take 100 s a round."""
    talk = Talk(rtt_s=0.2)
    topics = topics_of(count, size)
    talk.want(*topics)
    talk.run(until_s)
    assert talk.is_leased(*topics)
    talk.notices()
    talk.run(120)
    assert talk.notices() == [], "none has lapsed"
    assert talk.is_leased(*topics)


def test_more_leases_than_can_be_renewed_in_time_lapse_but_all_have_their_turn() -> None:
    talk = Talk(FakeServer(ttl_s=6), rtt_s=0.4)
    topics = topics_of(1000, 255)
    talk.want(*topics)
    ever: set[bytes] = set()
    for _ in range(60):
        talk.run(1)
        ever |= {topic for topic in topics if talk.session.is_leased(topic)}
    assert ever == set(topics)


def test_one_request_of_a_window_that_gets_lost_is_no_silence() -> None:
    """The others of its round were answered: it is asked again, and nobody is suspected."""
    talk = Talk()
    talk.want(*topics_of(130))
    (ask,) = talk.send()
    talk.reply(wire.Challenge(ask.nonce, b"A" * 32, 0))
    first, lost, last = talk.send()
    for asked in (first, last):
        talk.reply(wire.Receipt(asked.nonce, 60, b"A" * 32, 0))
    talk.now += 1.0
    (again,) = talk.send()
    assert again.topics == lost.topics
    assert talk.session.is_alive
    assert set(talk.changes()) == {Change.LEASES}


def test_a_window_without_any_answer_is_one_silence() -> None:
    """And in doubt the server is asked one thing at a time."""
    talk = leased(*topics_of(500))
    talk.server.is_up = False
    talk.run(25)
    assert talk.changes() == [Change.SUSPECTED, Change.LOST]
    assert len({asked.at for asked in talk.asked}) >= 3, "three silences, and not three datagrams"
    first = talk.asked[0].at
    later = [asked.at for asked in talk.asked if asked.at > first]
    assert len(set(later)) == len(later)


def test_a_burst_of_unreachable_is_one_silence_for_all_that_was_under_way() -> None:
    talk = Talk(rtt_s=0.2)
    talk.want(*topics_of(500))
    talk.run(0.2)
    assert talk.verbs().count("!") == REQUESTS_MAX
    for _ in range(REQUESTS_MAX):
        talk.session.handle_unreachable(V4, talk.now, is_closed=True)
    assert talk.session.liveness is Liveness.SUSPECTED
    assert not talk.session.is_lost
    talk.run(2)
    assert talk.session.is_alive


# --- Stamps -------------------------------------------------------------------------------------------


def test_a_new_lease_is_paid_before_it_is_asked_for() -> None:
    talk = asking(bits=8)
    assert talk.verbs() == "?"
    assert talk.session.is_minting
    while talk.session.is_minting:
        assert talk.session.work(10, talk.now) <= 10
        assert talk.verbs() == "?", "looking for it sends nothing"
    talk.exchange()
    assert talk.verbs() == "?!"
    paid = talk.asked[-1]
    assert paid.stamp is not None
    assert stamp.is_valid(paid.stamp, paid.cookie, [b"t"], 8)
    assert talk.is_leased(b"t")
    assert talk.changes() == [Change.LEASES]


def test_only_work_looks_for_stamps() -> None:
    talk = Talk(FakeServer(bits=1))
    talk.want(b"t")
    talk.run(100)
    assert talk.session.is_minting
    assert not talk.session.is_leased(b"t")
    assert talk.verbs() == "?"
    assert talk.session.next_timeout() is None


@pytest.mark.parametrize(
    ("bits", "count"), [(1, 63), (12, 63), (13, 32), (16, 4), (17, 2), (18, 1), (20, 1), (24, 1)]
)
def test_a_dear_datagram_has_few_topics(bits: int, count: int) -> None:
    """It costs max(bits, 18) at most, so that leases come up one after the other."""
    assert min(63, topics_max(bits)) == count
    assert stamp.price_bits(bits, topics_max(bits)) <= max(bits, 18)


def test_renewals_never_wait_for_a_stamp() -> None:
    """Nor do they carry one: three minutes of looking for one, and no lease lapses."""
    topics = topics_of(100)
    talk = leased(*topics, bits=WORK_BITS_MAX)
    talk.want(b"dear")
    talk.run(180, tries_per_s=1)
    assert talk.session.is_minting
    assert talk.is_leased(*topics)
    assert talk.notices() == []
    assert talk.session.is_alive
    assert all(asked.stamp is None and b"dear" not in asked.topics for asked in talk.asked)
    assert len(talk.asked) >= 2 * 180 // 20


def test_new_leases_and_renewals_share_a_datagram_only_where_there_is_no_price() -> None:
    for bits, together in ((0, True), (4, False)):
        talk = leased(*topics_of(5), bits=bits)
        due_at = talk.session.next_timeout()
        assert due_at is not None
        talk.now = due_at  # some are to be renewed just now
        talk.want(b"new")
        talk.mint()
        with_new = next(asked for asked in talk.asked if b"new" in asked.topics)
        assert (len(with_new.topics) > 1) == together
        assert (with_new.stamp is not None) == bool(bits)
        assert talk.is_leased(b"new", *topics_of(5))


def test_paid_requests_leave_room_for_renewals() -> None:
    talk = Talk(FakeServer(bits=1), rtt_s=1.0)
    talk.want(*topics_of(2000))
    talk.run(1.5, tries_per_s=10**6)
    assert sum(asked.stamp is not None for asked in talk.asked) == PAID_REQUESTS_MAX
    talk.run(60, tries_per_s=10**6)
    assert talk.is_leased(*topics_of(2000))


def test_a_stamp_whose_datagram_got_lost_pays_for_the_next() -> None:
    talk = asking(bits=10)
    while talk.session.is_minting:
        talk.session.work(1000, talk.now)
    talk.server.is_up = False
    talk.exchange()
    lost = talk.asked[-1]
    talk.server.is_up = True
    talk.run(2)
    assert talk.is_leased(b"t")
    assert talk.asked[-1].stamp == lost.stamp
    assert talk.asked[-1].nonce != lost.nonce
    assert not talk.session.is_minting


def test_a_server_that_is_silent_about_stamps_alone_is_sent_few_of_them() -> None:
    """It answers renewals all the time, so it does not count as silent (seed 8799)."""

    class Choosy(FakeServer):
        def answer(self, asked: Asked, now: float) -> list[wire.Reply]:
            return [] if asked.stamp is not None else super().answer(asked, now)

    talk = Talk(Choosy(ttl_s=3))
    talk.want(b"t")
    talk.exchange()
    talk.server.bits = 4
    talk.run(2.0)
    talk.want(*topics_of(40))
    talk.run(10.0, tries_per_s=10**6)
    talk.asked.clear()
    talk.run(10.0, tries_per_s=10**6)
    sent = [asked for asked in talk.asked if asked.stamp is not None]
    assert 5 <= len(sent) <= 10.0 / (0.5 + AGAIN_S_MAX) + 1
    assert talk.is_leased(b"t")


def test_a_stamp_outlives_a_silence_and_nothing_is_paid_twice() -> None:
    talk = leased(b"t", bits=10)
    talk.want(b"new")
    talk.exchange()
    while talk.session.is_minting:
        talk.session.work(1000, talk.now)
    talk.server.is_up = False
    talk.run(20)
    assert talk.session.is_lost
    talk.server.is_up = True
    talk.run(20)
    assert talk.is_leased(b"t", b"new")
    assert not talk.session.is_minting


def test_a_late_receipt_of_a_former_life_brings_neither_lease_nor_cookie() -> None:
    """Two requests leave together; one is answered before the server restarts, and its answer comes last."""
    talk = Talk()
    talk.want(*topics_of(126))
    (ask,) = talk.send()
    talk.reply(wire.Challenge(ask.nonce, b"A" * 32, 0))
    first, second = talk.send()
    talk.reply(wire.Challenge(second.nonce, b"B" * 32, 0))
    talk.reply(wire.Receipt(first.nonce, 60, b"C" * 32, 0))
    assert talk.changes() == [Change.FORGOT]
    assert not any(map(talk.session.is_leased, first.topics))
    (again,) = talk.send()
    assert again.cookie == b"B" * 32
    talk.reply(wire.Receipt(again.nonce, 60, b"D" * 32, 0))
    (rest,) = talk.send()
    assert rest.cookie == b"D" * 32
    assert {*again.topics, *rest.topics} == set(topics_of(126))


@pytest.mark.long
def test_a_cookie_that_grows_too_old_meanwhile_is_replaced_by_a_young_one() -> None:
    """§6.2: and the stamp is looked for anew, under it."""
    talk = Talk(FakeServer(bits=20))
    talk.want(b"t")
    talk.run(121, tries_per_s=1)
    assert talk.session.is_minting
    assert talk.verbs() == "??"
    talk.server.bits = 0
    talk.mint()
    assert talk.asked[-1].cookie != b"%032d" % 0
    talk.server.bits = 12
    talk.server.restart()
    talk.run(30)
    talk.mint()
    assert talk.is_leased(b"t")


def test_a_restart_makes_what_was_looked_for_worthless() -> None:
    """The cookie was of its former life: all are paid anew."""
    topics = topics_of(3)
    talk = Talk(FakeServer(bits=6))
    talk.want(*topics)
    talk.mint()
    talk.want(b"new")
    talk.exchange()
    assert talk.session.is_minting
    talk.server.restart()
    talk.server.bits = 7
    talk.run(25)
    assert Change.FORGOT in talk.changes()
    talk.mint()
    assert talk.is_leased(b"new", *topics)
    assert not any(map(talk.server.refused.get, topics))
    late = [asked for asked in talk.asked if asked.stamp and asked.at > 1001]
    assert all(stamp.is_valid(each.stamp or b"", each.cookie, each.topics, 7) for each in late)


def test_what_is_wanted_no_more_is_not_paid() -> None:
    talk = Talk(FakeServer(bits=16))
    topics = topics_of(4)
    talk.want(*topics)
    talk.exchange()
    for topic in topics[:3]:
        talk.session.unwant(topic)
    talk.exchange()
    assert talk.session.is_minting, "one of its datagram is wanted still"
    talk.session.unwant(topics[3])
    assert talk.session.work(1000, talk.now) == 0
    assert not talk.session.is_minting


@pytest.mark.parametrize("to_bits", [0, 3, 12])
def test_a_price_that_changes_meanwhile(to_bits: int) -> None:
    """Receipts of renewals tell it. Where it falls, the search begins anew, or there is nothing to look for.
    Where it rises, the search goes on: the older cookie was given at the lower price."""
    talk = leased(b"t", bits=8)
    talk.want(b"new")
    talk.exchange()
    assert talk.session.is_minting
    shown = talk.session._cookies.serving(100.0, talk.now)
    talk.server.bits = to_bits
    talk.run(25)
    assert talk.session.is_minting == bool(to_bits)
    talk.mint()
    assert talk.is_leased(b"t", b"new")
    assert not [change for change in talk.changes() if change is not Change.LEASES]
    paid = [asked for asked in talk.asked if asked.stamp]
    assert len(paid) == bool(to_bits)
    assert shown is not None
    assert all((asked.cookie == shown.text) == (to_bits > 8) for asked in paid)


# --- Renewals with a price (§7.9) ---------------------------------------------------------------------


def keeping(count: int, keep_bits: int, rtt_s: float = 0.0, **options: int) -> Talk:
    """A session whose leases stand, when the server begins to ask work for keeping them."""
    talk = leased(*topics_of(count), rtt_s=rtt_s)
    talk.server.keep_bits = keep_bits
    for name, value in options.items():
        setattr(talk.server, name, value)
    return talk


@pytest.mark.parametrize("count", [1, 8])
def test_the_first_eight_are_kept_for_nothing(count: int) -> None:
    talk = keeping(count, 20)
    talk.run(300)
    assert talk.is_leased(*topics_of(count))
    assert talk.notices() == []
    assert not talk.session.is_minting
    assert all(asked.stamp is None for asked in talk.asked)


@pytest.mark.parametrize("count", [9, 70, 200])
@pytest.mark.parametrize("rtt_s", [0.0, 0.1])
def test_more_are_kept_with_stamps_that_are_found_before_they_are_due(count: int, rtt_s: float) -> None:
    """The first renewals tell the price; those that leave with them may be refused once, and still live."""
    topics = topics_of(count)
    talk = keeping(count, 4, rtt_s)
    talk.run(300, tries_per_s=10**5)
    assert talk.is_leased(*topics)
    assert Change.LEASES not in talk.changes(), "none has lapsed"
    stamped = [asked for asked in talk.asked if asked.stamp]
    assert stamped
    later = [asked for asked in talk.asked if asked.at > talk.now - 200]
    assert {topic for asked in later if not asked.stamp for topic in asked.topics} == set(topics[:8])
    renewals = sum(topics[8] in asked.topics for asked in later)
    assert 9 <= renewals <= 12, "none is renewed before its time"


def test_nobody_who_does_not_work_loses_more_than_what_is_above_the_first_eight() -> None:
    topics = topics_of(20)
    talk = keeping(20, 6)
    talk.run(200)
    assert talk.is_leased(*topics[:8])
    assert not any(talk.session.is_leased(topic) for topic in topics[8:])
    assert talk.session.is_alive
    talk.server.keep_bits = 0
    talk.run(60)
    assert talk.is_leased(*topics)


# --- Refused for work ---------------------------------------------------------------------------------


def test_refused_for_work_is_paid_at_once() -> None:
    """The price was not known, or a lease that we believed in is gone; nobody is bothered with it."""
    talk = leased(b"t", b"u")
    talk.server.bits = 9
    talk.run(25)
    del talk.server.leases[b"t"]
    talk.run(25)
    assert talk.session.is_minting
    assert not talk.session.is_leased(b"t")
    assert talk.session.is_leased(b"u")
    talk.mint()
    assert talk.is_leased(b"t", b"u")
    assert talk.notices() == [(Change.LEASES, b"t", ""), (Change.LEASES, b"t", "")]


def test_a_price_that_rises_while_it_is_paid_is_paid_again_but_not_run_after() -> None:
    """Once; then there is time for other things, each time more. What is bought ends that."""
    talk = Talk(FakeServer(bits=4))
    talk.server.refused[b"t"] = "work"
    talk.want(b"t")
    talk.run(900, tries_per_s=10**6)
    payments = [asked.at for asked in talk.asked if asked.stamp]
    steps = list(map(sub, payments[1:], payments))
    assert steps == pytest.approx([0, 5, 10, 20, 40, 80, 100, 100, 100, 100, 100, 100, 100], abs=0.1)
    assert set(talk.notices()) == {(Change.REFUSED, b"t", "work")}
    del talk.server.refused[b"t"]
    talk.run(200, tries_per_s=10**6)
    assert talk.is_leased(b"t")
    talk.want(b"u")
    talk.mint()
    assert talk.is_leased(b"u")


def test_work_that_is_refused_at_no_price_is_not_asked_for_in_a_loop() -> None:
    talk = Talk()
    talk.server.refused[b"t"] = "work"
    talk.want(b"t")
    talk.run(59)
    asked = [each.at for each in talk.asked if each.topics]
    assert len(asked) <= 60 / 5 + 1
    assert (Change.REFUSED, b"t", "work") in talk.notices()


def test_a_late_refusal_ends_no_lease_that_was_granted_since() -> None:
    talk = leased(b"t")
    at = talk.session.next_timeout()
    assert at is not None
    talk.now = at
    (first,) = talk.send()
    talk.now += 1.0
    talk.exchange()
    assert talk.is_leased(b"t")
    talk.reply(wire.Refusal(first.nonce, "full", 1))
    assert talk.is_leased(b"t")
    assert Change.LEASES not in talk.changes()


# --- A price above all reason -------------------------------------------------------------------------


def test_absurd_price_makes_a_server_lost_once_until_it_is_sane() -> None:
    talk = Talk(FakeServer(bits=WORK_BITS_MAX + 1))
    talk.want(b"t")
    talk.run(300)
    assert talk.notices() == [(Change.LOST, b"", "price")]
    assert talk.session.is_lost
    assert not talk.session.is_alive
    assert not talk.session.is_minting
    steps = [after.at - before.at for before, after in pairwise(talk.asked)]
    assert steps[0] == 5.0, "once a renewal interval: of 5 s, before its ttl is known"
    assert set(steps[1:]) == {20.0}
    talk.server.bits = 5
    talk.run(20)
    assert talk.notices() == [(Change.RETURNED, b"", "")]
    assert not talk.session.is_warm(talk.now)
    talk.mint()
    assert talk.is_leased(b"t")


def test_a_silent_server_does_not_make_us_work() -> None:
    talk = asking(bits=22)
    assert talk.session.is_minting
    talk.server.is_up = False
    talk.session.publish(b"t m\n", 1, True)
    talk.run(2)
    assert not talk.session.is_alive
    assert not talk.session.is_minting
    assert talk.session.work(1000, talk.now) == 0
    talk.server.is_up = True
    talk.run(10)
    assert talk.session.is_minting


DATAGRAMS_PER_S = 6


def leases_of(count: int, size: int = 3) -> Leases:
    leases = Leases()
    for topic in topics_of(count, size):
        leases.want(topic, 0.0)
    return leases


@pytest.mark.parametrize("ttl_s", few_of([1, 0, 2, 5], 2))
@pytest.mark.parametrize(("count", "size"), few_of([(1, 3), (60, 200), (63, 3), (150, 3), (500, 3)], 2))
def test_short_ttl_brings_few_datagrams(ttl_s: int, count: int, size: int) -> None:
    liar = Liar(lie=lambda liar, _, asked: liar.receipt(asked, ttl_s=ttl_s))
    talk = Talk(liar, rtt_s=0.001)
    topics = topics_of(count, size)
    talk.want(*topics)
    talk.run(5)
    talk.asked.clear()
    talk.run(60)
    assert len(talk.asked) <= 60 * DATAGRAMS_PER_S
    names_bytes = 60 * DATAGRAMS_PER_S * DATAGRAM_BYTES_MAX
    assert sum(len(topic) + 1 for asked in talk.asked for topic in asked.topics) <= names_bytes


@pytest.mark.parametrize("count", [1, 63, 150])
def test_some_topics_are_kept_at_a_server_whose_ttl_is_a_second(count: int) -> None:
    talk = Talk(FakeServer(ttl_s=1), rtt_s=0.01)
    topics = topics_of(count)
    talk.want(*topics)
    talk.run(5)
    for _ in range(200):
        talk.run(0.1)
        assert talk.is_leased(*topics)


def test_many_leases_are_renewed_no_more_often_than_every_few_seconds() -> None:
    assert renewal_interval_s(1.0, 3, leases_of(10**4)) == RENEWAL_INTERVAL_S_MIN
    assert renewal_interval_s(60.0, 3, leases_of(10**4)) == 20.0
    assert renewal_interval_s(1.0, 3, leases_of(1)) == pytest.approx(1 / 3)


def test_sizes_of_topics_that_are_wanted_no_more_do_not_count() -> None:
    leases = leases_of(60, 200)
    assert renewal_interval_s(1.0, 3, leases) > RENEWAL_INTERVAL_S_MIN - 0.1
    for topic in topics_of(60, 200):
        leases.unwant(topic)
    assert renewal_interval_s(1.0, 3, leases) == pytest.approx(1 / 3)
