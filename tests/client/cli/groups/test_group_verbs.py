"""client/cli/groups: a group from its first epoch to a member who is removed, and every refusal in one
line."""

import json
import os
import re
import shlex
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("nacl")

from kcast.client.cli import main
from kcast.client.cli.groups import names, owners
from kcast.client.clusters import durable
from kcast.client.sealed import group_file, group_owner, groups
from kcast.client.sealed.keys import Identity, short_form
from kcast.client.sealed.membership import GroupError
from kcast.client.trust.state.locking import Busy
from tests.support.groups import made
from tests.support.killed import killed_at


class User:
    """A user of this machine, with a home and a key."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self.identity = self.at_home(Identity.make)

    def at_home(self, act: Callable[[], Any]) -> Any:
        with self._monkeypatch.context() as patched:
            patched.setenv("XDG_CONFIG_HOME", str(self.folder / "config"))
            patched.setenv("XDG_STATE_HOME", str(self.folder / "state"))
            return act()

    def kcast(self, line: str, **options: Any) -> Result:
        """What `kcast group` does with these words; whoever is added was compared."""
        runner = CliRunner()
        line += " --yes" * line.startswith("add ")
        result: Result = self.at_home(lambda: runner.invoke(main, ["group", *shlex.split(line)], **options))
        return result

    def done(self, line: str) -> str:
        """What it prints, where it is done without a word on standard error."""
        result = self.kcast(line)
        assert (result.exit_code, result.stderr) == (0, ""), result.stderr
        return result.stdout

    def refused(self, line: str, exit_code: int = 1) -> str:
        """The one line in which it is refused, without the command."""
        result = self.kcast(line)
        assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
        verb = line.split()[0]
        assert result.stderr.startswith(f"kcast group {verb}: ") and result.stderr.count("\n") == 1
        return result.stderr.removeprefix(f"kcast group {verb}: ").removesuffix("\n")

    def load(self, what: str = "ops") -> groups.Group:
        group: groups.Group = self.at_home(lambda: groups.load(what, self.identity))
        return group


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KCAST_KEY", raising=False)
    monkeypatch.delenv("KCAST_KEY_PASSPHRASE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ann(here: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    return User(here / "ann", monkeypatch)


@pytest.fixture
def ben(here: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    return User(here / "ben", monkeypatch)


def owner_of(user: User) -> str:
    return str(user.identity.note_key.verifier)


def shown(user: User, what: str = "ops") -> Any:
    return json.loads(user.done(f"show {what} --json"))


def test_a_group_from_its_first_epoch_to_a_member_who_is_removed(ann: User, ben: User) -> None:
    made_ = ann.done("new ops")
    join = f"join ops.group --owner {owner_of(ann)}"
    assert re.match("ops: epoch 1 holds now; the file ends on .* UTC\nwrote ops.group: ", made_)
    assert made_.endswith(f"  kcast group {join}\n")
    assert ann.load().epochs[0].private is not None

    word, key = ben.identity.member_word, ben.identity.key_text
    added = ann.done(f"add ops {word}")
    assert re.match(
        rf"ops: {key} \({short_form(ben.identity.signer.key)}\) is a reader in epoch 2, .* UTC\n", added
    )
    assert f"  kcast group {join}\n" in added
    assert re.match(r"ops: joined; epoch 2 is from .* UTC on, and the file ends on .* UTC\n", ben.done(join))
    with pytest.raises(GroupError, match=r"its epoch 2 begins on .*: wait until then, or have its owner run"):
        ben.load()
    assert [epoch.number for epoch in ann.load().epochs] == [1, 2]  # Ann goes on in the first one

    assert ann.kcast("renew ops --now").exit_code == 0
    assert [epoch.number for epoch in ben.load().epochs] == [3]

    gone = ann.kcast(f"remove ops {key} --now")
    assert gone.stdout.startswith(f"ops: {key} is out of epoch 4, which begins now\nwrote ops.group")
    assert gone.stderr == ""  # nobody else is there who could miss anything
    with pytest.raises(GroupError, match=f"you are no member .*: kcast group add ops {re.escape(word)}"):
        ben.load()
    assert f"you are no member (epoch 4): its owner must run: kcast group add ops {word}" in ben.refused(join)


def test_who_will_miss_what_is_said_of_an_epoch_that_begins_at_once(ann: User, ben: User) -> None:
    ann.done("new ops")
    ann.done(f"add ops {ben.identity.member_word}")
    result = ann.kcast("renew ops --now")
    assert result.stderr == (
        "kcast group renew: epoch 3 begins at once: until their clients have looked at the new file, which "
        "they do once a minute, these miss what is sealed now, and what they seal themselves is dropped: "
        f"{ben.identity.key_text}\n"
    )


def test_show_prints_owner_epochs_and_members(ann: User, ben: User) -> None:
    ann.done("new ops --days 10 --fresh 3")
    ann.done(f"add ops {ben.identity.member_word} --write-only --sender")
    key, own = ben.identity.key_text, ann.identity.key_text
    lines = ann.done("show ops").splitlines()
    assert [line.split()[0] for line in lines] == [
        *("name", "owner", "epoch", "epoch", "fresh", "until", "source"),
        *("readers", "writers", "sender", "reader", "writer"),
    ]
    assert lines[1] == f"owner    {owner_of(ann)}" and lines[-1] == f"writer   {key}"
    fields = shown(ann)
    assert (fields["name"], fields["owner"], fields["is_pinned"]) == ("ops", owner_of(ann), True)
    assert (fields["senders"], fields["readers"], fields["writers"]) == ([key], 1, 1)
    assert fields["members"] == [{"key": own, "role": "reader"}, {"key": key, "role": "writer"}]
    first, second = fields["epochs"]
    assert (first["epoch"], first["after"], second["epoch"], second["after"]) == (1, 0, 2, 1)
    assert second["from"] - first["from"] >= 600 and second["until"] - second["from"] == 10 * 86_400
    assert second["fresh_until"] - second["from"] == 3 * 86_400
    assert fields["source"] == str(Path("ops.group").absolute())
    other = shown(ben, "./ops.group")  # a member sees the senders, and a stranger how many members there are
    assert (other["is_pinned"], other["source"], other["epochs"]) == (False, None, [second])
    assert (other["senders"], other["members"]) == ([key], None)
    (ben.folder / "config" / "kcast" / "keys" / "key.pem").unlink()
    assert shown(ben, "./ops.group") == other | {"senders": None}
    assert "readers  1\nwriters  1\n" in ben.done("show ./ops.group")
    assert f"owner    {owner_of(ann)}, which was not pinned here\n" in ben.done("show ./ops.group")


def test_what_the_owner_does_next_puts_no_removal_off_and_says_when_it_holds(ann: User, ben: User) -> None:
    ann.done("new ops")
    ann.done(f"add ops {ben.identity.member_word} --now")
    ann.done(f"remove ops {ben.identity.key_text}")
    (removed,) = (each["from"] for each in shown(ann)["epochs"] if each["epoch"] == 3)
    word = Identity.from_seed("x", bytes(32)).member_word
    for number, line in enumerate(("renew ops", f"add ops {word}", "renew ops"), 4):
        said = ann.done(line)
        assert f"ops: what epoch {number - 1} was to change begins with epoch {number}\n" in said
        assert f"epoch {number}" in said and groups.time_text(removed) in said
        assert shown(ann)["epochs"][-1]["from"] == removed


def test_a_key_that_begins_with_a_dash_is_no_option(ann: User) -> None:
    ann.done("new ops")
    many = (Identity.from_seed("d", number.to_bytes(32, "big")) for number in range(1, 10_000))
    dashed = next(who for who in many if who.key_text[0] == "-")
    assert dashed.key_text in ann.done(f"add ops {dashed.member_word} --sender")
    assert dashed.key_text in ann.done(f"remove ops {dashed.key_text} --now")


def test_changes_are_written_where_the_file_is(ann: User, ben: User, here: Path, monkeypatch: Any) -> None:
    (here / "www").mkdir()
    ann.done("new ops --out www/ops.group")
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    ann.done(f"add ops {ben.identity.member_word}")
    assert not any((here / "elsewhere").iterdir())
    assert shown(ben, "../www/ops.group")["epochs"][0]["epoch"] == 2
    ann.done("renew ops --out here.group")
    assert shown(ben, "./here.group")["epochs"][0]["epoch"] == 3
    assert shown(ann)["source"] == str(here / "elsewhere" / "here.group")


def test_a_copy_from_a_backup_makes_no_second_text(ann: User, here: Path) -> None:
    ann.done("new ops")
    kept = ann.folder / "config" / "kcast" / "own-groups" / "ops.json"
    backup = kept.read_bytes()
    ann.done("renew ops")
    kept.write_bytes(backup)
    renewed = ann.kcast("renew ops")
    assert "epoch 3 begins" in renewed.stdout
    assert "is an old one: who was removed is in again" in renewed.stderr


def test_a_file_that_could_not_be_written_is_written_the_next_time(
    ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.done("new ops")
    write_whole = durable.write_whole

    def full(path: Path, data: bytes, *, mode: int = 0o644) -> None:
        if path.name == "ops.group":
            raise OSError(28, "No space left on device", str(path))
        write_whole(path, data, mode=mode)

    with monkeypatch.context() as patched:
        patched.setattr(durable, "write_whole", full)
        says = ann.refused("renew ops")
    assert "No space left on device: epoch 2 was made, but not written there: give --out FILE" in says
    ann.done("renew ops")
    assert [(epoch["epoch"], epoch["after"]) for epoch in shown(ann, "./ops.group")["epochs"]] == [(3, 1)]


@pytest.mark.world
def test_killed_at_each_write_an_epoch_never_gets_two_texts(ann: User, here: Path) -> None:
    """The next command goes on from whatever was left."""
    ann.done("new ops")
    texts: dict[int, set[bytes]] = {}

    def collect() -> None:
        for path in (
            here / "ops.group",
            *(ann.folder / "state" / "kcast" / "groups" / "ops").glob("*.group"),
        ):
            data = path.read_bytes()
            texts.setdefault(group_file.parse(data).epoch, set()).add(data)

    for count in range(1, 60):
        status = killed_at(count, lambda: ann.done("renew ops"))
        collect()
        ann.done("renew ops")
        collect()
        ann.load()
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert status == 0 and count > 10
    assert {len(each) for each in texts.values()} == {1}


@pytest.mark.world
def test_killed_at_each_write_a_new_group_can_be_begun_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "sleep", lambda _: None)
    for count in range(1, 60):
        folder = here / f"{count}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        user = User(folder / "home", monkeypatch)
        status = killed_at(count, partial(user.done, "new ops"))
        result = user.kcast("new ops")
        if result.exit_code:
            assert "have its file written anew by 'kcast group renew ops'" in result.stderr
            user.done("renew ops --now")
        group = user.at_home(partial(groups.load, "ops", user.identity, unix_s=time() + 2))
        assert group.writing(time() + 2) is not None and (folder / "ops.group").exists()
        if status == 0:
            break
    assert status == 0


def test_two_commands_at_once_take_turns(ann: User) -> None:
    ann.done("new ops")

    def both() -> None:
        with (
            group_owner.changing(),
            pytest.raises(Busy, match="another kcast has been at work"),
            group_owner.changing(0.1),
        ):
            raise AssertionError

    ann.at_home(both)


# --- Refusals -----------------------------------------------------------------------------------------


def test_refusals_of_who_owns_no_such_group(ann: User, ben: User) -> None:
    word, key = ben.identity.member_word, ben.identity.key_text
    for line in (f"add ops {word}", f"remove ops {key}", "renew ops"):
        says = ann.refused(line)
        assert says == (
            "there is no group ops of yours: 'kcast group new ops' makes one; only its owner changes a group"
        )
    ann.done("new ops")
    assert "no group opps of yours; did you mean ops?" in ann.refused("renew opps")
    assert "there is no group ops here: get its file from its owner" in ben.refused("show ops")


def test_refusals_of_new(ann: User, ben: User, here: Path) -> None:
    for name in ("Ops", "a/b", "a.b", "''", "a" * 65):
        assert "cannot be a group's name: give 1 to 64 of a-z, 0-9, '-' and '_'" in ann.refused(f"new {name}")
    ann.done("new ops")
    assert "there is a group ops of yours already" in ann.refused("new ops")
    assert "ops.group: it is there already: move it away, or give --out FILE" in ben.refused("new ops")
    assert "there is no folder" in ben.refused("new abc --out no/abc.group")
    ann.done(f"add ops {ben.identity.member_word} --now")
    ben.done(f"join ops.group --owner {owner_of(ann)}")
    assert "you have joined a group ops of somebody else" in ben.refused("new ops --out mine.group")
    assert not (here / "mine.group").exists()


def test_a_key_is_made_where_none_is_and_none_is_named(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ann.folder / "config" / "kcast" / "keys" / "key.pem"
    key.unlink()
    assert "'kcast key new nope' makes one" in ann.refused("new ops --key nope")
    monkeypatch.setenv("KCAST_KEY", "nope")
    assert "'kcast key new nope' makes one" in ann.refused("new ops")
    monkeypatch.delenv("KCAST_KEY")
    made = ann.kcast("new ops")
    assert (made.exit_code, made.stderr) == (
        0,
        f"kcast group new: made {key}, which only you can read: back it up\n",
    )
    assert str(ann.at_home(Identity.load).note_key.verifier) in made.stdout
    assert ann.done("renew ops")


def test_whoever_is_added_was_compared(ann: User, ben: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the short form of the key, which both see: at a terminal, else by --yes."""
    ann.done("new ops")
    member, short = ben.identity.member_word, short_form(ben.identity.signer.key)
    assert re.fullmatch("[a-z2-7]{4}(-[a-z2-7]{4}){3}", short)
    runner, words = CliRunner(), ["group", "add", "ops", member]
    refused = ann.at_home(lambda: runner.invoke(main, words))
    assert (refused.exit_code, refused.stdout) == (2, "") and short in refused.stderr
    for typed, exit_code in (("n\n", 1), ("y\n", 0)):
        assert shown(ann)["readers"] == 1
        with monkeypatch.context() as patched:
            patched.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
            asked = ann.at_home(partial(runner.invoke, main, words, input=typed))
        assert asked.exit_code == exit_code and short in asked.stderr
    again = ann.at_home(lambda: runner.invoke(main, [*words, "--write-only"]))
    assert (again.exit_code, again.stderr) == (0, ""), "whoever is there already was compared"


