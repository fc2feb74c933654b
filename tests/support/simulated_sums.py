"""The sums that the jobs make of captures, of simulated runs: findings are tested with them without Spark."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kcast.loadtest.results import prediction
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import draws
from kcast.spark.findings.placement import Topics
from tests.support.handmade_pairs import reliability_sums
from tests.support.simulated_runs import Run, simulate_whole_run

Row = dict[str, Any]


def simulated_sums(scenarios: Sequence[Scenario], seed: int, **faults: Any) -> dict[str, list[Row]]:
    """Returns the sums of one run of all these scenarios, which share places and outages."""
    found: dict[str, list[Row]] = {}
    for cell, scenario in enumerate(scenarios):
        run = simulate_whole_run(scenario, seed, cell=cell, **faults)
        for name, rows in sums_of_run(cell, scenario, run).items():
            found.setdefault(name, []).extend(rows)
    return found


def sums_of_run(cell: int, scenario: Scenario, run: Run) -> dict[str, list[Row]]:
    """Returns the sums of one cell, those of which findings about delivery, load and cost are made."""
    pairs = run.pairs
    _, numbers = np.unique(pairs["msg_id"], return_inverse=True)
    sizes = np.bincount(numbers)
    reached = np.bincount(numbers, pairs["cause"] == Cause.DELIVERED).astype(np.int64)
    messages = len(run.topics)
    causes = Counter(pairs["cause"].tolist())
    return {
        **reliability_sums(pairs),
        "audience_sizes": [
            {
                "cell": cell,
                "subscribers": int(size),
                "messages": int((sizes == size).sum()),
                "all_reached": int(((sizes == size) & (reached == size)).sum()),
                "none_reached": int(((sizes == size) & (reached == 0)).sum()),
            }
            for size in np.unique(sizes)
        ],
        "audience_clusterings": [],
        "deaf": [],
        "servers": [
            {
                **{"cell": cell, "server_id": server, "lived": 1, "down_ns": 0, "span_ns": None},
                **{name: int(getattr(run, name)[server]) for name in ("received", "forwarded", "leases")},
            }
            for server in range(scenario.servers)
        ],
        "topics": [_topics(cell, scenario, run)],
        "cost": [
            {
                **{"cell": cell, "messages": messages, "message_bytes": 150 * messages, "renewals": 0},
                "sendings": messages * prediction.draws(scenario)[0] * scenario.repeat,
                **{"from_ns": 0, "to_ns": round(scenario.duration_s * 1e9)},
            }
        ],
        "draws": draws_of_run(cell, scenario, run),
        "causes": [
            {
                **{"cell": cell, "cause": cause, "pairs": count, "paths": 0},
                "copies": int(pairs["copies"][pairs["cause"] == cause].sum()),
                "duplicates": int(np.maximum(pairs["copies"][pairs["cause"] == cause] - 1, 0).sum()),
            }
            for cause, count in sorted(causes.items())
        ],
    }


def _rows(cell: int, key: str, value: str, counts: Counter[int]) -> list[Row]:
    return [{"cell": cell, key: each, value: count} for each, count in sorted(counts.items())]


def _topics(cell: int, scenario: Scenario, run: Run) -> Row:
    counts = np.bincount(run.topics, minlength=scenario.topics).tolist()
    of: Iterable[tuple[int, int]] = zip(counts, run.listens.sum(axis=0).tolist(), strict=True)
    listed = [each for each in of if any(each)]
    return {"cell": cell, "topics": len(listed), **Topics.of(listed)._asdict()}


def draws_of_run(cell: int, scenario: Scenario, run: Run) -> list[Row]:
    """Returns the sums `draws` of one cell, as `kcast.spark.findings.draws` specifies them."""
    by_topic = np.zeros((scenario.topics, scenario.servers), dtype=np.int64)
    np.put_along_axis(by_topic, run.places, 1, axis=1)
    order = np.argsort(run.times_s, kind="stable")
    keys = run.publishers[order] * scenario.topics + run.topics[order]
    by_key = np.argsort(keys, kind="stable")
    sent, same = run.sent[order][by_key], np.diff(keys[by_key]) == 0
    following = int((sent[1:] & sent[:-1])[same].sum())
    sub, topic = np.nonzero(run.listens)
    groups = {
        draws.PLACEMENT: (np.zeros(scenario.topics, dtype=np.int64), by_topic),
        draws.TOPIC: (run.topics, run.sent),
        draws.PUBLISHER: (run.publishers * scenario.topics + run.topics, run.sent),
        draws.SUBSCRIBER: (topic, run.holds[sub, topic]),
    }
    rows = []
    for what, (group, taken) in groups.items():
        _, number = np.unique(group, return_inverse=True)
        n = np.bincount(number)
        of_servers = np.zeros((len(n), taken.shape[1]), dtype=np.int64)
        np.add.at(of_servers, number, taken)
        sums = {"draws": n.sum(), "squares": (n**2).sum(), "cubes": (n**3).sum()}
        rows.append((what, sums | {"common": (of_servers**2).sum()}))
    rows.append((draws.NEXT, {"draws": same.sum(), "squares": 0, "cubes": 0, "common": following}))
    return [
        {
            **{"cell": cell, "what": what, "size": draws.size_of(scenario, what), "others": 0},
            **{name: int(value) for name, value in sums.items()},
        }
        for what, sums in rows
    ]
