"""client/session/session.py against a real server core, with a clock moved by hand. PROTOCOL §5 to §7."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from kcast.client.events import Outcome
from kcast.client.session.liveness import Change, Liveness
from kcast.client.session.outbox import WAIT_S
from kcast.client.session.requests import LINE_BYTES_MAX, TIMEOUT_S_FIRST, TIMEOUT_S_MAX, TIMEOUT_S_MIN
from kcast.client.session.session import QUEUE_MAX
from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.limits import REQUEST_BYTES_MIN, Limits
from kcast.pubsub.server import Server
from tests.support.server_core import flushed, sent
from tests.support.session_and_server import CLIENT, SERVER, START, SessionAndServer, vouched_at_last


def leased(*topics: bytes, **options: Any) -> SessionAndServer:
    """A session whose leases stand."""
    line = SessionAndServer(**options)
    for topic in topics:
        line.session.want(topic, line.now)
    line.exchange()
    assert all(line.session.is_leased(topic) for topic in topics)
    line.changes()
    return line


@pytest.fixture
def line() -> SessionAndServer:
    return vouched_at_last()


# --- Handshake and leases -----------------------------------------------------------------------------


def test_handshake() -> None:
    """§6: `%?`, `%=`, `%!`, `%+`."""
    line = SessionAndServer()
    line.session.want(b"t", line.now)
    line.exchange()
    assert line.verbs() == "?!"
    assert all(len(data) == REQUEST_BYTES_MIN for _, data in line.out)
    assert wire.split_lines(line.out[1][1])[0][1:] == [b"t"]
    assert line.changes() == [(Change.LEASES, b"t")]
    assert list(line.server.leases.subscribers(b"t", line.now)) == [CLIENT]
    assert line.server.drops == {}


@pytest.mark.parametrize(("ttl_s", "interval_s"), [(60, 20), (75, 25), (600, 25), (6, 2), (1, 1 / 3)])
def test_renewals_come_every_third_of_a_ttl_or_25_s_jittered_by_a_tenth(
    ttl_s: int, interval_s: float
) -> None:
    """§7.3"""
    line = leased(b"t", ttl_s=ttl_s)
    assert line.session.renewal_interval_s == interval_s
    line.run(200 * interval_s)
    times = line.times(b"%!")
    steps = [after - before for before, after in pairwise(times)]
    assert len(steps) >= 199
    assert interval_s * 0.9 - 1e-6 <= min(steps) < interval_s * 0.91
    assert interval_s * 0.99 < max(steps) <= interval_s + 1e-6
    assert line.server.counts["leases_expired"] == 0
    assert line.changes() == []


def test_renewals_bring_their_own_cookies() -> None:
    """§6.2: while leases are renewed, a cookie is asked for once. Nonces are fresh."""
    line = leased(b"t")
    line.run(3 * 3600)
    assert len({data.split()[1] for _, data in line.out}) == len(line.out) > 500
    assert line.verbs().count("?") == 1
    assert line.server.drops == {}


@pytest.mark.parametrize(("age_s", "verbs"), [(119.9, "!"), (120.0, "?!"), (3000.0, "?!")])
def test_cookie_is_not_shown_for_leases_when_it_may_be_too_old(age_s: float, verbs: str) -> None:
    """§6.2: 128 s, less a margin."""
    line = leased(b"t")
    line.session.unwant(b"t")
    at = line.times(b"%!")[-1]
    line.now = at + age_s
    line.session.want(b"u", line.now)
    line.exchange()
    assert line.verbs(since=line.now) == verbs
    assert line.server.drops == {}


@pytest.mark.parametrize(("age_s", "verbs"), [(121.0, "!"), (3591.9, "!"), (3592.0, "?!")])
def test_cookie_serves_an_hour_to_publish(age_s: float, verbs: str, line: SessionAndServer) -> None:
    """§6.2"""
    line.now += age_s
    line.session.publish(b"t m\n", 1, True)
    line.exchange()
    assert line.verbs() == verbs
    assert line.outcomes() == [(1, Outcome.RECEIPT)]


def test_cookies_age_counts_from_the_question() -> None:
    """The server issued it no earlier; so a slow answer makes it older, never younger than it is."""
    line = leased(b"t", rtt_s=0.4)
    line.session.unwant(b"t")
    asked_at = line.times(b"%!")[-1]
    line.now = asked_at + 120.0
    line.session.want(b"u", line.now)
    line.exchange()
    assert line.verbs(since=asked_at + 120.0) == "?!"


@pytest.mark.parametrize(("count", "size"), [(200, 100), (200, 5), (64, 5), (63, 5), (20, 255)])
def test_many_topics_go_over_several_datagrams(count: int, size: int) -> None:
    """§2.1: at most 64 lines and 1200 bytes each; one request at a time."""
    topics = [(b"%03d" % number).ljust(size, b"t") for number in range(count)]
    line = leased(*topics)
    requests = [wire.split_lines(data)[0] for _, data in line.out if data.startswith(b"%!")]
    assert sorted(topic for request in requests for topic in request[1:]) == topics
    assert all(len(request) <= 64 for request in requests)
    least = max(count / 63, count * (size + 1) / LINE_BYTES_MAX)
    assert least <= len(requests) < least + 1.3
    line.run(300)
    assert line.server.counts["leases_expired"] == 0


def test_unwanted_lease_is_not_renewed() -> None:
    line = leased(b"t", b"u")
    line.session.unwant(b"t")
    assert not line.session.is_leased(b"t")
    line.run(70)
    assert list(line.server.leases.subscribers(b"t", line.now)) == []
    assert list(line.server.leases.subscribers(b"u", line.now)) == [CLIENT]
    line.session.unwant(b"u")
    line.run(600)
    assert line.session.next_timeout() is None


# --- Refusals -----------------------------------------------------------------------------------------


def test_refused_leases_are_asked_for_again_later() -> None:
    """§5.8: `full`; the others of the datagram stand."""
    line = SessionAndServer(limits=Limits(leases=1))
    line.session.want(b"t", line.now)
    line.session.want(b"u", line.now)
    line.exchange()
    assert [notice.reason for notice in line.session.notices] == ["", "full"]
    assert line.changes() == [(Change.LEASES, b"t"), (Change.REFUSED, b"u")]
    line.session.unwant(b"t")
    line.run(61)
    assert line.session.is_leased(b"u")
    asked = [at for at, data in line.out if b"\nu\n" in data]
    assert asked[1] - asked[0] == 20.0


# --- Restarts and changed addresses -------------------------------------------------------------------


@pytest.mark.parametrize("what", ["restart", "nat"])
def test_server_that_takes_a_young_cookie_for_foreign_is_asked_for_all_leases_at_once(what: str) -> None:
    """§6.3: it has restarted, or a NAT has changed our address."""
    topics = [b"%03d" % number for number in range(130)]
    line = leased(*topics)
    line.run(19)
    if what == "restart":
        line.restart()
    else:
        line.source = ("203.0.113.9", 4242)
    line.run(1.001)
    changes = line.changes()
    assert changes[0] == (Change.FORGOT, b"")
    assert set(changes[1:131]) == {(Change.LEASES, topic) for topic in topics}
    assert all(line.session.is_leased(topic) for topic in topics)
    assert all(list(line.server.leases.subscribers(t, line.now))[-1:] == [line.source] for t in topics)
    assert line.session.is_warm(line.now + 20)
    assert not line.session.is_warm(line.now)


def test_what_a_restarted_server_stays_silent_on_is_sent_again_once() -> None:
    """§5.2, §6.3: of a stranger's datagrams that come at once it may look at one only."""
    line = leased(b"t", rtt_s=0.01)
    line.restart()
    for number in range(3):
        line.session.publish(b"t %d" % number + b"m" * 800 + b"\n", number, confirm=number > 0)
    ((run, size_bytes),) = line.session.datagrams_to_send(line.now)
    sending = list(datagrams(run, size_bytes))
    assert len(sending) == 3
    line.now += 0.01
    answer(line, sending[1])
    line.exchange()
    assert sorted(line.outcomes()) == [(number, Outcome.RECEIPT) for number in range(3)]
    assert line.session.is_leased(b"t")
    line.out.clear()
    for data in sending[::2]:
        answer(line, data)  # after all; it brings nothing new
    line.run(5.0)
    assert line.changes().count((Change.FORGOT, b"")) == 1
    assert not any(b"mmm" in data for _, data in line.out)


