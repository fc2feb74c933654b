"""What became of each pair is the same in Spark as in numpy, and as row by row, however rows are spread.

Captures are cells of one DataFrame: random ones that contradict themselves, and simulated ones.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.capture.schema import DUPLICATE, LOST, OPENED, PASSED, STANDING
from kcast.loadtest.results.causes import EDGE_NS, TAP_UNWRITTEN_NS, Cause
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import attribution as findings
from kcast.spark.jobs import attribution
from kcast.spark.walk import server_sets
from kcast.spark.walk.pairs import PAIRS, PATHS, Attributed, attribute
from tests.support.big_capture import big_scenario, write_scenario
from tests.support.broken_attributions import BROKEN
from tests.support.handmade_capture import MS, T0, S, World, simulate
from tests.support.random_captures import Oracle, random_world
from tests.support.spark_cells import Captured, Row, as_cells, sources, sums_of

pytestmark = pytest.mark.spark

SEEDS = range(16)
SPREAD_SEED = 1


def by_pair(found: Attributed) -> dict[tuple[int, int, int], Row]:
    rows = [row.asDict() for row in found.pairs.collect()]
    keyed = {(row["cell"], row["msg_id"], row["sub_id"]): row for row in rows}
    assert len(keyed) == len(rows), "a pair stands in several rows"
    return keyed


def by_cause(found: Attributed) -> dict[tuple[int, Cause], int]:
    return {(row["cell"], Cause(row["cause"])): row["paths"] for row in found.paths.collect()}


def assert_as_numpy(found: Attributed, captured: Sequence[Captured]) -> None:
    pairs, paths = by_pair(found), by_cause(found)
    expected: dict[tuple[int, int, int], Row] = {}
    for each in captured:
        for row in each.pairs().to_pylist():
            expected[row["cell"], row["msg_id"], row["sub_id"]] = row
    assert set(pairs) == set(expected)
    for key, row in expected.items():
        told = {name: pairs[key][name] for name in row if name not in ("heard", "chances")}
        wanted = {name: row[name] for name in told}
        assert told == wanted, f"cell {key[0]}: {Cause(told['cause'])!r} for {Cause(wanted['cause'])!r}"
    assert paths == {
        (number, Cause(cause)): count for each in captured for number, cause, count in each.paths()
    }


class Chances(Oracle):
    """`heard` and `chances` of pairs, computed row by row."""

    def of(self, msg: int, sub: int) -> tuple[int, int]:
        message = self.world.where("publish", msg_id=msg)[0]
        topic, pub = message["topic_id"], message["pub_id"]
        copies = [row for row in self.world.where("deliver", msg_id=msg, sub_id=sub) if row["server_id"] >= 0]
        deadline_ns = message["t_intended_ns"] + round(self.scenario.deadline_s * 1e9)
        heard = {
            row["server_id"]
            for row in copies
            if row["injected"] in (PASSED, DUPLICATE) and row["t_user_ns"] <= deadline_ns
        }
        chances = sum(row["injected"] in (PASSED, LOST) for row in copies)
        for server in {row["server_id"] for row in self.world.where("pub_tx", msg_id=msg)} | {
            row["server_id"] for row in self.world.where("server_rx", msg_id=msg)
        }:
            sent = self.world.where("pub_tx", msg_id=msg, server_id=server)
            had = self.world.where("server_rx", msg_id=msg, server_id=server)
            has_copy = any(row["server_id"] == server for row in copies)
            if not has_copy and not self.asked(sub, topic, server, msg):
                continue
            for row in sent:
                at_ns = row["t_tx_ns"]
                if row["injected"] == LOST and not self.was_down(server, at_ns):
                    chances += self.stood(sub, topic, server, at_ns)
                elif row["injected"] == PASSED and not has_copy and not had:
                    is_up = self.before(row, pub) in (
                        *(Cause.UNTAPPED, Cause.SEND_ERROR, Cause.OVERFLOW_IN, Cause.NETWORK_IN),
                    )
                    chances += is_up and self.stood(sub, topic, server, at_ns)
            if not has_copy:
                stages = [self.beyond(row, sub, topic) for row in had]
                chances += sum(stage in (Cause.OVERFLOW_OUT, Cause.NETWORK_OUT) for stage in stages)
        return len(heard), chances

    def stood(self, sub: int, topic: int, server: int, at_ns: int) -> bool:
        held = {"server_id": server, "sub_id": sub, "topic_id": topic}
        lives = self.world.where("server_life", server_id=server)
        if not lives:
            return any(row["t_tx_ns"] <= at_ns for row in self.world.where("subscribe", **held))
        begun = [row for row in lives if row["t_from_ns"] <= at_ns]
        if not begun:
            return False
        boot = max(begun, key=lambda row: row["t_from_ns"])["boot_id"]
        changes = [row for row in self.world.where("lease", **held, boot_id=boot) if row["t_ns"] <= at_ns]
        stands = (OPENED, STANDING)
        last = max(changes, key=lambda row: (row["t_ns"], row["change"] in stands), default=None)
        return last is not None and last["change"] in stands


def edges(path: Path) -> World:
    """Messages at a server at the first and last ns at which it counts as down, or halted, and a ns
    outside."""
    world = World(path, duration_s=100.0, outages="exact", down=1, by="kill")
    for table in ("intent", "window"):
        for row in world.rows[table]:
            row["t_to_ns"] = T0 + 100 * S
    world.rows["server_life"].clear()
    offsets = [
        (from_up, edge_ns + beside)
        for from_up, edge_ns in ((False, -EDGE_NS), (True, EDGE_NS), (False, -TAP_UNWRITTEN_NS))
        for beside in (-1, 0, 1)
    ]
    for number, (from_up, offset_ns) in enumerate(offsets):
        down_ns = T0 + (10 + 9 * number) * S
        up_ns = down_ns + S
        world.life(0, 1000 + number, down_ns - 6 * S, down_ns + (EDGE_NS if number < 6 else -4 * S), ended=0)
        world.add("outage", server_id=0, t_down_ns=down_ns, t_up_ns=up_ns, kind="kill")
        msg = world.message(0, at_s=(down_ns - T0) / S)
        world.lose_in(msg, 0)
        world.where("pub_tx", msg_id=msg)[0]["t_tx_ns"] = (up_ns if from_up else down_ns) + offset_ns
    for number, beside in enumerate((-1, 0, 1)):
        halted_ns = T0 + 95 * S + number * 100 * MS
        for server, edge_ns in ((1, EDGE_NS), (2, -EDGE_NS)):
            msg = world.message(server, at_s=(halted_ns - T0) / S)
            at_ns = halted_ns + 3 * S
            for row in world.where("deliver", msg_id=msg):
                row["t_user_ns"] = at_ns
            spans = {
                1: (halted_ns - 9 * S, halted_ns - edge_ns + beside),
                2: (at_ns - edge_ns + beside, at_ns + S),
            }
            down_ns, up_ns = spans[server]
            # A server for each message, as spans of one server would touch.
            other = {"server_id": 3 + len(world.rows["outage"])}
            for table in ("pub_tx", "server_rx", "deliver"):
                for row in world.where(table, msg_id=msg):
                    row.update(other)
            for row in world.where("subscribe", server_id=server) + world.where("lease", server_id=server):
                table = "lease" if "change" in row else "subscribe"
                world.add(table, **row | other)
            world.add("outage", **other, t_down_ns=down_ns, t_up_ns=up_ns, kind="stall")
    return world


def all_worlds(root: Path) -> list[World]:
    """Random captures, one for each seed; sound ones broken in one way each; and two more."""
    found = [random_world(root / str(seed), random.Random(seed)) for seed in SEEDS]
    for name, (_, fields, function) in BROKEN.items():
        world = World(root / name, **fields)
        function(world, world.message(0, 1))
        found.append(world)
    nothing = World(root / "nothing")
    for rows in nothing.rows.values():
        rows.clear()
    return [*found, edges(root / "edges"), nothing]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    return all_worlds(tmp_path_factory.mktemp("worlds"))


@pytest.fixture(scope="module")
def of_worlds(worlds: list[World]) -> list[Captured]:
    return as_cells([world.folder() for world in worlds])


def servers(every: list[Captured]) -> int:
    return max(each.cell.scenario.servers for each in every)


def test_random_captures_are_judged_as_by_numpy_and_row_by_row(
    spark: SparkSession, worlds: list[World], of_worlds: list[Captured]
) -> None:
    of = sources(spark, of_worlds)
    found = attribute(of.tables, of.parameters, servers(of_worlds))
    assert [(field.name, field.dataType) for field in found.pairs.schema] == [
        (field.name, field.dataType) for field in PAIRS
    ]
    assert [(field.name, field.dataType) for field in found.paths.schema] == [
        (field.name, field.dataType) for field in PATHS
    ]
    assert_as_numpy(found, of_worlds)

    pairs = by_pair(found)
    oracles = [Chances(world) for world in worlds]  # adds messages: numpy must have read them
    told = {key: (row["heard"], row["chances"]) for key, row in pairs.items()}
    for (cell, msg, sub), numbers in told.items():
        assert numbers == oracles[cell].of(msg, sub), f"{worlds[cell].path.name}: {msg}, {sub}"
    paths = by_cause(found)
    assert {cause for cell, cause in paths} == set(Cause)

    found.release()
    assert all(frame.storageLevel == StorageLevel.NONE for frame in found.kept)


SIMULATED: dict[str, dict[str, Any]] = {
    "few-publish": {"k": 4, "k_prime": 2, "side": "publish"},
    "few-subscribe": {"k": 4, "k_prime": 2, "side": "subscribe"},
    "ch": {"scheme": "CH", "k": 3},
    "s": {"scheme": "S"},
    "r": {"scheme": "R", "servers": 150},
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[Captured]:
    """Captures that `simulate` made: with outages and losses, without any, and with views that differ."""
    root = tmp_path_factory.mktemp("simulated")
    load: dict[str, Any] = {"publishers": 2, "subscribers": 4, "topics": 5, "topics_per_subscriber": 3}
    small: dict[str, Any] = {"servers": 12, "rate": 20.0, "duration_s": 4.0, "epoch_s": 0.5, **load}
    faults: dict[str, Any] = {"outages": "independent", "outage": 0.2, "loss_in": 0.1, "loss_out": 0.1}
    folders = [
        simulate(root / name, Scenario(name=name, **{**small, **faults, **fields}), seed)
        for seed, (name, fields) in enumerate(SIMULATED.items())
    ]
    folders.append(simulate(root / "sound", Scenario(name="sound", **small)))
    views = big_scenario(3000, name="views", servers=70, k=6, rate=40.0, known=0.8, epoch_s=0.5)
    run = create_run(root / "big", [views], seed=1)
    folder = run.begin("views")
    write_scenario(folder)
    folders.append(folder)
    return as_cells(folders)


def test_simulated_captures_are_judged_as_by_numpy(spark: SparkSession, simulated: list[Captured]) -> None:
    of = sources(spark, simulated)
    found = attribute(of.tables, of.parameters, servers(simulated))
    assert_as_numpy(found, simulated)
    pairs = by_pair(found)
    heard: Counter[int] = Counter()
    for (cell, _, _), row in pairs.items():
        heard[cell] += row["heard"]
    for each in simulated:
        delivered = each.attribution.paths[Cause.DELIVERED]
        assert heard[each.cell.number] == delivered
        chances = {key[1:]: row["chances"] for key, row in pairs.items() if key[0] == each.cell.number}
        assert chances == expected_chances(each), each.cell.scenario.name

    # The job counts the same, and so do the findings.
    sums = sums_of([attribution.JOB], [of._replace(pairs=found.pairs, paths=found.paths)])
    rows = findings.tables([each.cell for each in simulated], sums)["attribution"]
    for each in simulated:
        of_cell = [row for row in rows if row["cell"] == each.cell.number]
        misses = {row["cause"]: row["misses"] for row in of_cell if row["misses"]}
        assert misses == {cause.label: count for cause, count in each.attribution.misses.items()}
        paths = {row["cause"]: row["paths"] for row in of_cell if row["paths"]}
        assert paths == {cause.label: count for cause, count in each.attribution.paths.items()}


def expected_chances(of: Captured) -> dict[tuple[int, int], int]:
    """`chances` if leases stood all the time: copies that were not cut off, and sendings that were lost."""
    publish = of.columns("publish", "msg_id", "topic_id")
    topics = dict(zip(publish["msg_id"].tolist(), publish["topic_id"].tolist(), strict=True))
    asked = of.columns("subscribe", "sub_id", "topic_id", "server_id")
    listeners: dict[tuple[int, int], set[int]] = {}
    for sub, topic, server in zip(*(column.tolist() for column in asked.values()), strict=True):
        listeners.setdefault((topic, server), set()).add(sub)
    found = dict.fromkeys(
        zip(*(column.tolist() for column in (of.attribution.msg_ids, of.attribution.sub_ids)), strict=True), 0
    )
    sent = of.columns("pub_tx", "msg_id", "server_id", "injected")
    for msg, server, fate in zip(*(column.tolist() for column in sent.values()), strict=True):
        if fate == LOST:
            for sub in listeners.get((topics[msg], server), ()):
                found[msg, sub] += 1
    copies = of.columns("deliver", "msg_id", "sub_id", "injected")
    for msg, sub, fate in zip(*(column.tolist() for column in copies.values()), strict=True):
        found[msg, sub] += fate in (PASSED, LOST)
    return found


@pytest.mark.parametrize("words", [1, 3])
def test_sets_of_servers(spark: SparkSession, words: int) -> None:
    rng = np.random.default_rng(words)
    size = 64 * words
    samples = [tuple(sorted(set(rng.integers(0, size, 20).tolist()) | {0, 63, size - 1})) for _ in range(3)]
    rows = [(number, server) for number, sample in enumerate(samples) for server in (*sample, -1, size)]
    frame = spark.createDataFrame(rows, "number int, server int")
    sets = frame.groupBy("number").agg(*server_sets.union("set", server_sets.only(sf.col("server"), words)))
    some, evens = server_sets.of("set", words), server_sets.up_to(sf.lit(size // 2 + 1), words)
    every = sf.sequence(sf.lit(-1), sf.lit(size))

    def listed(servers: server_sets.ServerSet) -> Any:
        return sf.filter(every, servers.has)

    operations = {
        "same": some,
        "both": some & evens,
        "either": some | evens,
        "without": some - evens,
        "low": evens,
        "all": server_sets.up_to(sf.lit(size), words),
        "nobody": server_sets.up_to(sf.lit(0), words),
        "most": server_sets.up_to(sf.lit(size - 1), words),
        "where": some.where(sf.col("number") > 0),
    }
    found = sets.select(
        "number",
        *(listed(servers).alias(name) for name, servers in operations.items()),
        *(servers.count().alias(f"{name}_count") for name, servers in operations.items()),
        *(servers.some().alias(f"{name}_some") for name, servers in operations.items()),
        some.differ(evens).alias("differ"),
        some.differ(some | server_sets.up_to(sf.lit(0), words)).alias("is_other"),
    ).collect()
    assert len(found) == len(samples)
    low = set(range(size // 2 + 1))
    for row in found:
        sample = set(samples[row["number"]])
        expected = {
            **{"same": sample, "both": sample & low, "either": sample | low, "without": sample - low},
            **{"low": low, "all": set(range(size)), "nobody": set(), "most": set(range(size - 1))},
            "where": sample if row["number"] else set(),
        }
        for name, servers in expected.items():
            assert row[name] == sorted(servers), name
            assert row[f"{name}_count"] == len(servers), name
            assert row[f"{name}_some"] is bool(servers), name
        assert row["differ"] is (sample != low)
        assert row["is_other"] is False
    assert [server_sets.words_for(servers) for servers in (0, 1, 64, 65, 640)] == [1, 1, 1, 2, 10]
