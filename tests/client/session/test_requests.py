"""client/session/requests.py: what awaits an answer, and what silence means. PROTOCOL §5.10, §7.4."""

from base64 import urlsafe_b64encode
from math import inf
from random import Random

import pytest

from kcast.client.session.requests import (
    LATE_MAX,
    TIMEOUT_S_FIRST,
    TIMEOUT_S_MAX,
    TIMEOUT_S_MIN,
    Backoff,
    Cookie,
    Kind,
    Parcel,
    Request,
    Requests,
    RoundTripTime,
)
from kcast.pubsub import wire

COOKIE = b"A" * 32
NOW = 1000.0


def replies_to(nonce: bytes) -> dict[str, wire.Reply]:
    return {
        "=": wire.Challenge(nonce, COOKIE, 0),
        "+": wire.Receipt(nonce, 60, COOKIE, 0),
        "-": wire.Refusal(nonce, "full", None),
        ":": wire.Pong(nonce, 5),
    }


def asked(requests: Requests, kind: Kind = Kind.LEASES, now: float = NOW) -> Request:
    requests.begin_round()
    return requests.open(kind, now)


@pytest.fixture
def requests() -> Requests:
    return Requests(Random(1))


@pytest.mark.parametrize(
    ("kind", "answers"),
    [(Kind.ASK, "="), (Kind.LEASES, "=+-"), (Kind.PAID, "=+-"), (Kind.PUBLISH, "=+-"), (Kind.PING, ":")],
)
def test_which_reply_answers_which_request(kind: Kind, answers: str) -> None:
    for verb in "=+-:":
        requests = Requests(Random(1))
        request = asked(requests, kind)
        reply = replies_to(request.nonce)[verb]
        assert (requests.take(reply) is request) == (verb in answers)
        assert requests.take(reply) is None, "once"


def test_nonces_are_of_64_bits_and_none_is_used_twice(requests: Requests) -> None:
    nonces = {asked(requests).nonce for _ in range(1000)}
    assert len(nonces) == 1000
    assert {len(nonce) for nonce in nonces} == {11}
    assert requests.take(wire.Pong(b"other", 1)) is None


def test_replies_with_other_nonces_answer_nothing(requests: Requests) -> None:
    """Whoever does not see a request must guess 64 bits: none of 40,000 tries is taken, nor what is alike."""
    chance = Random(2)
    waiting = [asked(requests, kind) for kind in Kind]
    overdue = asked(requests, now=NOW - 60)
    assert requests.give_up(NOW - 1) == [overdue]
    nonce = waiting[0].nonce
    alike = [b"", nonce[:-1], nonce + b"A", nonce[::-1], nonce.swapcase(), nonce[:10] + b"!", b"A" * 11]
    guesses = [urlsafe_b64encode(chance.randbytes(8)).rstrip(b"=") for _ in range(10_000)]
    for guess in (*alike, *guesses):
        for reply in replies_to(guess).values():
            assert requests.take(reply) is None
    assert len(requests) == len(waiting)


def test_how_many_are_under_way(requests: Requests) -> None:
    first, *_ = [asked(requests, kind) for kind in (Kind.ASK, Kind.PAID, Kind.PAID, Kind.PING)]
    assert (len(requests), requests.count(Kind.PAID), requests.count(Kind.ASK, Kind.PAID)) == (4, 2, 3)
    requests.take(replies_to(first.nonce)["="])
    assert (len(requests), requests.count(Kind.ASK, Kind.PAID)) == (3, 2)
    assert len(requests.give_up()) == 3
    assert (len(requests), requests.count(*Kind)) == (0, 0)


def test_overdue_ones_are_given_up_and_their_late_answers_still_teach(requests: Requests) -> None:
    early, late = asked(requests), asked(requests, now=NOW + 0.5)
    parcel = Parcel(b"t m\n", 1, True)
    early.parcels = [parcel]
    assert requests.next_deadline() == NOW + TIMEOUT_S_FIRST
    assert requests.give_up(NOW + 0.999) == []
    assert requests.give_up(NOW + TIMEOUT_S_FIRST) == [early]
    assert early.parcels == [parcel]
    assert requests.next_deadline() == late.deadline
    answered = requests.take(replies_to(early.nonce)["+"])
    assert answered is not None
    assert (answered.nonce, list(answered.parcels)) == (early.nonce, []), "its lines' fate is settled"
    assert requests.heard(answered, NOW + 1.5)
    assert requests.timeout_s > TIMEOUT_S_FIRST
    requests.take(replies_to(late.nonce)["+"])
    assert requests.next_deadline() == inf


