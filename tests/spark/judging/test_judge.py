"""What Spark finds in captures is what load tests find, which judge them at once, in whatever parts rows are.

Captures are cells of one DataFrame: random ones that contradict themselves, and simulated ones.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.results.causes import EDGE_NS, TAP_UNWRITTEN_NS
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.sizes import CellSize
from kcast.spark.jobs.draws import BLOCK
from kcast.spark.judging.judge import PAIRS, Judge, pairs_of
from kcast.spark.judging.rows import PART_ROWS, Division, message_rows, unpacked
from tests.support.big_capture import big_scenario, write_scenario
from tests.support.broken_attributions import BROKEN
from tests.support.handmade_capture import MS, T0, S, World, restarted_world, simulate
from tests.support.random_captures import random_world
from tests.support.spark_cells import Captured, as_cells, sums_of, tables, unordered

pytestmark = pytest.mark.spark

SEEDS = range(16)
PARTS_ROWS = (PART_ROWS, 1000)


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
    """Random captures, one for each seed; sound ones broken in one way each; and three more."""
    found = [random_world(root / str(seed), random.Random(seed)) for seed in SEEDS]
    for name, (_, fields, function) in BROKEN.items():
        world = World(root / name, **fields)
        function(world, world.message(0, 1))
        found.append(world)
    nothing = World(root / "nothing")
    for rows in nothing.rows.values():
        rows.clear()
    # Of many parts, of which the first alone has what the server took.
    return [*found, edges(root / "edges"), restarted_world(root / "restarted", 4 * BLOCK), nothing]


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


def size_of(each: Captured) -> CellSize:
    rows = {name: len(table["msg_id"]) for name, table in each.messages.items()}
    return CellSize.of(each.cell.scenario, rows)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, simulated: list[Captured]) -> list[Captured]:
    worlds = all_worlds(tmp_path_factory.mktemp("worlds"))
    return as_cells([*(world.folder() for world in worlds), *(each.capture for each in simulated)])


@pytest.fixture(scope="module", params=PARTS_ROWS)
def judge(request: pytest.FixtureRequest, spark: SparkSession, captured: list[Captured]) -> Iterator[Judge]:
    division = Division.of({each.cell.number: size_of(each) for each in captured}, request.param)
    assert (division.parts > 10) is (request.param < PART_ROWS)
    rows = message_rows(tables(spark, captured), division).persist()  # pairs and sums are both made of them
    judge = Judge(spark, rows, {each.cell.number: each.around for each in captured})
    yield judge
    judge.close()
    rows.unpersist()


def test_pairs_are_those_of_load_tests(judge: Judge, captured: list[Captured]) -> None:
    found = judge.pairs()
    assert found.schema == PAIRS
    got = sorted(tuple(row) for row in found.collect())
    expected = [tuple(row.values()) for each in captured for row in pairs_of(each.part()).to_pylist()]
    assert got == sorted(expected)


def test_sums_are_those_of_load_tests(judge: Judge, captured: list[Captured]) -> None:
    found = judge.sums(judge.counts())
    expected = sums_of((each.part() for each in captured), (each.around for each in captured))
    assert unordered(found) == unordered({name: expected[name] for name in found})


def test_parts_have_all_rows_of_their_messages_and_are_about_equal(
    spark: SparkSession, captured: list[Captured]
) -> None:
    cells = captured[-3:]  # the last is the largest by far
    division = Division.of({each.cell.number: size_of(each) for each in cells}, 5000)
    parts = message_rows(tables(spark, cells), division).rdd.glom().collect()
    assert len(parts) == division.parts > 4
    places: dict[tuple[int, int], set[int]] = {}
    for number, part in enumerate(parts):
        for row in part:
            places.setdefault(((row["place"] & 0xFFFFFFFF) >> 4, row["msg_id"]), set()).add(number)
    assert {len(of) for of in places.values()} == {1}
    assert max(map(len, parts)) < 3 * 5000  # blocks of messages are coarse for so few


LARGE = CellSize(rows=20_000_000, messages_each=500_000, pairs=10_000_000)
SMALL = CellSize(rows=2_000, messages_each=100, pairs=1_000)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {0: SMALL},
        {0: LARGE},
        {3: LARGE, 90: SMALL, 91: SMALL},
        dict.fromkeys(range(0, 4000, 20), SMALL),
        {0: LARGE, **dict.fromkeys(range(1, 36), SMALL), 36: LARGE},
        {0: CellSize(30_000, 100, 16_000_000)},  # few rows, and many pairs
    ],
)
def test_parts_fit_into_memory_however_different_cells_are(sizes: dict[int, CellSize]) -> None:
    division = Division.of(sizes)
    weights: Counter[int] = Counter()
    for cell, size in sizes.items():
        first, count, width = division.cells[cell]
        assert width % BLOCK == 0
        for slot in range(count):
            weights[first + slot] += (size.rows + size.pairs) // count
    assert max(weights, default=0) < division.parts <= 1 + sum(weights.values()) // (PART_ROWS // 3)
    assert max(weights.values(), default=0) < 2.1 * PART_ROWS


def test_ids_of_all_kinds_are_unpacked_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.rows["publish"].clear()
    least, most = -(1 << 31), (1 << 31) - 1
    for sub, server, fate in ((-1, -1, 3), (most, least, 2), (least, most, 0)):
        world.add("deliver", sub_id=sub, msg_id=-7, server_id=server, t_user_ns=-5, injected=fate)
        taken = {"server_id": server, "boot_id": -(1 << 62), "msg_id": 1 << 62, "pub_id": sub, "t_rx_ns": 1}
        world.add("server_rx", topic_id=server, **taken)
        world.add("publish", msg_id=3, pub_id=sub, topic_id=server, size_bytes=most, t_send_ns=-1)
    (each,) = as_cells([world.folder()])
    batches = message_rows(tables(spark, [each]), Division.of({})).toArrow().to_batches()
    found = unpacked(batches)[0]
    for name, table in each.messages.items():
        for column, values in table.items():
            assert found[name][column].tolist() == values.tolist(), (name, column)
