"""sealed/group_watch.py and beacon.py under virtual time: when a group is looked at, what is adopted and
forgotten, what is told how often, and what members tell each other."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.clusters.watch import Listen, News, Say
from kcast.client.events import HARMLESS, Drop, GroupTrouble
from kcast.client.sealed.beacon import HOUR_S, SAY_SOON_S
from kcast.client.sealed.group_file import HEAD_BYTES_MAX, GroupFile, Head
from kcast.client.sealed.group_store import GroupStore
from kcast.client.sealed.group_watch import TALK_AFTER_S, GroupWatch, watch_of
from kcast.client.sealed.groups import LOOK_INTERVAL_S, Look, load, look
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.membership import LINGER_S, Group
from kcast.client.sealed.topics import beacon_of
from tests.support.groups import (
    ALICE,
    BOB,
    DAY_S,
    FRESH_S,
    MALLORY,
    NAME,
    NOW_UNIX_S,
    OWNER,
    Place,
    made,
    secrets,
)
from tests.support.waiting import wait_until

T = NOW_UNIX_S


class World(Place):
    """A member with a watch, and a clock. A look takes no time, unless `is_slow`."""

    def __init__(
        self, folder: Path, me: Identity = ALICE, *, file: tuple[GroupFile, bytes] | None = None
    ) -> None:
        folder = folder / me.key_text
        folder.mkdir()
        super().__init__(folder, me)
        self.store = GroupStore(NAME, folder / "groups")
        file = file or made()
        self.path.write_bytes(file[1])
        self.store.begin(*file, str(self.path))
        self.now = 0.0
        self.clock_error_s = 0.0
        self.is_slow = False
        self.pending: list[Callable[[], None]] = []
        self.looked_at: list[float] = []
        self.drops: Counter[Drop] = Counter()
        self.begin()

    def begin(self) -> None:
        """Begins, or begins anew after a restart."""
        self.group = look(self.store, self.me, T + self.now, "").group
        self.topics: tuple[bytes, ...] = ()
        self.watch = GroupWatch(
            self.group,
            self.now,
            self.looking,
            self.adopt,
            clock=lambda: T + self.now + self.clock_error_s,
            start=lambda act: self.pending.append(act) if self.is_slow else act(),
            rng=Random(self.me.key_text),
            drops=self.drops,
        )

    def adopt(self, group: Group, now: float) -> None:
        self.group = group

    def looking(self, unix_s: float, forget_unix_s: float, other: Head | None) -> Look:
        self.looked_at.append(self.now)
        return look(self.store, self.me, unix_s, str(self.path), forget_unix_s=forget_unix_s, other=other)

    def look(self, now: float) -> list[News]:
        """Makes a turn; returns what is told."""
        self.now = now
        told = self.watch.look(now)
        for news in told:
            if isinstance(news, Listen):
                self.topics = news.topics
        return told

    def run(self, until: float, step_s: float = 0.0) -> list[tuple[float, GroupTrouble]]:
        """Lets time pass, as an engine's turns do, or in longer steps; returns what is told, and when."""
        told = []
        while (look_at := max(self.watch.look_at, self.now + step_s)) <= until:
            told += [(look_at, news) for news in self.look(look_at) if isinstance(news, GroupTrouble)]
        self.now = until
        return told

    def epochs_in_use(self) -> list[int]:
        return [epoch.number for epoch in self.group.epochs]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def faults(told: list[tuple[float, GroupTrouble]]) -> list[str]:
    return [news.fault for _, news in told]


def test_it_looks_at_once_and_then_every_minute(world: World) -> None:
    assert world.run(300) == []
    assert world.looked_at == [0, 60, 120, 180, 240, 300]


def test_a_new_epoch_is_adopted_within_a_minute_without_a_restart(world: World) -> None:
    world.run(90)
    world.put(2, 1, T + 690)
    world.run(90 + LOOK_INTERVAL_S)
    assert world.epochs_in_use() == [1, 2]
    for unix_s, number in ((T + 689, 1), (T + 690, 2)):
        writing = world.group.writing(unix_s)
        assert writing is not None and writing.number == number


def test_an_epoch_goes_from_memory_in_time_and_from_disk_when_two_looks_agree(world: World) -> None:
    world.put(2, 1, T + 600)
    world.run(600 + LINGER_S - 0.1)
    assert world.epochs_in_use() == [1, 2] and world.epochs() == [1, 2]
    world.run(600 + LINGER_S)
    assert world.epochs_in_use() == [2] and world.epochs() == [1, 2]
    assert secrets(1).topic_secret not in [epoch.topic_secret for epoch in world.group.epochs]
    world.run(600 + LINGER_S + 2 * LOOK_INTERVAL_S)
    assert world.epochs() == [2]


