"""loadtest/demo/tally.py: the account of a run, and its verdict. Each check is also shown to fail."""

from collections import Counter
from random import Random

import pytest

from kcast.hashring.intervals import delivered_pairs
from kcast.hashring.model import delivery_given_down
from kcast.loadtest.demo.tally import (
    CONFIDENCE,
    PIECE_BYTES_MAX,
    Phase,
    PhaseResult,
    Tally,
    Topic,
    failures,
    for_servers,
    phase_confidence,
    pieces,
)
from kcast.pubsub.wire import encode_message

K = 5
SERVERS = frozenset(f"s{number}" for number in range(K))


def topic(k_prime: int = 1, audience: int = 4, name: bytes = b"t") -> Topic:
    return Topic(name, k_prime, SERVERS, frozenset(range(audience)))


def model_run(
    k_prime: int, dead: int, messages: int = 2000, audience: int = 4, believed: int | None = None
) -> Tally:
    """A run in which clients do just what the model says, with `dead` of five servers dead, where the tally
    is told that as many are, or another number."""
    rng = Random(1)
    there = topic(k_prime, audience)
    tally = Tally([there], K)
    dead_servers, told = (
        frozenset(sorted(SERVERS)[:count]) for count in (dead, dead if believed is None else believed)
    )
    for _ in range(messages):
        number, payload = tally.publish(Phase.DOWN, there, b"line", told, 0.0)
        drawn = rng.sample(sorted(SERVERS), k_prime)
        tally.sent(number, drawn)
        if set(drawn) - dead_servers:
            for subscriber in there.audience:
                tally.deliver(there.name, subscriber, payload)
    return tally


def verdict(tally: Tally, dropped: int = 0, leases_after_s: float | None = 1.0) -> list[str]:
    return failures(tally.phase_results({Phase.DOWN: 1}), tally.faults, dropped, leases_after_s)


def only_cell(tally: Tally) -> PhaseResult:
    (each,) = tally.phase_results({})
    return each


# Prediction and verdict.


def test_runs_as_the_model_says_are_good() -> None:
    for k_prime, dead in ((1, 0), (1, 3), (2, 1), (2, 2), (3, 4), (3, 5)):
        tally = model_run(k_prime, dead)
        each = only_cell(tally)
        assert each.predicted == pytest.approx(delivery_given_down(K, k_prime, K, dead))
        assert each.share(each.delivered) == pytest.approx(each.predicted, abs=0.05)
        assert (each.pairs, each.messages, each.unexplained) == (8000, 2000, 0)
        assert verdict(tally) == [], (k_prime, dead)


def test_a_right_system_fails_at_most_once_in_ten_thousand_runs() -> None:
    """Chance decides in three cells; together they may not reject a right system more often."""
    fails = 1.0
    for k_prime in (1, 2, 3):
        groups = [(300, delivery_given_down(5, k_prime, 5, dead), 8) for dead in (1, 2, 3, 4)]
        distribution = delivered_pairs(groups)
        low, high = distribution.interval(phase_confidence(3))
        within = range(low, high + 1)
        sums = enumerate(distribution.pmf)
        fails *= sum(p for i, p in sums if distribution.first + i * distribution.step in within)
    assert 1 - fails <= 1 - CONFIDENCE, f"{1 - fails:.1e}"


def test_a_run_with_more_or_fewer_dead_than_the_model_is_told_is_not_good() -> None:
    for believed, true in ((2, 1), (1, 2), (0, 1)):
        each = only_cell(tally := model_run(1, true, believed=believed))
        assert not each.agrees and not each.is_good
        assert any(said.startswith("K'=1, down: ") and "theory allows" in said for said in verdict(tally))


def test_the_range_counts_that_a_message_is_lost_for_all_at_once() -> None:
    def width(audience: int) -> float:
        each = only_cell(model_run(1, 2, messages=500, audience=audience))
        return each.share(each.high) - each.share(each.low)

    assert width(1) == pytest.approx(width(20))


def test_one_pair_lost_with_all_up_is_enough() -> None:
    there = topic(2)
    tally = Tally([there], K)
    for number in range(100):
        _, payload = tally.publish(Phase.UP, there, b"line", frozenset(), number / 10)
        tally.sent(number, ["s1", "s2"])
        for subscriber in range(3 if number == 57 else 4):
            tally.deliver(there.name, subscriber, payload)
    each = only_cell(tally)
    assert (each.low, each.high, each.delivered) == (400, 400, 399)
    assert verdict(tally) == [
        "K'=2, up: 399 of 400 pairs delivered; theory allows 400 to 400",
        "K'=2, up: 1 pair missed although the message was sent to a live server",
    ]
    assert not tally.is_complete(Phase.UP)
    assert tally.last_loss_s(Phase.UP) == 5.7
    assert tally.last_loss_s(Phase.DOWN) is None


def test_a_loss_that_no_dead_server_explains_is_not_good_even_within_the_range() -> None:
    tally = model_run(1, 2)
    there = topic(1)
    number, _ = tally.publish(Phase.DOWN, there, b"line", frozenset(["s0", "s1"]), 0.0)
    tally.sent(number, ["s4"])
    each = only_cell(tally)
    assert each.agrees and each.unexplained == 4
    assert verdict(tally) == ["K'=1, down: 4 pairs missed although the message was sent to a live server"]


