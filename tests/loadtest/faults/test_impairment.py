"""loadtest/faults/impairment.py: what impaired legs do to datagrams, in virtual time."""

import math
from collections import Counter
from dataclasses import dataclass, field
from math import sqrt
from random import Random
from typing import Any, NamedTuple

import pytest

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.events import Delivery
from kcast.hashring.policy import Policy
from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, NONE, PASSED
from kcast.loadtest.faults.impairment import CLEAR, HELD_BACK_S, Impairment, Leg, legs
from kcast.loadtest.faults.plan import DownTimes, Outage
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.endpoint import Address, Burst, Endpoint, Transmit, datagrams
from kcast.pubsub.server import Server

S = 1_000_000_000
ADDRESSES: list[Address] = [("192.0.2.1", 7400 + number) for number in range(5)]
STRANGER: Address = ("192.0.2.9", 9)
SERVERS = {address: number for number, address in enumerate(ADDRESSES)} | {("2001:db8::1", 7400): 0}
FAULTS = ("loss", "duplicate", "reorder", "jitter_s")


class Told(NamedTuple):
    now: float
    server: int
    data: bytes
    segment_bytes: int
    kernel_ns: int
    injected: int

    @property
    def datagrams(self) -> list[bytes]:
        return list(datagrams(self.data, self.segment_bytes))


@dataclass
class Notes:
    """An observer that keeps every call."""

    sent_: list[Told] = field(default_factory=list)
    received_: list[Told] = field(default_factory=list)

    def sent(self, now: float, server: int, data: bytes, segment_bytes: int, injected: int) -> None:
        self.sent_.append(Told(now, server, data, segment_bytes, 0, injected))

    def received(
        self, now: float, server: int, data: bytes, segment_bytes: int, kernel_ns: int, injected: int
    ) -> None:
        self.received_.append(Told(now, server, data, segment_bytes, kernel_ns, injected))


@dataclass
class FakeCore:
    """A core that keeps what it is given, and sends what it is told to."""

    taken: list[tuple[float, Burst]] = field(default_factory=list)
    to_send: list[Transmit] = field(default_factory=list)
    due: float | None = None
    calls: list[float] = field(default_factory=list)

    def receive(self, burst: Burst, now: float) -> None:
        self.taken.append((now, burst))

    def handle_timeout(self, now: float) -> None:
        self.calls.append(now)

    def next_timeout(self) -> float | None:
        return self.due

    def flush(self, now: float) -> list[Transmit]:
        transmits, self.to_send = self.to_send, []
        return transmits

    @property
    def datagrams(self) -> list[bytes]:
        return [d for _, burst in self.taken for d in datagrams(burst.data, burst.segment_bytes)]


class Bench:
    """An Impairment between a FakeCore and Notes; `both` legs alike unless told otherwise."""

    def __init__(self, both: Leg = CLEAR, *, seed: int = 1, **given: Any) -> None:
        self.core = FakeCore()
        self.notes = Notes()
        options: dict[str, Any] = {"legs_in": both, "legs_out": both, "observer": self.notes} | given
        self.path = Impairment(self.core, servers=SERVERS, rng=Random(seed), **options)

    def receive(self, now: float, *lines: bytes, server: int = 0, kernel_ns: int = 0) -> None:
        size = len(lines[0])
        assert all(len(line) == size for line in lines[:-1]) and len(lines[-1]) <= size
        self.path.receive(Burst(b"".join(lines), size, ADDRESSES[server], kernel_ns), now)

    def send(self, now: float, *lines: bytes, server: int = 0) -> list[Transmit]:
        self.core.to_send.append(Transmit(b"".join(lines), len(lines[0]), (ADDRESSES[server],)))
        return self.path.flush(now)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]


def sent(transmits: list[Transmit]) -> list[bytes]:
    return [d for transmit in transmits for d in datagrams(transmit.data, transmit.segment_bytes)]


def with_fate(told: list[Told], *fates: int) -> list[bytes]:
    return [d for one in told if one.injected in fates for d in one.datagrams]


# --- Nothing to do -------------------------------------------------------------------------------------