def answer(line: SessionAndServer, datagram: bytes) -> None:
    """The server's answer to this datagram alone comes back now."""
    line.server.receive(Burst(datagram, len(datagram), line.source), line.now)
    for _, data in sent(flushed(line.server, line.now)):
        replies = [reply for each in wire.split_lines(data)[0] if (reply := wire.parse_reply(each))]
        assert line.session.handle_replies(replies, line.now) == 0


def test_old_cookie_that_is_refused_is_no_restart(line: SessionAndServer) -> None:
    """§6.2, §5.4: it was near the end of the hour that a cookie serves to publish."""
    line.restart()
    line.now += 3591.9
    line.session.publish(b"t m\n", 1, True)
    line.now += 0.2
    line.exchange()
    assert line.changes() == []
    assert line.outcomes() == [(1, Outcome.RECEIPT)]


def test_fresh_cookie_refused_again_and_again_backs_off() -> None:
    """A NAT that changes with each packet, or a server that takes no cookie."""
    line = leased(b"t")
    line.out.clear()
    vouches: list[float] = []
    while line.now < START + 300:
        for data, _ in line.session.datagrams_to_send(line.now):
            request = wire.parse_request(wire.split_lines(data)[0][0])
            assert isinstance(request, (wire.Ask, wire.Vouch))
            vouches += [line.now] if isinstance(request, wire.Vouch) else []
            line.session.handle_replies([wire.Challenge(request.nonce, b"A" * 32, 0)], line.now)
        line.now += 0.125
        line.session.handle_timeout(line.now)
    steps = [after - before for before, after in pairwise(vouches)]
    assert steps[:8] == [0.125, 0.375, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0]
    assert set(steps[8:]) == {16.0}
    assert not line.session.is_leased(b"t")


