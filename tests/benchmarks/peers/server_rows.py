"""Rows in which servers get the same load: how it is measured, in rounds that take turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tests.benchmarks.peers.bench import Bench, rotated
from tests.benchmarks.peers.kinds import Kind
from tests.benchmarks.peers.latencies import percentiles
from tests.benchmarks.peers.loaded import LoadedServer
from tests.benchmarks.peers.results import Figures, RowResult, Subject
from tests.benchmarks.peers.session import Failed
from tests.benchmarks.peers.trial import Trial
from tests.benchmarks.peers.workloads import Workload

SPARE_DESCRIPTORS = 500


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
        needed = (self.workload.subscriber_count + 1) * len(kinds) + SPARE_DESCRIPTORS
        if needed > bench.descriptors:
            why = f"it needs {needed:,} open files, and this process may have {bench.descriptors:,}"
            result.skipped = {kind.name: why for kind in kinds}
            return result
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
            self._start(servers, result, bench)
            unit = self._find_unit(servers, result, bench)
            rounds = max(1, round(bench.rounds * self.rounds_share))
            for number in range(rounds if unit else 0):
                bench.report(f"{self.name}: round {number + 1} of {rounds}")
                for label, factor in self.loads.items():
                    for server in rotated(servers, number):
                        self._try(server, servers, result, bench, label, factor * unit)
            for server in servers:
                if server.complaints:
                    notes = result.subjects[server.name].notes
                    notes.append(f"started again {len(server.complaints)} times: {server.complaints[0]}")
        return result

    def _start(self, servers: list[LoadedServer], result: RowResult, bench: Bench) -> None:
        """Starts all; those that fail are left out."""
        for server in list(servers):
            try:
                server.start()
            except Failed as error:
                _leave_out(server, servers, result, bench, error)
            else:
                result.subjects[server.name] = Subject()

    def _find_unit(self, servers: list[LoadedServer], result: RowResult, bench: Bench) -> float:
        """Returns the rate that is the load 1, in messages a second; 0 if there is no server."""
        fan_out = self.workload.fan_out
        has_unit = any(server.name in self.unit_of for server in servers)
        for server in list(servers):
            if not (self.finds_highest or server.name in self.unit_of or not has_unit):
                continue
            try:
                rate = server.highest_rate(bench.search_seconds)
            except Failed as error:
                _leave_out(server, servers, result, bench, error)
                continue
            result.subjects[server.name].highest_per_s = rate * fan_out
            bench.report(f"{self.name}: {server.name} sustains {rate * fan_out:,.0f} copies/s")
        found = {name: each.highest_per_s for name, each in result.subjects.items() if each.highest_per_s}
        named = [per_s for name, per_s in found.items() if name in self.unit_of and per_s]
        result.unit_per_s = max(named or [per_s for per_s in found.values() if per_s], default=None)
        return (result.unit_per_s or 0.0) / fan_out

    def _try(
        self,
        server: LoadedServer,
        servers: list[LoadedServer],
        result: RowResult,
        bench: Bench,
        label: str,
        rate: float,
    ) -> None:
        if server not in servers:
            return
        try:
            found = server.trial(rate, bench.seconds)
        except Failed as error:
            _leave_out(server, servers, result, bench, error)
            return
        result.subjects[server.name].loads.setdefault(label, []).append(figures_of(found))


def _leave_out(
    server: LoadedServer, servers: list[LoadedServer], result: RowResult, bench: Bench, error: Failed
) -> None:
    """Ends a server that fails. There are no figures of it in this row, not even of what went well."""
    servers.remove(server)
    server.end()
    result.subjects.pop(server.name, None)
    result.skipped[server.name] = str(error)
    bench.report(f"{server.name} is skipped in this row: {error}")


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