@pytest.mark.parametrize("error_s", [365 * DAY_S, 3600.0, -3600.0, -365 * DAY_S])
def test_a_clock_that_is_wrong_for_one_look_deletes_nothing(world: World, error_s: float) -> None:
    world.put(2, 1, T + 600)
    world.run(300)
    for at in (301, 420, 540):
        world.clock_error_s = error_s
        world.run(at + LOOK_INTERVAL_S - 2)
        world.clock_error_s = 0.0
        world.run(at + LOOK_INTERVAL_S + 1)
        assert world.epochs() == [1, 2]
    assert world.epochs_in_use() == [1, 2]


def test_what_breaks_a_look_does_not_end_all_looking(world: World) -> None:
    def broken(unix_s: float, forget_unix_s: float, other: Head | None) -> Look:
        raise ZeroDivisionError("x")

    good, world.watch._looking = world.watch._looking, broken
    with pytest.raises(ZeroDivisionError):
        world.run(1)
    assert faults(world.run(30)) == ["malformed"]
    world.watch._looking = good
    world.put(2, 1, T + 900)
    assert world.run(100) == [] and world.epochs_in_use() == [1, 2]


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        (made(1, members=(OWNER,))[1], "two-texts"),
        (made()[1][:-1], "malformed"),
        (made(2, 1, T + 1, life_s=1)[1], "expired"),
    ],
)
def test_a_fault_is_told_once_a_day_and_what_is_held_stays(world: World, what: bytes, fault: str) -> None:
    world.run(61)
    world.path.write_bytes(what)
    ((_, news),) = world.run(DAY_S / 2, 600)
    assert (news.group, news.fault) == (NAME, fault) and news.text.isprintable()
    assert world.epochs_in_use() == [1]
    assert faults(world.run(1.5 * DAY_S, 600)) == [fault]


def test_a_file_that_is_gone_for_a_moment_is_no_trouble(world: World) -> None:
    data = world.path.read_bytes()
    world.path.unlink()
    assert world.run(119) == []
    world.path.write_bytes(data)
    assert world.run(300) == []
    world.path.unlink()
    ((at, news),) = world.run(600)
    assert at == pytest.approx(300 + 3 * 60, abs=61)
    assert news.fault == "unreachable" and "there is no such file" in news.text


def test_what_another_client_of_this_user_has_taken_counts_here_too(world: World) -> None:
    world.run(61)
    file, data = made(2, 1, T + 600)
    world.path.unlink()
    with world.store.locked():
        world.store.keep(file, data)
    world.run(125)
    assert world.epochs_in_use() == [1, 2]


# --- The beacon ---------------------------------------------------------------------------------------


class Talk:
    """Members whose words reach all who listen, themselves too."""

    def __init__(self, folder: Path, *members: Identity, **options: tuple[GroupFile, bytes]) -> None:
        self.worlds = [World(folder, me, **options) for me in members]
        self.said: list[tuple[float, bytes]] = []
        self.now = 0.0

    def run(self, until: float) -> list[list[tuple[float, GroupTrouble]]]:
        """Lets time pass; returns what each is told."""
        told: list[list[tuple[float, GroupTrouble]]] = [[] for _ in self.worlds]
        while (at := min(world.watch.look_at for world in self.worlds)) <= until:
            self.now = max(at, self.now)
            for world, found in zip(self.worlds, told, strict=True):
                for news in world.look(self.now):
                    if isinstance(news, GroupTrouble):
                        found.append((self.now, news))
                    elif isinstance(news, Say):
                        self.say(news.topic, news.payload)
        self.now = until
        return told

    def say(self, topic: bytes, payload: bytes) -> None:
        self.said.append((self.now, payload))
        for world in self.worlds:
            if topic in world.topics:
                world.watch.hear(topic, payload, self.now)


def head_of(epoch: int, **options: object) -> bytes:
    return made(epoch, **options)[0].head.data


