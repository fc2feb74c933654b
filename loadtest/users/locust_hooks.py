"""Where locust and the tests meet: options, listeners, and what each process has of the test that is on.

`register` is all that a locustfile has to call. An order is made where a test is started, and travels with
locust's own word to spawn users; so a worker has it before its first user.
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
from weakref import WeakKeyDictionary

import flask
import gevent
from locust import events, runners
from locust.env import Environment
from locust.exception import StopTest
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, Runner, WorkerRunner

from kcast.client.cluster import Cluster, ClusterError, format_cluster
from kcast.loadtest.capture.folder import CaptureError, RunFolder, ScenarioFolder, create_run
from kcast.loadtest.scenario import Scenario, ScenarioError
from kcast.loadtest.users import clocks, exact_times, messages, options
from kcast.loadtest.users.assignment import Order, read_cluster, read_scenario
from kcast.loadtest.users.coordinator import HERE, Leader
from kcast.loadtest.users.dispatch import FixedDispatcher
from kcast.loadtest.users.progress import Leash
from kcast.loadtest.users.roster import Kind
from kcast.loadtest.users.worker import Crew

EXIT_FAILURE = 1

_REPORT_INTERVAL_S = 1.0  # of workers to their master, in a fixed test
_LEASH_EVERY_S = 0.1
_LEAVE_S = 2.0  # for users to say that they are gone
_EARLY_S = 2.0  # locust's own clock begins somewhat before t0
_END_ALARM_S = 15  # for a process that cannot end in order when its owner has gone
_ORDER = "kcast_order"  # among locust's options

logger = logging.getLogger(__name__)


def register() -> None:
    """Has locust know all options, and tell what happens. Once a process."""
    exact_times.apply()
    hooks: Any = events  # which have no types
    hooks.init_command_line_parser.add_listener(_add_arguments)
    hooks.init.add_listener(_init)


def crew_of(environment: Environment) -> Crew | None:
    """The users of this process in the test that is on; None where it could not be begun."""
    return _stages[environment].crew


_stages: WeakKeyDictionary[Environment, "_Stage"] = WeakKeyDictionary()
_leash: Leash | None = None


def _add_arguments(parser: ArgumentParser, **_: Any) -> None:
    own: Any = parser.add_argument_group("kcast")  # groups are not shown in the web UI
    own.add_argument(
        "--cluster",
        metavar="FILE",
        default="",
        env_var="KCAST_CLUSTER",
        help="The cluster file; workers have it from their master. By default what KCAST_CLUSTER names.",
    )
    own.add_argument(
        "--capture", metavar="DIR", default="", help="Record all that happens, as Parquet files."
    )
    own.add_argument(
        "--scenario",
        metavar="FILE",
        default="",
        help="A test as JSON, as `kcast load` writes it: how many users do what, and when it ends.",
    )
    own.add_argument(
        "--progress-fd",
        type=_take_leash,
        metavar="N",
        default=-1,
        help="Tell the progress of --scenario to this descriptor, a JSON object a line; end when it closes.",
    )
    options.add_arguments(parser)


def _take_leash(text: str) -> int:
    """Watches the descriptor from now on: a worker may wait for its master long before locust calls us."""
    global _leash
    if _leash is None:
        try:
            _leash = Leash(int(text))
        except (ValueError, OSError) as error:
            raise ArgumentTypeError(f"{text}: not an open descriptor ({error})") from None
        gevent.spawn(_watch_leash, _leash)
    return int(text)


def _watch_leash(leash: Leash) -> None:
    while not leash.is_cut:
        gevent.sleep(_LEASH_EVERY_S)
    logger.error("nobody follows this test any more: it ends")
    if not any(stage.has_begun for stage in _stages.values()):
        os._exit(EXIT_FAILURE)  # a master that waits for its workers would wait on
    signal.alarm(_END_ALARM_S)
    for stage in _stages.values():
        stage.end_locust(EXIT_FAILURE)


def _init(environment: Environment, runner: Runner, web_ui: Any = None, **_: Any) -> None:
    gevent.signal_handler(signal.SIGINT, _interrupt)
    _stages[environment] = stage = _Stage(environment, runner)
    if web_ui is not None:
        web_ui.app.before_request(stage.check_form)


def _interrupt() -> None:
    """Ctrl-C is for locust's main greenlet, which waits for it.

    Python would give it to whichever greenlet runs, and many survive it, or die in the middle of something.
    """
    gevent.get_hub().handle_system_error(KeyboardInterrupt, KeyboardInterrupt())


class _Stage:
    """What a process has of tests, one after the other."""

    def __init__(self, environment: Any, runner: Runner) -> None:
        self.crew: Crew | None = None
        self._leader: Leader | None = None
        self._environment = environment
        self._hooks = environment.events
        self._options = environment.parsed_options
        self._runner = runner
        self._is_fixed = bool(self._options.scenario)
        self._tests = 0
        self._run: RunFolder | None = None
        self._place: ScenarioFolder | None = None
        self._endings: list[tuple[gevent.Greenlet, Callable[[], None]]] = []
        if not isinstance(runner, WorkerRunner):
            scenario = self._check_options()
            if self._is_fixed:
                self._prepare_fixed(scenario)
        if self._is_fixed:
            # Misses are what a fixed test counts, not what it fails by.
            environment.process_exit_code = 0
            runners.WORKER_REPORT_INTERVAL = _REPORT_INTERVAL_S
        self._register_words()
        self._hooks.test_start.add_listener(self._test_start)
        self._hooks.test_stopping.add_listener(self._test_stopping)
        self._hooks.test_stop.add_listener(self._test_stop)
        self._hooks.quit.add_listener(self._quit)

    @property
    def has_begun(self) -> bool:
        """Whether there has been a test here, and so perhaps something to be written."""
        return self.crew is not None or self._leader is not None

    def _check_options(self) -> Scenario:
        """Says what is wrong with the options, and ends, before anything is started."""
        capture = Path(self._options.capture)
        is_begun = (capture / "scenario.json").exists()
        if self._options.capture and not is_begun and (capture.is_file() or any(capture.glob("*"))):
            sys.exit(f"kcast: {capture}: there is something already: give another --capture")
        if self._is_fixed and not self._options.headless:
            sys.exit("kcast: --scenario ends by itself: give --headless, too")
        try:
            return read_scenario(self._options, read_cluster(self._options))
        except (ScenarioError, ClusterError) as error:
            sys.exit(f"kcast: {error}")

    def check_form(self) -> Any:
        """Before a request to the web UI: an answer to one that would start a test with wrong options."""
        if flask.request.method != "POST" or not flask.request.path.endswith("/swarm"):
            return None
        given = vars(self._options).copy()
        try:
            for option in options.OPTIONS:
                text = flask.request.form.get(option.field)
                if option.in_locust and option.type is not bool and text is not None:
                    given[option.field] = option.type(text)
            read_scenario(Namespace(**given), read_cluster(self._options))
        except (ValueError, OSError) as error:
            return flask.jsonify(
                {"success": False, "message": f"kcast: {error}", "host": self._environment.host}
            )
        return None

    def _prepare_fixed(self, scenario: Scenario) -> None:
        """Locust shall spawn just the users of the scenario."""
        counts: dict[Kind, int] = {
            "Publisher": scenario.publishers,
            "Subscriber": scenario.subscribers,
            "Mixed": scenario.mixed,
        }
        chosen = []
        for kind, count in counts.items():
            kinds = [each for each in self._environment.user_classes if getattr(each, "kind", "") == kind]
            if count and not kinds:
                sys.exit(f"kcast: {self._options.scenario} has users of the kind {kind}: add that class")
            if count:
                kinds[0].fixed_count = count
                chosen.append(kinds[0])
        self._environment.user_classes[:] = chosen
        self._environment.dispatcher_class = FixedDispatcher
        self._options.num_users = sum(counts.values())
        self._options.spawn_rate = 1.0  # which nobody looks at
        self._options.only_summary = True

    # --- Words ---------------------------------------------------------------------------------------

    def _register_words(self) -> None:
        if not isinstance(self._runner, WorkerRunner):
            for word in messages.TO_LEADER:
                self._runner.register_message(word, self._leader_hears)
            self._hooks.worker_report.add_listener(self._worker_report)
        if not isinstance(self._runner, MasterRunner):
            for word in messages.TO_CREW:
                self._runner.register_message(word, self._crew_hears)
        if isinstance(self._runner, WorkerRunner):
            self._hooks.report_to_master.add_listener(self._report_to_master)

    def _leader_hears(self, environment: Environment, msg: Any, **_: Any) -> None:
        if self._leader is not None:
            self._leader.hear(msg.type, msg.data, msg.node_id)

    def _crew_hears(self, environment: Environment, msg: Any, **_: Any) -> None:
        if self.crew is not None:
            self.crew.hear(msg.type, msg.data)

    def _send_to_crew(self, word: str, data: dict[str, Any], node: str | None) -> None:
        self._runner.send_message(word, data, client_id=node)

    def _report_to_master(self, data: dict[str, Any], **_: Any) -> None:
        if self.crew is not None:
            data["kcast"] = self.crew.figures()

    def _worker_report(self, client_id: str, data: dict[str, Any], **_: Any) -> None:
        if self._leader is not None and "kcast" in data:
            self._leader.figures[client_id] = data["kcast"]

    # --- Tests ---------------------------------------------------------------------------------------

    def _test_start(self, **_: Any) -> None:
        self._await_endings()  # of the test before, whose capture may still be written
        self.crew = self._leader = None
        if isinstance(self._runner, WorkerRunner):
            order = getattr(self._options, _ORDER, None)
            if order is not None:
                self._start_crew(Order.from_json(order), f"worker-{self._runner.worker_index}")
            return
        self._tests += 1
        setattr(self._options, _ORDER, None)
        try:
            order = self._make_order()
        except (ScenarioError, ClusterError, CaptureError, OSError) as error:
            raise StopTest(f"the test cannot begin: {error}") from None
        setattr(self._options, _ORDER, order.as_json())
        self._leader = Leader(
            order,
            self._environment.stats,
            send=self._send_to_crew,
            present=self._present,
            figures_here=lambda: self.crew.figures() if self.crew is not None else None,
            end_locust=self.end_locust,
            leash=_leash,
        )
        if isinstance(self._runner, LocalRunner):
            self._start_crew(order, HERE)

    def _make_order(self) -> Order:
        cluster = read_cluster(self._options)
        scenario = read_scenario(self._options, cluster)
        capture = ""
        if self._options.capture:
            # Workers may have been started elsewhere.
            capture = str(self._open_capture(Path(self._options.capture).absolute(), scenario, cluster))
        return Order(
            number=self._tests,
            scenario=scenario,
            cluster=format_cluster(cluster),
            is_fixed=self._is_fixed,
            capture=capture,
            clock=clocks.clock_id(),
            t0_ns=0 if self._is_fixed else monotonic_ns(),
        )

    def _open_capture(self, path: Path, scenario: Scenario, cluster: Cluster) -> Path:
        """Where the test's rows go: into a scenario's folder that is there, or into a run of its own."""
        if (path / "scenario.json").exists():
            return path
        if self._tests > 1:
            path = path.with_name(f"{path.name}-{self._tests}")
        self._run = create_run(path, [scenario], seed=scenario.seed, command=sys.argv)
        self._place = self._run.begin(scenario.name)
        servers = cluster.servers
        self._place.update(
            servers=[server.name for server in servers], server_keys=[server.key for server in servers]
        )
        return self._place.path

    def _start_crew(self, order: Order, process: str) -> None:
        self.crew = Crew(order, process, self._runner.send_message, self._tell_miss)

    def _tell_miss(self, problem: Exception) -> None:
        self._hooks.request.fire(
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
        if self.crew is not None:
            self.crew.is_stopping = True
        if self._leader is not None:
            self._leader.stop()

    def _test_stop(self, **_: Any) -> None:
        end = partial(self._end_test, self._leader, self.crew, self._run, self._place)
        self._endings.append((gevent.spawn(end), end))
        self._run = self._place = None
        if isinstance(self._runner, WorkerRunner):
            self._await_endings()  # what locust then reports to the master is the last it hears

    def _await_endings(self) -> None:
        for greenlet, end in self._endings:
            greenlet.join()
            if not greenlet.successful():  # Ctrl-C ends whichever greenlet it meets
                end()
        self._endings.clear()

    def _end_test(
        self,
        leader: Leader | None,
        crew: Crew | None,
        run: RunFolder | None,
        place: ScenarioFolder | None,
    ) -> None:
        if crew is not None:
            crew.end()
        if leader is not None:
            # Locust's master says that the test is over before its workers know.
            give_up_ns = monotonic_ns() + round(_LEAVE_S * 1e9)
            while not leader.has_heard_all and monotonic_ns() < give_up_ns:
                gevent.sleep(_LEASH_EVERY_S)
            leader.end()
            reason = leader.error or leader.capture_failure
            if not reason and not leader.has_heard_all:
                reason = "not all processes have told that they have written what they have"
            if not reason and self._is_early(leader):
                reason = "ended before its time"
            for folder in (place, run):
                if folder is not None:
                    folder.finish("partial" if reason else "complete", reason=reason)

    def _is_early(self, leader: Leader) -> bool:
        if leader.order.is_fixed:
            return leader.phase != "done"
        run_time_s: float | None = self._options.run_time
        if not self._options.headless or not run_time_s or self._environment.shape_class:
            return False  # somebody has ended it, or a shape: whenever that was, it was time
        return (leader.stopped_ns or 0) / 1e9 < run_time_s - _EARLY_S

    def _quit(self, **_: Any) -> None:
        """Locust is about to end the process."""
        self._await_endings()

    def end_locust(self, exit_code: int) -> None:
        """Ends all of locust that this process can end."""
        self._environment.process_exit_code = exit_code
        gevent.spawn(self._runner.quit)
