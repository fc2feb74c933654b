"""A run's pairs summed over clusters, from which `effective_trials` computes the effective sample size."""

import numpy as np

from kcast.hashring.effective_size import ClusterSums
from kcast.loadtest.results.attribution import Attribution
from kcast.loadtest.results.effective_trials import CLUSTERINGS, PUBLISHER, SUBSCRIBER, TOPIC
from kcast.loadtest.results.planned_variance import EPOCH, HOLDER, MESSAGE, TOPIC_EPOCH
from kcast.loadtest.results.tables import Array
from kcast.loadtest.scenario import Scenario


def pair_clusters(scenario: Scenario, attribution: Attribution, t0_ns: int) -> dict[str, ClusterSums]:
    """Returns the sums over clusters of pairs, by each of CLUSTERINGS. Epochs count from `t0_ns`."""
    epochs = (attribution.t_intended_ns - t0_ns) // max(1, round(scenario.epoch_s * 1e9))
    keys = {
        MESSAGE: (attribution.msg_ids,),
        HOLDER: (attribution.topics, attribution.sub_ids, epochs),
        TOPIC_EPOCH: (attribution.topics, epochs),
        EPOCH: (epochs,),
        TOPIC: (attribution.topics,),
        SUBSCRIBER: (attribution.sub_ids,),
        PUBLISHER: (attribution.msg_ids >> 32,),
    }
    return {name: _clusters(keys[name], attribution.delivered) for name in CLUSTERINGS}


def _clusters(keys: tuple[Array, ...], delivered: Array) -> ClusterSums:
    """The sums over clusters; a cluster is the pairs that are equal in all of these keys."""
    numbers = np.zeros(len(delivered), dtype=np.int64)
    for key in keys:
        _, own = np.unique(key, return_inverse=True)
        _, numbers = np.unique(numbers * (1 + own.max(initial=0)) + own, return_inverse=True)
    n = np.bincount(numbers).astype(np.int64)
    x = np.bincount(numbers[delivered], minlength=len(n)).astype(np.int64)
    return ClusterSums(len(n), *(int(column.sum()) for column in (n, x, n * n, n * x, x * x)))
