"""How often intervals of what a network lost cover the truth, and theory given what happened is refused.

    python -m bench.losses [--runs 40] [--seed 1] [--only WORD]

Captures are simulated (tests/support/lossy_captures.py), of a network whose losses are known: independent, in
rows on each leg, or in rows on a client's own link, where copies of a message are lost together. Each is
evaluated as `kcast analyse` does, with the servers' taps and, as at servers that someone else runs, without.

Of each plan it prints how many of 100 intervals cover the truth, by leg, and the median half width in
percentage points; then those of the share after a lost line where the truth is known (one publisher), and of
the others of a message; and how many of 100 runs theory given what happened refuses, at 0.5 %, and how many
are said to have lost lines in a row, or together. Then all plans are pooled.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

from kcast.loadtest.results.leg_lines import BOTH, IN, LEGS, OUT
from kcast.loadtest.results.loss_estimates import Losses, Rate
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings import reliability
from kcast.spark.findings.losses import losses_of
from kcast.spark.findings.tables import DISAGREES
from tests.support.lossy_captures import Network, lossy_capture
from tests.support.spark_cells import as_cells, sums_of

LOADS: dict[str, dict[str, Any]] = {
    "usual": {"publishers": 4, "subscribers": 10, "rate": 25.0, "duration_s": 20.0},
    "one publisher": {"publishers": 1, "subscribers": 6, "rate": 40.0, "duration_s": 60.0},
    "few": {"publishers": 2, "subscribers": 4, "rate": 10.0, "duration_s": 20.0},
}
CLUSTER: dict[str, Any] = {"servers": 12, "topics": 20, "topics_per_subscriber": 10}
NETWORKS = (
    Network(0.01, 0.009),
    Network(0.002, 0.05),
    Network(0.1, 0.1),
    Network(0.01, 0.009, in_a_row=3.0),
    Network(0.05, 0.02, in_a_row=6.0),
    Network(0.02, 0.02, in_a_row=4.0, of="client"),
)
POLICIES: tuple[dict[str, Any], ...] = ({"k": 5, "k_prime": 2}, {"scheme": "CH", "k": 3})


class Plan(NamedTuple):
    """What is simulated: a load, a policy, a network, and whether servers have taps."""

    load: str
    policy: dict[str, Any]
    network: Network
    has_taps: bool

    @property
    def scenario(self) -> Scenario:
        """The scenario, whose name is its policy."""
        return Scenario(**CLUSTER, **LOADS[self.load], **self.policy)

    def __str__(self) -> str:
        of, policy = self.network, self.scenario.policy
        where = f", {of.in_a_row:g} in a row of a {of.of}" if of.in_a_row > 1 else ""
        known = "taps" if self.has_taps else "copies"
        return f"{self.load}, {policy}, {of.loss_in:.1%} in, {of.loss_out:.1%} out{where}, by {known}"


class Found(NamedTuple):
    """What an analysis of one run says."""

    losses: Losses
    is_refused: bool


def main() -> None:
    """Prints a line for each plan, and for each kind of interval."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="WORD", default="")
    given = parser.parse_args()
    pooled: defaultdict[str, list[bool]] = defaultdict(list)
    said: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for number, plan in enumerate(plans()):
        if given.only not in str(plan):
            continue
        covered: defaultdict[str, list[tuple[bool, float]]] = defaultdict(list)
        counts: Counter[str] = Counter()
        for run in range(given.runs):
            found = analysed(plan, given.seed * 1_000_000 + number * 10_000 + run)
            for what, rate, truth in measures(plan, found.losses):
                covered[what].append((rate.low <= truth <= rate.high, rate.high - rate.low))
            counts["refused"] += found.is_refused
            counts["in a row"] += any(found.losses.legs[leg].is_in_rows for leg in (IN, OUT))
            counts["together"] += any(found.losses.legs[leg].is_together for leg in (IN, OUT))
        kind = kind_of(plan.network)
        said[kind] += counts + Counter(runs=given.runs)
        for what, results in covered.items():
            pooled[f"{what}, {kind}"] += [is_covered for is_covered, _ in results]
        told = ", ".join(
            f"{what} {share([one for one, _ in results])} ±{50 * median(width for _, width in results):.2f}"
            for what, results in covered.items()
        )
        of = {what: f"{100 * counts[what] / given.runs:.0f}" for what in ("refused", "in a row", "together")}
        print(f"{plan}: {told}; {', '.join(f'{what} {number}' for what, number in of.items())}", flush=True)
    for what, every in sorted(pooled.items()):
        print(f"{what:>40}: {share(every)} of {len(every)} intervals cover")
    for kind, totals in said.items():
        told = ", ".join(
            f"{what} {100 * totals[what] / totals['runs']:.1f}"
            for what in ("refused", "in a row", "together")
        )
        print(f"{kind:>40}: of 100 runs {told}")


def plans() -> Iterator[Plan]:
    """All plans."""
    for load in LOADS:
        for policy in POLICIES:
            for network in NETWORKS:
                for has_taps in (True, False):
                    yield Plan(load, policy, network, has_taps)


def kind_of(network: Network) -> str:
    """How losses depend on each other."""
    if network.in_a_row == 1:
        return "independent"
    return "in rows on legs" if network.of == "leg" else "in rows on a client's link"


def analysed(plan: Plan, seed: int) -> Found:
    """What `kcast analyse` finds in one capture."""
    capture = lossy_capture(plan.scenario, plan.network, seed, has_taps=plan.has_taps)
    (cell,) = as_cells([capture])
    sums = sums_of([cell.part()])
    (row,) = reliability.tables([cell.cell], sums)["reliability"]
    return Found(losses_of([cell.cell], sums)[0], row["verdict"] == DISAGREES)


def measures(plan: Plan, losses: Losses) -> Iterator[tuple[str, Rate, float]]:
    """Each interval: what of, the rate, and the truth. Only those whose truth is known."""
    of = plan.network
    truth = {IN: of.loss_in, OUT: of.loss_out, BOTH: 1 - (1 - of.loss_in) * (1 - of.loss_out)}
    for leg, name in LEGS.items():
        rate, after, together = (getattr(losses.legs[leg], what) for what in ("rate", "after", "together"))
        if rate is not None:
            yield name, rate, truth[leg]
        if leg == BOTH or of.of == "client":
            continue
        if after is not None and (of.in_a_row == 1 or plan.scenario.publishers == 1):
            yield "after a lost one", after, truth[leg] if of.in_a_row == 1 else 1 - 1 / of.in_a_row
        if together is not None:
            yield "others of a message", together, truth[leg]


def share(results: list[bool]) -> str:
    """How many of 100 are true."""
    return f"{100 * sum(results) / len(results):.1f}"


if __name__ == "__main__":
    main()
