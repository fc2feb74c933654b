"""How often an analysis of a sound run raises an alarm, for each preset of `kcast load`.

    python -m bench.alarms [--runs 200] [--seed 1] [--only PRESET]

Simulates runs of the preset's scenarios, which share places and outages as those of one run do, by a program
that shares nothing with the analysis (tests/support). An alarm is a verdict that a figure or a theory
disagrees. Runs of many pairs are simulated with a lower rate, so that they take minutes.
"""

import argparse
from collections import Counter
from collections.abc import Sequence

from kcast.loadtest.load.grid import PRESETS, expand
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import audience, balance, cost, reliability
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import DISAGREES
from tests.support.handmade_pairs import cell_of
from tests.support.simulated_sums import simulated_sums

MESSAGES_MAX = 3000
"""Messages of a scenario; with more, the rate is lowered."""

_TABLES = (reliability, audience, balance, cost)


def main() -> None:
    """Prints a line for each preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="PRESET")
    given = parser.parse_args()
    total = 0
    names = [name for name in PRESETS if given.only in (None, name)]
    for name in names:
        scenarios = [_smaller(each) for each in expand(PRESETS[name].parts, {}).scenarios]
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
    print(f"{'all':>14}: {100 * total / given.runs / len(names):.2f} %")


def _smaller(scenario: Scenario) -> Scenario:
    messages = scenario.publishing_users * scenario.rate * scenario.duration_s
    return scenario.with_(rate=scenario.rate * min(1.0, MESSAGES_MAX / messages))


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
