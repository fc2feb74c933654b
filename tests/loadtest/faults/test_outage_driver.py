"""loadtest/faults/outage_driver.py: a plan carried out on made-up servers in virtual time, and real ones."""

import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import cast

import pytest

from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.clusters.servers import ServerFailed, Servers
from kcast.loadtest.faults.outage_driver import OutageDriver, RealOutage
from kcast.loadtest.faults.plan import DownTimes, Outage, outages
from kcast.loadtest.scenario import By, Outages, Scenario
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import REQUEST_BYTES_MIN

S = 1_000_000_000
T0 = 1_000 * S


@dataclass
class FakeServers:
    """Servers that take time to start, on a clock that goes on only when they, or a driver, wait."""

    restart_s: float = 0.0
    now_ns: int = T0 - S
    down: set[int] = field(default_factory=set)
    most_down: int = 0
    calls: list[tuple[float, str, tuple[int, ...]]] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)  # server, down, up
    fails_at: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    _since: dict[int, int] = field(default_factory=dict)

    def clock(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> bool:
        # Never quite as long as wanted, like some clocks.
        self.now_ns += max(1, int(seconds * 0.999e9))
        return False

    def _call(self, name: str, indexes: tuple[int, ...]) -> None:
        assert self.lock.locked()
        assert indexes == tuple(sorted(set(indexes)))
        assert indexes
        self.calls.append(((self.now_ns - T0) / S, name, indexes))

    def kill(self, *indexes: int) -> None:
        self._call("kill", indexes)
        assert not self.down & set(indexes)
        self.down |= set(indexes)
        self.most_down = max(self.most_down, len(self.down))
        self._since |= dict.fromkeys(indexes, self.now_ns)

    def restart(self, *indexes: int) -> None:
        self._call("restart", indexes)
        self.now_ns += int(self.restart_s * S)
        if self.fails_at is not None and len(self.calls) >= self.fails_at:
            raise ServerFailed("server-1 did not start")
        self.down -= set(indexes)
        self.spans += [(index, self._since.pop(index), self.now_ns) for index in indexes]

    def stall(self, *indexes: int) -> None:
        self._call("stall", indexes)

    def resume(self, *indexes: int) -> None:
        self._call("resume", indexes)

    def isolate(self, *indexes: int) -> None:
        self._call("isolate", indexes)

    def rejoin(self, *indexes: int) -> None:
        self._call("rejoin", indexes)

    def driver(self, plan: Iterable[Outage], kind: By = "kill") -> OutageDriver:
        servers = cast(Servers, self)
        return OutageDriver(servers, plan, kind, T0, lock=self.lock, clock=self.clock, wait=self.wait)


def run(
    servers: FakeServers, plan: Iterable[Outage], kind: By = "kill"
) -> tuple[OutageDriver, list[RealOutage]]:
    with servers.driver(plan, kind) as driver:
        driver._thread.join()
        assert driver.is_done
    return driver, driver.take()


def test_a_plan_is_carried_out_at_its_times() -> None:
    cases: list[By] = ["kill", "stall", "isolation"]
    for by in cases:
        servers = FakeServers()
        driver, happened = run(
            servers, [Outage(4, 0, 0, 2 * S), Outage(1, 0, 0, 2 * S), Outage(2, 1, 3 * S, 4 * S)], by
        )
        down, up = {
            "kill": ("kill", "restart"),
            "stall": ("stall", "resume"),
            "isolation": ("isolate", "rejoin"),
        }[by]
        assert [(round(at, 3), name, indexes) for at, name, indexes in servers.calls] == [
            (0.0, down, (1, 4)),
            (2.0, up, (1, 4)),
            (3.0, down, (2,)),
            (4.0, up, (2,)),
        ]
        assert [(server, epoch, kind) for server, epoch, _, _, kind in happened] == [
            (1, 0, by),
            (4, 0, by),
            (2, 1, by),
        ]
        for server, _, t_down_ns, t_up_ns, _ in happened:
            assert (t_down_ns, t_up_ns) == ((T0, T0 + 2 * S) if server != 2 else (T0 + 3 * S, T0 + 4 * S))
        assert (driver.take(), driver.missed(), driver.late_ns) == ([], [], 0)


def test_epochs_on_end_are_one_downtime_and_an_entry_each() -> None:
    servers = FakeServers(restart_s=0.3)
    _, happened = run(servers, [Outage(0, epoch, epoch * S, (epoch + 1) * S) for epoch in (0, 1, 2, 4)])
    assert [name for _, name, _ in servers.calls] == ["kill", "restart"] * 2
    assert [(o.epoch, (o.t_down_ns - T0) / S, (o.t_up_ns - T0) / S) for o in happened] == [
        (0, 0.0, 1.0),
        (1, 1.0, 2.0),
        (2, 2.0, 3.3),
        (4, 4.0, 5.3),
    ]


def test_never_are_more_down_than_planned() -> None:
    cases: list[Outages] = ["rolling", "exact"]
    for plan in cases:
        servers = FakeServers(restart_s=0.5)
        scenario = Scenario(servers=10, outages=plan, down=3, duration_s=20.0)
        driver, happened = run(servers, outages(scenario))
        assert servers.most_down == (1 if plan == "rolling" else 3)
        assert 0.4 < driver.late_ns / S < 0.6
        assert driver.missed() == []
        assert {(o.server, o.epoch) for o in happened} == {(o.server, o.epoch) for o in outages(scenario)}


def joined(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The spans (server, from, to), merged where they touch."""
    found: list[tuple[int, int, int]] = []
    for server, from_ns, to_ns in sorted(spans):
        if found and found[-1][0] == server and found[-1][2] == from_ns:
            from_ns = found.pop()[1]
        found.append((server, from_ns, to_ns))
    return found


def test_nor_when_it_falls_behind() -> None:
    for seed in range(20):
        servers = FakeServers(restart_s=Random(seed).uniform(1.0, 7.0))
        driver, _ = run(servers, outages(Scenario(servers=10, outages="exact", down=3, seed=seed)))
        assert servers.most_down <= 3, seed
        assert driver.late_ns > S


def test_what_is_written_down_is_what_happened() -> None:
    for seed in range(20):
        rng = Random(seed)
        servers = FakeServers(restart_s=rng.choice((0.0, 0.7, 2.5, 6.0)))
        scenario = Scenario(servers=6, outages="independent", outage=0.4, duration_s=30.0, seed=seed)
        plan = outages(scenario)
        driver, happened = run(servers, plan)
        assert servers.down == set()
        assert joined((o.server, o.t_down_ns, o.t_up_ns) for o in happened) == joined(servers.spans)
        done = {(o.server, o.epoch) for o in happened}
        assert done | {(o.server, o.epoch) for o in driver.missed()} == {(o.server, o.epoch) for o in plan}
        assert not done & {(o.server, o.epoch) for o in driver.missed()}
        times, entries = DownTimes(plan, T0), {(o.server, o.epoch): o for o in plan}
        for outage in happened:
            planned = entries[outage.server, outage.epoch]
            assert outage.t_down_ns >= T0 + planned.from_ns, seed
            assert times.is_down(outage.server, outage.t_down_ns), seed


def test_a_conductor_that_falls_behind_leaves_out_what_is_over() -> None:
    servers = FakeServers(restart_s=5.0)
    plan = [Outage(server, server, server * S, (server + 1) * S) for server in range(12)]
    driver, happened = run(servers, plan)
    assert [outage.server for outage in happened] == [0, 6]
    assert [outage.server for outage in driver.missed()] == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert driver.late_ns >= 5 * S
    assert servers.most_down == 1


def test_a_server_that_does_not_start_ends_the_plan_and_is_tried_again_at_the_end() -> None:
    servers = FakeServers(fails_at=2)
    plan = [Outage(0, 0, 0, S), Outage(1, 5, 5 * S, 6 * S)]
    with pytest.raises(ServerFailed, match="server-1 did not start"):
        run(servers, plan)
    assert [name for _, name, _ in servers.calls] == ["kill", "restart", "restart"]
    servers = FakeServers(fails_at=2)
    with servers.driver(plan) as driver:
        driver._thread.join()
        assert isinstance(driver.failure, ServerFailed)
        assert driver.is_done
        servers.fails_at, driver.failure = None, None
    assert servers.down == set()
    (outage,) = driver.take()
    assert (outage.server, outage.epoch) == (0, 0)


def test_stopping_early_brings_all_up_but_not_after_an_error() -> None:
    plan = [Outage(0, 0, 0, S), Outage(0, 1, S, 3600 * S), Outage(1, 2, 1800 * S, 3600 * S)]

    def begun(servers: FakeServers) -> OutageDriver:
        servers.now_ns = T0
        return OutageDriver(cast(Servers, servers), plan, "kill", T0, lock=servers.lock, clock=servers.clock)

    def await_kill(servers: FakeServers) -> None:
        deadline = time.monotonic() + 10
        while not servers.down:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    servers = FakeServers()
    began = time.monotonic()
    with begun(servers) as driver:
        await_kill(servers)
        assert not driver.is_done
        servers.now_ns += 2 * S
        assert driver.take() == []
        assert driver.missed() == []
    assert servers.down == set()
    assert driver.take() == [
        RealOutage(0, 0, T0, T0 + S, "kill"),
        RealOutage(0, 1, T0 + S, T0 + 2 * S, "kill"),
    ]
    driver.stop()

    servers = FakeServers()
    with pytest.raises(KeyboardInterrupt), begun(servers) as driver:
        await_kill(servers)
        raise KeyboardInterrupt
    assert servers.down == {0}
    assert driver.take() == [RealOutage(0, 0, T0, T0, "kill")]
    assert driver.missed() == []
    assert time.monotonic() - began < 5


def test_without_outages_nothing_is_done() -> None:
    servers = FakeServers()
    assert run(servers, ())[1] == []
    assert servers.calls == []


def test_others_use_the_servers_only_while_the_conductor_does_not() -> None:
    servers = FakeServers()
    servers.now_ns = T0
    servers.lock.acquire()
    with servers.driver([Outage(0, 0, 0, S)]) as driver:
        driver._thread.join(0.05)
        assert servers.calls == []
        servers.now_ns = T0 + S // 2
        servers.lock.release()
        driver._thread.join(10)
    assert driver.take() == [RealOutage(0, 0, T0 + S // 2, T0 + S, "kill")]
    assert driver.late_ns == S // 2


# --- For real ------------------------------------------------------------------------------------------


def answers(server: Address, timeout_s: float = 0.05) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(timeout_s)
        peer.connect(server)
        try:
            peer.send(b"%~ there".ljust(REQUEST_BYTES_MIN, b"\n"))
            return peer.recv(2048).startswith(b"%: there ")
        except (ConnectionRefusedError, TimeoutError):
            return False


def test_real_servers_go_down_and_come_back() -> None:
    cases: list[By] = ["kill", "stall"]
    for kind in cases:
        with ProcessCluster(2, ttl_s=2) as servers:
            t0_ns, length_ns = time.monotonic_ns() + S // 10, S * 3 // 5
            samples = []
            with OutageDriver(servers, [Outage(1, 0, 0, length_ns)], kind, t0_ns) as driver:
                deadline = time.monotonic() + 20
                while not driver.is_done:
                    assert time.monotonic() < deadline
                    before_ns = time.monotonic_ns()
                    other_is_up, is_up = map(answers, servers.addresses)
                    samples.append((before_ns, time.monotonic_ns(), other_is_up, is_up))
            (outage,) = driver.take()
            assert (outage.server, outage.epoch, outage.kind) == (1, 0, kind)
            assert t0_ns <= outage.t_down_ns < t0_ns + length_ns <= outage.t_up_ns
            down = [
                (other_is_up, is_up)
                for before_ns, after_ns, other_is_up, is_up in samples
                if before_ns > outage.t_down_ns + S // 5 and after_ns < t0_ns + length_ns
            ]
            assert any(other_is_up for other_is_up, _ in down)
            assert not any(is_up for _, is_up in down)
            assert any(is_up for before_ns, *_, is_up in samples if before_ns < t0_ns)
            assert all(answers(address, timeout_s=10.0) for address in servers.addresses)