def test_clear_legs_pass_everything_on_as_it_is() -> None:
    bench = Bench()
    burst = Burst(b"one\ntwo\nthr", 4, ADDRESSES[2], 77)
    bench.path.receive(burst, 5.0)
    assert bench.core.taken == [(5.0, burst)]
    assert bench.core.taken[0][1] is burst
    assert bench.notes.received_ == [Told(5.0, 2, b"one\ntwo\nthr", 4, 77, PASSED)]
    transmits = bench.core.to_send = [
        Transmit(b"abcd", 2, (ADDRESSES[1], ADDRESSES[3])),
        Transmit(b"", 0, (STRANGER,)),
    ]
    assert bench.path.flush(6.0) is transmits
    assert bench.notes.sent_ == [
        Told(6.0, 1, b"abcd", 2, 0, PASSED),
        Told(6.0, 3, b"abcd", 2, 0, PASSED),
        Told(6.0, NONE, b"", 0, 0, PASSED),
    ]
    bench.path.receive(Burst(b"hello", 5, STRANGER), 7.0)
    bench.path.receive(Burst(b"", 0, ("2001:db8::1", 7400)), 7.0)
    assert [told.server for told in bench.notes.received_[1:]] == [NONE, 0]
    bench.path.handle_timeout(8.0)
    assert bench.core.calls == [8.0]
    assert bench.path.next_timeout() is None
    bench.core.due = 9.0
    assert bench.path.next_timeout() == 9.0
    assert bench.path.counts == Counter()


def test_nobody_has_to_observe() -> None:
    bench = Bench(Leg(0.5, 0.5, 0.5, 0.01, 0.01), observer=None, down=DownTimes([Outage(1, 0, 0, S)], 0))
    for number in range(50):
        bench.receive(0.5, b"%02d" % number, server=number % 5)
        bench.send(0.5, b"%02d" % number, server=number % 5)
    bench.path.handle_timeout(2.0)
    bench.path.flush(2.0)
    assert bench.core.taken
    bench.path.close(3.0)


# --- Chances -------------------------------------------------------------------------------------------


def test_each_datagram_is_lost_on_its_own() -> None:
    for share, size in ((0.02, 7), (0.3, 1), (0.9, 64)):
        bench = Bench(Leg(loss=share))
        count = 20_000 // size
        everything = numbered(count * size)
        out = []
        for start in range(0, count * size, size):
            bench.receive(1.0, *everything[start : start + size], server=start % 5)
            out += sent(bench.send(1.0, *everything[start : start + size], server=start % 5))
        for passed, told in ((bench.core.datagrams, bench.notes.received_), (out, bench.notes.sent_)):
            assert passed == sorted(set(passed))  # in order, each once
            assert passed == with_fate(told, PASSED)
            lost = set(with_fate(told, LOST))
            assert sorted([*passed, *lost]) == everything
            n = len(everything)
            assert abs(len(lost) - n * share) < 5 * sqrt(n * share * (1 - share))
            pairs = sum(b"%06d" % (int(datagram) + 1) in lost for datagram in lost)
            assert abs(pairs - n * share**2) < 6 * sqrt(n) * share
        # Whatever place in a burst it has.
        places = Counter(int(datagram) % size for datagram in lost)
        assert all(
            abs(places[i] - count * share) < 5 * sqrt(count * share * (1 - share)) for i in range(size)
        )
    counts = bench.path.counts
    assert counts["lost_out"] == len(with_fate(bench.notes.received_, LOST))
    assert counts["lost_in"] == len(with_fate(bench.notes.sent_, LOST))


def test_what_is_lost_does_not_depend_on_how_datagrams_come_together() -> None:
    def lost(size: int) -> list[bytes]:
        bench = Bench(Leg(loss=0.3))
        for start in range(0, 1200, size):
            bench.receive(1.0, *numbered(size, start))
        return with_fate(bench.notes.received_, LOST)

    assert lost(1) == lost(3) == lost(40) == lost(1200) != []


def test_the_legs_are_apart() -> None:
    lossy = Leg(loss=1.0)
    for bench, passed in ((Bench(legs_in=lossy), (False, True)), (Bench(legs_out=lossy), (True, False))):
        has_left = bool(bench.send(1.0, b"x"))
        bench.receive(1.0, b"x")
        assert (has_left, bool(bench.core.taken)) == passed
    both = Bench(Leg(loss=0.5))
    for datagram in numbered(100):
        both.receive(1.0, datagram)
        both.send(1.0, datagram)
    assert with_fate(both.notes.received_, LOST) != with_fate(both.notes.sent_, LOST)


def test_all_and_nothing() -> None:
    bench = Bench(Leg(loss=1.0, duplicate=1.0))
    bench.receive(1.0, *numbered(9))
    assert bench.send(1.0, *numbered(9)) == [] == bench.core.taken
    assert with_fate(bench.notes.received_, LOST) == with_fate(bench.notes.sent_, LOST) == numbered(9)
    assert len(bench.notes.received_) == len(bench.notes.sent_) == 1
    bench = Bench(Leg(loss=5e-324, duplicate=1e-300, reorder=1e-12))
    bench.receive(1.0, *numbered(64))
    assert bench.core.datagrams == numbered(64)


