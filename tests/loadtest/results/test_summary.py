import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from kcast.hashring.effective_size import EffectiveSize
from kcast.hashring.intervals import wilson
from kcast.loadtest.capture.folder import CaptureError
from kcast.loadtest.results.attribution import Attribution, attribute
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.effective_trials import pair_trials, trials_from_clusters
from kcast.loadtest.results.pair_clusters import pair_clusters
from kcast.loadtest.results.summary import ResultsError, Summary, summarise
from kcast.loadtest.results.verdicts import Verdict, judge_delivery
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import T0, Handmade, S, World, simulate


def test_a_summary_adds_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    first, _, third = (world.message(0, 1, at_s=at_s) for at_s in (1, 2, 3))
    world.lose_in(first, 0, 1)
    world.lose_in(first, 1, 2)
    for row in world.where("deliver", msg_id=third, sub_id=1):
        row["t_user_ns"] += 3 * S
    summary = summarise(world.folder())
    assert (summary.messages, summary.pairs, summary.delivered, summary.misses) == (3, 6, 3, 3)
    assert summary.causes == {"loss-in": 2, "late": 1}
    assert summary.paths == {"draw": 6, "down": 2, "loss-in": 2, "late": 2, "delivered": 6}
    assert (summary.copies, summary.duplicates, summary.unexplained) == (8, 4, 0)
    assert summary.copies_per_pair == 8 / 6
    assert summary.share == 0.5
    assert (summary.low, summary.high) == wilson(0.5 * summary.trials, summary.trials)
    assert (summary.latency.count, summary.latency.p50_ms) == (3, 3.0)
    assert (summary.publish_delay.count, summary.publish_delay.max_ms) == (3, 1.0)
    assert summary.status == "complete"
    cut_short = summarise(world.folder(), "partial").delivery_verdict
    assert cut_short.reasons[0].startswith("the capture is partial")


def test_what_a_halted_server_brings_too_late_is_no_duplicate(tmp_path: Path) -> None:
    world = World(tmp_path, outages="exact", down=1, by="stall")
    world.message(0)
    for row in world.where("deliver"):
        row["t_user_ns"] += 3 * S
    world.add("outage", server_id=0, t_down_ns=T0 + S, t_up_ns=T0 + 4 * S, kind="stall", plan="exact")
    summary = summarise(world.folder())
    assert summary.causes == {"halted": 2}
    assert (summary.copies, summary.duplicates) == (2, 0)


def test_a_summary_comes_back_from_json(tmp_path: Path) -> None:
    scenario = Scenario(loss_in=0.1, duration_s=4.0, epoch_s=1.0, outages="independent", outage=0.2)
    summary = summarise(simulate(tmp_path, scenario))
    again = Summary.from_json(json.loads(json.dumps(summary.as_json(), allow_nan=False)))
    assert again == summary
    assert sum(summary.causes.values()) == summary.misses
    assert summary.copies == summary.delivered + summary.duplicates
    assert summary.low <= summary.share <= summary.high


def test_other_json_is_refused() -> None:
    others: tuple[dict[str, object], ...] = ({}, {"pairs": 3}, {"scenario": {"nonsense": 1}})
    for values in others:
        with pytest.raises(ResultsError, match="no results of this version"):
            Summary.from_json(values)


def test_an_empty_capture_has_a_summary(tmp_path: Path) -> None:
    summary = summarise(Handmade(tmp_path, Scenario()).folder())
    assert (summary.pairs, summary.share, summary.low, summary.high) == (0, 0.0, 0.0, 1.0)
    assert summary.agrees in (True, False)
    assert not summary.delivery_verdict.valid
    assert not summary.latency_verdict.valid


def test_a_damaged_capture_is_refused_by_name(tmp_path: Path) -> None:
    folder = World(tmp_path).folder()
    (part,) = folder.parts("deliver")
    part.write_bytes(part.read_bytes()[:50])
    with pytest.raises(CaptureError, match=r"hand-0\.parquet"):
        summarise(folder)


def independent_trials(scenario: Scenario, attribution: Attribution, t0_ns: int) -> EffectiveSize:
    return pair_trials(scenario, pair_clusters(scenario, attribution, t0_ns))


