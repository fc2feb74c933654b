"""client/cli/servers: the group, and what its verbs share."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.client.cli.servers.group import VERBS, command

PIP = f"{sys.executable} -m pip install"
LIST = """kcast-cluster 1
name example.org/lab
version 1
trust 1
valid-after 1
fresh-until 2
valid-until 3
min-servers 1
server 192.0.2.7:7400
"""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_can_be_loaded_and_has_a_help_with_an_example(verb: str) -> None:
    found = command.get_command(click.Context(command), verb)
    assert found is not None
    assert found.name == verb
    shown = CliRunner().invoke(main, ["servers", verb, "--help"])
    assert shown.exit_code == 0
    assert f"  kcast servers {verb}" in shown.stdout


@pytest.mark.parametrize(
    ("typed", "module", "words"),
    [
        (("verify", "x.cluster"), "nacl", f"a signed list needs the extra 'trust': {PIP} 'kcast[trust]'"),
        (("init", "a.b/c", "192.0.2.7:1"), "cryptography", f"needs the extra 'trust': {PIP} 'kcast[trust]'"),
        (("log", "x", "--audit"), "pymerkle", f"an audit of a log needs the extra 'list-log': {PIP}"),
        (("publish", "x.cluster"), "pymerkle", f"the log of a list needs the extra 'list-log': {PIP}"),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(
    typed: tuple[str, ...], module: str, words: str, tmp_path: Path
) -> None:
    pytest.importorskip("nacl")
    (tmp_path / "x.cluster").write_text(LIST)
    (tmp_path / "x").mkdir()
    program = f"import sys; sys.modules[{module!r}] = None; from kcast.client.cli import main; main()"
    run = subprocess.run(
        (sys.executable, "-c", program, "servers", *typed),
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"kcast servers {typed[0]}: ")
    assert words in run.stderr and run.stderr.count("\n") == 1
