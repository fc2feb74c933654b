"""How much the network lost that no scenario asked for, by leg: shares, intervals, whether in bunches.

All follows from whole numbers, counted by leg and stretch of time (`leg_lines.COUNTED`).

- The share of a leg is lost / lines. Its interval is Wilson's on the least of three effective sample sizes:
  that of independent losses; that by the differences between stretches of time, whose losses may have a cause
  in common, whatever their legs (with Student's t, `kcast.hashring.effective_size`); and that of a chain in
  which a line depends on the one before it (Klotz, Statistical inference in Bernoulli trials with dependence,
  1973): (1 - r) / (1 + r) of the lines, if r is the correlation of two lines that follow each other. Where P
  publishers take turns on a leg, as they do on the way out, and so on both, only lines of one of them are
  compared. Where messages come at random, there is a geometric number of others between two of these, so that
  the correlation seen is s = the mean of r^n = r / (P - (P - 1) r), and
  (1 - r) / (1 + r) = (1 - s) / (1 + (2 P - 1) s). That holds once rows are certain; until then P counts as 1,
  since it makes much of little. Where messages come evenly, s = r^P, and this is too little.
- In a row: of the lines that follow a lost one, the share that is lost as well. If losses are independent it
  is the leg's own share. The mean number lost in a row is 1 / (1 - this).
- Together: of the other lines of a message of which one was lost, the share lost as well. These go by other
  servers, and theory takes them to be independent. Two that are lost count twice, so that at most half of
  these lines are independent.

Without taps a message counts as lost on the way in if it came to none of its m subscribers at a server. Of
those that came in, a share p_out^m looks like that. With z the share that came to none, and s the mean of
p_out^m over these messages,

    p_in = (z - s) / (1 - s)

and its interval combines those of z and of p_out (MOVER: Zou and Donner, Construction of confidence limits
about effect measures, 2008). So does the interval of both legs, whose share is 1 - (1 - p_in)(1 - p_out).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, sqrt

from kcast.hashring.effective_size import ClusterSums, EffectiveSize, effective_size
from kcast.loadtest.results.leg_lines import AUDIENCE_MIN, BOTH, IN, OUT
from kcast.loadtest.scenario import Scenario

LINES, AFTER, OTHERS = "lines", "after", "others"
"""What sums are of: all lines, those after a lost one, and the others of a message of which one was lost."""

SUMS = {LINES: ("lines", "lost"), AFTER: ("after", "after_lost"), OTHERS: ("others", "others_lost")}
"""The same by the names of counts (`leg_lines.COUNTED`)."""

STRETCH = "stretch"

_DEPENDENCE_MAX = 0.999

SURE = 0.998
"""How sure it is that losses came in bunches, where that is said."""

MATTERS = 0.001
"""The share of a leg's lines that are lost from which on theory as planned is not held against what came."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`share` of `lines` with its 95 % interval, on `trials` independent lines; and the lower end of its
    interval at SURE, `surely_above`."""

    lines: int
    lost: int
    share: float
    low: float
    high: float
    trials: float
    surely_above: float


@dataclass(frozen=True, slots=True)
class LegLoss:
    """What a leg lost: `rate`, None without a line; `after` and `together` are None if nothing was lost.

    `chain_effect` is how much more the number of lost lines varies than if none depended on the one before
    it; `is_in_rows`: whether lines after a lost one are lost more often than others, certainly.
    """

    rate: Rate | None = None
    after: Rate | None = None
    together: Rate | None = None
    chain_effect: float = 1.0
    is_in_rows: bool = False

    @property
    def is_together(self) -> bool:
        """Whether a message's lines by several servers are lost together more often, certainly."""
        return _is_above(self.together, self.rate)


@dataclass(frozen=True, slots=True)
class Losses:
    """What the network lost, by leg (`leg_lines.LEGS`)."""

    legs: Mapping[int, LegLoss]

    @property
    def is_known(self) -> bool:
        """Whether there are lines from which losses can be told."""
        return self.both.rate is not None

    @property
    def both(self) -> LegLoss:
        """The way from a publisher to a subscriber by one server."""
        return self.legs[BOTH]

    @property
    def is_there(self) -> bool:
        """Whether any line was lost."""
        return self.both.rate is not None and self.both.rate.lost > 0

    @property
    def matters(self) -> bool:
        """Whether so much was lost that theory as planned is not held against what came."""
        return any(of.rate is not None and of.rate.share > MATTERS for of in self.legs.values())

    @property
    def by_leg(self) -> tuple[Rate, Rate] | None:
        """The rates of both legs; None where copies do not tell on which of them lines were lost."""
        into, out = self.legs[IN].rate, self.legs[OUT].rate
        return None if into is None or out is None else (into, out)

    @property
    def chain_effect(self) -> float:
        """How much more the number of lost lines varies than if none depended on the one before it on its
        leg."""
        return max(self.legs[leg].chain_effect for leg in (IN, OUT))


def _is_above(one: Rate | None, other: Rate | None) -> bool:
    return one is not None and other is not None and one.surely_above > other.high