def test_publish_whose_cookie_is_refused_twice_is_given_up(line: SessionAndServer) -> None:
    line.session.publish(b"t m\n", 1, True)
    tries = 0
    for _ in range(10):
        for data, _ in line.session.datagrams_to_send(line.now):
            request = wire.parse_request(wire.split_lines(data)[0][0])
            assert request is not None
            tries += b"t m" in data
            line.session.handle_replies([wire.Challenge(request.nonce, b"A" * 32, 0)], line.now)
    assert tries == 2
    assert line.outcomes() == [(1, Outcome.NO_ANSWER)]


# --- Liveness -----------------------------------------------------------------------------------------


def test_server_that_does_not_answer_is_suspected_then_lost_and_asked_for_ever() -> None:
    """§7.4: at the latest every renewal interval."""
    line = SessionAndServer()
    line.is_up = False
    line.session.want(b"t", line.now)
    states = []
    for at in (0.999, 1.0, 3.999, 4.0):
        line.run(START + at - line.now)
        states.append((line.session.liveness, line.session.is_alive, line.session.is_lost))
    suspected = (Liveness.SUSPECTED, False, False)
    assert states == [(Liveness.ALIVE, True, False), suspected, suspected, (Liveness.LOST, False, True)]
    assert line.times(b"%?") == [START, START + 1, START + 3]
    assert line.changes() == [(Change.SUSPECTED, b""), (Change.LOST, b"")]
    line.run(3600)
    times = line.times(b"%?")[2:]
    steps = [after - before for before, after in pairwise(times)]
    assert min(steps) >= 2.5, "its ttl is not known"
    assert max(steps) <= 5.5
    assert line.changes() == []


def test_server_that_returns_gets_all_leases_again() -> None:
    topics = [b"%03d" % number for number in range(70)]
    line = leased(*topics)
    line.is_up = False
    line.run(59.9)
    assert all(line.session.is_leased(topic) for topic in topics)
    line.run(40)
    assert not any(line.session.is_leased(topic) for topic in topics)
    changes = line.changes()
    assert changes[:2] == [(Change.SUSPECTED, b""), (Change.LOST, b"")]
    assert set(changes[2:]) == {(Change.LEASES, topic) for topic in topics}
    line.restart()
    line.is_up = True
    line.run(20)
    assert line.changes()[0] == (Change.RETURNED, b"")
    assert all(line.session.is_leased(topic) for topic in topics)
    assert len(line.server.leases) == 70
    assert line.session.is_alive


