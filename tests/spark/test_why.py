"""spark/why.py: `kcast analyse RUN --why MESSAGE` tells what became of a message, without Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kcast.loadtest.capture.folder import RunFolder, create_run
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.causes import MEANINGS, Cause
from kcast.spark.command import command
from tests.support.big_capture import big_scenario, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("why") / "run"
    return write_run(
        folder, [big_scenario(3000, name=name, k_prime=k) for name, k in (("one", 1), ("two", 2))]
    )


@pytest.fixture(autouse=True)
def no_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "400")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def missed_message(run: RunFolder) -> tuple[int, int, Cause]:
    """A message, a subscriber that missed it, and why."""
    judged = attribute(run.scenario("one"))
    at = int((judged.causes == Cause.DOWN).nonzero()[0][0])
    return int(judged.msg_ids[at]), int(judged.sub_ids[at]), Cause(judged.causes[at])


def test_it_tells_of_servers_and_subscribers_in_words(run: RunFolder) -> None:
    msg, subscriber, cause = missed_message(run)
    result = call(run.path, "--why", f"{msg >> 32}:{msg & 0xFFFFFFFF}", "--only", "one")
    assert (result.exit_code, result.stderr) == (0, "")
    first = result.stdout.splitlines()[0]
    assert first.startswith(f"message {msg >> 32}:{msg & 0xFFFFFFFF} of one (msg_id {msg}), on topic ")
    (own,) = [line for line in result.stdout.splitlines() if line.startswith(f"{subscriber} ")]
    assert "missed" in own and own.endswith(f"{cause.label}: {MEANINGS[cause]}")
    assert "cut off" in result.stdout and "127.0.0.1:" in result.stdout


def test_json_has_the_same_on_one_line(run: RunFolder) -> None:
    msg, subscriber, cause = missed_message(run)
    result = call(run.path, "--why", msg, "--only", "on*", "--json")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    told = json.loads(line)
    assert (told["type"], told["msg_id"], told["scenario"]) == ("message", msg, "one")
    (own,) = [one for one in told["subscribers"] if one["subscriber"] == subscriber]
    assert (own["latency_ms"], own["cause"]) == (None, cause.label)


def test_what_cannot_be_told_is_one_line(run: RunFolder, tmp_path: Path) -> None:
    for arguments, words in (
        ((run.path, "--why", "0:1"), "message 0:1 is in one and two: choose one with --only"),
        ((run.path, "--why", "9:1", "--only", "one"), "no message 9:1: one has 0:0 to 0:"),
        ((run.path, "--why", "0:1", "--only", "four"), "four"),
        ((tmp_path / "none", "--why", "0:1"), "not a capture"),
        (("hdfs://host/run", "--why", "0:1"), "on this machine only"),
    ):
        result = call(*arguments)
        assert result.exit_code == 1, arguments
        assert result.stdout == "" and result.stderr.count("\n") == 1
        assert words in result.stderr


def test_a_scenario_that_is_not_complete_is_told(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", [big_scenario(100, name="cut-short")], seed=1)
    result = call(run.path, "--why", "0:1")
    assert (result.exit_code, "none was begun" in result.stderr) == (1, True)
    run.begin("cut-short").finish("partial")
    assert "takes a scenario that is complete: cut-short is partial" in call(run.path, "--why", "0:1").stderr


def test_a_wrong_use_is_refused() -> None:
    for arguments, words in (
        (("run", "--why", "x"), "x is no message: give its msg_id, or PUBLISHER:NUMBER such as 0:17"),
        (("run", "--why", "1:4294967296"), "is no message"),
        (("run", "--why", "2147483648:1"), "is no message"),
        (("run", "--why", "9223372036854775808"), "is no message"),
        (("--why", "0:1"), "--why takes one RUN"),
        (("a", "b", "--why", "0:1"), "--why takes one RUN"),
        (("run", "--why", "0:1", "--pairs", "--strict"), "--why only tells of a message: leave out --pairs"),
    ):
        result = call(*arguments)
        assert result.exit_code == 2
        assert words in result.stderr


def test_it_needs_what_load_tests_need_alone(run: RunFolder) -> None:
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('pyspark', 'py4j', 'pandas', 'scipy', 'jinja2'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import importlib.util\n"
        "importlib.util.find_spec = lambda name, find=importlib.util.find_spec: (\n"
        "    None if name in ('pyspark', 'pandas', 'scipy', 'jinja2') else find(name))\n"
        "from kcast.client.cli import main\n"
        f"main(['analyse', {str(run.path)!r}, '--why', '0:1', '--only', 'one'])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_starts_no_spark(run: RunFolder) -> None:
    program = (
        "import sys; from kcast.spark.why import why\n"
        f"why({str(run.path)!r}, 1, ['one'], as_json=True)\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
