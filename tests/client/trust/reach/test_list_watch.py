"""trust/reach/list_watch.py under virtual time: when it fetches, what it adopts, what it tells how often."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.cluster import ClusterError
from kcast.client.clusters.watch import Change, Listen, News, Say, Stop
from kcast.client.events import ListChanged, ListTrouble
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Accepted, Refused, Trouble
from kcast.client.trust.forms import heads as hints
from kcast.client.trust.reach.bus import topic_of
from kcast.client.trust.reach.list_watch import LOOK_INTERVAL_S, ListWatch
from kcast.client.trust.reach.opening import Opened
from kcast.client.trust.reach.update import Round, run
from kcast.client.trust.state.standing import standing_of
from kcast.client.trust.state.store import Store
from kcast.pubsub.errors import KcastError
from tests.support.lists import DAY_S, FRESH_S, NAME, NOW_UNIX_S, OWNERS, VALID_S, Lists, document, hosts

HOUR_S = 3600.0


class World:
    """A watch, its lists, and a clock. A fetch takes no time, unless `is_slow`."""

    def __init__(self, tmp_path: Path, seed: int = 1, lists: Lists | None = None, **options: object) -> None:
        self.lists = lists or Lists()
        self.lists.publish()
        self.store = Store(NAME, tmp_path)
        self.store.begin(self.lists.newcomer())
        self.now = 0.0
        self.fetched_at: list[float] = []
        self.heads: dict[str, str] = {}
        self.failing: KcastError | Round | None = None
        self.is_slow = False
        self.pending: list[Callable[[], None]] = []
        self.update(NOW_UNIX_S, lambda: True)
        self.fetched_at.clear()
        self.news: list[tuple[float, News]] = []
        self.open(seed)

    def open(self, seed: int = 1, troubles: tuple[Trouble, ...] = ()) -> None:
        """Opens the watch from the state, as a program does that starts."""
        held = self.store.load()
        assert held is not None
        standing = standing_of(held)
        opened = Opened(self.store, standing, standing.present(self.unix_s()), troubles)
        self.watch = ListWatch(
            opened,
            self.now,
            lambda: self.heads,
            update=self.update,
            chance=Random(seed),
            clock=self.unix_s,
            start=lambda act: self.pending.append(act) if self.is_slow else act(),
        )

    def unix_s(self) -> float:
        return NOW_UNIX_S + self.now

    def update(self, now_unix_s: int, is_wanted: Callable[[], bool]) -> Round:
        self.fetched_at.append(self.now)
        if isinstance(self.failing, KcastError):
            raise self.failing
        if isinstance(self.failing, Round):
            return self.failing
        verdict = run(self.store, Dictionary(self.lists.files), now_unix_s, is_wanted=is_wanted)
        if isinstance(verdict, Accepted):
            return Round(verdict)
        return Round(None, (verdict,))

    def run(self, until: float, step_s: float = 60) -> list[News]:
        """Lets time pass, and returns what is told meanwhile, as an engine's turns ask for it, but
        by default not as often, which saves time."""
        told: list[News] = []
        while (look_at := max(self.watch.look_at, self.now + step_s)) <= until:
            self.now = look_at
            for news in self.watch.look(self.now):
                if isinstance(news, Listen | Say):
                    continue  # the bus has tests of its own
                self.news.append((self.now, news))
                told.append(news)
        self.now = until
        return told

    def publish(self, servers: int = 13, **facts: object) -> None:
        self.lists.now_unix_s = int(self.unix_s())
        self.lists.publish(self.lists.cluster(hosts(servers), **facts))

    def head(self) -> str:
        standing = standing_of(self.lists.accepted())
        return hints.head_of(standing.checkpoint)

    def hint(self, count: int = 1, head: str = "") -> None:
        self.heads = {f"192.0.2.{n}:7400": head or self.head() for n in range(count)}


class Dictionary:
    """A source in memory."""

    name = "memory"

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def get(self, path: str, bytes_max: int) -> bytes | None:
        data = self._files.get(path)
        return None if data is None else data[: bytes_max + 1]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def troubles(news: list[News]) -> list[str]:
    return [each.fault for each in news if isinstance(each, ListTrouble)]


def test_a_good_state_needs_no_network_and_is_refreshed_in_time(tmp_path: Path) -> None:
    first = []
    for seed in range(12):
        world = World(tmp_path / str(seed), seed)
        assert world.run(FRESH_S / 2 - 10) == [] and world.fetched_at == []
        world.publish()
        told = world.run(FRESH_S * 0.75 + 10)
        (fetched_at,) = world.fetched_at
        first.append(fetched_at / FRESH_S)
        assert [type(each) for each in told] == [ListChanged, Change]
    assert 0.5 <= min(first) < 0.57 and 0.68 < max(first) <= 0.76, "spread over a quarter of the interval"


def test_a_new_list_is_told_and_adopted(world: World) -> None:
    world.publish()
    changed, change = world.run(FRESH_S)
    (added,) = {server.name for server in hosts(13)} - {server.name for server in hosts(12)}
    assert changed == ListChanged(NAME, 2, (added,), ())
    assert isinstance(change, Change) and change.from_unix_s is None and len(change.cluster.servers) == 13
    state = world.watch.state()
    assert (state.version, state.upcoming, state.log_size, state.troubles) == (2, None, 3, ())
    assert state.checked_unix_s is not None and state.checked_unix_s > NOW_UNIX_S


def test_one_that_holds_later_is_adopted_from_then_on(world: World) -> None:
    world.now = FRESH_S / 4
    later = NOW_UNIX_S + FRESH_S
    world.publish(valid_after_s=later, fresh_until_s=later + FRESH_S)
    changed, change = world.run(FRESH_S - 1)
    assert isinstance(changed, ListChanged) and changed.from_unix_s == later
    assert isinstance(change, Change) and change.from_unix_s == later
    state = world.watch.state()
    assert (state.version, state.upcoming) == (1, 2)
    world.now = FRESH_S
    assert (world.watch.state().version, world.watch.state().upcoming) == (2, None)


def test_another_process_may_have_fetched_it(world: World) -> None:
    """Then the state on disk is newer than what this client goes by, and is adopted at the next update."""
    world.publish()
    run(world.store, Dictionary(world.lists.files), int(world.unix_s()))
    assert [type(each) for each in world.run(FRESH_S)] == [ListChanged, Change]


# --- Failures ----------------------------------------------------------------------------------------


def test_failures_are_tried_again_ever_more_seldom(world: World) -> None:
    world.failing = KcastError("lists.example.org: nothing came for 10 s")
    told = world.run(FRESH_S - 10, step_s=0)
    gaps = [later - earlier for earlier, later in zip(world.fetched_at, world.fetched_at[1:], strict=False)]
    assert 45 <= gaps[0] <= 70 and 90 <= gaps[1] <= 130
    assert all(2600 <= gap <= 3610 for gap in gaps[8:]) and len(gaps) > 20
    assert told == [], "a machine without a network is no news as long as the list is fresh"
    (late,) = world.run(FRESH_S + DAY_S - 100)
    assert isinstance(late, ListTrouble) and late.fault == "stale"
    assert late.text.endswith("The last fetch: lists.example.org: nothing came for 10 s")
    world.failing = None
    world.publish()
    told = world.run(FRESH_S + DAY_S + HOUR_S)
    assert [type(each) for each in told if not isinstance(each, ListTrouble)] == [ListChanged, Change]


def test_a_refused_list_is_told_once_and_then_daily(world: World) -> None:
    world.lists.publish(world.lists.cluster(hosts(2)))
    world.run(FRESH_S * 0.76)
    first_at, first = world.news[0]
    assert first == ListTrouble(
        NAME, "small", "a server list was refused: version 2 has 2 of the 3 hosts that it needs", 1
    )
    assert world.watch.state().troubles == (first,)
    world.run(first_at + 5 * DAY_S - HOUR_S)
    assert [each for _, each in world.news if troubles([each]) == ["small"]] == [first] * 5
    assert len(world.fetched_at) > 5 * 20
    world.publish()
    assert troubles(world.run(world.now + 2 * HOUR_S)) == [] and world.watch.state().troubles == ()


def test_one_bad_place_among_several_is_told_and_the_list_is_adopted(world: World) -> None:
    world.publish()
    good = run(world.store, Dictionary(world.lists.files), NOW_UNIX_S)
    assert isinstance(good, Accepted)
    world.failing = Round(good, (Refused(ListFault.WITHHELD, "list/2 is not there"),))
    told = world.run(FRESH_S * 0.76)
    assert [type(each) for each in told[:3]] == [ListChanged, Change, ListTrouble]


@pytest.mark.parametrize(
    "kind", [ZeroDivisionError, MemoryError, SystemExit, KeyboardInterrupt, GeneratorExit]
)
def test_whatever_ends_a_fetch_the_next_one_comes(world: World, kind: type[BaseException]) -> None:
    def fail(now_unix_s: int, is_wanted: Callable[[], bool]) -> Round:
        raise kind("oh")

    world.is_slow = True
    world.watch._update, update = fail, world.watch._update
    world.run(FRESH_S * 0.76)
    (act,) = world.pending
    with pytest.raises(kind):
        act()
    world.run(FRESH_S + 200)
    assert f"{kind.__name__}: oh" in world.watch.state().troubles[0].text
    assert len(world.pending) == 2
    world.publish()
    world.watch._update, world.is_slow = update, False
    with pytest.raises(kind):
        world.pending[1]()
    assert any(isinstance(each, ListChanged) for each in world.run(FRESH_S + 2 * HOUR_S))


def test_lists_go_stale_and_expire_without_a_fetch(world: World) -> None:
    world.is_slow = True  # a fetch begins, and never ends
    told = world.run(VALID_S + 2 * DAY_S, step_s=600)
    assert len(world.pending) == 1
    at = {
        fault: [when for when, each in world.news if isinstance(each, ListTrouble) and each.fault == fault]
        for fault in troubles(told)
    }
    assert FRESH_S < at["stale"][0] <= FRESH_S + 600
    assert VALID_S < at["expired"][0] <= VALID_S + 600
    assert len(at["expired"]) == 2 and not any(isinstance(each, Stop) for each in told)


def test_an_expired_list_stops_the_client_where_its_owners_want_that(tmp_path: Path) -> None:
    world = World(tmp_path, lists=Lists(document=document(expiry="refuse"), owners=tuple(OWNERS)))
    world.failing = KcastError("no network")
    told = world.run(VALID_S + 1200, step_s=600)
    stop = next(each for each in told if isinstance(each, Stop))
    assert isinstance(stop.error, ClusterError) and "version 1 was valid until" in str(stop.error)
    assert "expired" in troubles(told)


# --- Heads -------------------------------------------------------------------------------------------


def test_a_newer_head_leads_to_a_fetch_at_once(world: World) -> None:
    world.run(100)
    world.publish()
    world.hint()
    told = world.run(100 + 2 * LOOK_INTERVAL_S, step_s=0)
    assert [type(each) for each in told] == [ListChanged, Change] and len(world.fetched_at) == 1
    assert world.run(DAY_S) == [] and len(world.fetched_at) == 1


@pytest.mark.parametrize(
    "head", ["", "1", "x.y", "0.AAAAAAAAAAAAAAAAAAAAAA", "1.AAAAAAAAAAAAAAAAAAAAAA", "-5." + 22 * "A"]
)
def test_heads_that_say_nothing_newer_lead_to_nothing(world: World, head: str) -> None:
    world.hint(5, head or world.head())
    assert world.run(DAY_S) == [] and world.fetched_at == []


@pytest.mark.parametrize("head", ["999999999." + 22 * "A", "2." + 22 * "A"])
def test_lying_heads_cost_little_and_are_told_as_what_they_are(world: World, head: str) -> None:
    """A larger tree that nobody hands out, and another root at our size."""
    world.hint(5)
    world.heads["192.0.2.2:7400"] = head
    told = world.run(DAY_S)
    assert troubles(told) == ["behind"] and world.watch.state().version == 1
    assert len(world.fetched_at) <= 2 + 24 + 6
    gaps = [later - earlier for earlier, later in zip(world.fetched_at, world.fetched_at[1:], strict=False)]
    assert min(gaps) >= 60, "at most once a minute"
    (trouble,) = world.watch.state().troubles
    size = head.partition(".")[0]
    another = "another " if size == "2" else ""
    assert trouble.text.startswith(f"held 2, 1 of 5 servers say {another}{size}: ")


def test_lying_heads_do_not_delay_what_other_clients_have_verified(world: World) -> None:
    world.hint(5, f"999999999.{22 * 'A'}")
    world.run(DAY_S)
    world.fetched_at.clear()
    world.publish()
    heard(world, topic_of(NAME), world.lists.files["checkpoint"])
    told = world.run(DAY_S + 3 * LOOK_INTERVAL_S, step_s=0)
    assert [type(each) for each in told] == [ListChanged, Change] and len(world.fetched_at) == 1


# --- The thread --------------------------------------------------------------------------------------


def test_no_second_fetch_begins_during_one(world: World) -> None:
    world.is_slow = True
    world.publish()
    world.hint()
    world.run(HOUR_S)
    assert len(world.pending) == 1
    world.pending.pop()()
    assert [type(each) for each in world.run(HOUR_S + 1, step_s=0)] == [ListChanged, Change]


# --- The bus -----------------------------------------------------------------------------------------


def heard(world: World, topic: bytes, payload: bytes) -> list[News]:
    """Lets the watch hear a message, and returns what it tells at once."""
    world.watch.hear(topic, payload, world.now)
    return list(world.watch.look(world.now)) if world.watch.look_at <= world.now else []


def test_a_fork_that_is_heard_is_told_with_its_evidence(world: World) -> None:
    world.run(10, step_s=0)
    other = Lists()
    other.publish(other.cluster(13))
    (trouble,) = heard(world, topic_of(NAME), other.files["checkpoint"])
    assert isinstance(trouble, ListTrouble) and (trouble.fault, trouble.kept) == ("fork", 1)
    kept = {path.name: path.read_bytes() for path in Path(trouble.evidence).iterdir()}
    assert kept["held.checkpoint"] == world.lists.files["checkpoint"]
    assert kept["heard.checkpoint"] == other.files["checkpoint"]
    assert heard(world, topic_of(NAME), other.files["checkpoint"]) == []


# --- The clock ---------------------------------------------------------------------------------------


def test_a_clock_that_is_slow_is_told_and_a_fetch_is_due_at_once(world: World) -> None:
    for off_s in (HOUR_S, 365 * DAY_S):
        world.now, world.fetched_at = -off_s, []
        world.open()
        assert "clock" in troubles(world.run(world.now + 60, step_s=0)), off_s
        assert len(world.fetched_at) == 1
        assert world.watch.state().version == 1
