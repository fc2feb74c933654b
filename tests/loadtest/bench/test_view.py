"""loadtest/bench/view.py: one line on a terminal, few lines in a log."""

import io

import pytest

from kcast.loadtest.bench import view
from kcast.loadtest.bench.course import Progress
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.view import ProgressLine, counted, figures

PUBSUB = BenchPlan(kind="pubsub", count=20_000, subscribers=2)


@pytest.mark.parametrize(
    ("plan", "progress", "text"),
    [
        (PUBSUB, Progress(1200, 0, 2390, 0, 0.51), "0.5 s, 1,200 of 20,000 published, 2,390 delivered"),
        (
            PUBSUB,
            Progress(1200, 10, 2350, 25, 0.5),
            "0.5 s, 1,200 of 20,000 published, 10 without a receipt, 2,350 delivered, 5 missing",
        ),
        (BenchPlan(kind="pub", duration_s=1.0), Progress(7, 0, 0, 0, -0.1), "0.0 s, 7 published"),
        (BenchPlan(kind="sub"), Progress(0, 0, 0, 0, 3.0), "3.0 s, nothing has come yet"),
        (BenchPlan(kind="sub"), Progress(0, 0, 9, 2, 3.0), "3.0 s, 9 delivered, 2 missing"),
    ],
)
def test_figures(plan: BenchPlan, progress: Progress, text: str) -> None:
    assert figures(plan, progress) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_changes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    line = ProgressLine(PUBSUB, stream)
    for published in (1, 1, 2):
        line.progress(Progress(published, 0, 0, 0, 1.0))
    line.clear()
    line.clear()
    assert stream.getvalue().split("\r\x1b[K") == [
        "",
        "1.0 s, 1 of 20,000 published, 0 delivered",
        "1.0 s, 2 of 20,000 published, 0 delivered",
        "",
    ]


def test_a_line_is_never_wider_than_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    ProgressLine(PUBSUB, stream).progress(Progress(10**30, 10**30, 10**30, 0, 1.0))
    assert len(stream.getvalue().removeprefix("\r\x1b[K")) == 79


def test_in_a_log_there_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(view, "monotonic", lambda: now)
    line = ProgressLine(PUBSUB, io.StringIO())
    for now in (100.0, 104.9, 105.0, 105.1, 109.9, 110.0):
        line.progress(Progress(1, 0, 0, 0, now - 100))
    line.clear()
    assert [text.split(",")[0] for text in capsys.readouterr().err.splitlines()] == [
        "kcast bench: 5.0 s",
        "kcast bench: 10.0 s",
    ]


def test_numbers_of_things() -> None:
    assert [counted(number, "message") for number in (0, 1, 20_000)] == [
        "0 messages",
        "1 message",
        "20,000 messages",
    ]
