"""Watches servers while users run: makes real outages at their times, and writes figures each second.

Isolation is not handled here: clients do it, and the coordinator of the users writes its outages.
"""

import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.clusters.servers import Servers
from kcast.loadtest.faults.outage_driver import OutageDriver
from kcast.loadtest.faults.plan import outages
from kcast.loadtest.scenario import BY_CLIENTS, Scenario

EVERY_S = 1.0


class ServerWatch:
    """Samples servers, and makes outages from `begin_faults` on; use it with `with`.

    All servers run again at the end of the `with` block, unless that ends with an exception.
    """

    def __init__(self, servers: Servers, scenario: Scenario, writer: CaptureWriter) -> None:
        self._servers = servers
        self._scenario = scenario
        self._writer = writer
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._conductor: OutageDriver | None = None
        self._is_over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._write_figures, name="server figures", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            self._write_outages()

    def begin_faults(self, t0_ns: int) -> None:
        """Starts the outages of a load that begins at `t0_ns` of the monotonic clock."""
        scenario = self._scenario
        if scenario.by in BY_CLIENTS or scenario.outages == "none":
            return
        self._conductor = OutageDriver(self._servers, outages(scenario), scenario.by, t0_ns, lock=self._lock)
        self._stack.enter_context(self._conductor)

    def check(self) -> None:
        """Raises the error if something has gone wrong meanwhile."""
        failure = self._failure or (self._conductor.failure if self._conductor else None)
        if failure is not None:
            raise failure

    def shortfall(self) -> str:
        """Says how many planned outages did not happen; "" if all did. Call it after the end."""
        missed = len(self._conductor.missed()) if self._conductor else 0
        if not missed:
            return ""
        return (
            f"{missed} of {len(outages(self._scenario))} planned outages did not happen, since servers took "
            f"too long to start again: give an --epoch longer than {self._scenario.epoch_s:g} s"
        )

    def _write_outages(self) -> None:
        happened = self._conductor.take() if self._conductor else []
        if happened:
            self._writer.append(
                "outage",
                {
                    "server_id": [outage.server for outage in happened],
                    "epoch": [outage.epoch for outage in happened],
                    "t_down_ns": [outage.t_down_ns for outage in happened],
                    "t_up_ns": [outage.t_up_ns for outage in happened],
                    "kind": [outage.kind for outage in happened],
                    "plan": [self._scenario.outages] * len(happened),
                },
            )

    def _write_figures(self) -> None:
        due = time.monotonic()
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            due = max(due + EVERY_S, time.monotonic())
            try:
                with self._lock:
                    t_ns, stats = time.monotonic_ns(), self._servers.stats()
            except Exception as error:  # raised again by `check`
                self._failure = error
                return
            self._writer.append(
                "server_stat",
                {
                    "server_id": list(range(len(stats))),
                    "t_ns": [t_ns] * len(stats),
                    "cpu_ns": [stat.cpu_ns for stat in stats],
                    "rss_bytes": [stat.rss_bytes for stat in stats],
                    "kernel_drops": [stat.kernel_drops for stat in stats],
                    "queue_bytes": [stat.queue_bytes for stat in stats],
                },
            )
