"""client/cli/group.py: the group of commands, and Ctrl-C while something is still being loaded."""

import os
import shutil
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from kcast.client.cli import group, lazy_group

WAIT_S = 20.0

# Ctrl-C comes when the module of this name is about to be loaded.
PROGRAM = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from kcast.client.cli import main
main({arguments!r})
"""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("kcast.client.cli.group", ["serve"]),
        ("click", ["serve"]),
        ("kcast.pubsub.serve", ["serve"]),
        ("asyncio", ["serve", "--port", "0"]),
        ("kcast.client.cli.health", ["health"]),
        ("asyncio", ["sub", "topic"]),
        ("kcast.loadtest.demo.command", ["demo"]),
    ],
)
def test_ctrl_c_while_loading_ends_it_without_a_word(name: str, arguments: list[str]) -> None:
    run = subprocess.run(
        (sys.executable, "-c", PROGRAM.format(name=name, arguments=arguments)),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "")


@pytest.mark.parametrize("method", ["make_context", "invoke"])
def test_ctrl_c_before_and_in_a_command(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, method, interrupted)
    result = CliRunner().invoke(group.main, ["health", "--help"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("name", group._COMMANDS)
def test_every_command_can_be_loaded(name: str) -> None:
    command = group.main.get_command(click.Context(group.main), name)
    assert command is not None
    assert command.name == name


# --- Help and completion -----------------------------------------------------------------------------


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", "kcast.client.cli", *arguments),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, **environment},
    )


def test_help_of_a_command_is_what_the_command_says_itself() -> None:
    for words in ((), ("sub",), ("load", "compare"), ("help",)):
        asked, own = run("help", *words), run(*words, "--help")
        assert (asked.returncode, own.returncode) == (0, 0)
        assert asked.stdout == own.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_names_kcast(shell: str) -> None:
    result = CliRunner().invoke(group.main, ["completion", shell])
    assert result.exit_code == 0
    assert "_KCAST_COMPLETE" in result.stdout and f"{shell}_complete" in result.stdout
    installed = shutil.which(shell)
    if installed:
        subprocess.run((installed, "-n"), input=result.stdout, text=True, timeout=WAIT_S, check=True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kcast p", ["pub", "ping", "plan"]),
        ("kcast he", ["health", "help"]),
        ("kcast sub --t", ["--topic", "--timeout", "--time", "--timestamp"]),
        ("kcast completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_what_shells_are_offered(typed: str, offered: list[str]) -> None:
    count = str(len(typed.split(" ")) - 1)
    told = run(_KCAST_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=count)
    assert [line.removeprefix("plain,") for line in told.stdout.split()] == offered


def test_offering_commands_loads_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_group, "import_module", None)
    found = group.main.shell_complete(click.Context(group.main), "")
    assert [item.value for item in found] == list(group._COMMANDS)
    assert all(item.help for item in found)


def test_without_a_command_it_shows_the_help() -> None:
    told = run()
    assert told.returncode == 2
    assert "Commands:" in told.stderr and "Error" not in told.stderr
