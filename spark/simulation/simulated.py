"""The figures of the simulation, as the claims of the note need them, and their form in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from kcast.spark.findings.findings import Row
from kcast.spark.simulation.counts import Counts
from kcast.spark.simulation.scenes import Form, NoteSettings, roots

TOLERANCE = 0.02
"""Share by which a round figure of the note may be off, such as 33,000 for 33,333."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """Rows of the table "simulation", and counts, by the scenes' names. Look-ups raise KeyError."""

    settings: NoteSettings
    rows: Mapping[str, Row]
    counts: Mapping[str, Counts]

    def rch(self, form: Form, condition: str = "") -> Row:
        """The row of RCH, under a condition as in the scenes' names."""
        return self.rows[self.name(f"rch-{form}", condition)]

    def ch(self, condition: str = "") -> Row:
        """The row of CH."""
        return self.rows[self.name("ch", condition)]

    def s(self, condition: str = "") -> Row:
        """The row of S."""
        return self.rows[self.name("s", condition)]

    def r(self, factor: float, condition: str = "") -> Row:
        """The row of R with `factor` times the root of all servers."""
        return self.rows[self.name(f"r-{roots(self.settings.servers, factor)}", condition)]

    @staticmethod
    def name(scheme: str, condition: str) -> str:
        """The name of a scene."""
        return f"{scheme}-{condition}" if condition else scheme

    def blocked(self, form: Form) -> Sequence[Row]:
        """Rows of RCH with blocked servers of each topic, the fewest first."""
        start = f"rch-{form}-blocked-"
        found = [row for name, row in self.rows.items() if name.startswith(start)]
        return sorted(found, key=blocked_servers)

    def per_message(self, row: Row, column: str) -> float:
        """The mean of one of `counts.SUMS` for each message."""
        counts = self.counts[row["scene"]]
        return counts[column] / counts["messages"]

    def leases(self, row: Row) -> float:
        """Number of servers that a subscriber is at."""
        counts = self.counts[row["scene"]]
        return counts["leases"] / counts["subscribers"]

    def capacity(self, row: Row, audience: float) -> float:
        """Messages that all servers carry together, in units of what one server alone carries.

        One server takes in a line and forwards `audience` copies. Topics are many, so lines spread evenly
        over the servers that were up. With `inf` for the audience only forwarded lines count.
        """
        counts = self.counts[row["scene"]]
        up: float = row["servers"] * counts["up"] / counts["states"]
        taken = counts["taken"] / counts["messages"]
        forwarded = counts["forwarded"] / counts["outcomes"]
        if audience == float("inf"):
            return up / forwarded
        return up * (1 + audience) / (taken + forwarded * audience)

    def growth(self, row: Row, smaller: Row, audience: float) -> float:
        """The power of the number of servers with which the capacity grows."""
        ratio = self.capacity(row, audience) / self.capacity(smaller, audience)
        return log10(ratio) / log10(row["servers"] / smaller["servers"])


def blocked_servers(row: Row) -> int:
    """Number of servers of a topic that are blocked in a scene of `Simulated.blocked`."""
    return int(row["scene"].rpartition("-")[2])


def round_figure(value: float) -> int:
    """Rounds as the note does, down to two digits: 33,333 is 33,000."""
    unit = 10 ** max(0, floor(log10(value)) - 1)
    return int(value // unit * unit)


def is_about(value: float, figure: float) -> bool:
    """Whether a value is within `TOLERANCE` of a figure of the note."""
    return abs(value / figure - 1) <= TOLERANCE


def percent(share: float, digits: int = 2) -> str:
    """Returns a share in the form `99.90 %`."""
    return f"{100 * share:.{digits}f} %"


def told(row: Row) -> str:
    """Returns a share with the digits that its interval supports, or a count if all or nothing came."""
    if row["share"] in (0, 1):
        return f"{'none' if row['share'] == 0 else 'all'} of {row['outcomes']:,}"
    return percent(row["share"], _digits(row))


def told_with_interval(row: Row) -> str:
    """Returns the share with its 95 % interval and the number of outcomes."""
    digits = _digits(row)
    worth = f"{row['outcomes']:,} outcomes worth {round(row['trials']):,} independent ones"
    return f"{told(row)} ({100 * row['low']:.{digits}f} to {percent(row['high'], digits)}; {worth})"


def _digits(row: Row) -> int:
    half = 50 * (row["high"] - row["low"])
    return max(0, min(6, 1 - floor(log10(half)))) if half > 0 else 6
