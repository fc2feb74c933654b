"""What a demo is to run, and what came of it."""

from collections import Counter
from dataclasses import dataclass, field

from kcast.loadtest.demo.tally import PhaseResult
from kcast.pubsub.limits import RENEWALS_PER_TTL

K = 5
K_PRIMES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What to run: topics, subscribers and publishers are for each K'; `rate` is messages a second in all."""

    servers: int = 12
    kill: int = 4
    ttl_s: int = 4
    topics: int = 24
    subscribers: int = 16
    publishers: int = 4
    seed: int = 1
    rate: int = 400

    @property
    def lease_slack_s(self) -> float:
        """The seconds for which this machine may stop the clients without a lease ending."""
        return self.ttl_s * (1 - 1 / RENEWALS_PER_TTL)


@dataclass(slots=True)
class DemoResult:
    """What came of a run. Servers are named by their keys; times count from the servers' restart."""

    phase_results: list[PhaseResult] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    kernel_drops: int = 0
    slow_drops: int = 0
    killed: tuple[str, ...] = ()
    dead_of_topic: dict[str, int] = field(default_factory=dict)
    subscriptions: int = 0
    stopped_s: float = 0.0
    """The longest time for which this machine gave the demo no processor."""
    unanswered: int = 0
    """Number of publishes in judged phases that went to a live server and got no receipt."""
    leases_after_s: float | None = None
    """Seconds until all leases stood again; None if that took longer than a ttl."""
    last_loss_s: float | None = None
    """When the last message that missed a subscriber was published; None if none missed any."""

    @property
    def dropped(self) -> int:
        """Number of datagrams and messages that arrived at clients and were not read in time."""
        return self.kernel_drops + self.slow_drops
