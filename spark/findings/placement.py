"""The uneven load of servers when each topic lies on random ones: the CV by chance alone. Pure.

A topic lies on h random servers of C. Over all placements, a server's load has mean and variance

    mean = sum over topics of (h / C) e        variance = sum of (h / C) (v + e^2 (1 - h / C))

where e and v are mean and variance of the load that one of the h servers gets from the topic. With n messages
and s subscribers:

    lines     e = n a           v = n va
    leases    e = s b           v = s b (1 - b)                                 b = subscribe / h
    copies    e = n a s b       v = (n a)^2 s b (1 - b) + (s b)^2 n va + n va s b (1 - b)

a and va are mean and variance of the number of lines of one message at one of the h servers. Each message
goes to `publish` random ones of them; its repetitions go to the others first; a line may be lost or doubled
on its way. The ring gives some servers a little more of all topics than others, a CV of 3 %. This is left
out: with the few topics of a run, random placement matters much more.

Servers that were down for part of the load got less in proportion. With u, the CV of the time that servers
were up, as captured: CV^2 = (1 + placement^2)(1 + u^2) - 1.

The CV of a single run is itself uncertain, by about CV / sqrt(2 C).
"""

from math import sqrt
from typing import NamedTuple, Self

from kcast.loadtest.results.prediction import draws, servers_per_topic
from kcast.loadtest.scenario import Scenario

RECEIVED, FORWARDED, LEASES = "received lines", "forwarded copies", "leases"


class Topics(NamedTuple):
    """Sums over topics of products of n (messages) and s (subscribers); `nns` is the sum of n n s."""

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
        """Adds up (messages, subscribers) of each topic."""
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
    """The CV of lines, copies and leases, by their names.

    None without load, where clients know different servers, or where they avoid dead ones.
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
    """The CV if servers were up for `up_ns`; `cv` itself where these times are not known."""
    mean = sum(up_ns) / len(up_ns) if up_ns else 0.0
    if cv is None or not mean:
        return cv
    square = sum((up - mean) ** 2 for up in up_ns) / len(up_ns) / mean**2
    return sqrt((1 + cv * cv) * (1 + square) - 1)


def _lines(scenario: Scenario, publish: int, k: int) -> tuple[float, float]:
    """Mean and variance of the number of lines of one message at one of the topic's servers."""
    _, more = divmod(publish * scenario.repeat, k)
    mean, extra = publish * scenario.repeat / k, more / k
    kept, doubled = 1 - scenario.loss_in, scenario.duplicate
    of_line = kept * (1 + doubled)
    variance_of_line = kept * (1 + 3 * doubled) - of_line * of_line
    return mean * of_line, extra * (1 - extra) * of_line * of_line + mean * variance_of_line
