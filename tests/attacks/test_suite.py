"""The attack suite itself: what it runs and tells, its junk, and one cheap row as its users run it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.__main__ import is_meant, run_row
from tests.attacks.figures import Figure, at_least, told
from tests.attacks.junk import KINDS, datagrams_of
from tests.attacks.lab import Lab, Skipped
from tests.attacks.row import Row
from tests.attacks.rows import ROWS
from tests.attacks.rows.strangers import mutated
from tests.support.checkout import ROOT
from tests.support.trees import HERE, NoHistory, tree_of


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", "tests.attacks", *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def outcome(row: Row, tmp_path: Path) -> bool:
    return run_row(row, HERE, tmp_path, is_full=False, is_json=False)


def test_a_missed_bar_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(lab: Lab) -> Iterator[Figure]:
        yield told("sent", 1)
        yield at_least("delivered", 1, 2)

    assert not outcome(Row("bad", "2", measure), tmp_path)
    assert capsys.readouterr().out == "bad\n    sent: 1\n    delivered: 1 (at least 2: MISSED)\n"


def test_what_cannot_be_run_is_no_success_and_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(lab: Lab) -> Iterator[Figure]:
        yield told("sent", 1)
        raise Skipped("this machine has no such thing")

    assert outcome(Row("odd", "2", measure), tmp_path)
    assert "skipped: this machine has no such thing" in capsys.readouterr().out


def test_a_row_that_fails_is_told_and_misses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(lab: Lab) -> Iterator[Figure]:
        yield told("sent", 1)
        raise TimeoutError("the server does not answer")

    assert not outcome(Row("broken", "2", measure), tmp_path)
    assert "FAILED: TimeoutError: the server does not answer" in capsys.readouterr().out


def test_what_a_row_started_ends_with_it(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def measure(lab: Lab) -> Iterator[Figure]:
        started.append(lab.serve().process)
        yield told("process", started[0].pid)
        raise Skipped("enough")

    outcome(Row("short", "", measure), tmp_path)
    assert started[0].returncode is not None


def test_names_of_rows_are_their_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.bars for row in ROWS)


def test_an_unknown_row_is_refused() -> None:
    done = run("no-such-row")
    assert done.returncode == 2
    assert "there is no row no-such-row: --list names them" in done.stderr


def test_rows_are_named_whole_or_by_how_they_begin() -> None:
    assert [line.split()[0] for line in run("--list", "credit-b", "loops").stdout.splitlines()] == [
        "credit-burst",
        "loops",
    ]
    assert is_meant("junk-asks", ["junk-"]) and not is_meant("junk-asks", ["unk"])
    assert is_meant("known-flood", ["known-flood"]) and not is_meant("credit-far", ["credit-near"])


def test_the_list_has_every_row() -> None:
    done = run("--list", "--full")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [row.name for row in ROWS]


@pytest.mark.world
@pytest.mark.rest
def test_a_row_is_run_and_told_as_json() -> None:
    """It fails at a server that counts each port for itself: 0.4.0 took 40 times the rate."""
    done = run("ports-of-an-ip", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told_row = json.loads(done.stdout)
    assert told_row["row"] == "ports-of-an-ip"
    assert not told_row["skipped"]
    (bar,) = [figure for figure in told_row["figures"] if figure["side"] == "at most"]
    assert bar["is_met"] and 0.5 < bar["value"] <= 1.1


def test_junk_is_what_its_name_says() -> None:
    for kind in KINDS:
        datagrams = datagrams_of(kind)
        assert datagrams == datagrams_of(kind)
        assert all(0 < len(data) <= 1200 for data in datagrams)
        if kind.startswith("64-"):
            assert {data.count(b"\n") for data in datagrams} == {64}
    assert {len(data) for data in datagrams_of("64-pings")} == {320}


def test_mutated_requests_are_the_same_for_a_seed_and_of_many_kinds() -> None:
    some = list(mutated(1, 500))
    assert some == list(mutated(1, 500))
    assert len(set(some)) > 400
    assert any(data.startswith(b"%!") for data in some) and any(data.startswith(b"%?") for data in some)


def test_a_commit_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NoHistory, match="git fetch --unshallow"):
        tree_of("0" * 40, tmp_path)


def test_another_folder_is_imported_from_there(tmp_path: Path) -> None:
    tree = tree_of(str(ROOT), tmp_path)
    program = "from kcast.pubsub import serve; print(serve.__file__)"
    done = subprocess.run(
        (sys.executable, "-c", program), env=tree.environment, capture_output=True, text=True, check=True
    )
    assert str(tmp_path) in done.stdout
    assert tree.has_option("--uplink") and not tree.has_option("--no-such-option")


def test_an_older_version_is_not_taken_for_the_one_that_is_installed(tmp_path: Path) -> None:
    """Its kcast had no file of its own, so the installed one went first, whatever PYTHONPATH was."""
    older = tmp_path / "older"
    (older / "pubsub").mkdir(parents=True)
    (older / "pubsub" / "__init__.py").write_text("")
    (older / "pyproject.toml").write_text('packages = ["kcast.pubsub"]\n')
    program = "from kcast import pubsub; print(pubsub.__file__)"
    done = subprocess.run(
        (sys.executable, "-c", program),
        env=tree_of(str(older), tmp_path).environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in done.stdout
