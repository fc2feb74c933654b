"""The note at a small scale: every scene beside theory, and what the judgement makes of the figures.

2000 servers and K = 40 instead of 100,000 and 1000; the claims are the same with other figures.
"""

from collections.abc import Callable
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
from kcast.spark.simulation.scenes import NoteSettings, Scene, Size, scenes
from kcast.spark.simulation.theory import theory

pytestmark = pytest.mark.rest

SMALL = NoteSettings(seed=7, effort=0.06, servers=2000, k=40)
EVERY = scenes(SMALL)
SIDES = ("publish", "subscribe")

Change = Callable[[dict[str, Row], dict[str, Counts]], None]


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


def test_scenes_agree_with_theory() -> None:
    for row, scene in zip(all_rows(), EVERY, strict=True):
        assert row["verdict"] == AGREES, f"{row['scene']}: {row['share']} for {row['theory']}"
        assert row["low"] <= row["share"] <= row["high"]
        assert row["outcomes"] == scene.size.outcomes >= row["trials"]


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


# --- Claims ------------------------------------------------------------------------------------------


def judged(change: Change | None = None) -> list[Row]:
    found, counts = {row["scene"]: dict(row) for row in all_rows()}, deepcopy(all_counts())
    if change is not None:
        change(found, counts)
    return judge(SMALL, list(found.values()), counts)


def verdict(claim: str, change: Change | None = None) -> str:
    (row,) = [row for row in judged(change) if claim in row["claim"]]
    found: str = row["verdict"]
    return found


def become(*scenes: tuple[str, float]) -> Change:
    """Other shares, with narrow intervals."""

    def change(found: dict[str, Row], counts: dict[str, Counts]) -> None:
        for scene, share in scenes:
            ends = {"low": max(0.0, share - 1e-5), "high": min(1.0, share + 1e-5)}
            found[scene] |= {"share": share, **ends}

    return change


def times(scene: str, column: str, factor: float) -> Change:
    """Another count."""

    def change(found: dict[str, Row], counts: dict[str, Counts]) -> None:
        counts[scene][column] = round(counts[scene][column] * factor)
        if column == "copies":
            found[scene]["copies"] *= factor

    return change


def swap_forms(found: dict[str, Row], counts: dict[str, Counts]) -> None:
    few, other = "rch-few-publish", "rch-few-subscribe"
    counts[few], counts[other] = counts[other], counts[few]


def test_claims_are_judged_as_at_full_scale() -> None:
    verdicts = [row["verdict"] for row in judged()]
    of_s, of_r = [HOLDS] * 3, [HOLDS_IF, HOLDS, HOLDS_IF, HOLDS]
    of_ch = [HOLDS, HOLDS, HOLDS_IF, HOLDS, HOLDS]
    assert verdicts[:12] == [*of_s, *of_r, *of_ch]
    assert verdicts[12:] == [HOLDS_IF, HOLDS_IF, HOLDS_IF, HOLDS_IF, HOLDS, FAILS, HOLDS_IF]


def test_the_swap_of_the_labels_counts_once() -> None:
    (row,) = [row for row in judged() if row["verdict"] == FAILS]
    assert row["formula"] == "lines taken in, leases: 660, 50, 50, 660"
    assert row["measured"] == "50, 667, 667, 50"
    assert verdict("times the bandwidth", swap_forms) == HOLDS


def test_other_figures_are_judged_otherwise() -> None:
    for claim, change, expected in (
        ("reliable delivery", become(("rch-few-publish", 0.9971)), FAILS),
        (
            "reliable delivery",
            become(*((f"rch-few-{side}-{what}", 0.999) for side in SIDES for what in ("loss-1", "known-90"))),
            HOLDS,
        ),
        ("to block access", become(("rch-few-subscribe-blocked-40", 0.001)), FAILS),
        ("to block access", become(("rch-few-subscribe-blocked-39", 0.0)), FAILS),
        ("single client", become(*((f"rch-few-{side}-draw-known", 0.9) for side in SIDES)), HOLDS),
        ("single client", become(("rch-few-subscribe-draw-known", 0.9)), HOLDS_IF),
        ("same amount", become(("ch", 0.99)), FAILS),
        ("same K", become(("rch-few-subscribe-k-20", 0.5)), HOLDS),
        ("same K", become(("rch-few-subscribe-k-20", 0.5), ("ch-k-2", 0.9)), HOLDS_IF),
        ("same K", become(("rch-few-publish-k-20", 1.0)), FAILS),
        ("K' times", times("rch-few-publish-all-up", "copies", 0.9), FAILS),
        ("K' times", times("rch-few-publish", "copies", 1 / 0.9), HOLDS_IF),
        ("single-point-of-failure", become(("s-blocked-1", 0.5)), FAILS),
        ("miss one another", become(("s-one-unknown", 0.9)), FAILS),
        ("S ameliorates", times("s", "taken", 2), FAILS),
        ("size squared", become(("r-45", 0.999)), FAILS),
        ("size squared", become(("r-45", 0.95)), HOLDS),
        ("entire network", become(("r-124-blocked-50", 0.1)), FAILS),
        ("square root", times("r-124", "taken", 2), FAILS),
        ("orders of magnitude", times("r-124", "leases", 0.1), FAILS),
        ("factor of K", become(("ch-blocked-2", 0.0)), FAILS),
        ("factor of K", become(("ch-blocked-3", 0.1)), FAILS),
        ("legitimate effort as S", times("ch", "leases", 2), FAILS),
        ("inconsistent", become(("ch-known-50", 0.95)), HOLDS),
        ("inconsistent", become(("ch-known-90", 0.5)), FAILS),
        ("eliminates", become(("ch-blocked-1", 0.5)), FAILS),
        ("linearly", times("ch", "taken", 3), FAILS),
    ):
        assert verdict(claim, change) == expected, claim