def test_lease_ends_a_ttl_after_it_was_asked_for() -> None:
    """§7.1: the client counts from when it sent the request."""
    line = leased(b"t", rtt_s=0.25)
    asked_at = line.times(b"%!")[-1]
    line.is_up = False
    line.run(asked_at + 59.999 - line.now)
    assert line.session.is_leased(b"t")
    line.run(0.002)
    assert not line.session.is_leased(b"t")
    assert (Change.LEASES, b"t") in line.changes()


def test_unreachable_is_believed_for_suspicion_only() -> None:
    """Such a report can be forged: no lease is given up, and the server is asked at once."""
    line = leased(b"t")
    line.is_up = False
    line.run(20)
    line.session.handle_unreachable(SERVER, line.now, is_closed=True)
    assert line.session.liveness is Liveness.SUSPECTED
    assert line.session.is_leased(b"t")
    line.is_up = True
    line.exchange()
    assert line.session.is_alive
    assert line.session.is_leased(b"t")


def test_unreachable_settles_what_was_under_way(line: SessionAndServer) -> None:
    line.is_up = False
    line.session.publish(b"t m\n", 1, True)
    line.exchange()
    assert line.outcomes() == []
    line.session.handle_unreachable(SERVER, line.now, is_closed=True)
    assert line.outcomes() == [(1, Outcome.NO_ANSWER)]
    assert line.session.liveness is Liveness.SUSPECTED


def test_answer_timeout_follows_the_round_trip_within_bounds() -> None:
    line = SessionAndServer(rtt_s=0.4)
    assert line.session._requests.timeout_s == TIMEOUT_S_FIRST
    line.session.want(b"t", line.now)
    line.exchange()
    assert line.session._requests.timeout_s == pytest.approx(0.4 + 4 * 0.15)
    line.run(2000)
    assert line.session._requests.timeout_s == TIMEOUT_S_MIN
    line.rtt_s = 10.0
    line.session.publish(b"t m\n", 1, True)
    line.exchange()
    assert line.session._requests.timeout_s == TIMEOUT_S_MAX


# --- Publishing ---------------------------------------------------------------------------------------


def test_publish_waits_for_the_cookie_and_no_longer() -> None:
    line = SessionAndServer()
    line.session.publish(b"t 1\n", 1, True)
    line.session.publish(b"t 2\n", 2, False)
    line.exchange()
    assert line.verbs() == "?!"
    assert wire.split_lines(line.out[1][1])[0][1:] == [b"t 1", b"t 2"]
    assert line.outcomes() == [(1, Outcome.RECEIPT), (2, Outcome.RECEIPT)]
    line.session.publish(b"t 3\n", 3, True)
    line.exchange()
    assert line.verbs() == "?!!"


def test_queue_is_bounded() -> None:
    line = SessionAndServer()
    assert all(line.session.publish(b"t m\n", number, True) for number in range(QUEUE_MAX))
    assert not line.session.publish(b"t m\n", QUEUE_MAX, True)
    line.exchange()
    assert sorted(line.outcomes()) == [(number, Outcome.RECEIPT) for number in range(QUEUE_MAX)]
    assert line.session.publish(b"t m\n", 0, True)


def test_publish_that_is_not_answered(line: SessionAndServer) -> None:
    line.is_up = False
    line.session.publish(b"t m\n", 1, True)
    line.run(0.499)
    assert line.outcomes() == []
    line.run(0.001)
    assert line.outcomes() == [(1, Outcome.NO_ANSWER)]
    assert line.session.liveness is Liveness.SUSPECTED
    assert line.verbs() == "!!", "the probe shows the cookie, so that a restart cannot hide"


