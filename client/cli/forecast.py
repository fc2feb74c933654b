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
    def live(self) -> float:
        """The share of time for which a lease stands, given that renewals may get lost."""
        return model.sigma(RENEWALS_PER_TTL, self.loss)

    def path_up(self, sends: int) -> float:
        """The chance that a message sent `sends` times to a host that is up gets through it."""
        return model.path(0.0, self.loss, self.loss, self.live, sends)


def predict(policy: Policy, setting: Setting) -> dict[str, float]:
    """Returns what theory expects of a policy if publishers do not avoid dead hosts, by names as in JSON.

    Copies are of one message at one subscriber; packets are a topic's, without answers.
    """
    k, m, n = policy.sizes(setting.hosts)
    loss, live, repeat, rate = setting.loss, setting.live, setting.repeat, setting.rate
    miss = _miss(k, m, n, setting)
    copies = model.copies(k, m, n, setting.up, loss, loss, live, repeat)
    interval_s = min(setting.ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)
    cost = model.cost(k, m, n, setting.subscribers, rate, interval_s, repeat, setting.up, loss, live)
    flow, renewing = rate * repeat * m / k, (RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)
    best_ttl_s = model.best_ttl(flow, setting.lifetime_s, *renewing)
    return {
        "delivery": 1 - miss,
        "miss": miss,
        "whole_audience": _whole_audience(k, m, n, setting),
        "copies": copies,
        "duplicates": model.duplicates(copies, 1 - miss) if miss < 1 else 0.0,
        "packets_per_message": (cost.published + cost.forwarded) / rate,
        "published_per_s": cost.published,
        "renewals_per_s": cost.renewals,
        "forwarded_per_s": cost.forwarded,
        "packets_per_s": cost.published + cost.renewals + cost.forwarded,
        "blocked_to_halve": _blocked_to_halve(k, m, n, setting),
        "blocked_to_stop": k,
        "best_ttl_s": best_ttl_s,
        "waste_per_s": model.wasted_traffic(setting.ttl_s, flow, setting.lifetime_s, *renewing),
        "waste_at_best_per_s": model.wasted_traffic(best_ttl_s, flow, setting.lifetime_s, *renewing),
    }


def _miss(k: int, m: int, n: int, setting: Setting) -> float:
    """The chance that a subscriber misses a message, with repeats counted at the hosts they go to."""
    least, extra = divmod(m * setting.repeat, k)  # it goes to each host `least` times, to `extra` once more
    more, less = setting.path_up(least + 1), setting.path_up(least)
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
    used, many, loss = min(k, m * setting.repeat), setting.subscribers, setting.loss
    if setting.down_exactly is None:
        return model.audience(k, used, n, many, setting.up, loss, loss, setting.live)
    first, pmf = model.hypergeometric(setting.hosts, setting.hosts - setting.down_exactly, used)
    # Given the number of used hosts that are up, only packet loss is left to chance.
    return fsum(
        weight * model.audience(k, up, n, many, 1.0, loss, loss, setting.live)
        for up, weight in enumerate(pmf, first)
    )


def _blocked_to_halve(k: int, m: int, n: int, setting: Setting) -> int:
    """Returns how many of a topic's hosts must be blocked to halve its delivery."""
    used, path_up = min(k, m * setting.repeat), setting.up * setting.path_up(1)

    def delivery(blocked: int) -> float:
        if k > EXACT_K_MAX:
            return model.delivery(k, used, n, path_up * (1 - blocked / k))
        return model.delivery_given_down(k, used, n, blocked, path_up)

    whole = delivery(0)
    return bisect_left(range(k), True, key=lambda blocked: delivery(blocked) <= whole / 2)


def others(policy: Policy, hosts: int) -> list[Policy]:
    """Returns what to set beside a policy: on the ring k/1/k to k/k/k, of which some are left out of a long
    list; then 1/1/1 to 5/5/5, with no more hosts than there are."""
    few: list[Policy] = []
    if policy.placement == "ring":
        k, m, _ = policy.sizes(hosts)
        step = max(1, -(-k // K_PRIME_SHOWN_MAX))
        few = [Policy(k, k_prime, k) for k_prime in sorted({1, *range(step, k + 1, step), k, m})]
    return few + [Policy(k, k, k) for k in range(1, min(CH_K_SHOWN_MAX, hosts) + 1)]


def work(bits: int, tries_per_s: float, servers: int) -> dict[str, float]:
    """Returns the average computing time for new leases, on a core that tries so many stamps a second."""
    lease_s, leases = 2**bits / tries_per_s if bits else 0.0, Limits().leases
    return {
        "bits": bits,
        "tries_per_s": tries_per_s,
        "lease_s": lease_s,
        "subscription_s": servers * lease_s,
        "table_leases": leases,
        "table_s": leases * lease_s,
    }


def measured_tries_per_s() -> float:
    """Measures how many stamps a client tries in a second on one core of this machine."""
    mint = Mint(b"A" * 32, [b"a-topic-of-some-length"], bits=60)
    mint.work(1000)
    started_at, before = perf_counter(), mint.tries
    while (spent_s := perf_counter() - started_at) < MEASURE_S:
        mint.work(5000)
    return (mint.tries - before) / spent_s
