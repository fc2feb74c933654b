"""Whether the figures of each scenario can be trusted, in the words that load tests use. No Spark.

`sums` are those of all jobs: the verdict on delivery depends on the recorded state of the run, on the misses
by cause, and on the width of the interval that such misses must not distort.
"""

from collections.abc import Mapping, Sequence

from kcast.hashring.effective_size import ClusterSums
from kcast.loadtest.results.effective_trials import pair_trials_given_outages
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.verdicts import Health, Verdict, judge_delivery, judge_latency
from kcast.spark.findings.cells import DELIVERY, LATENCY, Cell, clusters_by_cell
from kcast.spark.findings.cost import Fates, fates
from kcast.spark.findings.findings import Row
from kcast.spark.findings.latency import times
from kcast.spark.findings.losses import losses_of


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the table `health`: a row for each reason not to trust a scenario's delivery or latency."""
    told = healths(cells, sums)
    of_pairs, percentiles = fates(sums), times(sums)
    losses = losses_of(cells, sums)
    clusters = clusters_by_cell(sums["clusterings"], "pairs", "delivered")
    rows: list[Row] = []
    for cell in cells:
        number, health = cell.number, told[cell.number]
        found = of_pairs.get(number, Fates())
        latency, delay = (percentiles.get((number, since), Percentiles()) for since in ("intended", "delay"))
        verdicts = {
            DELIVERY: judge_delivery(
                cell.scenario,
                cell.status,
                health,
                pairs=found.pair_count,
                misses=found.misses,
                paths=found.paths,
                half_width=_half_width(cell, found, clusters[cell.number]),
                is_loss_known=losses[number].is_known,
            ),
            LATENCY: judge_latency(health, latency, delay),
        }
        rows += [row for what, verdict in verdicts.items() for row in _rows(number, what, verdict)]
    return {"health": rows}


def healths(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[int, Health]:
    """Returns each scenario's health from its capture, as `kcast.loadtest.results.health.examine` does."""
    told = {row["cell"]: row for row in sums["health"]}
    fields = {
        number: {name: value for name, value in row.items() if name != "cell"} for number, row in told.items()
    }
    return {cell.number: Health.from_json(fields[cell.number]) for cell in cells}


def invalid(health: Sequence[Row], what: str = DELIVERY) -> frozenset[int]:
    """Returns the numbers of the scenarios whose `what` the table `health` calls not valid."""
    return frozenset(row["cell"] for row in health if row["what"] == what)


def _half_width(cell: Cell, found: Fates, clusters: Mapping[str, ClusterSums]) -> float:
    """Half the width of the 95 % interval of the delivered share, among runs with the same outages."""
    share = found.delivered / found.pair_count if found.pair_count else 0.0
    return pair_trials_given_outages(cell.scenario, clusters).half_width(share)


def _rows(cell: int, what: str, verdict: Verdict) -> list[Row]:
    return [{"cell": cell, "what": what, "reason": reason} for reason in verdict.reasons]
