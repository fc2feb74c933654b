"""How often intervals cover the true share, and sound runs are said to disagree with theory, in every branch.

    python -m bench.intervals [--runs 750] [--seed 1] [--only BRANCH]

A branch is a way by which the analysis gets at an interval. In `theory` the variance has a closed form; in
the others the plan is simulated; in `refused` a loss that nobody planned comes and goes, in `bad subscribers`
one in ten loses 20 %: so theory is refused.
Runs are simulated by programs that share nothing with the analysis (tests/support), and evaluated as
`kcast analyse` does. Of each plan it prints how many of 100 intervals cover the true share, half the median
width in percentage points, and how many of 100 runs the tests refuse at 1 %: by theory beforehand, and
given what happened. Where there is no exact theory, the true share is that of all runs of the
plan. `few` marks plans with fewer than 20 independent misses expected: an interval that covers more often
than 97 % is no fault there. Then each branch is pooled.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from statistics import median
from typing import Any

from kcast.loadtest.results.prediction import predict
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import reliability
from tests.support.handmade_pairs import cell_of, reliability_sums, simulate_pairs
from tests.support.simulated_runs import simulate_run

EPOCHS = (1, 2, 5, 20)
FEW_MISSES = 20
POLICIES: tuple[dict[str, Any], ...] = (
    {"scheme": "CH", "k": 1},
    {"scheme": "CH", "k": 3},
    {"scheme": "RCH", "k": 8, "k_prime": 1, "side": "publish"},
    {"scheme": "RCH", "k": 8, "k_prime": 3, "side": "publish"},
    {"scheme": "RCH", "k": 8, "k_prime": 1, "side": "subscribe"},
    {"scheme": "RCH", "k": 8, "k_prime": 3, "side": "subscribe"},
)
CLUSTERS: tuple[dict[str, Any], ...] = (
    {"servers": 12, "topics": 2, "topics_per_subscriber": 2, "subscribers": 2},
    {"servers": 12, "topics": 20, "topics_per_subscriber": 5, "subscribers": 20},
    {"servers": 40, "topics": 60, "topics_per_subscriber": 15, "subscribers": 20},
)
DOWN: dict[str, Any] = {"outages": "independent", "outage": 0.1}
EXACT: dict[str, Any] = {"outages": "exact", "down": 3}
LOSS: dict[str, Any] = {"loss_in": 0.05, "loss_out": 0.05}
FEW: dict[str, Any] = {"k": 5, "k_prime": 1}
SUBSCRIBE: dict[str, Any] = {"k": 5, "k_prime": 2, "side": "subscribe"}
# What is not in `theory`, by branch: two plans each, on two clusters, with two numbers of epochs.
OTHERS: dict[str, tuple[dict[str, Any], ...]] = {
    "repeats": (
        DOWN | {"scheme": "CH", "k": 3, "repeat": 2, "loss_in": 0.2, "loss_out": 0.2},
        {"outages": "zones", "outage": 0.1, "repeat": 2, **FEW},
    ),
    "kills": (EXACT | FEW | {"by": "kill", "ttl_s": 6}, DOWN | SUBSCRIBE | {"by": "kill", "ttl_s": 3}),
    "leases end": (DOWN | FEW | {"ttl_s": 2}, EXACT | SUBSCRIBE | {"ttl_s": 2}),
    "stalls": (DOWN | FEW | {"by": "stall", "deadline_s": 1.0}, EXACT | SUBSCRIBE | {"by": "stall"}),
    "views": ({"k": 5, "k_prime": 1, "known": 0.75}, DOWN | {"scheme": "CH", "k": 3, "known": 0.75}),
    "zones": (
        {"outages": "zones", "outage": 0.1, **FEW},
        {"outages": "zones", "outage": 0.1, "zones": 3, **SUBSCRIBE},
    ),
    "rolling": ({"outages": "rolling", **FEW}, {"outages": "rolling", "scheme": "CH", "k": 1}),
    "many": (
        {"scheme": "R", "servers": 150, "outages": "independent", "outage": 0.8, "rate": 2},
        {"scheme": "R", "servers": 150, "outages": "exact", "down": 110, "rate": 2},
    ),
}
REFUSED: tuple[dict[str, Any], ...] = ({"k": 5, "k_prime": 3}, DOWN | {"k": 5, "k_prime": 3})


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario, the share of its epochs in which half of the copies are lost beyond the plan, and the share
    of subscribers that lose a fifth."""

    branch: str
    scenario: Scenario
    epochs: int
    bad_epochs: float = 0.0
    bad_subscribers: float = 0.0


@dataclass(slots=True)
class Tally:
    """What came of the runs of one plan, or of a branch."""

    runs: int = 0
    covered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    tested: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.runs += other.runs
        self.covered += other.covered
        self.refused += other.refused
        self.tested += other.tested

    def rate(self, theory: str) -> str:
        tested = self.tested[theory]
        return f"{100 * self.refused[theory] / tested:.1f}" if tested else "-"


