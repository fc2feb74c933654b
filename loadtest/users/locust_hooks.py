"""Connects the tests to locust: options, event listeners, and each process's part in the current test.

`register` is all that a locustfile has to call. An assignment is made where a test is started, and is sent
with locust's own message that starts users; so a worker has it before its first user.
"""

import logging
import os
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

import flask
import gevent
from locust import events, runners
from locust.env import Environment
from locust.exception import StopTest
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, Runner, WorkerRunner

from kcast.client.cluster import Cluster, ClusterError, format_cluster
from kcast.client.source import FileSource
from kcast.loadtest.capture.folder import CaptureError, RunFolder, ScenarioFolder, create_run
from kcast.loadtest.scenario import Scenario, ScenarioError
from kcast.loadtest.users import clocks, exact_times, messages, options
from kcast.loadtest.users.assignment import Assignment, cluster_source, read_cluster, read_scenario
from kcast.loadtest.users.coordinator import HERE, Coordinator
from kcast.loadtest.users.dispatch import FixedDispatcher
from kcast.loadtest.users.progress import ProgressPipe
from kcast.loadtest.users.roster import Kind
from kcast.loadtest.users.worker import Worker

EXIT_FAILURE = 1

_REPORT_INTERVAL_S = 1.0  # from workers to their master, in a fixed test
_POLL_S = 0.1
_LEAVE_S = 3.0  # for users to report that they have left
_END_TIMEOUT_S = 15  # for a process to end by itself once its starter is gone
_ASSIGNMENT = "kcast_assignment"  # among locust's options

logger = logging.getLogger(__name__)


def register() -> None:
    """Adds the options and listeners to locust. Call it once a process."""
    exact_times.apply()
    hooks: Any = events  # which have no types
    hooks.init_command_line_parser.add_listener(_add_arguments)
    hooks.init.add_listener(_init)


def worker_of(environment: Environment) -> Worker | None:
    """Returns this process's Worker in the current test; None if that could not begin."""
    return _hooks_by_environment[environment].worker


_hooks_by_environment: WeakKeyDictionary[Environment, "_Hooks"] = WeakKeyDictionary()
_progress_pipe: ProgressPipe | None = None


def _add_arguments(parser: ArgumentParser, **_: Any) -> None:
    own: Any = parser.add_argument_group("kcast")  # groups are not shown in the web UI
    own.add_argument(
        "--cluster",
        metavar="FILE|CONTEXT",
        help="The cluster file, or the name of a context, which workers get from their master. Default: what "
        "KCAST_CLUSTER names, else the context in use.",
    )
    own.add_argument(
        "--capture", metavar="DIR", default="", help="Record everything in Parquet files in this new folder."
    )
    own.add_argument(
        "--scenario",
        metavar="FILE",
        default="",
        help="A whole test as JSON, as `kcast load` writes it: users, load, faults, duration.",
    )
    own.add_argument(
        "--progress-fd",
        type=_open_progress_pipe,
        metavar="N",
        default=-1,
        help="Write the progress of --scenario to this file descriptor, a JSON object a line; end when its "
        "other side is closed.",
    )
    options.add_arguments(parser)


def _open_progress_pipe(text: str) -> int:
    """Opens the pipe while options are parsed, since a worker may wait long for its master before `_init`."""
    global _progress_pipe
    if _progress_pipe is None:
        try:
            _progress_pipe = ProgressPipe(int(text))
        except (ValueError, OSError) as error:
            raise ArgumentTypeError(f"{text}: not an open descriptor ({error})") from None
        gevent.spawn(_watch_progress_pipe, _progress_pipe)
    return int(text)


def _watch_progress_pipe(progress_pipe: ProgressPipe) -> None:
    while not progress_pipe.is_closed:
        gevent.sleep(_POLL_S)
    logger.error("the process that started this test is gone: the test ends")
    if not any(hooks.has_begun for hooks in _hooks_by_environment.values()):
        os._exit(EXIT_FAILURE)  # a master that waits for its workers ignores `quit`
    signal.alarm(_END_TIMEOUT_S)
    for hooks in _hooks_by_environment.values():
        hooks.end_locust("its starter is gone")


