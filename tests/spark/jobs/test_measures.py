"""The jobs attribution, latency, balance, cost and health find what load tests find in the same captures.

Captures are of all kinds: random ones that contradict themselves, sound ones with one fault each, simulated
ones.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kcast.loadtest.capture.schema import DUPLICATE, OPENED, STANDING
from kcast.loadtest.results.effective_trials import CLUSTERINGS
from kcast.loadtest.results.health import examine
from kcast.loadtest.results.leg_lines import LEGS
from kcast.loadtest.results.losses import losses_of
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.tables import Columns
from kcast.loadtest.results.verdicts import Health
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import balance as balance_findings
from kcast.spark.findings import cost as cost_findings
from kcast.spark.findings import health as health_findings
from kcast.spark.findings import latency as latency_findings
from kcast.spark.findings import losses as loss_findings
from kcast.spark.findings import reliability
from kcast.spark.findings.draws import size_of
from kcast.spark.findings.placement import Topics
from kcast.spark.jobs import attribution, balance, cost, draws, health, latency, losses
from kcast.spark.jobs.draws import BLOCK
from kcast.spark.jobs.job import KEYS_MAX, VALUES_MAX
from kcast.spark.judging.judge import JOBS as EVERY_JOB
from tests.loadtest.results import test_copy_counts as miscounted
from tests.loadtest.results import test_health as wrong
from tests.support.handmade_capture import MS, T0, S, World, restarted_world, simulate
from tests.support.random_captures import random_world
from tests.support.spark_cells import Captured, as_cells, sums_of, unordered

JOBS = (attribution.JOB, latency.JOB, balance.JOB, cost.JOB, health.JOB, draws.JOB, losses.JOB)
OF_JOBS = {name for job in JOBS for name in job.sums}
RANDOM_SEEDS = (1, 6, 11, 12, 14, 47)
WRONG = (
    *(wrong.partial, wrong.not_published, wrong.published_outside_of_its_window, wrong.rows_lost),
    *(wrong.tap_lines_lost, wrong.server_ended_by_itself, wrong.unexplained, wrong.overflow),
    *(wrong.unexplained_on_paths_that_others_made_up_for, wrong.too_late, wrong.nobody_took_it),
    *(wrong.part_of_publish_lost, wrong.clock_of_a_server_behind, wrong.outage_that_was_not),
    *(wrong.lag_against_the_ttl, wrong.lag_before_and_after, wrong.killed_and_back, wrong.nothing_intended),
)
MISCOUNTED = (*miscounted.TAMPERED, miscounted.unchanged, miscounted.late_copies_of_warm_ups)
Row = dict[str, Any]


def restarting_counters(world: World) -> None:
    for second, drops in enumerate((3, 3, 5, 1, 4)):
        world.add("server_stat", server_id=9, t_ns=T0 + second * S, kernel_drops=drops)
        world.add("client_stat", client_id=200 + second, t_ns=T0, send_errors=drops, kernel_drops=1)
        world.add("process_stat", process="b", t_ns=T0 + second * S, rows_lost=drops)
    world.add("clock", process="b", t_ns=T0, error_ns=-3 * MS)
    world.add("member", client_id=300, pub_id=0, sub_id=-1, port=1, publisher="AAA", servers=[])
    world.add("sighting", sub_id=0, t_ns=T0, what="limited", name="AAA")


def no_windows(world: World) -> None:
    world.rows["window"].clear()


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> list[Captured]:
    folder = tmp_path_factory.mktemp("captures")
    worlds: list[World] = []
    for seed in RANDOM_SEEDS:
        worlds.append(random_world(folder / f"random-{seed}", random.Random(seed)))
    for change in (*WRONG, restarting_counters, no_windows):
        world = wrong.sound_world(folder / change.__name__)
        change(world)
        worlds.append(world)
    for tampering in MISCOUNTED:
        world = miscounted.counting_world(folder / f"miscounted-{tampering.__name__}")
        tampering(world)
        worlds.append(world)
    worlds.append(restarted_world(folder / "restarted", 4 * BLOCK))
    folders = [world.folder() for world in worlds]
    short: dict[str, Any] = {
        "duration_s": 4.0,
        "rate": 50.0,
        "servers": 12,
        "epoch_s": 0.5,
        "topics_per_subscriber": 5,
    }
    for number, fields in enumerate(
        (
            {"outages": "independent", "outage": 0.2, "loss_in": 0.05, "loss_out": 0.05},
            {"side": "subscribe", "k": 4, "k_prime": 2},
        )
    ):
        folders.append(simulate(folder / f"simulated-{number}", Scenario(**short | fields), seed=number))
    return as_cells(folders)


@pytest.fixture(scope="module")
def every_sum(captured: list[Captured]) -> dict[str, list[Row]]:
    """The sums of all jobs, each capture in one part."""
    return sums_of(each.part() for each in captured)


@pytest.fixture(scope="module")
def sums(captured: list[Captured], every_sum: dict[str, list[Row]]) -> dict[str, list[Row]]:
    return {name: rows for name, rows in every_sum.items() if name in OF_JOBS} | {
        "clusterings": clusters(captured)
    }


def clusters(captured: Sequence[Captured]) -> list[Row]:
    """The sums of the reliability job, from numpy's results, over the clusters that load tests know."""
    rows = []
    for each in captured:
        found, cell = each.attribution, each.cell
        epochs = (found.t_intended_ns - cell.t0_ns) // round(cell.scenario.epoch_s * 1e9)
        topics = found.topics.astype(np.int64)
        keys = {
            "message": found.msg_ids,
            "topic, subscriber and epoch": (epochs << 48) + (topics << 32) + found.sub_ids,
            "topic and epoch": epochs * (1 + int(topics.max(initial=0))) + topics,
            "epoch": epochs,
            "topic": topics,
            "subscriber": found.sub_ids,
            "publisher": found.msg_ids >> 32,
        }
        for name in CLUSTERINGS:
            numbers = np.unique(keys[name], return_inverse=True)[1]
            n = np.bincount(numbers)
            x = np.bincount(numbers[found.delivered], minlength=len(n))
            sums = {"pairs": n, "delivered": x, "squares": n * n, "products": n * x, "success_squares": x * x}
            totals = {key: int(values.sum()) for key, values in sums.items()}
            rows.append({"cell": cell.number, "clustering": name, "clusters": len(n), **totals})
    return rows


