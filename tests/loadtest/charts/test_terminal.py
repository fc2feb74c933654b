"""loadtest/charts/terminal.py: who gets bars, and who lines."""

import io

import pytest

from kcast.loadtest.charts.terminal import can_redraw


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "expected"), [("xterm", True), ("", True), (None, True), ("dumb", False), ("DUMB", False)]
)
def test_a_terminal_that_calls_itself_dumb_is_not_drawn_over(
    term: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert can_redraw(Terminal()) is expected
    assert not can_redraw(io.StringIO())
