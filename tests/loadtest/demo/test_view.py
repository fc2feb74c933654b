"""loadtest/demo/view.py: the table of a demo."""

from kcast.loadtest.demo.tally import Phase, PhaseResult
from kcast.loadtest.demo.view import table

JUDGED = PhaseResult(
    *(Phase.DOWN, 1, 4, 1_000, 12_664, 8_637, 0, 0, (0.634321, 0.726234), 0.6962, 8_230, 9_390)
)
PERFECT = PhaseResult(
    *(Phase.RECOVERED, 3, 4, 99, 99_999, 99_999, 9, 0, (0.99983, 1), 0.99986, 99_990, 99_999)
)
BETWEEN = PhaseResult(*(Phase.RECOVERING, 1, 4, 1_000, 1_261, 1_261, 0, 0, (0.9178, 1), None, None, None))


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
