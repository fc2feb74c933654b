"""The jobs reliability, audience, deaf and attribution count what plain Python counts of handmade pairs."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from kcast.loadtest.capture.schema import CUT_OFF, LOST, PASSED
from kcast.loadtest.results.attribution import Attribution
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.pair_clusters import pair_clusters
from kcast.loadtest.scenario import Scenario
from kcast.spark.capture.side_tables import SideTables
from kcast.spark.findings import audience as audience_findings
from kcast.spark.findings import reliability
from kcast.spark.findings.cells import clusters_by_cell
from kcast.spark.jobs import attribution, audience, deaf
from kcast.spark.jobs import reliability as reliability_job
from kcast.spark.jobs.job import Around, Part
from kcast.spark.judging.judge import PAIRS
from tests.support.handmade_capture import T0, S
from tests.support.handmade_pairs import Columns, cell_of, reliability_sums, simulate_pairs
from tests.support.spark_cells import sums_of

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
JOBS = (reliability_job.JOB, audience.JOB, deaf.JOB, attribution.JOB)
CELLS = [cell_of(scenario, number) for number, scenario in enumerate(SCENARIOS)]


def table(names: str, *rows: tuple[int, ...]) -> dict[str, Any]:
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(names.split())).T
    return dict(zip(names.split(), columns, strict=True))


SENT = "msg_id pub_id server_id t_tx_ns injected"
CAME = "sub_id msg_id server_id t_user_ns injected"
NO_MESSAGES = {
    "publish": table("msg_id topic_id t_intended_ns t_send_ns pub_id size_bytes"),
    "pub_tx": table(SENT),
    "server_rx": table("server_id msg_id boot_id pub_id topic_id t_rx_ns"),
    "deliver": table(CAME),
}
# Two of the lines lost on their way in were in one datagram.
DATAGRAMS = {
    **NO_MESSAGES,
    "pub_tx": table(SENT, (1, 1, 1, 5, LOST), (2, 1, 1, 5, LOST), (3, 1, 1, 6, LOST), (4, 1, 1, 5, PASSED)),
    "deliver": table(CAME, (1, 1, 3, 5, LOST), (2, 1, 3, 5, LOST), (2, 2, 3, 5, CUT_OFF)),
}


def simulated() -> list[Columns]:
    found = [simulate_pairs(scenario, 7, cell=n) for n, scenario in enumerate(SCENARIOS)]
    causes = found[0]["cause"]
    causes[np.flatnonzero(causes == Cause.LOSS_OUT)[:5]] = Cause.LATE
    return found


def attributed(columns: Columns, paths: Mapping[Cause, int] | None = None) -> Attribution:
    return Attribution(
        topics=columns["topic_id"],
        pub_ids=columns["pub_id"],
        t_intended_ns=columns["t_intended_ns"],
        msg_ids=columns["msg_id"],
        sub_ids=columns["sub_id"],
        causes=columns["cause"],
        latencies_ns=columns["latency_ns"],
        copies_of=columns["copies"],
        heard=columns["heard"],
        chances=columns["chances"],
        paths=dict(paths or {}),
    )


def part(cell: int, columns: Columns, messages: Mapping[str, Any] = NO_MESSAGES) -> Part:
    """A part with these pairs, in the order of messages and subscribers."""
    order = np.lexsort((columns["sub_id"], columns["msg_id"]))
    around = Around(cell, T0, SideTables(SCENARIOS[cell], "complete", {}))
    # A publish of each delivered message, as the latencies ask for it.
    ids, first = np.unique(columns["msg_id"], return_index=True)
    publish = {
        **dict.fromkeys(("t_intended_ns", "t_send_ns"), columns["t_intended_ns"][first]),
        **{"msg_id": ids, "topic_id": columns["topic_id"][first], "pub_id": columns["pub_id"][first]},
        "size_bytes": np.ones_like(ids),
    }
    ordered = {name: values[order] for name, values in columns.items()}
    return Part(around, {**messages, "publish": publish}, attributed(ordered))


def sliced(cell: int, columns: Columns, count: int, seed: int) -> list[Part]:
    """The same pairs in parts of some messages each, in any order."""
    rng = np.random.default_rng(seed)
    ids, of = np.unique(columns["msg_id"], return_inverse=True)
    number = rng.integers(0, count, len(ids))[of]
    slices = [
        part(
            cell,
            {name: values[number == each] for name, values in columns.items()},
            # Each datagram is in one part, no matter which.
            NO_MESSAGES if each or cell else DATAGRAMS,
        )
        for each in range(count)
    ]
    random.Random(seed).shuffle(slices)
    return slices


def of_jobs(sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    return {name: list(sums.get(name, ())) for job in JOBS for name in job.sums}


def summed(pairs: Sequence[Columns], *, slices: int = 1, seed: int = 1) -> dict[str, list[Row]]:
    """The sums of JOBS of these cells."""
    if slices == 1:
        parts = [part(n, columns, NO_MESSAGES if n else DATAGRAMS) for n, columns in enumerate(pairs)]
    else:
        parts = [each for n, columns in enumerate(pairs) for each in sliced(n, columns, slices, seed)]
    return of_jobs(sums_of(parts))


class Whole:
    """The cells' pairs, and the jobs' sums of them."""

    def __init__(self) -> None:
        self.pairs = simulated()
        self.sums = summed(self.pairs)


@pytest.fixture(scope="module")
def whole() -> Whole:
    return Whole()


def _rows(columns: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[field.name].tolist() for field in PAIRS), strict=True))


def canonical(sums: Mapping[str, Sequence[Row]]) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted((tuple(sorted(row.items())) for row in rows), key=str) for name, rows in sums.items()
    }


def test_counts_are_those_of_numpy_however_they_are_sliced(whole: Whole) -> None:
    expected: dict[str, list[Row]] = {"clusterings": [], "chances": []}
    for columns in whole.pairs:
        for name in expected:
            expected[name] += reliability_sums(columns)[name]
    found = canonical(whole.sums)
    assert {name: found[name] for name in expected} == canonical(expected)
    assert canonical(summed(whole.pairs, slices=5, seed=5)) == found


def test_clusters_are_those_of_load_tests(whole: Whole) -> None:
    for cell, columns in zip(CELLS, whole.pairs, strict=True):
        clusters = clusters_by_cell(whole.sums["clusterings"], "pairs", "delivered")[cell.number]
        for name, found in pair_clusters(cell.scenario, attributed(columns), T0).items():
            assert clusters[name] == found, name


def test_datagrams_that_were_lost_are_counted_with_what_they_held(whole: Whole) -> None:
    assert {(row["kind"], row["lines"], row["squares"]) for row in whole.sums["lost"]} == {
        ("lost-in", 3, 5),
        ("lost-out", 2, 2),
    }


def test_findings_are_made_of_these_sums(whole: Whole) -> None:
    found = reliability.tables(CELLS, whole.sums)
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
def test_audiences_and_deaf_runs_are_those_of_a_plain_walk(slices: int, seed: int) -> None:
    pairs = [*simulated()]
    rng = np.random.default_rng(seed)
    # Runs that span several slices, or all; and messages at equal times.
    for columns in pairs[:2]:
        subs, topics = columns["sub_id"], columns["topic_id"]
        columns["cause"][(subs == 3) & (topics == topics[subs == 3][0])] = Cause.DOWN
        columns["cause"][rng.random(len(subs)) < 0.4] = Cause.DOWN
        columns["t_intended_ns"][:] = columns["t_intended_ns"] // 200_000_000 * 200_000_000
    sums = summed(pairs, slices=slices, seed=seed)
    table = {row["cell"]: row for row in audience_findings.tables(CELLS, sums)["audience"]}
    for cell, columns in enumerate(pairs):
        expected, row = longest_run(columns), table[cell]
        assert expected is not None
        assert (row["longest_deaf_messages"], round(row["longest_deaf_s"] * S)) == expected[:2], seed
        assert (-row["deaf_subscriber"], -row["deaf_topic"]) == expected[2:], seed
        sizes = audience_sums(columns)
        assert table[cell]["messages"] == sizes.total()
        assert table[cell]["all_reached"] == sum(n for (size, got), n in sizes.items() if got == size)
        assert table[cell]["none_reached"] == sum(n for (_, got), n in sizes.items() if not got)
        assert table[cell]["low"] <= table[cell]["share"] <= table[cell]["high"]


# --- Memory ------------------------------------------------------------------------------------------


def test_sums_do_not_grow_with_the_pairs(whole: Whole) -> None:
    columns = whole.pairs[0]
    twice = {name: np.concatenate((values, values)) for name, values in columns.items()}
    twice["msg_id"][len(columns["msg_id"]) :] += 1_000_000
    more = summed([twice])
    for name, rows in whole.sums.items():
        assert len(more[name]) == sum(row["cell"] == 0 for row in rows), name
