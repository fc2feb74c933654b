"""What theory predicts: delivery, copies, cost and attacks, in closed form and without numpy.

One formula covers the four schemes of the 2004 note (K. J. Sitaker). A publisher sends to `m` random hosts
of the topic's `k`, and a subscriber holds leases at `n` random ones of them. They have
H ~ Hypergeometric(k, m, n) hosts in common, and the message gets through each of these with probability
`path`, so

    P(delivered) = 1 - E[(1 - path)^H]

S is k = m = n = 1; R is k = C; CH is m = n = k; RCH has one of m, n equal to K' and the other equal to k.

In all functions probabilities and shares are floats from 0 to 1, and times are in seconds. `down` is the
share of time that a host is down; `loss_in` and `loss_out` are the packet loss from publisher to host and
from host to subscriber; `live` is the share of time that a subscriber's lease stands; `path_up` is `path`
given that the host is up. Clients are taken not to avoid dead hosts; those that do fare better.

Where no paper is named, the formula follows from the definitions in a line or two. The tests compare it with
a simulation.
"""

from dataclasses import dataclass
from math import comb, exp, expm1, floor, fsum, inf, lgamma, log, prod, sqrt

from kcast.hashring.intervals import binomial

# One path


def sigma(renewals: float, loss: float) -> float:
    """The share of time that a lease stands although some renewals get lost: `live`.

    1 - (1 - f) q^floor(M) - f q^ceil(M), where M = `renewals` per TTL (2 or 3 in the note; need not be
    whole), f is its fractional part, and q = `loss` the chance that one renewal is lost.
    """
    whole = floor(renewals)
    fraction = renewals - whole
    return 1 - (1 - fraction) * loss**whole - fraction * loss ** (whole + 1)


def restart_gap(interval_s: float, up_s: float, loss: float) -> float:
    """The share of a host's up time during which it lacks a lease because it has restarted.

    tau (1/2 + q / (1 - q)) / U: the mean wait for the first renewal that gets through (they are
    tau = `interval_s` apart, and each is lost with probability q = `loss`), over the mean up time U = `up_s`.
    First order in tau / U. Multiply `live` by 1 minus this.
    """
    return interval_s * (0.5 + loss / (1 - loss)) / up_s


def path(
    down: float, loss_in: float, loss_out: float, live: float = 1.0, sends: int = 1, dedup: bool = False
) -> float:
    """The probability that a message gets through one host that both sides use.

    (1 - down) live (1 - (1 - g)^r), where g = (1 - loss_in)(1 - loss_out) and the message is sent r = `sends`
    times to that host, which forwards it each time. With `dedup` it forwards only the first:
    (1 - down) live (1 - loss_in^r)(1 - loss_out).
    """
    if dedup:
        return (1 - down) * live * (1 - loss_in**sends) * (1 - loss_out)
    return (1 - down) * live * (1 - (1 - (1 - loss_in) * (1 - loss_out)) ** sends)


# Policies


