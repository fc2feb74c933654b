"""`kcast servers init`, `add`, `publish`, `trust`, `verify` and the others, one after the other."""

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import partial
from getpass import GetPassWarning
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copytree
from threading import Thread
from warnings import warn

import click
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("nacl")
pytest.importorskip("pymerkle")

from kcast.client.cli import main
from kcast.client.cli.servers.keyring import Keyring
from kcast.client.trust.forms.document import parse
from kcast.client.trust.state import keys
from kcast.pubsub.errors import KcastError

NAME = "example.org/lab"
ADDRESSES = ["192.0.2.7:7400", "192.0.2.8:7400", "192.0.2.9:7400"]


class Machine:
    """A user on a machine: a home, and a folder to work in."""

    def __init__(self, home: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.work = work
        self._monkeypatch = monkeypatch
        for folder in (home, work):
            folder.mkdir(exist_ok=True)

    def run(self, *arguments: str, **environment: str) -> Result:
        variables = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": None,
            "XDG_STATE_HOME": None,
            "KCAST_CLUSTER": None,
            "KCAST_TRUST_PATH": "",
            "KCAST_KEY_PASSPHRASE": None,
            **environment,
        }
        with self._monkeypatch.context() as patched:
            patched.chdir(self.work)
            return CliRunner().invoke(main, ["servers", *arguments], env=variables)

    def ok(self, *arguments: str, **environment: str) -> str:
        result = self.run(*arguments, **environment)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def wrong(self, *arguments: str, exit_code: int = 1, **environment: str) -> str:
        """What is said of a mistake, in one line, after which nothing has changed."""
        before = self.files()
        result = self.run(*arguments, **environment)
        assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
        assert result.stderr.count("\n") == 1, result.stderr
        assert self.files() == before
        return result.stderr

    def files(self) -> dict[str, bytes]:
        """What lies in the folder of work, and the keys."""
        paths = (*sorted(self.work.rglob("*")), *self.keys)
        return {str(path): path.read_bytes() for path in paths if path.is_file()}

    @property
    def keys(self) -> list[Path]:
        return sorted((self.home / ".config" / "kcast" / "keys").glob("*.pem"))

    @property
    def pin(self) -> str:
        line = next(line for line in self.made.splitlines() if line.startswith("  kcast servers trust"))
        return line.split()[-1]

    made = ""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path / "home", tmp_path / "work", monkeypatch)
    machine.made = machine.ok("init", NAME, *ADDRESSES)
    return machine


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path / "stranger", tmp_path / "elsewhere", monkeypatch)


