"""Tables of latency, balance, cost, health and cells, of sums made by hand."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from kcast.hashring.model import copies as model_copies
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.percentiles import Percentiles, rounded
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import balance, cells, cost, health, latency
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.placement import Topics

S = 1_000_000_000
Row = dict[str, Any]
SCENARIO = Scenario(servers=4, k=3, k_prime=2, topics=2, topics_per_subscriber=2, duration_s=10.0)
CELL = Cell(0, "run", SCENARIO, "complete", 100 * S)
MESSAGES = 2000


def buckets(since: str, times_ns: Any, cell: int = 0) -> list[Row]:
    values, inverse = np.unique(rounded(times_ns), return_inverse=True)
    counts, totals = np.bincount(inverse), [int(times_ns[inverse == n].sum()) for n in range(len(values))]
    return [
        {"cell": cell, "since": since, "value_ns": value, "count": count, "total_ns": total}
        for value, count, total in zip(values.tolist(), counts.tolist(), totals, strict=True)
    ]


def sound_sums() -> dict[str, list[Row]]:
    """Of one cell: 2000 messages to one subscriber, of which all but one came, by two servers of three."""
    topics = Topics.of([(1200, 1), (800, 1)])
    figures: dict[str, Any] = {
        "scheduled": MESSAGES,
        "published": MESSAGES,
        "rows_lost": 0,
        "tap_lines_lost": 0,
    }
    figures |= {
        "lag_max_ms": 0.0,
        "clock_error_ms": 0.0,
        "servers_lost": [],
        "client_overflows": 0,
        "server_overflows": 0,
    }
    rng = np.random.default_rng(1)
    return {
        "latency_buckets": [
            *buckets("intended", rng.integers(10**6, 10**8, MESSAGES - 1)),
            *buckets("sent", rng.integers(10**6, 10**8, MESSAGES - 1)),
            *buckets("delay", rng.integers(10**4, 10**5, MESSAGES)),
        ],
        "servers": [
            {"cell": 0, "server_id": number, "received": received, "forwarded": forwarded, "leases": 2}
            | {"lived": 1, "down_ns": 0, "span_ns": 10 * S}
            for number, (received, forwarded) in enumerate(((2000, 2000), (1200, 1200), (800, 800)))
        ],
        "topics": [{"cell": 0, "topics": 2, **{k: Decimal(v) for k, v in topics._asdict().items()}}],
        "cost": [
            {"cell": 0, "messages": MESSAGES, "message_bytes": 100 * MESSAGES, "sendings": 2 * MESSAGES}
            | {"renewals": 6, "from_ns": 100 * S, "to_ns": 110 * S}
        ],
        "causes": [fate(Cause.DELIVERED, 1999, 3998, 3998), fate(Cause.LOSS_OUT, 1, 0, 2)],
        "health": [{"cell": 0, **figures, "send_errors": 0, "slow_consumer": 0}],
        "clusterings": [
            {"cell": 0, "clustering": "message", "clusters": MESSAGES, "pairs": MESSAGES, "delivered": 1999}
            | {"squares": MESSAGES, "products": 1999, "success_squares": 1999}
        ],
    }


def fate(cause: Cause, pairs: int, copies: int, paths: int) -> Row:
    of_cause = {"pairs": pairs, "copies": copies, "duplicates": max(0, copies - pairs), "paths": paths}
    return {"cell": 0, "cause": int(cause), **of_cause}


def all_tables(sums: dict[str, list[Row]], cell: Cell = CELL) -> dict[str, list[Row]]:
    found = health.tables([cell], sums)
    found |= cells.tables([cell], sums, found["health"])
    for module in (latency, balance, cost):
        found |= module.tables([cell], sums)
    return found


@pytest.fixture
def sums() -> dict[str, Any]:
    return sound_sums()


def test_tables_have_their_columns() -> None:
    found = all_tables(sound_sums())
    Findings({}, (), found)  # raises where not
    assert {name for name, rows in found.items() if rows} == {
        *("scenarios", "latency", "latency_buckets", "balance", "servers", "cost")
    }
    empty: dict[str, list[Row]] = {name: [] for name in sound_sums()}
    empty |= {"health": sound_sums()["health"]}
    Findings({}, (), all_tables(empty))


# --- Latency -----------------------------------------------------------------------------------------


def test_percentiles_are_those_of_load_tests() -> None:
    for count in (1, 2, 7, 10, 999, 1000, 1001, 40_000):
        times_ns = np.exp(np.random.default_rng(count).uniform(3, 24, count)).astype(np.int64)
        (found,) = latency.times({"latency_buckets": buckets("sent", times_ns)}).values()
        expected = Percentiles.of(times_ns)
        assert asdict(found) == {name: getattr(expected, name) for name in asdict(found)}


def test_without_times_there_are_no_percentiles(sums: dict[str, Any]) -> None:
    sums["latency_buckets"] = [row for row in sums["latency_buckets"] if row["since"] != "sent"]
    intended, sent = latency.tables([CELL], sums)["latency"]
    assert (sent["since"], sent["count"], sent["p50_ms"], sent["max_ms"]) == ("sent", 0, None, None)
    assert intended["count"] == MESSAGES - 1
    assert 1 < intended["p50_ms"] < intended["p99_ms"] <= 100


def test_buckets_are_in_order_and_without_delays() -> None:
    rows = latency.tables([CELL], sound_sums())["latency_buckets"]
    assert [(row["since"], row["value_ns"]) for row in rows] == sorted(
        (row["since"], row["value_ns"]) for row in rows
    )
    assert {row["since"] for row in rows} == {"intended", "sent"}


# --- Balance -----------------------------------------------------------------------------------------


def test_spread() -> None:
    assert balance.spread([1, 1, 1, 1]) == {
        "servers": 4,
        "total": 4,
        "mean": 1,
        "cv": 0,
        "peak": 1,
        "gini": 0,
    }
    one_has_all = balance.spread([0, 0, 0, 8])
    assert (one_has_all["peak"], one_has_all["gini"]) == (4, 0.75)
    loads = np.random.default_rng(1).integers(0, 10**6, 50)
    found = balance.spread(loads.tolist())
    assert found["cv"] == pytest.approx(loads.std() / loads.mean(), rel=1e-12)
    differences = np.abs(loads[:, None] - loads[None, :]).mean()
    assert found["gini"] == pytest.approx(differences / 2 / loads.mean(), rel=1e-12)
    assert balance.spread([0, 0]) | {"servers": 2} == {
        **{"servers": 2, "total": 0, "mean": 0, "cv": None, "peak": None, "gini": None}
    }


def test_servers_that_lived_count_though_they_had_nothing(sums: dict[str, Any]) -> None:
    sums["servers"].append(
        {"cell": 0, "server_id": 3, "received": 0, "forwarded": 0, "leases": 0}
        | {"lived": 1, "down_ns": 5 * S, "span_ns": 10 * S}
    )
    found = balance.tables([CELL], sums)
    assert [row["servers"] for row in found["balance"]] == [4, 4, 4]
    received, forwarded, leases = (row["predicted_cv"] for row in found["balance"])
    before = [row["predicted_cv"] for row in balance.tables([CELL], sound_sums())["balance"]]
    # It was down for half of the load, which leases do not mind.
    assert received > before[0]
    assert forwarded > before[1]
    assert leases == before[2]


def test_without_taps_all_servers_count_and_only_copies_are_known(sums: dict[str, Any]) -> None:
    for row in sums["servers"]:
        row |= {"received": 0, "leases": 0, "lived": 0}
    found = balance.tables([CELL], sums)
    assert [(row["what"], row["servers"]) for row in found["balance"]] == [("forwarded copies", 4)]
    assert [row["received"] for row in found["servers"]] == [None] * 4


# --- Cost --------------------------------------------------------------------------------------------


def test_cost() -> None:
    (row,) = cost.tables([CELL], sound_sums())["cost"]
    assert (row["copies"], row["duplicates"], row["sendings_per_message"]) == (3998, 1999, 2)
    assert row["copies_per_pair"] == 3998 / 2000
    assert row["copies_theory"] == 2
    assert row["lines_per_delivery"] == (4000 + 6 + 3998) / 1999
    # "load/000000" and LF are 12 bytes.
    assert row["bytes_per_delivery"] == ((4000 + 3998) * 100 + 6 * 12) / 1999
    assert row["renewal_share"] == 6 / 4006
    # A subscriber a topic renews each lease every 20 s; topics have 100 messages/s.
    assert (row["cheaper_side"], row["crossover_rate"]) == ("publish", 1 / 20)


def test_the_cheaper_side_is_the_other_one_for_rare_messages(sums: dict[str, Any]) -> None:
    sums["cost"][0]["to_ns"] = 100 * S + 2000 * 100 * S  # 0.005 messages/s of a topic
    (row,) = cost.tables([CELL], sums)["cost"]
    assert row["cheaper_side"] == "subscribe"
    for scheme in ("S", "R"):
        cell = Cell(0, "run", Scenario(scheme=scheme, servers=4), "complete", 0)
        (row,) = cost.tables([cell], sums)["cost"]
        assert row["cheaper_side"] is row["crossover_rate"] is None


def test_nothing_delivered_has_no_price(sums: dict[str, Any]) -> None:
    sums["causes"] = [fate(Cause.LATE, 5, 7, 5)]
    (row,) = cost.tables([CELL], sums)["cost"]
    assert row["lines_per_delivery"] is row["bytes_per_delivery"] is None
    assert (row["copies"], row["duplicates"]) == (7, 2)


def test_copies_by_the_model() -> None:
    told: tuple[tuple[dict[str, Any], float | None], ...] = (
        ({}, 3.0),
        ({"side": "subscribe", "loss_in": 0.1, "loss_out": 0.2}, 3 * 0.9 * 0.8),
        ({"outages": "independent", "outage": 0.1, "repeat": 2, "repeat_interval_s": 0.1}, 3 * 0.9 * 2),
        ({"outages": "exact", "down": 3}, 3 * 0.75),
        ({"outages": "rolling"}, 3 * 11 / 12),
        ({"scheme": "S"}, 1.0),
        ({"scheme": "CH", "k": 4, "duplicate": 0.5}, 4 * 1.5**2),
        ({"scheme": "S", "known": 0.5}, None),
        ({"outages": "exact", "down": 3, "by": "kill"}, None),
        ({"outages": "exact", "down": 3, "by": "stall"}, None),
        ({"outages": "exact", "down": 3, "avoid_dead": True}, None),
        ({"k": 8, "known": 0.5}, None),
    )
    for fields, expected in told:
        found = cost.copies_theory(Scenario(**fields))
        assert found is None if expected is None else found == pytest.approx(expected), fields
    scenario = Scenario(k=6, k_prime=2, loss_in=0.1, loss_out=0.3, outages="independent", outage=0.2)
    assert cost.copies_theory(scenario) == pytest.approx(model_copies(6, 2, 6, 0.8, 0.1, 0.3))


@pytest.mark.parametrize("scheme", ["RCH", "R"])
def test_copies_where_views_differ(scheme: Any) -> None:
    scenario = Scenario(scheme=scheme, servers=20, k=4, k_prime=2, known=0.6)
    rng = np.random.default_rng(5)
    policy, common = scenario.policy, 0
    for _ in range(4000):
        views = [rng.permutation(20)[:12] for _ in range(2)]  # as topics have servers in some order
        if scheme == "RCH":
            views = [np.sort(view)[:4] for view in views]
        sent = rng.permutation(views[0])[: policy.publish]
        held = rng.permutation(views[1])[: policy.subscribe]
        common += len(np.intersect1d(sent, held))
    assert cost.copies_theory(scenario) == pytest.approx(common / 4000, rel=0.03)


# --- Health and cells --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what", "words"),
    [  # tests/loadtest/results/test_health.py has all, and tests/spark/jobs/test_measures.py the same here
        (lambda sums: sums["health"][0].update(rows_lost=1), "delivery", "the recorder lost 1 row"),
        (lambda sums: sums["causes"].append(fate(Cause.NETWORK_IN, 0, 0, 900)), "delivery", "900 paths"),
        (lambda sums: sums["latency_buckets"].clear(), "latency", "0 deliveries were measured"),
    ],
)
def test_each_reason_is_told_of_its_cell(change: Any, what: str, words: str, sums: dict[str, Any]) -> None:
    change(sums)
    found = all_tables(sums)
    rows = found["health"]
    assert [(row["cell"], row["what"]) for row in rows] == [(0, what)]
    assert words in rows[0]["reason"]
    assert health.invalid(rows, what) == {0}
    (row,) = found["scenarios"]
    assert row["delivery_valid"] == (what != "delivery")
    assert row["latency_valid"] == (what != "latency")


def test_how_narrow_the_interval_is_decides_what_matters(sums: dict[str, Any]) -> None:
    sums["causes"].append(fate(Cause.LATE, 2, 2, 2))
    assert health.tables([CELL], sums)["health"] == []  # of 2,002 pairs two are too few to matter
    for row in sums["clusterings"]:  # as many trials as make the interval 0.0007 to either side
        row |= {"clusters": 12_000, "pairs": 12_000, "delivered": 11_982}
        row |= {"squares": 12_000, "products": 11_982, "success_squares": 11_982}
    (row,) = health.tables([CELL], sums)["health"]
    assert "late 2" in row["reason"]


def test_a_capture_that_ended_early_is_not_valid() -> None:
    (row,) = health.tables([Cell(0, "run", SCENARIO, "partial", 0)], sound_sums())["health"]
    assert row["what"] == "delivery"
    assert "the capture is partial" in row["reason"]


def test_cells_tell_what_was_run() -> None:
    scenario = Scenario(scheme="CH", k=3, outages="exact", down=3, publishers=2, subscribers=5, mixed=4)
    found = cells.tables([Cell(7, "a-run", scenario, "complete", 0)], {"cost": []}, [])
    (row,) = found["scenarios"]
    assert (row["cell"], row["run"], row["side"], row["messages"]) == (7, "a-run", "", 0)
    assert (row["k"], row["publish"], row["subscribe"], row["down"]) == (3, 3, 3, 0.25)
    assert (row["publishers"], row["subscribers"]) == (6, 9)
    assert row["delivery_valid"] and row["latency_valid"]
    Findings({}, (), found)