def test_members_that_others_can_write_are_refused(ann: User, ben: User) -> None:
    """And what a command that was killed has left goes with the next."""
    ann.done("new ops")
    kept = ann.folder / "config" / "kcast" / "own-groups" / "ops.json"
    draft = kept.with_name(f".ops.json{durable.MARK}a1b2c3d4")
    draft.write_bytes(kept.read_bytes())
    for path, mode in ((kept, 0o666), (kept, 0o620), (kept.parent, 0o777), (kept.parent, 0o730)):
        before = path.stat().st_mode
        path.chmod(mode)
        for line in (f"add ops {ben.identity.member_word}", "renew ops"):
            assert f"{path}: others may write there: chmod go-w it" in ann.refused(line)
        path.chmod(before)
    assert "epoch 2" in ann.done("renew ops") and not draft.exists()


def test_refusals_of_a_wrong_passphrase(here: Path, ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    Identity.make(here / "locked.pem", ask=lambda: b"right")
    monkeypatch.setenv("KCAST_KEY_PASSPHRASE", "wrong")
    assert "what KCAST_KEY_PASSPHRASE holds is not its passphrase" in ann.refused("new ops --key locked.pem")
    assert not (here / "ops.group").exists()
    monkeypatch.setenv("KCAST_KEY_PASSPHRASE", "right")
    ann.done("new ops --key locked.pem")
    says = ann.refused("renew ops")  # by the default key, which is another one
    assert "ops is owned by locked+" in says and says.endswith("name its key by --key")


def test_refusals_of_members_words_and_keys(ann: User, ben: User) -> None:
    ann.done("new ops")
    word = ben.identity.member_word
    assert "expected a member's word, which" in ann.refused(f"add ops {ben.identity.key_text}")
    changed = f"{word[:-9]}{'A' if word[-9] != 'A' else 'B'}{word[-8:]}"
    assert "was changed on its way" in ann.refused(f"add ops {changed}")
    assert "is no key, which has 43 characters: 'kcast group show ops'" in ann.refused("remove ops ben")
    assert f"{ben.identity.key_text} is no member of ops" in ann.refused(
        f"remove ops {ben.identity.key_text}"
    )
    assert "ops has no other member" in ann.refused(f"remove ops {ann.identity.key_text}")
    assert [epoch["epoch"] for epoch in shown(ann)["epochs"]] == [1]


def test_refusals_of_join(ann: User, ben: User, here: Path) -> None:
    ann.done("new ops")
    says = ben.refused("join ops.group")
    assert says.startswith(f"ops.group is of the group ops, and says that its owner is {owner_of(ann)}: ask")
    assert says.endswith("kcast group join ops.group --owner VKEY")  # which is not the file's to say
    assert "nothing was joined" in ben.refused(f"join ops.group --owner {owner_of(ben)}")
    assert "--owner: expected NAME+KEYID+BASE64" in ben.refused("join ops.group --owner x")
    assert ben.refused("join ops.group --owner x").endswith("for the line 'vkey' of 'kcast key show'")
    assert "none.group: there is no such file" in ben.refused(f"join none.group --owner {owner_of(ann)}")
    assert "http://127.0.0.1:9/x" in ben.refused(f"join http://127.0.0.1:9/x --owner {owner_of(ann)}")
    (here / "x.group").write_bytes(b"x")
    assert "x.group: not a group file: expected a signed note" in ben.refused("join x.group")
    assert "x.group: not a group file: expected a signed note" in ben.refused("show x.group")
    data = bytearray((here / "ops.group").read_bytes())
    data[20] ^= 1
    (here / "x.group").write_bytes(data)
    assert "x.group: " in ben.refused("join x.group")
    assert not (ben.folder / "state").exists()


def test_refusals_of_files_that_are_anothers(ann: User, ben: User, here: Path) -> None:
    ann.done("new ops")
    (here / "other.group").write_bytes(made(3)[1])
    assert "it is another group's file, ops of key+" in ann.refused("renew ops --out other.group")
    (here / "text").write_bytes(b"my diary")
    assert "it is there, and no group file: move it away" in ann.refused("renew ops --out text")
    assert (here / "text").read_bytes() == b"my diary"
    assert [epoch["epoch"] for epoch in shown(ann)["epochs"]] == [1]


def test_without_the_extra_it_says_how_to_get_it(
    ann: User, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    # The package that is imported anew becomes an attribute of kcast.client, which later tests would find.
    monkeypatch.setattr("kcast.client.sealed", sys.modules["kcast.client.sealed"])
    for name in [name for name in sys.modules if name.startswith("kcast.client.sealed")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.hpke", None)
    assert ann.refused("show ops", 2).startswith("a group needs the extra 'trust': ")


def test_the_shell_completes_names(ann: User) -> None:
    import click

    ann.done("new ops")
    ctx, param = click.Context(click.Command("x")), click.Argument(["x"])
    for complete in (names.complete_joined, names.complete_owned):
        found = ann.at_home(partial(complete, ctx, param, "o"))
        assert [each.value for each in found] == ["ops"]
    assert ann.at_home(partial(names.complete_owned, ctx, param, "x")) == []


def test_a_path_is_shown_as_it_is_typed_here(here: Path) -> None:
    assert names.shown_path(str(here / "a b")) == "'a b'"
    assert names.shown_path("/elsewhere/x") == "/elsewhere/x"
