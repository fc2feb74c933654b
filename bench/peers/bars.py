"""The bars that figures are held to, as ratios of two subjects of one run. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.peers.client_rows import NATS_PY, PACED
from bench.peers.kinds import BEFORE, BETTER_OF, FORWARDER, KCAST, NATIVE, PYTHON
from bench.peers.programs.client_load import SATURATED
from bench.peers.results import Run


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
        for row in ("single", "single-256"):
            yield Bar(row, "0.1", "server_us", subject, (FORWARDER.name,), 1.1)
            yield Bar(row, "1.5", "server_us", subject, (FORWARDER.name,), 0.67)


def _client_bars() -> Iterator[Bar]:
    for row, native, python in (("client-k1", 4.0, 2.5), ("client-k5", 3.0, 2.0)):
        yield _messages(row, f"{NATIVE}, batches", native)
        yield _messages(row, f"{PYTHON}, batches", python)
    for kcast, faster, slower in ((NATIVE, 1.5, 1.0), (PYTHON, 1.3, 1.25)):
        yield _messages("client-k1", f"{kcast}, no confirm", faster)
        yield _messages("client-k1", f"{kcast}, confirm", 1.0)
        for figure in ("p50_us", "p99_us"):
            yield Bar("client-k1", PACED, figure, f"{kcast}, no confirm", (NATS_PY,), slower)
            yield Bar("client-k1", PACED, figure, f"{kcast}, confirm", (NATS_PY,), 1.4)


def _messages(row: str, subject: str, least: float) -> Bar:
    return Bar(row, SATURATED, "messages_per_s", subject, (NATS_PY,), least, is_least=True)


BARS = (*_server_bars(), *_client_bars())


def judge(run: Run, row: str) -> list[Judged]:
    """Returns the bars of a row with what was measured."""
    if row not in run.rows:
        return []
    return [
        Judged(bar, run.rows[row].ratios(bar.load, bar.figure, bar.subject, bar.others))
        for bar in BARS
        if bar.row == row
    ]