def hypergeometric(population: int, marked: int, drawn: int) -> tuple[int, list[float]]:
    """The distribution of how many of `drawn` items are `marked`: the least count, and the pmf from it on.

    Terms are computed as ratios to their neighbours, outwards from the mode: that keeps 14 digits where
    factorials lose them. Raises ValueError if `marked` or `drawn` is not within 0 .. population.

    >>> least, pmf = hypergeometric(population=5, marked=3, drawn=4)
    >>> least, [round(p, 3) for p in pmf]
    (2, [0.6, 0.4])
    """
    if not (0 <= marked <= population and 0 <= drawn <= population):
        raise ValueError(f"cannot mark {marked} and draw {drawn} of {population}: both must be within it")
    least, most = max(0, marked + drawn - population), min(marked, drawn)
    mode = min(most, max(least, (marked + 1) * (drawn + 1) // (population + 2)))
    weights = [1.0]
    for h in range(mode, most):
        ratio = (marked - h) * (drawn - h) / ((h + 1) * (population - marked - drawn + h + 1))
        weights.append(weights[-1] * ratio)
    below = [1.0]
    for h in range(mode, least, -1):
        ratio = h * (population - marked - drawn + h) / ((marked - h + 1) * (drawn - h + 1))
        below.append(below[-1] * ratio)
    weights = below[:0:-1] + weights
    total = fsum(weights)
    return least, [weight / total for weight in weights]


def hyp_miss(k: int, m: int, n: int, path: float) -> float:
    """The probability that a subscriber misses a message: E[(1 - path)^H], H ~ Hypergeometric(k, m, n).

    Raises ValueError if `m` or `n` is not within 0 .. k.
    """
    least, pmf = hypergeometric(k, m, n)
    return fsum(weight * (1 - path) ** h for h, weight in enumerate(pmf, least))


def delivery(k: int, m: int, n: int, path: float) -> float:
    """The probability that a subscriber gets a message: 1 - `hyp_miss`.

    Hosts must fail independently. For RCH it is 1 - (1 - path)^K', for R about 1 - exp(-path m n / C). Raises
    ValueError as `hyp_miss`.

    >>> f"{delivery(k=5, m=3, n=5, path=0.9):.3f}"  # policy 5/3/5, a tenth of the hosts down
    '0.999'
    """
    return 1 - hyp_miss(k, m, n, path)


# Failures that are not independent


def delivery_given_down(k: int, m: int, n: int, down: int, path_up: float = 1.0) -> float:
    """The probability of delivery when exactly `down` of the topic's `k` hosts are dead.

    1 - sum_h Hyp(h; k, m, n) sum_d Hyp(d; k, down, h) (1 - path_up)^(h - d): the hosts in common are a random
    subset, and d of them are dead. For CH and down < k it is 1 - (1 - path_up)^(k - down). Apart from packet
    loss, with few publish a message reaches all its subscribers or none, and with few subscribe a subscriber
    gets all messages or none. Raises ValueError if `m`, `n` or `down` is not within 0 .. k.
    """
    least, pmf = hypergeometric(k, m, n)
    return 1 - fsum(
        weight * miss_exactly_down(k, down, h, path_up) for h, weight in enumerate(pmf, least) if weight
    )


def miss_exactly_down(hosts: int, down: int, draws: int, path_up: float = 1.0) -> float:
    """The probability that `draws` random hosts all fail when exactly `down` of `hosts` are dead.

    sum_d Hyp(d; hosts, down, draws) (1 - path_up)^(draws - d). Without loss that is
    C(down, draws) / C(hosts, draws): a lab that kills 2 of 20 loses nothing with K' = 3. Raises ValueError as
    `hypergeometric`.
    """
    least, pmf = hypergeometric(hosts, down, draws)
    return fsum(weight * (1 - path_up) ** (draws - d) for d, weight in enumerate(pmf, least))


def betabin_miss(up: float, rho: float, k_prime: int, path_up: float = 1.0) -> float:
    """The probability that K' hosts all fail when all have the same random availability, of mean `up`.

    sum_u BetaBinomial(u; K', a, b) (1 - path_up)^u, a = up (1 - rho) / rho, b = (1 - up)(1 - rho) / rho.
    `rho` is the correlation between two hosts, from 0 (independent) to 1 (all up or all down). Skellam, 1948.
    """
    if rho == 0 or up in (0, 1):
        return float((1 - up * path_up) ** k_prime)
    if rho == 1:
        return float(1 - up + up * (1 - path_up) ** k_prime)
    scale = (1 - rho) / rho
    a, b = up * scale, (1 - up) * scale
    if path_up == 1:
        return prod((b + i) / (a + b + i) for i in range(k_prime))
    norm = lgamma(a) + lgamma(b) - lgamma(a + b)
    return fsum(
        comb(k_prime, u)
        * exp(lgamma(u + a) + lgamma(k_prime - u + b) - lgamma(k_prime + a + b) - norm)
        * (1 - path_up) ** u
        for u in range(k_prime + 1)
    )


def zone_miss(zones: int, zone_down: float, path: float, k_prime: int) -> float:
    """The probability that K' hosts all fail, each in a random zone; a zone is down with `zone_down`.

    sum_j Binomial(j; zones, zone_down) (1 - path (1 - j / zones))^K', where `path` is given that the host's
    zone is up. If the hosts are drawn from K' different zones, it is (1 - path (1 - zone_down))^K'.
    """
    return fsum(
        comb(zones, j)
        * zone_down**j
        * (1 - zone_down) ** (zones - j)
        * (1 - path * (1 - j / zones)) ** k_prime
        for j in range(zones + 1)
    )


def audience(
    k: int,
    m: int,
    n: int,
    subscribers: int,
    up: float,
    loss_in: float = 0.0,
    loss_out: float = 0.0,
    live: float = 1.0,
) -> float:
    """The probability that all `subscribers` of a topic get a message that is sent once.

    sum_u Bin(u; m, up (1 - loss_in)) (1 - E[(1 - live (1 - loss_out))^H])^S, H ~ Hypergeometric(k, u, n): u
    hosts have the message, and given these hosts the subscribers are independent. Few publish loses whole
    messages; few subscribe loses some subscribers of nearly every message.
    """
    least, pmf = binomial(m, up * (1 - loss_in))
    passed = live * (1 - loss_out)
    return fsum(
        weight * (1 - hyp_miss(k, u, n, passed)) ** subscribers for u, weight in enumerate(pmf, least)
    )


# Copies and cost


def copies(
    k: int, m: int, n: int, up: float, loss_in: float, loss_out: float, live: float = 1.0, sends: int = 1
) -> float:
    """The mean number of copies of a message that reach a subscriber.

    (m n / k) up live r (1 - loss_in)(1 - loss_out), r = `sends`: hosts forward every one.
    """
    return m * n / k * up * live * sends * (1 - loss_in) * (1 - loss_out)


def duplicates(copies: float, delivery: float) -> float:
    """The mean number of copies after the first, over delivered messages: copies / delivery - 1."""
    return copies / delivery - 1


@dataclass(frozen=True, slots=True)
class Cost:
    """What one topic costs all its hosts together, in packets per second. Answers are left out."""

    published: float
    renewals: float
    forwarded: float


def cost(
    k: int,
    m: int,
    n: int,
    subscribers: int,
    rate: float,
    interval_s: float,
    sends: int = 1,
    up: float = 1.0,
    loss_in: float = 0.0,
    live: float = 1.0,
) -> Cost:
    """The traffic of a topic with `rate` messages per second and leases renewed every `interval_s`.

    Published: rate m r. Renewals: S n / interval. Forwarded: rate S (m n / k) up live r (1 - loss_in).
    """
    return Cost(
        published=rate * m * sends,
        renewals=subscribers * n / interval_s,
        forwarded=rate * subscribers * m * n / k * up * live * sends * (1 - loss_in),
    )


def few_publish_is_cheaper(subscribers: float, rate: float, interval_s: float, sends: int = 1) -> bool:
    """Whether few publish takes fewer packets than few subscribe with the same K': rate r > S / interval.

    The difference is (K - K') (S / interval - rate r) packets per second; both forward equally many.
    """
    return rate * sends > subscribers / interval_s


def capacity(hosts: int, k: int, m: int, n: int, subscribers: float) -> float:
    """How many times the messages per second of one host all `hosts` carry, with as many subscribers a topic.

    C (1 + S) / (m + (m n / k) S): on a single host a message costs one packet in and S packets out. With few
    publish it is C / K' for every S; with few subscribe it is C / K without subscribers, and approaches
    C / K' with many.
    """
    return hosts * (1 + subscribers) / (m + m * n / k * subscribers)


# Attacks


def blocked_share(delivery: float, k_prime: int, path: float) -> float:
    """The share of a topic's K hosts that must be blocked to lower the delivery of RCH to `delivery`.

    1 - (1 - (1 - D)^(1/K')) / path, and 0 if delivery is as low anyway. To stop everything one must block all
    K hosts, as long as the draw of K' is secret.
    """
    missed: float = (1 - delivery) ** (1 / k_prime)
    return max(0.0, 1 - (1 - missed) / path)


# Views that differ


def overlap_pmf(k: int, jaccard: float) -> list[float]:
    """The pmf, h = 0 .. k, of how many of a topic's `k` hosts two views share.

    The views must be much larger than `k`. Walking down their union, a host is in both with probability
    j = `jaccard`, and in either alone with b = (1 - j) / 2. If one view reaches its k-th host after the
    other, the terms are the sum over v = 0 .. k-h-1 of 2 k (k+v-1)! / (h! (k-h)! v!) j^h b^(k-h+v). If both
    reach it at once, at a common host, the term is (h / (2k-h)) (2k-h)! / (h! (k-h)!^2) j^h b^(2(k-h)).
    """
    if jaccard in (0, 1):
        return [float(h == k * jaccard) for h in range(k + 1)]
    log_j, log_b = log(jaccard), log((1 - jaccard) / 2)
    logs = [lgamma(i + 1) for i in range(2 * k + 1)]
    pmf = []
    for h in range(k + 1):
        fixed = log(2 * k) - logs[h] - logs[k - h] + h * log_j + (k - h) * log_b
        terms = [exp(fixed + logs[k + v - 1] - logs[v] + v * log_b) for v in range(k - h)]
        if h:
            both = h * log_j + 2 * (k - h) * log_b + log(h) + logs[2 * k - h - 1] - logs[h] - 2 * logs[k - h]
            terms.append(exp(both))
        pmf.append(fsum(terms))
    return pmf


def delivery_divergent(k: int, k_prime: int, jaccard: float, path: float) -> float:
    """The probability of delivery by RCH between two views that differ and are much larger than `k`.

    sum_h P(H = h) (1 - E[(1 - path)^Hyp(k, h, K')]), with H from `overlap_pmf`. It is about
    1 - (1 - path c)^K', where c = 2 j / (1 + j) is the chance that a host of one view is in the other.
    With K' = k it is CH.
    """
    return fsum(
        weight * delivery(k, h, k_prime, path) for h, weight in enumerate(overlap_pmf(k, jaccard)) if weight
    )


# The best TTL


def wasted_traffic(
    ttl_s: float,
    flow: float,
    length_s: float,
    renewals: int = 3,
    interval_max_s: float = inf,
    packets_per_renewal: float = 1.0,
) -> float:
    """Packets per second that one lease wastes: copies after the subscription's end, and renewals before it.

    In the 2004 note obsolete subscriptions cost flow (N - length mod N), and keepalives M / N. Here a lease
    is renewed every d = min(N / M, interval_max), so it outlives a subscription of length L by N - L mod d
    (as in the note for M = 1), once in L seconds; renewals take packets / d. `flow` is what one host forwards
    to one subscriber, in copies per second: the rate times publish / k. Lengths are exponential with mean
    `length_s`, for which E[L mod d] = L - d / (e^(d/L) - 1).
    """
    interval_s = min(ttl_s / renewals, interval_max_s)
    ratio = interval_s / length_s
    if ratio < 1e-4:  # here the closed form loses digits
        remainder_s = interval_s / 2 - interval_s * ratio / 12
    else:
        remainder_s = length_s - (interval_s / expm1(ratio) if ratio < 700 else 0.0)
    return flow * (ttl_s - remainder_s) / length_s + packets_per_renewal / interval_s


def best_ttl(
    flow: float,
    length_s: float,
    renewals: int = 3,
    interval_max_s: float = inf,
    packets_per_renewal: float = 1.0,
    ttl_min_s: float = 1.0,
    ttl_max_s: float = 86_400.0,
) -> float:
    """The TTL in seconds (the note's N) that wastes least: the minimum of `wasted_traffic` within bounds.

    About sqrt(M L packets / (flow (1 - 1/(2M)))) if subscriptions last much longer than a TTL. Found by
    golden-section search, since the function has one minimum. Raises ValueError unless
    0 < `ttl_min_s` <= `ttl_max_s`.
    """
    if not 0 < ttl_min_s <= ttl_max_s:
        raise ValueError(f"the TTL must be within {ttl_min_s} .. {ttl_max_s} s: give 0 < least <= most")

    def waste(log_ttl: float) -> float:
        return wasted_traffic(exp(log_ttl), flow, length_s, renewals, interval_max_s, packets_per_renewal)

    golden = (sqrt(5) - 1) / 2
    low, high = log(ttl_min_s), log(ttl_max_s)
    while high - low > 1e-7:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if waste(left) < waste(right):
            high = right
        else:
            low = left
    # The search only comes near a minimum at a bound.
    return min((ttl_min_s, exp((low + high) / 2), ttl_max_s), key=lambda ttl_s: waste(log(ttl_s)))