@pytest.fixture
def url(machine: Machine) -> Iterator[str]:
    """A web server that serves the folder of the list."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(machine.work / "lab.log")))
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


# --- Publishers ------------------------------------------------------------------------------------------


def test_init_makes_keys_a_log_and_a_list_that_is_trusted_here(machine: Machine) -> None:
    assert [path.name for path in machine.keys] == [
        "example.org%2Flab%2Flog.pem",
        "example.org%2Flab%2Fsigner-0.pem",
    ]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in machine.keys)
    assert all(path.name.startswith("lab.") for path in machine.work.iterdir())
    checks = machine.ok("verify", f"@{NAME}").splitlines()
    assert [line.split()[0] for line in checks] == [
        *("trust", "checkpoint", "history", "list", "signers", "times", "servers", "meeting")
    ]
    assert [line.split()[-1] for line in checks] == ["ok"] * 6 + ["-"] * 2
    assert all(len(line) < 80 for line in checks)
    assert "updates come by hand" in machine.run("verify", f"@{NAME}").stderr


def test_a_stored_list_is_compared_with_a_file(machine: Machine, stranger: Machine) -> None:
    stranger.ok("trust", str(machine.work / "lab.log"), machine.pin)
    machine.ok("add", "lab.cluster", "192.0.2.10:7400")
    told = stranger.ok("diff", f"@{NAME}", str(machine.work / "lab.cluster"))
    assert told.startswith("+ 192.0.2.10\n")
    assert "versions 1 and 2 always meet" in told


def test_a_trust_document_is_shown_as_it_stands_there(machine: Machine) -> None:
    machine.ok("rotate", "lab.cluster", "--url", "https://lists.example.org/lab")
    told = machine.ok("show", "lab.trust")
    assert told == (machine.work / "lab.trust").read_text()
    assert "from https://lists.example.org/lab\n" in told


def test_no_key_is_ever_printed(machine: Machine) -> None:
    seeds = [keys.load(path, "x").seed for path in machine.keys]
    told = machine.made + machine.ok("publish", "lab.cluster") + repr(machine.files())
    for seed in seeds:
        assert seed.hex() not in told
        assert repr(seed)[2:-1] not in told


def test_add_diff_publish_remove_and_log(machine: Machine) -> None:
    assert "1 server added: version 2" in machine.ok("add", "lab.cluster", "192.0.2.10:7400")
    told = machine.ok("diff", "lab.cluster")
    assert "+ 192.0.2.10" in told and "always meet" in told
    assert "placed anew" not in told
    assert "version 2 of example.org/lab is published: 1 host added, 0 removed" in machine.ok(
        "publish", "lab.cluster"
    )
    machine.ok("remove", "lab.cluster", "192.0.2.7:7400")
    machine.ok("publish", "lab.cluster")
    rows = [json.loads(line) for line in machine.ok("log", f"@{NAME}", "--json").splitlines()]
    assert [(row["kind"], row["version"], row.get("hosts"), row.get("removed")) for row in rows] == [
        ("trust", 1, None, None),
        ("list", 1, 3, None),
        ("list", 2, 4, 0),
        ("list", 3, 3, 1),
    ]
    fields = json.loads(machine.ok("diff", "lab.log/list/1", "lab.log/list/3", "--json"))
    assert (fields["added"], fields["removed"], fields["always_meet"]) == (
        ["192.0.2.10"],
        ["192.0.2.7"],
        True,
    )


def test_publishing_again_renews_and_says_the_line_of_a_crontab(machine: Machine) -> None:
    told = machine.ok("publish", "lab.cluster")
    assert "version 2 of example.org/lab is published, renewed" in told
    assert f"servers publish {machine.work}/lab.cluster" in told
    told = machine.ok("publish", "lab.cluster", "--fresh-days", "1", "--valid-days", "2")
    assert "it is fresh for 24 h" in told
    assert json.loads(machine.ok("show", "lab.cluster", "--json"))["version"] == 3


def test_init_from_an_unsigned_file_keeps_policy_and_salt(machine: Machine) -> None:
    unsigned = machine.work / "old.txt"
    unsigned.write_text(
        "kcast-cluster 1\nname old\npolicy k=2 publish=1 subscribe=2\nsalt 0102\nserver 192.0.2.7:7400\n"
        "server 192.0.2.8:7400\n"
    )
    machine.ok("init", "example.org/new", "--from", "old.txt")
    text = (machine.work / "new.cluster").read_text()
    assert "policy k=2 publish=1 subscribe=2\n" in text and "salt   0102\n" in text
    assert "name   example.org/new\n" in text


def test_a_passphrase_encrypts_the_keys(machine: Machine) -> None:
    machine.ok("init", "example.org/two", *ADDRESSES, "--passphrase", KCAST_KEY_PASSPHRASE="open sesame")
    path = next(path for path in machine.keys if "two%2Fsigner" in path.name)
    assert b"ENCRYPTED" in path.read_bytes()
    said = machine.wrong("publish", "two.cluster", KCAST_KEY_PASSPHRASE="close sesame")
    assert "signer-0.pem: what KCAST_KEY_PASSPHRASE holds is not its passphrase" in said
    told = machine.ok("publish", "two.cluster", KCAST_KEY_PASSPHRASE="open sesame")
    assert "this line of a crontab renews it, where KCAST_KEY_PASSPHRASE is set:" in told


def test_a_key_of_the_log_that_was_replaced_may_be_removed(machine: Machine) -> None:
    for _ in range(2):
        machine.ok("rotate", "lab.cluster", "--new", "log")
        machine.ok("publish", "lab.cluster")
    for name in ("log.pem", "log.2.pem"):
        (machine.keys[0].parent / f"example.org%2Flab%2F{name}").unlink()
    assert "version 4 of example.org/lab is published" in machine.ok("publish", "lab.cluster")


def test_without_a_terminal_nobody_is_asked_for_a_passphrase(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object, **__: object) -> str:
        warn("Can not control echo on the terminal.", GetPassWarning, stacklevel=2)
        return ""

    monkeypatch.setattr(click, "prompt", asked)
    with pytest.raises(KcastError, match="no passphrase was given: type it, or set KCAST_KEY_PASSPHRASE"):
        Keyring()._ask()


def test_a_list_whose_witnesses_are_down_is_begun_by_the_next_publish(machine: Machine) -> None:
    line = machine.ok("witness", "w0.example.net", "--url", "http://127.0.0.1:1").strip()
    result = machine.run("init", "example.org/new", *ADDRESSES, "--witness", line, "--quorum", "1")
    assert result.exit_code == 1
    assert "0 of 1 witnesses have cosigned" in result.stderr
    assert "made 2 keys" in result.stdout
    assert "made new.trust and new.cluster, which wait to be published" in result.stdout
    assert "0 of 1 witnesses have cosigned" in machine.wrong("publish", "new.cluster")


def test_a_signed_list_that_waits_is_published_as_it_is_or_not_at_all(machine: Machine) -> None:
    line = machine.ok("witness", "w0.example.net", "--url", "http://127.0.0.1:1").strip()
    machine.ok("rotate", "lab.cluster", "--witness", line)
    for options in ("", "--fresh-days 7 --valid-days 90", "--now"):
        said = machine.run("publish", "lab.cluster", *options.split()).stderr
        assert "0 of 1 witnesses have cosigned" in said
    for options, words in (
        ("--valid-days 10", "--valid-days"),
        ("--fresh-days 3 --valid-days 9", "--fresh-days and --valid-days"),
    ):
        said = machine.wrong("publish", "lab.cluster", *options.split())
        assert "lab.cluster: version 2 is signed, and waits to be published as it is: publish it" in said
        assert f" without {words} first, and the next version with that\n" in said


def test_a_second_list_of_a_name_is_refused(machine: Machine) -> None:
    elsewhere = Machine(machine.home, machine.work.parent / "elsewhere", machine._monkeypatch)
    assert "example.org/lab was begun already: go to its folder" in elsewhere.wrong("init", NAME, *ADDRESSES)
    elsewhere.ok("init", "example.org/other", *ADDRESSES)


def test_keys_of_which_nothing_became_are_removed(machine: Machine) -> None:
    before = machine.files()
    machine.wrong("init", "example.org/new", *ADDRESSES, "--quorum", "9")
    machine.wrong("rotate", "lab.cluster", "--new", "signer", "--signers-needed", "9")
    key = next(path for path in machine.keys if "signer" in path.name)
    key.chmod(0o644)
    machine.wrong("rotate", "lab.cluster", "--new", "signer", "--new", "log")
    assert machine.files() == before


def test_the_other_rules_are_edited_in_a_draft(machine: Machine) -> None:
    assert "edit it, then sign it" in machine.ok("rotate", "lab.cluster")
    draft = machine.work / "lab.trust"
    text = draft.read_text()
    rules = {
        "churn": "churn 80%",
        "hosts": "hosts 9 per-prefix",
        "floor": "floor 2",
        "expiry": "expiry refuse",
    }
    for word, line in rules.items():
        text = re.sub(f"\n{word} .*", f"\n{line}", text)
    draft.write_text(text)
    assert "0 of the 1 signatures" in machine.run("publish", "lab.cluster").stderr
    machine.ok("sign", "lab.trust")
    machine.ok("publish", "lab.cluster")
    document, _ = parse((machine.work / "lab.log/trust/2").read_bytes())
    assert (document.churn_percent, document.hosts_per_prefix, document.floor) == (80, 9, 2)
    assert document.expiry == "refuse"


def test_a_trust_document_that_waits_is_not_lost(machine: Machine) -> None:
    machine.ok("rotate", "lab.cluster", "--out", "signer-0", "--new", "signer")
    said = machine.wrong("rotate", "lab.cluster", "--url", "https://lists.example.org/lab")
    assert "lab.trust: it waits to be published, and would be lost" in said
    machine.ok("publish", "lab.cluster")
    machine.ok("rotate", "lab.cluster", "--url", "https://lists.example.org/lab")
    assert "signer-0" not in (machine.work / "lab.trust").read_text()


def published(machine: Machine) -> str:
    """Puts the trust document that waits where a published one lies, and asks nobody; returns its text."""
    version = len(list((machine.work / "lab.log/trust").glob("[0-9]"))) + 1
    document = (machine.work / "lab.trust").rename(machine.work / f"lab.log/trust/{version}")
    return document.read_text()


def test_a_witness_comes_or_goes_and_the_quorum_stays(machine: Machine) -> None:
    names = [f"w{number}.example.net" for number in range(8)]
    lines = [machine.ok("witness", name, "--url", "http://127.0.0.1:1").strip() for name in names]
    first = [word for line in lines[:7] for word in ("--witness", line)]
    told = machine.ok("rotate", "lab.cluster", *first, "--quorum", "7")
    assert "  a list needs 7 of 7 witnesses\n" in told
    assert "group q 7 " in published(machine)
    told = machine.ok("rotate", "lab.cluster", "--out", names[6], "--witness", lines[7])
    assert "  a list needs 7 of 7 witnesses\n" in told
    assert "group q 7 " in published(machine)
    told = machine.ok("rotate", "lab.cluster", "--out", names[0], "--quorum", "5")
    assert "  a list needs 5 of 6 witnesses; before, 7 of 7\n" in told
    assert "group q 5 " in published(machine)
    machine.ok("rotate", "lab.cluster", "--out", names[1])
    assert "group q 5 " in published(machine)
    told = machine.ok("rotate", "lab.cluster", "--out", names[2])
    assert "  a list needs 4 of 4 witnesses; before, 5 of 5\n" in told, "there are no more"
    assert "group q 4 " in published(machine)


def test_witnesses_that_come_get_a_quorum_of_two_thirds(machine: Machine) -> None:
    names = [f"w{number}.example.net" for number in range(5)]
    lines = [
        f"--witness={machine.ok('witness', name, '--url', 'http://127.0.0.1:1').strip()}" for name in names
    ]
    assert "  a list needs 1 of 1 witnesses\n" in machine.ok("rotate", "lab.cluster", lines[0])
    published(machine)
    told = machine.ok("rotate", "lab.cluster", *lines[1:4])
    assert "  a list needs 3 of 4 witnesses; before, 1 of 1\n" in told, "two thirds of those who have come"
    published(machine)
    machine.ok("rotate", "lab.cluster", "--quorum", "1")
    published(machine)
    told = machine.ok("rotate", "lab.cluster", lines[4])
    assert "  a list needs 1 of 5 witnesses; before, 1 of 4\n" in told, "as it was set"


def test_the_version_that_may_change_more_stays_until_versions_count_anew(machine: Machine) -> None:
    machine.ok("rotate", "lab.cluster", "--except", "2")
    assert "% except 2\n" in published(machine)
    machine.ok("rotate", "lab.cluster", "--url", "https://lists.example.org/lab")
    assert "% except 2\n" in published(machine)
    machine.ok("rotate", "lab.cluster", "--except", "7")
    assert "% except 7\n" in published(machine)
    machine.ok("rotate", "lab.cluster", "--lists-from", "5")
    assert " except " not in published(machine)


def test_a_later_trust_document_is_not_signed_where_what_was_published_is_gone(machine: Machine) -> None:
    signer = next(path for path in machine.keys if "signer-0" in path.name)
    signer.rename(machine.home / "kept.pem")
    machine.ok("rotate", "lab.cluster", "--new", "signer")
    assert "without it, version 1 goes on: move it away" in machine.run("publish", "lab.cluster").stderr
    (machine.home / "kept.pem").rename(signer)
    (machine.work / "lab.log").rename(machine.work / "elsewhere")
    assert "lab.log: what was published there is gone" in machine.wrong("publish", "lab.cluster")
    (machine.work / "lab.trust").unlink()
    assert "lab.log: what was published there is gone" in machine.wrong("publish", "lab.cluster")
    (machine.work / "elsewhere").rename(machine.work / "lab.log")
    machine.ok("publish", "lab.cluster")
    assert "all follow from the entries" in machine.run("log", "--audit", "lab.cluster").stderr


def test_two_of_three_signers(machine: Machine, stranger: Machine) -> None:
    line = stranger.ok("init", "example.org/club", "--key", "signer-1").strip()
    third = machine.ok("init", "example.org/club", "--key", "signer-2").strip()
    result = machine.run("init", "example.org/club", *ADDRESSES, "--signer", line, "--signer", third)
    assert (machine.work / "club.log" / "checkpoint").is_file(), result.output  # two of the three are here
    (machine.home / ".config/kcast/keys/example.org%2Fclub%2Fsigner-2.pem").unlink()
    machine.ok("add", "club.cluster", "192.0.2.10:7400")
    result = machine.run("publish", "club.cluster")
    assert result.exit_code == 1
    assert "version 2 has 1 of the 2 signatures that it needs" in result.stderr
    given = (machine.work / "club.cluster").read_bytes()
    (stranger.work / "club.cluster").write_bytes(given)
    told = stranger.ok("sign", "club.cluster", "--trust", str(machine.work / "club.log/trust/1"))
    assert "signed by example.org/club/signer-1; version 2 has 2 of the 2 signatures" in told
    (machine.work / "club.cluster").write_bytes((stranger.work / "club.cluster").read_bytes())
    told = machine.ok("publish", "club.cluster")
    assert "version 2 of example.org/club is published" in told
    assert "have it signed and published again by then, since it takes 2 signers" in told
    assert "crontab" not in told


# --- Those who use a list ----------------------------------------------------------------------------------


def test_a_stranger_trusts_by_the_pin_over_http(machine: Machine, stranger: Machine, url: str) -> None:
    said = stranger.wrong("trust", url)
    assert f"shows example.org/lab with the pin {machine.pin}: ask its operators" in said
    assert "wrong pin" in stranger.wrong("trust", url, machine.pin[::-1])
    assert "is not known here" in stranger.wrong("verify", f"@{NAME}")
    told = stranger.ok("trust", url, machine.pin)
    assert told == f"{NAME} is trusted: version 1, 3 servers; use it as --cluster @{NAME}\n"
    machine.ok("publish", "lab.cluster")
    assert "version 2" in stranger.ok("verify", f"@{NAME}")
    head = stranger.ok("head", f"@{NAME}").strip()
    assert head.startswith("3.") and len(head) == 24
    assert stranger.run("evidence", f"@{NAME}").stderr.endswith("there is none\n")


def test_a_pin_may_begin_with_a_dash(machine: Machine, stranger: Machine) -> None:
    said = stranger.wrong("trust", str(machine.work / "lab.log"), "-X" + machine.pin[2:])
    assert f"wrong pin: it shows example.org/lab with the pin {machine.pin}" in said
    result = stranger.run("trust", str(machine.work / "lab.log"), "-X")
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_place_whose_list_is_refused_does_not_replace_a_good_one(
    machine: Machine, stranger: Machine, tmp_path: Path
) -> None:
    stranger.ok("trust", str(machine.work / "lab.log"), machine.pin)
    old = tmp_path / "old"
    copytree(machine.work / "lab.log", old)
    machine.ok("publish", "lab.cluster")
    stranger.ok("verify", f"@{NAME}")
    said = stranger.wrong("trust", str(old), machine.pin)
    assert "example.org/lab: what is stored here stays in use, but this list was refused" in said
    machine.ok("publish", "lab.cluster")
    assert "version 3" in stranger.ok("verify", f"@{NAME}")


def test_a_bundle_on_a_stick(machine: Machine, stranger: Machine) -> None:
    stick = stranger.work / "stick"
    stick.write_bytes((machine.work / "lab.log" / "bundle").read_bytes())
    stranger.ok("trust", "stick", machine.pin)
    assert "version 1" in stranger.ok("verify", "stick")


def test_verify_of_files(machine: Machine) -> None:
    machine.ok("publish", "lab.cluster")
    told = machine.ok("verify", "lab.cluster")
    assert "entry 2 of example.org/lab/log" in told
    (machine.work / "plain.txt").write_text("kcast-cluster 1\nserver 192.0.2.7:7400\n")
    assert "plain.txt: it is not signed" in machine.wrong("verify", "plain.txt")
    checks = [json.loads(line) for line in machine.ok("verify", "lab.log", "--json").splitlines()]
    assert all(check["ok"] for check in checks)
    assert checks[-1] == {"ok": True, "fault": None, "text": None}


@pytest.fixture
def thief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Somebody who makes a list of his own that has the same name."""
    return Machine(tmp_path / "thief", tmp_path / "made", monkeypatch)


