"""How often an analysis of a sound run raises an alarm, for each preset of `kcast load`.

    python -m bench.alarms [--runs 200] [--seed 1] [--only PRESET] [--full-rate] [--duration SECONDS]

Simulates runs of the preset's scenarios, which share places and outages as those of one run do, by a program
that shares nothing with the analysis (tests/support). An alarm is a verdict that a figure or a theory
disagrees. Runs of many pairs are simulated with a lower rate, so that they take minutes, unless --full-rate
is given. Below, for each preset, stands how far the bands of the plan differ between six seeds of their own:
the most by which the width of one is off the mean of the six, of all figures and scenarios.
"""

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np

from kcast.loadtest.load.grid import PRESETS, expand
from kcast.loadtest.results.plan_simulator import RUNS, simulate
from kcast.loadtest.results.simulated_law import delivered_share, law_of
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import audience, balance, cost, reliability
from kcast.spark.findings.findings import Row
from kcast.spark.findings.plan_laws import RUNS_THAT_DIFFER_MIN, Beside, Figure, has_law
from kcast.spark.findings.tables import DISAGREES
from tests.support.handmade_pairs import cell_of
from tests.support.simulated_sums import simulated_sums

MESSAGES_MAX = 3000
"""Messages of a scenario; with more, the rate is lowered."""

SEEDS = 6
_TABLES = (reliability, audience, balance, cost)
_FIGURES: dict[str, Figure] = {
    "share": delivered_share,
    "audience": audience.share_reached,
    "copies": cost.copies_per_pair,
    **{f"CV of {load}": balance.Cv(load) for load in balance.COLUMNS.values()},
}


def main() -> None:
    """Prints a line for each preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="PRESET")
    parser.add_argument("--full-rate", action="store_true")
    parser.add_argument("--duration", type=float, metavar="SECONDS")
    given = parser.parse_args()
    total = 0
    names = [name for name in PRESETS if given.only in (None, name)]
    for name in names:
        changed = {"duration_s": (given.duration,)} if given.duration else {}
        scenarios = expand(PRESETS[name].parts, changed).scenarios
        if not given.full_rate:
            scenarios = tuple(map(_smaller, scenarios))
        counts: Counter[str] = Counter()
        alarms = 0
        for number in range(given.runs):
            raised = alarms_of(scenarios, given.seed * 1_000_000 + number)
            alarms += bool(raised)
            counts.update(raised)
        total += alarms
        told = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
        share = 100 * alarms / given.runs
        print(f"{name:>14}: {share:.1f} % of {given.runs} runs raise an alarm  {told}", flush=True)
        off, which = max(map(unlikeness, scenarios))
        print(f"{'':>14}  bands of {SEEDS} seeds: within {100 * off:.1f} % of their mean {which}", flush=True)
    print(f"{'all':>14}: {100 * total / given.runs / len(names):.2f} %")


def _smaller(scenario: Scenario) -> Scenario:
    messages = scenario.publishing_users * scenario.rate * scenario.duration_s
    return scenario.with_(rate=scenario.rate * min(1.0, MESSAGES_MAX / messages))


def unlikeness(scenario: Scenario) -> tuple[float, str]:
    """Returns by which share of their mean width bands differ at most between seeds, and whose do."""
    found = 0.0, ""
    if not has_law(scenario):
        return found
    runs = [simulate(scenario, RUNS, np.random.default_rng(seed)) for seed in range(SEEDS)]
    for name, figure in _FIGURES.items():
        laws = [law_of(figure, each) for each in runs]
        if min(law.differing for law in laws) >= RUNS_THAT_DIFFER_MIN:
            widths = np.diff([Beside(law, 0.0).band for law in laws])
            off = float(np.abs(widths / widths.mean() - 1).max())
            found = max(found, (off, f"({name} of {scenario.name})"))
    return found


def alarms_of(scenarios: Sequence[Scenario], seed: int) -> set[str]:
    """Returns the names of the tables in which a sound run raises an alarm."""
    scenarios = [scenario.with_(seed=seed) for scenario in scenarios]
    sums = simulated_sums(scenarios, seed, as_planned=True)
    cells = [cell_of(scenario, number) for number, scenario in enumerate(scenarios)]
    raised = set()
    for module in _TABLES:
        for name, rows in module.tables(cells, sums).items():
            raised |= {_name(name, row) for row in rows if row.get("verdict") == DISAGREES}
    return raised


def _name(table: str, row: Row) -> str:
    return f"{table} {row['theory']}" if table == "joint" else table


if __name__ == "__main__":
    main()