def with_losses(scenario: Scenario, losses: Losses) -> Scenario:
    """Returns the scenario with the loss on each leg that came, whether or not it was asked for.

    Where both legs are not known apart, all counts as lost on the way in: for all subscribers of a message
    together, so that misses vary most.
    """
    into, out = losses.by_leg or (losses.both.rate, None)
    return scenario.with_(
        loss_in=_either(scenario.loss_in, into.share if into is not None else 0.0),
        loss_out=_either(scenario.loss_out, out.share if out is not None else 0.0),
    )


def _either(asked: float, found: float) -> float:
    return 1 - (1 - asked) * (1 - found)


def estimated(
    sums: Mapping[tuple[int, str], ClusterSums],
    publishers: int,
    audiences: Iterable[tuple[int, int, int]] = (),
) -> Losses:
    """Returns what the network lost, from sums over stretches of time by leg and LINES, AFTER or OTHERS.

    `audiences` has, for messages at servers without a tap by the number of subscribers there: this number,
    that of messages, and that of those which came to none.
    """
    legs = {leg: _leg(sums, leg, 1 if leg == IN else publishers) for leg in (IN, OUT, BOTH)}
    of = [(size, units) for size, units, _ in audiences if size >= AUDIENCE_MIN]
    silent, out = legs[IN].rate, legs[OUT].rate
    if of and silent is not None and out is not None:
        corrected = _without_lost_copies(silent, out, of)
        legs[IN] = replace(legs[IN], rate=corrected)
    elif of:
        legs[IN] = LegLoss()  # nothing ever came: on which way it was lost is not known
    losses, both = Losses(legs), legs[BOTH].rate
    if losses.by_leg is not None and both is not None:
        legs[BOTH] = replace(legs[BOTH], rate=_one_after_the_other(both, *losses.by_leg))
    return losses


def _leg(sums: Mapping[tuple[int, str], ClusterSums], leg: int, publishers: int) -> LegLoss:
    lines, after_lost, others = (sums.get((leg, what)) for what in (LINES, AFTER, OTHERS))
    if lines is None or not lines.trials:
        return LegLoss()
    sizes = [_by_stretches(lines), EffectiveSize(lines.trials, inf, LINES)]
    after, together = _some(after_lost, 1), _some(others, 2)
    rate = _rate(lines, sizes)
    if after is None or rate.share == 1:
        return LegLoss(rate, after, together)

    seen = min(_DEPENDENCE_MAX, max(0.0, (after.share - rate.share) / (1 - rate.share)))

    def by_chain(effect: float) -> Rate:
        return _rate(lines, [*sizes, EffectiveSize(lines.trials / effect, inf, AFTER)])

    effect = (1 + seen) / (1 - seen)
    is_in_rows = _is_above(after, by_chain(effect))
    if is_in_rows:
        effect = (1 + (2 * publishers - 1) * seen) / (1 - seen)
    return LegLoss(by_chain(effect), after, together, effect, is_in_rows)


def _some(of: ClusterSums | None, times: int) -> Rate | None:
    """The rate among lines that count several times."""
    if of is None or not of.trials:
        return None
    return _rate(of, [_by_stretches(of), EffectiveSize(of.trials / times, inf, LINES)])


def _by_stretches(of: ClusterSums) -> EffectiveSize:
    return effective_size({STRETCH: of}, float(of.trials))


def _rate(of: ClusterSums, sizes: Sequence[EffectiveSize]) -> Rate:
    size = min(sizes, key=EffectiveSize.interval_trials)
    share = of.successes / of.trials
    low, high = size.interval(share)
    return Rate(
        of.trials, of.successes, share, low, high, size.interval_trials(), size.interval(share, SURE)[0]
    )


def _without_lost_copies(silent: Rate, out: Rate, audiences: Iterable[tuple[int, int]]) -> Rate:
    """The rate of the way in, from that of messages which came to none of a server's subscribers."""
    known = list(audiences)

    def share(of: float, loss_out: float) -> float:
        # Where some servers have taps, their lines need no correction: they count in `silent.lines` alone.
        copies = fsum(units * loss_out**size for size, units in known) / silent.lines
        return max(0.0, (of - copies) / (1 - copies)) if copies < 1 else 0.0

    best = share(silent.share, out.share)
    ends = [(share(silent.low, out.share), share(silent.share, out.high))]
    ends += [(share(silent.high, out.share), share(silent.share, out.low))]
    low, high = (sqrt(sum((best - end) ** 2 for end in both)) for both in ends)
    return replace(silent, share=best, low=max(0.0, best - low), high=min(1.0, best + high))


def _one_after_the_other(both: Rate, into: Rate, out: Rate) -> Rate:
    """The rate of both legs, with the interval that those of the legs give."""

    def share(loss_in: float, loss_out: float) -> float:
        return 1 - (1 - loss_in) * (1 - loss_out)

    best = share(into.share, out.share)
    low, high = (
        sqrt((best - share(one, out.share)) ** 2 + (best - share(into.share, other)) ** 2)
        for one, other in ((into.low, out.low), (into.high, out.high))
    )
    return replace(both, share=best, low=max(0.0, best - low), high=min(1.0, best + high))
