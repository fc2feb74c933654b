"""`kcast pub` and `kcast sub` with keys and groups, as processes on a cluster of real servers."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import time
from typing import Any, NamedTuple

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from kcast.client.cli import main, protection
from kcast.client.cli.group import main as group
from kcast.client.sealed.keys import Identity
from kcast.hashring.policy import Policy
from tests.support.cluster_of_processes import ClusterOfProcesses, Command

DROPPED = b"kcast sub: dropped: "


class Person:
    """Somebody at this machine, with a folder and a key."""

    def __init__(self, folder: Path, cluster: ClusterOfProcesses) -> None:
        self.folder = folder
        self._cluster = cluster
        folder.mkdir()
        self.identity = Identity.make(folder / "config" / "kcast" / "keys" / "key.pem")

    @property
    def key(self) -> str:
        return self.identity.key_text

    @property
    def variables(self) -> dict[str, str]:
        return {
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "KCAST_CLUSTER": str(self._cluster.file),
        }

    def kcast(self, *words: str | bytes, stdin: int = subprocess.DEVNULL) -> Command:
        """A command of this person's, as a process."""
        env = [f"{name}={value}" for name, value in self.variables.items()]
        program = ("env", "-u", "KCAST_KEY", *env, sys.executable, "-m", "kcast.client.cli")
        return Command(*words, program=program, stdin=stdin)

    def run(self, *words: str | bytes, **variables: str) -> Result:
        """A command of this person's within this process, which spares the time to start one.

        What it is to know later it must have written to its folder all the same: who subscribes is a process.
        """
        env = {**self.variables, "KCAST_KEY": None, **variables}
        return CliRunner().invoke(main, [os.fsdecode(word) for word in words], env=env)

    def done(self, *words: str | bytes) -> str:
        """What a command prints that goes well."""
        ended = self.run(*words)
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    def refused(self, *words: str | bytes, exit_code: int = 1, stdin: bytes | None = None) -> str:
        """The one line in which a command is refused that prints nothing."""
        if stdin is None and words[0] != "sub":  # which writes to a descriptor
            ended = self.run(*words)
            told = ended.exit_code, ended.stdout_bytes, ended.stderr_bytes
        else:
            with self.kcast(*words, stdin=subprocess.PIPE) as command:
                command.feed(stdin or b"")
                told = command.end()
        code, output, errors = told
        assert (code, output, errors.count(b"\n")) == (exit_code, b"", 1), errors
        return errors.decode()


class People(NamedTuple):
    """Ann owns the group `ops`, Ben reads it, and Cat is no member of it."""

    ann: Person
    ben: Person
    cat: Person


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    with ClusterOfProcesses(tmp_path_factory.mktemp("cluster"), 3, Policy(3, 2, 3)) as running:
        yield running


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, cluster: ClusterOfProcesses) -> People:
    folder = tmp_path_factory.mktemp("people")
    ann, ben, cat = (Person(folder / name, cluster) for name in ("ann", "ben", "cat"))
    file = str(folder / "ops.group")
    ann.done("group", "new", "ops", "--out", file)
    ann.done("group", "add", "ops", ben.identity.member_word, "--now", "--yes")
    ben.done("group", "join", file, "--owner", str(ann.identity.note_key.verifier))
    return People(ann, ben, cat)


def as_json(output: bytes) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def drops_of(errors: bytes) -> set[str]:
    """The reasons that `kcast sub` sums up at its end, each with how many copies had it."""
    line = next(line for line in errors.splitlines() if line.startswith(DROPPED))
    counts = [each.partition("=") for each in line.removeprefix(DROPPED).decode().split()]
    assert all(int(count) > 0 for _, _, count in counts)
    return {name for name, _, _ in counts}


def test_two_machines_talk_sealed_after_six_commands(cluster: ClusterOfProcesses, tmp_path: Path) -> None:
    """Ben's word goes to Ann, and her group's file, with the line that she is shown, to Ben."""
    ann, ben = (Person(tmp_path / name, cluster) for name in ("ann", "ben"))
    for person in (ann, ben):
        (person.folder / "config" / "kcast" / "keys" / "key.pem").unlink()
    word = ben.done("key", "show").split()[-1]
    ann.done("group", "new", "six", "--out", str(tmp_path / "six.group"))
    line = ann.done("group", "add", "six", word, "--now", "--yes").splitlines()[-1]
    ben.done(*line.split()[1:])
    with ben.kcast("sub", "t", "--seal", "six", "-C", "1") as sub:
        sub.await_error(b"leased on 3 of 3")
        ann.done("pub", "t", "at 8", "--seal", "six")
        assert sub.end()[:2] == (0, b"at 8\n")