def test_a_file_is_judged_by_the_stored_trust_and_not_by_what_lies_beside_it(
    machine: Machine, stranger: Machine, thief: Machine
) -> None:
    stranger.ok("trust", str(machine.work / "lab.log"), machine.pin)
    thief.ok("init", NAME, "203.0.113.1:7400", "203.0.113.2:7400")
    copytree(thief.work, stranger.work / "mail")
    result = stranger.run("verify", "mail/lab.cluster")
    assert result.exit_code == 1
    assert "version 1 is signed by 0 of the 1 signers that it takes" in result.stdout
    assert "the checkpoint is not signed by the log" in " ".join(result.stdout.split())


def test_a_trust_document_before_the_stored_one_is_not_believed(
    machine: Machine, stranger: Machine, thief: Machine
) -> None:
    machine.ok("rotate", "lab.cluster", "--url", "https://lists.example.org/lab")
    machine.ok("publish", "lab.cluster")
    stranger.ok("trust", str(machine.work / "lab.log"), machine.pin)
    # Version 2 is signed by an owner of this version 1, too: the thief has named him beside himself.
    owner = parse((machine.work / "lab.log/trust/2").read_bytes())[0].owners[0]
    one_of_two = ("--signer", str(owner), "--owners-needed", "1", "--signers-needed", "1")
    thief.ok("init", NAME, "203.0.113.1:7400", "203.0.113.2:7400", *one_of_two)
    (thief.work / "lab.log/trust/2").write_bytes((machine.work / "lab.log/trust/2").read_bytes())
    copytree(thief.work, stranger.work / "mail")
    result = stranger.run("verify", "mail/lab.cluster")
    assert result.exit_code == 1
    assert "version 1 is signed by 0 of the 1 signers that it takes" in result.stdout


