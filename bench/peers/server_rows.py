"""Rows in which servers get the same load: how it is measured, in rounds that take turns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

from bench.peers.bench import Bench, rotated
from bench.peers.kinds import KCAST, Kind
from bench.peers.latencies import percentiles
from bench.peers.loaded import LoadedServer
from bench.peers.results import Figures, RowResult, Subject, middle
from bench.peers.session import Failed
from bench.peers.trial import Trial
from bench.peers.workloads import Workload

SPARE_DESCRIPTORS = 500
SEARCHES = 3
NOTHING_SUSTAINED = "no server sustains any rate here: something else keeps this machine busy"


@dataclass(frozen=True)
class ServerRow:
    """Servers with the same workload.

    `loads` are factors of a unit: of the highest rate that the best one of `unit_of` sustains; with these the
    ratios are made, too. If all of them are skipped, the unit is that of the best server that there is. With
    `finds_highest` the highest rate of all servers is looked for, else only that of those.
    """

    name: str
    title: str
    workload: Workload
    kinds: Callable[[], Sequence[Kind]]
    loads: Mapping[str, float]
    unit_of: Sequence[str]
    finds_highest: bool = True
    rounds_share: float = 1.0
    has_quiet_topic: bool = False
    uses_all_cores: bool = False

    def measure(self, bench: Bench) -> RowResult:
        """Measures all servers of the row that there are."""
        result = RowResult(self.title, list(self.unit_of))
        kinds = bench.present(self.kinds())
        needed = self.workload.subscriber_count + SPARE_DESCRIPTORS
        if needed > bench.descriptors:
            why = f"it needs {needed:,} open files, and this process may have {bench.descriptors:,}"
            result.skipped = {kind.name: why for kind in kinds}
            return result
        are_all_ready = needed * len(kinds) <= bench.descriptors
        with ExitStack() as stack:
            servers = [
                stack.enter_context(
                    LoadedServer(
                        kind,
                        self.workload,
                        bench.cores.servers if self.uses_all_cores else (bench.cores.server,),
                        bench.poller,
                        bench.tick_s,
                        has_quiet_topic=self.has_quiet_topic,
                    )
                )
                for kind in kinds
            ]
            run = _RowRun(self, bench, result, servers, are_all_ready)
            if unit := run.find_unit():
                run.go_round(unit)
            run.note_complaints()
        return result


class _RowRun:
    """A row while it is measured. Unless `are_all_ready`, a server is ended before the next one begins."""

    def __init__(
        self,
        row: ServerRow,
        bench: Bench,
        result: RowResult,
        servers: list[LoadedServer],
        are_all_ready: bool,
    ) -> None:
        self._row = row
        self._bench = bench
        self._result = result
        self._servers = servers
        self._are_all_ready = are_all_ready

    def find_unit(self) -> float:
        """Returns the rate that is the load 1, in messages a second; 0 if no server sustains any.

        Also starts all, so that those which do not start are known at once.
        """
        row, subjects = self._row, self._result.subjects
        for server in list(self._servers):
            with self._turn(server):
                server.start()
                subjects[server.name] = Subject()
        has_unit = any(name in row.unit_of for name in subjects)
        self._find_highest(lambda name: row.finds_highest or name in row.unit_of or not has_unit)
        found = {name: each.highest_per_s for name, each in subjects.items() if each.highest_per_s}
        if not found:
            self._result.skipped |= dict.fromkeys(subjects, NOTHING_SUSTAINED)
            subjects.clear()
        named = [per_s for name, per_s in found.items() if name in row.unit_of]
        self._result.unit_per_s = max(named or found.values(), default=None)
        return (self._result.unit_per_s or 0.0) / row.workload.fan_out

    def _find_highest(self, is_wanted: Callable[[str], bool]) -> None:
        """Looks for the highest rates, of those that are compared several times in turn.

        A machine is faster now and slower then; the median is less a matter of luck.
        """
        rates: dict[str, list[float]] = {}
        for number in range(self._times(SEARCHES)):
            for server in list(self._servers):
                is_compared = server.name in (*self._row.unit_of, *KCAST)
                if not is_wanted(server.name) or (number and not is_compared):
                    continue
                with self._turn(server):
                    known = rates.setdefault(server.name, [])
                    known.append(server.highest_rate(self._bench.search_seconds, middle(known)))
        for name, found in rates.items():
            if name in self._result.subjects:
                per_s = median(found) * self._row.workload.fan_out
                self._result.subjects[name].highest_per_s = per_s
                self._bench.report(f"{self._row.name}: {name} sustains {per_s:,.0f} copies/s")

    def _times(self, count: int) -> int:
        return max(1, round(count * self._row.rounds_share))

    def go_round(self, unit: float) -> None:
        """Measures all servers at all loads, with another one first in each round."""
        rounds = self._times(self._bench.rounds)
        loads = list(self._row.loads.items())
        for number in range(rounds):
            self._bench.report(f"{self._row.name}: round {number + 1} of {rounds}")
            servers = rotated(self._servers, number)
            if self._are_all_ready:
                turns = [(server, [load]) for load in loads for server in servers]
            else:
                turns = [(server, loads) for server in servers]
            for server, some in turns:
                if server not in self._servers:
                    continue
                with self._turn(server):
                    for label, factor in some:
                        found = figures_of(server.trial(factor * unit, self._bench.seconds))
                        self._result.subjects[server.name].loads.setdefault(label, []).append(found)

    @contextmanager
    def _turn(self, server: LoadedServer) -> Iterator[None]:
        """A server's turn. One that fails is left out, and has no figures in this row."""
        try:
            yield
        except Failed as error:
            self._servers.remove(server)
            server.end()
            self._result.subjects.pop(server.name, None)
            self._result.skipped[server.name] = str(error)
            self._bench.report(f"{server.name} is skipped in this row: {error}")
        if not self._are_all_ready:
            server.end()

    def note_complaints(self) -> None:
        """Notes which servers were started again, and why."""
        for server in self._servers:
            if server.complaints and server.name in self._result.subjects:
                note = f"started again {len(server.complaints)} times: {server.complaints[0]}"
                self._result.subjects[server.name].notes.append(note)


def figures_of(trial: Trial) -> Figures:
    """Returns a trial's figures."""
    p50, p99, p999 = percentiles(trial.latencies_us)
    found: Figures = {
        "server_us": trial.server_us,
        "load_us": trial.load_us,
        "share": trial.share_delivered,
        "copies_per_s": trial.copies_per_s,
        "p50_us": p50,
        "p99_us": p99,
        "p999_us": p999,
        "server_busy": trial.server_cpu_s / trial.elapsed_s,
        "load_busy": trial.load_cpu_s / trial.elapsed_s,
    }
    if trial.quiet_us:
        found["quiet_p50_us"], found["quiet_p99_us"], _ = percentiles(trial.quiet_us)
    return found