def test_a_member_who_publishes_in_clear_is_told_so_once(people: People) -> None:
    told = "kcast pub: in clear, so anybody can read it: --seal GROUP seals for one of yours: ops\n"
    for options, expected in (
        ([], 1),
        (["--sign"], 1),
        (["--raw"], 1),
        (["--seal", ""], 1),  # as of a variable that is not set
        (["--seal", "ops"], 0),
    ):
        assert people.ben.run("pub", "t", "m", *options).stderr.count(told) == expected, options
    assert people.cat.run("pub", "t", "m").stderr.count("in clear") == 0, "she has joined nothing"
    meant = people.ben.run("pub", "t", "m", "--seal", "", KCAST_SEAL="ops")
    assert meant.exit_code == 0 and "in clear" not in meant.stderr


def test_signed_messages_arrive_with_their_sender_and_the_drops_are_named(people: People) -> None:
    ann, cat = people.ann, people.cat
    began = time()
    options = ("weather/oslo", "--from", ann.key, "--json", "--timeout", "30")
    with (
        cat.kcast("sub", *options, "--count", "2") as sub,
        cat.kcast("sub", "weather/oslo", "-C", "4") as plain,
    ):
        sub.await_error(b"leased on 3 of 3")
        plain.await_error(b"leased on 3 of 3")
        ann.done("pub", "weather/oslo", "first", "--sign")
        sub.await_lines(1)
        cat.done("pub", "weather/oslo", "nobody's")
        cat.done("pub", "weather/oslo", "Cat's", "--sign")
        ann.done("pub", "weather/oslo", "second", "--sign")
        code, output, errors = sub.end()
        assert (code, drops_of(errors)) == (0, {"unauthorised", "unsigned"})
        lines = plain.end()[1].splitlines()
        assert sorted(lines) == [b"Cat's", b"first", b"nobody's", b"second"], "signatures change no meaning"
    first, second = as_json(output)
    assert (first["payload"], second["payload"]) == ("first", "second")
    for message in (first, second):
        assert (message["sender"], message["group"], message["seq"]) == (ann.key, None, 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", message["sent_at"])
        assert message["sent_at"] <= message["time"]
    assert time() - began < 60


def test_who_cannot_read_what_is_sealed_keeps_it_for_those_who_can(people: People, tmp_path: Path) -> None:
    ann, ben, cat = people
    shown = ann.done("where", "chat", "--seal", "ops").splitlines()[1]
    hidden, store = shown.split()[1].rstrip(","), str(tmp_path / "cat.db")
    with cat.kcast("keep", hidden, "--store", store) as keeper:
        keeper.await_error(f"{hidden}: keeps 0 entries".encode())
        assert ann.run("pub", "--keep", "1", "--seal", "ops", "chat", "hi").exit_code == 0
        late = ("chat", "--seal", "ops", "--since", "10m", "-C", "1", "--json")
        with ben.kcast("sub", *late) as sub:
            code, output, _ = sub.end()
        (entry,) = as_json(output)
        assert (code, entry["payload"], entry["sender"], entry["group"]) == (0, "hi", ann.key, "ops")
        with ben.kcast("keep", "chat", "--seal", "ops", "--store", str(tmp_path / "ben.db")) as keeping:
            keeping.await_error(b"chat: keeps 0 entries")
            assert ann.run("pub", "--keep", "2", "-W", "20", "--seal", "ops", "chat", "ho").exit_code == 0
        assert "no group nosuch" in ben.refused("history", "chat", "--seal", "nosuch")
        with cat.kcast("history", hidden, "--store", store) as reading:
            assert reading.end() == (0, b"", b"kcast history: dropped: not-opened=2\n")


def test_sealed_messages_arrive_at_readers_alone(people: People) -> None:
    ann, ben = people.ann, people.ben
    for options in ((), ("--plain-topic",)):
        with (
            ben.kcast("sub", "plans", "--seal", "ops", "--json", "--count", "2", *options) as sub,
            ben.kcast("sub", "plans", "--seal", "ops", "--from", ann.key, "-C", "1", *options) as of_ann,
        ):
            sub.await_error(b"leased on 3 of 3")
            of_ann.await_error(b"leased on 3 of 3")
            ben.done("pub", "plans", "his", "--seal", "ops", *options)
            sub.await_lines(1)
            ann.done("pub", "plans", "mine", "--seal", "ops", "--sign", *options)
            code, output, errors = sub.end()
            assert (code, b"dropped" in errors) == (0, False)
            code, whose, errors = of_ann.end()
            assert (code, whose, drops_of(errors)) == (0, b"mine\n", {"unauthorised"})
        told = [(each["payload"], each["sender"], each["group"], each["topic"]) for each in as_json(output)]
        assert told == [("his", ben.key, "ops", "plans"), ("mine", ann.key, "ops", "plans")]


@pytest.mark.rest
def test_who_asks_unsigned_is_told_what_may_be_missing(people: People) -> None:
    ann, ben, _ = people
    for sign, expected in (((), True), (("--sign",), False)):
        with ben.kcast("request", "nobody", "--from", ann.key, *sign) as asking:
            code, _, errors = asking.end()
        assert code == 1 and (b"--sign" in errors) == expected, errors
        assert b"dropped" not in errors, "its own words"
    with ann.kcast("reply", "one", "text", "--limit", "1/60", "--from", ben.key) as worker:
        worker.await_error(b" answers")
        for exit_code, part in (0, b""), (4, b"limited: it takes no more from you for 60 s"):
            with ben.kcast("request", "one", "--sign") as asking:
                code, _, errors = asking.end()
            assert code == exit_code and part in errors, errors


def test_a_topic_that_names_its_sender(people: People, tmp_path: Path) -> None:
    ann, ben, cat = people
    topic = f"{ann.identity.topic_start}/oslo"
    with cat.kcast("sub", topic, "--json", "-C", "1") as sub:
        sub.await_error(b"leased on 3 of 3")
        ann.done("pub", topic, "mine", "--sign")
        assert [each["sender"] for each in as_json(sub.end()[1])] == [ann.key]
    assert "sign with one of them (--sign --key NAME)" in ann.refused("pub", topic, "m")
    assert f"they are not the key {ben.key} alone: nothing was sent" in ben.refused(
        "pub", topic, "m", "--sign"
    )
    assert "names other keys than those given (--from" in cat.refused("sub", topic, "--from", ben.key)
    assert "subscribe to them apart" in cat.refused("sub", topic, "weather")


def test_a_topic_that_names_several_senders(people: People, tmp_path: Path) -> None:
    from kcast.client.sealed.topics import topic_start

    ann, ben, cat = people
    topic = topic_start([ann.identity.signer.key, ben.identity.signer.key])
    keys = tmp_path / "keys.txt"
    keys.write_text(f"# of the two\n\n{ann.key}  # Ann\n  {ben.key}\n")
    with cat.kcast("sub", topic, "--from", str(keys), "--json", "-C", "2") as sub:
        sub.await_error(b"leased on 3 of 3")
        ann.done("pub", topic, "1", "--sign", "--from", ann.key, "--from", ben.key)
        sub.await_lines(1)
        ben.done("pub", topic, "2", "--sign", "--from", str(keys))
        assert [each["sender"] for each in as_json(sub.end()[1])] == [ann.key, ben.key]


def test_what_is_too_large_is_told_with_what_fits(people: People) -> None:
    ann = people.ann
    for size, options, fits in (
        (629, ("--seal", "ops"), "1 too many. Sealed on this topic, at most 628 fit"),
        (80_000, ("--seal", "ops"), "79372 too many. Sealed on this topic, at most 628 fit"),
        (2_000, ("--sign",), "2000 bytes. The topic, and a signature, clock or parents, leave room for"),
        (80_000, ("--sign",), "80000 bytes. The topic, and a signature, clock or parents, leave room for"),
    ):
        who = ann if "--seal" in options else people.cat  # who has no group
        text = who.refused("pub", "weather/oslo", "-s", *options, stdin=b"%" * size)
        assert text.startswith(f"kcast pub: message too large: {size} bytes") and fits in text
    with ann.kcast("pub", "weather/oslo", "-s", "--seal", "ops", stdin=subprocess.PIPE) as pub:
        pub.feed(b"%" * 628)
        assert pub.end()[0] == 0


def test_a_stream_of_lines_is_sealed_and_comes_in_order(people: People) -> None:
    ann, ben = people.ann, people.ben
    lines = b"".join(b"line %d\n" % number for number in range(200))
    for options, readers in (
        (("--seal", "ops"), ("--seal", "ops")),
        (("--sign",), ("--from", ann.key)),
    ):
        with (
            ben.kcast("sub", "stream", "-C", "200", "--hold", "5", *readers) as sub,
            ann.kcast("pub", "stream", "--rate", "0", *options, stdin=subprocess.PIPE) as pub,
        ):
            sub.await_error(b"leased on 3 of 3")
            pub.feed(lines)
            assert pub.end()[0] == 0
            code, output, errors = sub.end()
            assert (code, output, b"dropped" in errors) == (0, lines, False)


def test_old_and_coming_messages_are_told(people: People) -> None:
    ann, cat = people.ann, people.cat
    with (
        cat.kcast("sub", "late", "--from", ann.key, "--ahead", "0.001", "--back", "0.001", "-W", "8") as sub,
        cat.kcast("sub", "late", "--from", ann.key, "--ahead", "3600", "-W", "8") as patient,
    ):
        sub.await_error(b"leased on 3 of 3")
        patient.await_error(b"leased on 3 of 3")
        ann.done("pub", "late", "m", "--sign")
        assert patient.end()[:2] == (0, b"m\n")
        code, output, errors = sub.end()
        assert (code, output) == (0, b"") and drops_of(errors) == {"too-old"}


# --- Refusals ----------------------------------------------------------------------------------------


def test_who_is_no_member_hears_what_its_owner_must_run(people: People) -> None:
    ann, cat = people.ann, people.cat
    file = str(ann.folder.parent / "ops.group")
    for command in (("pub", "t", "m"), ("sub", "t"), ("where", "t")):
        assert f"'kcast group join {file}' shows the key" in cat.refused(*command, "--seal", file)
        assert "there is no group ops here" in cat.refused(*command, "--seal", "ops")


def test_a_writer_cannot_read_and_hears_so(people: People, tmp_path: Path) -> None:
    ann, cat = people.ann, people.cat
    file, vkey = str(tmp_path / "notes.group"), str(ann.identity.note_key.verifier)
    ann.done("group", "new", "notes", "--out", file)
    ann.done("group", "add", "notes", cat.identity.member_word, "--write-only", "--now", "--yes")
    cat.done("group", "join", file, "--owner", vkey)
    with ann.kcast("sub", "t", "--seal", "notes", "-C", "1") as sub:
        sub.await_error(b"leased on 3 of 3")
        cat.done("pub", "t", "written", "--seal", "notes")
        assert sub.end()[1] == b"written\n"
    assert "you may write in epoch 2, but not read: ask its owner" in cat.refused(
        "sub", "t", "--seal", "notes"
    )

    ann.done("group", "add", "notes", ann.identity.member_word, "--sender", "--now", "--yes")
    text = cat.refused("pub", "t", "m", "--seal", "notes")
    assert f"takes only messages of its senders, and {cat.key} is none of them: nothing was sent" in text
    ann.done("pub", "t", "m", "--seal", "notes")


AT = """
from kcast.client.sealed import group_watch, groups
now = groups.time
groups.time = group_watch.time = lambda: now() + {later_s}
from kcast.client.cli import main
main()
"""


QUICK = """
from kcast.client.sealed import beacon, group_watch
beacon.SAY_SOON_S, beacon.SAY_AGAIN_S, group_watch.LOOK_INTERVAL_S = 0.2, 0.2, 1.0
from kcast.client.cli import main
main()
"""


def test_an_old_file_that_is_handed_out_is_told_of_by_members_who_run(people: People, tmp_path: Path) -> None:
    """Of the new epoch the one knows from the owner's folder, and the other from the beacon alone."""
    ann, cat = people.ann, people.cat
    new, old = tmp_path / "new.group", tmp_path / "old.group"
    ann.done("group", "new", "watched", "--out", str(new))
    ann.done("group", "add", "watched", cat.identity.member_word, "--now", "--yes")
    old.write_bytes(new.read_bytes())
    cat.done("group", "join", str(old), "--owner", str(ann.identity.note_key.verifier))
    running = []
    with ExitStack() as stack:
        for person in (ann, cat):
            variables = [f"{name}={value}" for name, value in person.variables.items()]
            program = ("env", *variables, sys.executable, "-c", QUICK)
            running.append(stack.enter_context(Command("sub", "t", "--seal", "watched", program=program)))
            running[-1].await_error(b"leased on 3 of 3")
        ann.done("group", "remove", "watched", cat.identity.key_text)
        told = f"group watched: other members have its epoch 3, signed by its owner, and {old} has epoch 2"
        running[1].await_error(told.encode())


def test_a_group_that_is_stale_is_told_once_and_one_that_has_ended_is_refused(
    people: People, tmp_path: Path
) -> None:
    ann = people.ann
    ann.done("group", "new", "short", "--out", str(tmp_path / "short.group"), "--days", "1")
    typed = ("sub", "t", "--seal", "short", "--timeout", "2")
    variables = [f"{name}={value}" for name, value in ann.variables.items()]
    program = ("env", *variables, sys.executable, "-c", AT.format(later_s=0.95 * 86_400))
    with Command(*typed, program=program) as sub:
        _, _, errors = sub.end()
    assert errors.count(b"kcast sub: group short: its epoch 1 was to be renewed by ") == 1
    assert b"'kcast group renew short'" in errors and b"(stale)\n" in errors
    program = ("env", *variables, sys.executable, "-c", AT.format(later_s=1.01 * 86_400))
    for verb in ("sub", "pub"):
        with Command(verb, *typed[1:4], program=program) as command:
            code, output, errors = command.end()
        assert (code, output, errors.count(b"\n")) == (1, b"", 1)
        assert b"the group short: it ended on" in errors and b"'kcast group renew short'" in errors


def test_where_shows_both_names_of_a_topic(people: People, tmp_path: Path) -> None:
    ann = people.ann
    file = str(tmp_path / "places.group")
    ann.done("group", "new", "places", "--out", file)
    text = ann.done("where", "weather/oslo", "--seal", "places")
    name = re.search(
        r"^topic     weather/oslo\nsealed    (\S{22}), in epoch 1 of places\nhashed    \1\n", text
    )
    assert name, text
    rows = as_json(ann.done("where", "weather/oslo", "--seal", "places", "--json").encode())
    assert {row["wire_topic"] for row in rows} == {name[1]} and rows[0]["topic"] == "weather/oslo"
    plain = as_json(ann.done("where", name[1], "--json").encode())
    assert [row["server"] for row in plain] == [row["server"] for row in rows]
    assert "wire_topic" not in plain[0]

    ann.done("group", "renew", "places")
    row = as_json(ann.done("where", "weather/oslo", "--seal", file, "--json").encode())[0]
    assert (row["epoch"], row["wire_topic"]) == (1, name[1])
    tagged = ann.done("where", "weather/{oslo}/wind", "--seal", "places")
    assert re.search(r"^sealed    \{\S{11}\}\S{22}, in epoch 1", tagged, re.MULTILINE)


# --- Keys that --from names ---------------------------------------------------------------------------


@pytest.fixture
def keys_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], str]:
    monkeypatch.chdir(tmp_path)

    def write(data: bytes) -> str:
        (tmp_path / "keys.txt").write_bytes(data)
        return "keys.txt"

    return write


