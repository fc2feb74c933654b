"""The delivered share of pairs with its interval, beside the five theories; a joint test of all scenarios.

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

from kcast.hashring.effective_size import CONFIDENCE, ClusterSums, EffectiveSize
from kcast.loadtest.results.effective_trials import interval_note, pair_trials, wider
from kcast.loadtest.results.loss_estimates import Losses
from kcast.loadtest.results.loss_words import said
from kcast.loadtest.results.prediction import Prediction
from kcast.loadtest.results.simulated_law import delivered_share
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell, by_cell, clusters_by_cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.losses import losses_of
from kcast.spark.findings.pearson3 import TAIL_MIN
from kcast.spark.findings.plan_laws import DELIVERY_LEVEL, LEVEL, detectable, given_outages
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED, THEORIES
from kcast.spark.findings.theory_beforehand import beforehand, for_servers
from kcast.spark.findings.theory_given_events import (
    Chances,
    Misses,
    expected_misses,
    messages_per_lost_datagram,
    why_none,
)
from kcast.spark.findings.theory_given_loss import misses_given_loss

ENOUGH = 0.01
"""A difference of shares that is to be seen, or of as much as is missed by theory where that is more."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The share of one scenario beside the theories.

    By theory's name: `z`, None where there is none, and `variance`, that of the share. `main` is the theory
    that the verdict is on. `wider` is the effective sample size if theory is refused.
    """

    cell: Cell
    row: Row
    z: Mapping[str, float | None]
    variance: Mapping[str, float]
    wider: EffectiveSize
    main: str
    contradiction: str = ""

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
    tested = sum(each.z[each.main] is not None for each in measured)
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
    planned, share_beforehand = for_servers(scenario), beforehand(scenario)
    notes = [] if valid else ["its delivery cannot be trusted: see health"]
    if interval_note(effective):
        notes.append(interval_note(effective))
    misses = with_loss = None
    if pairs and not (why := why_none(scenario)):
        misses = expected_misses(scenario, classes, bunching)
        with_loss = misses_given_loss(scenario, classes, losses, bunching)
    elif pairs:
        notes.append(f"no theory given what happened: {why}")
    else:
        notes.append("nothing was to be delivered")
    if planned.note:
        none = "no " if planned.share is None else ""
        notes.append(f"{none}theory for this many servers: {planned.note}")
    main = "given_events" if with_loss is None else "given_loss"
    tested = misses if with_loss is None else with_loss
    if losses.is_there:
        notes.append(said(losses))
    band, band_with_loss = _band(misses, pairs), _band(with_loss, pairs)
    drawn = given_outages(scenario, delivered_share, share)
    low_drawn, high_drawn = (None, None) if drawn is None else drawn.band
    excused = sum(each.faults for each in classes if each.low)
    if excused:
        notes.append(
            f"{_pairs(excused)} missed by the fault of the machine that ran the test count as missed, and "
            "the verdict is the same as if each of them could have been delivered"
        )
    contradiction = _contradiction(tested, classes, excused) if valid else ""
    if contradiction:
        notes.append(contradiction)
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
        "beforehand": share_beforehand,
        "for_servers": planned.share,
        "given_outages": None if drawn is None else drawn.law.mean,
        "given_outages_low": None if low_drawn is None else max(0.0, low_drawn),
        "given_outages_high": None if high_drawn is None else min(1.0, high_drawn),
        "given_events": None if misses is None else 1 - misses.mean / pairs,
        "given_events_low": band[0],
        "given_events_high": band[1],
        "given_loss": None if with_loss is None else 1 - with_loss.mean / pairs,
        "given_loss_low": band_with_loss[0],
        "given_loss_high": band_with_loss[1],
        "z": None,
        "detectable": None,
        "verdict": NO_THEORY,
        "note": "; ".join(notes),
    }
    z: dict[str, float | None] = dict.fromkeys(THEORIES)
    if valid and share is not None:
        z[main] = _given_events_z(tested, pairs - delivered, excused)
    if valid and drawn is not None:
        z["given_outages"] = drawn.z
    if valid and share is not None and not interval_note(effective):
        z["for_servers"] = _planned_z(share, effective, None if _is_rough(planned) else planned.share)
        z["beforehand"] = _planned_z(share, effective, share_beforehand)
    if losses.matters:  # which no plan has
        z |= dict.fromkeys(("given_outages", "for_servers", "beforehand"))
    if z[main] is not None or (valid and tested is not None and not contradiction):
        row["z"], row["verdict"] = z[main] or 0.0, AGREES
    variance = {name: _planned_variance(effective, row[name]) for name in ("for_servers", "beforehand")}
    variance["given_outages"] = drawn.law.variance if drawn is not None else 0.0
    for name, of in (("given_events", misses), ("given_loss", with_loss)):
        variance[name] = of.variance / pairs**2 if of is not None and pairs else 0.0
    measured = _Measured(cell, row, z, variance, wider(scenario, sums, effective), main, contradiction)
    if losses.matters and share is not None:
        _widen(row, measured.wider, _UNPLANNED)
    return measured


def _planned_variance(of: EffectiveSize, theory: float | None) -> float:
    trials = of.interval_trials()
    return theory * (1 - theory) / trials if theory is not None and trials else 0.0


def _is_rough(planned: Prediction) -> bool:
    return planned.share is not None and planned.note != ""


def _band(misses: Misses | None, pairs: int) -> tuple[float | None, float | None]:
    """The range of shares in which 95 % of such runs fall; None, None without theory."""
    if misses is None:
        return None, None
    distribution = misses.distribution
    if distribution is None:
        return 1 - misses.mean / pairs, 1 - misses.mean / pairs
    tail = (1 - CONFIDENCE) / 2
    few, many = distribution.quantile(tail), distribution.quantile(1 - tail)
    if misses.certain_only_probability > tail:
        few = misses.certain
    # Pairs without a chance are missed in every run, and no run misses more than all pairs.
    most, least = (1 - min(max(count, misses.certain), pairs) / pairs for count in (few, many))
    return least, most


def _given_events_z(misses: Misses | None, missed: int, excused: int) -> float | None:
    """The deviation of the misses from theory, as a standard normal; None without theory or without variance.

    Up to `excused` of the misses may count as delivered, as many as bring the deviation nearest to 0.
    """
    if misses is None or misses.variance == 0:
        return None
    least, most = -misses.score(missed), -misses.score(missed - excused)
    # The value from `least` to `most` that is nearest to 0.
    return min(max(0.0, least), most) if least <= 0 else least


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
    trials = of.interval_trials(1 - DELIVERY_LEVEL)
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
    row, level = each.row, DELIVERY_LEVEL / max(1, tested)
    if row["verdict"] == AGREES:
        row["detectable"] = each.could_see(each.main, level)
        if not each.sees_enough(each.main, level):
            row["verdict"] = NOT_REFUTED
    if _is_far(each.z[each.main], level) or each.contradiction:
        row["verdict"] = DISAGREES
    if row["verdict"] == DISAGREES or _is_far(each.z["for_servers"], level):
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
_WIDER = "the interval is the wider of that by plan and that by what varied in the run"


def _joint(theory: str, measured: Sequence[_Measured]) -> Row:
    """Tests a theory on all scenarios for which it has a result.

    Given the outages as captured, scenarios are independent, and the sum of their squared z is chi-squared
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
            groups[_group(theory, each.cell)].append(z * z)
    statistic = fsum(fsum(squares) / len(squares) for squares in groups.values())
    p_value = float(scipy.special.chdtrc(len(groups), statistic)) if groups else None
    exact = [each for each in measured if each.main == theory and _is_exact(each)]
    if any(each.contradiction for each in measured if each.main == theory):
        p_value = 0.0
    elif exact and p_value is None:
        p_value = 1.0
    level = DELIVERY_LEVEL if theory in ("given_events", "given_loss") else LEVEL
    verdict = NO_THEORY
    if p_value is not None:
        tested = [each for each in measured if each.z[theory] is not None]
        sees = bool(exact) or any(each.sees_enough(theory, level) for each in tested)
        verdict = DISAGREES if p_value < level else AGREES if sees else NOT_REFUTED
    return {
        "theory": theory,
        "scenarios": sum(map(len, groups.values())) + len(exact),
        "statistic": statistic,
        "degrees": len(groups),
        "p_value": p_value,
        "verdict": verdict,
    }


def _is_exact(each: _Measured) -> bool:
    """Whether theory gives the number of misses exactly."""
    return each.z[each.main] is None and each.row["verdict"] != NO_THEORY


def _group(theory: str, cell: Cell) -> object:
    """Returns the same key for scenarios that are not independent of each other by this theory."""
    if theory == "given_loss":  # what a network loses follows from nothing
        return cell.number
    return _common_losses(cell) if theory == "given_events" else _common_events(cell)


def _common_losses(cell: Cell) -> tuple[object, ...]:
    """Returns the same key for scenarios with the same losses, which follow from seed and name."""
    return cell.scenario.seed, cell.scenario.name


def _common_events(cell: Cell) -> tuple[str, int]:
    """Returns the same key for scenarios with the same outages or views, which follow from the seed."""
    scenario: Scenario = cell.scenario
    if scenario.outages == "none" and scenario.known == 1:
        return "cell", cell.number
    return "seed", scenario.seed
