"""sealed/group_keeper.py under virtual time: when it looks, what it adopts and forgets, what it tells how
often."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("nacl")

from kcast.client.events import GroupTrouble
from kcast.client.sealed.group_keeper import GroupKeeper, keeper_of
from kcast.client.sealed.groups import LOOK_INTERVAL_S, Look, load, look, member_key
from kcast.client.sealed.membership import LINGER_S, Group
from tests.support.groups import ALICE, DAY_S, MALLORY, NAME, NOW_UNIX_S, OWNER, Place, made, secrets
from tests.support.waiting import wait_until

T = NOW_UNIX_S


class World(Place):
    """A member with a keeper, and a clock. A look takes no time, unless `is_slow`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.put()
        self.join()
        self.now = 0.0
        self.is_slow = False
        self.pending: list[Callable[[], None]] = []
        self.looked_at: list[float] = []
        self.group = load(NAME, self.me, unix_s=T)
        self.keeper = GroupKeeper(
            self.group,
            self.now,
            self.looking,
            clock=self.unix_s,
            start=lambda act: self.pending.append(act) if self.is_slow else act(),
        )

    def unix_s(self) -> float:
        return T + self.now

    def looking(self, unix_s: float) -> Look:
        self.looked_at.append(unix_s - T)
        return look(self.store, member_key(self.me), unix_s, str(self.path))

    def run(self, until: float, step_s: float = 0.0) -> list[tuple[float, Group | GroupTrouble]]:
        """Lets time pass, as an engine's turns do, or in longer steps; returns what is told, and when."""
        told = []
        while (look_at := max(self.keeper.look_at, self.now + step_s)) <= until:
            self.now = look_at
            for news in self.keeper.look(self.now):
                told.append((self.now, news))
                if isinstance(news, Group):
                    self.group = news
        self.now = until
        return told

    def epochs_in_use(self) -> list[int]:
        return [epoch.number for epoch in self.group.epochs]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return World(tmp_path)


def faults(told: list[tuple[float, Group | GroupTrouble]]) -> list[str]:
    return [news.fault for _, news in told if isinstance(news, GroupTrouble)]


def test_it_looks_at_once_and_then_every_minute(world: World) -> None:
    assert world.run(300) == []
    assert world.looked_at == [0, 60, 120, 180, 240, 300]


def test_a_new_epoch_is_adopted_within_a_minute_without_a_restart(world: World) -> None:
    world.run(90)
    world.put(2, 1, T + 690)
    ((at, group),) = world.run(600)
    assert 90 < at <= 90 + LOOK_INTERVAL_S + 1 and isinstance(group, Group)
    assert world.epochs_in_use() == [1, 2]
    for unix_s, number in ((T + 689, 1), (T + 690, 2)):
        writing = world.group.writing(unix_s)
        assert writing is not None and writing.number == number


def test_an_epoch_is_forgotten_in_memory_and_on_disk_when_its_time_has_passed(world: World) -> None:
    world.put(2, 1, T + 600)
    world.run(600 + LINGER_S - 0.1)
    assert world.epochs_in_use() == [1, 2] and world.epochs() == [1, 2]
    ((at, group),) = world.run(600 + LINGER_S + 1)
    assert at == 600 + LINGER_S and isinstance(group, Group)
    assert world.epochs_in_use() == [2] and world.epochs() == [2]
    assert secrets(1).topic_secret not in [epoch.topic_secret for epoch in world.group.epochs]


def test_what_breaks_a_look_does_not_end_all_looking(world: World) -> None:
    def broken(unix_s: float) -> Look:
        raise ZeroDivisionError("x")

    good, world.keeper._looking = world.keeper._looking, broken
    with pytest.raises(ZeroDivisionError):
        world.run(1)
    assert faults(world.run(30)) == ["malformed"]
    world.keeper._looking = good
    world.put(2, 1, T + 900)
    assert [type(news) for _, news in world.run(100)] == [Group]


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        (made(1, members=(OWNER,))[1], "two-texts"),
        (made(2, owner=MALLORY)[1], "wrong-owner"),
        (made(2, name="other")[1], "wrong-name"),
        (made(2, 1, T - 100 * DAY_S)[1], "too-early"),
        (made()[1][:-1], "malformed"),
        (made(2, 1, T + 1, life_s=1)[1], "expired"),
    ],
)
def test_a_fault_is_told_once_a_day_and_what_is_held_stays(world: World, what: bytes, fault: str) -> None:
    world.run(61)
    world.path.write_bytes(what)
    told = world.run(DAY_S / 2, 600)
    assert faults(told) == [fault] and world.epochs_in_use() == [1]
    (news,) = (news for _, news in told)
    assert isinstance(news, GroupTrouble) and news.group == NAME and news.text.isprintable()
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
    assert (
        isinstance(news, GroupTrouble)
        and news.fault == "unreachable"
        and "there is no such file" in news.text
    )


def test_one_who_is_removed_is_told_at_once_and_goes_on_until_then(world: World) -> None:
    world.put(2, 1, T + 600, members=(OWNER,))
    told = world.run(100)
    assert faults(told) == ["not-member"]
    assert "from 2027-01-15 08:10:00 UTC on" in str(told)
    assert world.group.writing(T + 599) and not world.group.writing(T + 600)
    world.run(600 + LINGER_S)
    assert world.epochs_in_use() == []


def test_what_another_client_of_this_user_has_taken_counts_here_too(world: World) -> None:
    world.run(61)
    file, data = made(2, 1, T + 600)
    world.path.unlink()
    with world.store.locked():
        world.store.keep(file, data)
    world.run(125)
    assert world.epochs_in_use() == [1, 2]


@pytest.mark.world
def test_a_real_one_looks_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from time import time

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    now = int(time())
    place = Place(tmp_path)
    place.put(1, 0, now)
    place.join(now)
    keeper = keeper_of(load(NAME, ALICE), ALICE, 0.0)
    place.put(2, 1, now + 600)
    news: list[Group | GroupTrouble] = []
    assert keeper.look(0.0) == []

    def is_told() -> bool:
        news.extend(keeper.look(keeper.look_at))
        return bool(news)

    wait_until(is_told)
    assert isinstance(news[0], Group) and news[0].newest == 2
    keeper.close()
