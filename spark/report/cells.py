"""The scenarios of an analysis: their names, colours, conditions, and order on the page. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kcast.loadtest.charts.words import brief_percent, count, listed
from kcast.spark.findings.findings import Findings, Row

_PLACES = {"processes": "processes of one machine", "lab": "in one process", "containers": "containers"}
FAMILIES = {
    "RCH publish": "K/K′/K",
    "CH": "K/K/K",
    "RCH subscribe": "K/K/K′",
    "R": "any K′ of all servers",
    "S": "1/1/1 by modulo",
}
"""The kinds of policy, in words; each has a colour."""

_BY = {"kill": " down, killed", "stall": " down, halted", "mute": " mute"}


@dataclass(frozen=True, slots=True, eq=False)
class NamedCell:
    """A row of the table `scenarios`, with its name on the page."""

    row: Row
    name: str

    @property
    def number(self) -> int:
        """The number in the column `cell` of all tables."""
        return int(self.row["cell"])

    @property
    def is_valid(self) -> bool:
        """Whether shares and causes can be trusted."""
        return bool(self.row["delivery_valid"])

    @property
    def has_valid_latency(self) -> bool:
        """Whether latencies can be trusted."""
        return bool(self.row["latency_valid"])

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
        """The kind of policy: one of `FAMILIES`."""
        return f"{self.row['scheme']} {self.row['side']}".rstrip()

    @property
    def style(self) -> int:
        """The number of the colour of its kind: always the same, so that pages can be compared."""
        return [*FAMILIES, self.family].index(self.family)

    @property
    def copies(self) -> str:
        """How many copies of a message a subscriber is to get, and of how many servers: `3 copies of 5`."""
        row, used = self.row, self.k_prime
        times = f", each sent {row['repeat']} times" if row["repeat"] > 1 else ""
        if row["scheme"] == "R":
            return f"{used:,} of {row['servers']:,} servers on each side{times}"
        if used == self.k > 1:
            return f"all {used:,} copies{times}"
        of = f" of {self.k:,}" if self.k > 1 else ""
        return f"{count(used, 'copy', 'copies')}{of}{times}"

    @property
    def conditions(self) -> list[str]:
        """What the policy is tried under, in words: all as planned."""
        row = self.row
        is_partial = row["known"] is not None and row["known"] < 1
        known = f"each client knew {brief_percent(row['known'])} of the servers" if is_partial else ""
        where = _PLACES.get(row["backend"], "")
        told = (
            count(row["servers"], "server") + (f" ({where})" if where else ""),
            f"{count(row['publishers'], 'publisher')} and {count(row['subscribers'], 'subscriber')}",
            _outages(row),
            _losses(row),
            f"each message sent {row['repeat']} times" if row["repeat"] > 1 else "",
            known,
        )
        return [fact for fact in told if fact]


def _outages(row: Row) -> str:
    if row["down"] is None:
        return ""
    by = _BY.get(row["by"], " down")
    match row["outages"]:
        case "exact":
            return f"{round(row['down'] * row['servers']):,} of the servers{by}"
        case "zones":
            return f"{brief_percent(row['down'])} of the zones{by}"
        case "rolling":
            return f"one server after the other{by}"
        case "independent":
            return f"{brief_percent(row['down'])} of the servers{by}"
        case _:
            return "no outages"


def _losses(row: Row) -> str:
    there, back = row["loss_in"], row["loss_out"]
    if there == back:
        return f"{brief_percent(there)} of packets lost each way" if there else "no packet lost on purpose"
    return f"{brief_percent(there)} of packets lost to servers, {brief_percent(back)} to clients"


CellRow = tuple[NamedCell, Row]


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
        cells = [
            NamedCell(
                row,
                str(row["scenario"])
                if often[row["scenario"]] == 1
                else f"{row['scenario']} of run {numbers[row['run']]}",
            )
            for row in rows
        ]
        return cls(cells, {cell.number: cell for cell in cells})

    def rows(self, findings: Findings, table: str) -> list[CellRow]:
        """Returns the rows of a table with their scenarios, in the order of the page."""
        of_cells: dict[int, list[Row]] = defaultdict(list)
        for row in findings.table(table):
            of_cells[row["cell"]].append(row)
        return [(cell, row) for cell in self.all for row in of_cells[cell.number]]

    @property
    def any_valid(self) -> bool:
        """Whether shares and causes can be trusted in any scenario."""
        return any(cell.is_valid for cell in self.all)

    @property
    def all_valid(self) -> bool:
        """Whether they can in all."""
        return all(cell.is_valid for cell in self.all)

    def which(self, names: Sequence[str]) -> str:
        """Some of the scenarios in words."""
        if len(names) < len(self.all):
            return listed(names, 6)
        return "this scenario" if len(names) == 1 else f"all {len(names)} scenarios"