def test_refused_publish(line: SessionAndServer) -> None:
    """§5.8: `%-` alone, for all of the datagram."""
    line.session.publish(b"t m\n", 1, True)
    ((data, _),) = line.session.datagrams_to_send(line.now)
    vouch = wire.parse_request(wire.split_lines(data)[0][0])
    assert vouch is not None
    assert line.session.handle_replies([wire.Refusal(vouch.nonce, "rate", None)], line.now) == 0
    assert line.outcomes() == [(1, Outcome.REFUSED)]


def test_busy_publisher_sends_bare_lines_under_its_lease_and_pings_once_a_second(
    line: SessionAndServer,
) -> None:
    """§7.2"""
    for number in range(2000):
        line.session.publish(b"t %d\n" % number, number, False)
        line.exchange()
        line.now += 0.1
    assert line.server.drops == {Drop.NO_SUBSCRIBER: 2001}, "the lease never lapsed"
    outcomes = [outcome for _, outcome in line.outcomes()]
    vouched = line.times(b"%!")
    assert vouched[0] - START >= 39 - 1e-6
    assert outcomes.count(Outcome.SENT) == 2000 - len(vouched)
    pings = line.times(b"%~")
    steps = [after - before for before, after in pairwise(pings)]
    assert len(pings) >= 180
    assert min(steps) >= 1.0 - 1e-6
    assert max(steps) <= 1.2
    assert all(wire.split_lines(data)[0][1:] for _, data in line.out if data.startswith(b"%~"))


def test_confirmed_lines_are_vouched_for_also_under_a_publish_lease(line: SessionAndServer) -> None:
    line.session.publish(b"t 1\n", 1, False)
    line.session.publish(b"t 2\n", 2, True)
    line.exchange()
    assert sorted(line.outcomes()) == [(1, Outcome.SENT), (2, Outcome.RECEIPT)]
    assert line.verbs() == "~!"


def test_pong_that_says_0_makes_the_publisher_vouch_again(line: SessionAndServer) -> None:
    """§7.2, §5.9"""
    line.restart()
    line.session.publish(b"t 1\n", 1, False)
    line.exchange()
    assert line.outcomes() == [(1, Outcome.SENT)], "it was not forwarded, and nobody says so"
    line.session.publish(b"t 2\n", 2, False)
    line.exchange()
    assert line.verbs() == "~!!"
    assert line.outcomes() == [(2, Outcome.RECEIPT)]


# --- Replies that answer nothing ----------------------------------------------------------------------


def test_replies_that_answer_nothing_are_counted_and_change_nothing() -> None:
    line = SessionAndServer()
    line.session.want(b"t", line.now)
    line.session.publish(b"t m\n", 1, True)
    ((ask, _),) = line.session.datagrams_to_send(line.now)
    nonce = ask.split()[1]
    cookie = b"A" * 32
    strangers: list[wire.Reply] = [
        wire.Challenge(b"other", cookie, 0), wire.Receipt(b"other", 60, cookie, 0), wire.Pong(b"other", 60),
        wire.Receipt(nonce, 60, cookie, 0), wire.Pong(nonce, 60), wire.Refusal(nonce, "full", 1),
    ]  # fmt: skip
    for reply in strangers:
        assert line.session.handle_replies([reply], line.now) == 1
    assert line.session.handle_replies([wire.Challenge(nonce, cookie, 0)], line.now) == 0
    assert line.session.handle_replies([wire.Challenge(nonce, cookie, 0)], line.now) == 1
    requests = [
        wire.parse_request(data.split(b"\n")[0]) for data, _ in line.session.datagrams_to_send(line.now)
    ]
    assert [type(request) for request in requests] == [wire.Vouch, wire.Vouch]
    for request in requests:
        assert request is not None
        assert line.session.handle_replies([wire.Pong(request.nonce, 5)], line.now) == 1
    assert (line.session.notices, line.session.take_settled()) == ([], [])


def cookie_of(server: Server, source: Address, now: float) -> bytes:
    ask = wire.request_datagram(wire.Ask(b"n"))
    server.receive(Burst(ask, len(ask), source), now)
    (reply,) = [wire.parse_reply(data[:-1]) for to, data in sent(server.flush(now)) if to == source]
    assert isinstance(reply, wire.Challenge)
    return reply.cookie


