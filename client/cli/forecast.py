"""What `kcast plan` computes: what theory expects of a policy in a setting, and what stamps cost here."""

from bisect import bisect_left
from dataclasses import dataclass
from math import fsum
from time import perf_counter

from kcast.hashring import model
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL, Limits
from kcast.pubsub.stamp import Mint

CH_K_SHOWN_MAX = 5
K_PRIME_SHOWN_MAX = 10
MEASURE_S = 0.2  # how long tries for a stamp are measured
EXACT_K_MAX = 100  # above it, hosts are taken as blocked independently: the exact sum takes time cubic in K


@dataclass(frozen=True)
class Setting:
    """The conditions for a policy. Shares are 0 to 1; `rate` is messages a second on one topic."""

    hosts: int
    down: float  # the share of time that each host is down, independently, or ...
    down_exactly: int | None  # ... the number of hosts that are down, drawn at random
    loss: float
    repeat: int
    subscribers: int
    rate: float
    ttl_s: float
    lifetime_s: float

    @property
    def up(self) -> float:
        """The share of hosts that are up, on average."""
        return 1 - (self.down if self.down_exactly is None else self.down_exactly / self.hosts)

    @property
    def interval_s(self) -> float:
        """Seconds between two renewals of a lease."""
        return min(self.ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)

    @property
    def live(self) -> float:
        """The share of time for which a lease stands, given that renewals may get lost."""
        return model.sigma(RENEWALS_PER_TTL, self.loss)


@dataclass(frozen=True)
class Forecast:
    """What theory expects of a policy in a setting. Copies are of one message at one subscriber."""

    policy: str
    delivery: float
    miss: float
    whole_audience: float
    copies: float
    duplicates: float
    packets_per_message: float
    published_per_s: float
    renewals_per_s: float
    forwarded_per_s: float
    blocked_to_halve: int
    blocked_to_stop: int
    best_ttl_s: float
    waste_per_s: float
    waste_at_best_per_s: float

    @property
    def packets_per_s(self) -> float:
        """All of a topic's packets a second, without answers."""
        return self.published_per_s + self.renewals_per_s + self.forwarded_per_s


@dataclass(frozen=True)
class Work:
    """The average computing time for new leases, on a core that tries `tries_per_s` stamps a second."""

    bits: int
    tries_per_s: float

    @property
    def lease_s(self) -> float:
        """Seconds for one new lease at one server."""
        return 2**self.bits / self.tries_per_s if self.bits else 0.0

    def subscription_s(self, servers: int) -> float:
        """Returns the seconds for one topic at this number of servers."""
        return servers * self.lease_s

    @property
    def table_s(self) -> float:
        """Seconds to fill a server's table with leases: n leases cost n times as much as one."""
        return Limits().leases * self.lease_s


def predict(policy: Policy, setting: Setting) -> Forecast:
    """Returns what theory expects of a policy in a setting if publishers do not avoid dead hosts."""
    k, m, n = policy.sizes(setting.hosts)
    miss = _miss(k, m, n, setting)
    delivery = 1 - miss
    copies = model.copies(k, m, n, setting.up, setting.loss, setting.loss, setting.live, setting.repeat)
    cost = model.cost(
        k,
        m,
        n,
        setting.subscribers,
        setting.rate,
        setting.interval_s,
        setting.repeat,
        setting.up,
        setting.loss,
        setting.live,
    )
    flow = setting.rate * setting.repeat * m / k

    def waste(ttl_s: float) -> float:
        return model.wasted_traffic(ttl_s, flow, setting.lifetime_s, RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)

    best_ttl_s = model.best_ttl(flow, setting.lifetime_s, RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)
    return Forecast(
        policy=str(policy),
        delivery=delivery,
        miss=miss,
        whole_audience=_whole_audience(k, m, n, setting),
        copies=copies,
        duplicates=model.duplicates(copies, delivery) if delivery else 0.0,
        packets_per_message=(cost.published + cost.forwarded) / setting.rate,
        published_per_s=cost.published,
        renewals_per_s=cost.renewals,
        forwarded_per_s=cost.forwarded,
        blocked_to_halve=_blocked_to_halve(k, m, n, setting),
        blocked_to_stop=k,
        best_ttl_s=best_ttl_s,
        waste_per_s=waste(setting.ttl_s),
        waste_at_best_per_s=waste(best_ttl_s),
    )