def plans() -> Iterator[Plan]:
    """Yields all plans, by branch."""
    for cluster, outages, policy, epochs in product(CLUSTERS, (DOWN, EXACT), POLICIES, EPOCHS):
        yield Plan(
            "theory",
            _scenario(epochs, {**cluster, **outages, **policy, "loss_in": 0.005, "loss_out": 0.005}),
            epochs,
        )
    for branch, own in OTHERS.items():
        for cluster, epochs, plan in product(CLUSTERS[:2], (3, 12), own):
            yield Plan(branch, _scenario(epochs, cluster | LOSS | plan), epochs)
    for cluster, epochs, plan in product(CLUSTERS[:2], (20, 40), REFUSED):
        yield Plan("refused", _scenario(epochs, cluster | LOSS | plan), epochs, bad_epochs=0.15)
    for cluster, epochs, plan in product(CLUSTERS[1:], (10, 30), REFUSED):
        yield Plan("bad subscribers", _scenario(epochs, cluster | LOSS | plan), epochs, bad_subscribers=0.1)


def _scenario(epochs: int, fields: dict[str, Any]) -> Scenario:
    return Scenario(**{"epoch_s": 2, "duration_s": 2.0 * epochs, "publishers": 8, "rate": 10, **fields})


def main() -> None:
    """Prints a line for each plan, then for each branch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=750)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="BRANCH")
    given = parser.parse_args()
    branches: dict[str, Tally] = {}
    least: dict[str, float] = {}
    too_wide: Counter[str] = Counter()
    heads = ("branch", 16), ("plan", 50), ("epochs", 8), ("covered", 9), ("half width", 12), ("misses", 9)
    print(
        "".join(head.rjust(width) for head, width in (*heads, ("beforehand", 11), ("events", 9))), flush=True
    )
    for plan in plans():
        if given.only in (None, plan.branch):
            # There are so many plans in `theory` that fewer runs of each do.
            runs = -(-given.runs // 5) if plan.branch == "theory" else given.runs
            tally, width, misses = evaluate(plan, runs, given.seed)
            branches.setdefault(plan.branch, Tally()).add(tally)
            covered = 100 * tally.covered / tally.runs
            least[plan.branch] = min(covered, least.get(plan.branch, 100))
            few = misses < FEW_MISSES
            too_wide[plan.branch] += covered > 97 and not few
            print(
                f"{plan.branch:>16}{_words(plan.scenario):>50}{plan.epochs:>8}{covered:>9.1f}{width:>12.2f}"
                f"{misses:>9.1f}{tally.rate('beforehand'):>11}{tally.rate('given_events'):>9}"
                f"{'  few' if few else ''}",
                flush=True,
            )
    for name, tally in branches.items():
        print(
            f"{name:>16}: {tally.runs:,} runs; {100 * tally.covered / tally.runs:.1f} % covered, at least "
            f"{least[name]:.1f} % of a plan; {too_wide[name]} plans above 97 % that expect {FEW_MISSES} "
            f"misses; refused at 1 %: {tally.rate('beforehand')} % beforehand, "
            f"{tally.rate('given_events')} % given events"
        )


def evaluate(plan: Plan, runs: int, seed: int) -> tuple[Tally, float, float]:
    """Returns the tally of a plan's runs, half the median width, and the independent misses expected."""
    scenario, rows, tally = plan.scenario, [], Tally()
    for number in range(runs):
        own_seed = seed * 1_000_000 + number
        if plan.branch == "theory":
            pairs = simulate_pairs(scenario, own_seed)
        else:
            faults = {"bad_epochs": plan.bad_epochs, "bad_subscribers": plan.bad_subscribers}
            lost = 0.2 if plan.bad_subscribers else 0.5
            pairs = simulate_run(scenario, own_seed, lost_in_bad=lost, **faults)
        found = reliability.tables([cell_of(scenario)], reliability_sums(pairs))
        rows += found["reliability"]
        for test in found["joint"]:
            if test["p_value"] is not None:
                tally.tested[test["theory"]] += 1
                tally.refused[test["theory"]] += test["p_value"] < 0.01
    predicted = predict(scenario)
    true = predicted.share
    if true is None or predicted.note or scenario.repeat > 1 or plan.bad_epochs or plan.bad_subscribers:
        true = sum(row["share"] for row in rows) / len(rows)
    tally.runs = runs
    tally.covered = sum(row["low"] <= true <= row["high"] for row in rows)
    trials = median(row["trials"] for row in rows)
    return tally, median(50 * (row["high"] - row["low"]) for row in rows), trials * (1 - true)


def _words(scenario: Scenario) -> str:
    policy = scenario.policy
    words = [f"{policy.k}/{policy.publish}/{policy.subscribe}", f"{scenario.servers} servers"]
    words += [f"{scenario.topics} topics", scenario.outages]
    words += [f"repeat {scenario.repeat}"] if scenario.repeat > 1 else []
    words += [f"known {scenario.known:g}"] if scenario.known < 1 else []
    words += [scenario.by] if scenario.by != "isolation" else []
    return " ".join(words)


if __name__ == "__main__":
    main()
