"""spark/session/start.py: Spark starts with any Java, quietly, and leaves no trace."""

import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.support.quick_java import QUICK

pytestmark = pytest.mark.spark

LIMIT_S = 120


@pytest.fixture(autouse=True)
def _quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)


# A user's program: it prints when it is ready, and how it ends.
PROGRAM = """
import os, sys, time
from contextlib import suppress
from pathlib import Path
from kcast.spark.session.failures import SparkFailed
from kcast.spark.session.java import JavaMissing
from kcast.spark.session.start import LEAN, end_ahead, start

def work(spark):
    {work}

try:
    with start({master!r}, memory={memory!r}, temp_dir=Path({temp!r}), conf=LEAN) as spark:
        print("started", spark.sparkContext._gateway.proc.pid, flush=True)
        work(spark)
        print("done", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
except (SparkFailed, JavaMissing) as error:
    print("failed:", error, flush=True)
print("java home:", os.environ.get("JAVA_HOME"), flush=True)
"""
SUM = "print(spark.range(1000).selectExpr('sum(id)').first()[0], flush=True)"
UNKNOWN_LOCALHOST = """
import socket, socketserver
def bind(server):
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
socketserver.TCPServer.server_bind = bind
"""
LONG = "spark.range(10**15).selectExpr('sum(id % 7)').collect()"


def program(temp: Path, work: str, master: str = "local[1]", memory: str = "1g") -> list[str]:
    temp.mkdir(exist_ok=True)
    text = PROGRAM.format(work=work, master=master, memory=memory, temp=str(temp))
    return [sys.executable, "-c", text]


def run(
    temp: Path, work: str, *, env: dict[str, str] | None = None, master: str = "local[1]", memory: str = "1g"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program(temp, work, master, memory), env=env, capture_output=True, text=True, timeout=LIMIT_S
    )


def path_without_java(folder: Path) -> str:
    """A PATH with all programs of the system except Java."""
    folder.mkdir()
    for place in ("/bin", "/usr/bin"):
        for found in Path(place).iterdir():
            if not found.name.startswith("java") and not (folder / found.name).exists():
                (folder / found.name).symlink_to(found)
    return str(folder)


def test_without_any_java_of_the_system_it_is_started_quietly_and_leaves_nothing(tmp_path: Path) -> None:
    """A user's own configuration of Spark does not change results, either."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "spark.sql.ansi.enabled false\nspark.sql.files.ignoreCorruptFiles true\n"
    )
    env = {"PATH": path_without_java(tmp_path / "bin"), "HOME": str(tmp_path), "SPARK_HOME": "/nowhere"}
    env |= {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PYSPARK_PYTHON": "/nowhere/python"}
    env["PYSPARK_SUBMIT_ARGS"] = "--master moon --conf spark.sql.ansi.enabled=false pyspark-shell"
    before = set(Path("/tmp").glob("hsperfdata_*/*"))
    work = f"{SUM}; print(spark.range(3).mapInArrow(lambda batches: batches, 'id long').count())"
    for name in ("ansi.enabled", "files.ignoreCorruptFiles"):
        work += f"; print(spark.conf.get('spark.sql.{name}'), flush=True)"
    done = run(tmp_path / "temp", work, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    started, *said = done.stdout.splitlines()
    assert started.startswith("started ")
    assert said == ["499500", "3", "true", "false", "done", "java home: None"]
    assert list((tmp_path / "temp").iterdir()) == []
    assert not set(Path("/tmp").glob("hsperfdata_*/*")) - before
    assert not Path(f"/proc/{started.split()[1]}").exists()


@pytest.mark.parametrize(
    ("sent", "code", "after_s"),
    [(signal.SIGINT, 0, 3.0), (signal.SIGTERM, 143, 1.2)],  # while the job runs, and while it is planned
)
def test_ctrl_c_ends_it_at_once(tmp_path: Path, sent: signal.Signals, code: int, after_s: float) -> None:
    with Popen(program(tmp_path / "temp", LONG), stdout=PIPE, stderr=PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            pid = int(child.stdout.readline().split()[1])
            time.sleep(after_s)  # the job would take days
            began = time.monotonic()
            child.send_signal(sent)
            said, errors = child.communicate(timeout=LIMIT_S)
        finally:
            child.kill()
    assert (child.returncode, errors) == (code, "")
    assert said.startswith("interrupted" if code == 0 else "")
    assert time.monotonic() - began < 60
    assert not Path(f"/proc/{pid}").exists()
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize("after_s", [0.3, 2.0])
def test_sigterm_while_java_is_being_started_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    """At any stage of the start."""
    temp = tmp_path / "temp"
    with Popen(program(temp, LONG), stdout=PIPE, stderr=PIPE, text=True) as child:
        try:
            deadline = time.monotonic() + LIMIT_S
            while not any(temp.glob("kcast-spark-*")):
                assert child.poll() is None and time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(after_s)
            child.send_signal(signal.SIGTERM)
            _, errors = child.communicate(timeout=LIMIT_S)
        finally:
            child.kill()
    assert (child.returncode, errors) == (143, "")
    assert list(temp.iterdir()) == []
    assert not [each for each in processes() if str(tmp_path) in each]


def processes() -> list[str]:
    """The command lines of all running processes."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended in the meantime
            found.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_a_java_that_dies_is_told_and_another_one_can_be_started(tmp_path: Path) -> None:
    work = "os.kill(spark.sparkContext._gateway.proc.pid, 9); spark.range(5).count()"
    again = f"""
with start("local[1]", temp_dir=Path({str(tmp_path / "temp")!r})) as spark:
    {SUM}
"""
    command = program(tmp_path / "temp", work)
    command[-1] += again
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    _, failed, _, total = done.stdout.splitlines()
    assert failed.startswith("failed: Spark's Java was ended by signal 9")
    assert total == "499500"
    assert list((tmp_path / "temp").iterdir()) == []


def test_java_can_end_while_python_goes_on(tmp_path: Path) -> None:
    ended = (
        "proc = spark.sparkContext._gateway.proc; end_ahead(); end_ahead(); print(proc.wait(60), flush=True)"
    )
    again = f"""
with start("local[1]", temp_dir=Path({str(tmp_path / "temp")!r})) as spark:
    {SUM}
"""
    command = program(tmp_path / "temp", f"{SUM}; {ended}")
    command[-1] += again
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    _, *said = done.stdout.splitlines()
    assert said == ["499500", "0", "done", "java home: None", "499500"]
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize(
    ("master", "memory", "reason"),
    [
        ("local[1]", "99x", "Spark did not start: .*(99x|memory)"),
        ("local[1]", "100m", "Spark.*System memory .* must be at least"),
        ("moon", "1g", "Spark did not start: .*Master must"),
    ],
)
def test_what_keeps_it_from_starting_is_told_in_a_line(
    tmp_path: Path, master: str, memory: str, reason: str
) -> None:

    done = run(tmp_path / "temp", SUM, master=master, memory=memory)
    failed, _ = done.stdout.splitlines()
    assert failed.startswith("failed: ")
    assert re.search(reason, failed), failed
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "temp").iterdir()) == []


def test_a_machine_that_does_not_know_localhost_is_told_what_to_do(tmp_path: Path) -> None:
    command = program(tmp_path / "temp", SUM)
    command[-1] = f"{UNKNOWN_LOCALHOST}\n{command[-1]}"
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    failed, _ = done.stdout.splitlines()
    assert failed == "failed: Spark cannot look up localhost: add '127.0.0.1 localhost' to /etc/hosts"
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "temp").iterdir()) == []
