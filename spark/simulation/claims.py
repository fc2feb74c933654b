"""The table "note": each claim of the note, what is expected, what the simulation gave, whether that holds.

Verdicts come from the simulated figures alone. A claim "holds if" where its cases hold, and some condition
does not; `measured` tells cases, then conditions. Of two figures for RCH that of publish-to-K' is first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, log10
from typing import NamedTuple

from kcast.loadtest.charts.words import number, percent_digits
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import FAILS, HOLDS, HOLDS_IF
from kcast.spark.simulation.counts import Counts
from kcast.spark.simulation.scenes import FORMS, R_ROOTS, NoteSettings, roots

WIDE = 1000
"""Number of subscribers of a topic for which figures that depend on it are given."""

_TOLERANCE = 0.02  # by which a round figure of the note may be off, such as 33,000 for 33,333


class _Case(NamedTuple):
    """What was measured, as people read it, and whether that is as claimed."""

    told: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Simulated:
    """Rows of the table "simulation", and counts, by the scenes' names."""

    settings: NoteSettings
    rows: Mapping[str, Row]
    counts: Mapping[str, Counts]

    def within(self, scene: str, least: float, most: float = 1.0) -> _Case:
        """The share that was delivered, and whether its interval reaches into these bounds."""
        row = self.rows[scene]
        return _Case(f"{percent_digits(row['share'])} %", row["high"] >= least and row["low"] <= most)

    def above(self, scene: str, share: float) -> _Case:
        """The same, and whether its interval is above a share."""
        return _Case(self.within(scene, 0).told, self.rows[scene]["low"] > share)

    def below(self, scene: str, share: float) -> _Case:
        """The same, and whether its interval is below a share."""
        return _Case(self.within(scene, 0).told, self.rows[scene]["high"] < share)

    def none(self, scene: str) -> _Case:
        """The same, and whether nothing was delivered."""
        return _Case(self.within(scene, 0).told, self.rows[scene]["share"] == 0)

    def sendings(self, scene: str) -> float:
        """Number of servers that a message is sent to."""
        return self.counts[scene]["sendings"] / self.counts[scene]["messages"]

    def leases(self, scene: str) -> float:
        """Number of servers that a subscriber is at."""
        return self.counts[scene]["leases"] / self.counts[scene]["subscribers"]

    def capacity(self, scene: str, audience: float) -> float:
        """Messages that all servers carry together, in units of what one server alone carries.

        One server takes in a line and forwards `audience` copies. Topics are many, so lines spread evenly
        over the servers that were up. With `inf` for the audience only forwarded lines count.
        """
        counts = self.counts[scene]
        up: float = self.rows[scene]["servers"] * counts["up"] / counts["states"]
        taken, forwarded = counts["taken"] / counts["messages"], counts["forwarded"] / counts["outcomes"]
        return up / forwarded if audience == inf else up * (1 + audience) / (taken + forwarded * audience)

    def powers(self, scene: str, smaller: str) -> list[float]:
        """The powers of the number of servers with which the capacity grows, for no and a wide audience."""
        growth = log10(self.rows[scene]["servers"] / self.rows[smaller]["servers"])
        ratios = (self.capacity(scene, wide) / self.capacity(smaller, wide) for wide in (0, WIDE))
        return [log10(ratio) / growth for ratio in ratios]


