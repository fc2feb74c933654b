"""What the simulation found, as the claims of the note are judged by it, and how figures are told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from kcast.spark.findings.findings import Row
from kcast.spark.simulation.counts import Counts
from kcast.spark.simulation.scenes import Form, Settings, roots

TOLERANCE = 0.02
"""What the note says in round figures, as 33,000 for 33,333, may be off by this share."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rows of the table "simulation" and counts, by the scenes' names. Look-ups raise KeyError."""

    settings: Settings
    rows: Mapping[str, Row]
    counts: Mapping[str, Counts]

    def rch(self, form: Form, condition: str = "") -> Row:
        """RCH, under a condition as the scenes' names have it."""
        return self.rows[self.name(f"rch-{form}", condition)]

    def ch(self, condition: str = "") -> Row:
        """CH."""
        return self.rows[self.name("ch", condition)]

    def s(self, condition: str = "") -> Row:
        """S."""
        return self.rows[self.name("s", condition)]

    def r(self, factor: float, condition: str = "") -> Row:
        """R with so many times the root of all servers."""
        return self.rows[self.name(f"r-{roots(self.settings.servers, factor)}", condition)]

    @staticmethod
    def name(scheme: str, condition: str) -> str:
        """A scene's."""
        return f"{scheme}-{condition}" if condition else scheme

    def blocked(self, form: Form) -> Sequence[Row]:
        """RCH with servers of each topic blocked, few before many."""
        start = f"rch-{form}-blocked-"
        found = [row for name, row in self.rows.items() if name.startswith(start)]
        return sorted(found, key=blocked_servers)

    def per_message(self, row: Row, column: str) -> float:
        """So many of `counts.SUMS` for each message."""
        counts = self.counts[row["scene"]]
        return counts[column] / counts["messages"]

    def leases(self, row: Row) -> float:
        """Servers at which a subscriber is."""
        counts = self.counts[row["scene"]]
        return counts["leases"] / counts["subscribers"]

    def capacity(self, row: Row, audience: float) -> float:
        """Messages that all servers carry, in units of one server doing the same alone.

        One server takes a line and forwards `audience`. Here the lines counted at servers that were up are
        spread over all that were up: topics are many. `inf` for the audience: lines forwarded alone.
        """
        counts = self.counts[row["scene"]]
        up: float = row["servers"] * counts["up"] / counts["servers"]
        taken = counts["taken"] / counts["messages"]
        forwarded = counts["forwarded"] / counts["outcomes"]
        if audience == float("inf"):
            return up / forwarded
        return up * (1 + audience) / (taken + forwarded * audience)

    def growth(self, row: Row, smaller: Row, audience: float) -> float:
        """With which power of the number of servers the capacity grows."""
        ratio = self.capacity(row, audience) / self.capacity(smaller, audience)
        return log10(ratio) / log10(row["servers"] / smaller["servers"])


def blocked_servers(row: Row) -> int:
    """How many servers of a topic are blocked in a scene of `Evidence.blocked`."""
    return int(row["scene"].rpartition("-")[2])


def round_figure(value: float) -> int:
    """As the note rounds: two digits, downwards. 33,333 is 33,000."""
    unit = 10 ** max(0, floor(log10(value)) - 1)
    return int(value // unit * unit)


def is_about(value: float, figure: float) -> bool:
    """Whether a figure is the note's."""
    return abs(value / figure - 1) <= TOLERANCE


def percent(share: float, digits: int = 2) -> str:
    """As in `99.90 %`."""
    return f"{100 * share:.{digits}f} %"


def told(row: Row) -> str:
    """A share with as many digits as its interval allows; counts where all or nothing came."""
    if row["share"] in (0, 1):
        return f"{'none' if row['share'] == 0 else 'all'} of {row['outcomes']:,}"
    return percent(row["share"], _digits(row))


def told_with_interval(row: Row) -> str:
    """The same, with the interval of 95 % and what it rests on."""
    digits = _digits(row)
    worth = f"{row['outcomes']:,} outcomes worth {round(row['trials']):,} independent ones"
    return f"{told(row)} ({100 * row['low']:.{digits}f} to {percent(row['high'], digits)}; {worth})"


def _digits(row: Row) -> int:
    half = 50 * (row["high"] - row["low"])
    return max(0, min(6, 1 - floor(log10(half)))) if half > 0 else 6
