"""loadtest/load/server_watch.py: figures each second, faults at their times, with stand-ins for servers."""

import threading
import time
from collections.abc import Mapping
from typing import Any, cast

import pytest

from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.clusters.servers import ServerFailed, Servers, ServerStat
from kcast.loadtest.load import server_watch
from kcast.loadtest.load.server_watch import ServerWatch
from kcast.loadtest.scenario import Scenario
from tests.support.waiting import wait_until

WAIT_S = 10.0
KILLS = Scenario(servers=4, outages="exact", down=1, by="kill", epoch_s=0.2, duration_s=0.6, ttl_s=2)


class FakeServers:
    """Notes what is done to it, and complains of two threads at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done: list[tuple[str, tuple[int, ...]]] = []
        self.fail_on = ""
        self.start_s = 0.0
        self._busy = threading.Lock()

    def _do(self, what: str, indexes: tuple[int, ...]) -> None:
        assert self._busy.acquire(blocking=False), "two threads at a time"
        try:
            self.done.append((what, indexes))
            time.sleep(0.005)  # long enough for another thread to come
            if what == self.fail_on:
                raise ServerFailed(f"{what} failed")
            if what == "restart":
                time.sleep(self.start_s)
        finally:
            self._busy.release()

    def kill(self, *indexes: int) -> None:
        self._do("kill", indexes)

    def restart(self, *indexes: int) -> None:
        self._do("restart", indexes)

    stall = resume = isolate = rejoin = kill

    def stats(self) -> list[ServerStat]:
        self._do("stats", ())
        return [ServerStat(number, 2, 3, 4) for number in range(self.count)]


class FakeWriter:
    """Keeps rows, which must be as the schema has them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {"server_stat": [], "outage": []}

    def append(self, table: str, columns: Mapping[str, Any]) -> None:
        assert set(columns) == {column.name for column in TABLES[table]}
        for values in zip(*columns.values(), strict=True):
            self.rows[table].append(dict(zip(columns, values, strict=True)))


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> FakeServers:
    monkeypatch.setattr(server_watch, "EVERY_S", 0.01)
    return FakeServers(4)


@pytest.fixture
def writer() -> FakeWriter:
    return FakeWriter()


def tend(servers: FakeServers, scenario: Scenario, writer: FakeWriter) -> ServerWatch:
    return ServerWatch(cast(Servers, servers), scenario, cast(CaptureWriter, writer))


def test_figures_of_all_servers_are_written_again_and_again(servers: FakeServers, writer: FakeWriter) -> None:
    with tend(servers, Scenario(servers=4), writer) as tended:
        tended.begin_faults(time.monotonic_ns())
        wait_until(lambda: len(writer.rows["server_stat"]) >= 8)
        tended.check()
    rows = writer.rows["server_stat"]
    assert [row["server_id"] for row in rows[:8]] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert (rows[1]["cpu_ns"], rows[1]["rss_bytes"]) == (1, 2)
    assert (rows[1]["kernel_drops"], rows[1]["queue_bytes"]) == (3, 4)
    assert writer.rows["outage"] == []
    assert {what for what, _ in servers.done} == {"stats"}


def test_isolation_is_left_to_the_clients(servers: FakeServers, writer: FakeWriter) -> None:
    with tend(servers, KILLS.with_(by="isolation"), writer) as tended:
        tended.begin_faults(time.monotonic_ns())
    assert {what for what, _ in servers.done} <= {"stats"}


def test_servers_are_killed_as_planned_and_all_run_in_the_end(
    servers: FakeServers, writer: FakeWriter
) -> None:
    with tend(servers, KILLS, writer) as tended:
        t0_ns = time.monotonic_ns() + 20_000_000
        tended.begin_faults(t0_ns)
        wait_until(lambda: time.monotonic_ns() > t0_ns + 700_000_000)
        tended.check()
    assert tended.shortfall() == ""
    down = [indexes for what, indexes in servers.done if what == "kill"]
    up = [indexes for what, indexes in servers.done if what == "restart"]
    assert sorted(down) == sorted(up)
    rows = writer.rows["outage"]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert {(row["kind"], row["plan"]) for row in rows} == {("kill", "exact")}
    for row in rows:
        assert t0_ns <= row["t_down_ns"] < row["t_up_ns"]


def test_outages_that_were_skipped_are_told(servers: FakeServers, writer: FakeWriter) -> None:
    servers.start_s = 0.5
    seeded = KILLS.with_(epoch_s=0.1)
    with tend(servers, seeded, writer) as tended:
        tended.begin_faults(time.monotonic_ns())
        time.sleep(0.7)
    assert "of 6 planned outages did not happen" in tended.shortfall()
    assert "an --epoch longer than 0.1 s" in tended.shortfall()


@pytest.mark.parametrize("what", ["stats", "kill"])
def test_what_goes_wrong_is_told_to_who_asks(servers: FakeServers, writer: FakeWriter, what: str) -> None:
    servers.fail_on = what

    def run() -> None:
        with tend(servers, KILLS, writer) as tended:
            tended.begin_faults(time.monotonic_ns())
            for _ in range(1000):
                tended.check()
                time.sleep(0.01)

    with pytest.raises(ServerFailed, match=f"{what} failed"):
        run()


def test_after_an_error_nobody_waits_for_servers_to_come_up(servers: FakeServers, writer: FakeWriter) -> None:
    with pytest.raises(KeyboardInterrupt), tend(servers, KILLS, writer) as tended:
        tended.begin_faults(time.monotonic_ns())
        wait_until(lambda: any(what == "kill" for what, _ in servers.done))
        raise KeyboardInterrupt
    assert servers.done[-1][0] != "restart"
    assert len(writer.rows["outage"]) >= 1
