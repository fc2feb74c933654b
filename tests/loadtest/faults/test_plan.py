"""loadtest/faults/plan.py: outages and views that follow from a scenario, and what they are drawn from."""

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from math import sqrt
from random import Random

import pytest

from kcast.client.cluster import lab
from kcast.client.clusters.view import View
from kcast.hashring.policy import Policy
from kcast.loadtest.faults.plan import DownTimes, Outage, known_servers, outages, view_of
from kcast.loadtest.load.grid import PRESETS, expand
from kcast.loadtest.results.prediction import share_down
from kcast.loadtest.scenario import Outages, Scenario, ScenarioError

S = 1_000_000_000
SEEDED: tuple[Outages, ...] = ("independent", "exact", "zones")
SHARES: tuple[Outages, ...] = ("independent", "zones")


def scenario(plan: Outages = "independent", **values: object) -> Scenario:
    base = Scenario(servers=50, outages=plan, outage=0.1, down=7, zones=5, duration_s=200.0, epoch_s=2.0)
    return base.with_(**values)


def by_epoch(plan: tuple[Outage, ...]) -> dict[int, set[int]]:
    epochs: dict[int, set[int]] = {}
    for outage in plan:
        epochs.setdefault(outage.epoch, set()).add(outage.server)
    return epochs


def pairs(plan: tuple[Outage, ...]) -> set[tuple[int, int]]:
    return {(outage.server, outage.epoch) for outage in plan}


def test_outages_lie_on_the_grid_of_epochs_sorted_and_within_the_duration() -> None:
    for plan in [*SEEDED, "rolling"]:
        found = outages(scenario(plan, duration_s=9.5))
        assert list(found) == sorted(found, key=lambda outage: (outage.from_ns, outage.server))
        assert len(pairs(found)) == len(found) > 0
        for outage in found:
            assert outage.from_ns == 2 * S * outage.epoch
            assert outage.to_ns == min(outage.from_ns + 2 * S, 9_500_000_000)
        assert max(outage.epoch for outage in found) == 4


def test_mute_servers_are_so_until_the_last_deadline() -> None:
    found = outages(scenario("exact", down=8, servers=16, by="mute", epoch_s=1e5, deadline_s=4.5))
    assert {(outage.from_ns, outage.to_ns) for outage in found} == {(0, 204_500_000_000)}
    assert len(pairs(found)) == 8


def test_none_and_a_share_of_nothing_have_no_outages() -> None:
    assert outages(scenario("none", outage=1.0, down=9)) == ()
    assert outages(scenario("independent", outage=0.0)) == outages(scenario("zones", outage=0.0)) == ()
    assert outages(scenario("exact", down=0)) == ()


def test_a_share_of_all_downs_all_all_the_time() -> None:
    for plan in SHARES:
        assert len(outages(scenario(plan, outage=1.0))) == 50 * 100


def test_independent_outages_are_a_coin_for_each_server_and_epoch() -> None:
    found = pairs(outages(scenario(duration_s=2000.0)))
    n, p = 50 * 1000, 0.1
    assert abs(len(found) - n * p) < 5 * sqrt(n * p * (1 - p))
    # Neither neighbours in time nor neighbours in number go down together more often than chance has it.
    for step in ((0, 1), (1, 0), (1, 1)):
        both = sum((server + step[0], epoch + step[1]) in found for server, epoch in found)
        assert abs(both - n * p * p) < 6 * sqrt(n * p * p), step
    # How many are down at a time spreads as it does for independent ones.
    counts = [len(servers) for servers in by_epoch(tuple(outages(scenario(duration_s=2000.0)))).values()]
    counts += [0] * (1000 - len(counts))
    variance = sum((count - 5) ** 2 for count in counts) / 1000
    assert abs(variance - 50 * p * (1 - p)) < 1.0


