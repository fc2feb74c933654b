"""How soon parts of an audience are reached, from copies to the table; and P(reach), by its formulas."""

from collections import Counter
from dataclasses import replace
from math import comb
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from kcast.hashring.intervals import wilson
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.percentiles import rounded
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.reach import tables
from kcast.spark.findings.tables import PERCENTS
from kcast.spark.jobs.job import Around, Merged, Part
from kcast.spark.jobs.reach import TIMES, count, sightings
from tests.support.handmade_capture import T0, S, World
from tests.support.handmade_pairs import cell_of

MUTE = Scenario(servers=16, k=16, k_prime=2, outages="exact", down=8, by="mute", epoch_s=1e5)


def test_a_part_is_reached_with_the_copy_of_the_last_one_that_makes_it(tmp_path: Path) -> None:
    chance = Random(3)
    world = World(tmp_path, subscribers=7)
    for _ in range(40):
        world.message(0, 1)
    found = attribute(world.folder())
    keep = np.flatnonzero([chance.random() < 0.8 for _ in range(len(found))])
    missed = np.array([chance.random() < 0.2 for _ in keep])
    names = ("topics", "pub_ids", "t_intended_ns", "msg_ids", "sub_ids", "copies_of", "heard", "chances")
    found = replace(
        found,
        **{name: getattr(found, name)[keep] for name in names},
        causes=np.where(missed, Cause.MUTE, Cause.DELIVERED).astype(np.int8),
        latencies_ns=np.where(missed, -1, [chance.randrange(10**9) for _ in keep]),
    )
    # The count reads no table.
    part = Part(Around(0, 0, None), {}, found)  # type: ignore[arg-type]
    counted: Counter[tuple[int, int]] = Counter()
    for each in count(part):
        assert each.kind is TIMES
        keys = zip(*(column.tolist() for column in each.keys), each.values[0].tolist(), strict=True)
        counted.update({(percent, value): often for percent, value, often in keys})
    expected: Counter[tuple[int, int]] = Counter()
    for msg in set(found.msg_ids.tolist()):
        own = found.latencies_ns[found.msg_ids == msg]
        came = sorted(own[own >= 0].tolist())
        for percent in PERCENTS:
            for number, time_ns in enumerate(came, 1):
                if number * 100 >= percent * len(own):
                    expected[percent, int(rounded(np.array([time_ns]))[0])] += 1
                    break
    assert counted == expected and len({percent for percent, _ in counted}) == 6
    assert 0 < sum(often for (percent, _), often in counted.items() if percent == 100) < 40


def test_whom_clients_told_of_has_a_name_by_its_number(tmp_path: Path) -> None:
    world = World(tmp_path, subscribers=2)
    for number, (pub_id, name) in enumerate([(0, "AAA"), (-1, "SSS")]):
        world.add("member", client_id=number, pub_id=pub_id, sub_id=-1, port=1, publisher=name, servers=[])
    for sub_id, name, at_s in [(0, "SSS", 2), (1, "SSS", 1), (1, "SSS", 4), (0, "AAA", 3)]:
        world.add("sighting", sub_id=sub_id, t_ns=T0 + at_s * S, what="limited", name=name)
    # A folder is all that this reads of a capture.
    rows = list(sightings(Merged(Around(0, T0, world.folder()))))  # type: ignore[arg-type]
    Findings({}, tables={"sightings": rows})
    assert [list(row.values())[2:] for row in rows] == [
        ["publisher 0", 1, 3.0, 3.0],
        ["spammer", 2, 1.0, 4.0],
    ]


def sums_of(*cells: tuple[int, int]) -> dict[str, list[dict[str, Any]]]:
    """Of cells with so many messages to four subscribers, so many of which reached these, after 30 ms."""
    found: dict[str, list[dict[str, Any]]] = {
        "audience_sizes": [],
        "causes": [],
        "reach_times": [],
        "sightings": [],
    }
    for cell, (messages, reached) in enumerate(cells):
        found["audience_sizes"].append({"cell": cell, "subscribers": 4, "messages": messages})
        for cause, some in ((Cause.DELIVERED, reached), (Cause.MUTE, messages - reached)):
            found["causes"].append({"cell": cell, "cause": int(cause), "pairs": 4 * some})
        times = {"value_ns": 30_000_000, "messages": reached, "total_ns": reached * 30_000_000}
        found["reach_times"] += [
            {"cell": cell, "percent": percent, **times} for percent in PERCENTS if reached
        ]
    return found


def test_scenarios_of_one_fan_out_and_mute_share_are_pooled_beside_both_formulas() -> None:
    cells = [cell_of(MUTE), cell_of(MUTE.with_(delay_ms=100.0), 1), cell_of(MUTE.with_(k_prime=8), 2)]
    more = [MUTE.with_(loss_in=0.1), MUTE.with_(by="isolation"), MUTE.with_(k=8)]
    more += [MUTE.with_(seed=2), MUTE.with_(spam=9.0)]
    cells += [cell_of(scenario, number) for number, scenario in enumerate(more, 3)]
    found = tables(cells, sums_of((100, 70), (300, 230), (50, 50), *[(10, 0)] * 5), invalid=[6])
    Findings({}, tables=found)
    two, spammed, eight = found["reach"]
    assert (spammed["spam"], spammed["messages"], spammed["theory"]) == (9.0, 10, two["theory"])
    assert two["after_sync"] is eight["after_sync"] is None
    assert (two["servers"], two["publish"], two["mute"], two["scenarios"]) == (16, 2, 8, 2)
    assert (two["messages"], two["pairs"], two["share"]) == (400, 1600, 0.75)
    assert (two["low"], two["high"]) == pytest.approx(wilson(300, 400, 0.999))
    assert two["theory"] == pytest.approx(1 - comb(8, 2) / comb(16, 2)) and two["large_n"] == 0.75
    assert eight["theory"] == pytest.approx(1 - 1 / comb(16, 8)) and eight["high"] == 1.0
    assert eight["large_n"] == pytest.approx(0.99609375)
    (once,) = tables([cell_of(MUTE, number) for number in (0, 1)], sums_of((10, 6), (10, 6)))["reach"]
    assert (once["low"], once["high"]) == pytest.approx(wilson(6, 10, 0.999))
    sums = sums_of((10, 6))
    sums["causes"] += [
        {"cell": 0, "cause": int(cause), "pairs": 2} for cause in (Cause.BY_HISTORY, Cause.LATE)
    ]
    (logs,) = tables([cell_of(MUTE.with_(offline=0.2))], sums)["reach"]
    assert (logs["offline"], logs["share"], logs["after_sync"]) == (0.2, 24 / 44, 28 / 44)
    assert logs["theory"] == two["theory"]
    times = {(row["cell"], row["percent"]): row for row in found["reach_times"]}
    assert len(times) == 8 * 6
    assert (times[0, 50]["reached"], times[0, 50]["messages"], times[0, 50]["p50_ms"]) == (70, 100, 30.0)
    assert (times[3, 50]["reached"], times[3, 50]["p50_ms"]) == (0, None)
