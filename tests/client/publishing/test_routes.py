"""client/publishing/routes.py: a topic's servers, and the draws among them. PROTOCOL §8.5."""

from collections import Counter
from random import Random

import pytest

from kcast.client.cluster import Cluster, ServerEntry, lab
from kcast.client.clusters.views import Views
from kcast.client.publishing import routes
from kcast.client.publishing.routes import Route, Routes
from kcast.client.session.liveness import Sign
from kcast.client.session.session import Session
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address
from kcast.pubsub.wire import TopicError

NOW = 1000.0


def address(number: int) -> Address:
    return f"192.0.2.{number}", 7400


def sessions(count: int) -> tuple[Session, ...]:
    return tuple([Session(ServerEntry((address(n),), f"h{n}"), Random(n)) for n in range(1, count + 1)])


def route(candidates: tuple[Session, ...], count: int, **options: bool) -> Route:
    return Route(b"t", b"t", candidates, count, (), NOW, **{"avoid_dead": True, **options})


def lose(session: Session) -> None:
    for sign in (Sign.SILENCE, Sign.THIRD_SILENCE):
        session._see(sign)


def drawn(of: Route, times: int = 3000) -> Counter[frozenset[str]]:
    rng = Random(1)
    return Counter(frozenset(each.name for each in of.draw(rng)) for _ in range(times))


@pytest.mark.parametrize(("count", "subsets"), [(1, 5), (3, 10), (4, 5)])
def test_each_subset_of_equals_is_as_likely(count: int, subsets: int) -> None:
    found = drawn(route(sessions(5), count))
    assert len(found) == subsets and {len(each) for each in found} == {count}
    mean = 3000 / subsets
    assert all(0.8 * mean < times < 1.2 * mean for times in found.values()), found


@pytest.mark.parametrize("count", [5, 6])
def test_where_all_are_used_nothing_is_drawn(count: int) -> None:
    candidates = sessions(5)
    rng = Random(1)
    state = rng.getstate()
    assert route(candidates, count).draw(rng) == candidates
    assert rng.getstate() == state


def test_too_many_subsets_to_list_are_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_SUBSETS_MAX", 9)
    assert len(drawn(route(sessions(5), 3))) == 10


def test_those_that_rank_best_are_sure_and_the_rest_is_drawn_of_equals() -> None:
    candidates = sessions(5)
    first, second, *others = candidates
    for each in others:
        each.warm_at = NOW + 5  # it has just come back
    found = drawn(route(candidates, 3))
    assert set(found) == {frozenset((first.name, second.name, each.name)) for each in others}


def test_the_lost_are_drawn_only_where_nobody_else_is_left_or_they_are_not_avoided() -> None:
    candidates = sessions(5)
    for each in candidates[:3]:
        lose(each)
    live = {each.name for each in candidates[3:]}
    assert set(drawn(route(candidates, 2))) == {frozenset(live)}
    assert all(live < each for each in drawn(route(candidates, 3)))
    assert len(drawn(route(candidates, 3, avoid_dead=False))) == 10


def made(cluster: Cluster) -> Routes:
    known: dict[str, Session] = {}

    def session_of(server: ServerEntry, now: float) -> Session:
        return known.setdefault(server.name, Session(server, Random(1)))

    return Routes(Views(cluster), session_of, avoid_dead=True)


def test_a_route_is_kept_until_a_server_ranks_better_or_all_are_forgotten() -> None:
    found = made(lab([address(n) for n in range(1, 6)], Policy(5, 3, 5)))
    route = found.of(b"t", NOW)
    assert found.of(b"t", NOW + 1e6) is route and found.of(b"u", NOW) is not route
    assert route.wire_topic == b"t" and len(route.candidates) == 5
    route.candidates[0].warm_at = NOW + 5
    found.clear()
    cold = found.of(b"t", NOW)
    assert cold is not route and cold.good_until == NOW + 5
    assert found.of(b"t", NOW + 4.9) is cold
    warm = found.of(b"t", NOW + 5)
    assert warm is not cold and warm.good_until > NOW + 1e6


def test_routes_are_bounded_and_those_of_very_many_servers_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "ROUTES_MAX", 3)
    found = made(lab([address(n) for n in range(1, 4)], Policy(3, 2, 3)))
    for number in range(10):
        found.of(b"%d" % number, NOW)
        assert len(found._routes) <= 3
    monkeypatch.setattr(routes, "CANDIDATES_MAX", 2)
    assert found.of(b"t", NOW) is not found.of(b"t", NOW)


def test_kcasts_own_topics_are_no_users(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(lab([address(1)], Policy(1, 1, 1)))
    assert found.make(b"\0t", NOW, is_own=True).wire_topic == b"%00t"
    with pytest.raises(TopicError):
        found.of(b"\0t", NOW)
