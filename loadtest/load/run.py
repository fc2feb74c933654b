"""Runs scenarios, one after the other.

    servers -> users get ready -> load, with faults -> users end -> servers end -> taps -> results

The capture is kept whatever happens; its status says if a scenario was not finished. Nothing outlives this
process: servers and users end with their `with` blocks, and by themselves if this process is killed.
"""

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kcast.client.cli.common import count_of
from kcast.client.cluster import format_cluster
from kcast.loadtest.capture.folder import RunFolder, ScenarioFolder, Status
from kcast.loadtest.capture.taps import convert, msg_ids_by_digest, owners_by_port
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.clusters.backends import open_servers
from kcast.loadtest.clusters.foreign import ForeignServers
from kcast.loadtest.clusters.servers import UNLIMITED, Servers
from kcast.loadtest.load.locusts import Locusts
from kcast.loadtest.load.report import headline
from kcast.loadtest.load.server_watch import ServerWatch
from kcast.loadtest.load.view import Watcher
from kcast.loadtest.load.wanted_width import WantedWidth
from kcast.loadtest.results.summary import Summary, summarise
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.errors import KcastError

_TAP_MARGIN_NS = 10_000_000_000  # before the load begins and after it ends, messages are converted, too


class LoadFailed(KcastError, RuntimeError):
    """A scenario could not be finished; the message says why."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings that are the same for all scenarios of a run."""

    workers: int = 1
    image: str = "kcast"
    cluster: str = ""
    """The cluster file, or context, of servers that someone else runs."""


def run_all(
    run: RunFolder,
    scenarios: Sequence[Scenario],
    settings: RunSettings,
    watcher: Watcher,
    results: dict[str, Summary],
    width: WantedWidth | None = None,
) -> None:
    """Runs scenarios one after the other, and adds the summary of each to `results`, by name.

    With `width`, a scenario is run again for longer while its interval is wider than that.

    Raises LoadFailed, ServerFailed, EngineMissing, LocustFailed, CaptureError and OSError, after writing the
    status into the run's folder.
    """
    try:
        for number, scenario in enumerate(scenarios, 1):
            watcher.begin(scenario, number, len(scenarios))
            summary = run_one(run.begin(scenario.name), settings, watcher)
            while width is not None and (longer := width.next_try(summary)) is not None:
                watcher.end(headline(summary))
                watcher.say(width.why(summary, longer))
                watcher.begin(longer, number, len(scenarios))
                summary = run_one(run.begin_anew(longer), settings, watcher)
            results[scenario.name] = summary
            watcher.end(headline(summary))
    except BaseException as error:
        status, reason = _how_it_ended(error)
        run.finish(status, reason=reason)
        raise
    run.finish("complete")


def run_one(folder: ScenarioFolder, settings: RunSettings, watcher: Watcher) -> Summary:
    """Runs a scenario, and captures it in its folder. Raises as `run_all` does."""
    try:
        _measure(folder, settings, watcher)
        watcher.phase("computing results")
        summary = summarise(folder, "complete")
    except BaseException as error:
        status, reason = _how_it_ended(error)
        folder.finish(status, reason=reason)
        raise
    folder.finish("complete", results=summary.as_json())
    return summary


def _measure(folder: ScenarioFolder, settings: RunSettings, watcher: Watcher) -> None:
    """Starts servers, runs users until they end, and writes the capture."""
    scenario = folder.scenario
    with ExitStack() as stack:
        writer = CaptureWriter(folder.path, "load")
        stack.callback(writer.close)
        tap_dir = Path(stack.enter_context(TemporaryDirectory(prefix="_taps-", dir=folder.path)))
        servers = _servers(scenario, settings, tap_dir, watcher)
        stack.callback(_keep_logs, folder, servers)
        stack.enter_context(servers)
        folder.update(servers=list(servers.names), server_keys=list(servers.keys))
        watcher.phase("starting users")
        with ServerWatch(servers, scenario, writer) as watch:
            t0_ns = _follow_users(folder, servers, watch, settings, watcher)
        if shortfall := watch.shortfall():
            watcher.say(shortfall)
        watcher.phase("ending servers")
        servers.stop()
        watcher.phase("reading taps")
        _convert_taps(folder, servers, writer, t0_ns)
        writer.close()
        if writer.failure is not None:
            raise LoadFailed(f"the capture cannot be written: {writer.failure}")


def _servers(scenario: Scenario, settings: RunSettings, tap_dir: Path, watcher: Watcher) -> Servers:
    if scenario.backend == "file":
        servers = ForeignServers(settings.cluster)
        if len(servers) != scenario.servers:
            raise LoadFailed(
                f"{settings.cluster} has {count_of(len(servers), 'server')}, and the run began with "
                f"{scenario.servers:,}: begin another run"
            )
        return servers
    watcher.phase(f"starting {count_of(scenario.servers, 'server')}")
    return open_servers(
        *(scenario.backend, scenario.servers),
        ttl_s=scenario.ttl_s,
        options=UNLIMITED,
        tap_dir=tap_dir,
        image=settings.image,
    )


def _keep_logs(folder: ScenarioFolder, servers: Servers) -> None:
    """Keeps what servers have logged, if anything: one may have failed."""
    said = [f"== {key}\n{log}" for key, log in servers.logs().items() if log]
    if said:
        with suppress(OSError):  # a full disk is reported elsewhere
            (folder.path / "_servers.log").write_text("".join(said))


def _follow_users(
    folder: ScenarioFolder, servers: Servers, watch: ServerWatch, settings: RunSettings, watcher: Watcher
) -> int:
    """Runs users until they end. Returns the time at which the load began, in ns of the monotonic clock."""
    scenario_file, cluster_file = folder.path / "_scenario.json", folder.path / "_servers.cluster"
    scenario_file.write_text(json.dumps(folder.scenario.as_json()))
    cluster_file.write_text(format_cluster(servers.cluster(folder.scenario.policy)))
    t0_ns = 0
    with Locusts(
        *(scenario_file, cluster_file, folder.path),
        log=folder.path / "_locust.log",
        workers=settings.workers,
    ) as users:
        for progress in users.records():
            watch.check()
            if progress is None:
                continue
            if progress["error"]:
                raise LoadFailed(progress["error"])
            watcher.progress(progress)
            if not t0_ns and progress["t0_ns"]:
                t0_ns = progress["t0_ns"]
                folder.update(t0_ns=t0_ns)
                watch.begin_faults(t0_ns)
    if not t0_ns:
        raise LoadFailed("users ended before the load began")
    return t0_ns


def _convert_taps(folder: ScenarioFolder, servers: Servers, writer: CaptureWriter, t0_ns: int) -> None:
    members = owners_by_port(folder.read("member"))
    msg_ids = msg_ids_by_digest(folder.read("publish", ["msg_id", "digest"]))
    for server_id, paths in enumerate(servers.taps):
        convert(
            *(paths, server_id, members, msg_ids, writer),
            t_from_ns=t0_ns - _TAP_MARGIN_NS,
            t_to_ns=time.monotonic_ns() + _TAP_MARGIN_NS,
        )


def _how_it_ended(error: BaseException) -> tuple[Status, str]:
    if isinstance(error, KeyboardInterrupt):
        return "partial", "stopped by Ctrl-C or SIGTERM"
    return "failed", str(error) or type(error).__name__
