"""The figures of `kcast top`, without sockets and clocks: what servers did comes in, and lines go out."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from kcast.client.cli.common import count_of
from kcast.client.cli.scrape import Metrics
from kcast.client.cli.text import escaped, table

PINGS_KEPT = 20  # of which loss and round-trip time are told
LOST_TO_BE_DOWN = 2  # pings in a row

_HEADS = ("server", "state", "rtt ms", "lost")
_METRICS_HEADS = ("msgs/s", "copies/s", "drops/s", "leases")
_WIDE = 10_000  # columns; lines are cut to the terminal's width afterwards
_GAP = 2


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


class Watched:
    """What is known of one server."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pings: deque[float | None] = deque(maxlen=PINGS_KEPT)  # round-trip times; None if lost
        self._is_refused = False
        self._is_draining = False
        self._scraped: tuple[Metrics, float] | None = None
        self._rates: tuple[float, float, float] | None = None
        self._leases: int | None = None

    def pinged(self, rtts_s: Sequence[float], lost: int, *, refused: bool, draining: bool) -> None:
        """Takes what became of pings: the lost ones are the later ones."""
        self._pings.extend((*rtts_s, *[None] * min(lost, PINGS_KEPT)))
        self._is_refused = refused and not rtts_s
        self._is_draining = draining

    def scraped(self, metrics: Metrics | None, at_s: float) -> None:
        """Takes the metrics, or None where there were none, at a time of any clock."""
        self._rates, self._leases = None, None
        if metrics is None:
            return
        self._leases = metrics.leases
        if self._scraped is not None:
            before, then_s = self._scraped
            # After a restart the counters begin anew.
            is_same = metrics.started_at_s == before.started_at_s
            grown = [new - old for new, old in zip(metrics.counters, before.counters, strict=True)]
            if is_same and min(grown) >= 0 and at_s > then_s:
                messages, copies, drops = (count / (at_s - then_s) for count in grown)
                self._rates = messages, copies, drops
        self._scraped = metrics, at_s

    def figures(self) -> Figures:
        """Returns the figures of the moment."""
        rtts = [rtt for rtt in self._pings if rtt is not None]
        messages, copies, drops = self._rates or (None, None, None)
        return Figures(
            server=self._name,
            state=self._state(),
            rtt_ms=1000 * median(rtts) if rtts else None,
            loss=1 - len(rtts) / len(self._pings) if self._pings else None,
            messages_per_s=messages,
            copies_per_s=copies,
            drops_per_s=drops,
            leases=self._leases,
        )

    def _state(self) -> str:
        latest = list(self._pings)[-LOST_TO_BE_DOWN:]
        if not latest:
            return "-"
        if latest[-1] is None and (self._is_refused or all(ping is None for ping in latest)):
            return "down"
        return "stopping" if self._is_draining else "up"


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
            **{name: _sum(getattr(each, name) for each in self.servers) for name in _SUMMED},
            "servers": [
                {name: round(v, 6) if isinstance(v, float) else v for name, v in asdict(each).items()}
                for each in self.servers
            ],
        }

    def lines(self, columns: int, rows: int | None = None, footer: str = "") -> list[str]:
        """Returns what is shown on a page of this size; with None rows, as many lines as are needed.

        The servers are in their order. Where there are more than rows, the worst come first, and a line
        sums up the others.
        """
        lines = [*self._head(), ""]
        room = len(self.servers) if rows is None else max(1, rows - len(lines) - 1 - bool(footer))
        if room < len(self.servers):
            room = max(1, room - 1)
            ordered = sorted(self.servers, key=_badness, reverse=True)
            lines += self._table(ordered[:room], columns)
            lines.append(_others(ordered[room:]))
        else:
            lines += self._table(self.servers, columns)
        if rows is not None:
            lines = lines[: rows - bool(footer)]
            if footer:
                lines += [""] * (rows - 1 - len(lines)) + [footer]
        return [line if len(line) <= columns else f"{line[: columns - 1]}…" for line in lines]

    def _head(self) -> list[str]:
        name = f"{escaped(self.cluster)}  " if self.cluster else ""
        lines = [f"{name}policy {self.policy}  {self._up()} of {len(self.servers)} up  {self.time}"]
        if self.has_metrics:
            sums = [short(_sum(getattr(each, name) for each in self.servers)) for name in _SUMMED]
            known = sum(each.leases is not None for each in self.servers)
            lines.append(
                f"{sums[0]} messages/s  {sums[1]} copies/s  {sums[2]} drops/s  {sums[3]} leases"
                + (f"  (from {count_of(known, 'server')})" if known < len(self.servers) else "")
            )
        return lines

    def _table(self, servers: Sequence[Figures], columns: int) -> list[str]:
        heads = _HEADS + (_METRICS_HEADS if self.has_metrics else ())
        rows = [self._row(each) for each in servers]
        others = [max(map(len, column)) for column in list(zip(heads, *rows, strict=True))[1:]]
        room = max(8, columns - sum(others) - _GAP * len(others))
        rows = [(_shortened(row[0], room), *row[1:]) for row in rows]
        return table(heads, rows, left=2, columns=_WIDE)

    def _row(self, each: Figures) -> tuple[str, ...]:
        row = (
            escaped(each.server),
            each.state,
            "-"
            if each.rtt_ms is None
            else f"{each.rtt_ms:.2f}"
            if each.rtt_ms < 100
            else f"{each.rtt_ms:.0f}",
            "-" if each.loss is None else f"{100 * each.loss:.0f} %",
        )
        return row + (tuple(short(getattr(each, name)) for name in _SUMMED) if self.has_metrics else ())

    def _up(self) -> int:
        return sum(each.state in ("up", "stopping") for each in self.servers)


_SUMMED = ("messages_per_s", "copies_per_s", "drops_per_s", "leases")
_STATES = ("up", "-", "stopping", "down")  # the worse, the later


def _badness(each: Figures) -> tuple[float, ...]:
    """Returns what servers are ordered by: the larger, the worse."""
    return _STATES.index(each.state), each.loss or 0, each.drops_per_s or 0, each.rtt_ms or 0


def _others(servers: Sequence[Figures]) -> str:
    states = [
        f"{count} {state if state != '-' else 'not yet known'}"
        for state in reversed(_STATES)
        if (count := sum(each.state == state for each in servers))
    ]
    return f"and {len(servers)} more: {', '.join(states)}"


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 6) if known else None


def _shortened(name: str, chars: int) -> str:
    """Returns a name in this width: its end, with the port, tells servers apart."""
    if len(name) <= chars:
        return name
    tail = chars * 2 // 3
    return f"{name[: chars - tail - 1]}…{name[-tail:]}"


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
