"""What a page consists of: sections with verdicts, figures and tables. Templates say how these look."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from kcast.loadtest.charts.svg import Figure
from kcast.loadtest.charts.words import NOTHING
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, HOLDS, HOLDS_IF, NO_THEORY, NOT_REFUTED
from kcast.spark.report.cells import NamedCell

Tone = Literal["good", "bad", "warn", "plain"]

NOT_VALID = "not valid"
ROWS_MAX = 60
"""Most rows of a table on the page; the CSV file has all."""

_GRAVEST_FIRST = (DISAGREES, NOT_REFUTED, AGREES)
_TONES: dict[str, Tone] = {
    **{AGREES: "good", DISAGREES: "bad", HOLDS: "good", HOLDS_IF: "warn", FAILS: "bad", NOT_VALID: "warn"},
}


_SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✕", "warn": "!", "plain": "–"}
SIGNS = f"✓ {AGREES}, – {NOT_REFUTED}, ✕ {DISAGREES}, ! {NOT_VALID}."
"""What the signs of verdicts mean."""


class Badge(NamedTuple):
    """A verdict in two or three words, with a colour and a sign: nothing depends on colour alone."""

    words: str
    tone: Tone = "plain"

    @property
    def sign(self) -> str:
        """A sign for the tone."""
        return _SIGNS[self.tone]


def verdict(words: str) -> Badge:
    """Returns the badge of a verdict in the tables."""
    return Badge(words, _TONES.get(words, "plain"))


def verdict_of(cell: NamedCell, row: Row) -> Badge:
    """Returns the badge of a row of a scenario."""
    return verdict(row["verdict"] if cell.is_valid else NOT_VALID)


def gravest(verdicts: Sequence[str], *, any_valid: bool = True) -> Badge:
    """Returns the badge of several verdicts: the gravest, and how often it is among those that judge."""
    if not any_valid:
        return verdict(NOT_VALID)
    judged = [each for each in verdicts if each != NO_THEORY]
    found = min(judged, key=_GRAVEST_FIRST.index, default=NO_THEORY)
    often, own = judged.count(found), verdict(found)
    return own if often == len(judged) else Badge(f"{found} in {often} of {len(judged)}", own.tone)


class Stacked(NamedTuple):
    """A cell of a table: words, and small ones below."""

    words: str
    below: str


Cell = str | Badge | Stacked


class Table(NamedTuple):
    """A table. Its first column has names; columns of `words` are set to the left.

    With a summary it is closed until the reader opens it.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    summary: str = ""
    words: Collection[int] = ()


class Section(NamedTuple):
    """A part of the page: sentences with their badge, then figures, tables and remarks."""

    anchor: str
    title: str
    says: str
    badge: Badge
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()


def ratio(value: float | None) -> str:
    """A ratio near 1, with two digits behind the point."""
    return NOTHING if value is None else f"{value:.2f}"
