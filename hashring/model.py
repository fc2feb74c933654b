"""What theory predicts: delivery, copies, cost and attack, in closed form and without numpy.

One formula covers the four schemes of the 2004 note (K. J. Sitaker). A publisher sends to `m` random
hosts of the `k` that stand for a topic, a subscriber holds leases on `n` random ones, so they have
H ~ Hypergeometric(k, m, n) hosts in common, and each of those is a chance of `path` to get through:

    P(delivered) = 1 - E[(1 - path)^H]

S is k = m = n = 1; R is k = C; CH is m = n = k; RCH has one of m, n equal to K' and the other to k.

Everywhere: probabilities and shares are floats 0 .. 1, times are seconds, `down` is the share of time
that a host is down, `loss_in` and `loss_out` are packet loss from publisher to host and from host to
subscriber, `live` is the share of time that a subscriber's lease stands, `path_up` is `path` given that
the host is up. Avoidance of dead hosts is off: clients that notice and avoid them do better.

Where no paper is named, the formula follows from the definitions in a line or two, and the tests hold it
against a simulation.
"""

from dataclasses import dataclass
from math import ceil, comb, exp, expm1, floor, fsum, inf, lgamma, log, log1p, pi, prod, sqrt

from kcast.hashring.intervals import PairDistribution, binomial, clopper_pearson, delivered_pairs, icc, wilson

__all__ = [
    "Cost",
    "PairDistribution",
    "audience",
    "audience_given_down",
    "best_ttl",
    "betabin_miss",
    "binomial",
    "blocked_share",
    "capacity",
    "clopper_pearson",
    "common_share",
    "copies",
    "cost",
    "delivered_pairs",
    "delivery",
    "delivery_divergent",
    "delivery_fresh",
    "delivery_given_down",
    "down_share",
    "draws_needed",
    "duplicates",
    "few_publish_is_cheaper",
    "grinding_trials",
    "hostile",
    "hyp_miss",
    "hypergeometric",
    "icc",
    "miss_exactly_down",
    "overlap_mean",
    "overlap_pmf",
    "path",
    "restart_gap",
    "sigma",
    "wasted_traffic",
    "wilson",
    "zone_miss",
]


# One path


def sigma(renewals: float, loss: float) -> float:
    """The share of time that a lease stands although renewals get lost: `live`.

    1 - (1 - f) q^floor(M) - f q^ceil(M), where M = `renewals` per TTL (the note's M, 2 or 3; need not be
    whole), f its fraction, q = `loss` of one renewal.
    """
    whole = floor(renewals)
    fraction = renewals - whole
    return 1 - (1 - fraction) * loss**whole - fraction * loss ** (whole + 1)


def restart_gap(interval_s: float, up_s: float, loss: float) -> float:
    """The share of its up time that a host lacks a lease since it restarted: `live` is less by this factor.

    tau (1/2 + q / (1 - q)) / U: the wait for the next renewal (`interval_s` apart, lost with `loss`) that
    gets through, over the mean up time `up_s`. First order in tau / U.
    """
    return interval_s * (0.5 + loss / (1 - loss)) / up_s


def path(
    down: float, loss_in: float, loss_out: float, live: float = 1.0, sends: int = 1, dedup: bool = False
) -> float:
    """The chance that a message gets through one host that both sides use.

    (1 - down) live (1 - (1 - g)^r), g = (1 - loss_in)(1 - loss_out), r = `sends` to the same host, which
    forwards every one; with `dedup` only the first: (1 - down) live (1 - loss_in^r)(1 - loss_out).
    """
    if dedup:
        return (1 - down) * live * (1 - loss_in**sends) * (1 - loss_out)
    return (1 - down) * live * (1 - (1 - (1 - loss_in) * (1 - loss_out)) ** sends)


def down_share(detect_s: float, up_s: float) -> float:
    """`down` as clients see it who replace a dead host after `detect_s`: T / (U + T), U = mean up time."""
    return detect_s / (up_s + detect_s)


# Policies


