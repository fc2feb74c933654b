"""client/session/credit.py: copies go on for as long as they are taken, with few renewals. PROTOCOL §7.7."""

from itertools import pairwise
from typing import Any

import pytest

from kcast.client.session.credit import CREDIT_BYTES_SMALL, PAUSE_S_MAX, PAUSE_S_MIN, Credit
from kcast.client.session.requests import Kind, Request
from kcast.pubsub import wire
from tests.support.credit_server import START, CreditLine, CreditServer
from tests.support.fake_server import Talk
from tests.support.forms import few_of

SIZE_BYTES = 1200


def stream(line: CreditLine, bytes_per_s: int, for_s: float, size_bytes: int = SIZE_BYTES) -> None:
    """Publishes at a steady rate."""
    start = line.now
    step_s = size_bytes / bytes_per_s
    for number in range(round(for_s / step_s)):
        line.run_until(start + number * step_s)
        line.publish(size_bytes)
    line.run_until(start + for_s)


def leased(rtt_s: float, **options: Any) -> CreditLine:
    line = CreditLine(rtt_s, CreditServer(**options))
    line.run_until(START + 1)
    assert line.client.lease_counts(b"t") == (1, 1)
    return line


@pytest.mark.parametrize("rtt_s", few_of([0.05, 0.0002]))
def test_ten_megabytes_a_second_lose_nothing_for_want_of_credit_after_2_s(rtt_s: float) -> None:
    line = leased(rtt_s)
    start = line.now
    stream(line, 10_000_000, 3)
    late = [at for at in line.server.dropped if at >= start + 2]
    assert late == []
    assert len(line.server.sent) > 0.5 * 3 * 10_000_000 / SIZE_BYTES
    assert line.client.counts["deliveries"] > 0.99 * len(line.server.sent) - 1000 * rtt_s * 10
    assert len(line.server.asked) < 150, "renewals become fewer as credit grows"


def test_thousand_short_lines_at_once_a_second_after_leasing_are_all_forwarded() -> None:
    line = leased(0.05)
    for _ in range(1000):
        line.publish(60)
    line.run_until(line.now + 1)
    assert line.server.dropped == []
    assert line.client.counts["deliveries"] == 1000


@pytest.mark.parametrize("bytes_per_s", few_of([53_000, 10_000, 300_000]))
def test_steady_traffic_loses_nothing_for_want_of_credit_over_many_ttls(bytes_per_s: int) -> None:
    """What the client was told holds until it renews, though what it has shown grows old meanwhile."""
    line = leased(0.02, ttl_s=8)
    stream(line, bytes_per_s, 60, 500)
    assert line.server.dropped == []
    assert len(line.server.asked) < 150


@pytest.mark.parametrize("bytes_per_s", [0, 100, 1000])
def test_whoever_receives_little_renews_no_more_often_than_without_credit(bytes_per_s: int) -> None:
    """At 1000 B/s half of 64 KiB lasts longer than a renewal interval."""
    line, without = leased(0.01), leased(0.01, told="")
    for each in (line, without):
        if bytes_per_s:
            stream(each, bytes_per_s, 600, 500)
        each.run_until(START + 601)
    assert len(line.server.asked) == len(without.server.asked)
    assert line.server.dropped == []


@pytest.mark.parametrize("first", few_of(range(3, 9), 2))
def test_renewal_that_is_lost_in_the_middle_only_delays(first: int) -> None:
    line = leased(0.05)
    line.loses = lambda number: number == first
    start = line.now
    stream(line, 2_000_000, 4)
    assert [at for at in line.server.dropped if at >= start + 3.5] == []


@pytest.mark.parametrize("told", few_of([CREDIT_BYTES_SMALL - 1, 0, 1]))
def test_server_that_never_gives_enough_is_asked_ever_less(told: int) -> None:
    line = leased(0.001, told=str(told))
    before = len(line.server.asked)
    stream(line, 6_000, 60, 60)
    times = [at for at, _ in line.server.asked[before:]]
    assert len(times) < 60 / PAUSE_S_MAX + 10
    assert max(after - before for before, after in pairwise(times[10:])) == pytest.approx(1.0, abs=0.2)
    for at in times:
        assert sum(at <= each < at + 1 for each in times) <= 1 / PAUSE_S_MIN


# --- By itself ----------------------------------------------------------------------------------------


def request() -> Request:
    return Request(Kind.LEASES, b"n", 1, 0.0, 1.0)


def test_one_is_under_way_at_a_time() -> None:
    credit, asked = Credit(), request()
    credit.told(100_000, 0.0, 20.0, 0.0)
    credit.took(50_000, 1.0)
    credit.asked(asked)
    assert not credit.took(50_000, 1.0)
    assert credit.due_at is None
    credit.closed(request(), 1.1)
    assert credit.due_at is None, "another one"
    credit.told(100_000, 1.2, 20.0, 1.2)
    credit.closed(asked, 1.2)
    assert credit.due_at is None
    assert credit.took(50_000, 1.3)


def test_pauses_grow_from_the_second_that_gains_nothing() -> None:
    credit, now, pauses = Credit(), 0.0, []
    credit.told(0, now, 20.0, now)
    credit.took(1, now)
    for _ in range(8):
        asked = request()
        credit.asked(asked)
        credit.told(0, now, 20.0, now)
        credit.closed(asked, now)
        assert credit.due_at is not None
        pauses.append(credit.due_at - now)
        now = credit.due_at
    assert pauses == pytest.approx([0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    credit.told(CREDIT_BYTES_SMALL, now, 20.0, now)
    assert credit.due_at is None
    credit.took(CREDIT_BYTES_SMALL, now)
    assert credit.is_due(now), "it has gained"
    credit.told(0, now + 20, 20.0, now + 20)
    assert credit.due_at is None, "no copy has come within the interval"


def test_late_receipt_does_not_hide_that_little_is_left() -> None:
    talk = Talk()
    talk.want(b"t", b"u")
    talk.exchange()
    credit = talk.session.credit
    credit.told(CREDIT_BYTES_SMALL, talk.now, 20.0, talk.now)
    credit.took(CREDIT_BYTES_SMALL, talk.now)
    (first,) = talk.send()
    talk.now += 10.0
    (second,) = talk.send()
    for asked, told in ((second, 100), (first, 10**6)):
        talk.reply(wire.Receipt(asked.nonce, 60, b"%032d" % told, 0, {"credit": str(told)}))
    assert credit.took(50, talk.now)


def test_receipt_tells_of_credit_though_a_later_request_was_answered_first() -> None:
    """Else the client would take the credit for boundless until its next usual renewal (seed 450)."""
    talk = Talk()
    talk.want(b"t")
    (ask,) = talk.send()
    talk.reply(wire.Challenge(ask.nonce, b"%032d" % 1, 0, {}))
    (lease,) = talk.send()
    talk.now += 0.1
    talk.session.publish(b"t m\n", 1, True)
    (publish,) = talk.send()
    talk.reply(wire.Receipt(publish.nonce, 60, b"%032d" % 3, 0, {}))
    talk.reply(wire.Receipt(lease.nonce, 60, b"%032d" % 2, 0, {"credit": "65536"}))
    assert not talk.session.credit.took(30_000, talk.now)
    assert talk.session.credit.took(3_000, talk.now)
