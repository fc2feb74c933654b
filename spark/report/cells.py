"""The cells of an analysis as the page calls and orders them. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from kcast.loadtest.charts.words import brief_percent, count
from kcast.spark.findings.findings import Findings, Row

SCHEMES = ("RCH", "CH", "R", "S")

# What makes two cells the same but for their policy and for chance.
_CONDITIONS = (
    *("servers", "backend", "down", "outages", "by", "loss_in", "loss_out", "repeat", "known"),
    *("publishers", "subscribers"),
)
_OUTAGES = {
    "independent": "",
    "exact": "always so many",
    "zones": "by zones",
    "rolling": "one after the other",
}
_BY = {"isolation": "", "kill": "killed", "stall": "halted"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the table `cells`, with its name on this page."""

    row: Row
    name: str

    @property
    def number(self) -> int:
        """As in the tables' column `cell`."""
        return int(self.row["cell"])

    @property
    def is_valid(self) -> bool:
        """Whether shares and causes can be trusted."""
        return bool(self.row["delivery_valid"])

    @property
    def k(self) -> int:
        """Servers of a topic."""
        return int(self.row["k"])

    @property
    def k_prime(self) -> int:
        """The fewer of the servers that a message goes to and that a subscriber is at."""
        return int(min(self.row["publish"], self.row["subscribe"]))

    @property
    def family(self) -> str:
        """The scheme, and the side of RCH that uses K' only."""
        return f"RCH, few {self.row['side']}" if self.row["scheme"] == "RCH" else str(self.row["scheme"])


@dataclass(frozen=True, slots=True)
class Cells:
    """All cells, in the order of the page: as they were run."""

    all: Sequence[Cell]
    by_number: Mapping[int, Cell] = field(default_factory=dict)

    @classmethod
    def of(cls, findings: Findings) -> "Cells":
        """Those of the table `cells`, which are named by their scenarios, and by runs where that is not
        enough."""
        rows = sorted(findings.table("scenarios"), key=lambda row: row["cell"])
        often = Counter(row["scenario"] for row in rows)
        runs: dict[str, None] = dict.fromkeys(row["run"] for row in rows)
        numbers = {run: number for number, run in enumerate(runs, 1)}
        cells = [
            Cell(
                row,
                str(row["scenario"])
                if often[row["scenario"]] == 1
                else f"{row['scenario']} (run {numbers[row['run']]})",
            )
            for row in rows
        ]
        return cls(cells, {cell.number: cell for cell in cells})

    def rows(self, findings: Findings, table: str) -> list[tuple[Cell, Row]]:
        """The rows of a table that has a row, or several, for each cell, in the order of the cells."""
        of_cells: dict[int, list[Row]] = defaultdict(list)
        for row in findings.table(table):
            of_cells[row["cell"]].append(row)
        return [(cell, row) for cell in self.all for row in of_cells[cell.number]]

    def family_styles(self) -> dict[str, int]:
        """A colour for each family."""
        order = ("RCH, few publish", "CH", "RCH, few subscribe", "R", "S")
        found = {cell.family for cell in self.all}
        # Few publish and CH keep theirs, so that pages can be laid side by side.
        known = {family: style for style, family in enumerate(order) if family in found}
        return known | dict.fromkeys(sorted(found - set(order)), len(order))


def groups(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells that differ in nothing but their policy (and chance), with words for what tells a group from the
    others; no words where there is one group only."""
    found: dict[tuple[object, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        found[tuple(_condition(cell.row).values())].append(cell)
    conditions = [_condition(members[0].row) for members in found.values()]
    differ = {name for name in _CONDITIONS if len({condition[name] for condition in conditions}) > 1}
    return [
        (_told(condition, differ), members)
        for condition, members in zip(conditions, found.values(), strict=True)
    ]


def _condition(row: Row) -> Row:
    condition = {name: row[name] for name in _CONDITIONS}
    return condition | {"by": "", "down": 0.0} if row["outages"] == "none" else condition


def _told(condition: Row, differ: Set[str]) -> str:
    """What is out of the usual, of that in which groups differ; and if nothing is, that nothing is."""
    words, usual = [], []
    for name in ("servers", "publishers", "subscribers"):
        if name in differ:
            words.append(count(condition[name], name[:-1]))
    if "backend" in differ:
        words.append(str(condition["backend"]))
    if differ & {"down", "outages", "by"}:
        if condition["outages"] == "none":
            usual.append("no outages")
        else:
            how = [_OUTAGES.get(condition["outages"], condition["outages"]), _BY.get(condition["by"], "")]
            told = ", ".join(filter(None, how))
            words.append(f"{brief_percent(condition['down'])} down" + (f" ({told})" if told else ""))
    loss_in, loss_out = condition["loss_in"], condition["loss_out"]
    if differ & {"loss_in", "loss_out"}:
        if loss_in == loss_out == 0:
            usual.append("no loss")
        elif loss_in == loss_out:
            words.append(f"{brief_percent(loss_in)} loss a leg")
        else:
            words.append(f"{brief_percent(loss_in)} loss to servers, {brief_percent(loss_out)} back")
    if "repeat" in differ:
        if condition["repeat"] == 1:
            usual.append("sent once")
        else:
            words.append(f"sent {condition['repeat']} times")
    if "known" in differ:
        if condition["known"] == 1:
            usual.append("all servers known")
        else:
            words.append(f"{brief_percent(condition['known'])} of servers known")
    return ", ".join(words or usual)
