"""What deliveries cost, and which side should use K'. No Spark."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.model import copies, few_publish_is_cheaper
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.plan_simulator import Runs
from kcast.loadtest.results.prediction import (
    K_MAX,
    draws,
    overlap_pmf,
    renewal_interval_s,
    servers_per_topic,
    share_down,
)
from kcast.loadtest.results.simulated_law import ratio
from kcast.loadtest.scenario import Scenario, topic_name
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.plan_laws import Beside, beside, verdict

RENEWAL_BYTES = len(topic_name(0)) + 1  # the topic and LF
NS_PER_S = 1_000_000_000

ENOUGH = 0.05
"""A difference that is to be seen, as a share of what the plan gives."""


class Fates:
    """What became of a scenario's pairs, and of all paths through a server, by cause; and the copies."""

    def __init__(self) -> None:
        self.pairs: dict[Cause, int] = {}
        self.paths: dict[Cause, int] = {}
        self.copies = 0
        self.duplicates = 0  # copies after the first of their pair; that first one may have come too late

    @property
    def misses(self) -> dict[Cause, int]:
        """Number of pairs missed, by cause."""
        return {cause: count for cause, count in self.pairs.items() if cause is not Cause.DELIVERED}

    @property
    def pair_count(self) -> int:
        """Number of pairs."""
        return sum(self.pairs.values())

    @property
    def delivered(self) -> int:
        """Number of pairs delivered in time."""
        return self.pairs.get(Cause.DELIVERED, 0)


def fates(sums: Mapping[str, Sequence[Row]]) -> dict[int, Fates]:
    """Returns the fates of each scenario's pairs, with causes in their order."""
    found: dict[int, Fates] = defaultdict(Fates)
    for row in sorted(sums["causes"], key=lambda row: (row["cell"], row["cause"])):
        of_cell, cause = found[row["cell"]], Cause(row["cause"])
        if row["pairs"]:
            of_cell.pairs[cause] = row["pairs"]
        if row["paths"]:
            of_cell.paths[cause] = row["paths"]
        of_cell.copies += row["copies"]
        of_cell.duplicates += row["duplicates"]
    return found


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the table `cost`. Scenarios without messages are left out."""
    totals = {row["cell"]: row for row in sums["cost"]}
    topics = {row["cell"]: row for row in sums["topics"]}
    of_pairs = fates(sums)
    rows: list[Row] = []
    for cell in cells:
        total, found = totals.get(cell.number), of_pairs.get(cell.number, Fates())
        if total is None or not total["messages"]:
            continue
        rows.append(_cost(cell, total, found, topics.get(cell.number)))
    _judge({cell.number: cell.scenario for cell in cells}, rows)
    return {"cost": rows}


def copies_per_pair(runs: Runs) -> NDArray[np.float64]:
    """A figure of runs: copies that come to a subscriber for a pair."""
    return ratio(runs.copies, runs.pairs)


def _judge(scenarios: Mapping[int, Scenario], rows: Sequence[Row]) -> None:
    """Sets the band and the verdict of rows, on the copies for a pair."""
    tests: list[Beside | None] = []
    for row in rows:
        scenario = scenarios[row["cell"]]
        # Of a doubled datagram it is not known how much the extra copies vary.
        has_extra = scenario.duplicate > 0
        tests.append(None if has_extra else beside(scenario, copies_per_pair, row["copies_per_pair"]))
    count = sum(found is not None for found in tests)
    for row, found in zip(rows, tests, strict=True):
        if found is not None:
            row["copies_low"], row["copies_high"] = found.band
        row["verdict"] = verdict(found, count, ENOUGH * found.law.mean if found else 0.0)


def _cost(cell: Cell, total: Row, found: Fates, topics: Row | None) -> Row:
    messages, sendings, renewals = total["messages"], total["sendings"], total["renewals"]
    line_bytes = total["message_bytes"] / messages
    side, crossover = _crossover(cell.scenario, total, topics)
    delivered = found.delivered
    return {
        "cell": cell.number,
        "messages": messages,
        "sendings": sendings,
        "renewals": renewals,
        "copies": found.copies,
        "duplicates": found.duplicates,
        "copies_per_pair": _ratio(found.copies, found.pair_count),
        "copies_theory": copies_theory(cell.scenario),
        "copies_low": None,
        "copies_high": None,
        "sendings_per_message": sendings / messages,
        "lines_per_delivery": _ratio(sendings + renewals + found.copies, delivered),
        "bytes_per_delivery": _ratio(
            (sendings + found.copies) * line_bytes + renewals * RENEWAL_BYTES, delivered
        ),
        "renewal_share": _ratio(renewals, renewals + sendings),
        "cheaper_side": side,
        "crossover_rate": crossover,
    }


def _ratio(value: float, by: float) -> float | None:
    return value / by if by else None


def copies_theory(scenario: Scenario) -> float | None:
    """The mean number of copies of a message that come to a subscriber, by the model; None where it has none.

    The model has none where clients avoid dead servers, where servers are killed or halted, and where views
    differ too much. Servers need not fail independently, since averages add up.
    """
    policy, k = scenario.policy, servers_per_topic(scenario)
    if scenario.outages != "none" and (scenario.avoid_dead or scenario.by != "isolation"):
        return None
    publish, subscribe = draws(scenario)
    common = 1.0  # share of a topic's servers that both sides agree on
    known = max(1, round(scenario.known * scenario.servers))
    if known < scenario.servers and policy.placement == "all":
        # Each server drawn by one side is equally likely to be known to the other side.
        publish, subscribe = min(publish, known), min(subscribe, known)
    elif known < scenario.servers:
        if policy.placement == "modulo" or known < k or k > K_MAX:
            return None
        pmf = overlap_pmf(scenario.servers, known, k)
        common = sum(count * weight for count, weight in enumerate(pmf)) / k
    once = copies(
        k,
        publish,
        subscribe,
        1 - share_down(scenario),
        scenario.loss_in,
        scenario.loss_out,
        sends=scenario.repeat,
    )
    return once * common * (1 + scenario.duplicate) ** 2


def _crossover(scenario: Scenario, total: Row, topics: Row | None) -> tuple[str | None, float | None]:
    """Returns the side on which K' takes fewer lines, and the rate per topic where that changes (messages/s).

    See `kcast.hashring.model.few_publish_is_cheaper`; subscribers and rate per topic are means of the
    capture. None, None for policies without K', and without subscribers or duration.
    """
    seconds = (total["to_ns"] - total["from_ns"]) / NS_PER_S if total["to_ns"] is not None else 0.0
    policy = scenario.policy
    if topics is None or not topics["topics"] or seconds <= 0 or policy.placement != "ring" or policy.k < 2:
        return None, None
    subscribers, rate = (float(topics[name]) / topics["topics"] for name in ("s", "n"))
    if not subscribers:
        return None, None
    interval_s = renewal_interval_s(scenario)
    is_publish = few_publish_is_cheaper(subscribers, rate / seconds, interval_s, scenario.repeat)
    return "publish" if is_publish else "subscribe", subscribers / interval_s / scenario.repeat