def vouch(server: Server, source: Address, lines: list[bytes], now: float) -> None:
    data = wire.request_datagram(wire.Vouch(b"n", cookie_of(server, source, now), None), lines)
    server.receive(Burst(data, len(data), source), now)
    server.flush(now)


def test_late_receipt_does_not_shorten_a_newer_lease() -> None:
    """A receipt that comes after its request was asked anew: the newer promise stands."""
    line = SessionAndServer(ttl_s=3)
    line.session.want(b"t", line.now)
    line.exchange()
    renew_at = line.session.next_timeout()
    assert renew_at is not None
    line.now = renew_at
    ((first, size),) = line.session.datagrams_to_send(line.now)
    line.server.receive(Burst(first, size, line.source), line.now)
    ((_, late),) = sent(line.server.flush(line.now))  # on its way, and slow
    line.run(2.5)  # asked again, and granted
    line.changes()
    reply = wire.parse_reply(late[:-1])
    assert reply is not None
    newest = line.session.leases._leases[b"t"].expires_at
    assert line.session.handle_replies([reply], line.now) == 0
    assert line.session.leases._leases[b"t"].expires_at >= newest
    line.now += 0.5
    line.is_up = False
    line.exchange()
    assert line.server.leases.subscribers(b"t", line.now)
    assert line.session.is_leased(b"t"), f"the server holds it, and we report {line.changes()}"


def test_bare_lines_are_not_lost_for_ever_where_the_publish_table_is_full() -> None:
    """The server's cache is full, says so in every pong; 20 s of confirm=False at 50 messages a second."""
    line = SessionAndServer(limits=Limits(publishers=1))
    vouch(line.server, ("198.51.100.77", 1), [], line.now)
    keep = line.now
    sent_lines = 1000
    line.session.publish(b"t first\n", 0, False)
    line.exchange()
    for number in range(1, sent_lines + 1):
        if line.now - keep > 10:
            vouch(line.server, ("198.51.100.77", 1), [], line.now)
            keep = line.now
        line.session.publish(b"t %d\n" % number, number, False)
        line.exchange()
        line.now += 0.02
    outcomes = Counter(outcome for _, outcome in line.outcomes())
    lost = line.server.drops[Drop.UNVOUCHED_PUBLISH]
    assert lost < sent_lines / 10, f"{lost} of {sent_lines} dropped by a live server; told: {outcomes}"


def test_restart_is_noticed_by_a_publisher_that_publishes_every_three_minutes() -> None:
    """A cookie serves an hour to publish (§6.2): refused at three minutes, it tells of a restart."""
    line = vouched_at_last()
    line.changes()
    line.now += 180
    line.restart()
    line.session.publish(b"t second\n", 1, True)
    line.exchange()
    assert line.outcomes() == [(1, Outcome.RECEIPT)]
    assert (Change.FORGOT, b"") in line.changes()
    assert not line.session.is_warm(line.now), "it counts as warm, and nobody has leased there yet"


def test_what_a_server_refused_when_it_had_forgotten_is_sent_again_in_order() -> None:
    """All that was refused is sent again in order, sorted once and not for each refused datagram."""
    line = vouched_at_last()
    line.changes()
    pending = 0
    for _ in range(2):
        for _ in range(4000):
            pending += 1
            assert line.session.publish(b"t %d%b\n" % (pending, b"x" * 700), pending, True)
        while len(line.session.outbox):
            line.now += WAIT_S
            for data, size in line.session.datagrams_to_send(line.now):
                line.out += [(line.now, each) for each in datagrams(data, size)]
    line.restart()
    answers = []
    for _, datagram in line.out:
        line.server.receive(Burst(datagram, len(datagram), line.source), line.now)
        answers += [wire.parse_reply(data[:-1]) for _, data in sent(line.server.flush(line.now))]
    replies = [reply for reply in answers if reply is not None]
    for reply in replies:
        line.session.handle_replies([reply], line.now)
    again: list[int] = []
    while len(line.session.outbox):
        line.now += WAIT_S
        again += [
            int(published.split(b" ")[1].strip(b"x") or 0)
            for data, size in line.session.datagrams_to_send(line.now)
            for each in datagrams(data, size)
            for published in each.splitlines()[1:]
            if published
        ]
    assert len(again) == pending and again == sorted(again)
