"""Whether draws are uniform, fresh and independent, and topics placed at random.

Delivery can agree with theory while publishers always take the same servers: then one topic is lost more
often than another, and the mean stays. So draws are tested for themselves, by how many servers two of them
have in common. Two random m-subsets of k have H ~ Hypergeometric(k, m, m) in common, so with

    mean m^2 / k        variance v = m^2 (k - m)^2 / (k^2 (k - 1))

Among N draws of a group, n_s of which take server s, the N (N - 1) ordered pairs of draws have the sum of
n_s^2, less N m, in common. Draws that prefer some servers have more in common. Whoever takes turns has less
in common with the next draw. The numbers of different pairs are uncorrelated, which gives the variance, and
triples of draws the skewness: it is that of a sum of chi-squared variables, as in Pearson's test (1900), of
which this is the form for draws without replacement.

The sums `draws` have a row for each cell and `what`, with whole numbers:

    what          a draw is                                            groups
    placement     the k servers of a topic, of all                     all topics together
    topic         the servers that a message was sent to, of its k     messages of one topic
    publisher     the same                                             messages of one publisher and topic
    next          the same; only pairs of a message and the next       messages of one publisher and topic
    subscriber    the servers a subscriber asked for a lease, of k     subscribers of one topic

    size              servers of a draw (m); draws of any other size are left out
    draws             sum over groups of N, their number of draws; of `next`, the number of pairs
    squares, cubes    sums over groups of N^2 and N^3; of `next`, 0
    common            sum over groups and servers of n_s^2; of `next`, sum over pairs of the servers
                      that both have
    others            draws of another size, which were left out

Sendings count by their servers, whatever became of them (pub_tx but `injected` = DUPLICATE). "The next" is by
(t_intended_ns, msg_id), among messages of one publisher whose numbers are in one block of 64: so parts of a
capture tell the same as the whole. The servers of a topic are those of its sendings and lease requests
(subscribe). Where the sums have no such name, there is no table.
"""

from collections.abc import Mapping, Sequence
from statistics import NormalDist

from kcast.hashring.model import hypergeometric
from kcast.loadtest.results.prediction import draws as drawn_servers
from kcast.loadtest.results.prediction import servers_per_topic
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.cells import Cell
from kcast.spark.findings.findings import Row
from kcast.spark.findings.plan_laws import LEVEL
from kcast.spark.findings.skewed import Skewed
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY, NOT_REFUTED

PLACEMENT, TOPIC, PUBLISHER, NEXT, SUBSCRIBER = "placement", "topic", "publisher", "next", "subscriber"

PAIRS_MIN = 20
"""Fewer pairs of draws tell nothing: then randomness is not refuted."""


def tables(cells: Sequence[Cell], sums: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Returns the table `draws`, from the sums of that name; without these no table."""
    if "draws" not in sums:
        return {}
    scenarios = {cell.number: cell.scenario for cell in cells}
    rows = [_row(scenarios[row["cell"]], row) for row in sums["draws"]]
    tested = sum(row["z"] is not None for row in rows)
    for row in rows:
        z = row["z"]
        # Too little in common is a fault of the next draw only: else small runs are often perfectly even.
        if z is not None and NormalDist().cdf(-(abs(z) if row["what"] == NEXT else z)) < LEVEL / tested / 2:
            row["verdict"] = DISAGREES
    rows.sort(key=lambda row: (row["cell"], row["what"]))
    return {"draws": rows}


def _row(scenario: Scenario, sums: Row) -> Row:
    what, size, count = sums["what"], int(sums["size"]), int(sums["draws"])
    pairs, common = count, int(sums["common"])
    if what != NEXT:  # each draw has all its own servers in common with itself
        pairs, common = int(sums["squares"]) - count, common - count * size
    population = _population(scenario, what)
    law = None
    if population is not None and 0 < size < population and pairs:
        triples = int(sums["cubes"]) - 3 * int(sums["squares"]) + 2 * count if what != NEXT else 0
        law = overlap_law(size, population, pairs, triples, ordered=what != NEXT)
    return {
        "cell": sums["cell"],
        "what": what,
        "draws": count,
        "others": int(sums["others"]),
        "common": common / pairs if pairs else None,
        "theory": None if law is None else law.mean / pairs,
        "z": None if law is None else _score(law, common),
        "verdict": NO_THEORY if law is None else NOT_REFUTED if pairs < PAIRS_MIN else AGREES,
    }


def _score(law: Skewed, common: int) -> float:
    """The z-score; below the mean plain standard deviations, since sums of few draws have a least value."""
    return law.score(common) if common > law.mean else law.standard(common)


def overlap_law(size: int, population: int, pairs: int, triples: int, *, ordered: bool) -> Skewed:
    """The distribution of the number of servers that pairs of random draws have in common.

    With `ordered`, each pair counts twice, and `triples` is the number of ordered triples of a group's draws.
    """
    m, k = size, population
    mean = m * m / k
    least, pmf = hypergeometric(k, m, m)
    variance, third = (sum(p * (h - mean) ** power for h, p in enumerate(pmf, least)) for power in (2, 3))
    if not ordered:
        return Skewed(pairs * mean, pairs * variance, pairs * third)
    # Of three draws x, y, z the product of their three overlaps has the mean tr C^3, where C, the covariance
    # of a draw's indicators, is c (I - J / k).
    of_triple = (m * (k - m) / (k * (k - 1))) ** 3 * (k - 1)
    return Skewed(pairs * mean, 2 * pairs * variance, 4 * pairs * third + 8 * triples * of_triple)


def _population(scenario: Scenario, what: str) -> int | None:
    """The number of servers that are drawn from; None where it differs from client to client."""
    if scenario.known < 1 or (scenario.avoid_dead and scenario.outages != "none"):
        return None
    if what == PLACEMENT:
        return scenario.servers
    return servers_per_topic(scenario)


def size_of(scenario: Scenario, what: str) -> int:
    """Returns how many servers a draw has: the sums count those of this size."""
    k, (publish, subscribe) = servers_per_topic(scenario), drawn_servers(scenario)
    if what == PLACEMENT:
        return k
    # A message that is sent again goes first to those that have not had it.
    return subscribe if what == SUBSCRIBER else min(k, publish * scenario.repeat)