def test_survivors_are_bursts_of_equal_segments_and_the_last_may_be_shorter() -> None:
    for seed in range(200):
        bench = Bench(Leg(loss=0.4, duplicate=0.3), seed=seed)
        bench.receive(1.0, b"aaaa", b"bbbb", b"cccc", b"dd", kernel_ns=5)
        everything = {b"aaaa", b"bbbb", b"cccc", b"dd"}
        for _, burst in bench.core.taken:
            assert burst[1:] == (4, ADDRESSES[0], 5)
        passed = with_fate(bench.notes.received_, PASSED)
        assert {*passed, *with_fate(bench.notes.received_, LOST)} == everything, seed
        assert set(with_fate(bench.notes.received_, DUPLICATE)) <= set(passed)
        assert bench.core.datagrams == with_fate(bench.notes.received_, PASSED, DUPLICATE)


def test_duplicates_come_right_after_and_only_of_what_passes() -> None:
    bench = Bench(Leg(loss=0.2, duplicate=0.3))
    out = []
    for datagram in numbered(20_000):
        bench.receive(1.0, datagram)
        out += sent(bench.send(1.0, datagram))
    for passed, told in ((bench.core.datagrams, bench.notes.received_), (out, bench.notes.sent_)):
        assert passed == sorted(passed)
        first, twice = with_fate(told, PASSED), with_fate(told, DUPLICATE)
        assert sorted([*first, *twice]) == passed
        assert set(twice) <= set(first)
        assert abs(len(twice) - 0.3 * len(first)) < 5 * sqrt(20_000 * 0.8 * 0.3 * 0.7)
        lost = set(with_fate(told, LOST))
        assert abs(len(lost) - 4000) < 300
        assert not lost & set(first)
    assert bench.path.counts["duplicate_out"] == len(with_fate(bench.notes.received_, DUPLICATE))


def test_the_same_seed_has_the_same_fates_and_another_one_others() -> None:
    def fates(seed: int) -> tuple[list[Told], list[Told]]:
        bench = Bench(Leg(0.2, 0.1, 0.3, 0.01, 0.02), seed=seed)
        for step in range(200):
            bench.receive(step * 0.001, *numbered(5, step * 5), server=step % 5)
            bench.send(step * 0.001, *numbered(5, step * 5), server=step % 5)
        bench.path.handle_timeout(9.0)
        bench.path.flush(9.0)
        return bench.notes.received_, bench.notes.sent_

    assert fates(1) == fates(1)
    assert fates(1) != fates(2)


def test_a_fault_that_is_switched_on_changes_no_draw_of_the_others() -> None:
    for name in FAULTS:
        values = {"loss": 0.2, "duplicate": 0.2, "reorder": 0.2, "jitter_s": HELD_BACK_S / 2}

        def draws(leg: Leg) -> dict[str, Any]:
            bench = Bench(leg)
            for step in range(300):
                bench.receive(step * 1.0, *numbered(3, step * 3), kernel_ns=S)
                bench.path.handle_timeout(step + 0.5)
            told = bench.notes.received_
            held_ns = {datagram: one.kernel_ns - S for one in told for datagram in one.datagrams}
            assert len(held_ns) == 900
            late = {datagram for datagram, ns in held_ns.items() if ns >= HELD_BACK_S * 1e9}
            return {
                "loss": set(with_fate(told, LOST)),
                "duplicate": set(with_fate(told, DUPLICATE)),
                "reorder": late,
                "jitter_s": {
                    d: round((ns - (d in late) * HELD_BACK_S * 1e9) / 10) for d, ns in held_ns.items()
                },
            }

        without, with_all = draws(Leg(**values | {name: 0.0})), draws(Leg(**values))
        assert without.pop(name) != with_all.pop(name)
        if name == "loss":  # what is lost does not come twice
            assert with_all.pop("duplicate") < without.pop("duplicate")
        assert without == with_all


# --- Time ----------------------------------------------------------------------------------------------


