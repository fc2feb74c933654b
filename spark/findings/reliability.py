"""What share of pairs was delivered, with its interval, beside theory three ways; and one test of all cells.

Verdicts are at 1 %: of a hundred sound analyses one has a cell that disagrees, whatever the number of cells
(each is tested at 1 % / cells, Bonferroni's way), and one a joint test that does.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import NormalDist

from scipy.special import betainc, chdtrc

from kcast.hashring.effective_size import CONFIDENCE, ClusterSums, EffectiveSize
from kcast.loadtest.results.effective_trials import interval_note, pair_trials
from kcast.loadtest.results.prediction import Prediction
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell, by_cell, clusters_by_cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.pearson3 import TAIL_MIN
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, THEORIES
from kcast.spark.findings.theory_beforehand import beforehand, for_servers
from kcast.spark.findings.theory_given_events import Chances, Misses, expected_misses, lines, why_none

LEVEL = 0.01
"""How often sound runs may disagree: any cell of an analysis, and each joint test."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The share of one scenario beside the theories; `z` by theory's name, None where there is none."""

    cell: Cell
    row: Row
    z: Mapping[str, float | None]
    contradiction: str = ""


def tables(
    cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]], *, invalid: Collection[int] = ()
) -> dict[str, list[Row]]:
    """The tables reliability and joint, of the sums `clusterings`, `chances` and `lost`.

    `invalid` are the numbers of cells of which the delivery cannot be trusted: these get no verdict, and the
    joint tests leave them out.
    """
    chances, lost = (by_cell(sums[name]) for name in ("chances", "lost"))
    clusters = clusters_by_cell(sums["clusterings"], "pairs", "delivered")
    measured = [
        _measure(
            cell,
            clusters[cell.number],
            [_chances(row) for row in chances[cell.number]],
            lines((int(row["lines"]), int(row["squares"])) for row in lost[cell.number]),
            valid=cell.number not in invalid,
        )
        for cell in cells
    ]
    tested = sum(each.z["given_events"] is not None for each in measured)
    for each in measured:
        _judge(each, tested)
    joints = [_joint(theory, measured) for theory in THEORIES]
    return {"reliability": [each.row for each in measured], "joint": joints}


def _chances(row: Row) -> Chances:
    names = ("low", "high", "products", "pairs", "delivered", "faults", "cubes")
    return Chances(*(int(row[name]) for name in names))


# --- One cell ----------------------------------------------------------------------------------------


def _measure(
    cell: Cell, sums: Mapping[str, ClusterSums], classes: Sequence[Chances], bunching: float, *, valid: bool
) -> _Measured:
    scenario = cell.scenario
    pairs = sum(each.pairs for each in classes)
    delivered = sum(each.delivered for each in classes)
    share = delivered / pairs if pairs else None
    trials = pair_trials(scenario, sums)
    worth = trials.interval_trials()
    low, high = trials.interval(share or 0.0)
    planned, noted = for_servers(scenario), beforehand(scenario)
    notes = [] if valid else ["its delivery cannot be trusted: see health"]
    if interval_note(trials):
        notes.append(interval_note(trials))
    misses = None
    if pairs and not (why := why_none(scenario)):
        misses = expected_misses(scenario, classes, bunching)
    elif pairs:
        notes.append(f"no theory given what happened: {why}")
    else:
        notes.append("nothing was to be delivered")
    if planned.note:
        none = "no " if planned.share is None else ""
        notes.append(f"{none}theory for this many servers: {planned.note}")
    band = _band(misses, pairs)
    excused = sum(each.faults for each in classes if each.low)
    if excused:
        notes.append(
            f"{_pairs(excused)} missed by the fault of the machine that ran the test count as missed, and "
            "agreement is judged as if theory could have had them either way"
        )
    contradiction = _contradiction(misses, classes, excused) if valid else ""
    if contradiction:
        notes.append(contradiction)
    row: Row = {
        "cell": cell.number,
        "pairs": pairs,
        "delivered": delivered,
        "share": share,
        "low": low,
        "high": high,
        "trials": worth,
        "clusters": trials.name,
        "design_effect": pairs / worth if worth else None,
        "beforehand": noted,
        "for_servers": planned.share,
        "given_events": None if misses is None else 1 - misses.mean / pairs,
        "given_events_low": band[0],
        "given_events_high": band[1],
        "z": None,
        "verdict": NO_THEORY,
        "note": "; ".join(notes),
    }
    z: dict[str, float | None] = dict.fromkeys(THEORIES)
    if valid and share is not None:
        z["given_events"] = _given_events_z(misses, pairs - delivered, excused)
    if valid and share is not None and not interval_note(trials):
        z["for_servers"] = _planned_z(share, trials, None if _is_rough(planned) else planned.share)
        z["beforehand"] = _planned_z(share, trials, noted)
    if z["given_events"] is not None or (valid and misses is not None and not contradiction):
        row["z"], row["verdict"] = z["given_events"] or 0.0, AGREES
    return _Measured(cell, row, z, contradiction)


def _is_rough(planned: Prediction) -> bool:
    return planned.share is not None and planned.note != ""


