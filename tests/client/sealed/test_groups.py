"""sealed/groups.py and group_store.py: joining, loading and refusing, and state that survives a kill at any
write."""

import errno
import os
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

pytest.importorskip("nacl")

from kcast.client.clusters import durable
from kcast.client.events import Drop
from kcast.client.messages.guard_and_writer import Proven
from kcast.client.sealed import groups
from kcast.client.sealed.group_store import GroupStore
from kcast.client.sealed.groups import Look, load, look
from kcast.client.sealed.guards import SealedGuard
from kcast.client.sealed.key_names import joined
from kcast.client.sealed.membership import LINGER_S, GroupError, GroupFault
from kcast.client.sealed.topics import beacon_of
from kcast.client.trust.reach.sources import SourceError
from tests.support.attack_stage import NAME as TOPIC
from tests.support.attack_stage import Process
from tests.support.groups import (
    ALICE,
    BOB,
    DAY_S,
    FRESH_S,
    LIFE_S,
    MALLORY,
    NAME,
    NOW_UNIX_S,
    OWNER,
    Place,
    made,
    secrets,
)
from tests.support.killed import killed_at
from tests.support.sealed_guards import judged

T = NOW_UNIX_S
VKEY = OWNER.note_key.verifier


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Place(tmp_path)


def looked(place: Place, unix_s: float = T) -> Look:
    return look(place.store, place.me, unix_s, str(place.path))


def faults(found: Look) -> list[str]:
    return [trouble.fault for trouble in found.troubles]


def refused(act: Callable[[], object], fault: GroupFault | None, *says: str) -> None:
    with pytest.raises(GroupError) as raised:
        act()
    text = str(raised.value)
    assert raised.value.fault is fault and all(each in text for each in says), text
    assert text.isprintable() and "\n" not in text


# --- Joining and loading ------------------------------------------------------------------------------


def test_a_group_is_joined_once_and_loaded_by_name_or_file(place: Place) -> None:
    place.put()
    place.join()
    for what in (NAME, str(place.path)):
        group = load(what, ALICE, unix_s=T)
        (epoch,) = group.epochs
        assert (group.name, group.owner, group.source) == (NAME, VKEY, str(place.path))
        assert (epoch.private, epoch.topic_secret) == (secrets().private, secrets().topic_secret)
        assert group.writing(T) is epoch and group.troubles == ()
    assert joined() == [NAME]


