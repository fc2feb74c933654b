"""What a run has found, as it is kept in a JSON file. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

FORMAT = 1

Figures = dict[str, float | None]
"""Of one round, by name: times end in `_us`, rates in `per_s`. None is what could not be told."""


@dataclass
class Subject:
    """A server or a client in a row: its rounds by load.

    `highest_per_s` are the copies a second that it sustains.
    """

    loads: dict[str, list[Figures]] = field(default_factory=dict)
    highest_per_s: float | None = None
    notes: list[str] = field(default_factory=list)

    def median(self, load: str, figure: str) -> float | None:
        """Returns the median of the rounds that could tell the figure; None if none could."""
        return middle(figures.get(figure) for figures in self.loads.get(load, ()))


@dataclass
class RowResult:
    """A row: what was measured of each subject.

    Ratios are made with the best of `references`. `tree` is this project's commit. `unit_per_s` is the rate
    that is the load 1, in copies a second. `skipped` says of whom there are no figures, and why.
    """

    title: str
    references: list[str]
    tree: str = ""
    unit_per_s: float | None = None
    subjects: dict[str, Subject] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def loads(self) -> list[str]:
        """All loads of the row, in order."""
        return list(dict.fromkeys(load for subject in self.subjects.values() for load in subject.loads))

    def ratios(self, load: str, figure: str, subject: str, others: Iterable[str]) -> list[float]:
        """Returns for each round the subject's figure, divided by the best of the others' in that round.

        The best time is the shortest, the best rate the highest. Rounds that lack a figure are left out.
        """
        best = min if figure.endswith("_us") else max
        mine = self._rounds(load, figure, subject)
        found = []
        for number, value in enumerate(mine):
            there = [
                other
                for name in others
                for other in self._rounds(load, figure, name)[number : number + 1]
                if other
            ]
            if value is not None and there:
                found.append(value / best(there))
        return found

    def _rounds(self, load: str, figure: str, subject: str) -> Sequence[float | None]:
        found = self.subjects.get(subject)
        return [figures.get(figure) for figures in found.loads.get(load, ())] if found else ()


@dataclass
class Run:
    """All rows of a run, and where and how they were measured."""

    machine: dict[str, str]
    command: str = ""
    method: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    rows: dict[str, RowResult] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns it as what JSON can hold, its numbers to five digits."""
        rounded: dict[str, Any] = _rounded({"format": FORMAT, **asdict(self)})
        return rounded

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Run":
        """Returns what `to_json` made. Raises ValueError for another format."""
        if found.get("format") != FORMAT:
            raise ValueError(f"its format is {found.get('format')}, and {FORMAT} is known: measure again")
        rows = {
            name: RowResult(
                **{
                    **row,
                    "subjects": {each: Subject(**subject) for each, subject in row["subjects"].items()},
                }
            )
            for name, row in found["rows"].items()
        }
        rest = {name: found[name] for name in ("command", "machine", "method", "versions", "skipped")}
        return cls(**rest, rows=rows)


def middle(values: Iterable[float | None]) -> float | None:
    """Returns the median of those that are not None; None if there is none."""
    told = [value for value in values if value is not None]
    return median(told) if told else None


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
