"""loadtest/bench/report.py: what is told at the end."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from kcast.loadtest.bench.counts import Counts, Figures, Latencies, delivered, published
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.report import (
    as_json,
    as_text,
    failure,
    notes,
)

S = 1_000_000_000
PLAN = BenchPlan(kind="pubsub", publishers=2, subscribers=2, count=1000, size_bytes=100)
SERVERS = {"cpu_ns": 500_000_000}


def client(given: dict[str, Any], **usual: int) -> Counts:
    made = Counts()
    made.began_ns, made.ended_ns = S, 3 * S
    for name, value in {**usual, **given}.items():
        if isinstance(value, int):
            made.numbers[name] = value
        else:
            setattr(made, name, value)
    return made


def times(*times_ms: float) -> Latencies:
    latencies = Latencies()
    for time_ms in times_ms:
        latencies.add(int(time_ms * 1_000_000))
    return latencies


def result(
    publishers: dict[str, Any] | None = None,
    subscribers: dict[str, Any] | None = None,
    servers: Figures | None = SERVERS,
) -> Figures:
    ours = theirs = None
    if publishers is not None:
        given = {"receipts": Counter({3: 500}), **publishers}
        clients = [client(given, attempted=500, with_receipt=500) for _ in range(2)]
        ours = published(PLAN, clients, 30_000_000)
    if subscribers is not None:
        given = {"latency": times(1, 2, 3, 4), **subscribers}
        usual = {"messages": 1001, "bytes": 100_100, "copies": 3003, "deliveries": 1001, "duplicates": 2002}
        clients = [client(given, **usual) for _ in range(2)]
        theirs = delivered(clients, 60_000_000, None if publishers is None else 1001)
    return {
        **{"policy": "5/3/5", "servers": 5, "own_servers": servers if ours else None},
        **{"interrupted": False, "published": ours, "delivered": theirs},
    }


def test_a_whole_report() -> None:
    assert list(as_text(PLAN, result({}, {}))) == [
        "           messages  seconds  messages/s  MB/s  CPU us/message",
        "published     1,000     2.00         500  0.05            30.0",
        "delivered     2,002     2.00       1,000  0.10            30.0",
        "",
        "receipts    1,000 of 1,000 messages, from 3 servers each",
        "lost        none of 2,002",
        "duplicates  3.00 copies of each message came, as policy 5/3/5 has it; no message",
        "            was delivered twice",
        "servers     0.50 s of CPU time, 0.25 of a core, 500 us for each message",
        "",
        "since it was published  p50 ms  p90 ms  p99 ms  p99.9 ms  max ms",
        "to its delivery           2.00    4.00    4.00      4.00    4.00",
    ]
    assert list(notes(PLAN, result({}, {}))) == [] and failure(PLAN, result({}, {})) == ""


def test_latencies_at_a_rate_have_three_legs() -> None:
    made = result({"behind": times(0.1, 0.2), "until_receipt": times(1, 5)}, {})
    lines = list(as_text(replace(PLAN, rate=500.0), made))
    assert [line.split()[:4] for line in lines[-4:]] == [
        ["since", "it", "was", "due"],
        ["to", "its", "publishing", "0.100"],
        ["to", "its", "last", "receipt"],
        ["to", "its", "delivery", "2.00"],
    ]


def test_what_became_of_messages_is_told() -> None:
    some = {"with_receipt": 400, "refused": 100, "receipts": Counter({2: 1, 3: 399, 0: 100})}
    none = {"with_receipt": 0, "no_answer": 499, "queue_full": 1, "receipts": Counter({0: 500})}
    silent = {"with_receipt": 0, "sent": 500, "receipts": Counter({0: 500})}
    few = {"cpu_ns": 90_000_000}
    unconfirmed = replace(PLAN, confirm=False)
    for made, line, plan in (
        (
            result({**some, "reasons": Counter(rate=300)}),
            "receipts    800 of 1,000 messages, from 2 to 3 servers each; 200 refused (rate)",
            PLAN,
        ),
        (result(none), "receipts    0 of 1,000 messages; 998 without an answer; 2 not sent, since too", PLAN),
        (result(silent), "receipts    not asked for; 1,000 sent", unconfirmed),
        (result(None, {"missing": 11}), "lost        22 between others of the same publisher (1.09 %)", PLAN),
        (result(None, {}), "lost        none between the first and the last message of each publisher", PLAN),
        (result({}, {"messages": 1000}), "lost        2 of 2,002 (0.10 %)", PLAN),
        (result({}, {"twice": 1, "duplicates": 0}), "duplicates  2 messages delivered twice", PLAN),
        (result({}, {"duplicates": 0}), "duplicates  none came", PLAN),
        (result({}, None, few), "servers     0.09 s of CPU time, too little to say more of it", PLAN),
    ):
        assert line in list(as_text(plan, made))


def test_notes_say_what_to_do() -> None:
    silent = {"with_receipt": 0, "sent": 500}
    for publishers, subscribers, note, plan in (
        (
            {"reasons": Counter(rate=5)},
            {},
            "10 refusals for the reason 'rate': give a lower --rate, or raise --publish-rate, --copy-rate",
            PLAN,
        ),
        ({"reasons": Counter(new=5)}, {}, "10 refusals for the reason 'new'", PLAN),
        ({"behind": times(2.1)}, {}, "messages were published late", PLAN),
        ({}, {"kernel_drops": 3}, "6 datagrams and 0 messages came and were not read in time", PLAN),
        ({}, {"slow_consumer": 3}, "0 datagrams and 6 messages came and were not read in time", PLAN),
        ({}, {"foreign": 1}, "2 messages of other publishers came on the same topics", PLAN),
        (silent, {"messages": 9}, "without receipts nobody tells what", replace(PLAN, confirm=False)),
    ):
        (found,) = notes(plan, result(publishers, subscribers))
        assert found.startswith(note)
    assert list(notes(PLAN, result({"behind": times(1.9)}, {}))) == [], "a little late is no news"


def test_what_has_failed_is_told() -> None:
    sub = BenchPlan(kind="sub", count=1002, subscribers=2)
    nothing = {"messages": 0, "began_ns": None, "ended_ns": None}
    for plan, made, words in (
        (PLAN, result({"servers_lost": 1}, {}), "no server answers any more: it ended after 1,000 messages"),
        (PLAN, result({"with_receipt": 0, "no_answer": 500}, {}), "no message had a receipt"),
        (PLAN, result({}, nothing), "no message came"),
        (sub, result(None, {}), "2,002 of 2,004 messages came"),
        (PLAN, result({}, {"messages": 1}), ""),
    ):
        assert failure(plan, made) == words


# Programs read these names: a later version may add some, and must not take any away (docs/bench.md).
KEYS = {
    "": "type command kcast policy servers own_servers interrupted settings published delivered",
    "settings": "topic topics publishers subscribers size_bytes count duration_s rate confirm",
    "published": "clients attempted messages bytes seconds messages_per_s with_receipt sent no_answer "
    "refused queue_full receipts reasons behind until_receipt cpu_us are_servers_lost",
    "delivered": "clients messages bytes seconds messages_per_s expected lost copies copies_each duplicates "
    "twice foreign kernel_drops slow_consumer latency cpu_us",
}


def test_json_has_all_figures() -> None:
    made = json.loads(json.dumps(as_json(PLAN, result({}, {}))))
    for part, names in KEYS.items():
        assert (made[part] if part else made).keys() == set(names.split())
    assert made["delivered"]["latency"].keys() == {
        *("count", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
    }
    assert (made["type"], made["command"], made["policy"]) == ("result", "pubsub", "5/3/5")
    assert made["published"]["receipts"] == {"3": 1000}