def claims(at: Simulated) -> Iterator[Row]:
    """Yields a row for each claim, in the order of the note."""
    settings, rows = at.settings, at.rows
    servers, k, k_prime, down = settings.servers, settings.k, settings.k_prime, settings.down
    yield _row(
        "S retains the single-point-of-failure and denial-of-service problems of the single-server approach",
        "its server is blocked: 0; else 1 - down",
        [at.none("s-blocked-1"), at.below("s", 1)],
    )
    yield _row(
        "S: clients with different lists of servers will miss one another",
        "a list lacks one server: (1 - down) / servers",
        [at.below("s-one-unknown", 0.01)],
    )
    yield _row(
        "S ameliorates the performance bottleneck",
        f"servers, with 0 and {WIDE:,} subscribers a topic",
        _about([at.capacity("s", audience) for audience in (0, WIDE)], servers),
    )
    sizes = [roots(servers, factor) for factor in R_ROOTS]
    few, middle, most = (f"r-{size}" for size in sizes)
    steps = (few, down), (middle, rows[few]["share"]), (most, rows[middle]["share"])
    yield _row(
        "R: its size squared is comparable to the total number of servers, larger for more reliability",
        f"m = {', '.join(map(str, sizes))}: 1 - exp(-(1 - down) m² / servers)",
        [at.above(*step) for step in steps],
        [_Case(f"last m² / servers: {sizes[-1] ** 2 / servers:.1f}", at.within(few, 1 - down).holds)],
    )
    yield _row(
        "R: an attacker must essentially DoS the entire network to shut down a single topic",
        f"50, 90, 99 % blocked, m = {sizes[-1]}: 1 - exp(-(1 - down) (1 - blocked) m² / servers)",
        [at.above(f"{most}-blocked-50", 0.5), *(at.above(f"{most}-blocked-{part}", 0) for part in (90, 99))],
    )
    alone, wide = at.powers(most, f"r-{roots(servers // 4, R_ROOTS[-1])}-of-{servers // 4}")
    yield _row(
        "R allows the network bandwidth to scale as the square root of the number of servers",
        f"power 0.5, with 0 and {WIDE:,} subscribers a topic",
        _about([alone], 0.5, 0.1),
        _about([wide], 0.5, 0.1),
    )
    work = [at.sendings(most) / at.sendings("s"), at.leases(most) / at.leases("s")]
    yield _row(
        "R requires two to six orders of magnitude more resources to get reasonable reliability than S",
        f"lines and leases: m = {sizes[-1]}",
        [_Case(number(times), 1e2 <= times <= 1e6) for times in work],
    )
    yield _row(
        "CH is more robust against denial-of-service attacks than S by a factor of K",
        f"{k_prime}, {k_prime - 1} blocked: 0, 1 - down; S with 1 blocked: 0",
        [at.none(f"ch-blocked-{k_prime}"), at.above(f"ch-blocked-{k_prime - 1}", 0), at.none("s-blocked-1")],
    )
    work = [at.sendings("ch") / at.sendings("s"), at.leases("ch") / at.leases("s")]
    yield _row(
        "CH takes K times as much legitimate effort as S",
        f"lines, leases and copies: {k_prime}",
        _about([*work, rows["ch"]["copies"] / rows["s"]["copies"]], k_prime),
    )
    yield _row(
        "CH tolerates inconsistent server lists handed to different clients",
        "90, 50 % of the servers are known: more than 1 - down, which S has with equal lists",
        [at.above("ch-known-90", 1 - down)],
        [at.above("ch-known-50", 1 - down)],
    )
    yield _row(
        "CH eliminates single points of failure and performance bottlenecks",
        "one server is blocked: 1 - down^(K - 1)",
        [at.above("ch-blocked-1", 1 - down)],
    )
    yield _row(
        "CH: bandwidth scales linearly as new servers come online",
        f"power 1, with 0 and {WIDE:,} subscribers a topic",
        _about(at.powers("ch", f"ch-of-{servers // 4}"), 1, 0.05),
    )
    to_few, of_few = both = [f"rch-{form}" for form in FORMS]
    copies, target = [rows[each]["copies"] for each in both], 1 - down**k_prime
    yield _row(
        "RCH allows K to be larger for the same amount of legitimate work and quality of service",
        f"CH with K = {k_prime}: {at.within('ch', 0).told}, copies; lines and leases: {k_prime}",
        [
            *(at.within(each, rows["ch"]["low"], rows["ch"]["high"]) for each in both),
            *_about(copies, rows["ch"]["copies"]),
            *_about([at.sendings(to_few), at.leases(of_few)], k_prime),
        ],
        _about([at.leases(to_few), at.sendings(of_few)], k_prime),
    )
    yield _row(
        "RCH: each subscriber receives each message K' times",
        f"all servers up: {k_prime}; else (1 - down) K'",
        _about([rows[f"{to_few}-all-up"]["copies"]], k_prime),
        _about(copies, k_prime),
    )
    yield _row(
        "RCH: you still have to flood all K servers to block traffic even from or to a single client",
        f"the {k_prime} servers of a draw are blocked: 0",
        [],
        [at.above(f"{each}-draw-known", 0) for each in both],
    )
    bounds = target - 5e-4, target + 5e-4  # 99.9 % is told to one decimal
    yield _row(
        f"RCH: {target:.1%} reliable delivery if the servers are independent and {1 - down:.0%} reliable",
        "1 - down^K'; with 1 % of packets lost on each leg; with 90 % of the servers known",
        [at.within(each, *bounds) for each in both],
        [at.within(f"{each}-{what}", *bounds) for what in ("loss-1", "known-90") for each in both],
    )
    blocked = [at.none(f"{each}-blocked-{k}") for each in both]
    yield _row(
        f"RCH requires {k:,} servers' worth of traffic to block access to a single topic",
        f"{k:,}, {k - 1:,} blocked: 0, (1 - down) K' / K",
        [*blocked, *(at.above(f"{each}-blocked-{k - 1}", 0) for each in both)],
    )
    large, small = _round_figure(servers / k_prime), _round_figure(servers / k)
    yield _row(
        f"RCH: {large:,} times the bandwidth and {small:,} times the subscribers of a single server with "
        f"subscribe-to-K', {small:,} and {large:,} times with publish-to-K'",
        f"lines taken in, leases: {large:,}, {small:,}, {small:,}, {large:,}",
        [
            *(*_about([at.capacity(of_few, 0)], large), *_about([servers / at.leases(of_few)], small)),
            *(*_about([at.capacity(to_few, 0)], small), *_about([servers / at.leases(to_few)], large)),
        ],
    )
    less, fewer = [at.below(f"{each}-k-{k // 2}", rows[each]["low"]) for each in both], k_prime - 1
    yield _row(
        "RCH: everyone must use the same K, which is not true with CH",
        f"subscribers use K / 2: less than 1 - down^K'; CH, {fewer} of {k_prime}: 1 - down^{fewer}",
        less[:1],
        [*less[1:], at.within(f"ch-k-{fewer}", 1 - down**fewer)],
    )


def _row(claim: str, formula: str, cases: Sequence[_Case], conditions: Sequence[_Case] = ()) -> Row:
    verdict = HOLDS if all(each.holds for each in conditions) else HOLDS_IF
    verdict = verdict if all(each.holds for each in cases) else FAILS
    told = (", ".join(each.told for each in part) for part in (cases, conditions) if part)
    return {"claim": claim, "formula": formula, "measured": "; ".join(told), "verdict": verdict}


def _about(values: Sequence[float], figure: float, tolerance: float = _TOLERANCE) -> list[_Case]:
    return [_Case(number(value), abs(value / figure - 1) <= tolerance) for value in values]


def _round_figure(value: float) -> int:
    """Rounds as the note does, down to two digits: 33,333 is 33,000."""
    unit = 10 ** max(0, floor(log10(value)) - 1)
    return int(value // unit * unit)
