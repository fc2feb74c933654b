"""Asks the servers of a cluster, before a test, whether any of them is there."""

from kcast.client.cli.probing import Probing, probes_of
from kcast.client.clusters.cluster import Cluster
from kcast.pubsub import clock

_ROUND_S = 0.25


def any_answers(cluster: Cluster, within_s: float) -> bool:
    """Pings all servers at all their addresses until one answers. False if none does within this time."""
    probes = probes_of(cluster)
    with Probing(probes, is_shared=True) as probing:
        # By rounds, not by the clock: what came while this process was busy is read all the same.
        for _ in range(max(1, round(within_s / _ROUND_S))):
            probing.ping_all()
            probing.run(clock.now() + _ROUND_S, lambda: any(probe.rtts_s for probe in probes))
            if any(probe.rtts_s for probe in probes):
                return True
    return False
