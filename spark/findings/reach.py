"""How soon parts of the audience are reached; what share is at all, beside theory for mute servers."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from kcast.hashring.intervals import wilson
from kcast.loadtest.results.causes import Cause
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.prediction import draws, predict, servers_per_topic, share_down
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell, by_cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import PERCENTS

_IN_TIME = (Cause.DELIVERED,)
_THERE = (*_IN_TIME, Cause.BY_HISTORY, Cause.LATE)
_Key = tuple[int, int, int, float, float]
CONFIDENCE = 0.999
"""Of the intervals of shares that are pooled over scenarios."""


def tables(
    cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]], *, invalid: Collection[int] = ()
) -> dict[str, list[Row]]:
    """Returns the tables `reach`, `reach_times` and `sightings`, from the sums `causes`, `audience_sizes`,
    `reach_times` and `sightings`.

    In `reach` the scenarios of one number of servers, fan-out, number of mute servers, share that is away,
    and rate of a spammer are one row, but for those with `invalid` numbers.
    """
    messages = {
        number: sum(row["messages"] for row in rows)
        for number, rows in by_cell(sums["audience_sizes"]).items()
    }
    pooled: defaultdict[_Key, list[Cell]] = defaultdict(list)
    for cell in cells:
        if _has_theory(cell.scenario) and messages.get(cell.number) and cell.number not in invalid:
            pooled[_key(cell.scenario)].append(cell)
    causes, times = by_cell(sums["causes"]), by_cell(sums["reach_times"])
    return {
        "sightings": sorted(sums["sightings"], key=lambda row: (row["cell"], row["what"], row["name"])),
        "reach": [_reach(key, same, messages, causes) for key, same in sorted(pooled.items())],
        "reach_times": [
            row
            for cell in cells
            if messages.get(cell.number)
            for row in _times(cell.number, messages[cell.number], times[cell.number])
        ],
    }


def _has_theory(scenario: Scenario) -> bool:
    """Whether the formulas are for such a scenario: only the publisher's draw of servers is random."""
    lossless = scenario.loss_in == scenario.loss_out == 0 and scenario.repeat == 1
    return scenario.by == "mute" and scenario.outages == "exact" and lossless and _at_all(scenario)


def _at_all(scenario: Scenario) -> bool:
    every = draws(scenario)[1] == servers_per_topic(scenario) == scenario.servers
    return every and scenario.known == 1


def _key(scenario: Scenario) -> _Key:
    return scenario.servers, draws(scenario)[0], scenario.down, scenario.offline, scenario.spam


def _reach(
    key: _Key,
    same: Sequence[Cell],
    messages: Mapping[int, int],
    causes: Mapping[int, Sequence[Row]],
) -> Row:
    servers, publish, mute, offline, spam = key
    rows = [row for cell in same for row in causes[cell.number]]
    pairs = sum(row["pairs"] for row in rows)
    by_cause = [sum(row["pairs"] for row in rows if row["cause"] in some) for some in (_IN_TIME, _THERE)]
    share, there = (count / pairs for count in by_cause)
    # All subscribers of a message share its draw of servers: it is one trial. So do runs of one seed.
    trials = sum({cell.scenario: messages[cell.number] for cell in same}.values())
    low, high = wilson(share * trials, trials, CONFIDENCE)
    return {
        **{"servers": servers, "publish": publish, "mute": mute, "offline": offline, "spam": spam},
        **{"scenarios": len(same), "messages": trials, "pairs": pairs, "share": share},
        **{"low": low, "high": 1.0 if share == 1 else high},
        "after_sync": there if offline else None,
        "theory": predict(same[0].scenario.with_(offline=0.0)).share,
        "large_n": 1 - share_down(same[0].scenario) ** publish,
    }


def _times(cell: int, messages: int, rows: Sequence[Row]) -> list[Row]:
    found = []
    for percent in PERCENTS:
        own = sorted(
            (row["value_ns"], row["messages"], int(row["total_ns"]))
            for row in rows
            if row["percent"] == percent
        )
        values, counts, totals = zip(*own, strict=True) if own else ((), (), ())
        of = Percentiles.of_counts(values, counts, sum(totals))
        known = of.count > 0
        found.append(
            {
                **{"cell": cell, "percent": percent, "messages": messages, "reached": of.count},
                **{name: getattr(of, name) if known else None for name in ("p50_ms", "p90_ms", "p99_ms")},
            }
        )
    return found
