"""The scenarios of an analysis, with their names and order on the page. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from kcast.loadtest.charts.words import brief_percent, count
from kcast.spark.findings.findings import Findings, Row

# Scenarios that are equal in these differ only in their policy and by chance.
_CONDITIONS = (
    *("servers", "backend", "down", "outages", "by", "loss_in", "loss_out", "repeat", "known"),
    *("publishers", "subscribers"),
)
_OUTAGES = {
    "independent": "",
    "exact": "",
    "zones": "by zones",
    "rolling": "one after the other",
}
_BY = {"isolation": "", "kill": "killed", "stall": "halted"}


@dataclass(frozen=True, slots=True)
class NamedCell:
    """A row of the table `scenarios`, with its name on the page."""

    row: Row
    name: str
    is_end_of_rch: bool = False
    """Whether both sides use all K, and other scenarios use K′ of the same K: the end of their curve."""

    @property
    def number(self) -> int:
        """The number in the column `cell` of all tables."""
        return int(self.row["cell"])

    @property
    def is_valid(self) -> bool:
        """Whether shares and causes can be trusted."""
        return bool(self.row["delivery_valid"])

    @property
    def k(self) -> int:
        """Number of servers of a topic."""
        return int(self.row["k"])

    @property
    def k_prime(self) -> int:
        """The lesser of the numbers of servers that a message goes to and that a subscriber is at."""
        return int(min(self.row["publish"], self.row["subscribe"]))

    @property
    def family(self) -> str:
        """The kind of policy, which has a colour: `RCH publish`, `RCH subscribe`, `CH`, `R` or `S`."""
        if self.is_end_of_rch:
            return "RCH publish"
        return f"{self.row['scheme']} {self.row['side']}".rstrip()

    def policy(self, k: str = "K", k_prime: str = "K′") -> str:
        """The kind of policy as k/publish/subscribe: `8/K′/8`, `K/K/K`, `30/K′/K′`, `1/1/1 by modulo`."""
        match self.family:
            case "RCH publish":
                return f"{k}/{k_prime}/{k}"
            case "RCH subscribe":
                return f"{k}/{k}/{k_prime}"
            case "R":
                return f"{self.k}/{k_prime}/{k_prime}"
            case "S":
                return "1/1/1 by modulo"
            case _:
                return "K/K/K"


@dataclass(frozen=True, slots=True)
class NamedCells:
    """All scenarios in the order of the page, in which they were run."""

    all: Sequence[NamedCell]
    by_number: Mapping[int, NamedCell] = field(default_factory=dict)

    @classmethod
    def of(cls, findings: Findings) -> "NamedCells":
        """Reads the table `scenarios`. Where several runs have a scenario of one name, the run is added."""
        rows = sorted(findings.table("scenarios"), key=lambda row: row["cell"])
        often = Counter(row["scenario"] for row in rows)
        runs: dict[str, None] = dict.fromkeys(row["run"] for row in rows)
        numbers = {run: number for number, run in enumerate(runs, 1)}
        ends = _ends_of_rch(rows)
        cells = [
            NamedCell(
                row,
                str(row["scenario"])
                if often[row["scenario"]] == 1
                else f"{row['scenario']} (run {numbers[row['run']]})",
                row["scheme"] == "CH" and row["k"] in ends,
            )
            for row in rows
        ]
        return cls(cells, {cell.number: cell for cell in cells})

    def rows(self, findings: Findings, table: str) -> list[tuple[NamedCell, Row]]:
        """Returns the rows of a table with their scenarios, in the order of the page."""
        of_cells: dict[int, list[Row]] = defaultdict(list)
        for row in findings.table(table):
            of_cells[row["cell"]].append(row)
        return [(cell, row) for cell in self.all for row in of_cells[cell.number]]

    def family_styles(self) -> dict[str, int]:
        """Returns a colour for each family."""
        order = ("RCH publish", "CH", "RCH subscribe", "R", "S")
        found = {cell.family for cell in self.all}
        # The first two keep their colours, so that pages can be compared.
        known = {family: style for style, family in enumerate(order) if family in found}
        return known | dict.fromkeys(sorted(found - set(order)), len(order))


def _ends_of_rch(rows: Sequence[Row]) -> Set[int]:
    """The K at which scenarios where both sides use all K are the ends of curves along K′."""
    of_ch = {row["k"] for row in rows if row["scheme"] == "CH"}
    of_rch = {row["k"] for row in rows if row["scheme"] == "RCH" and row["side"] == "publish"}
    return of_ch if len(of_ch) == 1 and of_ch <= of_rch else set()


def groups(cells: Sequence[NamedCell]) -> list[tuple[str, list[NamedCell]]]:
    """Groups scenarios that differ only in their policy and by chance.

    Each group has words for its conditions; they are empty if there is only one group.
    """
    found: dict[tuple[object, ...], list[NamedCell]] = defaultdict(list)
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


def _down(condition: Row) -> str:
    if condition["outages"] == "exact":
        servers = int(condition["servers"])
        return f"always {round(condition['down'] * servers)} of {count(servers, 'server')} down"
    return f"{brief_percent(condition['down'])} down"


def _told(condition: Row, differ: Set[str]) -> str:
    """Words for the unusual conditions of a group, or for its usual ones if it has no others."""
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
            words.append(_down(condition) + (f" ({told})" if told else ""))
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
