"""The demo's capture and report: the capture says what the demo says, and a report that fails is told."""

import importlib.util
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kcast.loadtest.capture.folder import open_run
from kcast.loadtest.demo import report
from kcast.loadtest.results.summary import Summary, summarise
from tests.support.demo_runs import demo, demo_in_time

LINES = [b"line %d \xc3\xa9 %% demo/1/1" % number for number in range(60)]
BEFOREHAND = (
    "This takes about 22 s, and then about a minute for the report on Spark, which --no-report leaves out.\n"
)
EXTRA = f"{sys.executable} -m pip install 'kcast[spark]' brings it"

_Popen = subprocess.Popen  # tests put others in its place


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(b"\n".join(LINES))
    return path


def test_the_capture_tells_what_the_demo_tells(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kcast.loadtest.demo.run.DOWN_MESSAGES_MIN", 300)
    asked: list[tuple[Path, Path]] = []

    def make(capture: Path, out: Path) -> Path:
        asked.append((capture, out))
        return out / "report.html"

    monkeypatch.setattr(report, "make", make)
    result = demo_in_time("--seed", "3", "--out", tmp_path / "out", text_file)
    assert result.exit_code == 0, result.output
    capture, out = asked[-1]
    assert out == tmp_path / "out" / "report"
    assert re.match(
        r"This takes about \d+ s, and then about a minute for the report on Spark, which --no-rep",
        result.stdout,
    )
    assert result.stdout.endswith(f"capture: {capture}\nreport:  {out / 'report.html'}\n")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("_")] == []

    run = open_run(capture)
    assert (run.status, run.info["made_by"], run.info["seed"]) == ("complete", "demo", 3)
    summaries = {folder.scenario.name: summarise(folder) for folder in run.scenarios}
    told = json.loads((tmp_path / "out" / "results.json").read_text())["phases"]
    told = {f"{each['phase']}-5-{each['k_prime']}-5": each for each in told if each["phase"] != "recovering"}
    assert set(summaries) == set(told)
    for name, summary in summaries.items():
        assert_tells(summary, told[name])
    assert summaries["down-5-1-5"].delivered < summaries["down-5-1-5"].pairs


def assert_tells(summary: Summary, told: dict[str, Any]) -> None:
    assert summary.messages == told["messages"] == summary.health.scheduled
    assert (summary.pairs, summary.delivered) == (told["pairs"], told["delivered"])
    assert summary.duplicates == told["duplicates"]
    assert set(summary.causes) <= {"down"}
    # A busy machine may have kept the process waiting, which the verdict says.
    assert all("stood still" in reason for reason in summary.delivery_verdict.reasons)
    assert summary.latency.count == summary.delivered


@pytest.mark.parametrize("module", report.MODULES)
def test_without_the_extra_it_says_how_to_get_it(
    module: str, finished: None, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else there(name))
    result = demo("--out", tmp_path, text_file)
    assert result.exit_code == 0
    assert result.stdout.endswith(f"report:  none, {module} is missing: {EXTRA}\n")
    assert "This takes" not in result.stdout
    assert EXTRA not in demo("--no-report", "--out", tmp_path, text_file).stdout


def analyse_as(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Lets a program be what analyses; its arguments are those of `kcast analyse`."""

    def stand_in(arguments: tuple[str, ...], **options: Any) -> "subprocess.Popen[str]":
        assert arguments[1:4] == ("-m", "kcast.client.cli", "analyse")
        return _Popen((sys.executable, "-c", program, *arguments[4:]), **options)

    monkeypatch.setattr(subprocess, "Popen", stand_in)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_report_that_fails_is_told_and_changes_no_verdict(
    options: tuple[str, ...], finished: None, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.html").write_text("an old one")
    analyse_as(monkeypatch, "import sys; sys.exit('at work\\nkcast analyse: no Java 17')")
    result = demo(*options, "--out", tmp_path, text_file)
    assert result.exit_code == 0
    told = "kcast demo: no report: kcast analyse: no Java 17\n"
    assert result.stderr == (BEFOREHAND + told if options else told)
    assert "report.html" not in result.stdout

    analyse_as(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    assert "no report: kcast analyse ended with exit code -9" in demo("--out", tmp_path, text_file).stderr


def test_a_report_whose_figures_are_not_all_valid_is_one(
    finished: None, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import sys
from pathlib import Path
capture, option, out = sys.argv[1:]
Path(out).mkdir(parents=True)
Path(out, "report.html").write_text("new")
sys.exit(3)
"""
    analyse_as(monkeypatch, program)
    result = demo("--json", "--out", tmp_path, text_file)
    assert (result.exit_code, result.stderr) == (0, BEFOREHAND)
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["type"] == "report"
    assert last["files"][1:] == [str(tmp_path / "report" / "report.html")]


@pytest.mark.parametrize("has_reached_it", [True, False], ids=["on a terminal", "sent to the demo alone"])
def test_an_analysis_that_is_interrupted_ends_by_itself_after_one_signal(
    has_reached_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import signal
from pathlib import Path
import sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", file=sys.stderr, flush=True)
signal.sigwait([signal.SIGINT])
is_second = signal.sigtimedwait([signal.SIGINT], 0.2) is not None
Path(sys.argv[3]).write_text(f"removed its files, {is_second=}")
"""

    class Interrupted(_Popen[str]):
        def communicate(self, *_: Any, **__: Any) -> Any:
            assert self.stderr is not None
            assert self.stderr.readline() == "ready\n"
            if has_reached_it:
                self.send_signal(signal.SIGINT)
            raise KeyboardInterrupt

    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda arguments, **options: Interrupted((sys.executable, "-c", program, *arguments[4:]), **options),
    )
    monkeypatch.setattr(report, "ENDING_S", 60.0 if has_reached_it else 0.0)
    with pytest.raises(KeyboardInterrupt):
        report.make(tmp_path, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "removed its files, is_second=False"
