"""client/cli/group.py: the group of commands, and Ctrl-C while something is still being loaded."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from kcast.client.cli import group

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