def test_state_is_for_the_user_alone_and_has_no_secret(place: Place) -> None:
    old = os.umask(0)
    try:
        place.put()
        place.join()
        place.put(2, 1, T + 600)
        looked(place)
    finally:
        os.umask(old)
    paths = [place.store.folder, *place.store.folder.rglob("*")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    files = dict.fromkeys(("1.group", "2.group", "beacons", "owner", "source"), 0o600)
    assert modes == {"ops": 0o700} | files
    private = secrets().private
    assert private is not None
    assert not any(private in path.read_bytes() for path in paths[1:])


def test_the_newest_file_is_taken_at_each_load(place: Place) -> None:
    place.put()
    place.join()
    place.put(2, 1, T + 600)
    group = load(NAME, ALICE, unix_s=T + 10)
    assert [epoch.number for epoch in group.epochs] == [1, 2]
    writing = group.writing(T + 600)
    assert writing is not None and writing.number == 2
    place.path.unlink()  # and what was taken stays
    assert load(NAME, ALICE, unix_s=T + 10) == group


def test_another_owner_is_refused(place: Place) -> None:
    place.put(owner=MALLORY)
    refused(place.join, GroupFault.WRONG_OWNER, "nothing was joined", str(MALLORY.note_key.verifier))
    renamed = OWNER.note_key_as("somebody").verifier  # a vkey is name and key
    place.put()
    refused(lambda: groups.join(str(place.path), renamed, ALICE, unix_s=T), GroupFault.WRONG_OWNER)
    assert joined() == []


def test_a_name_has_one_owner_and_a_second_group_another_name(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are in use at once, by their names here and by their files; each takes its own files alone."""
    place.put()
    place.join()
    other, owner = place.path.with_name("other.group"), MALLORY.note_key.verifier
    other.write_bytes(made(5, owner=MALLORY)[1])
    join = partial(groups.join, str(other), owner, ALICE, unix_s=T)
    refused(join, None, f"{NAME} was joined here already", str(VKEY), str(owner), "--as NAME")
    assert joined() == [NAME] and place.store.owner() == VKEY
    refused(partial(join, "a/b"), None, "cannot be a group's name")
    assert join("theirs")[1] and joined() == [NAME, "theirs"]
    for what in ("theirs", str(other)):
        group = load(what, ALICE, unix_s=T)
        assert (group.name, group.owner, group.epochs[0].group) == ("theirs", owner, NAME)
    monkeypatch.chdir(place.path.parent)
    Path(NAME).write_bytes(other.read_bytes())  # the name means what was joined, whatever lies around
    for what in (NAME, str(place.path)):
        assert (load(what, ALICE, unix_s=T).name, place.store.owner()) == (NAME, VKEY)
    other.write_bytes(made(6, 5, T + 60, owner=MALLORY)[1])
    assert not join()[1] and load("theirs", ALICE, unix_s=T).newest == 6, "it is known by another name"
    other.write_bytes(place.path.read_bytes())
    assert faults(look(GroupStore("theirs"), ALICE, T, str(other))) == ["wrong-owner"]


def test_what_is_said_in_a_group_of_the_same_name_counts_there_alone(place: Place) -> None:
    """Whoever reads a group can make one of its name with its secrets, and have members of it join."""
    place.put()
    place.join()
    other = place.path.with_name("other.group")
    other.write_bytes(made(owner=MALLORY)[1])
    groups.join(str(other), MALLORY.note_key.verifier, ALICE, "theirs", unix_s=T)
    theirs, ours = load("theirs", ALICE, unix_s=T), load(NAME, ALICE, unix_s=T)
    line = Process(theirs.epochs[0], signer=BOB.signer).line(sent_s=T).removesuffix(b"\n")
    assert theirs.epochs[0].topic_secret == ours.epochs[0].topic_secret
    assert judged(SealedGuard(ours, T), TOPIC, line, T) is Drop.BAD_SIGNATURE
    assert isinstance(judged(SealedGuard(theirs, T), TOPIC, line, T), Proven)


def test_joining_again_takes_a_newer_file_and_another_place(place: Place, tmp_path: Path) -> None:
    place.put()
    place.join()
    place.path = tmp_path / "elsewhere.group"
    place.put(2, 1, T + 600)
    place.join()
    assert place.store.source == str(place.path) and place.epochs() == [1, 2]


def test_a_file_of_a_group_that_was_not_joined_is_refused(place: Place) -> None:
    place.put()
    what = str(place.path)
    refused(
        lambda: load(what, ALICE, unix_s=T), GroupFault.WRONG_OWNER, "not known here", f"group join {what}"
    )


def test_a_file_that_is_none_is_refused(place: Place) -> None:
    place.path.write_bytes(b"lab\nserver 192.0.2.1:7400\n")
    refused(place.join, GroupFault.MALFORMED, f"{place.path}: not a group file: expected a signed note")
    place.path.write_bytes(b"x" * 400_000)
    refused(place.join, GroupFault.MALFORMED, "at most 262144 bytes")
    place.path.unlink()
    os.mkfifo(place.path)  # which would never end
    with pytest.raises(SourceError, match="no plain file"):
        place.join()


def test_who_is_no_member_is_told_what_the_owner_must_run(place: Place) -> None:
    command = f"its owner must run: kcast group add ops {ALICE.member_word}"
    place.put(members=(OWNER, BOB))
    refused(place.join, GroupFault.NOT_MEMBER, f"{place.path}: you are no member (epoch 1)", command)
    place.put()
    place.join()
    place.put(2, 1, T + 600, members=(OWNER, BOB))
    assert load(NAME, ALICE, unix_s=T + 599).troubles[0].fault == "not-member"  # the epoch before still holds
    refused(
        lambda: load(NAME, ALICE, unix_s=T + 600), GroupFault.NOT_MEMBER, "the group ops: you are no", command
    )
    place.put(3, 2, T + 700)  # and back again
    assert load(NAME, ALICE, unix_s=T + 700).epochs[-1].number == 3


def test_an_epoch_whose_time_has_not_come(place: Place) -> None:
    place.put(4, 3, T + 600)
    place.join()
    says = "its epoch 4 begins on 2027-01-15 08:10:00 UTC", "wait until then", "kcast group renew ops --now"
    refused(lambda: load(NAME, ALICE, unix_s=T), None, *says)
    assert load(NAME, ALICE, unix_s=T + 600).writing(T + 600)


def test_a_group_that_has_ended(place: Place) -> None:
    place.put(life_s=DAY_S)
    end = T + DAY_S
    says = "it ended on 2027-01-16 08:00:00 UTC: get a newer file from the owner", "'kcast group renew ops'"
    refused(lambda: place.join(end), GroupFault.EXPIRED, f"{place.path}: it ended", *says)
    place.join()
    load(NAME, ALICE, unix_s=end - 1)
    refused(lambda: load(NAME, ALICE, unix_s=end), GroupFault.EXPIRED, "the group ops: it ended", *says)
    place.put(2, 1, T + 1, life_s=DAY_S)
    refused(lambda: load(str(place.path), ALICE, unix_s=end + 1), GroupFault.EXPIRED, *says[1:])


def test_an_older_file_than_the_one_held(place: Place) -> None:
    place.put()
    place.join()
    place.put(2, 1, T + 600)
    load(NAME, ALICE, unix_s=T)
    place.put()
    held = "it is epoch 1, older than epoch 2, which is held"
    refused(lambda: load(str(place.path), ALICE, unix_s=T), GroupFault.ROLLBACK, str(place.path), held)
    refused(place.join, GroupFault.ROLLBACK, held)
    group = load(NAME, ALICE, unix_s=T)  # by its name it goes on, whatever lies there
    assert group.newest == 2 and [trouble.fault for trouble in group.troubles] == ["rollback"]


@pytest.mark.parametrize("name", ["1.group", "owner"])
def test_damaged_state_says_what_to_do(place: Place, name: str) -> None:
    place.put()
    place.join()
    (place.store.folder / name).write_bytes(b"x")
    folder = place.store.folder
    says = f"{folder / name}: it is damaged", f"move {folder} away, and type 'kcast group join'"
    refused(lambda: load(NAME, ALICE, unix_s=T), None, *says)


def test_a_folder_that_others_may_write_to_is_refused(place: Place) -> None:
    place.put()
    place.join()
    place.store.folder.chmod(0o777)
    with pytest.raises(Exception, match="others may write there: chmod go-w it"):
        load(NAME, ALICE, unix_s=T)


# --- Looking ------------------------------------------------------------------------------------------


def test_a_clock_that_is_wrong_for_one_command_deletes_nothing(place: Place) -> None:
    """In memory an epoch is there for 150 s after the next one began; from the disk it goes where the caller
    is sure of the time, and else once seven others have followed it."""
    place.put()
    place.join()
    place.put(2, 1, T + 600)
    assert looked(place).group.newest == 2
    dead_at = T + 600 + LINGER_S
    for unix_s, held in ((dead_at - 1, [1, 2]), (dead_at, [2]), (T + 365 * DAY_S, [2]), (T, [1, 2])):
        assert [epoch.number for epoch in looked(place, unix_s).group.epochs] == held
        assert place.epochs() == [1, 2]
    for forget_unix_s, left in ((dead_at - 1, [1, 2]), (dead_at, [2])):
        look(place.store, place.me, T, str(place.path), forget_unix_s=forget_unix_s)
        assert place.epochs() == left


def test_the_topics_of_all_epochs_are_kept_while_they_are_fresh_without_their_keys(place: Place) -> None:
    place.put(life_s=LIFE_S)
    place.join()
    for epoch in range(2, 21):  # the third is passed over, and never holds: one may have it alone
        place.put(epoch, 2 if epoch == 4 else epoch - 1, T + 1000 * epoch)
        looked(place, T + 1000 * epoch - 900)
        look(place.store, ALICE, T + 1000 * epoch, "", forget_unix_s=T + 1000 * epoch)
        topics = [beacon_of(secrets(each).topic_secret) for each in range(1, epoch + 1)]
        assert looked(place, T + 1000 * epoch).group.beacons == tuple(topics[-16:])
    found = look(place.store, ALICE, T + 21_000, "", forget_unix_s=T + 21_000)
    assert place.epochs() == [20] and found.group.head == made(20, 19, T + 20_000)[0].head.data
    for unix_s, count in ((T + 18_000 + FRESH_S, 2), (T + 21_000 + FRESH_S, 1), (T, 16)):
        assert looked(place, unix_s).group.beacons == tuple(topics[-count:])


def test_what_is_not_renewed_is_told_and_goes_on_until_its_end(place: Place) -> None:
    place.put()
    place.join()
    assert faults(looked(place, T + FRESH_S - 1)) == []
    (trouble,) = looked(place, T + FRESH_S).troubles
    assert (
        trouble.fault == "stale"
        and f"{place.path} hands out an old one" in trouble.text
        and "'kcast group renew ops'" in trouble.text
    )
    for what in (NAME, str(place.path)):
        group = load(what, ALICE, unix_s=T + FRESH_S)
        assert group.writing(T + FRESH_S) and [each.fault for each in group.troubles] == ["stale"]
    assert faults(looked(place, T + LIFE_S)) == ["expired"]


def test_a_place_that_cannot_be_read_is_no_trouble_yet(place: Place) -> None:
    place.put()
    place.join()
    place.path.unlink()
    found = looked(place)
    assert found.troubles == () and "there is no such file" in found.failure and found.group.epochs


def test_a_url_is_asked_once_a_minute_by_commands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    url, asked = "http://192.0.2.1/ops.group", []

    def fetch(what: str, bytes_max: int, **limits: float) -> bytes:
        asked.append(what)
        return made(2, 1, T + 600)[1] if len(asked) > 1 else made()[1]

    monkeypatch.setattr(groups, "fetch", fetch)
    groups.join(url, VKEY, ALICE, unix_s=T)
    assert place.store.source == url
    for seconds, times in ((0, 2), (59, 2), (61, 3)):
        load(NAME, ALICE, unix_s=T + seconds)
        assert len(asked) == times
    assert load(NAME, ALICE, unix_s=T + 62).newest == 2


class Server(ThreadingHTTPServer):
    has: bytes
    is_done: Event


class Handler(BaseHTTPRequestHandler):
    """Hands out what the server `has`; of `/slow` only half of it, for a while."""

    server: Server

    def do_GET(self) -> None:
        has = self.server.has
        self.send_response(200 if has else 404)
        self.send_header("Content-Length", str(len(has)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(has[: len(has) // 2] if self.path == "/slow" else has)
            if self.path == "/slow":
                self.server.is_done.wait(20)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.world
def test_whatever_a_web_server_hands_out_what_is_held_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "FETCH_S", 0.3)
    first, second = made(), made(2, 1, T + 600)
    with Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        server.has, server.is_done = first[1], Event()
        try:
            base = f"http://127.0.0.1:{server.server_port}"
            groups.join(f"{base}/ops.group", VKEY, ALICE, unix_s=T)
            server.has = second[1]
            assert load(NAME, ALICE, unix_s=T + 61).newest == 2
            assert load(f"{base}/ops.group", ALICE, unix_s=T + 62).source == f"{base}/ops.group"
            for path, has, says in (
                ("ops.group", first[1], "older than epoch 2"),
                ("ops.group", second[1][:-300], "it was cut or changed on its way"),
                ("ops.group", second[0].head.data, "it was cut or changed on its way"),
                ("ops.group", bytes(1 << 20), "expected a group file of at most 262144 bytes"),
                ("slow", second[1], f"{base}/slow"),
                ("ops.group", b"", f"{base}/ops.group: there is no such file"),
            ):
                server.has = has
                found = look(place.store, ALICE, T + 200, f"{base}/{path}")
                told = f"{found.failure} {[trouble.text for trouble in found.troubles]}"
                assert says in told and (found.group.newest, place.epochs()) == (2, [1, 2])
        finally:
            server.is_done.set()
            server.shutdown()
    found = look(place.store, ALICE, T + 200, f"{base}/ops.group")  # nobody is there any more
    assert base in found.failure and found.group.newest == 2 and not found.troubles


def test_a_full_disk_is_told_and_the_new_epoch_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put()
    place.join()
    place.put(2, 1, T + 600)

    def full(path: Path, data: bytes, *, mode: int = 0o644) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(durable, "write_whole", full)
    found = looked(place)
    assert faults(found) == ["unstored"] and found.group.newest == 2
    assert "No space left on device: epoch 2 is in use" in found.troubles[0].text
    assert faults(looked(place)) == ["unstored"] and place.epochs() == [1]
    monkeypatch.undo()
    assert looked(place).troubles == () and place.epochs() == [1, 2]


# --- Killed -------------------------------------------------------------------------------------------


@pytest.mark.world
def test_killed_at_each_write_a_look_leaves_the_old_epoch_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new epoch replaces one that has not begun; the one in force is there in any case."""
    seen = set()
    for count in range(1, 60):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"{count}"))
        place = Place(tmp_path)
        place.put()
        place.join()
        place.put(2, 1, T + 600)
        looked(place)
        place.put(3, 1, T + 700)
        status = killed_at(count, lambda place=place: looked(place))  # type: ignore[misc]
        held = [file.epoch for file in place.store.files()]
        assert held in ([1, 2], [1, 3])
        seen.add(tuple(held))
        assert [epoch.number for epoch in load(NAME, ALICE, unix_s=T).epochs] == [1, 3]
        assert sorted(path.name for path in place.store.folder.iterdir()) == [
            "1.group",
            "3.group",
            "beacons",
            "owner",
            "source",
        ]
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert status == 0 and seen == {(1, 2), (1, 3)}