def _init(environment: Environment, runner: Runner, web_ui: Any = None, **_: Any) -> None:
    gevent.signal_handler(signal.SIGINT, _interrupt)
    gevent.get_hub().loop.update_now()  # or locust's --run-time begins when the loop last ran: before imports
    _hooks_by_environment[environment] = hooks = _Hooks(environment, runner)
    if web_ui is not None:
        environment.host = environment.host or hooks.host  # or the page warns that there is none
        web_ui.app.before_request(hooks.check_form)


def _interrupt() -> None:
    """Raises KeyboardInterrupt in locust's main greenlet, which expects it.

    Python would raise it in whichever greenlet runs: many would survive it, or die in the middle of
    something.
    """
    gevent.get_hub().handle_system_error(KeyboardInterrupt, KeyboardInterrupt())


class _Hooks:
    """Locust's listeners in one process. Tests run one after the other."""

    def __init__(self, environment: Any, runner: Runner) -> None:
        self.worker: Worker | None = None
        self._coordinator: Coordinator | None = None
        self._environment = environment
        self._events = environment.events
        self._options = environment.parsed_options
        self._runner = runner
        self._is_fixed = bool(self._options.scenario)
        self._tests = 0
        self._is_interrupted = False
        self._run: RunFolder | None = None
        self._scenario_folder: ScenarioFolder | None = None
        self._endings: list[tuple[gevent.Greenlet, Callable[[], None]]] = []
        if not isinstance(runner, WorkerRunner):
            scenario = self._check_options()
            if self._is_fixed:
                self._prepare_fixed(scenario)
        if self._is_fixed:
            # A fixed test counts misses; they are no failure of the run.
            environment.process_exit_code = 0
            runners.WORKER_REPORT_INTERVAL = _REPORT_INTERVAL_S
        if isinstance(runner, MasterRunner):
            self._await_last_reports(runner)
        self._register_messages()
        self._events.test_start.add_listener(self._test_start)
        self._events.test_stopping.add_listener(self._test_stopping)
        self._events.test_stop.add_listener(self._test_stop)
        self._events.quitting.add_listener(self._quitting)
        self._events.quit.add_listener(self._quit)

    @property
    def has_begun(self) -> bool:
        """True if there has been a test here, and so perhaps something to write."""
        return self.worker is not None or self._coordinator is not None

    def _check_options(self) -> Scenario:
        """Returns the scenario; exits with a message if options are wrong, before anything is started."""
        capture = Path(self._options.capture)
        is_begun = (capture / "scenario.json").exists()
        if self._options.capture and not is_begun and (capture.is_file() or any(capture.glob("*"))):
            sys.exit(f"kcast: {capture} is not empty: give another --capture")
        if self._is_fixed and not self._options.headless:
            sys.exit("kcast: a test with --scenario ends by itself: add --headless")
        try:
            return read_scenario(self._options, read_cluster(self._options))
        except (ScenarioError, ClusterError) as error:
            sys.exit(f"kcast: {error}")

    @property
    def host(self) -> str:
        """What stands for the cluster file on locust's page and in its reports, which ask for a URL."""
        source = cluster_source(self._options)
        return f"kcast://{quote(source.path.name if isinstance(source, FileSource) else source.name)}"

    def check_form(self) -> Any:
        """Answers a request to the web UI that would start a test with wrong options; None for all others."""
        if flask.request.method != "POST" or not flask.request.path.endswith("/swarm"):
            return None
        form = flask.request.form
        given = vars(self._options).copy()
        try:
            if form.get("host", self._environment.host) != self._environment.host:
                name = cluster_source(self._options).name
                raise ScenarioError(
                    f"the cluster is that of {name}: for another one, start locust with another --cluster"
                )
            given |= options.read_form(form)
            read_scenario(Namespace(**given), read_cluster(self._options))
        except (ValueError, OSError) as error:
            return flask.jsonify(
                {"success": False, "message": f"kcast: {error}", "host": self._environment.host}
            )
        return None

    def _prepare_fixed(self, scenario: Scenario) -> None:
        """Makes locust start exactly the users of the scenario."""
        counts: dict[Kind, int] = {
            "Publisher": scenario.publishers,
            "Subscriber": scenario.subscribers,
            "Mixed": scenario.mixed,
        }
        chosen = []
        for kind, count in counts.items():
            kinds = [each for each in self._environment.user_classes if getattr(each, "kind", "") == kind]
            if count and not kinds:
                sys.exit(f"kcast: {self._options.scenario} needs the user class {kind}: name it, too")
            if count:
                kinds[0].fixed_count = count
                chosen.append(kinds[0])
        self._environment.user_classes[:] = chosen
        self._environment.dispatcher_class = FixedDispatcher
        self._options.num_users = sum(counts.values())
        self._options.spawn_rate = 1.0  # required by locust, and not used
        self._options.only_summary = True

    # --- Messages ------------------------------------------------------------------------------------

    def _register_messages(self) -> None:
        if not isinstance(self._runner, WorkerRunner):
            for kind in messages.TO_COORDINATOR:
                self._runner.register_message(kind, self._coordinator_receives)
            self._events.worker_report.add_listener(self._worker_report)
        if not isinstance(self._runner, MasterRunner):
            for kind in messages.TO_WORKERS:
                self._runner.register_message(kind, self._worker_receives)
        if isinstance(self._runner, WorkerRunner):
            self._events.report_to_master.add_listener(self._report_to_master)

    def _coordinator_receives(self, environment: Environment, msg: Any, **_: Any) -> None:
        if self._coordinator is not None:
            self._coordinator.receive(msg.type, msg.data, msg.node_id)

    def _worker_receives(self, environment: Environment, msg: Any, **_: Any) -> None:
        if self.worker is not None:
            self.worker.receive(msg.type, msg.data)

    def _send_to_workers(self, kind: str, data: dict[str, Any], node: str | None) -> None:
        self._runner.send_message(kind, data, client_id=node)

    def _report_to_master(self, data: dict[str, Any], **_: Any) -> None:
        if self.worker is not None:
            data["kcast"] = self.worker.figures()

    def _worker_report(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        if self._coordinator is not None and "kcast" in data:
            self._coordinator.figures[client_id] = data["kcast"]

    # --- Tests ---------------------------------------------------------------------------------------

    def _test_start(self, **_: Any) -> None:
        self._await_endings()  # the capture of the previous test may still be being written
        self.worker = self._coordinator = None
        if isinstance(self._runner, WorkerRunner):
            assignment = getattr(self._options, _ASSIGNMENT, None)
            if assignment is not None:
                self._start_worker(Assignment.from_json(assignment), f"worker-{self._runner.worker_index}")
            return
        self._tests += 1
        setattr(self._options, _ASSIGNMENT, None)
        try:
            assignment = self._make_assignment()
        except (ScenarioError, ClusterError, CaptureError, OSError) as error:
            raise StopTest(f"the test cannot begin: {error}") from None
        setattr(self._options, _ASSIGNMENT, assignment.as_json())
        self._coordinator = Coordinator(
            assignment,
            self._environment.stats,
            send=self._send_to_workers,
            present=self._present,
            local_figures=lambda: self.worker.figures() if self.worker is not None else None,
            end_locust=self.end_locust,
            progress_pipe=_progress_pipe,
        )
        if isinstance(self._runner, LocalRunner):
            self._start_worker(assignment, HERE)

    def _make_assignment(self) -> Assignment:
        cluster = read_cluster(self._options, logger.warning)
        scenario = read_scenario(self._options, cluster)
        capture = ""
        if self._options.capture:
            # Absolute: workers may have another working directory.
            capture = str(self._open_capture(Path(self._options.capture).absolute(), scenario, cluster))
        return Assignment(
            number=self._tests,
            scenario=scenario,
            cluster=format_cluster(cluster),
            is_fixed=self._is_fixed,
            capture=capture,
            clock=clocks.clock_id(),
            t0_ns=0 if self._is_fixed else monotonic_ns(),
        )

    def _open_capture(self, path: Path, scenario: Scenario, cluster: Cluster) -> Path:
        """Returns the folder for the test's rows: `path` if that is a scenario's, or one in a new run."""
        if (path / "scenario.json").exists():
            return path
        if self._tests > 1:
            path = path.with_name(f"{path.name}-{self._tests}")
        self._run = create_run(path, [scenario], seed=scenario.seed, command=sys.argv)
        self._scenario_folder = self._run.begin(scenario.name)
        servers = cluster.servers
        self._scenario_folder.update(
            servers=[server.name for server in servers], server_keys=[server.key for server in servers]
        )
        return self._scenario_folder.path

    def _start_worker(self, assignment: Assignment, process: str) -> None:
        self.worker = Worker(assignment, process, self._runner.send_message, self._report_miss)

    def _report_miss(self, problem: Exception) -> None:
        self._events.request.fire(
            request_type="MISS",
            name="message",
            response_time=None,
            response_length=0,
            exception=problem,
            context={},
        )

    def _present(self) -> set[str]:
        if not isinstance(self._runner, MasterRunner):
            return {HERE}
        return {client.id for client in self._runner.clients.all if client.state != STATE_MISSING}

    # --- The end -------------------------------------------------------------------------------------

    def _test_stopping(self, **_: Any) -> None:
        if self.worker is not None:
            self.worker.is_stopping = True
        if self._coordinator is not None:
            self._coordinator.stop()

    def _test_stop(self, **_: Any) -> None:
        end = partial(self._end_test, self._coordinator, self.worker, self._run, self._scenario_folder)
        self._endings.append((gevent.spawn(end), end))
        self._run = self._scenario_folder = None
        if isinstance(self._runner, WorkerRunner):
            self._await_endings()  # locust sends its last report to the master after this

    def _await_last_reports(self, master: MasterRunner) -> None:
        """Makes a master receive until tests have ended: locust allows workers 0.5 s for a last report."""
        greenlets: Any = master.greenlet
        kill = greenlets.kill

        def wait_and_kill(*arguments: Any, **options: Any) -> None:
            self._await_endings()
            kill(*arguments, **options)

        greenlets.kill = wait_and_kill

    def _await_endings(self) -> None:
        for greenlet, end in self._endings:
            greenlet.join()
            if not greenlet.successful():  # Ctrl-C may have ended it
                end()
        self._endings.clear()

    def _end_test(
        self,
        coordinator: Coordinator | None,
        worker: Worker | None,
        run: RunFolder | None,
        scenario_folder: ScenarioFolder | None,
    ) -> None:
        if worker is not None:
            worker.end()
        if coordinator is not None:
            # Locust's master calls this before its workers know that the test is over.
            give_up_ns = monotonic_ns() + round(_LEAVE_S * 1e9)
            while not coordinator.is_complete and monotonic_ns() < give_up_ns:
                gevent.sleep(_POLL_S)
            coordinator.end()
            reason = coordinator.error or coordinator.capture_failure
            if not reason and not coordinator.is_complete:
                reason = "not all locust workers have reported that their capture is written"
            if not reason and self._is_early(coordinator):
                reason = "ended before its time"
            for folder in (scenario_folder, run):
                if folder is not None:
                    folder.finish("partial" if reason else "complete", reason=reason)

    def _is_early(self, coordinator: Coordinator) -> bool:
        if coordinator.assignment.is_fixed:
            return coordinator.phase != "done"
        has_run_time = self._options.headless and self._options.run_time
        return bool(has_run_time and self._is_interrupted)  # else it ends by hand: always in time

    def _quitting(self, **_: Any) -> None:
        """Notes whether a signal ends locust while a test runs: after --run-time, the test ends first."""
        if self._coordinator is not None and self._coordinator.stopped_ns is None:
            self._is_interrupted = True

    def _quit(self, **_: Any) -> None:
        """Called by locust before it ends the process."""
        self._await_endings()

    def end_locust(self, error: str) -> None:
        """Ends locust, and all workers if this is the master: well, or because of an error.

        The web UI goes on: there, only the test ends, and the error is on the page.
        """
        if self._is_fixed:
            self._environment.process_exit_code = EXIT_FAILURE if error else 0
        else:  # this makes locust end with its own exit code of failures
            self._runner.log_exception(HERE, error, error)
        gevent.spawn(self._runner.quit if self._options.headless else self._runner.stop)
