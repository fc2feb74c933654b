"""loadtest/bench/figures.py and report.py: what is told, from what clients have counted."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kcast.hashring.policy import Policy
from kcast.loadtest.bench.figures import Delivered, Published, ServerFigures, delivered, published
from kcast.loadtest.bench.latencies import Latencies
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.report import as_json, as_text, notes
from kcast.loadtest.bench.run import BenchResult, Target

S = 1_000_000_000
PLAN = BenchPlan(kind="pubsub", publishers=2, subscribers=2, count=1000, size_bytes=100)
TARGET = Target(text="", name="servers", servers=5, policy=Policy(5, 3, 5))


SERVERS = ServerFigures(cpu_ns=500_000_000, copies=6006, drops={})


def times(*times_ms: float) -> dict[str, Any]:
    latencies = Latencies()
    for time_ms in times_ms:
        latencies.add(int(time_ms * 1_000_000))
    return latencies.as_json()


def a_publisher(**given: Any) -> dict[str, Any]:
    return {
        "attempted": 500,
        "outcomes": {"receipt": 500},
        "reasons": {},
        "receipts": {"3": 500},
        "behind": times(),
        "receipt_times": times(),
        "begun_ns": 1 * S,
        "ended_ns": 3 * S,
        "are_servers_lost": False,
        **given,
    }


def a_subscriber(**given: Any) -> dict[str, Any]:
    return {
        "delivered": 1001,
        "bytes": 100_100,
        "missing": 0,
        "twice": 0,
        "foreign": 0,
        "copies": 3003,
        "deliveries": 1001,
        "duplicates": 2002,
        "kernel_drops": 0,
        "slow_consumer": 0,
        "first_ns": 1 * S,
        "last_ns": 3 * S,
        "latencies": times(1, 2, 3, 4),
        **given,
    }


def test_rates_of_publishers() -> None:
    made = published(PLAN, [a_publisher(), a_publisher(begun_ns=2 * S, ended_ns=6 * S)], cpu_ns=30_000_000)
    assert (made.clients, made.attempted, made.messages, made.bytes) == (2, 1000, 1000, 100_000)
    assert made.seconds == 5
    assert (made.rates.all, made.rates.least, made.rates.mean, made.rates.greatest) == (200, 125, 187.5, 250)
    assert made.cpu_us == 30
    assert made.receipts == {3: 1000}


def test_what_was_refused_was_attempted_but_is_no_message() -> None:
    refused = {"receipt": 300, "refused": 150, "no-answer": 40, "queue-full": 10}
    made = published(PLAN, [a_publisher(outcomes=refused, reasons={"rate": 450})], cpu_ns=0)
    assert (made.attempted, made.messages) == (500, 340)
    assert (made.with_receipt, made.refused, made.no_answer, made.queue_full) == (300, 150, 40, 10)
    assert made.rates.all == 170
    assert made.reasons == {"rate": 450}


def test_rates_and_losses_of_subscribers() -> None:
    late = a_subscriber(delivered=901, last_ns=5 * S, latencies=times(9))
    made = delivered([a_subscriber(), late], expected_each=1001, cpu_ns=0)
    assert (made.messages, made.expected, made.lost) == (1902, 2002, 100)
    assert (made.rates.least, made.rates.greatest) == (225, 500)
    assert made.seconds == 4 and made.rates.all == 475
    assert (made.latency.count, made.latency.max_ms) == (5, 9)
    assert made.copies_each == 3


def test_without_publishers_here_lost_is_what_is_missing() -> None:
    made = delivered([a_subscriber(missing=7), a_subscriber(missing=2)], expected_each=None, cpu_ns=0)
    assert (made.expected, made.lost) == (None, 9)


def test_clients_that_got_nothing_or_one_message_have_no_rate() -> None:
    nothing = a_subscriber(delivered=0, bytes=0, first_ns=None, last_ns=None, latencies=times())
    single = a_subscriber(delivered=1, first_ns=S, last_ns=S)
    made = delivered([nothing, single], expected_each=1, cpu_ns=0)
    assert (made.messages, made.lost, made.rates.all, made.seconds) == (1, 1, 0, 0)
    made = delivered([nothing], expected_each=1, cpu_ns=5)
    assert (made.messages, made.cpu_us, made.latency.count) == (0, 0, 0)


# --- What is shown -----------------------------------------------------------------------------------


def result(
    publishers: Mapping[str, Any] | None = None,
    subscribers: Mapping[str, Any] | None = None,
    servers: ServerFigures | None = SERVERS,
) -> BenchResult:
    expected = None if publishers is None else 1001
    return BenchResult(
        None if publishers is None else published(PLAN, [a_publisher(**publishers)] * 2, 30_000_000),
        None if subscribers is None else delivered([a_subscriber(**subscribers)] * 2, expected, 60_000_000),
        servers,
        is_interrupted=False,
    )


def shown(made: BenchResult, plan: BenchPlan = PLAN) -> list[str]:
    return list(as_text(plan, TARGET, made))


def test_a_whole_report() -> None:
    assert shown(result({}, {})) == [
        "                                                       CPU",
        "           messages  seconds  messages/s  MB/s  us/message  slowest/s  mean/s  fastest/s",
        "published     1,000     2.00         500  0.05        30.0        250     250        250",
        "delivered     2,002     2.00       1,000  0.10        30.0        500     500        500",
        "",
        "receipts    1,000 of 1,000 messages, from 3 servers each",
        "lost        none of 2,002",
        "duplicates  3.00 copies of each message came, as policy 5/3/5 has it; no message",
        "            was delivered twice",
        "servers     0.50 s of CPU time, 0.25 of a core, 83.3 us for each copy",
        "",
        "since it was published  p50 ms  p90 ms  p99 ms  p99.9 ms  max ms",
        "to its delivery           2.00    4.00    4.00      4.00    4.00",
    ]
    assert list(notes(PLAN, result({}, {}))) == []


def test_one_client_each_needs_no_rates_of_one() -> None:
    made = BenchResult(published(PLAN, [a_publisher()], 0), None, None, is_interrupted=False)
    assert shown(made) == [
        "           messages  seconds  messages/s  MB/s  CPU us/message",
        "published       500     2.00         250  0.03               0",
        "",
        "receipts    500 of 500 messages, from 3 servers each",
    ]


def test_latencies_at_a_rate_have_three_legs() -> None:
    made = result({"behind": times(0.1, 0.2), "receipt_times": times(1, 5)}, {})
    lines = shown(made, replace(PLAN, rate=500.0))
    assert [line.split()[:4] for line in lines[-4:]] == [
        ["since", "it", "was", "due"],
        ["to", "its", "publishing", "0.100"],
        ["to", "its", "last", "receipt"],
        ["to", "its", "delivery", "2.00"],
    ]


@pytest.mark.parametrize(
    ("publishers", "subscribers", "line"),
    [
        (
            {"outcomes": {"receipt": 400, "refused": 100}, "receipts": {"2": 1, "3": 399, "0": 100}}
            | {"reasons": {"rate": 300}},
            None,
            "receipts    800 of 1,000 messages, from 2 to 3 servers each; 200 refused (rate)",
        ),
        (
            {"outcomes": {"no-answer": 499, "queue-full": 1}, "receipts": {"0": 500}},
            None,
            "receipts    0 of 1,000 messages; 998 without an answer; 2 not sent, since too",
        ),
        (None, {"missing": 11}, "lost        22 between others of the same publisher (1.09 %)"),
        (None, {}, "lost        none between the first and the last message of each publisher"),
        ({}, {"delivered": 1000}, "lost        2 of 2,002 (0.10 %)"),
        ({}, {"twice": 1, "duplicates": 0}, "duplicates  2 messages delivered twice"),
        ({}, {"duplicates": 0}, "duplicates  none came"),
    ],
)
def test_lines(publishers: dict[str, Any] | None, subscribers: dict[str, Any] | None, line: str) -> None:
    assert line in shown(result(publishers, subscribers))


def test_without_receipts_it_says_so() -> None:
    made = result({"outcomes": {"sent": 500}, "receipts": {"0": 500}}, {"delivered": 1000})
    plan = replace(PLAN, confirm=False)
    assert "receipts    not asked for; 1,000 sent" in shown(made, plan)
    (note,) = notes(plan, made)
    assert note == "without receipts nobody tells what servers refuse: compare with --confirm"


@pytest.mark.parametrize(
    ("publishers", "subscribers", "note"),
    [
        (
            {"reasons": {"rate": 5}},
            {},
            "10 refusals for the reason 'rate': give a lower --rate, or raise --publish-rate, --copy-rate "
            "and --egress-rate of kcast serve",
        ),
        ({"reasons": {"new": 5}}, {}, "10 refusals for the reason 'new'"),
        ({"behind": times(2.1)}, {}, "messages were published late"),
        ({}, {"kernel_drops": 3}, "6 datagrams and 0 messages came and were not read in time"),
        ({}, {"slow_consumer": 3}, "0 datagrams and 6 messages came and were not read in time"),
        ({}, {"foreign": 1}, "2 messages of other publishers came on the same topics"),
    ],
)
def test_notes(publishers: dict[str, Any], subscribers: dict[str, Any], note: str) -> None:
    (found,) = notes(PLAN, result(publishers, subscribers))
    assert found.startswith(note)


def test_a_publisher_that_is_a_little_late_is_no_news() -> None:
    assert list(notes(PLAN, result({"behind": times(1.9)}, {}))) == []


def test_servers_that_sent_no_copies_and_servers_that_dropped_some() -> None:
    made = result({}, None, ServerFigures(500_000_000, 0, {}))
    assert "servers     0.50 s of CPU time, 0.25 of a core, 500 us for each message" in shown(made)
    made = result({}, None, ServerFigures(90_000_000, 0, {}))
    assert "servers     0.09 s of CPU time, too little to say more of it" in shown(made)
    made = result({}, None, ServerFigures(500_000_000, 0, {"credit": 1200, "late": 3}))
    assert shown(made)[-1] == "            dropped: credit 1,200, late 3 (docs/operations.md, Reasons)"


# Programs read these names: a later version may add some, and must not take any away.
KEYS = {
    "type",
    "command",
    "kcast",
    "policy",
    "servers",
    "own_servers",
    "interrupted",
    "settings",
    "published",
    "delivered",
}


def test_json_has_all_figures() -> None:
    made = json.loads(json.dumps(as_json(PLAN, TARGET, result({}, {}))))
    assert made.keys() == KEYS
    assert (made["type"], made["command"], made["policy"]) == ("result", "pubsub", "5/3/5")
    assert made["settings"].keys() == BenchPlan.__dataclass_fields__.keys() - {"kind"}
    assert made["published"].keys() == Published.__dataclass_fields__.keys()
    assert made["delivered"].keys() == Delivered.__dataclass_fields__.keys()
    assert made["published"]["receipts"] == {"3": 1000}
    assert made["delivered"]["latency"]["p99_ms"] == 4.0
    assert made["own_servers"] == {"cpu_ns": 500_000_000, "copies": 6006, "drops": {}}
    alone = as_json(PLAN, TARGET, result({}, None, None))
    assert (alone["delivered"], alone["own_servers"]) == (None, None)