def test_a_file_under_a_trust_document_that_follows_the_stored_one(
    machine: Machine, stranger: Machine
) -> None:
    stranger.ok("trust", str(machine.work / "lab.log"), machine.pin)
    machine.ok("rotate", "lab.cluster", "--new", "signer", "--out", "signer-0", "--new", "log")
    machine.ok("publish", "lab.cluster")
    copytree(machine.work, stranger.work / "mail")
    assert "entry 3 of example.org/lab/log" in stranger.ok("verify", "mail/lab.cluster")
    (stranger.work / "mail/lab.log/trust/2").unlink()
    said = stranger.wrong("verify", "mail/lab.cluster")
    assert "version 2 of the trust document of example.org/lab is not at hand" in said


def test_of_a_file_whose_name_is_not_known_the_pin_is_said(machine: Machine, stranger: Machine) -> None:
    copytree(machine.work, stranger.work / "mail")
    result = stranger.run("verify", "mail/lab.cluster")
    assert result.exit_code == 0
    assert result.stderr == (
        f"example.org/lab is not known here: all that follows rests on the pin {machine.pin}\n"
    )


def test_a_file_whose_proof_the_log_has_not_signed_is_refused(machine: Machine, stranger: Machine) -> None:
    stranger.ok("trust", str(machine.work / "lab.log"), machine.pin)
    machine.ok("publish", "lab.cluster")
    copytree(machine.work, stranger.work / "mail")
    path = stranger.work / "mail/lab.log/list/2.tlog-proof"
    head, _, signature = path.read_text().rpartition(" ")
    *rest, last = b64decode(signature)
    forged = bytes((*rest, last ^ 1))  # the last byte is 0 in one of sixteen
    path.write_text(f"{head} {b64encode(forged).decode()}\n")
    result = stranger.run("verify", "mail/lab.cluster")
    assert result.exit_code == 1
    assert "no proof is at hand that it is in the public log: list/2.tlog-proof: " in result.stdout
    assert result.stdout.endswith("(unlogged)\n")


