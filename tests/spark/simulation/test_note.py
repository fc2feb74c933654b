"""The note at a small scale: every scene beside theory, and what the judgement makes of the figures.

2000 servers and K = 40 instead of 100,000 and 1000; the claims are the same with other figures.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest

from kcast.hashring.intervals import wilson
from kcast.hashring.ring import HashRing
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, HOLDS, HOLDS_IF
from kcast.spark.simulation.counts import COLUMNS, Counts, effective_trials, no_counts
from kcast.spark.simulation.kernel import simulate_block
from kcast.spark.simulation.placement import server_keys
from kcast.spark.simulation.results import FALSE_ALARMS, judge, rows
from kcast.spark.simulation.scene import Scene, Size
from kcast.spark.simulation.scenes import NoteSettings, scenes
from kcast.spark.simulation.simulated import percent, round_figure, told
from kcast.spark.simulation.theory import theory

SMALL = NoteSettings(seed=7, effort=0.06, servers=2000, k=40)
EVERY = scenes(SMALL)


def simulated(scene: Scene, seed: int, ring: HashRing | None) -> Counts:
    total = no_counts()
    for block in range(scene.size.blocks):
        counts = simulate_block(scene, block, seed, ring)
        total = {name: total[name] + counts[name] for name in COLUMNS}
    return total


@cache
def all_counts() -> dict[str, Counts]:
    ring = HashRing(server_keys(SMALL.servers))
    return {scene.name: simulated(scene, SMALL.seed, ring) for scene in EVERY}


@cache
def all_rows() -> list[Row]:
    return rows(EVERY, all_counts())


@pytest.mark.parametrize("place", range(len(EVERY)), ids=[scene.name for scene in EVERY])
def test_a_scene_agrees_with_theory(place: int) -> None:
    row = all_rows()[place]
    assert row["verdict"] == AGREES, f"{row['share']} for {row['theory']}, seed {SMALL.seed}"
    assert row["low"] <= row["share"] <= row["high"]
    assert row["outcomes"] == EVERY[place].size.outcomes
    assert row["trials"] <= row["outcomes"]


def test_figures_scatter_about_theory_as_they_should() -> None:
    # Squares of standard scores over all scenes in which something is left to chance. Half as much again, or
    # a third, would mean that intervals are too narrow or too wide. (Blocks are few: that widens them.)
    squares = []
    for row in all_rows():
        if 0 < row["share"] < 1:
            spread = row["theory"] * (1 - row["theory"]) / row["trials"]
            squares.append((row["share"] - row["theory"]) ** 2 / spread)
    assert len(squares) > 50
    assert 0.3 < sum(squares) / len(squares) < 1.5, f"seed {SMALL.seed}"


def test_the_tables_are_findings() -> None:
    found = Findings({}, tables={"simulation": all_rows(), "note": judge(SMALL, all_rows(), all_counts())})
    assert Findings.from_json(found.to_json()) == replace(found, problems=())


def test_a_wrong_theory_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(scene: Scene) -> float | None:
        share = theory(scene)
        return share and share * 0.98

    monkeypatch.setattr("kcast.spark.simulation.results.theory", off)
    wrong = [row for row in rows(EVERY, all_counts()) if row["verdict"] == DISAGREES]
    assert len(wrong) > len(EVERY) / 2


def test_verdicts_hold_for_all_scenes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two of the same scene, theory just within the interval for both, and just outside of that for one.
    scene = replace(EVERY[0], name="a")
    counts = all_counts()[EVERY[0].name]
    share, trials = counts["delivered"] / counts["outcomes"], effective_trials(counts)
    alone, both = (trials.interval(share, 1 - FALSE_ALARMS / scenes)[1] for scenes in (1, 2))
    monkeypatch.setattr("kcast.spark.simulation.results.theory", lambda _: (alone + both) / 2)
    (of_one,) = rows([scene], {"a": counts})
    of_two = rows([scene, replace(scene, name="b")], {"a": counts, "b": counts})
    assert of_one["verdict"] == DISAGREES
    assert [row["verdict"] for row in of_two] == [AGREES, AGREES]


# Intervals hold what they promise, where outcomes repeat most


def test_intervals_cover_the_true_share_although_outcomes_repeat() -> None:
    size = Size(blocks=40, epochs=4, topics=2, draws=20, partners=5)
    base = next(scene for scene in EVERY if scene.name == "rch-few-subscribe-zones-3")
    scene, runs = replace(base, size=size, servers=200, k=20, publish=20), 80
    true = theory(scene)
    assert true is not None
    covered = naive = 0
    for seed in range(runs):
        counts = simulated(scene, seed, None)
        share = counts["delivered"] / counts["outcomes"]
        low, high = effective_trials(counts).interval(share)
        covered += low <= true <= high
        low, high = wilson(share * counts["outcomes"], counts["outcomes"])
        naive += low <= true <= high
    assert covered >= 0.87 * runs, f"{covered} of {runs}"
    assert naive < 0.5 * runs, "outcomes were to repeat here"


# The judgement


@cache
def _judged() -> tuple[Row, ...]:
    return tuple(judge(SMALL, all_rows(), all_counts()))


def judgement(change: Callable[[dict[str, Row], dict[str, Counts]], None] | None = None) -> Iterator[Row]:
    if change is None:
        yield from _judged()
        return
    found = {row["scene"]: dict(row) for row in all_rows()}
    counts = deepcopy(all_counts())
    change(found, counts)
    yield from judge(SMALL, list(found.values()), counts)


def verdict(
    claim: str, scenario: str, change: Callable[[dict[str, Row], dict[str, Counts]], None] | None = None
) -> str:
    (row,) = [row for row in judgement(change) if claim in row["claim"] and scenario in row["scenario"]]
    found: str = row["verdict"]
    return found


def become(scene: str, share: float, half: float = 1e-5) -> Callable[..., None]:
    def change(found: dict[str, Row], counts: dict[str, Counts]) -> None:
        found[scene] |= {"share": share, "low": max(0.0, share - half), "high": min(1.0, share + half)}

    return change


def all_of(*changes: Callable[..., None]) -> Callable[..., None]:
    def change(found: dict[str, Row], counts: dict[str, Counts]) -> None:
        for one in changes:
            one(found, counts)

    return change


def swap_forms(found: dict[str, Row], counts: dict[str, Counts]) -> None:
    few, other = "rch-few-publish", "rch-few-subscribe"
    counts[few], counts[other] = counts[other], counts[few]


SUBSCRIBE, PUBLISH = "subscribe to K'", "publish to K'"


@pytest.mark.parametrize(
    ("claim", "scenario", "expected"),
    [
        ("reliable delivery", SUBSCRIBE, HOLDS_IF),
        ("reliable delivery", PUBLISH, HOLDS_IF),
        ("times the bandwidth", SUBSCRIBE, HOLDS_IF),
        ("times the bandwidth", PUBLISH, FAILS),
        ("times as many subscribers", SUBSCRIBE, FAILS),
        ("times as many subscribers", PUBLISH, FAILS),
        ("to block access", SUBSCRIBE, HOLDS),
        ("to block access", PUBLISH, HOLDS),
        ("even to a single", SUBSCRIBE, HOLDS_IF),
        ("even from a single", PUBLISH, HOLDS_IF),
        ("K' times", SUBSCRIBE, HOLDS_IF),
        ("K' times", PUBLISH, HOLDS_IF),
        ("subscribe-to-K' scenario", "both forms", FAILS),
        ("same amount", "RCH", HOLDS_IF),
        ("same K", "RCH", HOLDS_IF),
        ("single-point-of-failure", "S", HOLDS),
        ("miss one another", "S", HOLDS),
        ("performance bottleneck", "S", HOLDS),
        ("when its size is squared", "R", HOLDS_IF),
        ("entire network", "R", HOLDS),
        ("square root", "R", HOLDS_IF),
        ("orders of magnitude", "R", HOLDS),
        ("factor of K", "CH", HOLDS),
        ("legitimate effort as S", "CH", HOLDS),
        ("inconsistent", "CH", HOLDS_IF),
        ("eliminates", "CH", HOLDS),
        ("linearly", "CH", HOLDS),
    ],
)
def test_claims_are_judged_as_at_full_scale(claim: str, scenario: str, expected: str) -> None:
    (row,) = [
        row
        for row in _judged()
        if claim in row["claim"] and row["scenario"].replace("RCH, ", "").startswith(scenario)
    ] or [row for row in _judged() if claim in row["claim"]]
    assert row["verdict"] == expected, row
    assert row["because"].endswith(".")


@pytest.mark.parametrize(
    ("claim", "scenario", "change", "expected"),
    [
        ("reliable delivery", PUBLISH, become("rch-few-publish", 0.9971), FAILS),
        (
            "reliable delivery",
            PUBLISH,
            all_of(become("rch-few-publish-loss-1", 0.999), become("rch-few-publish-known-90", 0.999)),
            HOLDS,
        ),
        ("times the bandwidth", SUBSCRIBE, swap_forms, HOLDS),
        ("times the bandwidth", PUBLISH, swap_forms, HOLDS_IF),
        ("times as many subscribers", SUBSCRIBE, swap_forms, HOLDS),
        ("times as many subscribers", PUBLISH, swap_forms, HOLDS),
        ("subscribe-to-K' scenario", "both forms", swap_forms, HOLDS),
        ("to block access", SUBSCRIBE, become("rch-few-subscribe-blocked-40", 0.001), FAILS),
        ("to block access", SUBSCRIBE, become("rch-few-subscribe-blocked-39", 0.0), FAILS),
        ("even to a single", SUBSCRIBE, become("rch-few-subscribe-draw-known", 0.9), HOLDS),
        ("same amount", "RCH", become("ch", 0.99), FAILS),
        ("same K", "RCH", become("rch-few-subscribe-k-20", 0.5), HOLDS),
        ("same K", "RCH", become("rch-few-publish-k-20", 1.0), FAILS),
        ("single-point-of-failure", "S", become("s-blocked-1", 0.5), FAILS),
        ("miss one another", "S", become("s-one-unknown", 0.9), FAILS),
        ("when its size is squared", "R", become("r-45", 0.999), FAILS),
        ("when its size is squared", "R", become("r-45", 0.95), HOLDS),
        ("entire network", "R", become("r-124-blocked-50", 0.1), FAILS),
        ("factor of K", "CH", become("ch-blocked-2", 0.0), FAILS),
        ("factor of K", "CH", become("ch-blocked-3", 0.1), FAILS),
        ("inconsistent", "CH", become("ch-known-50", 0.95), HOLDS),
        ("inconsistent", "CH", become("ch-known-90", 0.5), FAILS),
        ("eliminates", "CH", become("ch-blocked-1", 0.5), FAILS),
    ],
)
def test_other_figures_are_judged_otherwise(
    claim: str, scenario: str, change: Callable[..., None], expected: str
) -> None:
    assert verdict(claim, scenario, change) == expected


@pytest.mark.parametrize(
    ("claim", "scene", "column", "factor", "expected"),
    [
        ("K' times", "rch-few-publish", "copies", 1 / 0.9, HOLDS),
        ("performance bottleneck", "s", "taken", 2, FAILS),
        ("square root", "r-124", "taken", 2, FAILS),
        ("orders of magnitude", "r-124", "leases", 0.1, FAILS),
        ("legitimate effort as S", "ch", "leases", 2, FAILS),
        ("linearly", "ch", "taken", 3, FAILS),
    ],
)
def test_other_counts_are_judged_otherwise(
    claim: str, scene: str, column: str, factor: float, expected: str
) -> None:
    def change(found: dict[str, Row], counts: dict[str, Counts]) -> None:
        counts[scene][column] = round(counts[scene][column] * factor)
        if column == "copies":
            found[scene]["copies"] *= factor

    scheme = {"r": "R", "s": "S", "ch": "CH"}.get(scene.split("-")[0], PUBLISH)
    found = [
        row["verdict"]
        for row in judgement(change)
        if claim in row["claim"] and (row["scenario"] == scheme or scheme in row["scenario"].split(", "))
    ]
    assert found == [expected]


# How figures are told


def test_figures_are_told_with_as_many_digits_as_they_bear() -> None:
    row = {"share": 0.99900413, "low": 0.998984, "high": 0.999024, "outcomes": 10**8, "trials": 9e6}
    assert told(row) == "99.9004 %"
    assert told(row | {"low": 0.99, "high": 0.9999}) == "99.90 %"
    assert told(row | {"share": 0, "low": 0.0, "high": 0.001}) == "none of 100,000,000"
    assert told(row | {"share": 1, "low": 0.999, "high": 1.0}) == "all of 100,000,000"
    assert percent(0.999, 1) == "99.9 %"
    assert [round_figure(value) for value in (100_000 / 3, 100.0, 7.7, 666.7)] == [33_000, 100, 7, 660]
