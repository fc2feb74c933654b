"""The course of a load test: for each scenario servers up, users on them, faults, taps, results.

    servers -> users get ready -> load, with faults -> users end -> servers end -> taps -> results

What was recorded is kept whatever happens: a scenario that was not finished says so in its folder. Nothing
that was started outlives it: servers and users end with their `with`, and by themselves if this process does.
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
from kcast.loadtest.clusters.servers import Servers
from kcast.loadtest.load.locusts import Locusts
from kcast.loadtest.load.report import headline
from kcast.loadtest.load.server_watch import ServerWatch
from kcast.loadtest.load.view import Watcher
from kcast.loadtest.results.summary import Summary, summarise
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.errors import KcastError

# Whatever a load test does, it is not refused.
SERVER_OPTIONS = (
    *("--publish-rate", "0", "--copy-rate", "0", "--challenge-rate", "0"),
    *("--capacity", "10000000", "--topics", "10000000"),
    *("--leases-per-address", "10000000", "--leases-per-prefix", "10000000"),
)

_TAP_MARGIN_NS = 10_000_000_000  # before the load begins, and after it has ended


class LoadFailed(KcastError, RuntimeError):
    """A scenario could not be run to its end; the message says why."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How scenarios are run, whatever they are."""

    workers: int = 1
    image: str = "kcast"
    master_port: int = 0


def run_all(
    run: RunFolder,
    scenarios: Sequence[Scenario],
    settings: RunSettings,
    watcher: Watcher,
    results: dict[str, Summary],
) -> None:
    """Runs scenarios one after the other; `results` gets what came of each, by its name.

    Raises LoadFailed, ServerFailed, EngineMissing, LocustFailed, CaptureError and OSError; the run's folder
    then says how far it came.
    """
    try:
        for number, scenario in enumerate(scenarios, 1):
            watcher.begin(scenario, number, len(scenarios))
            results[scenario.name] = run_one(run.begin(scenario.name), settings, watcher)
            watcher.end(headline(results[scenario.name]))
    except BaseException as error:
        status, reason = _how_it_ended(error)
        run.finish(status, reason=reason)
        raise
    run.finish("complete")


def run_one(place: ScenarioFolder, settings: RunSettings, watcher: Watcher) -> Summary:
    """Runs a scenario into its folder. Raises as `run_all` does."""
    try:
        _measure(place, settings, watcher)
        watcher.phase("summing up")
        summary = summarise(place)
    except BaseException as error:
        status, reason = _how_it_ended(error)
        place.finish(status, reason=reason)
        raise
    place.finish("complete", results=summary.as_json())
    return summary


def _measure(place: ScenarioFolder, settings: RunSettings, watcher: Watcher) -> None:
    """Servers up, users on them until they end, and all that was recorded."""
    scenario = place.scenario
    with ExitStack() as stack:
        writer = CaptureWriter(place.path, "load")
        stack.callback(writer.close)
        tap_dir = Path(stack.enter_context(TemporaryDirectory(prefix="_taps-", dir=place.path)))
        watcher.phase(f"starting {count_of(scenario.servers, 'server')}")
        servers = open_servers(
            *(scenario.backend, scenario.servers),
            ttl_s=scenario.ttl_s,
            options=SERVER_OPTIONS,
            tap_dir=tap_dir,
            image=settings.image,
        )
        stack.callback(_keep_logs, place, servers)
        stack.enter_context(servers)
        place.update(servers=list(servers.names), server_keys=list(servers.keys))
        watcher.phase("starting users")
        with ServerWatch(servers, scenario, writer) as watch:
            t0_ns = _follow_users(place, servers, watch, settings, watcher)
        if shortfall := watch.shortfall():
            watcher.say(shortfall)
        watcher.phase("ending servers")
        servers.stop()
        watcher.phase("reading taps")
        _convert_taps(place, servers, writer, t0_ns)
        writer.close()
        if writer.failure is not None:
            raise LoadFailed(f"the capture cannot be written: {writer.failure}")


def _keep_logs(place: ScenarioFolder, servers: Servers) -> None:
    """What servers have said, if anything: why one has ended by itself, say."""
    said = [f"== {key}\n{log}" for key, log in servers.logs().items() if log]
    if said:
        with suppress(OSError):  # why the disk cannot be written is told elsewhere
            (place.path / "_servers.log").write_text("".join(said))


def _follow_users(
    place: ScenarioFolder, servers: Servers, watch: ServerWatch, settings: RunSettings, watcher: Watcher
) -> int:
    """Runs users until they end; when the load began."""
    scenario_file, cluster_file = place.path / "_scenario.json", place.path / "_servers.cluster"
    scenario_file.write_text(json.dumps(place.scenario.as_json()))
    cluster_file.write_text(format_cluster(servers.cluster(place.scenario.policy)))
    t0_ns = 0
    with Locusts(
        *(scenario_file, cluster_file, place.path),
        log=place.path / "_locust.log",
        workers=settings.workers,
        master_port=settings.master_port,
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
                place.update(t0_ns=t0_ns)  # for who follows
                watch.load_begins(t0_ns)
    if not t0_ns:
        raise LoadFailed("users ended before the load began")
    return t0_ns


def _convert_taps(place: ScenarioFolder, servers: Servers, writer: CaptureWriter, t0_ns: int) -> None:
    members = owners_by_port(place.read("member"))
    msg_ids = msg_ids_by_digest(place.read("publish", ["msg_id", "digest"]))
    for server_id, paths in enumerate(servers.taps):
        convert(
            *(paths, server_id, members, msg_ids, writer),
            t_from_ns=t0_ns - _TAP_MARGIN_NS,
            t_to_ns=time.monotonic_ns() + _TAP_MARGIN_NS,
        )


def _how_it_ended(error: BaseException) -> tuple[Status, str]:
    if isinstance(error, KeyboardInterrupt):
        return "partial", "stopped by Ctrl-C"
    return "failed", str(error) or type(error).__name__