def test_without_a_network_the_stored_list_stays_in_use(machine: Machine, stranger: Machine) -> None:
    machine.ok("rotate", "lab.cluster", "--url", "http://127.0.0.1:1")
    machine.ok("publish", "lab.cluster")
    stranger.ok("trust", str(machine.work / "lab.log" / "bundle"), machine.pin)
    said = stranger.wrong("verify", f"@{NAME}")
    assert "Connection refused; what is stored here stays in use: 'kcast servers show' prints it" in said
    assert "version  2" in stranger.ok("show", f"@{NAME}")


# --- Mistakes ----------------------------------------------------------------------------------------------


def edited(machine: Machine) -> None:
    file = machine.work / "lab.cluster"
    file.write_bytes(file.read_bytes().replace(b"192.0.2.9", b"192.0.2.6"))


def words_of_0_4(machine: Machine) -> None:
    """In a draft that is not signed."""
    file = machine.work / "lab.cluster"
    head, _, rest = file.read_text().partition("\n\n")[0].partition("\n")
    file.write_text(f"{head}\nsalt aabb from=9999999999\npending 192.0.2.99:1\n{rest}\n")


def open_key(machine: Machine) -> None:
    machine.keys[0].chmod(0o644)


def no_log_key(machine: Machine) -> None:
    machine.keys[0].unlink()


