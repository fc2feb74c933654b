"""How often leases are renewed, where that is set: client/session/session.py against a real server core."""

from itertools import pairwise
from math import inf, nan
from random import Random

import pytest

from kcast.client.cluster import ServerEntry, lab
from kcast.client.core import ClientCore
from kcast.client.driving.engine import Engine
from kcast.client.session.session import Session
from kcast.client.session.whereabouts import FAMILIES
from kcast.hashring.policy import Policy
from tests.support.session_and_server import SERVER, SessionAndServer


def line_of(renewals_per_ttl: float, ttl_s: int = 60) -> SessionAndServer:
    line = SessionAndServer(ttl_s=ttl_s)
    line.session = Session(ServerEntry((SERVER,), "h"), Random(1), FAMILIES, renewals_per_ttl)
    return line


@pytest.mark.parametrize(
    ("renewals_per_ttl", "ttl_s", "interval_s"),
    [(1.5, 30, 20), (2, 30, 15), (2, 600, 25), (6, 60, 10), (60, 60, 1)],
)
def test_leases_are_renewed_so_often_while_a_promise_lasts(
    renewals_per_ttl: float, ttl_s: int, interval_s: float
) -> None:
    line = line_of(renewals_per_ttl, ttl_s)
    line.session.want(b"t", line.now)
    line.run(100 * interval_s)
    assert line.session.renewal_interval_s == interval_s
    steps = [after - before for before, after in pairwise(line.times(b"%!"))]
    assert len(steps) >= 99
    assert interval_s * 0.9 - 1e-6 <= min(steps) <= max(steps) <= interval_s + 1e-6
    assert line.server.counts["leases_expired"] == 0


def test_one_renewal_comes_in_the_last_moment() -> None:
    line = line_of(1, ttl_s=20)
    line.session.want(b"t", line.now)
    line.run(1000)
    steps = [after - before for before, after in pairwise(line.times(b"%!"))]
    assert 18 - 1e-6 <= min(steps) <= max(steps) <= 20 + 1e-6
    assert line.session.is_leased(b"t")


@pytest.mark.parametrize("renewals_per_ttl", [1, 3, 20])
def test_bare_lines_do_not_hang_on_how_often_leases_are_renewed(renewals_per_ttl: float) -> None:
    """They may go as long as the server surely still forwards: it drains for a time of its own."""
    line = line_of(renewals_per_ttl, ttl_s=30)
    for number in range(200):
        assert line.session.publish(b"t %d\n" % number, number, False)
        line.run(0.5)
    verbs = line.verbs()
    assert verbs.startswith("?!")
    assert verbs.count("!") == 6, "the publish lease is renewed when a third of its 30 s is left"
    assert line.server.counts["messages_received"] == 200


@pytest.mark.parametrize("renewals_per_ttl", [0, 0.99, -3, inf, nan])
def test_less_than_one_renewal_is_refused(renewals_per_ttl: float) -> None:
    cluster = lab([SERVER], Policy(1, 1, 1))
    with pytest.raises(ValueError, match="give 1 or more"):
        ClientCore(cluster, Random(1), renewals_per_ttl=renewals_per_ttl)


def test_clients_hand_it_on_to_their_sessions() -> None:
    engine = Engine(lab([SERVER], Policy(1, 1, 1)), usage="", renewals_per_ttl=7)
    engine.core.subscribe(b"t", 0.0)
    (session,) = engine.core.sessions.all()
    session.ttl_s = 70.0
    assert session.renewal_interval_s == 10.0