def topic_of(epoch: int) -> bytes:
    return beacon_of(secrets(epoch).topic_secret)


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_a_server_that_goes_on_with_the_old_file_is_told_of_to_all_within_two_minutes(
    tmp_path: Path, is_by_hand: bool
) -> None:
    """Also where the owner has not put the new file there, and only his own client has it, or one member."""
    talk = Talk(tmp_path, OWNER, ALICE, BOB)
    assert talk.run(600) == [[], [], []]
    first, *others = talk.worlds
    if is_by_hand:
        with first.store.locked():
            first.store.keep(*made(2, 1, T + 600))
    else:
        first.put(2, 1, T + 600)
    told = talk.run(1200)
    assert faults(told[0]) == ["rollback"] * is_by_hand
    for world, found in zip(others, told[1:], strict=True):
        times, texts = [at for at, _ in found], {news.text for _, news in found}
        assert faults(found) == ["behind"] * len(found) and 600 < times[0] <= 720
        assert all(later - at <= LOOK_INTERVAL_S + 1 for at, later in pairwise([*times, 1200]))
        assert all("its epoch 2" in text and f"{world.path} has epoch 1 at most" in text for text in texts)
        world.put(2, 1, T + 600)
    assert [faults(found) for found in talk.run(1265)[1:]] == [[], []]
    assert all(world.epochs_in_use() == [2] for world in others)


def test_who_was_removed_learns_that_there_is_a_newer_epoch_and_its_hash(tmp_path: Path) -> None:
    talk = Talk(tmp_path, OWNER, BOB)
    talk.run(600)
    ann, ben = talk.worlds
    file, data = made(2, 1, T + 600, members=(OWNER, ALICE))
    ann.path.write_bytes(data)
    assert faults(talk.run(700)[1])[0] == "behind"
    heard = {payload for at, payload in talk.said if at >= 600}
    assert heard == {file.head.data} and len(file.head.data) <= HEAD_BYTES_MAX
    assert topic_of(2) in ann.topics and topic_of(2) not in ben.topics


def test_one_who_starts_with_an_old_file_hears_of_the_new_one_after_a_restart_of_the_others(
    tmp_path: Path,
) -> None:
    """The topic of an epoch is known for as long as that is fresh; its keys have gone."""
    talk = Talk(tmp_path, OWNER, BOB)
    ann, ben = talk.worlds
    ann.put(2, 1, T + 600)
    ben.watch.close()
    talk.run(3 * DAY_S)
    assert ann.epochs() == [2]
    ann.begin()
    talk.run(3 * DAY_S + HOUR_S)
    ben.now = talk.now
    ben.begin()
    told = talk.run(3 * DAY_S + HOUR_S + 120)[1]
    assert told and told[0][1].fault == "behind"
    talk.run(FRESH_S + HOUR_S)
    assert topic_of(1) not in ann.topics and topic_of(2) in ann.topics


def test_it_is_said_at_start_at_each_epoch_when_an_older_one_is_heard_and_each_hour(tmp_path: Path) -> None:
    talk = Talk(tmp_path, ALICE)
    world = talk.worlds[0]

    def times() -> list[float]:
        return [at for at, _ in talk.said]

    talk.run(HOUR_S)
    assert len(talk.said) == 1 and times()[0] <= TALK_AFTER_S + SAY_SOON_S
    talk.run(10 * HOUR_S)
    assert all(HOUR_S <= later - at <= 1.5 * HOUR_S for at, later in pairwise(times()))
    talk.said.clear()
    world.put(2, 1, T + 11 * 3600)
    talk.run(talk.now + LOOK_INTERVAL_S + SAY_SOON_S)
    assert [payload for _, payload in talk.said] == [world.group.head] * 2  # on both epochs' topics
    talk.run(talk.now + 120)
    talk.said.clear()
    topic, old, new = topic_of(1), head_of(1), world.group.head
    for _ in range(6000):  # a replay, ten times a second: said within 30 s, and then once a minute
        world.watch.hear(topic, old, talk.now)
        talk.run(talk.now + 0.1)
    assert times()[0] <= talk.now - 600 + SAY_SOON_S
    assert all(60 <= later - at < 60.2 for at, later in pairwise(times()[::2]))
    talk.said.clear()
    for _ in range(24):  # at one member alone: then it says it by the hour
        world.watch.hear(topic, old, talk.now)
        world.watch.hear(topic, new, talk.now)
        talk.run(talk.now + 0.9 * HOUR_S)
    assert [*Counter(times()).values()].count(2) >= 12  # on both topics at once


def test_a_command_that_ends_soon_neither_listens_nor_speaks(world: World) -> None:
    assert [world.look(seconds / 10) for seconds in range(20)] == [[]] * 20
    (listen,) = world.look(2.0)
    assert listen == Listen((topic_of(1),))


