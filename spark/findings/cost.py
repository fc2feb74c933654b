"""What deliveries cost, which side should use K', and what all servers carry together. No Spark."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kcast.hashring.model import capacity, copies, few_publish_is_cheaper
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
from kcast.spark.findings.balance import servers_of
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.plan_laws import Beside, Figure, beside, verdict

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
    """Returns the tables `cost` and `capacity`. Scenarios without messages are left out."""
    totals = {row["cell"]: row for row in sums["cost"]}
    topics = {row["cell"]: row for row in sums["topics"]}
    of_pairs = fates(sums)
    servers = servers_of(cells, sums)
    cost_rows: list[Row] = []
    capacity_rows: list[Row] = []
    for cell in cells:
        total, found = totals.get(cell.number), of_pairs.get(cell.number, Fates())
        if total is None or not total["messages"]:
            continue
        cost_rows.append(_cost(cell, total, found, topics.get(cell.number)))
        capacity_rows.append(_capacity(cell, total, found, servers[cell.number]))
    scenarios = {cell.number: cell.scenario for cell in cells}
    _judge(scenarios, cost_rows, "copies_per_pair", "copies_", lambda _: copies_per_pair)
    _judge(scenarios, capacity_rows, "factor", "", _factor_of)
    return {"cost": cost_rows, "capacity": capacity_rows}


def copies_per_pair(runs: Runs) -> NDArray[np.float64]:
    """A figure of runs: copies that come to a subscriber for a pair."""
    return ratio(runs.copies, runs.pairs)


@dataclass(frozen=True, slots=True)
class Factor:
    """A figure of runs: the capacity factor, of servers, and the number that a message is sent to."""

    servers: int
    publish: int

    def __call__(self, runs: Runs) -> NDArray[np.float64]:
        """Returns the factor in each run, as `_capacity` does."""
        share_in = ratio(runs.lines_in, runs.lines_in + runs.lines_out)
        return self.servers * share_in / self.publish * (1 + ratio(runs.pairs, runs.published))


def _factor_of(scenario: Scenario) -> Factor:
    return Factor(scenario.servers, draws(scenario)[0])


def _judge(
    scenarios: Mapping[int, Scenario],
    rows: Sequence[Row],
    name: str,
    prefix: str,
    figure_of: Callable[[Scenario], Figure],
) -> None:
    """Sets the band and the verdict of rows, on the column `name`."""
    tests: list[Beside | None] = []
    for row in rows:
        scenario = scenarios[row["cell"]]
        # Of a doubled datagram it is not known how much the extra copies vary.
        has_extra = scenario.duplicate > 0
        tests.append(None if has_extra else beside(scenario, figure_of(scenario), row[name]))
    count = sum(found is not None for found in tests)
    for row, found in zip(rows, tests, strict=True):
        if found is not None:
            row[f"{prefix}low"], row[f"{prefix}high"] = found.band
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


def _capacity(cell: Cell, total: Row, found: Fates, servers: Sequence[Row]) -> Row:
    """One row of `capacity`. Lines in and lines out count alike.

    Lines lost on their way in are allowed for: a single server would have lost as many.
    """
    scenario, messages = cell.scenario, total["messages"]
    audience = found.pair_count / messages
    row: Row = {
        "cell": cell.number,
        "audience": audience,
        "lines_in": None,
        "lines_out": None,
        "factor": None,
        "theory": None,
        "low": None,
        "high": None,
        "hottest": None,
    }
    forwarded = sum(server["forwarded"] for server in servers)
    if all(server["received"] is not None for server in servers):
        received = sum(server["received"] for server in servers)
        row |= {"lines_in": received / messages, "lines_out": forwarded / messages}
        if received and total["sendings"]:
            lines_per_message = received / total["sendings"] * scenario.repeat
            alone = messages * lines_per_message * (1 + audience)
            busiest = max(server["received"] + server["forwarded"] for server in servers)
            row["factor"] = scenario.servers * alone / (received + forwarded)
            row["hottest"] = alone / busiest
    if scenario.known == 1:
        row["theory"] = capacity(scenario.servers, servers_per_topic(scenario), *draws(scenario), audience)
    return row
