"""How unevenly servers are used when each topic lies on random ones: the CV that chance alone gives. Pure.

A topic lies on h random servers of C. On average over all placements, a server's load has mean and variance

    mean = sum over topics of (h / C) e        variance = sum of (h / C) (v + e^2 (1 - h / C))

where e and v are mean and variance of what one of the h servers gets of the topic. With n messages and s
subscribers:

    lines     e = n a           v = n va
    leases    e = s b           v = s b (1 - b)                                 b = subscribe / h
    copies    e = n a s b       v = (n a)^2 s b (1 - b) + (s b)^2 n va + n va s b (1 - b)

a and va are mean and variance of the lines of one message at one of the h servers: each message goes to
`publish` random ones of them, as often as it is repeated, to others first, and may be lost or doubled on its
way. That the ring gives some servers a little more of all topics than others, a CV of 3 %, is left out: with
as few topics as a run has, what is above is much more.

Servers that were down for a part of the load got so much less: with u, the CV of the time that servers were
up, as captured, CV^2 = (1 + placement^2)(1 + u^2) - 1.

Of one run the CV itself is off by chance, by about CV / sqrt(2 C).
"""

from math import sqrt
from typing import NamedTuple, Self

from kcast.loadtest.results.prediction import servers_per_topic
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.theory_beforehand import draws

RECEIVED, FORWARDED, LEASES = "received lines", "forwarded copies", "leases"


class Topics(NamedTuple):
    """Sums over topics of products of n, their messages, and s, their subscribers; `nns` is that of n n s."""

    n: int
    s: int
    nn: int
    ss: int
    ns: int
    nns: int
    nss: int
    nnss: int

    @classmethod
    def of(cls, topics: list[tuple[int, int]]) -> Self:
        """Of each topic's messages and subscribers."""
        return cls(
            n=sum(n for n, _ in topics),
            s=sum(s for _, s in topics),
            nn=sum(n * n for n, _ in topics),
            ss=sum(s * s for _, s in topics),
            ns=sum(n * s for n, s in topics),
            nns=sum(n * n * s for n, s in topics),
            nss=sum(n * s * s for n, s in topics),
            nnss=sum(n * n * s * s for n, s in topics),
        )


def placement_cv(scenario: Scenario, topics: Topics) -> dict[str, float | None]:
    """The CV of lines, copies and leases, by their names; None where there is none.

    That is without load, where clients know different servers, and where they avoid dead ones.
    """
    has_model = scenario.known == 1 and not (scenario.avoid_dead and scenario.outages != "none")
    if not has_model:
        return dict.fromkeys((RECEIVED, FORWARDED, LEASES))
    k, servers = servers_per_topic(scenario), scenario.servers
    publish, subscribe = draws(scenario)
    a, va = _lines(scenario, publish, k)
    b = subscribe / k
    vb = b * (1 - b)
    sums = {
        RECEIVED: (topics.n * a, topics.n * va, topics.nn * a * a),
        LEASES: (topics.s * b, topics.s * vb, topics.ss * b * b),
        FORWARDED: (
            topics.ns * a * b,
            topics.nns * a * a * vb + topics.nss * b * b * va + topics.ns * va * vb,
            topics.nnss * (a * b) ** 2,
        ),
    }
    share = k / servers
    return {
        name: sqrt(share * (own + squares * (1 - share))) / (share * mean) if mean else None
        for name, (mean, own, squares) in sums.items()
    }


def with_outages(cv: float | None, up_ns: list[int]) -> float | None:
    """The same where servers were up for so long; `cv` where nothing is known of that."""
    mean = sum(up_ns) / len(up_ns) if up_ns else 0.0
    if cv is None or not mean:
        return cv
    square = sum((up - mean) ** 2 for up in up_ns) / len(up_ns) / mean**2
    return sqrt((1 + cv * cv) * (1 + square) - 1)


def _lines(scenario: Scenario, publish: int, k: int) -> tuple[float, float]:
    """Mean and variance of the lines of one message at one of the topic's servers."""
    _, more = divmod(publish * scenario.repeat, k)
    mean, extra = publish * scenario.repeat / k, more / k
    kept, doubled = 1 - scenario.loss_in, scenario.duplicate
    of_line = kept * (1 + doubled)
    variance_of_line = kept * (1 + 3 * doubled) - of_line * of_line
    return mean * of_line, extra * (1 - extra) * of_line * of_line + mean * variance_of_line
