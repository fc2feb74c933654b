"""Theory given the loss: that given what happened, and also what the network lost though nobody asked for it.

Each leg loses what the scenario asks for, and of the rest the share that was measured. Lines are taken to be
lost independently of each other, above all those of one message by different servers. That is what the theory
says of a network: where it is refused, copies were lost together, and K' of them help less than they should.

The share that was measured is not the true one. How much the misses vary with it, from one end of its
interval to the other, is added to their variance. A run in which more was lost has more misses, too: so the
test is rather too mild. Where losses came in rows along a leg, messages near each other are missed together:
the variance is multiplied as that of the number of lost lines.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from statistics import NormalDist

from kcast.hashring.effective_size import CONFIDENCE
from kcast.loadtest.results.loss_estimates import Losses, Rate, with_losses
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.theory_given_events import Chances, Misses, expected_misses


def misses_given_loss(
    scenario: Scenario, classes: Sequence[Chances], losses: Losses, bunching: float
) -> Misses | None:
    """Returns the misses in theory; None where no line was lost that nobody asked for, or none is known.

    `bunching` is `theory_given_events.messages_per_lost_datagram`.
    """
    if not losses.is_there:
        return None
    with_loss = with_losses(scenario, losses)
    best = expected_misses(with_loss, classes, max(bunching, losses.chain_effect))
    if best.variance == 0:
        return best
    spread = fsum(
        _spread(with_loss, classes, rate) ** 2 for rate in losses.by_leg or (losses.both.rate,) if rate
    )
    return replace(best, variance=best.variance + spread)


def _spread(scenario: Scenario, classes: Sequence[Chances], rate: Rate) -> float:
    """The standard deviation of the misses in theory, by that of a leg's rate."""
    ends = []
    for share in (rate.low, rate.high):
        # What passes by the best estimate, and at this end of the interval.
        passes = (1 - scenario.loss_in) * (1 - scenario.loss_out)
        passes *= (1 - share) / (1 - rate.share) if rate.share < 1 else 1.0
        lost = 1 - min(1.0, passes)
        ends.append(fsum(each.pairs * lost**each.low for each in classes if each.low == each.high))
    return (ends[1] - ends[0]) / (2 * NormalDist().inv_cdf(0.5 + CONFIDENCE / 2))
