"""loadtest/load/command.py: what is asked, what is refused, what it would take. Nothing is run here."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kcast.loadtest.capture.folder import create_run
from kcast.loadtest.load import command, grid, session
from kcast.loadtest.load.estimate import estimate
from kcast.loadtest.scenario import Scenario
from kcast.loadtest.users.options import OPTIONS


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command.command, [str(argument) for argument in arguments])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """With what scenarios are run; nothing is."""
    calls: list[dict[str, Any]] = []

    def run(scenarios: tuple[Scenario, ...], settings: dict[str, Any], **options: Any) -> int:
        calls.append({"scenarios": scenarios, "settings": settings, **options})
        return 0

    monkeypatch.setattr(session, "run", run)
    return calls


# --- What is asked -----------------------------------------------------------------------------------


def test_the_first_command_needs_no_options_and_takes_less_than_a_minute(asked: list[dict[str, Any]]) -> None:
    assert call().exit_code == 0
    (run,) = asked
    legs: dict[str, Any] = {"delay_ms": 20.0, "jitter_ms": 5.0, "loss_in": 0.01, "loss_out": 0.01}
    assert run["scenarios"] == (
        Scenario(name="5-3-5", outages="independent", outage=0.1, stratified=True, **legs),
    )
    assert run["settings"] == {}
    assert run["out"].parent == command.OUT_DEFAULT
    assert estimate(run["scenarios"][0]).time_s < 45


def test_latencies_decide_only_if_that_is_asked_for(asked: list[dict[str, Any]]) -> None:
    call()
    call("--strict")
    assert [run["is_strict"] for run in asked] == [False, True]


def test_options_are_those_of_a_scenario_with_several_values(asked: list[dict[str, Any]]) -> None:
    arguments = (
        "--k-prime",
        "1, 3",
        "--loss",
        "0.02",
        "--ttl",
        "9",
        "--confirm",
        "--out",
        "x",
        "--workers",
        "2",
    )
    assert call(*arguments).exit_code == 0
    (run,) = asked
    assert [(s.k_prime, s.loss_in, s.loss_out, s.ttl_s, s.confirm) for s in run["scenarios"]] == [
        (1, 0.02, 0.02, 9, True),
        (3, 0.02, 0.02, 9, True),
    ]
    assert (run["out"], run["settings"]) == (Path("x"), {"workers": 2})


def test_every_field_but_the_name_of_a_scenario_is_an_option() -> None:
    named = {name for parameter in command.command.params for name in parameter.opts}
    assert {option.flag for option in OPTIONS} - {"--name"} <= named


def test_a_preset_is_changed_by_options_and_narrowed_by_only(asked: list[dict[str, Any]]) -> None:
    call("--preset", "grid", "--duration", "3", "--only", "8-[58]-8", "--only", "8-1-8")
    (run,) = asked
    assert [s.name for s in run["scenarios"]] == ["8-1-8", "8-5-8", "8-8-8"]
    assert {s.duration_s for s in run["scenarios"]} == {3.0}


def test_what_cannot_be_is_told_and_the_rest_is_run(asked: list[dict[str, Any]]) -> None:
    result = call("--k", "2,4", "--k-prime", "3")
    assert [s.name for s in asked[0]["scenarios"]] == ["4-3-4"]
    assert (
        result.stderr == "kcast load: skipped a combination: --k-prime is 3: give 2 or less, since --k is 2\n"
    )


# --- What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--preset", "girds"), "no preset is named 'girds': use one of network, "),
        (("--only", "1"), "no scenario is named '1': there are 5-3-5"),
        (("--k-prime", "6"), "--k-prime is 6: give 5 or less, since --k is 5"),
        (("--outage", "1.5"), "--outage is 1.5: give a share from 0 to 1"),
        (("--duration", "nan"), "--duration is nan: give a number above 0"),
        (("--resume", "x", "--out", "y"), "--resume continues in its own folder"),
        (("--resume", "x", "--k", "3"), "the scenarios are those of x: give no options"),
        (("--replay", "x", "--preset", "grid"), "the scenarios are those of x: give no options"),
        (("--epoch", "0.00001", "--outage", "0.1"), "--epoch is 1e-05"),
    ],
)
def test_a_wrong_use_is_one_line(
    arguments: tuple[str, ...], message: str, asked: list[dict[str, Any]]
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"kcast load: {message}")
    assert result.stderr.count("\n") == 1
    assert asked == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--k", "1,x"), "Invalid value for '--k': 'x' is not a valid integer"),
        (("--loss", "2"), "Invalid value for '--loss': 2.0 is not in the range"),
        (("--backend", "cloud"), "Invalid value for '--backend'"),
        (("grid",), "grid is a preset: give it as --preset grid"),
        (("nothing",), "no such command nothing"),
    ],
)
def test_an_option_or_command_that_is_none_is_told(
    arguments: tuple[str, ...], message: str, asked: list[dict[str, Any]]
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert asked == []


def test_a_missing_extra_is_told_with_how_to_get_it(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else object())
    for arguments in ((), ("compare", "a", "b")):
        result = call(*arguments)
        assert result.exit_code == 1
        how = f"{sys.executable} -m pip install 'kcast[load]'"
        assert f"pyarrow is not installed: {how} brings it\n" in result.stderr
    assert asked == []


@pytest.mark.parametrize("option", ["--resume", "--replay"])
def test_what_is_no_capture_is_told(option: str, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    result = call(option, tmp_path)
    assert (result.exit_code, asked) == (1, [])
    assert result.stderr == f"kcast load: {tmp_path}: not a capture: it has no run.json\n"


def test_a_capture_of_another_schema_version_is_told(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", [Scenario()], seed=1)
    run.update(schema_version=99)
    for arguments in (
        ("--resume", run.path),
        ("--replay", run.path / "run.json"),
        ("compare", run.path, run.path),
    ):
        result = call(*arguments)
        assert (result.exit_code, asked) == (1, [])
        assert "run.json: its schema version is 99, and this kcast reads 1" in result.stderr
        assert result.stderr.count("\n") == 1


# --- Earlier runs ------------------------------------------------------------------------------------


def test_a_replay_has_the_scenarios_and_settings_of_the_run(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    scenarios = [Scenario(name=name, seed=7, rate=3.0) for name in ("a", "b")]
    run = create_run(tmp_path / "run", scenarios, seed=7, facts={"settings": {"workers": 2, "image": "x"}})
    assert call("--replay", run.path / "run.json").exit_code == 0
    assert (
        call("--replay", run.path, "--workers", "3", "--only", "b", "--out", tmp_path / "new").exit_code == 0
    )
    first, second = asked
    assert first["scenarios"] == tuple(scenarios)
    assert first["settings"] == {"workers": 2, "image": "x"}
    assert not first["is_resumed"] and first["out"] != run.path
    assert second["scenarios"] == (scenarios[1],)
    assert second["settings"] == {"workers": 3, "image": "x"}
    assert second["out"] == tmp_path / "new"


def test_a_resumed_run_has_the_scenarios_that_are_not_complete(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    run = create_run(tmp_path / "run", [Scenario(name=name) for name in "abc"], seed=1)
    run.begin("a").finish("complete")
    run.begin("b").finish("partial")
    assert call("--resume", run.path).exit_code == 0
    assert [scenario.name for scenario in asked[0]["scenarios"]] == ["b", "c"]
    assert asked[0]["is_resumed"] and asked[0]["out"] == run.path


@pytest.mark.parametrize("option", ["--resume", "--replay"])
def test_what_locust_ran_on_servers_of_its_own_cannot_be_run_again(
    option: str, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    run = create_run(tmp_path / "run", [Scenario(backend="file")], seed=1)
    run.begin("load").finish("partial")
    result = call(option, run.path)
    assert (result.exit_code, asked) == (1, [])
    assert result.stderr == (
        f"kcast load: {run.path}: locust ran this on the servers of a cluster file: run locust again\n"
    )


# --- What it would take ------------------------------------------------------------------------------


def test_a_dry_run_tells_what_the_grid_takes_and_runs_nothing(asked: list[dict[str, Any]]) -> None:
    result = call("--preset", "grid", "--dry-run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["scenario", "messages", "pairs", "copies", "time", "disk", "CPU"]
    assert [line.split()[0] for line in lines[1:-1]] == [
        s.name for s in grid.expand(grid.preset("grid").parts, {}).scenarios
    ]
    assert lines[-1].startswith("in all")
    assert (result.stderr, asked) == ("", [])


def test_a_dry_run_needs_no_extra(asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert call("--dry-run").exit_code == 0


def test_a_dry_run_of_one_scenario_has_no_total_and_json_has_objects() -> None:
    assert "in all" not in call("--dry-run").stdout
    (line,) = call("--dry-run", "--json").stdout.splitlines()
    told = json.loads(line)
    assert (told["type"], told["name"], told["messages"]) == ("estimate", "5-3-5", 2000)


def test_more_than_a_process_can_do_is_told_beforehand() -> None:
    result = call("--dry-run", "--rate", "2000")
    assert result.stderr.startswith("kcast load: 5-3-5: users would need ")
    assert call("--dry-run", "--rate", "2000", "--workers", "16").stderr == ""


def test_the_help_tells_presets_options_and_exit_codes() -> None:
    text = call("--help").stdout
    for word in (
        *grid.PRESETS,
        "--k-prime",
        "--loss-in",
        "compare",
        "Exit codes",
        "kcast load --preset grid",
    ):
        assert word in text
