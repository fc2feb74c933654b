"""loadtest/bench/course.py: when subscribers have nothing more to wait for. The clock is moved by hand."""

from typing import Any

from kcast.loadtest.bench.course import QUIET_REPORTS, Course
from kcast.loadtest.bench.plan import BenchPlan

PUB, SUB, OTHER = 2, 0, 1  # workers
WAIT_S = 60.0


def course(**given: Any) -> Course:
    plan = BenchPlan(**{"kind": "pubsub", "subscribers": 2, **given})
    publishing = {PUB} if plan.publishes else set()
    return Course(plan, publishing, {SUB, OTHER}, 100.0, WAIT_S)


def progress(attempted: int = 0, delivered: int = 0, missing: int = 0, unheard: int = 0) -> dict[str, Any]:
    return {
        "is": "progress",
        "attempted": attempted,
        "unheard": unheard,
        "delivered": delivered,
        "least": delivered,
        "missing": missing,
    }


FIGURES = {"is": "figures"}


def test_progress_is_that_of_all_workers() -> None:
    made = course()
    made.take(PUB, progress(attempted=10, unheard=1), 101.0)
    made.take(SUB, progress(delivered=4, missing=2), 101.0)
    made.take(SUB, progress(delivered=7, missing=1), 102.0)
    made.take(OTHER, progress(delivered=8), 102.0)
    assert made.progress(103.0) == (10, 1, 15, 1, 3.0)


def test_nobody_stops_while_there_is_a_publisher() -> None:
    made = course()
    made.take(SUB, progress(delivered=10), 101.0)
    assert made.to_stop(1000.0) == set()


def test_a_subscriber_with_all_messages_stops_at_once() -> None:
    made = course()
    made.take(PUB, progress(attempted=10), 101.0)
    made.take(SUB, progress(delivered=10), 101.0)
    made.take(OTHER, progress(delivered=9), 102.0)
    made.take(PUB, FIGURES, 102.0)
    assert made.to_stop(102.0) == {SUB}
    assert not made.is_done
    made.take(SUB, FIGURES, 102.1)
    assert made.to_stop(102.1) == set()
    made.take(OTHER, progress(delivered=10), 102.2)
    assert made.to_stop(102.2) == {OTHER}
    made.take(OTHER, FIGURES, 103.0)
    assert made.is_done


def test_one_that_reports_again_and_again_that_nothing_comes_stops() -> None:
    made = course()
    made.take(PUB, progress(attempted=10), 101.0)
    made.take(SUB, progress(delivered=9), 102.0)
    made.take(PUB, FIGURES, 102.0)
    for _ in range(QUIET_REPORTS):
        assert made.to_stop(102.0) == set()
        made.take(SUB, progress(delivered=9), 102.0)
    assert made.to_stop(102.0) == {SUB}
    made.take(SUB, progress(delivered=10), 102.0)
    made.take(PUB, progress(attempted=11), 102.0)
    assert made.to_stop(102.0) == set()


def test_one_that_is_too_busy_to_report_is_awaited() -> None:
    made = course()
    made.take(PUB, progress(attempted=10), 101.0)
    made.take(SUB, progress(delivered=9), 102.0)
    made.take(PUB, FIGURES, 102.0)
    assert made.to_stop(1000.0) == set()


def quiet(made: Course, *workers: int, delivered: int) -> None:
    for worker in workers:
        for _ in range(QUIET_REPORTS):
            made.take(worker, progress(delivered=delivered), 150.0)


def test_publishers_elsewhere_are_awaited_as_long_as_was_asked_for() -> None:
    made = course(kind="sub")
    quiet(made, SUB, OTHER, delivered=0)
    assert made.to_stop(100.0 + WAIT_S - 0.1) == set()
    assert made.to_stop(100.0 + WAIT_S) == {SUB, OTHER}


def test_after_the_first_message_quiet_ends_it() -> None:
    made = course(kind="sub")
    made.take(SUB, progress(delivered=1), 150.0)
    assert made.to_stop(1000.0) == set()
    quiet(made, SUB, OTHER, delivered=1)
    assert made.to_stop(150.0) == {SUB}  # the other one has had its first message meanwhile
    quiet(made, OTHER, delivered=1)
    assert made.to_stop(150.0) == {SUB, OTHER}


def test_a_duration_counts_from_the_first_message_and_quiet_does_not_end_it() -> None:
    made = course(kind="sub", duration_s=10.0)
    made.take(SUB, progress(delivered=1), 150.0)
    quiet(made, SUB, OTHER, delivered=1)
    assert made.to_stop(159.9) == set()
    assert made.to_stop(160.0) == {SUB, OTHER}


def test_an_early_end_does_not_wait_for_others() -> None:
    made = course(kind="sub", duration_s=10.0)
    made.end_early()
    assert made.to_stop(100.0) == {SUB, OTHER}


def test_an_early_end_still_waits_for_what_was_published() -> None:
    made = course()
    made.take(PUB, progress(attempted=10), 101.0)
    made.take(SUB, progress(delivered=9), 101.0)
    assert made.to_stop(101.1) == set()
    made.end_early()
    assert made.to_stop(101.1) == {PUB}
    made.take(PUB, FIGURES, 101.2)
    made.take(SUB, progress(delivered=10), 101.2)
    assert made.to_stop(101.3) == {SUB}
