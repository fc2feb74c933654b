"""A Spark session that is started quietly and leaves nothing behind.

Java's and Spark's output goes to a log in a temporary folder; if Spark fails, the error quotes its end.
Spark's own temporary files are in that folder, too. It is removed at the end.
"""

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gaierror
from subprocess import Popen, TimeoutExpired
from tempfile import mkdtemp
from typing import Any

import pyspark
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, SQLContext

from kcast.pubsub.errors import named
from kcast.spark.session.failures import SparkFailed, first_line, worst_lines
from kcast.spark.session.java import LEAVES_NOTHING, java_home, utf8_locale
from kcast.spark.session.signals import Signals

_LOG, _PYTHON_LOG = "spark.log", "python.log"
_STOP_S = 20.0  # for Spark to end in order
_NEVER_BEGAN = 1_000  # no exit code of a process
_OUT_OF_MEMORY = 52  # with which Spark ends its Java then
_DEATH_S = 1.0  # for Java to end, once its connections have
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: Java runs already

# Results depend on these, so a user's spark-defaults.conf must not change them.
_SEMANTICS = {
    "spark.sql.ansi.enabled": "true",  # a sum that overflows is an error
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}

_PLANNING = {
    # Otherwise PySpark records a Python call site per column, at several JVM calls each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The number of parts is set beforehand (`partitions`, `judging.rows`): planning again after each step
    # takes longer than it saves.
    "spark.sql.adaptive.enabled": "false",
    # Fewer and larger batches for Python.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Whole files are few rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}

LEAN = {"spark.sql.extensions.test.loadFromCp": "false"}
"""Configuration for `start`: a session without the functions that other libraries register, such as Spark's
own for machine learning. These take half a second to be registered."""

# Of a small capture, most of the time goes into compiling methods that run for seconds only.
_JAVA = (
    *LEAVES_NOTHING,
    "-XX:+UseParallelGC",
    "-XX:MetaspaceSize=512m",  # else Java collects garbage each time that classes need more room
    # The second compiler begins with a method ten times as late as by default.
    *("-XX:Tier4InvocationThreshold=50000", "-XX:Tier4MinInvocationThreshold=6000"),
    *("-XX:Tier4CompileThreshold=150000", "-XX:Tier4BackEdgeThreshold=400000"),
)
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_ending: dict[JavaGateway, threading.Thread] = {}
"""What ends the session of each Java, once that has begun."""

_LOG4J = """status = error
appender.file.type = Console
appender.file.name = log
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{30}
rootLogger.level = warn
rootLogger.appenderRef.file.ref = log
"""


@contextmanager
def start(
    master: str | None = "local[*]",
    *,
    app: str = "kcast analyse",
    memory: str | None = "2g",
    temp_dir: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session on `master` while the `with` lasts; None: on that of Spark's own configuration.

    `memory`, such as "2g", is the driver's, which does all the work if the master is local. Temporary files
    go into a new folder in `temp_dir`, else in the system's. `conf` is further configuration and overrides
    that made here, except that its options of Java are added. Under spark-submit, Java, master and memory are
    as spark-submit says.

    Raises JavaMissing; SparkFailed if Spark does not start, and for its errors within the `with`; OSError if
    temporary files cannot be written.
    """
    is_submitted = _SUBMITTED in os.environ
    # The settings for a local master would cut the driver off from a cluster's workers.
    settings = _settings(None if is_submitted else master, app) | dict(conf or {})
    if is_submitted:
        with _failures(None, lambda: None):
            yield from _submitted(settings)
        return
    with Signals(_cancel) as signals, signals.come_first():
        folder = Path(mkdtemp(prefix="kcast-spark-", dir=temp_dir))
        try:
            yield from _own(folder, settings, memory, temp_dir, signals)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local")


def _settings(master: str | None, app: str) -> dict[str, str]:
    settings = {"spark.app.name": app, "spark.ui.showConsoleProgress": "false"}
    settings |= _SEMANTICS | _PLANNING
    if master is not None:
        settings["spark.master"] = master
    if _is_local(master):
        # No other machine has to reach the driver, so this one's name need not be known.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings |= {"spark.ui.enabled": "false"}
    return settings


def _submitted(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    chosen: dict[str, bool | float | int | str | None] = dict(settings)
    spark = SparkSession.builder.config(map=chosen).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    try:
        yield spark
    finally:
        spark.stop()


def _own(
    folder: Path,
    settings: Mapping[str, str],
    memory: str | None,
    temp_dir: Path | None,
    signals: Signals,
) -> Iterator[SparkSession]:
    """A session in a Java of its own, which ends with it."""
    if SparkContext._active_spark_context is not None:
        raise SparkFailed("Spark is already running in this process: end that session first")
    log = folder / _LOG
    is_local = _is_local(settings.get("spark.master"))
    with named(folder):
        home = java_home(folder / "java")
        of_java = _java_settings(folder, settings, memory)
    changes = _environment(home, is_local, temp_dir)
    gateway: JavaGateway | None = None
    with _logging_into(folder / _PYTHON_LOG):
        try:
            with _failures(log, lambda: _exit_code(gateway)):
                with _environ(changes):
                    with signals.held():  # until `gateway` is known, of which Java must be ended then
                        gateway = _launch(of_java, log)
                    SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm))
                    spark = SparkSession.builder.getOrCreate()
                signals.claim()  # Spark has set a handler, which would wait for the very call it interrupts
                yield spark
        finally:
            if gateway is not None:
                _end(gateway)


@contextmanager
def _logging_into(log: Path) -> Iterator[None]:
    """Keeps the log of Python's libraries off the screen, unless the program has configured logging."""
    root = logging.getLogger()
    if root.hasHandlers():
        yield
        return
    handler = logging.FileHandler(log, delay=True)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _environment(home: Path, is_local: bool, temp_dir: Path | None) -> dict[str, str | None]:
    """Variables to set in the environment of Spark's scripts, and to remove from it (None)."""
    changes: dict[str, str | None] = {"JAVA_HOME": str(home), "SPARK_REMOTE": None, **utf8_locale()}
    changes["PYSPARK_SUBMIT_ARGS"] = None  # they would override all settings
    # Spark's scripts start a first Java, which tells them how to start the second.
    changes["SPARK_LAUNCHER_OPTS"] = " ".join((*LEAVES_NOTHING, os.environ.get("SPARK_LAUNCHER_OPTS", "")))
    if is_local or not os.environ.get("PYSPARK_PYTHON"):
        changes["PYSPARK_PYTHON"] = sys.executable  # else whatever python3 is
    if is_local:
        changes["SPARK_LOCAL_IP"] = "127.0.0.1"  # even if the host's name is not known
    if temp_dir is not None:
        changes["SPARK_LOCAL_DIRS"] = None
    home_of_package = Path(pyspark.__file__).parent
    if (home_of_package / "bin" / "spark-submit").exists():
        changes["SPARK_HOME"] = str(home_of_package)  # else it may be another version's
    return changes


def _java_settings(folder: Path, settings: Mapping[str, str], memory: str | None) -> dict[str, str]:
    """The settings, with those that Java must have from its start; writes the files that these name."""
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    temporary = folder / "tmp"
    temporary.mkdir()
    options = [
        f'-Dlog4j2.configurationFile="{log4j.as_uri()}"',
        f'-Djava.io.tmpdir="{temporary}"',
        *_JAVA,
        settings.get(_JAVA_OPTIONS, ""),
    ]
    of_java = dict(settings) | {_JAVA_OPTIONS: " ".join(options)}
    if memory is not None:
        of_java.setdefault("spark.driver.memory", memory)
    of_java.setdefault("spark.sql.warehouse.dir", (folder / "warehouse").as_uri())
    return of_java


def _launch(settings: Mapping[str, str], log: Path) -> JavaGateway:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("ab") as file:
        streams = {"stdout": file, "stderr": file}
        return launch_gateway(conf, streams)  # type: ignore[no-untyped-call]  # pyspark has no types there


def end_ahead() -> None:
    """Lets Spark end while Python goes on, once all is collected. The `with` of `start` then waits for it.

    Does nothing under spark-submit, whose Java it is.
    """
    gateway = SparkContext._gateway
    if gateway is not None and _SUBMITTED not in os.environ:
        _begin_to_end(gateway)


def _begin_to_end(gateway: JavaGateway) -> threading.Thread:
    # In another thread: after Ctrl-C this one's connection may still wait for an answer.
    thread = _ending.get(gateway)
    if thread is None:
        thread = threading.Thread(target=_stop, args=(gateway,), daemon=True)
        thread.start()
        _ending[gateway] = thread
    return thread


def _end(gateway: JavaGateway) -> None:
    """Ends the session and its Java, whatever state they are in."""
    stopping = _begin_to_end(gateway)
    try:
        stopping.join(_STOP_S)
    finally:
        process: Popen[bytes] = gateway.proc
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()  # it ends by itself then
        try:
            process.wait(_STOP_S if not stopping.is_alive() else 1)
        except (TimeoutExpired, KeyboardInterrupt, SystemExit):
            process.kill()
            process.wait()
        _ending.clear()
        _forget()


def _cancel() -> None:
    with suppress(Exception):
        context = SparkContext._active_spark_context
        if context is not None:
            context.cancelAllJobs()


def _stop(gateway: JavaGateway) -> None:
    _cancel()
    if (context := SparkContext._active_spark_context) is not None:
        # `context.stop()` would also wait, up to a second, for a server of accumulators. There are none.
        with suppress(Exception):
            _leave(context._accumulatorServer)
        with suppress(Exception):
            context._jsc.stop()
    with suppress(Exception):
        gateway.shutdown()
    with suppress(Exception):
        gateway.proc.stdin.close()  # Java ends by itself then


def _leave(server: Any) -> None:
    """Ends PySpark's server of accumulators, without waiting. Its connection may end before, with Java."""
    server.handle_error = lambda *_: None  # it would print a traceback
    threading.Thread(target=server.shutdown, daemon=True).start()


def _forget() -> None:
    """Lets the next session of this process start a Java of its own."""
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None


def _exit_code(gateway: JavaGateway | None) -> int | None:
    """The exit code of Java; None while it runs, `_NEVER_BEGAN` if it was not started."""
    if gateway is None:
        return _NEVER_BEGAN
    with suppress(TimeoutExpired):
        gateway.proc.wait(_DEATH_S)
    code: int | None = gateway.proc.poll()
    return code


@contextmanager
def _failures(log: Path | None, exit_code: Callable[[], int | None]) -> Iterator[None]:
    """Raises SparkFailed for Spark's errors; if Java has ended, with what its log tells."""
    try:
        yield
    except gaierror as error:
        reason = "Spark cannot look up localhost: add '127.0.0.1 localhost' to /etc/hosts"
        raise SparkFailed(reason) from error
    except (PySparkException, Py4JError, ConnectionError) as error:
        # An error that Java itself has raised shows that it lives.
        is_from_java = isinstance(error, Py4JJavaError) or (
            isinstance(error, PySparkException) and not isinstance(error, PySparkRuntimeError)
        )
        code = None if is_from_java else exit_code()
        if code is None and isinstance(error, ConnectionError):
            raise  # of another connection
        reason = _what_failed(code, first_line(error), worst_lines(log))
        if "No space left" in reason and log is not None:
            reason += f" (temporary files are in {log.parent}; TMPDIR chooses another place)"
        raise SparkFailed(reason) from error


def _what_failed(code: int | None, reason: str, logged: str) -> str:
    if "OutOfMemoryError" in reason or code == _OUT_OF_MEMORY:
        return "Spark did not have enough memory: give its driver more, with --memory"
    if code is None:
        return f"Spark failed: {reason}"
    if code == _NEVER_BEGAN:
        return f"Spark did not start: {logged or reason}"
    if code < 0:
        return f"Spark's Java was ended by signal {-code}; was memory short?"
    return f"Spark's Java has ended, with exit code {code}: {logged or reason}"


@contextmanager
def _environ(changes: Mapping[str, str | None]) -> Iterator[None]:
    before: dict[str, Any] = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
