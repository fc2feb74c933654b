"""The jobs reliability, audience and attribution count what numpy and plain Python count."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kcast.loadtest.capture.schema import CUT_OFF, LOST, PASSED
from kcast.loadtest.results.attribution import Attribution
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.pair_clusters import pair_clusters
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.parameters import parameters
from kcast.spark.capture.schemas import table_schema
from kcast.spark.findings import attack as attack_findings
from kcast.spark.findings import audience as audience_findings
from kcast.spark.findings import reliability
from kcast.spark.findings.cells import clusters_by_cell
from kcast.spark.jobs import attribution, audience
from kcast.spark.jobs import reliability as reliability_job
from kcast.spark.jobs.job import Job, Sources, merge
from kcast.spark.walk.pairs import PAIRS, PATHS
from tests.support.handmade_capture import T0
from tests.support.handmade_pairs import Columns, cell_of, reliability_sums, simulate_pairs

pytestmark = pytest.mark.spark

Row = dict[str, Any]

OUTAGES: dict[str, Any] = {"outages": "independent", "outage": 0.3, "epoch_s": 2.0}
LOAD: dict[str, Any] = {
    **{"servers": 20, "topics": 4, "topics_per_subscriber": 2, "subscribers": 6, "publishers": 2},
    **{"rate": 12.0, "duration_s": 10.0, "loss_in": 0.1, "loss_out": 0.1},
}
SCENARIOS = (
    Scenario(**LOAD, **OUTAGES, k=6, k_prime=2),
    Scenario(**LOAD, **OUTAGES, k=6, k_prime=2, side="subscribe", known=0.9),
    Scenario(**LOAD, scheme="CH", k=2),
)
JOBS = (reliability_job.JOB, audience.JOB, attribution.JOB)
CELLS = [cell_of(scenario, number) for number, scenario in enumerate(SCENARIOS)]


def _sent(msg: int, server: int, at: int, injected: int) -> tuple[Any, ...]:
    return (0, msg, 1, server, at, injected)


def _came(msg: int, sub: int, at: int, injected: int) -> tuple[Any, ...]:
    return (0, sub, msg, 3, 0, at, injected)


# Two of the lines lost on their way in were in one datagram.
DATAGRAMS = {
    "pub_tx": [_sent(1, 1, 5, LOST), _sent(2, 1, 5, LOST), _sent(3, 1, 6, LOST), _sent(4, 1, 5, PASSED)],
    "deliver": [_came(1, 1, 5, LOST), _came(1, 2, 5, LOST), _came(2, 2, 5, CUT_OFF)],
}


def simulated() -> list[Columns]:
    found = [simulate_pairs(scenario, 7, cell=n) for n, scenario in enumerate(SCENARIOS)]
    causes = found[0]["cause"]
    causes[np.flatnonzero(causes == Cause.LOSS_OUT)[:5]] = Cause.LATE
    return found


def sources(spark: SparkSession, pairs: Sequence[Columns], **tables: Sequence[tuple[Any, ...]]) -> Sources:
    rows = [row for columns in pairs for row in _rows(columns)]
    every = {name: tables.get(name, ()) for name in ("pub_tx", "deliver")}
    return Sources(
        {name: spark.createDataFrame(rows, table_schema(name)) for name, rows in every.items()},
        parameters(spark, CELLS),
        spark.createDataFrame(rows, PAIRS),
        spark.createDataFrame([], PATHS),
    )


class Whole(NamedTuple):
    """The cells' pairs, and the jobs' sums of them."""

    pairs: list[Columns]
    sources: Sources
    sums: dict[str, dict[str, list[Row]]]


@pytest.fixture(scope="module")
def whole(spark: SparkSession) -> Whole:
    pairs = simulated()
    found = sources(spark, pairs, **DATAGRAMS)
    return Whole(pairs, found, {job.name: summed(job, [found]) for job in JOBS})


def _rows(columns: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[field.name].tolist() for field in PAIRS), strict=True))


def summed(job: Job, slices: Sequence[Sources]) -> dict[str, list[Row]]:
    counted = [job.count(part) for part in slices]
    for part in counted:
        assert part.schema.simpleString() == job.counts.simpleString()
    merged = merge(counted, job.counts).localCheckpoint()
    return {name: [row.asDict() for row in make(merged).collect()] for name, make in job.sums.items()}


def canonical(sums: Mapping[str, Sequence[Row]]) -> dict[str, list[tuple[Any, ...]]]:
    def plain(value: Any) -> Any:
        return int(value) if isinstance(value, Decimal) else value

    return {
        name: sorted(
            (tuple(sorted((key, plain(value)) for key, value in row.items())) for row in rows), key=str
        )
        for name, rows in sums.items()
    }


def sliced(whole: Sources, count: int, *, shuffled: int = 0) -> list[Sources]:
    """The same rows in slices of time, in another order and other partitions."""
    length = 10_000_000_000 // count + 1
    slices = []
    for number in range(count):
        at = sf.floor((sf.col("t_intended_ns") - T0) / length) == number
        pairs = whole.pairs.where(at).repartition(3).orderBy(sf.rand(shuffled + number))
        # Each datagram is in one slice, no matter which.
        tables = {name: table if not number else table.limit(0) for name, table in whole.tables.items()}
        slices.append(whole._replace(pairs=pairs, tables=tables))
    random.Random(shuffled).shuffle(slices)
    return slices


def test_counts_are_those_of_numpy_however_they_are_sliced(whole: Whole) -> None:
    found = canonical(whole.sums["reliability"])
    expected: dict[str, list[Row]] = {"clusterings": [], "chances": []}
    for columns in whole.pairs:
        for name in expected:
            expected[name] += reliability_sums(columns)[name]
    assert {name: found[name] for name in expected} == canonical(expected)
    assert canonical(summed(reliability_job.JOB, sliced(whole.sources, 2, shuffled=5))) == found


def test_clusters_are_those_of_load_tests(whole: Whole) -> None:
    sums = whole.sums["reliability"]
    for cell, columns in zip(CELLS, whole.pairs, strict=True):
        attribution = Attribution(
            topics=columns["topic_id"],
            t_intended_ns=columns["t_intended_ns"],
            msg_ids=columns["msg_id"],
            sub_ids=columns["sub_id"],
            causes=columns["cause"],
            latencies_ns=columns["latency_ns"],
            paths={},
            copies=0,
        )
        clusters = clusters_by_cell(sums["clusterings"], "pairs", "delivered")[cell.number]
        for name, found in pair_clusters(cell.scenario, attribution, T0).items():
            assert clusters[name] == found, name


def test_datagrams_that_were_lost_are_counted_with_what_they_held(whole: Whole) -> None:
    found = whole.sums["reliability"]["lost"]
    assert {(row["kind"], row["lines"], int(row["squares"])) for row in found} == {
        ("lost-in", 3, 5),
        ("lost-out", 2, 2),
    }


def test_findings_are_made_of_what_spark_sums(whole: Whole) -> None:
    found = reliability.tables(CELLS, whole.sums["reliability"])
    for row, columns in zip(found["reliability"], whole.pairs, strict=True):
        assert row["pairs"] == len(columns["cause"])
        assert row["delivered"] == int((columns["cause"] == Cause.DELIVERED).sum())


# --- Audience ----------------------------------------------------------------------------------------


def longest_run(columns: Columns) -> tuple[int, int, int, int] | None:
    """(messages, ns, -subscriber, -topic) of the longest run, found by walking through all pairs."""
    by_holder: defaultdict[tuple[int, int], list[tuple[int, int, bool]]] = defaultdict(list)
    for row in _rows(columns):
        pair = dict(zip(PAIRS.names, row, strict=True))
        at = (pair["t_intended_ns"], pair["msg_id"])
        by_holder[pair["sub_id"], pair["topic_id"]].append((*at, pair["cause"] != Cause.DELIVERED))
    found = []
    for (sub, topic), messages in by_holder.items():
        run: list[int] = []
        for ns, _, is_missed in [*sorted(messages), (0, 0, False)]:
            if is_missed:
                run.append(ns)
            elif run:
                found.append((len(run), run[-1] - run[0], -sub, -topic))
                run = []
    return max(found, default=None)


def audience_sums(columns: Columns) -> Counter[tuple[int, int]]:
    """Messages by number of subscribers, and number of those reached."""
    reached: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for msg, cause in zip(columns["msg_id"].tolist(), columns["cause"].tolist(), strict=True):
        reached[msg][0] += 1
        reached[msg][1] += cause == Cause.DELIVERED
    return Counter((size, count) for size, count in reached.values())


@pytest.mark.parametrize(("slices", "seed"), [(1, 1), (3, 3)])
def test_audiences_and_deaf_runs_are_those_of_a_plain_walk(
    spark: SparkSession, slices: int, seed: int
) -> None:
    pairs = [*simulated()]
    rng = np.random.default_rng(seed)
    # Runs that span several slices, or all; and messages at equal times.
    for columns in pairs[:2]:
        subs, topics = columns["sub_id"], columns["topic_id"]
        columns["cause"][(subs == 3) & (topics == topics[subs == 3][0])] = Cause.DOWN
        columns["cause"][rng.random(len(subs)) < 0.4] = Cause.DOWN
        columns["t_intended_ns"][:] = columns["t_intended_ns"] // 200_000_000 * 200_000_000
    every = sources(spark, pairs)
    parts = [every] if slices == 1 else sliced(every, slices, shuffled=seed)
    sums = summed(audience.JOB, parts)
    found = {row["cell"]: row for row in sums["deaf"]}
    table = {row["cell"]: row for row in audience_findings.tables(CELLS, sums)["audience"]}
    for cell, columns in enumerate(pairs):
        row, expected = found[cell], longest_run(columns)
        assert (row["messages"], row["duration_ns"], -row["sub_id"], -row["topic_id"]) == expected, seed
        sizes = audience_sums(columns)
        assert table[cell]["messages"] == sizes.total()
        assert table[cell]["all_reached"] == sum(n for (size, got), n in sizes.items() if got == size)
        assert table[cell]["none_reached"] == sum(n for (_, got), n in sizes.items() if not got)
        assert table[cell]["longest_deaf_messages"] == row["messages"]
        assert table[cell]["low"] <= table[cell]["share"] <= table[cell]["high"]


# --- Attack ------------------------------------------------------------------------------------------


def test_pairs_are_counted_by_the_servers_heard(whole: Whole) -> None:
    sums = summed(attribution.JOB, sliced(whole.sources, 2))
    assert canonical(sums) == canonical(whole.sums["attribution"])
    for cell, columns in enumerate(whole.pairs):
        counted = {row["heard"]: row["pairs"] for row in sums["heard"] if row["cell"] == cell}
        assert counted == Counter(columns["heard"].tolist())
    found = attack_findings.tables(CELLS, sums)["attack"]
    for cell, columns in enumerate(whole.pairs):
        rows = [row for row in found if row["cell"] == cell]
        shares = [row["delivered"] for row in rows]
        assert shares[0] == pytest.approx(float((columns["cause"] == Cause.DELIVERED).mean()))
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] == 0


# --- Memory ------------------------------------------------------------------------------------------


def test_sums_do_not_grow_with_the_pairs(spark: SparkSession, whole: Whole) -> None:
    columns = simulated()[0]
    again = {**columns, "msg_id": columns["msg_id"] + 1_000_000}
    twice = sources(spark, [columns, again], **DATAGRAMS)
    for job in JOBS:
        more = summed(job, [twice])
        for name, rows in whole.sums[job.name].items():
            assert len(more[name]) == sum(row["cell"] == 0 for row in rows), (job.name, name)
