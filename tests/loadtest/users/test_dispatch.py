"""loadtest/users/dispatch.py: all users of a fixed test, once each, publishers apart where there is room."""

from types import SimpleNamespace
from typing import Any

from kcast.loadtest.users.dispatch import APART_FROM, FixedDispatcher


def user_class(kind: str, count: int) -> Any:
    return type(kind, (), {"kind": kind, "fixed_count": count})


CLASSES = [user_class("Publisher", 4), user_class("Subscriber", 21), user_class("Mixed", 3)]


def dispatched(workers: int, classes: list[Any] = CLASSES) -> dict[str, dict[str, int]]:
    dispatcher = FixedDispatcher([SimpleNamespace(id=f"w{number}") for number in range(workers)], classes)
    dispatcher.new_dispatch(28, 1.0)
    (step,) = dispatcher
    return step


def test_all_users_are_started_once() -> None:
    for workers in [1, 2, 3, 7]:
        step = dispatched(workers)
        assert len(step) == workers
        for each in CLASSES:
            assert sum(counts[each.__name__] for counts in step.values()) == each.fixed_count


def test_few_workers_share_everything_evenly() -> None:
    for workers in [1, 2]:
        for each in CLASSES:
            shares = [counts[each.__name__] for counts in dispatched(workers).values()]
            assert max(shares) - min(shares) <= 1


def test_of_several_workers_the_first_has_the_publishers_alone() -> None:
    for workers in [APART_FROM, APART_FROM + 2]:
        first, *others = dispatched(workers).values()
        assert first == {"Publisher": 4, "Subscriber": 0, "Mixed": 0}
        totals = [sum(counts.values()) for counts in others]
        assert max(totals) - min(totals) <= 1
        assert sum(totals) == 24


def test_where_all_publish_all_workers_do() -> None:
    shares = [counts["Publisher"] for counts in dispatched(4, [CLASSES[0]]).values()]
    assert shares == [1, 1, 1, 1]


def test_users_of_a_worker_that_ends_are_not_moved() -> None:
    nodes = [SimpleNamespace(id=name) for name in "abc"]
    dispatcher = FixedDispatcher(nodes, CLASSES)
    dispatcher.new_dispatch(28, 1.0)
    (before,) = dispatcher
    dispatcher.remove_worker(nodes[1])
    dispatcher.add_worker(SimpleNamespace(id="d"))
    dispatcher.new_dispatch(28, 1.0)
    (after,) = dispatcher
    assert after == {"a": before["a"], "c": before["c"]}
