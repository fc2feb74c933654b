"""What the network lost of a capture that is judged at once, as `kcast load` does."""

import numpy as np

from kcast.hashring.effective_size import ClusterSums
from kcast.loadtest.results.attribution import Attribution
from kcast.loadtest.results.joins import Ints, group_sums
from kcast.loadtest.results.leg_lines import COUNTED, counted_lines, stretches
from kcast.loadtest.results.loss_estimates import SUMS, Losses, estimated
from kcast.loadtest.scenario import Scenario


def losses_of(attribution: Attribution, t0_ns: int, scenario: Scenario) -> Losses:
    """Returns what was lost though the scenario did not ask for it; `t0_ns` is when the load began."""
    legs = attribution.legs
    if legs is None:
        return estimated({}, scenario.publishing_users)
    sums = {}
    for leg, lines in legs.of.items():
        _, counts = counted_lines(lines, stretches(lines.t_intended_ns, t0_ns, scenario.duration_s))
        of = dict(zip(COUNTED, counts, strict=True))
        for what, (all_lines, lost) in SUMS.items():
            sums[leg, what] = _clusters(of[all_lines], of[lost])
    ones = np.ones(len(legs.audiences), dtype=np.int64)
    (sizes,), (messages, silent) = group_sums((legs.audiences,), (ones, legs.silent))
    audiences = zip(sizes.tolist(), messages.tolist(), silent.tolist(), strict=True)
    return estimated(sums, scenario.publishing_users, audiences)


def _clusters(n: Ints, x: Ints) -> ClusterSums:
    n, x = n[n > 0], x[n > 0]
    return ClusterSums(len(n), *(int(column.sum()) for column in (n, x, n * n, n * x, x * x)))
