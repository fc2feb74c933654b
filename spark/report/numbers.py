"""The tables of the analysis as HTML, each column in its own form. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kcast.loadtest.charts.escaping import Html, joined
from kcast.loadtest.charts.words import (
    NOTHING,
    brief_percent,
    milliseconds,
    number,
    percent,
    probability,
    seconds,
    signed,
    times,
)
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import TABLES
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.markup import NOT_VALID, Badge, Head, details, name_cell, paragraph, table

ROWS_MAX = 400
"""Most rows of a table on the page; the CSV file has all."""

_NOT_VALID = Badge.of(NOT_VALID).html()

Form = Callable[[Any], str]

_SHARES = (
    *("share", "low", "high", "beforehand", "given_events", "given_events_low"),
    *("given_events_high", "blocked_share", "renewal_share", "detectable"),
    *("after_share", "after_low", "after_high", "others_share", "others_low", "others_high"),
)
_SET = ("asked", "down", "loss_in", "loss_out", "loss", "known")
_OF_ANY_TABLE: dict[str, Form] = {
    **dict.fromkeys(_SHARES, percent),
    **dict.fromkeys(_SET, brief_percent),
    **dict.fromkeys(("mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"), milliseconds),
    **{"p_value": probability, "z": signed, "longest_deaf_s": seconds, "duration_s": seconds},
    "verdict": lambda value: Badge.of(value).html() if value else NOTHING,
}
_OF_TABLE: Mapping[str, dict[str, Form]] = {
    "attack": {"delivered": percent, "theory": percent},
    "audience": {"theory": percent},
    "simulation": {"theory": percent},
    "capacity": {"factor": times, "theory": times, "low": times, "high": times, "hottest": times},
}
_HEADS = {"k_prime": "K′", "cell": "scenario", "p999_ms": "p99.9", "cv": "CV", "predicted_cv": "CV predicted"}
_UNITS = ("_ms",)


def rows_table(
    name: str, rows: Sequence[Row], cells: NamedCells, *, leave_out: Sequence[str] = (), caption: str = ""
) -> Html:
    """Returns the first `ROWS_MAX` rows of one of the tables."""
    columns = [column for column in TABLES[name] if column.name not in leave_out]
    heads = [Head(head_of(column.name), column.meaning, column.type == "str") for column in columns]
    forms = [form_of(name, column.name, column.type, cells) for column in columns]
    invalid = {cell.number for cell in cells.all if not cell.is_valid}
    body = (
        [
            _NOT_VALID if column.name == "verdict" and row.get("cell") in invalid else form(row[column.name])
            for form, column in zip(forms, columns, strict=True)
        ]
        for row in rows[:ROWS_MAX]
    )
    made = table(heads, body, caption or f"table {name}")
    if len(rows) <= ROWS_MAX:
        return made
    more = f"The first {ROWS_MAX:,} of {len(rows):,} rows; tables/{name}.csv has all."
    return joined((made, paragraph(more)))


def folded(
    name: str, rows: Sequence[Row], cells: NamedCells, *, leave_out: Sequence[str] = (), summary: str = ""
) -> Html:
    """Returns the table closed, until the reader opens it; nothing without rows."""
    if not rows:
        return Html()
    words = summary or "All numbers"
    return details(words, rows_table(name, rows, cells, leave_out=leave_out))


def head_of(column: str) -> str:
    """The words above a column."""
    if column in _HEADS:
        return _HEADS[column]
    for unit in _UNITS:
        column = column.removesuffix(unit)
    return column.replace("_", " ")


def form_of(table_name: str, column: str, kind: str, cells: NamedCells) -> Form:
    """Returns a function that writes the values of a column."""
    if column == "cell":
        return lambda value: name_cell(cells.by_number[value].name)
    form = _OF_TABLE.get(table_name, {}).get(column) or _OF_ANY_TABLE.get(column) or _PLAIN[kind]
    return lambda value: NOTHING if value is None else form(value)


_PLAIN: dict[str, Form] = {
    "int": lambda value: f"{value:,}",
    "float": number,
    "str": lambda value: value or NOTHING,
    "bool": lambda value: "yes" if value else "no",
}