def test_a_large_group_does_not_talk_all_at_once(tmp_path: Path) -> None:
    members = tuple(Identity.from_seed("key", bytes([number]) * 32) for number in range(1, 11))
    talk = Talk(tmp_path, *members, file=made(2, members=members))
    talk.run(HOUR_S - 1)
    assert len(talk.said) == 1
    talk.run(2 * HOUR_S)  # but nobody can keep the others silent for good
    assert len(talk.said) >= 10
    talk.run(2.7 * HOUR_S)
    beacons = [world.watch._beacon for world in talk.worlds]
    for beacon in beacons * 60:  # copies of an old one do not take the chance out of it
        beacon.hear(topic_of(2), head_of(1), talk.now)
    assert sum(beacon.next_at > talk.now + 5 for beacon in beacons) >= 5


FUTURE = head_of(10**12 - 1, from_unix_s=T + 10 * 365 * DAY_S)


@pytest.mark.parametrize(
    ("payloads", "fetches", "counted"),
    [
        ([b"", b"x", b"\0" * 500, head_of(2)[:-1], head_of(2) + b"\n", b"x" * 1100], 0, 6),
        (
            [head_of(2, owner=MALLORY), head_of(2, name="other"), head_of(2).replace(b"epoch 2", b"epoch 3")],
            0,
            3,
        ),
        ([head_of(2).replace(b"epoch 2", b"epoch 1000000000000000000")], 0, 1),  # no such number
        ([made()[0].head.data], 0, 0),  # its own, replayed
        ([head_of(2)] * 50, 1, 0),
        ([FUTURE, head_of(2), FUTURE], 1, 0),
        ([head_of(number) for number in range(2, 19)], 1, 0),
        ([head_of(1, members=(OWNER,))] * 50, 1, 0),
    ],
)
def test_whatever_is_said_no_file_is_fetched_twice_in_a_minute(
    world: World, payloads: Sequence[bytes], fetches: int, counted: int
) -> None:
    world.run(61)
    looked = len(world.looked_at)
    for number, payload in enumerate(payloads):
        world.watch.hear(topic_of(1), payload, 62 + number / 100)
        world.look(62 + number / 100)
    assert world.drops.total() == counted
    assert len(world.looked_at) - looked == fetches
    assert world.epochs_in_use() == [1]


def test_another_head_of_the_same_epoch_is_told_and_both_are_kept(world: World) -> None:
    world.run(61)
    other = head_of(1, members=(OWNER,))
    world.watch.hear(topic_of(1), other, 62)
    ((at, news),) = world.run(DAY_S / 4)
    assert at < 63 and news.fault == "two-texts"
    path = world.store.folder / "1.two-texts"
    assert str(path) in news.text and path.read_bytes() == world.group.head + b"\n" + other


def test_a_flood_keeps_nobody_from_hearing_of_a_newer_epoch_and_is_told(tmp_path: Path) -> None:
    """Where 300 lines a second are said that the owner has not signed: of no form, and heads."""
    talk, topic = Talk(tmp_path, OWNER, ALICE, BOB), topic_of(1)
    forged = [head_of(2, owner=MALLORY), head_of(2).replace(b"epoch 2", b"epoch 3")]
    talk.run(600)
    talk.worlds[0].put(2, 1, T + 600)
    told: list[list[tuple[float, GroupTrouble]]] = [[], [], []]
    lines = 0
    while talk.now < 720 and [*map(len, told)] != [1, 2, 2]:
        for payload in (*forged, *[b"x"] * 28):
            talk.say(topic, payload)
        lines += 30
        for each, more in zip(told, talk.run(talk.now + 0.1), strict=True):
            each += more
    assert [sorted(faults(found)) for found in told] == [["flooded"], *[["behind", "flooded"]] * 2]
    assert talk.worlds[1].drops == {Drop.BAD_BEACON: lines} and Drop.BAD_BEACON not in HARMLESS


@pytest.mark.world
def test_a_real_one_looks_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from time import time

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    now = int(time())
    place = Place(tmp_path)
    place.put(1, 0, now)
    place.join(now)
    found: list[Group] = []
    watch = watch_of(load(NAME, ALICE), ALICE, 0.0, lambda group, now: found.append(group), Counter())
    place.put(2, 1, now + 600)

    def is_adopted() -> bool:
        watch.look(watch.look_at)
        return bool(found)

    wait_until(is_adopted)
    assert found[0].newest == 2
    watch.close()
