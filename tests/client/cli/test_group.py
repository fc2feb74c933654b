"""client/cli/group.py: the group of commands, and Ctrl-C while something is still being loaded."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kcast.client.cli import commands, group

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


def test_ctrl_c_while_loading_ends_it_without_a_word() -> None:
    for name, arguments in (
        ("kcast.client.cli.group", ["serve"]),
        ("kcast.pubsub.serve", ["serve"]),
        ("asyncio", ["sub", "topic"]),
    ):
        run = subprocess.run(
            (sys.executable, "-c", PROGRAM.format(name=name, arguments=arguments)),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (run.returncode, run.stdout, run.stderr) == (130, "", ""), name


@pytest.mark.parametrize("method", ["make_context", "invoke"])
def test_ctrl_c_before_and_in_a_command(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, method, interrupted)
    result = CliRunner().invoke(group.main, ["health", "--help"])
    assert (result.exit_code, result.output) == (130, "")


def test_every_command_can_be_loaded() -> None:
    for name in group._COMMANDS:
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
    for words in (("sub",), ("load", "compare")):
        asked, own = (
            CliRunner().invoke(group.main, line, "kcast") for line in (("help", *words), (*words, "--help"))
        )
        assert (asked.exit_code, own.exit_code) == (0, 0)
        assert asked.stdout == own.stdout


def test_completion_prints_a_script_that_names_kcast() -> None:
    for shell in ("bash", "zsh", "fish"):
        result = CliRunner().invoke(group.main, ["completion", shell])
        assert result.exit_code == 0
        assert "_KCAST_COMPLETE" in result.stdout and f"{shell}_complete" in result.stdout
        installed = shutil.which(shell)
        if installed:
            subprocess.run((installed, "-n"), input=result.stdout, text=True, timeout=WAIT_S, check=True)


def test_what_shells_are_offered() -> None:
    for typed, offered in {
        "kcast p": ["pub", "ping", "plan"],
        "kcast context u": ["use"],
        "kcast sub --t": ["--topic", "--topics-from", "--timeout", "--time", "--timestamp"],
    }.items():
        count = str(len(typed.split(" ")) - 1)
        told = run(_KCAST_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=count)
        assert [line.removeprefix("plain,") for line in told.stdout.split()] == offered


def test_offering_commands_loads_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "import_module", None)
    found = group.main.shell_complete(click.Context(group.main), "")
    assert [item.value for item in found] == list(group._COMMANDS)
    assert all(item.help for item in found)


def test_without_a_command_it_shows_the_help() -> None:
    told = run()
    assert told.returncode == 2
    assert "Measuring:" in told.stderr and "Error" not in told.stderr


def pages(command: click.Command, path: str = "kcast") -> Iterator[tuple[str, str]]:
    """The help of a command and of all below it."""
    context = click.Context(command, info_name=path)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            yield from pages(each, f"{path} {name}")


def test_help_shows_examples_and_options_before_prose() -> None:
    found = dict(pages(group.main))
    assert len(found) > 50
    for path, text in found.items():
        assert not re.search(r"INTEGER|FLOAT|TEXT RANGE", text), path
        paragraphs = re.split(r"\n\n+", text)
        headings = [at for at, each in enumerate(paragraphs) if re.match(r"\S[^\n]*:\n", each)]
        begins = [at for at, each in enumerate(paragraphs) if each.startswith("  Example")]
        assert all(2 <= at < headings[0] for at in begins), path  # behind usage and summary
        prose = set(range(2, len(paragraphs))) - {*headings, *begins}
        assert min(prose, default=99) > headings[-1], path


def test_help_groups_the_commands() -> None:
    text = dict(pages(group.main))["kcast"]
    assert [line for line in text.splitlines() if re.fullmatch(r"[A-Z].*:", line)] == [
        "Options:", "Daily:", "Clusters and keys:", "Measuring:", "Help:"
    ]  # fmt: skip
    assert [*group._COMMANDS] == [name for names in group._HEADINGS.values() for name in names]


def test_man_pages_say_what_the_help_says(tmp_path: Path) -> None:
    pytest.importorskip("click_man")
    told = run("help", "--man", str(tmp_path / "deep" / "man1"))
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    names = {path.name for path in tmp_path.rglob("*.1")}
    assert names >= {"kcast.1", "kcast-sub.1", "kcast-serve.1", "kcast-load-compare.1", "kcast-key-new.1"}
    text = (tmp_path / "deep" / "man1" / "kcast-sub.1").read_text()
    for words in (
        r"kcast\-sub \- print the messages of topics",
        r"\fB\-W,\fP \-\-timeout SECONDS",
        r"control characters appear as \ex1b and the like",
        "\n.nf\nExamples: ",
    ):
        assert words in text
    if shutil.which("groff"):
        typed = ("groff", "-man", "-Tutf8", "-ww", *map(str, tmp_path.rglob("*.1")))
        shown = subprocess.run(typed, capture_output=True, check=True)
        assert shown.stdout and not shown.stderr


def test_without_click_man_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "click_man.core", None)
    result = CliRunner().invoke(group.main, ["help", "--man", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.endswith("-m pip install 'kcast[man]'\n")