def no_signer_key(machine: Machine) -> None:
    machine.keys[1].unlink()


def damaged_database(machine: Machine) -> None:
    (machine.work / "lab.log.db").write_bytes(b"x" * 5000)


def no_checkpoint_beside_the_key(machine: Machine) -> None:
    machine.keys[0].with_suffix(".checkpoint").unlink()


def damaged_checkpoint_beside_the_key(machine: Machine) -> None:
    machine.keys[0].with_suffix(".checkpoint").write_text("x")


def edited_as_published(machine: Machine) -> None:
    file = machine.work / "lab.log" / "list" / "1"
    file.write_bytes(file.read_bytes().replace(b"192.0.2.9", b"192.0.2.6"))


def damaged_state(machine: Machine) -> None:
    for file in machine.home.joinpath(".local/state/kcast/trust").rglob("trust"):
        if file.is_file():
            file.write_text("x")


@pytest.mark.parametrize(
    ("typed", "spoil", "words"),
    [
        (
            "publish lab.cluster",
            edited,
            "lab.cluster:13: it was edited after it was signed: 'server 192.0.2.6:7400' stands where the "
            "published version has 'server 192.0.2.9:7400': take the edit back, or remove the lines",
        ),
        ("add lab.cluster 192.0.2.1:1", edited, "lab.cluster:13: it was edited after it was signed"),
        ("sign lab.cluster", edited, "lab.cluster:13: it was edited after it was signed"),
        ("add lab.cluster 192.0.2.1:1", words_of_0_4, "lab.cluster:2: kcast 0.4 alone knew 'salt aabb from="),
        ("publish lab.cluster", open_key, "others may read or write it: chmod 600"),
        ("publish lab.cluster", no_log_key, "the key of the log, example.org/lab/log, is not at hand"),
        (
            "sign lab.cluster",
            no_signer_key,
            "none of your keys may sign it; those of example.org/lab/signer-0 may",
        ),
        ("publish lab.cluster", damaged_database, "lab.log.db: it is damaged"),
        (
            "publish lab.cluster",
            no_checkpoint_beside_the_key,
            "the checkpoint that was signed last is missing",
        ),
        (
            "publish lab.cluster",
            damaged_checkpoint_beside_the_key,
            "log.checkpoint: it is damaged (expected a signed note",
        ),
        ("publish lab.cluster", edited_as_published, "lab.log/list/1: it was changed after it was published"),
        ("verify @example.org/lab", damaged_state, "what is stored of @example.org/lab is damaged: type"),
        ("init example.org/lab 192.0.2.1:1", None, "lab.cluster is there already: go to another folder"),
        ("init example.org/x --key signer-0", None, None),
        (
            "init example.org/lab --key signer-0",
            None,
            "there is a key already, and keys are never overwritten",
        ),
        ("init a.b/x 192.0.2.1:1 192.0.2.1:1", None, "192.0.2.1:1 stands there twice"),
        ("init a.b/x --from lab.cluster", None, "lab.cluster: it is a signed list already"),
        ("init a.b/x --from no.txt", None, "no.txt: No such file or directory"),
        ("init a.b/x 192.0.2.1:1 --signers-needed 2", None, "--signers-needed 2: give a number from 1 to 1"),
        ("init a.b/x 192.0.2.1:1 --quorum 2", None, "a quorum of 2 needs witnesses"),
        (
            "init a.b/x 192.0.2.1:1 --valid-days 1",
            None,
            "a list must be valid for at least as long as it is fresh: raise",
        ),
        ("add lab.cluster 192.0.2.7:7400", None, "192.0.2.7:7400 is in the list already"),
        ("add no.cluster 192.0.2.7:7400", None, "no.cluster: No such file or directory"),
        ("add made.txt 192.0.2.7:7400", None, "made.txt:1: expected 'kcast-cluster 1'"),
        ("add plain.txt 192.0.2.9:7400", None, "it is no signed list: 'kcast servers init NAME --from FILE'"),
        ("remove lab.cluster 192.0.2.77:7400", None, "192.0.2.77:7400 is not in the list"),
        ("remove lab.cluster 192.0.2.7:7400 192.0.2.8:7400 192.0.2.9:7400", None, "the list would be empty"),
        ("publish latin1.txt --fresh-days 3", None, "latin1.txt:1: not UTF-8"),
        ("publish no.cluster --valid-days 3", None, "no.cluster: No such file or directory"),
        ("publish plain.txt", None, "there is no plain.trust and no plain.log/ beside it"),
        ("publish no.cluster", None, "there is no no.trust and no no.log/ beside it"),
        ("rotate lab.cluster --out signer-7", None, "--out signer-7: there is no such key; there are"),
        ("rotate lab.cluster --out signer-0", None, "no signer would be left: --new signer makes a key"),
        ("rotate plain.txt --new log", None, "no trust document is published there yet"),
        ("sign made.txt", None, "made.txt:1: expected 'kcast-cluster 1'"),
        ("trust no.folder", None, "no.folder: there is no such folder, and no such bundle"),
        ("verify example.org/lab", None, "the name of a trusted list with @"),
        ("trust lab.log/list", None, "there is no trust document (trust/1)"),
        ("trust http://127.0.0.1:1/x", None, "http://127.0.0.1:1/x/trust/1: Connection refused"),
        ("trust ftp://example.org/x", None, "give a URL of http, https or file"),
        ("verify @example.org/lib", None, "is not known here; did you mean example.org/lab? type 'kcast"),
        ("verify no.cluster", None, "no.cluster: there is no such folder, and no such bundle"),
        ("verify @", None, "is not known here"),
        ("head @example.org/nix", None, "is not known here"),
        ("evidence @example.org/nix", None, "is not known here"),
        ("log no.folder", None, "no.folder: there is no such folder"),
        ("log keys", None, "there is no log (checkpoint)"),
        ("diff plain.txt", None, "plain.txt: no published list is beside it: give two lists\n"),
        ("diff named.txt", None, "give two lists, such as @example.org/lab and named.txt\n"),
        ("diff @example.org/lab", None, "no published list is beside it: give two lists\n"),
        ("diff @example.org/lib lab.cluster", None, "is not known here; did you mean example.org/lab?"),
        ("diff plain.txt no.txt", None, "no.txt: No such file or directory"),
        ("show no.txt", None, "no.txt: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    machine: Machine, typed: str, spoil: Callable[[Machine], None] | None, words: str | None
) -> None:
    (machine.work / "made.txt").write_text("made by hand\n")
    (machine.work / "keys").mkdir()
    (machine.work / "plain.txt").write_text("kcast-cluster 1\nserver 192.0.2.7:7400\n")
    (machine.work / "latin1.txt").write_bytes(b"# caf\xe9\n")
    (machine.work / "named.txt").write_bytes((machine.work / "lab.cluster").read_bytes())
    if spoil:
        spoil(machine)
    if words is None:
        machine.ok(*typed.split())
    else:
        assert words in machine.wrong(*typed.split())


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("init Example.org/x 192.0.2.1:1", "'Example.org/x' cannot be the name of a list"),
        ("init a.b/x host:1", "names are not looked up"),
        ("init a.b/x 192.0.2.1:1 --signer x", "expected NAME+KEYID+BASE64, not 'x'"),
        ("init a.b/x 192.0.2.1:1 --url lists.example.org", "give a URL such as https://lists.example"),
        ("init a.b/x 192.0.2.1:1 --url htp://lists.example.org", "give a URL such as https://lists."),
        ("init a.b/x 192.0.2.1:1 --url https://a:99999/", "give a URL such as https://lists.example"),
        ("rotate lab.cluster --url http://", "--url http://: give a URL such as https://lists.example"),
        ("init a.b/x 192.0.2.1:1 --witness x", "--witness: expected 'NAME VKEY URL', not 'x'"),
        ("add lab.cluster 192.0.2.77", "expected IP:PORT"),
        ("trust lab.log 43characters", "'43characters' is no pin, which has 43 characters"),
    ],
)
def test_a_wrong_argument_is_a_wrong_use(machine: Machine, typed: str, words: str) -> None:
    assert words in machine.wrong(*typed.split(), exit_code=2)


def test_a_network_that_nobody_can_write_to(machine: Machine) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (machine.work / "lab.log").chmod(0o500)
    assert "Permission denied" in machine.wrong("publish", "lab.cluster")
