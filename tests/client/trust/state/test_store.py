"""trust/state/store.py: state that is whole at any moment, whoever is killed, and whatever the disk does."""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.checks.verdicts import Held
from kcast.client.trust.forms.checkpoint import Checkpoint, LogProof
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import KIND_ED25519, SigningKey, sign
from kcast.client.trust.forms.quorum import PolicyReader
from kcast.client.trust.forms.record import ListRecord
from kcast.client.trust.state import store as stores
from kcast.client.trust.state.places import StateError
from kcast.client.trust.state.store import Store, Unstored
from tests.support.killed import killed_at

NAME = "example.org/lab"
KEY = SigningKey.from_seed(f"{NAME}/signer-0", bytes(range(32)), KIND_ED25519)
LOG = SigningKey.from_seed(f"{NAME}/log", bytes(range(1, 33)), KIND_ED25519)


def trust(version: int = 1) -> bytes:
    reader = PolicyReader()
    reader.read(["log", str(LOG.verifier)])
    reader.read(["quorum", "none"])
    document = TrustDocument(NAME, version, (KEY.verifier,), 1, 1, reader.policy())
    return sign(document.text, [KEY]).data


def held(version: int, size: int | None = None, *, trust_version: int = 1, former: int = 0) -> Held:
    """A state as a judge could have accepted it; the store looks at versions and sizes alone."""
    size = version if size is None else size
    checkpoint = sign(Checkpoint(LOG.verifier.name, size, bytes(32)).text, [LOG])
    data = f"list {version}\n".encode() * 1000
    proof = LogProof(ListRecord.of(NAME, version, 1, data).data, size - 1, (), checkpoint)
    earlier = tuple(f"list {version - n}\n".encode() for n in range(1, former + 1))
    return Held(trust(trust_version), checkpoint.data, data, proof.data, trust(), earlier)