def _band(misses: Misses | None, pairs: int) -> tuple[float | None, float | None]:
    """Between which shares so many of such runs fall."""
    if misses is None:
        return None, None
    distribution = misses.distribution
    if distribution is None:
        return 1 - misses.mean / pairs, 1 - misses.mean / pairs
    tail = (1 - CONFIDENCE) / 2
    few, many = distribution.quantile(tail), distribution.quantile(1 - tail)
    if misses.likely_certain > tail:
        few = misses.certain
    # What had no chance is missed in each of them, and no more than all pairs are.
    most, least = (1 - min(max(count, misses.certain), pairs) / pairs for count in (few, many))
    return least, most


def _given_events_z(misses: Misses | None, missed: int, excused: int) -> float | None:
    """How far what was delivered is off, as a standard normal; None without theory, or without luck.

    Up to `excused` of those missed theory may count as delivered, whichever brings both nearer.
    """
    if misses is None or misses.variance == 0:
        return None
    least, most = -misses.score(missed), -misses.score(missed - excused)
    # Not less than `least` and not more than `most`, and as near to 0 as that allows.
    return min(max(0.0, least), most) if least <= 0 else least


def _contradiction(misses: Misses | None, classes: Sequence[Chances], excused: int) -> str:
    """What cannot be, whatever the luck; empty where nothing is."""
    if misses is None:
        return ""
    impossible = sum(each.delivered for each in classes if each.low == each.high == 0)
    if impossible:
        return f"{_pairs(impossible)} delivered through servers that were down or held no lease"
    if misses.variance > 0:
        return ""
    more = sum(each.pairs - each.delivered for each in classes) - round(misses.mean)
    if more > excused:
        return f"{_pairs(more - excused)} missed though nothing was to be lost and a server had a lease"
    if more < 0:
        return f"{_pairs(-more)} delivered though everything was to be lost"
    return ""


def _planned_z(share: float, of: EffectiveSize, theory: float | None) -> float | None:
    """How far the share is off a theory that knows no outages, as a standard normal; None without one.

    By the binomial distribution of as many trials as it is worth: where these are few, or misses come in
    rare bunches, the normal one would raise alarms. What is more likely than not to be so far off is 0.
    """
    trials = of.interval_trials(1 - LEVEL)
    if theory is None or not 0 < theory < 1 or not trials:
        return None
    found, chance = (share, theory) if share < theory else (1 - share, 1 - theory)
    # P(X <= x) of n trials, whole numbers or not, is I(1 - p; n - x, x + 1) (DLMF 8.17.5).
    tail = float(betainc(trials * (1 - found), trials * found + 1, 1 - chance))
    z = -NormalDist().inv_cdf(min(max(tail, TAIL_MIN), 0.5))
    return -z if share < theory else z


def _pairs(count: int) -> str:
    return f"{count:,} pair was" if count == 1 else f"{count:,} pairs were"


# --- All cells ---------------------------------------------------------------------------------------


def _judge(each: _Measured, tested: int) -> None:
    """Sets the verdict of a cell, one of so many that are tested."""
    z = each.z["given_events"]
    is_far = z is not None and 2 * NormalDist().cdf(-abs(z)) < LEVEL / tested
    if is_far or each.contradiction:
        each.row["verdict"] = DISAGREES


def _joint(theory: str, measured: Sequence[_Measured]) -> Row:
    """One test of a theory on all cells that it has an answer for.

    Given the outages as they were, cells have their luck each for itself, and their squared z add up to
    chi-squared with a degree of freedom for each. Before outages are known, cells with the same seed share
    them. However alike they are, the mean of their squared z is not above what is rare (x > 1.54) more often
    than chi-squared with one degree (Szekely and Bakirov, Extremal probabilities for Gaussian quadratic
    forms, 2003), so they count as one.
    """
    groups: defaultdict[object, list[float]] = defaultdict(list)
    for each in measured:
        z = each.z[theory]
        if z is not None:
            groups[each.cell.number if theory == "given_events" else _luck(each.cell)].append(z * z)
    statistic = fsum(fsum(squares) / len(squares) for squares in groups.values())
    p_value = float(chdtrc(len(groups), statistic)) if groups else None
    exact = [each for each in measured if _is_exact(each)] if theory == "given_events" else []
    if any(each.contradiction for each in measured) and theory == "given_events":
        p_value = 0.0
    elif exact and p_value is None:
        p_value = 1.0
    verdict = NO_THEORY if p_value is None else DISAGREES if p_value < LEVEL else AGREES
    return {
        "theory": theory,
        "scenarios": sum(map(len, groups.values())) + len(exact),
        "statistic": statistic,
        "degrees": len(groups),
        "p_value": p_value,
        "verdict": verdict,
    }


def _is_exact(each: _Measured) -> bool:
    """Whether theory leaves nothing to luck."""
    return each.z["given_events"] is None and each.row["verdict"] != NO_THEORY


def _luck(cell: Cell) -> tuple[str, int]:
    """Which cells have the same outages, or views: they follow from the seed."""
    scenario: Scenario = cell.scenario
    if scenario.outages == "none" and scenario.known == 1:
        return "cell", cell.number
    return "seed", scenario.seed
