"""client/cli/key.py: keys that are made once, shown in all their forms, and refused in one line."""

import json
import os
import subprocess
import sys
from getpass import GetPassWarning
from pathlib import Path
from typing import Any
from warnings import warn

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from kcast.client.cli import main
from kcast.client.cli.group import main as group
from kcast.client.sealed.keys import Identity, parse_member
from kcast.client.trust.forms.note import VerifierKey

LABELS = ["name", "file", "key", "short", "vkey", "ssh", "topic", "member"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of keys, which is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KCAST_KEY", raising=False)
    monkeypatch.delenv("KCAST_KEY_PASSPHRASE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config" / "kcast" / "keys"


def kcast(*words: str, **options: Any) -> Result:
    """What `kcast key` does with these words."""
    return CliRunner().invoke(main, ["key", *words], **options)


def fields_of(text: str) -> dict[str, str]:
    """The lines of a key, by their labels."""
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def refused(result: Result, command: str) -> str:
    """The one line of a refusal, without the command."""
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"kcast key {command}: ") and result.stderr.count("\n") == 1
    return result.stderr.removeprefix(f"kcast key {command}: ").removesuffix("\n")


def test_a_key_is_made_and_shown_in_all_its_forms(folder: Path) -> None:
    made = kcast("new")
    assert (made.exit_code, made.stderr) == (0, "")
    first, _, rest = made.stdout.partition("\n")
    assert first == f"made {folder}/key.pem, which only you can read: back it up"
    shown = kcast("show")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, rest, "")
    fields, identity = fields_of(rest), Identity.load()
    assert list(fields) == LABELS
    assert (fields["name"], fields["file"]) == ("key", str(folder / "key.pem"))
    assert fields["key"] == identity.key_text and len(fields["key"]) == 43
    assert VerifierKey.parse(fields["vkey"]).public == identity.signer.key
    assert fields["ssh"] == identity.ssh_line
    assert fields["topic"] == identity.topic_start and len(fields["topic"]) == 23
    assert parse_member(fields["member"]).key == identity.signer.key
    assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_json_has_the_same(folder: Path) -> None:
    made = kcast("new", "station", "--json")
    fields = json.loads(made.stdout)
    assert list(fields) == LABELS and fields["name"] == "station"
    assert json.loads(kcast("show", "station", "--json").stdout) == fields
    assert fields_of(kcast("show", "station").stdout) == fields
    assert made.stdout.count("\n") == 1


def test_a_passphrase_is_typed_or_stands_in_the_variable(folder: Path) -> None:
    """And `key passphrase` changes it: what is asked is in order."""
    before = json.loads(kcast("new", "--json").stdout)
    file, horse, wrong = (
        folder / "key.pem",
        {"KCAST_KEY_PASSPHRASE": "horse"},
        {"KCAST_KEY_PASSPHRASE": "cow"},
    )
    changed = kcast("passphrase", input="horse\nhorse\n")  # it had none
    assert (changed.exit_code, changed.stdout) == (
        0,
        f"{file} is written anew under that passphrase: back it up\n",
    )
    assert b"ENCRYPTED" in file.read_bytes()
    assert json.loads(kcast("show", "--json", input="horse\n").stdout) == before
    refused_ = kcast("show", env=wrong)
    assert refused(refused_, "show").endswith("or it is damaged: set the variable to the right one")
    assert "key.pem: what KCAST_KEY_PASSPHRASE holds is not its passphrase" in refused_.stderr
    assert kcast("passphrase", input="cow\n").stderr.endswith("or it is damaged: type it again\n")
    assert "is empty" not in kcast("passphrase", env=horse).stderr  # from horse to horse, unasked
    assert kcast("passphrase", input="horse\ncow\ncow\n").exit_code == 0
    assert json.loads(kcast("show", "--json", env=wrong).stdout) == before
    assert "there is no key none" in refused(kcast("passphrase", "none"), "passphrase")
    kcast("new", "open", env=horse)
    kcast("new", "closed", "--passphrase", env=horse)
    assert b"ENCRYPTED" not in (folder / "open.pem").read_bytes()
    assert b"ENCRYPTED" in (folder / "closed.pem").read_bytes()


def test_show_makes_a_key_where_none_is_and_none_is_named(folder: Path) -> None:
    for words, environment in ((["station"], {}), ([], {"KCAST_KEY": "station"})):
        assert "there is no key station" in refused(kcast("show", *words, env=environment), "show")
    assert not folder.exists()
    made = kcast("show")
    assert made.stderr == f"kcast key show: made {folder}/key.pem, which only you can read: back it up\n"
    again = kcast("show")
    assert (again.stdout, again.stderr) == (made.stdout, "")


def test_nobody_is_asked_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def asked(*_: object, **__: object) -> str:
        warn("Can not control echo on the terminal.", GetPassWarning, stacklevel=2)
        return ""

    kcast("new", "closed", "--passphrase", env={"KCAST_KEY_PASSPHRASE": "horse"})
    monkeypatch.setattr(click, "prompt", asked)
    expected = "no passphrase was given: type it, or set KCAST_KEY_PASSPHRASE"
    assert refused(kcast("show", "closed"), "show") == expected
    assert refused(kcast("new", "other", "--passphrase"), "new") == expected
    assert not (folder / "other.pem").exists()


@pytest.mark.parametrize(
    ("words", "completed"),
    [("", ["key", "lab", "station"]), ("s", ["station"]), ("x", ["x"])],
)
def test_the_shell_completes_names(words: str, completed: list[str]) -> None:
    for name in ("key", "lab", "station"):
        kcast("new", name)
    found = ShellComplete(group, {}, "kcast", "_KCAST_COMPLETE").get_completions(["key", "show"], words)
    assert [item.value for item in found] == completed
    assert [item.type for item in found] == (["file"] if words == "x" else ["plain"] * len(found))


@pytest.mark.world
@pytest.mark.parametrize("verb", ["new", "show"])
@pytest.mark.parametrize("module", ["nacl", "cryptography"])
def test_a_missing_extra_is_one_line_that_says_what_to_install(verb: str, module: str, folder: Path) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from kcast.client.cli import main; main()"
    run = subprocess.run(
        (sys.executable, "-c", program, "key", verb),
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"kcast key {verb}: a key needs the extra 'trust': ")
    assert run.stderr.count("\n") == 1
    assert run.stderr.endswith(" -m pip install 'kcast[trust]'\n")
    assert not folder.exists()
