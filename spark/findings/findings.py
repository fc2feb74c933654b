"""Findings: all results of an analysis, as report.json holds them and the report shows them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from kcast.pubsub.errors import KcastError
from kcast.spark.findings.tables import FINDINGS_VERSION, TABLES

Row = dict[str, Any]

_PYTHON: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bool": (bool,),
}


class FindingsError(KcastError, ValueError):
    """A file is not a report.json that this version reads; the message says why."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of one analysis.

    `tables` maps names to rows, each with all columns of `findings.tables.TABLES`. `about` says how the
    findings were made: kcast (version), made (wall clock, UTC), command, seconds (duration), and captures
    (path, run, status, started, ended, host of each). `problems` are sentences that say what was left out,
    and why.
    """

    about: Mapping[str, Any]
    problems: Sequence[str] = ()
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rows in self.tables.items():
            columns = TABLES.get(name)
            if columns is None:
                raise FindingsError(f"there is no table {name}")
            for row in rows:
                if list(row) != [column.name for column in columns]:
                    raise FindingsError(f"{name}: a row lacks or adds columns: {', '.join(row)}")
                for column in columns:
                    value = row[column.name]
                    if value is not None and type(value) not in _PYTHON[column.type]:
                        raise FindingsError(f"{name}.{column.name}: {value!r} is no {column.type}")

    def table(self, name: str) -> Sequence[Row]:
        """The rows of a table; empty if the analysis has no such table."""
        return self.tables.get(name, ())

    def names(self) -> dict[int, str]:
        """Returns the name of each scenario, by its cell: with its run's id if there are several runs."""
        scenarios = self.table("scenarios")
        has_several = len({row["run"] for row in scenarios}) > 1
        return {
            row["cell"]: f"{row['run']}/{row['scenario']}" if has_several else row["scenario"]
            for row in scenarios
        }

    def to_json(self) -> str:
        """Returns the text of report.json."""
        return json.dumps(
            {
                "findings_version": FINDINGS_VERSION,
                "about": dict(self.about),
                "problems": list(self.problems),
                "tables": {name: list(rows) for name, rows in self.tables.items()},
            },
            ensure_ascii=False,
            allow_nan=False,
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads what `to_json` wrote. Raises FindingsError."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise FindingsError(f"not JSON: {error}") from None
        version = values.get("findings_version") if isinstance(values, dict) else None
        if version != FINDINGS_VERSION:
            if version is None:
                raise FindingsError("no findings of kcast: it has no findings_version")
            raise FindingsError(
                f"findings of version {version}, and this kcast reads version {FINDINGS_VERSION}: "
                "analyse the capture again"
            )
        try:
            return cls(values["about"], tuple(values["problems"]), values["tables"])
        except (KeyError, TypeError, AttributeError) as error:
            raise FindingsError(f"findings that are damaged: {error!r}") from None