def store_in(root: Path) -> Store:
    """What is stored here is sound if it is there; what a list must be is for others to test."""
    return Store(NAME, root, is_sound=lambda held: True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return store_in(tmp_path)


def keep(store: Store, *states: Held) -> None:
    for each in states:
        with store.locked():
            store.keep(each)


def test_what_is_kept_is_loaded_again(store: Store, tmp_path: Path) -> None:
    assert store.load() is None and not store.is_damaged() and not any(tmp_path.iterdir())
    for state in (Held(trust()), held(1), held(42, former=3)):
        keep(store, state)
        assert store_in(tmp_path).load() == state
    assert (tmp_path / "example.org%2Flab" / "current").readlink() == Path("42.3")
    assert sorted(path.name for path in store.folder.iterdir()) == ["1.2", "42.3", "current"]


def test_the_state_is_for_the_user_alone(store: Store) -> None:
    old = os.umask(0)
    try:
        keep(store, held(1))
    finally:
        os.umask(old)
    modes = {path: path.lstat().st_mode & 0o777 for path in (store.folder, *store.folder.rglob("*"))}
    assert {modes[path] for path in modes if path.is_dir() and not path.is_symlink()} == {0o700}
    assert {modes[path] for path in modes if path.is_file() and not path.is_symlink()} == {0o600}


def test_a_new_trust_document_leaves_all_else(store: Store) -> None:
    with store.locked():
        store.keep_trust(trust())
        assert store.load() == Held(trust())
        store.keep(held(5))
        store.keep_trust(trust(2))
    assert store.load() == held(5, trust_version=2)


@pytest.mark.parametrize("older", [held(5), held(7, trust_version=1)])
def test_nothing_older_is_kept(store: Store, older: Held) -> None:
    keep(store, held(6, trust_version=2))
    with pytest.raises(StateError, match="newer"):
        keep(store, older)
    assert store.load() == held(6, trust_version=2)


def test_a_first_contact_is_no_way_back(store: Store) -> None:
    store.begin(Held(trust()))
    keep(store, held(5))
    store.begin(Held(trust()))  # trusted once more: what is held stays
    assert store.load() == held(5)
    other = sign(trust().decode().partition("\n\n")[0].replace("churn 25%", "churn 26%") + "\n", [KEY]).data
    with pytest.raises(StateError, match=f"known here by another trust document: remove {store.folder}"):
        store.begin(Held(other))


def test_where_a_list_was_found_first_is_kept_wherever_the_program_goes(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert store.source == ""
    keep(store, held(1))
    monkeypatch.chdir(tmp_path)
    for given, kept in (
        ("lab.log", str(tmp_path / "lab.log")),
        ("https://lists.example.org/lab", "https://lists.example.org/lab"),
        ("file:///srv/lab", "file:///srv/lab"),
    ):
        store.remember_source(given)
        assert store.source == kept
    assert store.load() == held(1)


# --- Damage ------------------------------------------------------------------------------------------


def remove(name: str) -> Callable[[Store], None]:
    return lambda store: (store.folder / "current" / name).unlink()


def enlarge(store: Store) -> None:
    os.truncate(store.folder / "current" / "list", 1 << 40)


def lead_away(store: Store) -> None:
    (store.folder / "current").unlink()
    (store.folder / "current").symlink_to("../..")


@pytest.mark.parametrize(
    "damage",
    [remove("trust"), remove("list"), remove("list.tlog-proof"), remove("checkpoint"), enlarge, lead_away],
)
def test_where_the_present_state_is_damaged_there_is_the_one_before(
    store: Store, damage: Callable[[Store], None]
) -> None:
    keep(store, held(1), held(2))
    damage(store)
    assert store.is_damaged()
    assert store.load() == (held(2) if damage is lead_away else held(1))
    keep(store, held(3))
    assert store.load() == held(3) and not store.is_damaged()


# --- Killed, and several at once ---------------------------------------------------------------------


def test_killed_at_each_write_it_leaves_the_old_state_or_the_new(store: Store, tmp_path: Path) -> None:
    seen = []
    for count in range(1, 200):
        root = tmp_path / str(count)
        here = store_in(root)
        keep(here, held(1), held(2))
        status = killed_at(count, lambda here=here: keep(here, held(3, former=2)))  # type: ignore[misc]
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        after = store_in(root).load()
        assert after in (held(2), held(3, former=2)), f"after {count} writes"
        seen.append(after)
        keep(here, held(4))
        assert store_in(root).load() == held(4)
        assert len([path for path in here.folder.iterdir() if path.name != "current"]) == 2, "nothing is left"
    assert status == 0, "the last one was not killed"
    assert len(seen) > 15 and seen[0] == held(2) and seen[-1] == held(3, former=2)


def test_a_reader_meanwhile_sees_a_whole_state_at_any_moment(store: Store) -> None:
    keep(store, held(1))
    states = [held(version, former=version % 3) for version in range(2, 60)]
    pid = os.fork()
    if pid == 0:
        try:
            keep(store, *states)
        finally:
            os._exit(0)
    last = 1
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        found = store_in(store.folder.parent).load()
        assert found == held(1) or found in states
        version = 1 if found == held(1) else states.index(found) + 2
        assert version >= last
        last = version
    assert store.load() == states[-1]


def test_writers_take_turns_and_versions_only_rise(store: Store) -> None:
    keep(store, held(1))
    pids = []
    for first in (2, 3):
        pid = os.fork()
        if pid == 0:
            for version in range(first, 42, 2):
                try:
                    keep(store, held(version))
                except StateError:
                    continue  # the other one was faster
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    assert store.load() in (held(41), held(40)) and store.load() == held(41)


def test_a_lock_ends_with_its_process_and_is_not_inherited(store: Store) -> None:
    keep(store, held(1))
    with store.locked():
        released, ready = os.pipe()
        pid = os.fork()
        if pid == 0:  # lives on without the lock
            os.read(released, 1)
            os._exit(0)
    with store_in(store.folder.parent).locked(wait_s=0):
        pass
    os.write(ready, b"x")
    os.waitpid(pid, 0)


# --- Disks ------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        yield


def test_a_full_disk_is_said_and_the_state_is_held_in_memory(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    keep(store, held(1))
    request.getfixturevalue("full_disk")
    with pytest.raises(Unstored, match="No space left on device"):
        keep(store, held(2))
    assert store.load() == held(2)
    assert store_in(tmp_path).load() == held(1)
    assert sorted(path.name for path in store.folder.iterdir()) == ["1.1", "current"]
    assert store.evidence({"a": b"b"}) is None


def test_a_folder_of_others_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, held(1))
    store.folder.chmod(0o770)
    with pytest.raises(StateError, match="others may write there: chmod go-w it"):
        store.load()
    store.folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: store.folder.stat().st_uid + 1)
    if store.folder.stat().st_uid:
        with pytest.raises(StateError, match="it belongs to another user"):
            store.load()
    monkeypatch.undo()
    if os.geteuid() == 0:
        os.chown(store.folder, 12345, 12345)
        with pytest.raises(StateError, match="it belongs to another user"):
            store.load()


# --- Evidence ----------------------------------------------------------------------------------------


def test_evidence_is_kept_once_and_outlives_all_generations(store: Store) -> None:
    keep(store, held(1))
    files = {"ours": b"one", "theirs": b"another"}
    kept = store.evidence(files)
    assert kept is not None and kept == store.evidence(files) and kept.parent == store.folder / "evidence"
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == files
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}
    for version in range(2, 6):
        keep(store, held(version))
    assert kept.is_dir()


def test_evidence_does_not_fill_the_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "EVIDENCE_MAX", 3)
    assert [store.evidence({"note": b"%d" % n}) is not None for n in range(5)] == [True] * 3 + [False] * 2


def test_what_killed_processes_have_left_goes(store: Store) -> None:
    keep(store, held(1))
    for name in (".tried.abcd1234", ".source.abcd1234", ".new-current"):
        (store.folder / name).write_bytes(b"x")
    (store.folder / ".new-abcd1234").mkdir()
    keep(store, held(2))
    assert [each.name for each in store.folder.iterdir() if each.name.startswith(".")] == []