def test_memory_of_late_ones_is_bounded(requests: Requests) -> None:
    everything = [asked(requests, now=NOW + number) for number in range(LATE_MAX + 1)]
    requests.give_up()
    assert requests.take(replies_to(everything[0].nonce)["+"]) is None
    assert requests.take(replies_to(everything[1].nonce)["+"]) is not None


def test_silence_is_of_a_round_and_not_of_a_datagram(requests: Requests) -> None:
    requests.begin_round()
    answered, lost = requests.open(Kind.LEASES, NOW), requests.open(Kind.LEASES, NOW)
    assert requests.is_silence(lost)
    assert requests.heard(answered, NOW)
    assert not requests.is_silence(lost), "another of its round was answered"
    first, second = asked(requests), asked(requests)
    assert requests.is_silence(first)
    requests.count_silence()
    assert not requests.is_silence(second), "it left before the silence was counted, and belongs to it"
    assert requests.is_silence(asked(requests))


def test_only_the_newest_answer_is_news(requests: Requests) -> None:
    first, second = asked(requests), asked(requests)
    assert requests.heard(second, NOW)
    assert not requests.heard(first, NOW)


def test_at_another_address_all_is_new(requests: Requests) -> None:
    requests.heard(asked(requests), NOW + 0.01)
    assert requests.timeout_s == TIMEOUT_S_MIN
    under_way = asked(requests)
    assert under_way in requests.move()
    assert requests.timeout_s == TIMEOUT_S_FIRST
    assert requests.take(replies_to(under_way.nonce)["+"]) is None
    assert requests.is_silence(asked(requests))


def test_each_further_failure_is_waited_for_twice_as_long_up_to_a_bound() -> None:
    backoff = Backoff()
    assert (backoff.not_before < 0, backoff.has_failed) == (True, False)
    waits = []
    for _ in range(7):
        backoff.failed(NOW, NOW, 0.5, 5.0)
        waits.append(backoff.not_before - NOW)
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.failed(NOW, NOW - 3.0, 0.5, 5.0)
    assert backoff.not_before == NOW + 2.0
    backoff.failed(NOW, NOW - 6.0, 0.5, 5.0)
    assert backoff.not_before == NOW, "the wait is over already"
    assert backoff.has_failed
    backoff.reset()
    assert (backoff.not_before < 0, backoff.has_failed) == (True, False)
    backoff.failed(NOW, NOW, 0.5, 5.0)
    assert backoff.not_before == NOW


@pytest.mark.parametrize(("age_s", "serves"), [(0.0, True), (119.9, True), (120.0, False)])
def test_a_cookie_serves_until_shortly_before_its_end(age_s: float, serves: bool) -> None:
    assert Cookie(COOKIE, NOW, 0).serves(128.0, NOW + age_s) is serves


def after(*rtts_s: float) -> float:
    round_trip = RoundTripTime()
    for rtt_s in rtts_s:
        round_trip.observe(rtt_s)
    return round_trip.timeout_s


def test_before_the_first_answer() -> None:
    assert after() == TIMEOUT_S_FIRST


def test_the_first_answer_counts_for_itself_and_half_of_it_for_variation() -> None:
    """RFC 6298 (2.2): SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR."""
    assert after(0.4) == pytest.approx(0.4 + 4 * 0.2)


def test_later_answers_are_smoothed() -> None:
    """RFC 6298 (2.3), alpha 1/8 and beta 1/4, the variation first."""
    variation = 0.2 + (abs(0.8 - 0.4) - 0.2) / 4
    assert after(0.4, 0.8) == pytest.approx(0.45 + 4 * variation)


def test_bounds() -> None:
    assert after(*[0.001] * 50) == TIMEOUT_S_MIN
    assert after(2.0) == TIMEOUT_S_MAX


def test_a_steady_slow_path_is_awaited_a_little_longer_than_it_takes() -> None:
    assert 1.0 < after(*[1.0] * 60) < 1.01
