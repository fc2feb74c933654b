"""client/cli/manpage.py and `kcast help --man`: man pages made from the help."""

import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.client.cli.groups.group import VERBS as GROUP_VERBS
from kcast.client.cli.manpage import page
from kcast.client.cli.servers.group import VERBS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    man1 = tmp_path_factory.mktemp("man") / "deep" / "man1"
    result = CliRunner().invoke(main, ["help", "--man", str(man1)])
    assert (result.exit_code, result.output) == (0, "")
    return man1


def shown(path: Path) -> str:
    """What man shows of a page, without bold type; fails if the page has faults."""
    run = subprocess.run(
        ("groff", "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=100n", str(path)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stderr == ""
    return run.stdout


def test_every_command_has_a_page(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names >= {"kcast.1", "kcast-sub.1", "kcast-pub.1", "kcast-serve.1", "kcast-load-compare.1"}
    of_groups = 1 + 5 + 4 + 2 + len(VERBS) + len(GROUP_VERBS)  # load, context, bench, key, servers, group
    assert len(names) == len(main.list_commands(click.Context(main))) + 1 + of_groups  # and kcast itself


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_pages_are_shown_without_a_complaint_and_say_what_the_help_says(folder: Path) -> None:
    for path in folder.iterdir():
        assert shown(path)
    text = shown(folder / "kcast-sub.1")
    for line in (
        "kcast-sub - print the messages of topics until Ctrl-C, --count or --timeout",
        "kcast sub [OPTIONS] TOPIC...",
        r"appear as \x1b and the like.",
        "kcast sub --cluster lab.cluster -t weather/oslo -C 1 -W 60 -F '@H:@M %p'",
        "-W, --timeout SECONDS",
        "SEE ALSO",
    ):
        assert line in " ".join(text.split())
    assert "kcast-load-compare(1)" in shown(folder / "kcast-load.1")


def test_nothing_in_a_help_is_taken_for_a_request() -> None:
    @click.command("c", help="Says \\fB.\n\n.so /etc/passwd\n'quoted'\n\n\b\nExample:\n  .TH -x")
    def command() -> None:
        """Does nothing."""

    lines = page(command, click.Context(command, info_name="c")).splitlines()
    assert r"Says \efB." in lines
    assert r"\&.so /etc/passwd" in lines
    assert r"\(aqquoted\(aq" in lines
    assert r"  .TH \-x" in lines, "a request begins in the first column"
