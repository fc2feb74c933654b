"""loadtest/demo/view.py: the table of a demo, and how it goes on."""

import io

import pytest

from kcast.loadtest.demo.plan import DemoPlan, K
from kcast.loadtest.demo.tally import Phase, PhaseResult, Tally
from kcast.loadtest.demo.view import Progress, table

JUDGED = PhaseResult(
    *(Phase.DOWN, 1, 4, 1_000, 12_664, 8_637, 0, 0, (0.634321, 0.726234), 0.6962, 8_230, 9_390)
)
PERFECT = PhaseResult(
    *(Phase.RECOVERED, 3, 4, 99, 99_999, 99_999, 9, 0, (0.99983, 1), 0.99986, 99_990, 99_999)
)
BETWEEN = PhaseResult(*(Phase.RECOVERING, 1, 4, 1_000, 1_261, 1_261, 0, 0, (0.9178, 1)))


def test_the_table_fits_eighty_columns_and_parts_the_policies() -> None:
    lines = table([JUDGED, BETWEEN, JUDGED, PERFECT]).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[:2] for line in lines[-5:]] == [
        ["5/1/5", "4"],
        ["5/1/5", "recovering"],
        ["5/1/5", "4"],
        [],
        ["5/3/5", "recovered"],
    ]
    assert lines[-5].split()[3:5] == ["12,664", "68.20"]
    assert lines[-4].split()[-3:] == ["-", "-", "-"], "it is not judged"
    assert lines[-1].endswith("  ok")


def test_what_disagrees_stands_out() -> None:
    bad = PhaseResult(Phase.DOWN, 2, 4, 10, 4000, 3000, 12, 0, (0.7, 0.8), 0.9, 3500, 3700)
    line = table([bad]).splitlines()[-1]
    assert line.endswith(" 87.50-92.50  NOT") and " 4 down " in line and " 70.00-80.00 " in line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_on_a_terminal_say_what_lines_say_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream in (Terminal(), io.StringIO()):
        with Progress(DemoPlan(), stream) as progress:
            progress.say("servers started")
            progress.begin(Phase.DOWN, 500)
            progress.show(Phase.DOWN, 250, Tally([], K))
            progress.end(Phase.DOWN, Tally([], K))
        shown = stream.getvalue()
        assert "servers started" in shown and "4 down" in shown and "K'=3" in shown
        assert ("\x1b[" in shown) == stream.isatty()
