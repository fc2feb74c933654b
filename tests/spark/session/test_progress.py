import io
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kcast.spark.session import progress
from kcast.spark.session.progress import StepProgress, Tasks, active_tasks
from tests.support.waiting import wait_until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def fake_spark(*stages: tuple[int, int] | None) -> Any:
    """A session that works on stages (tasks done, all tasks); None is a stage that has just ended."""
    info = [
        None if each is None else SimpleNamespace(numCompletedTasks=each[0], numTasks=each[1])
        for each in stages
    ]
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(range(len(info))), getStageInfo=info.__getitem__)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "POLL_S", 0.01)


def test_tasks_of_all_active_stages_are_added_up() -> None:
    assert active_tasks(fake_spark((3, 10), None, (1, 4))) == Tasks(4, 14)
    assert active_tasks(fake_spark()) == Tasks(0, 0)


def test_a_pipe_gets_a_line_for_each_step() -> None:
    stream = io.StringIO()
    with StepProgress(stream) as tell:
        tell("starting Spark")
        tell.watch(fake_spark((3, 10)))
        tell("latency")
        time.sleep(0.1)
    lines = stream.getvalue().splitlines()
    assert [line.partition(" s  ")[2] for line in lines] == ["starting Spark", "latency"]


def test_a_pipe_gets_a_line_now_and_then_while_a_step_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    stream = io.StringIO()
    with StepProgress(stream) as tell:
        tell("latency")
        tell.watch(fake_spark((1_003, 2_010)))
        wait_until(lambda: "s  latency: 1,003 of 2,010 tasks\n" in stream.getvalue())


def test_a_terminal_gets_one_line_that_goes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with StepProgress(stream) as tell:
        tell("latency [b]")
        tell.watch(fake_spark((3, 10)))
        wait_until(lambda: "3 of 10 tasks" in stream.getvalue())
        tell.watch(fake_spark())
        tell("balance")
        wait_until(lambda: "balance" in stream.getvalue())
    assert "latency [b]" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K"), "the line was taken away"


def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with StepProgress(stream) as tell:
        tell("balance")
    assert stream.getvalue() == "   0.0 s  balance\n"


def test_nothing_is_told_of_a_session_after_its_end() -> None:
    asked = 0

    def ask() -> Any:
        nonlocal asked
        asked += 1
        raise ConnectionError("Java has ended")

    with StepProgress(io.StringIO()) as tell:
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=ask))
        tell.watch(spark)
        time.sleep(0.1)
        tell.unwatch()
        tell.unwatch()
    assert asked == 1