def _sends(k: int, m: int, repeat: int) -> tuple[int, int]:
    """Returns how often a message goes to each host: `least` times, and to `extra` of the k once more."""
    return divmod(m * repeat, k)


def _path_up(sends: int, setting: Setting) -> float:
    """The chance that a message sent `sends` times to a host that is up gets through it."""
    return model.path(0.0, setting.loss, setting.loss, setting.live, sends)


def _miss(k: int, m: int, n: int, setting: Setting) -> float:
    """The chance that a subscriber misses a message, with repeats counted at the hosts they go to."""
    least, extra = _sends(k, m, setting.repeat)
    more, less = _path_up(least + 1, setting), _path_up(least, setting)
    first, pmf = model.hypergeometric(k, extra, n)
    if setting.down_exactly is None:
        up = 1 - setting.down
        return fsum(w * (1 - up * more) ** h * (1 - up * less) ** (n - h) for h, w in enumerate(pmf, first))
    # First for the hosts with more sends: the number of them that are down.
    hosts, down = setting.hosts, setting.down_exactly
    total = 0.0
    for h, weight in enumerate(pmf, first):
        first_down, down_pmf = model.hypergeometric(hosts, down, h)
        for d, chance in enumerate(down_pmf, first_down):
            rest = 1.0
            if less and n > h:
                rest = model.miss_exactly_down(hosts - h, down - d, n - h, less)
            total += weight * chance * (1 - more) ** (h - d) * rest
    return total


def _whole_audience(k: int, m: int, n: int, setting: Setting) -> float:
    """The chance that all subscribers get a message; a lower bound if there are more sends than hosts."""
    used = min(k, m * setting.repeat)
    if setting.down_exactly is None:
        return model.audience(
            k, used, n, setting.subscribers, setting.up, setting.loss, setting.loss, setting.live
        )
    first, pmf = model.hypergeometric(setting.hosts, setting.hosts - setting.down_exactly, used)
    # Given the number of used hosts that are up, only packet loss is left to chance.
    return fsum(
        weight * model.audience(k, up, n, setting.subscribers, 1.0, setting.loss, setting.loss, setting.live)
        for up, weight in enumerate(pmf, first)
    )


def _blocked_to_halve(k: int, m: int, n: int, setting: Setting) -> int:
    """Returns how many of a topic's hosts must be blocked to halve its delivery."""
    used, path_up = min(k, m * setting.repeat), setting.up * _path_up(1, setting)

    def delivery(blocked: int) -> float:
        if k > EXACT_K_MAX:
            return model.delivery(k, used, n, path_up * (1 - blocked / k))
        return model.delivery_given_down(k, used, n, blocked, path_up)

    whole = delivery(0)
    return bisect_left(range(k), True, key=lambda blocked: delivery(blocked) <= whole / 2)


def few_publish(policy: Policy, hosts: int) -> list[Policy]:
    """Returns k/1/k to k/k/k, if the policy is on the ring; leaves some out of a long list."""
    if policy.placement != "ring":
        return []
    k, m, _ = policy.sizes(hosts)
    step = max(1, -(-k // K_PRIME_SHOWN_MAX))
    return [Policy(k, k_prime, k) for k_prime in sorted({1, *range(step, k + 1, step), k, m})]


def all_of_k(hosts: int) -> list[Policy]:
    """Returns 1/1/1 to 5/5/5, with no more hosts than there are."""
    return [Policy(k, k, k) for k in range(1, min(CH_K_SHOWN_MAX, hosts) + 1)]


def measured_tries_per_s() -> float:
    """Measures how many stamps a client tries in a second on one core of this machine."""
    mint = Mint(b"A" * 32, [b"a-topic-of-some-length"], bits=60)
    mint.work(1000)
    started_at, before = perf_counter(), mint.tries
    while (spent_s := perf_counter() - started_at) < MEASURE_S:
        mint.work(5000)
    return (mint.tries - before) / spent_s
