import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from kcast.client import aio, blocking
from kcast.client.cli import main, protection
from kcast.client.cli.group import main as group
from kcast.client.cluster import ClusterError, format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.pubsub.errors import KcastError

CLUSTER = lab([("127.0.0.1", 9), ("127.0.0.1", 10)], Policy(2, 1, 2), name="trial")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a cluster file `lab.txt` and an own configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    for variable in ("KCAST_CLUSTER", "KCAST_SEAL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("lab.txt").write_text(format_cluster(CLUSTER))
    return tmp_path


def kcast(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, list(arguments), env=environment)


def test_a_context_stands_for_its_file(folder: Path) -> None:
    added = kcast("context", "add", "lab", "lab.txt")
    assert (added.exit_code, added.output) == (0, f"lab: {folder}/lab.txt\n")
    named = kcast("where", "t", "--cluster", "lab")
    assert (named.exit_code, named.stdout) == (0, kcast("where", "t", "--cluster", "lab.txt").stdout)
    assert kcast("where", "t", KCAST_CLUSTER="lab").stdout == named.stdout
    assert kcast("where", "t").exit_code == 2
    assert kcast("context", "use", "lab").output == f"lab, in use: {folder}/lab.txt\n"
    assert kcast("where", "t").stdout == named.stdout
    in_use = kcast("plan", "--json").stdout.replace("the context in use: ", "")
    assert in_use == kcast("plan", "--json", "--cluster", "lab").stdout
    assert kcast("context", "use", "--none").output == "no context is in use\n"
    assert kcast("where", "t").exit_code == 2


@pytest.mark.parametrize("client", [aio.Client, blocking.Client])
def test_programs_name_contexts_too(client: type) -> None:
    kcast("context", "add", "lab", "lab.txt")
    assert client("lab").cluster == CLUSTER
    with pytest.raises(ClusterError, match="no cluster is given"):
        client()
    kcast("context", "use", "lab")
    assert client().cluster == CLUSTER


def test_list_and_show(folder: Path) -> None:
    assert kcast("context", "list").stderr == (
        "kcast context: there are none: 'kcast context add NAME FILE' makes one\n"
    )
    kcast("context", "add", "b", "lab.txt", "--use")
    Path("gone.txt").write_text(format_cluster(CLUSTER))
    kcast("context", "add", "a", "gone.txt")
    Path("gone.txt").unlink()
    listed = kcast("context", "list")
    assert listed.exit_code == 0
    assert [line.split() for line in listed.stdout.splitlines()] == [
        ["context", "servers", "policy", "file"],
        ["a", "-", "-", f"{folder}/gone.txt"],
        ["*", "b", "2", "2/1/2", f"{folder}/lab.txt"],
    ]
    problem = f"context a: {folder}/gone.txt: No such file or directory"
    assert listed.stderr == f"kcast context: {problem}\n"
    a, b = map(json.loads, kcast("context", "list", "--json").stdout.splitlines())
    assert a == {
        **{"context": "a", "in_use": False, "file": f"{folder}/gone.txt", "options": [], "problem": problem},
        **{"cluster": None, "policy": None, "servers": None},
    }
    assert b == {
        **{"context": "b", "in_use": True, "file": f"{folder}/lab.txt", "options": [], "problem": None},
        **{"cluster": "trial", "policy": "2/1/2", "servers": ["127.0.0.1:9", "127.0.0.1:10"]},
    }
    assert json.loads(kcast("context", "show", "--json").stdout) == b
    assert kcast("context", "show").stdout == (
        f"context  b (in use)\nfile     {folder}/lab.txt\ncluster  trial\npolicy   2/1/2\n"
        "servers  127.0.0.1:9\n         127.0.0.1:10\n"
    )
    shown = kcast("context", "show", "a")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (1, "", f"kcast context: {problem}\n")


def test_adding_again_replaces_and_says_so(folder: Path) -> None:
    Path("other.txt").write_text(format_cluster(CLUSTER))
    kcast("context", "add", "lab", "lab.txt")
    again = kcast("context", "add", "lab", "other.txt")
    assert again.output == f"lab: {folder}/other.txt (was {folder}/lab.txt)\n"
    assert kcast("context", "add", "lab", "other.txt").output == f"lab: {folder}/other.txt\n"


def test_what_cannot_be_used_is_not_added() -> None:
    Path("wrong.txt").write_text("kcast-cluster 1\n")
    for name, file, complaint in (
        ("a", "wrong.txt", "context a: "),
        ("a", "gone.txt", "No such file or directory"),
        ("a.b", "lab.txt", "'a.b' cannot be a context's name: give 1 to 64 of"),
    ):
        refused = kcast("context", "add", name, file)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert complaint in refused.stderr
    assert kcast("context", "list", "--json").stdout == ""


def test_a_list_that_is_not_known_is_not_added() -> None:
    pytest.importorskip("nacl")
    refused = kcast("context", "add", "a", "@prod")
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "context a: @prod is not known here: type 'kcast servers trust URL PIN'" in refused.stderr


def test_the_variable_goes_before_the_context_in_use_and_that_is_told() -> None:
    kcast("context", "add", "lab", "lab.txt")
    told = "kcast context: KCAST_CLUSTER is set, and goes before the context in use\n"
    assert kcast("context", "use", "lab", KCAST_CLUSTER="x").stderr == told
    assert kcast("context", "list", KCAST_CLUSTER="x").stderr == told
    assert kcast("context", "show", KCAST_CLUSTER="x").stderr == told
    assert kcast("context", "show", "lab", KCAST_CLUSTER="x").stderr == ""


def test_remove() -> None:
    kcast("context", "add", "lab", "lab.txt", "--use")
    assert kcast("context", "remove", "lab").output == "lab is removed; its file stays\n"
    assert Path("lab.txt").exists()
    assert kcast("context", "remove", "lab").stderr == (
        "kcast context: no such context: lab ('kcast context add NAME FILE' makes one)\n"
    )
    assert kcast("where", "t").exit_code == 2


def test_the_shell_completes_names_and_files_where_no_context_begins_so() -> None:
    for name in ("prod", "lab", "live"):
        kcast("context", "add", name, "lab.txt")
    shell = ShellComplete(group, {}, "kcast", "_KCAST_COMPLETE")
    for words, incomplete, completed in (
        (["where", "--cluster"], "", ["lab", "live", "prod"]),
        (["where", "--cluster"], "l", ["lab", "live"]),
        (["context", "use"], "p", ["prod"]),
        (["context"], "sh", ["show"]),
    ):
        found = shell.get_completions(words, incomplete)
        assert [item.value for item in found] == completed
    for incomplete in ("./l", "lab.", "x"):
        (item,) = shell.get_completions(["where", "--cluster"], incomplete)
        assert (item.type, item.value) == ("file", incomplete)


# --- Options of a context -----------------------------------------------------------------------------


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `pub` and `sub` ask to be proven: nothing is opened."""
    asked: list[dict[str, Any]] = []

    def note(command: str, topic: object, **given: Any) -> None:
        asked.append({name: value for name, value in given.items() if value not in (None, False, ())})
        raise KcastError("enough")

    monkeypatch.setattr(protection, "writing", note)
    monkeypatch.setattr(protection, "reading", note)
    return asked


def test_a_context_holds_what_is_easily_forgotten(folder: Path, proven: list[dict[str, Any]]) -> None:
    """What is typed goes before KCAST_SEAL, and that before the context; `--seal ''` is for clear text."""
    Path("ann.key").write_text("x")
    words = ("--seal", "ops", "--key", "./k.pem", "--from", "ann.key", "--from", "K" * 43, "--sign")
    held = f"--seal ops --key {folder}/k.pem --from {folder}/ann.key --from {'K' * 43} --sign"
    assert kcast("context", "add", "lab", "lab.txt", *words).output == f"lab: {folder}/lab.txt {held}\n"
    assert f"\noptions  {held}\n" in kcast("context", "show", "lab").stdout
    assert json.loads(kcast("context", "show", "lab", "--json").stdout)["options"] == held.split()
    for name in ("plain", "signed"):
        kcast("context", "add", name, "lab.txt", *(["--sign"] if name == "signed" else []))
    key, sealed = {"key_name": f"{folder}/k.pem"}, {"group_name": "ops"}
    signed, senders = {"is_signed": True}, {"senders": (f"{folder}/ann.key", "K" * 43)}
    typed = {"senders": ("./other",)}
    for line, variable, expected in (
        ("pub t m --cluster lab", "", sealed | signed | key),
        ("pub t m --cluster lab --seal ''", "", signed | key),
        ("pub t m --cluster lab --seal ''", "other", signed | key),
        (
            "pub t m --cluster lab --seal third --key k",
            "other",
            {"group_name": "third", "key_name": "k"} | signed,
        ),
        ("pub t m --cluster lab", "other", signed | key | {"group_name": "other"}),
        ("pub t m --cluster plain", "other", {"group_name": "other"}),
        ("pub t m --cluster plain", "", {}),
        ("pub t m --cluster ./lab.txt", "", {}),
        ("pub t m --cluster signed", "", signed),
        ("sub t --cluster lab", "", sealed | key | senders),
        ("sub t --cluster lab --seal ''", "", senders),
        ("sub t --cluster lab --from ./other", "", sealed | key | typed),
        ("sub t --cluster plain", "other", {"group_name": "other"}),
    ):
        kcast(*shlex.split(line), KCAST_SEAL=variable)
        assert proven.pop() == expected, line
    kcast("context", "use", "lab")
    kcast("pub", "t", "m")
    kcast("pub", "t", "m", KCAST_CLUSTER="plain")
    assert proven == [sealed | signed | key, {}]
    where = kcast("where", "t")
    assert (
        where.exit_code == 1 and "k.pem" in where.stderr and kcast("where", "t", "--seal", "").exit_code == 0
    )
    for variable, words_typed, says in (
        ("", [], "--sign (of the context) needs: leave out --raw ("),
        ("", ["--sign"], "--sign needs: leave out one of them ("),
        (
            "ops",
            ["--cluster", "plain"],
            "--seal (of a context, or of KCAST_SEAL) needs: give --seal '', or",
        ),
    ):
        raw = kcast("pub", "t", "m", "--raw", *words_typed, KCAST_SEAL=variable)
        assert raw.exit_code == 2 and says in raw.stderr, "nothing in clear unasked"


def test_a_damaged_context_is_refused_and_replacing_one_tells_what_it_held(folder: Path) -> None:
    kcast("context", "add", "lab", "lab.txt", "--seal", "ops")
    again = kcast("context", "add", "lab", "lab.txt")
    assert again.output == f"lab: {folder}/lab.txt (was {folder}/lab.txt --seal ops)\n"
    assert kcast("context", "add", "lab", "lab.txt", "--from", "x" * 9000).exit_code == 1
    file = folder / "configuration" / "kcast" / "contexts" / "lab"
    for options in ("--sael ops", "", "--from x\0" * 2000):
        file.write_text(f"{folder}/lab.txt\0{options}\n")
        for line in ("pub t m --cluster lab", "sub t --cluster lab", "where t --cluster lab"):
            refused = kcast(*line.split())
            assert refused.exit_code == 1 and "'kcast context add lab FILE' writes it anew" in refused.stderr
