"""The delivered share of pairs with its interval, beside the two theories; a joint test of all scenarios.

Of two hundred sound analyses, one has a scenario that disagrees, whatever the number of scenarios (the level
is divided by their number, after Bonferroni), and one has a joint test that disagrees.

A theory that is not refused *agrees* only if a difference that matters would have been seen: as much as is
missed by theory, or one percentage point where that is more. Else it is *not refuted*.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import NormalDist

import scipy  # whose parts are imported when they are used, as `kcast.spark.launch` does

from kcast.hashring.effective_size import ClusterSums, EffectiveSize
from kcast.loadtest.results import given_events
from kcast.loadtest.results.effective_trials import interval_note, pair_trials, wider
from kcast.loadtest.results.given_events import Chances, Misses, messages_per_lost_datagram, why_none
from kcast.loadtest.results.loss_estimates import Losses
from kcast.loadtest.results.loss_words import said
from kcast.loadtest.results.prediction import Prediction, predict
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell, by_cell, clusters_by_cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.losses import losses_of
from kcast.spark.findings.plan_laws import LEVEL, detectable
from kcast.spark.findings.skewed import TAIL_MIN, Skewed
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED, THEORIES

ENOUGH = 0.01
"""A difference of shares that is to be seen, or of as much as is missed by theory where that is more."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The share of one scenario beside the theories.

    By theory's name: `z`, None where there is none, and `variance`, that of the share. `wider` is the
    effective sample size if theory is refused. `is_lossy` says that the network lost what nobody asked for.
    """

    cell: Cell
    row: Row
    z: Mapping[str, float | None]
    variance: Mapping[str, float]
    wider: EffectiveSize
    is_lossy: bool
    contradiction: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether theory given what happened has the number of misses exactly."""
        return self.z["given_events"] is None and self.row["verdict"] != NO_THEORY

    def could_see(self, theory: str, level: float) -> float:
        """The smallest difference of shares that a test at `level` sees in nine of ten runs."""
        # Where theory leaves nothing to chance, a single pair tells.
        pairs: int = self.row["pairs"]
        return max(detectable(self.variance[theory], level), 1 / max(1, pairs))

    def sees_enough(self, theory: str, level: float) -> bool:
        """Whether a difference that matters would have been seen."""
        return self.could_see(theory, level) <= max(ENOUGH, 1 - (self.row[theory] or 0.0))