def test_presets_have_as_many_outages_as_they_plan_with_any_seed() -> None:
    scenarios = [each for name in PRESETS for each in expand(PRESETS[name].parts, {}).scenarios]
    plans = {one.with_(name="", k=1, k_prime=1, scheme="CH", duration_s=8.0) for one in scenarios}
    for one in plans:
        units, seen = one.outage_units, set()
        planned = share_down(one) * units * one.epochs
        for seed in range(25):
            found = {(each.server % units, each.epoch) for each in outages(one.with_(seed=seed))}
            seen.add(len(found))
        assert all(abs(count - planned) < 1 for count in seen) or one.outages == "none", (one, seen)
        if one.stratified:
            assert len({outages(one.with_(seed=seed)) for seed in range(25)}) > 3  # when and which is random


def test_exact_outages_down_just_so_many_at_any_time_and_all_alike() -> None:
    found = outages(scenario("exact", duration_s=2000.0))
    epochs = by_epoch(found)
    assert len(epochs) == 1000
    assert {len(servers) for servers in epochs.values()} == {7}
    times = Counter(outage.server for outage in found)
    assert len(times) == 50
    assert all(abs(times[server] - 140) < 5 * sqrt(1000 * 0.14 * 0.86) for server in range(50))
    # Drawn anew: of 7 of 50, about one is drawn again.
    again = sum(len(a & b) for a, b in pairwise(epochs.values())) / 999
    assert abs(again - 7 * 7 / 50) < 0.15
    down = DownTimes(found, t0_ns=17)
    rng = Random(5)
    assert all(len(down.down_at(17 + rng.randrange(2000 * S))) == 7 for _ in range(500))


def test_zones_go_down_whole() -> None:
    epochs = by_epoch(outages(scenario("zones", duration_s=2000.0)))
    zones_down = 0
    for servers in epochs.values():
        zones = {server % 5 for server in servers}
        assert servers == {server for server in range(50) if server % 5 in zones}
        zones_down += len(zones)
    assert abs(zones_down - 500) < 5 * sqrt(5000 * 0.1 * 0.9)


def test_more_zones_than_servers_are_servers() -> None:
    found = outages(scenario("zones", servers=3, zones=9, outage=1.0, duration_s=2.0))
    assert [outage.server for outage in found] == [0, 1, 2]


def test_rolling_takes_one_after_the_other_and_begins_again() -> None:
    found = outages(scenario("rolling", servers=3, duration_s=9.0))
    assert [(outage.server, outage.epoch) for outage in found] == [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4)]
    assert all(a.to_ns == b.from_ns for a, b in pairwise(found))


def test_the_seed_decides() -> None:
    for plan in SEEDED:
        base = scenario(plan, duration_s=20.0)
        assert outages(base) == outages(base.with_(rate=3.0, k_prime=1, loss_in=0.5))
        assert outages(base) != outages(base.with_(seed=2))


def test_scenarios_that_differ_in_one_number_have_their_luck_in_common() -> None:
    for plan in SEEDED:
        short, long = outages(scenario(plan, duration_s=40.0)), outages(scenario(plan, duration_s=80.0))
        assert short == long[: len(short)]
    for plan in SHARES:
        few, many = pairs(outages(scenario(plan))), pairs(outages(scenario(plan, outage=0.3)))
        assert few < many
    assert pairs(outages(scenario("exact"))) < pairs(outages(scenario("exact", down=8)))
    small, large = outages(scenario()), outages(scenario(servers=60))
    assert small == tuple(outage for outage in large if outage.server < 50)
    assert set(known_servers(scenario(known=0.3), 4)) < set(known_servers(scenario(known=0.5), 4))