def by_clusters(scenario: Scenario, attribution: Attribution, t0_ns: int) -> EffectiveSize:
    return trials_from_clusters(scenario, pair_clusters(scenario, attribution, t0_ns))


def test_who_shares_luck_counts_together(tmp_path: Path) -> None:
    world = World(tmp_path, outages="independent", outage=0.5, topics=2, topics_per_subscriber=2, epoch_s=2.0)
    for at_s in (0.5, 1.0, 2.5, 3.0, 5.0):
        for topic in (0, 1):
            world.message(0, 1, at_s=at_s, topic=topic)
    for msg in (0, 1, 2, 3):  # all of the first epoch
        for server in (0, 1):
            world.lose_in(msg, server, 2)
    attribution = attribute(world.folder())
    # 20 pairs in epochs of 8, 8 and 4, of which the first 8 are lost.
    killed, calm = world.scenario.with_(by="kill"), world.scenario.with_(outages="none")
    found = by_clusters(killed, attribution, T0)
    assert (found.name, found.degrees) == ("epoch", 2)
    assert found.variance_trials == pytest.approx(2 / 3 * 20**2 * 0.6 * 0.4 / (4.8**2 + 3.2**2 + 1.6**2))
    # Where theory tells how outages vary, they need not be seen to.
    planned = independent_trials(world.scenario, attribution, T0)
    assert (planned.name, planned.degrees) == ("epoch", inf)
    # Without outages, only the two subscribers of one message belong together.
    found = independent_trials(calm, attribution, T0)  # where nothing is to be lost theory has no spread
    assert (found.name, found.degrees) == ("message", 9)
    assert found.variance_trials == pytest.approx(9)
    # Nothing lost: nothing is known of the spread but how many clusters there are.
    attribution.causes[:] = Cause.DELIVERED
    assert by_clusters(killed, attribution, T0).interval_trials() == 3  # both topics are on the same servers
    assert independent_trials(calm, attribution, T0).interval_trials() == 10


def test_what_the_machine_missed_is_held_against_runs_with_the_same_outages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def judge(*found: Any, half_width: float, **more: Any) -> Verdict:
        told.append(half_width)
        return judge_delivery(*found, half_width=half_width, **more)

    monkeypatch.setattr("kcast.loadtest.results.summary.judge_delivery", judge)
    scenario = Scenario(scheme="CH", k=2, outages="independent", outage=0.1, duration_s=4.0)
    summary = summarise(simulate(tmp_path, scenario.with_(loss_out=0.01)))
    low, high = wilson(summary.share * summary.trials_given_outages, summary.trials_given_outages)
    assert told == [pytest.approx((high - low) / 2)]
    assert told[0] < (summary.high - summary.low) / 4


def test_views_that_differ_are_luck_of_clients_and_topics(tmp_path: Path) -> None:
    world = World(tmp_path, known=0.5, topics=2, topics_per_subscriber=2)
    for number in range(10):
        msg = world.message(0, 1, at_s=number, topic=number % 2)
        for server in (0, 1):
            world.where("deliver", msg_id=msg, server_id=server, sub_id=1)[0]["injected"] = 1
    attribution = attribute(world.folder())
    found = by_clusters(world.scenario, attribution, T0)
    assert (found.name, found.degrees, found.single) == ("subscriber", 1, ("publisher",))
    assert found.variance_trials == pytest.approx(20 * 0.25 * 20 / 50 / 2)
    # By the plan nothing is missed, so only the run can tell how it varies.
    assert independent_trials(world.scenario, attribution, T0) == found
    summary = summarise(world.folder())
    assert summary.trials == found.interval_trials()
    assert summary.interval_note.startswith("there was one publisher only")
    assert summary.agrees is False  # half was lost, and nothing was to be
    # Now it is one of two publishers whose messages are lost, on both topics and for both subscribers.
    for table in ("publish", "pub_tx", "server_rx", "deliver"):
        for row in world.rows[table]:
            pub = row["msg_id"] // 2 % 2
            row["msg_id"] |= pub << 32
            row["injected" if table == "deliver" else "pub_id"] = pub
    found = by_clusters(world.scenario, attribute(world.folder()), T0)
    assert found.name == "publisher"
    assert found.variance_trials == pytest.approx(20**2 * 0.6 * 0.4 / (2 * 4.8**2) / 2)