def hypergeometric(population: int, marked: int, drawn: int) -> tuple[int, list[float]]:
    """How many of `drawn` out of `population` are `marked`: the least possible count and the pmf from it on.

    The ratio of neighbouring terms, taken outwards from the mode, keeps 14 digits where factorials lose
    them. Raises ValueError if `marked` or `drawn` is not within 0 .. population.
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
    """The chance to miss a message: E[(1 - path)^H], H ~ Hypergeometric(k, m, n).

    Raises ValueError if `m` or `n` is not within 0 .. k.
    """
    least, pmf = hypergeometric(k, m, n)
    return fsum(weight * (1 - path) ** h for h, weight in enumerate(pmf, least))


def delivery(k: int, m: int, n: int, path: float) -> float:
    """The chance that a subscriber gets a message: 1 - `hyp_miss`.

    Hosts must fail independently; 1 - (1 - path)^K' for RCH, about 1 - exp(-path m n / C) for R.
    """
    return 1 - hyp_miss(k, m, n, path)


def delivery_fresh(k_prime: int, path_once: float, sends: int) -> float:
    """RCH, each of `sends` times to K' other hosts: 1 - (1 - path)^(sends K'), `path_once` with one send.

    Never less than `sends` times to the same hosts (Jensen). Needs sends K' <= K.
    """
    return float(1 - (1 - path_once) ** (sends * k_prime))


def draws_needed(miss: float, path: float, common: float = 1.0) -> int:
    """The least K' with which RCH misses at most `miss`: ceil(ln miss / ln(1 - path common)).

    `common` is the chance that a host which one side knows is known to the other (`common_share`).
    Raises ValueError if no number is enough.
    """
    if not 0 < miss < 1 or not 0 < path * common <= 1:
        raise ValueError(f"no K' misses only {miss} with path {path} and {common} of hosts in common")
    if path * common == 1:
        return 1
    draws = ceil(log(miss) / log1p(-path * common) - 1e-9)  # 3.0000000000000004 for 0.1^3
    return max(1, draws)


# Failures that are not independent


def delivery_given_down(k: int, m: int, n: int, down: int, path_up: float = 1.0) -> float:
    """The chance of delivery when just `down` of the topic's `k` hosts are dead.

    1 - sum_h Hyp(h; k, m, n) sum_d Hyp(d; k, down, h) (1 - path_up)^(h - d): the hosts in common are a random
    subset, of which d are dead. For CH and down < k it is 1 - (1 - path_up)^(k - down). A message of few
    publish reaches all its subscribers or none, a subscriber of few subscribe gets all messages or none, but
    for packet loss. Raises ValueError if `m`, `n` or `down` is not within 0 .. k.
    """
    least, pmf = hypergeometric(k, m, n)
    return 1 - fsum(
        weight * miss_exactly_down(k, down, h, path_up) for h, weight in enumerate(pmf, least) if weight
    )


def miss_exactly_down(hosts: int, down: int, draws: int, path_up: float = 1.0) -> float:
    """The chance that `draws` random hosts all fail when exactly `down` of `hosts` are dead.

    sum_d Hyp(d; hosts, down, draws) (1 - path_up)^(draws - d), which is C(down, draws) / C(hosts, draws)
    without loss: a lab that kills 2 of 20 loses nothing with K' = 3. Raises ValueError as `hypergeometric`.
    """
    least, pmf = hypergeometric(hosts, down, draws)
    return fsum(weight * (1 - path_up) ** (draws - d) for d, weight in enumerate(pmf, least))


def betabin_miss(up: float, rho: float, k_prime: int, path_up: float = 1.0) -> float:
    """The chance that K' hosts all fail when their availability is one random number of mean `up`.

    sum_u BetaBinomial(u; K', a, b) (1 - path_up)^u, a = up (1 - rho) / rho, b = (1 - up)(1 - rho) / rho;
    `rho` is the correlation of two hosts, 0 (independent) .. 1 (all or none). Skellam, 1948.
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
    """The chance that K' hosts, each in a random one of `zones`, all fail; a zone is down with `zone_down`.

    sum_j Binomial(j; zones, zone_down) (1 - path (1 - j / zones))^K', `path` given that its zone is up. Hosts
    drawn from K' different zones bring it back to (1 - path (1 - zone_down))^K'.
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
    """The chance that all `subscribers` of a topic get a message, sent once.

    sum_u Bin(u; m, up (1 - loss_in)) (1 - E[(1 - live (1 - loss_out))^H])^S, H ~ Hypergeometric(k, u, n): u
    hosts have the message, and given them the subscribers are independent. Few publish loses whole
    messages, few subscribe a few subscribers of nearly every message.
    """
    return _all_reached(k, m, n, subscribers, up * (1 - loss_in), live * (1 - loss_out))


def audience_given_down(
    k: int, m: int, n: int, subscribers: int, down: int, loss_in: float = 0.0, loss_out: float = 0.0
) -> float:
    """The same when just `down` of the topic's `k` hosts are dead.

    A message goes to a ~ Hypergeometric(k, k - down, m) hosts that are up. Raises ValueError if `m`, `n` or
    `down` is not within 0 .. k.
    """
    least, pmf = hypergeometric(k, k - down, m)
    return fsum(
        weight * _all_reached(k, a, n, subscribers, 1 - loss_in, 1 - loss_out)
        for a, weight in enumerate(pmf, least)
    )


def _all_reached(k: int, m: int, n: int, subscribers: int, taken: float, passed: float) -> float:
    """Each of `m` hosts takes the message in with the one chance, and passes it on with the other."""
    least, pmf = binomial(m, taken)
    return fsum(
        weight * (1 - hyp_miss(k, u, n, passed)) ** subscribers for u, weight in enumerate(pmf, least)
    )


# Copies and cost


def copies(
    k: int, m: int, n: int, up: float, loss_in: float, loss_out: float, live: float = 1.0, sends: int = 1
) -> float:
    """Copies of a message that reach a subscriber, on average.

    (m n / k) up live r (1 - loss_in)(1 - loss_out), r = `sends`; the host forwards every one.
    """
    return m * n / k * up * live * sends * (1 - loss_in) * (1 - loss_out)


def duplicates(copies: float, delivery: float) -> float:
    """Copies beyond the first, on average over the messages delivered: copies / delivery - 1."""
    return copies / delivery - 1


@dataclass(frozen=True, slots=True)
class Cost:
    """What one topic costs all its hosts together, in packets per second. Answers are not counted."""

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
    """The traffic of a topic with `rate` messages a second, leases renewed every `interval_s`.

    Sent: rate m r, and S n / interval; forwarded: rate S (m n / k) up live r (1 - loss_in).
    """
    return Cost(
        published=rate * m * sends,
        renewals=subscribers * n / interval_s,
        forwarded=rate * subscribers * m * n / k * up * live * sends * (1 - loss_in),
    )


def few_publish_is_cheaper(subscribers: float, rate: float, interval_s: float, sends: int = 1) -> bool:
    """Whether few publish takes fewer packets than few subscribe with the same K': rate r > S / interval.

    The difference is (K - K') (S / interval - rate r) packets a second; both forward the same.
    """
    return rate * sends > subscribers / interval_s


def capacity(hosts: int, k: int, m: int, n: int, subscribers: float) -> float:
    """Messages a second that all hosts carry, in units of what one host alone does with as many subscribers.

    C (1 + S) / (m + (m n / k) S): a message costs one packet in and S out on a single server. RCH few
    publish: C / K' for every S; few subscribe: C / K without subscribers, towards C / K' with many.
    """
    return hosts * (1 + subscribers) / (m + m * n / k * subscribers)


# Attacks


def blocked_share(delivery: float, k_prime: int, path: float) -> float:
    """The share of a topic's K hosts to block so that RCH delivers only `delivery`, 0 if it does anyway.

    (1 - (1 - D)^(1/K')) / path lets through, so x = 1 - that. To stop all takes all K, while K' is secret.
    """
    missed: float = (1 - delivery) ** (1 / k_prime)
    return max(0.0, 1 - (1 - missed) / path)


def grinding_trials(share: float, hosts: int) -> float:
    """Keys to try until a `share` of a topic's places is one's own: x C / (1 - x), whatever K is.

    Hence a key must not hold anything that can be chosen freely, such as a port. Expected, K << C.
    """
    return share * hosts / (1 - share)


def hostile(down: float, share: float) -> float:
    """`down` when a random `share` of the hosts swallows messages: p + (1 - p) share."""
    return down + (1 - down) * share


# Views that differ


def common_share(jaccard: float) -> float:
    """The chance that a host of one view is in the other: 2 j / (1 + j), for two equally large views."""
    return 2 * jaccard / (1 + jaccard)


def overlap_mean(k: int, common: float) -> float:
    """The share of a topic's `k` hosts that two views have in common, on average.

    About c - c sqrt((1 - c) / (pi k)), c = `common`, for views much larger than `k`, and `k` of 10 and more.
    """
    return common - common * sqrt((1 - common) / (pi * k))


def overlap_pmf(k: int, jaccard: float) -> list[float]:
    """P(H = h), h = 0 .. k, of how many of a topic's hosts two views have in common, if much larger than `k`.

    Walking down the union, a host is in both views with j = `jaccard`, in one alone with b = (1 - j) / 2
    each. The longer walk, to the k-th host of the second view, is sum over v = 0 .. k-h-1 of
    2 k (k+v-1)! / (h! (k-h)! v!) j^h b^(k-h+v); both end together, at a common host, with
    (h / (2k-h)) (2k-h)! / (h! (k-h)!^2) j^h b^(2(k-h)).
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
    """RCH between two views much larger than `k`: sum_h P(H = h) (1 - E[(1 - path)^Hyp(k, h, K')]).

    About 1 - (1 - path c)^K', c = `common_share`. With K' = k it is CH.
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
    """Packets a second that one lease wastes: copies after its end, and renewals before.

    The 2004 note: obsolete subscriptions cost flow (N - length mod N), keepalives M / N. Here a lease is
    renewed every d = min(N / M, interval_max), so after a subscription of length L it outlives it by
    N - L mod d (the note's own for M = 1), once in L seconds; renewals take packets / d. `flow` is what one
    host forwards to one subscriber (rate times publish / k of a policy), in copies a second. Lengths are
    exponential with mean `length_s`, for which E[L mod d] = L - d / (e^(d/L) - 1).
    """
    interval_s = min(ttl_s / renewals, interval_max_s)
    ratio = interval_s / length_s
    if ratio < 1e-4:  # the closed form cancels
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
    """The TTL (the note's N), in seconds, that wastes least: the minimum of `wasted_traffic` within bounds.

    About sqrt(M L packets / (flow (1 - 1/(2M)))) if subscriptions last much longer than a TTL. Found by
    golden section, the function having one minimum. Raises ValueError if the bounds are not in order.
    """
    if not 0 < ttl_min_s <= ttl_max_s:
        raise ValueError(f"the TTL is to be within {ttl_min_s} .. {ttl_max_s} s: give 0 < least <= most")

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
    # At a bound the section only comes near it.
    return min((ttl_min_s, exp((low + high) / 2), ttl_max_s), key=lambda ttl_s: waste(log(ttl_s)))
