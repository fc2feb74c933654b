"""The bars that figures are held to, as ratios of two subjects of one run. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tests.benchmarks.peers.kinds import BEFORE, BETTER_OF, FORWARDER, KCAST, NATIVE, PYTHON
from tests.benchmarks.peers.results import Run


@dataclass(frozen=True)
class Bar:
    """A ratio that must not be above, or, with `is_least`, below a limit.

    It is of a figure of `subject` to the best of `others`, at a load of a row.
    """

    row: str
    load: str
    figure: str
    subject: str
    others: Sequence[str]
    limit: float
    is_least: bool = False


@dataclass(frozen=True)
class Judged:
    """A bar, and the ratios of all rounds; there are none where one of the two was not measured."""

    bar: Bar
    ratios: Sequence[float]

    @property
    def ratio(self) -> float | None:
        """The median of the ratios."""
        return median(self.ratios) if self.ratios else None

    @property
    def is_met(self) -> bool | None:
        """Whether the ratio is on the right side; None where there is none."""
        if self.ratio is None:
            return None
        return self.ratio >= self.bar.limit if self.bar.is_least else self.ratio <= self.bar.limit


def _server_bars() -> Iterator[Bar]:
    for row, native, python in (
        ("1-to-1", 0.35, 0.5),
        ("1-to-100", 0.12, 0.12),
        ("fan-out-10", 0.3, 1.0),
        ("fan-out-1", 0.4, 0.85),
    ):
        yield Bar(row, "1", "server_us", NATIVE, BETTER_OF, native)
        yield Bar(row, "1", "server_us", PYTHON, BETTER_OF, python)
    for subject in KCAST:
        yield Bar("fan-out-1", "3", "copies_per_s", subject, (f"kcast {BEFORE}",), 2.0, is_least=True)
        yield Bar("single", "0.1", "server_us", subject, (FORWARDER.name,), 1.1)
        yield Bar("single", "1.5", "server_us", subject, (FORWARDER.name,), 0.67)


BARS = (*_server_bars(),)


def judge(run: Run, row: str) -> list[Judged]:
    """Returns the bars of a row with what was measured."""
    if row not in run.rows:
        return []
    return [
        Judged(bar, run.rows[row].ratios(bar.load, bar.figure, bar.subject, bar.others))
        for bar in BARS
        if bar.row == row
    ]