def test_another_process_draws_the_same() -> None:
    program = (
        "from kcast.loadtest.scenario import Scenario\n"
        "from kcast.loadtest.faults.plan import outages, known_servers\n"
        "s = Scenario(servers=50, outages='independent', outage=0.1, duration_s=10.0, known=0.5)\n"
        "print([tuple(o) for o in outages(s)], known_servers(s, 3))"
    )
    said = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True).stdout
    same = scenario(duration_s=10.0, known=0.5)
    assert said.strip() == f"{[tuple(outage) for outage in outages(same)]} {known_servers(same, 3)}"


def test_epochs_too_many_to_plan_are_refused() -> None:
    with pytest.raises(ScenarioError, match="give a longer one"):
        outages(scenario(duration_s=1e5, epoch_s=1e-4))


# --- DownTimes -----------------------------------------------------------------------------------------


def test_down_times_of_overlapping_adjacent_and_empty_outages() -> None:
    plan = [
        Outage(1, 0, 10, 20),
        Outage(1, 1, 20, 30),
        Outage(2, 0, 15, 25),
        Outage(1, 1, 18, 22),
        Outage(3, 0, 5, 5),
    ]
    Random(1).shuffle(plan)
    down = DownTimes(plan, t0_ns=1000)
    expected = {
        1009: (),
        1010: (1,),
        1014: (1,),
        1015: (1, 2),
        1024: (1, 2),
        1025: (1,),
        1029: (1,),
        1030: (),
    }
    for now_ns, servers in expected.items():
        assert down.down_at(now_ns) == set(servers), now_ns
        assert [server for server in range(5) if down.is_down(server, now_ns)] == list(servers)
    # Where nothing changes nothing is told: not at 1018, 1020, 1022.
    changes, now = [], 0
    while (change := down.next_change_ns(now)) is not None:
        changes.append(now := change)
    assert changes == [1010, 1015, 1025, 1030]


def test_down_times_agree_with_the_plan() -> None:
    plan, t0_ns = outages(scenario(duration_s=20.0, epoch_s=0.7)), 12_345_678_901_234
    down, rng = DownTimes(plan, t0_ns), Random(3)
    for _ in range(2000):
        at, server = rng.randrange(-S, 21 * S), rng.randrange(50)
        is_down = any(o.server == server and o.from_ns <= at < o.to_ns for o in plan)
        assert down.is_down(server, t0_ns + at) == is_down, (server, at)
    assert not DownTimes((), 0).is_down(0, 0)
    assert DownTimes((), 0).next_change_ns(0) is None


# --- Views ---------------------------------------------------------------------------------------------


def test_clients_know_so_many_servers_each_its_own() -> None:
    few = scenario(known=0.3)
    views = [known_servers(few, client) for client in range(400)]
    assert all(len(view) == 15 and list(view) == sorted(set(view)) for view in views)
    assert all(0 <= server < 50 for view in views for server in view)
    assert views == [known_servers(few, client) for client in range(400)]
    # What one knows is known to another with that probability.
    common = sum(len(set(a) & set(b)) for a, b in pairwise(views)) / (399 * 15)
    assert abs(common - 0.3) < 0.02
    times = Counter(server for view in views for server in view)
    assert all(abs(times[server] - 120) < 5 * sqrt(400 * 0.3 * 0.7) for server in range(50))


def test_how_many_a_client_knows() -> None:
    for known, count in [(1.0, 50), (0.999, 50), (0.5, 25), (0.001, 1)]:
        assert len(known_servers(scenario(known=known), 0)) == count


def test_a_view_is_the_cluster_with_fewer_servers() -> None:
    cluster = lab([("127.0.0.1", 7000 + number) for number in range(10)], Policy(5, 3, 5))
    seen = view_of(cluster, (1, 4, 9))
    assert seen.servers == (cluster.servers[1], cluster.servers[4], cluster.servers[9])
    assert (seen.policy, seen.salt, seen.is_lab) == (cluster.policy, cluster.salt, True)
    # With fewer than k, a topic lies on all of them.
    assert set(View(seen).servers(b"load/000001")) == set(seen.servers)
    assert view_of(cluster, range(10)) == cluster