KEYS = [Identity.from_seed("key", bytes([number]) * 32).key_text for number in range(3)]


def test_keys_are_given_by_themselves_and_in_files(keys_file: Callable[[bytes], str]) -> None:
    file = keys_file(f"{KEYS[1]}\r\n#\n{KEYS[2]}#comment".encode())
    assert protection.keys_of([KEYS[0], file, KEYS[1]]) == [KEYS[0], KEYS[1], KEYS[2]]
    assert protection.keys_of([]) == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "keys.txt: there is no key in it"),
        (b"# none\n", "keys.txt: there is no key in it"),
        (b"\n" + KEYS[0].encode() + b"\nx y\n", "keys.txt:3: expected a key of 43 characters"),
        (b"\xff\n", "keys.txt:1: expected a key"),
        (b"A" * 43 + b"\n" + b"B" * 43, "keys.txt:2: expected a key"),
        (b"#" * (1 << 20) + b"\n", "keys.txt: more than 1048576 bytes"),
    ],
)
def test_files_without_sense_are_refused(keys_file: Callable[[bytes], str], data: bytes, says: str) -> None:
    with pytest.raises(Exception, match=re.escape(says)) as caught:
        protection.keys_of([keys_file(data)])
    assert "\n" not in str(caught.value)


def test_shells_complete_keys_and_groups(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in people.ann.variables.items():
        monkeypatch.setenv(name, value)
    complete = ShellComplete(group, {}, "kcast", "_KCAST_COMPLETE")
    for command in ("pub", "sub", "where"):
        assert "ops" in [each.value for each in complete.get_completions([command, "t", "--seal"], "")]
        assert [each.value for each in complete.get_completions([command, "t", "--key"], "")] == ["key"]
    assert [each.type for each in complete.get_completions(["sub", "t", "--from"], "")] == ["file"]