def test_times_are_those_of_load_tests(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    found = latency_findings.times(sums)
    assert any(since == "sent" for _, since in found)
    for each in captured:
        attribution, publish = (
            each.attribution,
            each.columns("publish", "msg_id", "t_intended_ns", "t_send_ns"),
        )
        sent = dict(zip(publish["msg_id"].tolist(), publish["t_send_ns"].tolist(), strict=True))
        delivered = attribution.delivered
        latencies = attribution.latencies_ns[delivered]
        msgs, at = attribution.msg_ids[delivered].tolist(), attribution.t_intended_ns[delivered]
        expected = {
            "intended": latencies,
            "sent": latencies + at - np.array([sent[msg] for msg in msgs], dtype=np.int64),
            "delay": publish["t_send_ns"] - publish["t_intended_ns"],
        }
        for since, times_ns in expected.items():
            got = found.get((each.cell.number, since), Percentiles())
            want = Percentiles.of(times_ns)
            assert asdict(got) == {name: getattr(want, name) for name in asdict(got)}, (each.cell, since)


def test_health_is_that_of_load_tests(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    found = health_findings.healths([each.cell for each in captured], sums)
    for each in captured:
        assert found[each.cell.number] == examine(each.capture), each.cell
    # Each figure has more than one value.
    sound = Health(0, 0, 0, 0, 0.0, 0.0, 0, 0, 0, 0)
    for name in sound.as_json():
        assert len({getattr(health, name) for health in found.values()}) > 1, name


def test_verdicts_are_those_of_load_tests(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    rows = health_findings.tables([each.cell for each in captured], sums)["health"]
    seen: Counter[str] = Counter()
    for each in captured:
        summary = each.summary
        for what, verdict in (("delivery", summary.delivery_verdict), ("latency", summary.latency_verdict)):
            reasons = [
                row["reason"] for row in rows if (row["cell"], row["what"]) == (each.cell.number, what)
            ]
            assert tuple(reasons) == verdict.reasons, each.cell
            seen[f"{what} {verdict.valid}"] += 1
    assert len(seen) == 4, seen
    assert health_findings.invalid(rows) == {row["cell"] for row in rows if row["what"] == "delivery"}


def test_theories_are_those_of_load_tests(captured: list[Captured], every_sum: dict[str, list[Row]]) -> None:
    rows = reliability.tables([each.cell for each in captured], every_sum)["reliability"]
    names = ("beforehand", "given_events", "given_events_low", "given_events_high")
    told = 0
    for each, row in zip(captured, rows, strict=True):
        of = each.summary
        expected = (of.predicted, of.expected, of.expected_low, of.expected_high)
        assert tuple(row[name] for name in names) == expected, each.cell
        if of.expected is not None and of.expected_low is not None:
            told += of.expected_low < of.expected
    assert told >= 8


def test_lost_lines_are_those_of_load_tests(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    cells = [each.cell for each in captured]
    found = loss_findings.losses_of(cells, sums)
    rows = {(row["cell"], row["leg"]): row for row in loss_findings.tables(cells, sums)["losses"]}
    for each in captured:
        expected = losses_of(each.attribution, each.cell.t0_ns, each.cell.scenario)
        assert found[each.cell.number] == expected, each.cell
        for number, leg in expected.legs.items():
            row = rows[each.cell.number, LEGS[number]]
            for what, lines, rate in (
                ("", "lines", leg.rate),
                ("after_", "after", leg.after),
                ("others_", "others", leg.together),
            ):
                told = (row[lines], row[f"{what}lost"], row[f"{what}share"])
                assert told == ((0, 0, None) if rate is None else (rate.lines, rate.lost, rate.share))
    assert sum(each.is_there for each in found.values()) > 5


def test_pairs_by_cause(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    found = cost_findings.fates(sums)
    for each in captured:
        fates, attribution, summary = found[each.cell.number], each.attribution, each.summary
        assert fates.misses == attribution.misses
        assert list(fates.misses) == list(attribution.misses)
        assert fates.paths == attribution.paths
        assert (fates.pair_count, fates.delivered) == (len(attribution), int(attribution.delivered.sum()))
        assert (fates.copies, fates.duplicates) == (summary.copies, summary.duplicates)


def test_what_servers_did(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    found = balance_findings.servers_of([each.cell for each in captured], sums)
    for each in captured:
        rx = each.columns("server_rx", "server_id", "msg_id")
        received = Counter(rx["server_id"][rx["msg_id"] >= 0].tolist())
        deliver = each.columns("deliver", "server_id", "injected")
        forwarded = Counter(deliver["server_id"][deliver["injected"] != DUPLICATE].tolist())
        lease = each.columns("lease", "server_id", "sub_id", "topic_id", "change")
        stands = np.isin(lease["change"], (OPENED, STANDING)) & (lease["sub_id"] >= 0)
        held = zip(
            *(lease[name][stands].tolist() for name in ("server_id", "sub_id", "topic_id")), strict=True
        )
        leases = Counter(server for server, _, _ in set(held))
        alive = set(each.columns("server_life", "server_id")["server_id"].tolist())
        rows = found[each.cell.number]
        assert [row["server_id"] for row in rows] == sorted(alive | {*received, *forwarded, *leases})
        for row in rows:
            server = row["server_id"]
            got = (row["received"], row["forwarded"], row["leases"])
            assert got == (received[server], forwarded[server], leases[server]), each.cell
        up_ns = [row["up_ns"] for row in rows]
        assert up_ns == _up_ns(each, [row["server_id"] for row in rows])


def _up_ns(each: Captured, servers: list[int]) -> list[int | None]:
    window = each.columns("window", "t_from_ns", "t_to_ns")
    if not len(window["t_from_ns"]):
        return [None] * len(servers)
    begin, end = int(window["t_from_ns"].min()), int(window["t_to_ns"].max())
    outage = each.columns("outage", "server_id", "t_down_ns", "t_up_ns", "kind")
    up = dict.fromkeys(servers, end - begin)
    for server, down, again, kind in zip(*(outage[name].tolist() for name in outage), strict=True):
        if server in up and kind != "stall":
            up[server] -= max(0, min(again, end) - max(down, begin))
    return [max(0, up[server]) for server in servers]


def test_topics(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    rows = {row["cell"]: row for row in sums["topics"]}
    for each in captured:
        n = Counter(each.columns("publish", "topic_id")["topic_id"].tolist())
        intent = each.columns("intent", "topic_id", "sub_id")
        s = Counter(topic for topic, _ in set(zip(*(intent[name].tolist() for name in intent), strict=True)))
        topics = [(n[topic], s[topic]) for topic in {*n, *s}]
        expected = Topics.of(topics)._asdict() | {"topics": len(topics)}
        row = rows.get(each.cell.number, dict.fromkeys(expected, 0))
        assert {name: int(row[name]) for name in expected} == expected, each.cell


def test_what_was_sent(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    totals = {row["cell"]: row for row in sums["cost"]}
    for each in captured:
        total = totals[each.cell.number]
        publish = each.columns("publish", "size_bytes", "t_intended_ns")
        window = each.columns("window", "t_from_ns", "t_to_ns")
        assert total["messages"] == len(publish["size_bytes"])
        assert total["message_bytes"] == int(publish["size_bytes"].sum())
        tx, asked = each.columns("pub_tx", "injected"), each.columns("subscribe", "injected", "t_tx_ns")
        assert total["sendings"] == int((tx["injected"] != DUPLICATE).sum())
        end = int(max(window["t_to_ns"].max(initial=0), publish["t_intended_ns"].max(initial=0)))
        during = (asked["t_tx_ns"] >= each.cell.t0_ns) & (asked["t_tx_ns"] < end)
        assert total["renewals"] == int((during & (asked["injected"] != DUPLICATE)).sum())
    assert any(total["renewals"] for total in totals.values())


def test_parts_and_orders_of_rows_change_nothing(
    captured: list[Captured], every_sum: dict[str, list[Row]]
) -> None:
    rng = np.random.default_rng(1)

    def some(number: int) -> Callable[[Columns], Any]:
        """Half of the blocks of messages, in another order."""

        def chosen(table: Columns) -> Any:
            rows = np.flatnonzero((table["msg_id"] // BLOCK * 2654435761 >> 13) % 2 == number)
            return rng.permutation(rows)

        return chosen

    halves = sums_of(each.part(some(number)) for number in (1, 0) for each in captured)
    assert unordered(halves) == unordered(every_sum)


def plain_draws(each: Captured) -> dict[str, dict[str, int]]:
    """The sums `draws` of a capture, by walking through its rows."""
    scenario = each.cell.scenario
    publish = each.columns("publish", "msg_id", "pub_id", "topic_id", "t_intended_ns")
    messages = {row[0]: row[1:] for row in zip(*(publish[name].tolist() for name in publish), strict=True)}
    sent: dict[int, set[int]] = defaultdict(set)
    tx = each.columns("pub_tx", "msg_id", "server_id", "injected")
    for msg, server, fate in zip(*(tx[name].tolist() for name in tx), strict=True):
        if msg in messages and server >= 0 and fate != DUPLICATE:
            sent[msg].add(server)
    asked: dict[tuple[int, int], set[int]] = defaultdict(set)
    subscribe = each.columns("subscribe", "topic_id", "sub_id", "server_id")
    for topic, sub, server in zip(*(subscribe[name].tolist() for name in subscribe), strict=True):
        asked[topic, sub].add(server)
    places: dict[int, set[int]] = defaultdict(set)
    for msg, servers in sent.items():
        places[messages[msg][1]] |= servers
    for (topic, _), servers in asked.items():
        places[topic] |= servers
    of_messages = {msg: (messages[msg][0], messages[msg][1]) for msg in sent}
    groups: dict[str, list[tuple[Any, set[int]]]] = {
        "topic": [(of_messages[msg][1], servers) for msg, servers in sent.items()],
        "publisher": [(of_messages[msg], servers) for msg, servers in sent.items()],
        "placement": [(0, servers) for servers in places.values()],
        "subscriber": [(topic, servers) for (topic, _), servers in asked.items()],
    }
    found = {}
    for what, drawn in groups.items():
        size = size_of(scenario, what)
        of_group: dict[Any, list[set[int]]] = defaultdict(list)
        for group, servers in drawn:
            if len(servers) == size:
                of_group[group].append(servers)
        counts = [len(kept) for kept in of_group.values()]
        taken = [Counter(server for servers in kept for server in servers) for kept in of_group.values()]
        found[what] = {
            **{"size": size, "draws": sum(counts), "others": len(drawn) - sum(counts)},
            **{"squares": sum(n**2 for n in counts), "cubes": sum(n**3 for n in counts)},
            "common": sum(n**2 for each in taken for n in each.values()),
        }
    size, pairs, common = size_of(scenario, "next"), 0, 0
    in_order = sorted(messages, key=lambda msg: (messages[msg][:2], msg // BLOCK, messages[msg][2], msg))
    for one, other in pairwise(in_order):
        is_next = (messages[one][:2], one // BLOCK) == (messages[other][:2], other // BLOCK)
        if is_next and len(sent[one]) == len(sent[other]) == size:
            pairs, common = pairs + 1, common + len(sent[one] & sent[other])
    of_next = {"size": size, "draws": pairs, "squares": 0, "cubes": 0, "common": common}
    found["next"] = of_next | {"others": found["topic"]["others"]}
    return found


def test_draws(captured: list[Captured], sums: dict[str, list[Row]]) -> None:
    rows = {(row["cell"], row["what"]): row for row in sums["draws"]}
    assert rows
    for each in captured:
        for what, expected in plain_draws(each).items():
            row = rows.get((each.cell.number, what))
            if row is not None:
                assert {name: row[name] for name in expected} == expected, (each.cell, what)
    assert {what for _, what in rows} == {"placement", "topic", "publisher", "next", "subscriber"}
    assert max(row["draws"] for row in rows.values()) > 100


def test_kinds_of_counts_have_numbers_of_their_own() -> None:
    kinds = [kind for job in EVERY_JOB for kind in job.kinds]
    assert len({kind.number for kind in kinds}) == len(kinds)
    assert all(kind.number < 1 << 7 for kind in kinds)
    assert all(len(kind.keys) <= KEYS_MAX and len(kind.values) <= VALUES_MAX for kind in kinds)
