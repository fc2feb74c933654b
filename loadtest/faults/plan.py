"""The plan of faults: which servers are down when, and which each client knows. Pure functions of a scenario.

Every process computes the same plan by itself. Times are ns from t0, the moment at which the load begins.
Each server, zone, epoch and client has a random stream of its own, so that scenarios which differ in one
setting share the rest: a longer run begins like the shorter one, and with a larger share the servers that
were down (or known) before still are. The scenarios of a grid can therefore be compared with less noise.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import floor
from random import Random
from typing import NamedTuple

from kcast.client.cluster import Cluster
from kcast.loadtest.scenario import Scenario, ScenarioError

DRAWS_MAX = 10_000_000  # servers x epochs; above it planning takes minutes

_NS = 1_000_000_000


class Outage(NamedTuple):
    """A planned outage: `server` is down from `from_ns` until just before `to_ns`, both within one epoch."""

    server: int
    epoch: int
    from_ns: int
    to_ns: int


def outages(scenario: Scenario) -> tuple[Outage, ...]:
    """Returns the planned outages, by start and then server: one for each server and epoch, never merged.

    So a server that is down for several epochs has several outages in a row. The last epoch ends with the
    scenario's duration; after it all servers are up. Those that are mute stay so until the last deadline.

    - "independent": each server is down in each epoch with probability `outage`.
    - "exact": `down` servers, drawn anew in each epoch, are down.
    - "zones": server i is in zone i mod `zones` (as if racks were filled in turn); each zone is down in each
      epoch with probability `outage`, and all its servers with it. Both "stratified": just as many of all
      servers (or zones) of all epochs as are planned, at random.
    - "rolling": server 0 is down in epoch 0, server 1 in epoch 1, and so on; after the last, server 0 again.

    Raises ScenarioError if there are too many epochs to plan.
    """
    if scenario.outages == "none":
        return ()
    duration_s = scenario.duration_s + (scenario.deadline_s if scenario.by == "mute" else 0.0)
    duration_ns, epoch_ns = round(duration_s * _NS), max(1, round(scenario.epoch_s * _NS))
    count = -(-duration_ns // epoch_ns)
    if count * scenario.servers > DRAWS_MAX:
        raise ScenarioError(
            f"--epoch is {scenario.epoch_s:g}: {count:,} epochs of {scenario.servers:,} servers are too "
            "many to plan: give a longer one"
        )
    return tuple(
        Outage(server, epoch, epoch * epoch_ns, min((epoch + 1) * epoch_ns, duration_ns))
        for epoch, servers in enumerate(_down_by_epoch(scenario, count))
        for server in servers
    )


def _down_by_epoch(scenario: Scenario, count: int) -> Iterator[Sequence[int]]:
    servers = range(scenario.servers)
    match scenario.outages:
        case "independent" | "zones" if scenario.stratified:
            stream, units = _stream(scenario, "stratified", 0), scenario.outage_units
            planned = floor(scenario.outage * units * count + stream.random())
            slots = set(stream.sample(range(units * count), planned))
            for epoch in range(count):
                yield [server for server in servers if epoch * units + server % units in slots]
        case "independent":
            streams = [_stream(scenario, "server", server) for server in servers]
            for _ in range(count):
                yield [server for server in servers if streams[server].random() < scenario.outage]
        case "exact":
            for epoch in range(count):
                order = _stream(scenario, "epoch", epoch).sample(servers, len(servers))
                yield sorted(order[: scenario.down])
        case "zones":
            streams = [_stream(scenario, "zone", zone) for zone in range(scenario.zones)]
            for _ in range(count):
                down = [stream.random() < scenario.outage for stream in streams]
                yield [server for server in servers if down[server % scenario.zones]]
        case "rolling":
            for epoch in range(count):
                yield (epoch % len(servers),)


def _stream(scenario: Scenario, what: str, number: int) -> Random:
    return Random(f"{scenario.seed}/{what}/{number}")


def away(scenario: Scenario) -> tuple[Outage, ...]:
    """Returns when subscribers that are `away` are cut off from all servers."""
    from_ns, to_ns = (round(part * scenario.duration_s * _NS) for part in (0.25, 0.5))
    return tuple(Outage(server, 0, from_ns, to_ns) for server in range(scenario.servers))


def is_away(scenario: Scenario, sub_id: int) -> bool:
    """Returns whether a subscriber is away for a while: the first ones are."""
    return 0 <= sub_id < round(scenario.offline * scenario.subscribing_users)


class DownTimes:
    """Which servers are down at a time of the clock on which the load began at `t0_ns`.

    `outages` may be in any order, and may overlap.
    """

    def __init__(self, outages: Iterable[Outage], t0_ns: int) -> None:
        changes = sorted(
            change
            for outage in outages
            if outage.from_ns < outage.to_ns
            for change in ((outage.from_ns, outage.server, 1), (outage.to_ns, outage.server, -1))
        )
        self._times_ns: list[int] = []
        self._down: list[frozenset[int]] = [frozenset()]
        depth: dict[int, int] = {}
        for at_ns, group in groupby(changes, key=lambda change: change[0]):
            for _, server, step in group:
                depth[server] = depth.get(server, 0) + step
                if not depth[server]:
                    del depth[server]
            down = frozenset(depth)
            if down != self._down[-1]:
                self._times_ns.append(t0_ns + at_ns)
                self._down.append(down)

    def down_at(self, now_ns: int) -> frozenset[int]:
        """Returns the servers that are down."""
        return self._down[bisect_right(self._times_ns, now_ns)]

    def is_down(self, server: int, now_ns: int) -> bool:
        """Returns whether this server is down."""
        return server in self._down[bisect_right(self._times_ns, now_ns)]

    def next_change_ns(self, now_ns: int) -> int | None:
        """Returns the next time after `now_ns` at which other servers will be down; None for never."""
        index = bisect_right(self._times_ns, now_ns)
        return self._times_ns[index] if index < len(self._times_ns) else None


def known_servers(scenario: Scenario, client_id: int) -> tuple[int, ...]:
    """Returns the servers that a client knows, in order: the share `known` of all, rounded, at least one.

    All clients know equally many servers, each by a random choice of its own: so a server that one client
    knows is known to another with probability `known`. It may be fewer than the policy's k; such a client
    uses all servers that it knows for each topic, as any client does whose list is too short.
    """
    servers = range(scenario.servers)
    count = max(1, round(scenario.known * len(servers)))
    if count == len(servers):
        return tuple(servers)
    order = _stream(scenario, "known", client_id).sample(servers, len(servers))
    return tuple(sorted(order[:count]))


def view_of(cluster: Cluster, indexes: Iterable[int]) -> Cluster:
    """Returns the cluster with only these of its servers."""
    return replace(cluster, servers=tuple(cluster.servers[index] for index in indexes))
