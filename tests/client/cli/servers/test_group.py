"""client/cli/servers: the group, and what its verbs share."""

import sys

import click
import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.client.cli.servers.common import errors_of
from kcast.client.cli.servers.group import VERBS, command


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_can_be_loaded_and_has_a_help_with_an_example(verb: str) -> None:
    found = command.get_command(click.Context(command), verb)
    assert found is not None
    assert found.name == verb
    shown = CliRunner().invoke(main, ["servers", verb, "--help"])
    assert shown.exit_code == 0
    assert f"  kcast servers {verb}" in shown.stdout


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("nacl.signing", "signatures: nacl is missing: pip install '.[trust]'"),
        ("cryptography.hazmat.primitives", "keys: cryptography is missing: pip install '.[trust]'"),
        ("pymerkle", "the log of a list: pymerkle is missing: pip install '.[list-log]'"),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(
    module: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    with pytest.raises(SystemExit) as ended, errors_of("init"):
        __import__(module)
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"kcast servers init: {words} in a checkout of kcast brings it\n"


def test_another_missing_module_is_no_matter_of_extras() -> None:
    with pytest.raises(ModuleNotFoundError), errors_of("init"):
        __import__("kcast.there_is_none")
