"""Lines of cover traffic leave on their tick, never before it, in both drivers: by a real server."""

import asyncio
import threading
import time
from typing import Any

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from kcast.client import aio, blocking
from kcast.client.cluster import Cluster, lab
from kcast.client.driving import engine, engine_thread
from kcast.client.driving.ticker import Ticker
from kcast.client.sealed.cover import LEAD_S
from kcast.client.sealed.membership import Group
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.groups import ALICE, OWNER
from tests.support.observer_relay import Observer
from tests.support.sealed_lines import epoch

pytestmark = pytest.mark.world

ONE = Policy(1, 1, 1)
RATE = 10.0  # a line that is late by all of a tick would look early
LINES = 12
CLOCKS_S = 0.0005  # between the wall clock and that of the ticks


def group() -> Group:
    return Group("ops", OWNER.note_key.verifier, (epoch(),), 4_000_000_000)


async def in_asyncio(cluster: Cluster) -> float:
    async with aio.Client(cluster, identity=ALICE, group=group()) as client:
        cover = client.cover("t", rate=RATE, size=100)
        await asyncio.sleep(LINES / RATE)
        return start_of(cover)


def in_threads(cluster: Cluster) -> float:
    with blocking.Client(cluster, identity=ALICE, group=group()) as client:
        cover = client.cover("t", rate=RATE, size=100)
        time.sleep(LINES / RATE)
        return start_of(cover)


def start_of(cover: Any) -> float:
    """When its first tick was, by the wall clock."""
    return float(cover._cover.schedule._start) + time.time() - time.monotonic()


@pytest.mark.parametrize("driver", ["asyncio", "threads"])
def test_no_line_leaves_before_its_tick(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made before, and the processor rests until then."""
    starts: list[float] = []
    rests_s: list[float] = []

    def rest(for_s: float) -> None:
        rests_s.append(for_s)
        time.sleep(for_s)

    monkeypatch.setattr(engine, "sleep", rest)
    with ProcessCluster(1, ttl_s=60) as processes:
        (server,) = processes.cluster(ONE).servers
        observer = Observer(server.addresses[0])
        cluster = lab([observer.front.getsockname()], ONE)

        def client() -> None:
            starts.append(asyncio.run(in_asyncio(cluster)) if driver == "asyncio" else in_threads(cluster))

        thread = threading.Thread(target=client)
        thread.start()
        with observer.front:
            seen = observer.relay(lambda: not thread.is_alive())
    lines = [each.at_s for each in seen if each.is_line][1:]  # the first one waits for a cookie
    after_tick_s = [(at_s - starts[0] + LEAD_S) % (1 / RATE) - LEAD_S for at_s in lines]
    assert len(after_tick_s) >= LINES / 2
    assert min(after_tick_s) > -CLOCKS_S, after_tick_s
    assert len(rests_s) >= LINES / 2 and 0 < max(rests_s) <= LEAD_S


@pytest.mark.parametrize("driver", ["asyncio", "threads"])
def test_both_drivers_are_woken_more_exactly_than_by_a_timer(
    driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays_s: list[float | None] = []

    class Noting(Ticker):
        def wake_in(self, delay_s: float | None) -> None:
            delays_s.append(delay_s)
            super().wake_in(delay_s)

    monkeypatch.setattr(aio if driver == "asyncio" else engine_thread, "Ticker", Noting)
    with ProcessCluster(1, ttl_s=60) as processes:
        cluster = processes.cluster(ONE)
        asyncio.run(in_asyncio(cluster)) if driver == "asyncio" else in_threads(cluster)
    assert sum(delay_s is not None and delay_s < 1 / RATE for delay_s in delays_s) >= LINES / 2