def test_a_delay_holds_whole_bursts_until_they_are_due() -> None:
    bench = Bench(Leg(delay_s=0.25))
    bench.receive(1.0, b"aaa", b"bb", kernel_ns=10**18)
    assert bench.send(1.125, b"ccc", b"d", server=2) == []
    assert bench.core.taken == []
    assert bench.notes.received_ == bench.notes.sent_ == []
    assert (bench.path.held, bench.path.next_timeout()) == (2, 1.25)
    bench.core.due = 1.2
    assert bench.path.next_timeout() == 1.2
    bench.core.due = 7.0
    bench.path.handle_timeout(1.2)
    assert bench.path.flush(1.2) == [] == bench.core.taken
    bench.path.handle_timeout(1.25)
    assert bench.core.taken == [(1.25, Burst(b"aaabb", 3, ADDRESSES[0], 10**18 + S // 4))]
    assert bench.notes.received_ == [Told(1.25, 0, b"aaabb", 3, 10**18 + S // 4, PASSED)]
    assert bench.path.flush(1.25) == []
    assert bench.path.next_timeout() == 1.375
    bench.path.handle_timeout(1.4)
    assert bench.path.flush(1.4) == [Transmit(b"cccd", 3, (ADDRESSES[2],))]
    assert bench.notes.sent_ == [Told(1.4, 2, b"cccd", 3, 0, PASSED)]
    assert (bench.path.held, bench.path.next_timeout()) == (0, 7.0)


def test_a_late_driver_gets_all_in_order_and_before_what_arrives_now() -> None:
    bench = Bench(Leg(delay_s=0.1))
    for number, datagram in enumerate(numbered(10)):
        bench.receive(number * 0.01, datagram, server=number % 5)
        bench.send(number * 0.01, datagram, server=number % 5)
    bench.receive(5.0, b"000010")
    assert bench.core.datagrams == numbered(10)
    assert sent(bench.send(5.0, b"000010")) == numbered(10)
    bench.path.handle_timeout(6.0)
    assert bench.core.datagrams == numbered(11)
    assert sent(bench.path.flush(6.0)) == [b"000010"]


def test_without_delay_nothing_overtakes_what_is_lost_in_part() -> None:
    for seed in range(50):
        bench = Bench(Leg(loss=0.05, duplicate=0.05), seed=seed)
        bench.core.to_send = [Transmit(b"".join(numbered(8, 8 * i)), 6, (ADDRESSES[i],)) for i in range(5)]
        ports = [transmit.destinations[0][1] for transmit in bench.path.flush(1.0)]
        assert ports == sorted(ports), seed
        assert {7400, 7404} < set(ports)


def test_jitter_is_drawn_for_each_datagram_and_lets_some_overtake() -> None:
    bench = Bench(Leg(delay_s=0.1, jitter_s=0.05))
    for start in range(0, 5000, 5):
        bench.receive(0.0, *numbered(5, start), kernel_ns=S)
    while (at := bench.path.next_timeout()) is not None:
        bench.path.handle_timeout(at)
    assert sorted(bench.core.datagrams) == numbered(5000) != bench.core.datagrams
    held = [told.now for told in bench.notes.received_]
    assert held == sorted(held)
    assert 0.1 <= held[0] < 0.1002 and 0.1498 < held[-1] < 0.15
    assert abs(sum(held) / 5000 - 0.125) < 0.001
    for told in bench.notes.received_:
        assert told.kernel_ns == S + int(told.now * 1e9)


def test_a_share_is_held_back_and_overtaken() -> None:
    bench = Bench(Leg(reorder=0.2))
    interval_s = HELD_BACK_S / 4
    for number, datagram in enumerate(numbered(10_000)):
        now = number * interval_s
        bench.path.handle_timeout(now)
        bench.receive(now, datagram)
    bench.path.handle_timeout(math.inf)
    found = [int(datagram) for datagram in bench.core.datagrams]
    assert sorted(found) == list(range(10_000))
    late = {
        number
        for number, told in zip(found, bench.notes.received_, strict=True)
        if told.now > number * interval_s
    }
    assert abs(len(late) - 2000) < 5 * sqrt(1600)
    place = {number: index for index, number in enumerate(found)}
    assert all(
        place[number] > place[number + 1] for number in late if number + 1 not in late and number < 9999
    )
    on_time = [number for number in found if number not in late]
    assert on_time == sorted(on_time)


# --- Outages -------------------------------------------------------------------------------------------


def test_a_server_that_is_cut_off_gets_and_sends_nothing() -> None:
    bench = Bench(down=DownTimes([Outage(1, 0, 0, S), Outage(2, 0, S, 2 * S)], 10 * S))
    expected: dict[float, set[int]] = {
        9.9: set(),
        10.0: {1},
        10.999: {1},
        11.0: {2},
        11.999: {2},
        12.0: set(),
    }
    for now, down in expected.items():
        bench.core.taken.clear()
        bench.core.to_send = [Transmit(b"ab", 1, tuple(ADDRESSES)), Transmit(b"c", 1, (STRANGER,))]
        transmits = bench.path.flush(now)
        for server in range(5):
            bench.receive(now, b"a", b"b", server=server)
        assert {SERVERS[burst.source] for _, burst in bench.core.taken} == set(range(5)) - down, now
        reached = [SERVERS[a] for transmit in transmits for a in transmit.destinations if a != STRANGER]
        assert sorted(reached) == sorted(set(range(5)) - down), now
        for told in (bench.notes.received_, bench.notes.sent_):
            assert {one.server for one in told if one.now == now and one.injected == CUT_OFF} == down
            assert {one.server for one in told if one.now == now and one.injected == PASSED} - {NONE} == (
                set(range(5)) - down
            )
    assert bench.path.counts == {"cut_off_in": 8, "cut_off_out": 8}


def test_being_cut_off_is_judged_when_it_would_pass_and_comes_before_being_lost() -> None:
    bench = Bench(Leg(loss=0.5, duplicate=0.5, delay_s=0.5), down=DownTimes([Outage(0, 0, 0, S)], 0))
    for start in (-0.25, 0.75):  # both pass the edge: out of the outage, and into it
        for number in range(50):
            bench.receive(start, b"%06d" % number)
            bench.send(start, b"%06d" % number)
        bench.path.handle_timeout(start + 0.5)
        bench.path.flush(start + 0.5)
    for told in (bench.notes.received_, bench.notes.sent_):
        assert {one.injected for one in told if one.now == 0.25} == {CUT_OFF}
        assert {one.injected for one in told if one.now == 1.25} == {PASSED, LOST, DUPLICATE}


def test_a_mute_server_takes_all_and_answers_but_its_copies_are_cut_off() -> None:
    for both in (CLEAR, Leg(delay_s=0.5)):
        bench = Bench(both, down=DownTimes([Outage(1, 0, 0, S)], 0), are_mute=True)
        for server in (0, 1):
            bench.send(0.1, b"t 1", b"%+2", server=server)
            bench.receive(0.1, b"%+1", b"t 1", b"t 2", b"%+2", b"t", server=server)
        bench.path.handle_timeout(0.9)
        bench.path.flush(0.9)
        assert [d for one in bench.notes.received_ if one.server == 1 for d in one.datagrams] == [
            *(b"%+1", b"t 1", b"t 2", b"%+2", b"t"),
        ]
        assert sorted(bench.core.datagrams) == sorted([b"%+1", b"t 1", b"t 2", b"%+2", b"t", b"%+1", b"%+2"])
        assert {one.injected for one in bench.notes.sent_} == {PASSED}
        assert bench.path.counts == {"cut_off_out": 3}
        bench.receive(1.0, b"t 3", server=1)  # it speaks again
        bench.path.handle_timeout(2.0)
        assert bench.core.datagrams[-1] == b"t 3"


def test_who_is_away_is_cut_off_from_all_and_the_mute_stay_mute() -> None:
    away = DownTimes([Outage(server, 0, S, 2 * S) for server in range(5)], 0)
    bench = Bench(down=DownTimes([Outage(1, 0, 0, 4 * S)], 0), are_mute=True, away=away)
    for now in (0.5, 1.5, 2.5):
        for server in (0, 1):
            bench.receive(now, b"t", server=server)
            bench.receive(now, b"%", server=server)
            bench.send(now, b"t", server=server)
    came = [
        (one.now, one.server, one.datagrams[0]) for one in bench.notes.received_ if one.injected == PASSED
    ]
    assert came == [(now, *each) for now in (0.5, 2.5) for each in [(0, b"t"), (0, b"%"), (1, b"%")]]
    assert {one.now for one in bench.notes.sent_ if one.injected == CUT_OFF} == {1.5}


def test_outages_change_no_draw() -> None:
    def lost(down: DownTimes | None) -> list[bytes]:
        bench = Bench(Leg(loss=0.3), down=down)
        for number, datagram in enumerate(numbered(300)):
            bench.receive(number * 0.01, datagram)
        return with_fate([one for one in bench.notes.received_ if one.now >= 2.0], LOST)

    assert lost(None) == lost(DownTimes([Outage(0, 0, S, 2 * S)], 0)) != []


def test_outages_can_be_set_once_the_beginning_is_known() -> None:
    bench = Bench()
    bench.receive(5.0, b"a")
    down = DownTimes([Outage(0, 0, 0, S)], 5 * S)
    bench.path.set_down(down)
    bench.receive(5.5, b"b")
    bench.path.set_down(None)
    bench.receive(5.75, b"c")
    assert bench.core.datagrams == [b"a", b"c"]


# --- The end -------------------------------------------------------------------------------------------


def test_what_is_held_at_the_end_is_told_as_lost() -> None:
    bench = Bench(Leg(duplicate=0.5, delay_s=9.0), down=DownTimes([Outage(1, 0, 0, S)], 0))
    for number, datagram in enumerate(numbered(40)):
        bench.receive(0.5, datagram, server=number % 2)
        bench.send(0.5, datagram, server=number % 2)
    bench.path.close(0.75)
    for told in (bench.notes.received_, bench.notes.sent_):
        assert {one.now for one in told} == {0.75}
        assert {(one.server, one.injected) for one in told} == {(0, LOST), (1, CUT_OFF)}
        assert set(with_fate(told, LOST, CUT_OFF)) == set(numbered(40))
    assert bench.path.held == 0
    assert bench.core.taken == []
    assert bench.path.flush(20.0) == []
    counts = bench.path.counts
    assert counts["lost_in"] == len(with_fate(bench.notes.sent_, LOST)) > 20
    bench.path.close(0.75)
    assert bench.path.counts == counts
    bench = Bench(Leg(delay_s=9.0), down=DownTimes([Outage(0, 0, S, 2 * S)], 0))
    bench.receive(0.5, b"before the outage")
    bench.path.close(1.5)
    assert bench.path.counts == {"cut_off_out": 1}


def test_a_leg_that_cannot_be_is_refused() -> None:
    for leg in [
        Leg(loss=1.1),
        Leg(duplicate=-0.1),
        Leg(reorder=math.nan),
        Leg(delay_s=-1),
        Leg(jitter_s=math.inf),
    ]:
        with pytest.raises(ValueError, match=r"of a leg is .*: give"):
            Bench(leg)


def test_a_scenario_has_its_losses_by_leg_and_the_rest_on_both() -> None:
    scenario = Scenario(loss_in=0.1, loss_out=0.2, duplicate=0.3, reorder=0.4, delay_ms=5, jitter_ms=2)
    assert legs(scenario) == (Leg(0.1, 0.3, 0.4, 0.005, 0.002), Leg(0.2, 0.3, 0.4, 0.005, 0.002))
    assert legs(Scenario()) == (Leg(), Leg())


# --- Around the real core ------------------------------------------------------------------------------


def test_a_client_and_servers_get_on_over_bad_legs() -> None:
    """Leases come up and messages arrive through loss, duplicates and delays, and nothing comes twice."""
    cluster = lab(ADDRESSES, Policy(5, 5, 5))
    servers: dict[Address, Server] = {
        address: Server(secret=bytes([number]) * 32, ttl_s=60) for address, number in SERVERS.items()
    }
    core = ClientCore(cluster, Random(2), avoid_dead=False)
    leg, notes = Leg(0.1, 0.1, 0.1, 0.02, 0.01), Notes()
    path: Endpoint = Impairment(
        core, legs_in=leg, legs_out=leg, servers=SERVERS, rng=Random(3), observer=notes
    )
    here: Address = ("192.0.2.77", 5000)
    topic = b"load/000001"
    core.subscribe(topic, 0.0)
    to_publish = [10.0 + 0.05 * number for number in range(100)]
    delivered: list[bytes] = []
    now = 0.0
    while now < 20.0:
        path.handle_timeout(now)
        if to_publish and now >= to_publish[0]:
            core.publish(topic, b"%g" % to_publish.pop(0), now, confirm=False)
        for data, segment_bytes, destinations, _ in path.flush(now):
            for address in destinations:
                servers[address].receive(Burst(data, segment_bytes, here), now)
        for address, server in servers.items():
            server.handle_timeout(now)
            for data, segment_bytes, destinations, _ in server.flush(now):
                assert list(destinations) == [here]
                path.receive(Burst(data, segment_bytes, address), now)
        delivered += [event.payload for event in core.events() if isinstance(event, Delivery)]
        now += 0.005
    assert core.lease_counts(topic) == (5, 5)
    assert len(set(delivered)) == len(delivered) == 100
    assert {told.injected for told in notes.received_} == {PASSED, LOST, DUPLICATE}