def tables(
    cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]], *, invalid: Collection[int] = ()
) -> dict[str, list[Row]]:
    """Returns the tables `reliability` and `joint`, from the sums `clusterings`, `chances` and `lost`, and
    those of `losses`.

    `invalid` are the numbers of scenarios whose delivery cannot be trusted: these get no verdict, and the
    joint tests leave them out.
    """
    chances, lost = (by_cell(sums[name]) for name in ("chances", "lost"))
    clusters = clusters_by_cell(sums["clusterings"], "pairs", "delivered")
    losses = losses_of(cells, sums)
    measured = [
        _measure(
            cell,
            clusters[cell.number],
            [_chances(row) for row in chances[cell.number]],
            messages_per_lost_datagram((int(row["lines"]), int(row["squares"])) for row in lost[cell.number]),
            losses[cell.number],
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


# --- One scenario ------------------------------------------------------------------------------------


def _measure(
    cell: Cell,
    sums: Mapping[str, ClusterSums],
    classes: Sequence[Chances],
    bunching: float,
    losses: Losses,
    *,
    valid: bool,
) -> _Measured:
    scenario = cell.scenario
    pairs = sum(each.pairs for each in classes)
    delivered = sum(each.delivered for each in classes)
    share = delivered / pairs if pairs else None
    effective = pair_trials(scenario, sums)
    trials = effective.interval_trials()
    low, high = effective.interval(share or 0.0)
    planned = predict(scenario)
    notes = [] if valid else ["its delivery cannot be trusted: see health"]
    if interval_note(effective):
        notes.append(interval_note(effective))
    misses = None
    if not pairs:
        notes.append("nothing was to be delivered")
    elif why := why_none(scenario):
        notes.append(f"no theory given what happened: {why}")
    else:
        misses = given_events.given_events(scenario, classes, losses, bunching)
    if planned.note:
        none = "no " if planned.share is None else ""
        notes.append(f"{none}theory beforehand: {planned.note}")
    if losses.is_there:
        notes.append(said(losses))
    excused = sum(each.faults for each in classes if each.low)
    if excused:
        notes.append(
            f"{_pairs(excused)} missed by the fault of the machine that ran the test count as missed, and "
            "the verdict is the same as if each of them could have been delivered"
        )
    contradiction = _contradiction(misses, classes, excused) if valid else ""
    if contradiction:
        notes.append(contradiction)
    least, most = (None, None) if misses is None else misses.band(pairs)
    row: Row = {
        "cell": cell.number,
        "pairs": pairs,
        "delivered": delivered,
        "share": share,
        "low": low,
        "high": high,
        "trials": trials,
        "clusters": effective.name,
        "design_effect": pairs / trials if trials else None,
        "beforehand": planned.share,
        "given_events": None if misses is None else 1 - misses.mean / pairs,
        "given_events_low": least,
        "given_events_high": most,
        "z": None,
        "detectable": None,
        "verdict": NO_THEORY,
        "note": "; ".join(notes),
    }
    z: dict[str, float | None] = dict.fromkeys(THEORIES)
    if valid and share is not None:
        z["given_events"] = _given_events_z(misses, pairs - delivered, excused)
        if not interval_note(effective) and not losses.matters:  # which no plan has
            z["beforehand"] = _planned_z(share, effective, None if _is_rough(planned) else planned.share)
    if z["given_events"] is not None or (valid and misses is not None and not contradiction):
        row["z"], row["verdict"] = z["given_events"] or 0.0, AGREES
    variance = {
        "given_events": misses.variance / pairs**2 if misses is not None else 0.0,
        "beforehand": _planned_variance(effective, planned.share),
    }
    measured = _Measured(
        cell, row, z, variance, wider(scenario, sums, effective), losses.is_there, contradiction
    )
    if losses.matters and share is not None:
        _widen(row, measured.wider, _UNPLANNED)
    elif misses is not None and share is not None and misses.are_beyond(share, pairs):
        _widen(row, measured.wider, _NOT_AS_PLANNED)  # also where there is no verdict, as `kcast load` does
    return measured


def _planned_variance(of: EffectiveSize, theory: float | None) -> float:
    trials = of.interval_trials()
    return theory * (1 - theory) / trials if theory is not None and trials else 0.0


def _is_rough(planned: Prediction) -> bool:
    return planned.share is not None and planned.note != ""


def _given_events_z(misses: Misses | None, missed: int, excused: int) -> float | None:
    """The deviation of the misses from theory, as a standard normal; None without theory or without variance.

    Up to `excused` of the misses may count as delivered, as many as bring the deviation nearest to 0.
    """
    if misses is None or misses.variance == 0:
        return None
    least, most = (-score(misses, count) for count in (missed, missed - excused))
    # The value from `least` to `most` that is nearest to 0.
    return min(max(0.0, least), most) if least <= 0 else least


def score(misses: Misses, missed: int) -> float:
    """The z-score of `missed` misses (positive: too many)."""
    law = Skewed(misses.mean, misses.variance, misses.third)
    if missed > misses.certain:
        return law.score(missed)
    # No bunch was lost. Where few are expected this is likely; half of its probability counts as below.
    below = misses.certain_only_probability / 2
    return NormalDist().inv_cdf(below) if below > TAIL_MIN else law.standard(missed)


def _contradiction(misses: Misses | None, classes: Sequence[Chances], excused: int) -> str:
    """A sentence on deliveries or misses that theory rules out altogether; empty if there are none."""
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
    """The deviation of the share from a theory that knows no events, as a standard normal; None without one.

    The test uses a binomial distribution with the effective number of trials: where these are few, or misses
    come in rare bunches, a normal one would raise false alarms. A tail above one half gives 0.
    """
    trials = of.interval_trials(1 - given_events.LEVEL)
    if theory is None or not 0 < theory < 1 or not trials:
        return None
    found, chance = (share, theory) if share < theory else (1 - share, 1 - theory)
    # P(X <= x) of n trials, whole numbers or not, is I(1 - p; n - x, x + 1) (DLMF 8.17.5).
    tail = float(scipy.special.betainc(trials * (1 - found), trials * found + 1, 1 - chance))
    z = -NormalDist().inv_cdf(min(max(tail, TAIL_MIN), 0.5))
    return -z if share < theory else z


def _pairs(count: int) -> str:
    return f"{count:,} pair was" if count == 1 else f"{count:,} pairs were"


# --- All scenarios -----------------------------------------------------------------------------------


def _judge(each: _Measured, tested: int) -> None:
    """Sets the verdict of a scenario, and its interval if theory is refused.

    `tested` is the number of scenarios tested.
    """
    row, level = each.row, given_events.LEVEL / max(1, tested)
    if row["verdict"] == AGREES:
        row["detectable"] = each.could_see("given_events", level)
        if not each.sees_enough("given_events", level):
            row["verdict"] = NOT_REFUTED
    if _is_far(each.z["given_events"], level) or each.contradiction:
        row["verdict"] = DISAGREES
    if row["verdict"] == DISAGREES or _is_far(each.z["beforehand"], level):
        _widen(row, each.wider, _REFUSED)


def _is_far(z: float | None, level: float) -> bool:
    return z is not None and 2 * NormalDist().cdf(-abs(z)) < level


def _widen(row: Row, of: EffectiveSize, why: str) -> None:
    """Takes the wider of two intervals: theory does not know what came, so its variance may be too small."""
    if _WIDER in row["note"]:
        return
    trials = of.interval_trials()
    row["low"], row["high"] = of.interval(row["share"])
    row |= {"trials": trials, "clusters": of.name}
    row["design_effect"] = row["pairs"] / trials if trials else None
    row["note"] = "; ".join(filter(None, (row["note"], f"{why}: {_WIDER}")))


_REFUSED, _UNPLANNED = "theory is refused", "loss came that nobody planned"
_NOT_AS_PLANNED = "it is not as was planned"
_WIDER = "the interval is the wider of that by plan and that by what varied in the run"


def _joint(theory: str, measured: Sequence[_Measured]) -> Row:
    """Tests a theory on all scenarios for which it has a result.

    Given what happened, scenarios are independent, and the sum of their squared z is chi-squared
    with one degree of freedom each; only two runs of the same seed and name share their losses. Beforehand,
    scenarios with the same seed share their outages. However
    strongly they are correlated, the mean of their squared z exceeds a rare value (x > 1.54) no more often
    than chi-squared with one degree of freedom (Szekely and Bakirov, Extremal probabilities for Gaussian
    quadratic forms, 2003). So they count as one.
    """
    groups: defaultdict[object, list[float]] = defaultdict(list)
    for each in measured:
        z = each.z[theory]
        if z is not None:
            groups[_group(theory, each)].append(z * z)
    statistic = fsum(fsum(squares) / len(squares) for squares in groups.values())
    p_value = float(scipy.special.chdtrc(len(groups), statistic)) if groups else None
    is_given = theory == "given_events"
    exact = sum(each.is_exact for each in measured) if is_given else 0
    if is_given and any(each.contradiction for each in measured):
        p_value = 0.0
    elif exact and p_value is None:
        p_value = 1.0
    level = given_events.LEVEL if is_given else LEVEL
    verdict = NO_THEORY
    if p_value is not None:
        tested = [each for each in measured if each.z[theory] is not None]
        sees = exact > 0 or any(each.sees_enough(theory, level) for each in tested)
        verdict = DISAGREES if p_value < level else AGREES if sees else NOT_REFUTED
    return {
        "theory": theory,
        "scenarios": sum(map(len, groups.values())) + exact,
        "statistic": statistic,
        "degrees": len(groups),
        "p_value": p_value,
        "verdict": verdict,
    }


def _group(theory: str, each: _Measured) -> object:
    """Returns the same key for scenarios that are not independent of each other by this theory."""
    if theory == "beforehand":
        return _common_events(each.cell)
    return each.cell.number if each.is_lossy else _common_losses(each.cell)


def _common_losses(cell: Cell) -> tuple[object, ...]:
    """Returns the same key for scenarios with the same losses, which follow from seed and name. What a
    network loses follows from nothing."""
    return cell.scenario.seed, cell.scenario.name


def _common_events(cell: Cell) -> tuple[str, int]:
    """Returns the same key for scenarios with the same outages or views, which follow from the seed."""
    scenario: Scenario = cell.scenario
    if scenario.outages == "none" and scenario.known == 1:
        return "cell", cell.number
    return "seed", scenario.seed
