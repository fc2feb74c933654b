"""client/trust/reach/update.py: what becomes of the verdict, whatever source, disk and other processes do."""

import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Accepted, Refused
from kcast.client.trust.reach import update
from kcast.client.trust.reach.sources import Source, SourceError
from kcast.client.trust.reach.update import run, run_round
from kcast.client.trust.state.store import Store
from tests.support.lists import NAME, NOW_UNIX_S, OWNERS, Lists, document, hosts
from tests.support.published import first_contact, lists_at, write_files


@pytest.fixture
def lists() -> Lists:
    made = Lists()
    made.publish()
    return made


@pytest.fixture
def store(tmp_path: Path, lists: Lists) -> Store:
    store = Store(NAME, tmp_path / "state")
    store.begin(first_contact(lists))
    return store


class Dictionary:
    """A source in memory."""

    name = "memory"

    def __init__(self, files: dict[str, bytes], meanwhile: Callable[[str], None] = lambda path: None) -> None:
        self._files = files
        self._meanwhile = meanwhile

    def get(self, path: str, bytes_max: int) -> bytes | None:
        self._meanwhile(path)
        data = self._files.get(path)
        return None if data is None else data[: bytes_max + 1]


def test_what_is_accepted_is_stored(lists: Lists, store: Store) -> None:
    verdict = run(store, Dictionary(lists.files), NOW_UNIX_S)
    assert isinstance(verdict, Accepted) and verdict.warnings == ()
    assert store.load() == verdict.held == lists.accepted()
    again = run(store, Dictionary(lists.files), NOW_UNIX_S)
    assert isinstance(again, Accepted) and again.held == verdict.held


def test_a_new_trust_document_is_stored_even_where_the_list_is_refused(lists: Lists, store: Store) -> None:
    run(store, Dictionary(lists.files), NOW_UNIX_S)
    before = store.load()
    lists.publish_document(document(version=2), OWNERS)
    lists.publish(lists.cluster(hosts(2)))
    verdict = run(store, Dictionary(lists.files), NOW_UNIX_S)
    assert isinstance(verdict, Refused) and verdict.fault is ListFault.SMALL
    after = store.load()
    assert before is not None and after is not None
    assert (after.trust, after.list) == (lists.trust[1], before.list)


def test_a_disk_that_takes_nothing_is_a_warning(
    lists: Lists, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(os, "fsync", refuse)
    lists.publish_document(document(version=2), OWNERS)
    lists.publish()
    verdict = run(store, Dictionary(lists.files), NOW_UNIX_S)
    assert isinstance(verdict, Accepted)
    (trouble,) = verdict.warnings
    assert trouble.fault is ListFault.UNSTORED
    assert "Read-only file system" in trouble.text and "an older list would not be noticed" in trouble.text
    # In this process it is noticed: the older log is a rollback.
    older = Lists()
    older.publish()
    again = run(store, Dictionary(older.files), NOW_UNIX_S)
    assert isinstance(again, Refused) and again.fault is ListFault.ROLLBACK


def test_an_update_that_drips_file_after_file_ends(lists: Lists, store: Store) -> None:
    with pytest.raises(SourceError, match="memory: not all of it came in 0 s"):
        run(store, Dictionary(lists.files), NOW_UNIX_S, update_s=0)


def test_while_one_fetches_others_need_not_wait(lists: Lists, store: Store) -> None:
    """The slow one finds what the other has stored, and is judged against that: so no fork slips between."""
    lists.publish(lists.cluster(hosts(13)))
    other = Store(NAME, store.folder.parent)
    asked: list[str] = []

    def overtake(path: str) -> None:
        asked.append(path)
        if path == "list/2" and asked.count(path) == 1:
            with store.locked(wait_s=0):
                pass
            assert isinstance(run(other, Dictionary(lists.files), NOW_UNIX_S), Accepted)

    assert isinstance(run(store, Dictionary(lists.files, overtake), NOW_UNIX_S), Accepted)
    assert asked.count("latest.tlog-proof") == 2 and asked.count("list/2") == 1, "it was held by then"
    assert len([path for path in store.folder.iterdir() if path.name != "current"]) == 2


def test_a_fork_that_another_process_has_stored_meanwhile_is_seen(lists: Lists, store: Store) -> None:
    run(store, Dictionary(lists.files), NOW_UNIX_S)
    fork = deepcopy(lists)
    lists.publish(lists.cluster(hosts(13)))
    fork.publish(fork.cluster(hosts(14)))
    other = Store(NAME, store.folder.parent)

    def overtake(path: str) -> None:
        if path == "list/2":
            run(other, Dictionary(lists.files), NOW_UNIX_S)

    verdict = run(store, Dictionary(fork.files, overtake), NOW_UNIX_S)
    assert isinstance(verdict, Refused) and verdict.fault is ListFault.FORK
    held = store.load()
    assert held is not None and held.list == lists.files["list/2"]


# --- Several places ----------------------------------------------------------------------------------


def test_the_next_place_is_asked_where_one_has_nothing_to_accept(tmp_path: Path) -> None:
    good, bad, gone = (tmp_path / name for name in ("good", "bad", "gone"))
    lists = lists_at(NOW_UNIX_S, *map(str, (good, bad, gone)))
    lists.publish()
    write_files(lists, good)
    lists.files["list/1"] = b"something else"
    write_files(lists, bad)
    orders = set()
    for seed in range(20):
        store = Store(NAME, tmp_path / f"state{seed}")
        store.begin(first_contact(lists))
        found = run_round(store, NOW_UNIX_S, Random(seed))
        assert found.accepted is not None
        assert {refused.fault for refused in found.refused} <= {ListFault.WITHHELD}
        orders.add((len(found.refused), len(found.unreachable)))
    assert orders == {(0, 0), (1, 0), (0, 1), (1, 1)}, "in random order"


class Slow:
    """A source that uses up all the time that it has."""

    def __init__(self, name: str, deadline: float, clock: list[float]) -> None:
        self.name = name
        self._deadline, self._clock = deadline, clock

    def get(self, path: str, bytes_max: int) -> bytes | None:
        self._clock[0] = max(self._clock[0], self._deadline)
        raise SourceError(f"{self.name}: slow")


def test_a_round_ends_in_time_and_slow_places_leave_some_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = lists_at(NOW_UNIX_S, "slow:1", "slow:2", "slow:3", "good:4")
    lists.publish()
    clock = [1000.0]
    monkeypatch.setattr(update, "monotonic", lambda: clock[0])

    def source_of(name: str, *, deadline: float) -> Source:
        if name.startswith("good"):
            assert deadline >= clock[0] + 5.0
            return Dictionary(lists.files)
        return Slow(name, deadline, clock)

    monkeypatch.setattr(update, "source_of", source_of)
    unreachable = set()
    for seed in range(20):
        store = Store(NAME, tmp_path / f"state{seed}")
        store.begin(first_contact(lists))
        began = clock[0]
        found = run_round(store, NOW_UNIX_S, Random(seed), round_s=20.0)
        assert found.accepted is not None and clock[0] - began <= 15.0
        unreachable.add(len(found.unreachable))
    assert unreachable == {0, 1, 2, 3}