def test_what_recovers_is_shown_and_not_judged() -> None:
    there = topic()
    tally = Tally([there], K)
    tally.publish(Phase.RECOVERING, there, b"line", frozenset(), 1.5)
    each = only_cell(tally)
    assert (each.predicted, each.is_judged) == (None, False)
    assert tally.last_loss_s(Phase.RECOVERING) == 1.5
    assert verdict(tally) == []


def test_datagrams_not_read_in_time_make_a_run_invalid() -> None:
    (reason,) = verdict(model_run(1, 2), dropped=3)
    assert reason.startswith("invalid run: 3 datagrams")


def test_leases_that_do_not_stand_again_fail_the_run() -> None:
    """Else clients that never return to a restarted server would pass, since the others cover for it."""
    (reason,) = verdict(model_run(1, 2), leases_after_s=None)
    assert reason == "not all leases stood again within a ttl of the servers' restart"


def test_the_predictions_that_can_be_made_beforehand() -> None:
    shares = [round(100 * for_servers(12, 4, k_prime), 1) for k_prime in (1, 2, 3)]
    assert shares == [66.7, 90.9, 98.2]


def test_cells_come_by_policy_and_phase() -> None:
    topics = [topic(k_prime, name=b"t%d" % k_prime) for k_prime in (1, 2)]
    tally = Tally(topics, K)
    for phase in (Phase.RECOVERED, Phase.DOWN, Phase.UP):
        for there in reversed(topics):
            tally.publish(phase, there, b"line", frozenset(), 0.0)
    phase_results = tally.phase_results({Phase.DOWN: 4})
    phases = [Phase.UP, Phase.DOWN, Phase.RECOVERED]
    assert [(each.k_prime, each.phase) for each in phase_results] == [
        (k, phase) for k in (1, 2) for phase in phases
    ]
    assert [each.down for each in phase_results] == [0, 4, 0] * 2


# Payloads.


def test_an_intact_payload_is_counted_once() -> None:
    there = topic()
    tally = Tally([there], K)
    _, payload = tally.publish(Phase.UP, there, b" text with  spaces \xff", frozenset(), 0.0)
    for subscriber in there.audience:
        tally.deliver(there.name, subscriber, payload)
    assert tally.delivered[Phase.UP, 1] == tally.expected[Phase.UP, 1] == 4
    assert tally.is_complete(Phase.UP) and not tally.faults


FAULTY = (
    (b"t", 0, b"0 lime", "corrupted"),
    (b"t", 0, b"0 line ", "corrupted"),
    (b"t", 0, b"1 line", "corrupted"),
    (b"t", 0, b"00 line", "corrupted"),
    (b"t", 0, b"2 line", "unknown"),
    (b"t", 0, b"", "unknown"),
    (b"t", 0, b"line", "unknown"),
    (b"t", 0, b"-1 line", "unknown"),
    (b"t", 0, "²".encode() + b" line", "unknown"),
    (b"t", 0, b"9" * 5000 + b" line", "unknown"),
    (b"u", 0, b"0 line", "misdirected"),
    (b"t", 4, b"0 line", "misdirected"),
    (b"t", 3, b"0 line", "repeated"),
)


def test_any_other_payload_fails_the_run() -> None:
    for name, subscriber, payload, fault in FAULTY:
        tally = Tally([topic(), topic(name=b"u")], K)
        for text in (b"line", b"nine"):
            tally.publish(Phase.RECOVERING, topic(), text, frozenset(), 0.0)
        tally.deliver(b"t", 3, b"0 line")
        tally.deliver(name, subscriber, payload)
        assert tally.faults == Counter({fault: 1}), payload
        assert tally.delivered[Phase.RECOVERING, 1] == 1
        (reason,) = verdict(tally)
        assert reason.startswith(f"1 payload {fault}: ")


# Files.


def test_files_become_lines_and_long_lines_pieces() -> None:
    for data, texts in (
        (b"", []),
        (b"\n\n \t\n\r\n", []),
        (b"one", [b"one"]),
        (b"one\n\n  two \r\n\0\xff\n", [b"one", b"  two \r", b"\0\xff"]),
        (b"a" * 300 + b"\n" + b"b" * 601, [b"a" * 300, b"b" * 300, b"b" * 300, b"b"]),
    ):
        assert pieces(data) == texts


def test_the_longest_piece_fits_whatever_it_holds() -> None:
    from kcast.client.session.requests import LINE_BYTES_MAX

    envelope_and_topic = 100
    assert len(encode_message(b"%" * PIECE_BYTES_MAX)) + envelope_and_topic <= LINE_BYTES_MAX


def test_a_machine_that_stopped_the_demo_says_nothing_about_the_system() -> None:
    assert failures([], Counter(), 0, 1.0, stopped_s=1.5) == []
    told = failures([], Counter(), 0, None, stopped_s=1.5)
    assert told[0].startswith("invalid run: this machine stopped the demo")
    assert told[1:] == failures([], Counter(), 0, None)


def test_wrong_payloads_are_no_fault_of_the_machine() -> None:
    wrong = Counter(corrupted=1)
    assert failures([], wrong, 0, 1.0, stopped_s=1.5) == failures([], wrong, 0, 1.0)
    assert len(failures([], wrong, 0, 1.0)) == 1
