"""The figures of `kcast top`, without sockets and clocks: what servers did comes in, and lines go out."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from kcast.client.cli.common import count_of
from kcast.client.cli.probe import Probe
from kcast.client.cli.scrape import Metrics
from kcast.client.cli.text import escaped, table

LOST_TO_BE_DOWN = 2  # pings in a row

_HEADS = ("server", "state", "version", "ms", "lost")  # in one line of 80 columns, whatever version
_METRICS_HEADS = ("msgs/s", "copies/s", "drops/s", "leases")
_SUMMED = ("messages_per_s", "copies_per_s", "drops_per_s", "leases")
_STATES = ("up", "-", "stopping", "down")  # the worse, the later


@dataclass(frozen=True, slots=True)
class Figures:
    """A server at one moment. None: not known."""

    server: str
    state: str = "-"  # up, stopping, down
    rtt_ms: float | None = None
    loss: float | None = None
    messages_per_s: float | None = None
    copies_per_s: float | None = None
    drops_per_s: float | None = None
    leases: int | None = None
    version: str | None = None

    @property
    def badness(self) -> tuple[float, ...]:
        """What servers are ordered by: the larger, the worse."""
        return _STATES.index(self.state), self.loss or 0, self.drops_per_s or 0, self.rtt_ms or 0


class Watched:
    """What is known of one server: by its probe, and by its metrics."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._scraped: tuple[Metrics, float] | None = None
        self._rates: dict[str, float] = {}
        self._leases: int | None = None

    def scraped(self, metrics: Metrics | None, at_s: float) -> None:
        """Takes the metrics, or None where there were none, at a time of any clock."""
        self._rates, self._leases = {}, metrics and metrics.leases
        if metrics is None:
            return
        if self._scraped is not None:
            before, then_s = self._scraped
            # After a restart the counters begin anew.
            is_same = metrics.started_at_s == before.started_at_s
            grown = [new - old for new, old in zip(metrics.counters, before.counters, strict=True)]
            if is_same and min(grown) >= 0 and at_s > then_s:
                self._rates = {name: n / (at_s - then_s) for name, n in zip(_SUMMED, grown, strict=False)}
        self._scraped = metrics, at_s

    def figures(self) -> Figures:
        """Returns the figures of the moment."""
        pings = [None] if self.probe.problem else [*self.probe.recent]
        rtts = [rtt for rtt in pings if rtt is not None]
        state = self._state(pings)
        return Figures(
            self.probe.server,
            state,
            version=(self.probe.version or None) if state != "down" else None,
            rtt_ms=1000 * median(rtts) if rtts else None,
            loss=1 - len(rtts) / len(pings) if pings else None,
            leases=self._leases,
            **self._rates,
        )

    def _state(self, pings: Sequence[float | None]) -> str:
        if not pings:
            return "-"
        is_sure = self.probe.is_closed or bool(self.probe.problem)
        if pings[-1] is None and (is_sure or all(ping is None for ping in pings[-LOST_TO_BE_DOWN:])):
            return "down"
        return "stopping" if self.probe.is_draining else "up"


@dataclass(frozen=True, slots=True)
class Table:
    """The figures of all servers at a time, which is written for people (`time`)."""

    time: str
    cluster: str
    policy: str
    servers: tuple[Figures, ...]
    has_metrics: bool

    def as_json(self) -> dict[str, object]:
        """Returns everything, in stable keys."""
        return {
            "time": self.time,
            "cluster": self.cluster,
            "policy": self.policy,
            "up": self._up(),
            "total": len(self.servers),
            **{name: self._sum(name) for name in _SUMMED},
            "servers": [
                {name: round(v, 6) if isinstance(v, float) else v for name, v in asdict(each).items()}
                for each in self.servers
            ],
        }

    def lines(self, rows: int | None = None) -> list[str]:
        """Returns what is shown in this number of rows; with None, as many lines as are needed.

        The servers are in their order. Where there are more than rows, the worst come first, and a line sums
        up the others.
        """
        name = f"{escaped(self.cluster)}  " if self.cluster else ""
        lines = [f"{name}policy {self.policy}  {self._up()} of {len(self.servers)} up  {self.time}"]
        if self.has_metrics:
            sums = [short(self._sum(name)) for name in _SUMMED]
            known = sum(each.leases is not None for each in self.servers)
            few = f"  (from {count_of(known, 'server')})" if known < len(self.servers) else ""
            lines.append(
                f"{sums[0]} messages/s  {sums[1]} copies/s  {sums[2]} drops/s  {sums[3]} leases{few}"
            )
        heads = _HEADS + (_METRICS_HEADS if self.has_metrics else ())
        room = len(self.servers) if rows is None else rows - len(lines) - 2
        if room >= len(self.servers):
            return [*lines, "", *table(heads, map(self._row, self.servers), left=3)]
        ordered = sorted(self.servers, key=lambda each: each.badness, reverse=True)
        shown, others = ordered[: max(1, room - 1)], ordered[max(1, room - 1) :]
        counts = {state: sum(each.state == state for each in others) for state in reversed(_STATES)}
        states = [
            f"{count} {state.replace('-', 'not yet known')}" for state, count in counts.items() if count
        ]
        lines += ["", *table(heads, map(self._row, shown), left=3)]
        return [*lines, f"and {len(others)} more: {', '.join(states)}"]

    def _row(self, each: Figures) -> tuple[str, ...]:
        rtt_ms = each.rtt_ms
        row = (
            escaped(each.server),
            each.state,
            escaped(each.version or "-"),
            "-" if rtt_ms is None else f"{rtt_ms:.2f}" if rtt_ms < 100 else f"{rtt_ms:.0f}",
            "-" if each.loss is None else f"{100 * each.loss:.0f} %",
        )
        return row + (tuple(short(getattr(each, name)) for name in _SUMMED) if self.has_metrics else ())

    def _up(self) -> int:
        return sum(each.state in ("up", "stopping") for each in self.servers)

    def _sum(self, name: str) -> float | None:
        known: Iterable[float] = [v for each in self.servers if (v := getattr(each, name)) is not None]
        return round(sum(known), 6) if known else None


def short(number: float | None) -> str:
    """Returns a number in at most 5 characters, up to 10^17; `-` for None.

    >>> [short(n) for n in (None, 0, 0.26, 7.25, 812.4, 1234, 99_960, 12_345_678)]
    ['-', '0', '0.3', '7.2', '812', '1.2k', '100k', '12M']
    """
    if number is None:
        return "-"
    if number == int(number) and number < 1000:
        return f"{number:.0f}"
    for unit in ("", "k", "M", "G", "T", "P"):
        if number < 9.95:
            return f"{number:.1f}{unit}"
        if number < 999.5:
            return f"{number:.0f}{unit}"
        number /= 1000
    return f"{number:.0f}E"
