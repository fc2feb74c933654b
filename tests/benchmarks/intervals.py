"""How often intervals cover the true share, and sound runs are said to disagree with theory.

    python -m tests.benchmarks.intervals [--runs 300] [--seed 1]

Simulates runs by the model's rules, of 1 to 20 epochs of outages, and evaluates them as `kcast analyse` does.
Of each plan it prints how many of 100 intervals cover the true share, half the median
width, in percentage points, and how many of 100 runs the tests of both theories refuse at 5 % and 1 %.
"""

import argparse
from collections import Counter
from itertools import product
from statistics import median
from typing import Any

from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import reliability
from kcast.spark.findings.theory_beforehand import for_servers
from tests.support.handmade_pairs import cell_of, reliability_sums, simulate_pairs

EPOCHS = (1, 2, 5, 20)
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
PLANS: tuple[dict[str, Any], ...] = (
    {"outages": "independent", "outage": 0.1},
    {"outages": "exact", "down": 3},
)


def main() -> None:
    """Prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"{'refused: for servers':>86}{'given events':>18}")
    heads = ("policy", 31), ("outages", 13), ("epochs", 8), ("covered", 9), ("half width", 12)
    tests = ("at 5 %", 10), ("at 1 %", 8)
    print("".join(head.rjust(width) for head, width in (*heads, *tests, *tests)), flush=True)
    for cluster, plan, policy, epochs in product(CLUSTERS, PLANS, POLICIES, EPOCHS):
        scenario = Scenario(
            **cluster, **plan, **policy, epoch_s=2, duration_s=2 * epochs, publishers=8, rate=10,
            loss_in=0.005, loss_out=0.005,
        )  # fmt: skip
        print(line(scenario, epochs, given.runs, given.seed), flush=True)


def line(scenario: Scenario, epochs: int, runs: int, seed: int) -> str:
    """The results for one scenario."""
    true = for_servers(scenario).share
    assert true is not None
    counts: Counter[str] = Counter()
    widths = []
    for number in range(runs):
        sums = reliability_sums(simulate_pairs(scenario, seed * 1_000_000 + number))
        joint, row = (
            reliability.tables([cell_of(scenario)], sums)[name] for name in ("joint", "reliability")
        )
        low, high = row[0]["low"], row[0]["high"]
        counts["covered"] += low <= true <= high
        widths.append(50 * (high - low))
        for test in joint:
            if test["p_value"] is not None:
                counts[f"{test['theory']} at 5 %"] += test["p_value"] < 0.05
                counts[f"{test['theory']} at 1 %"] += test["p_value"] < 0.01

    def share(name: str) -> str:
        return f"{100 * counts[name] / runs:.1f}"

    policy = f"{scenario.policy.k}/{scenario.policy.publish}/{scenario.policy.subscribe}"
    return (
        f"{scenario.servers:>3} servers {scenario.topics:>3} topics {policy:>6} {scenario.outages:>12}"
        f"{epochs:>8}{share('covered'):>9}{median(widths):>12.2f}"
        f"{share('for_servers at 5 %'):>10}{share('for_servers at 1 %'):>8}"
        f"{share('given_events at 5 %'):>10}{share('given_events at 1 %'):>8}"
    )


if __name__ == "__main__":
    main()
