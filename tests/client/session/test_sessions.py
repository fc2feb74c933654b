"""client/session/sessions.py: servers known by name, whose addresses come, go, collide. PROTOCOL §10.2."""

from itertools import pairwise
from random import Random
from typing import Any

from kcast.client.cluster import Cluster, ServerEntry
from kcast.client.events import Outcome, Published, ServerForgot, ServerLost, ServerReturned
from kcast.client.session.sessions import LOOKUP_INTERVAL_S_MAX
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address
from tests.client.test_core_servers import World, v4
from tests.support.forms import Seeds

ALL = Policy(3, 3, 3)


def named(number: int) -> tuple[str, int]:
    return f"kcast-{number}.kcast", 7400


class NamedWorld(World):
    """Servers that are known by name. `found` has the addresses of each name; one without an entry has no
    answer at all, as from a name server that is down."""

    def __init__(self, count: int = 3, policy: Policy = ALL, **options: Any) -> None:
        servers = tuple(ServerEntry((), f"kcast-{n}", named(n)) for n in range(count))
        self.found: dict[tuple[str, int], list[Address]] = {}
        self.lookups: list[tuple[float, tuple[str, int]]] = []
        super().__init__(policy, Cluster(servers, policy, has_names=True), **options)
        self.down.update(v4(number) for number in range(20))
        for number in range(count):
            self.move(number, v4(number + 1))

    def move(self, number: int, *addresses: Address) -> None:
        """Gives a server other addresses, at which it knows nobody."""
        name = self.names[number]
        for address in [at for at, of in self.at.items() if of == name]:
            del self.at[address]
            self.down.add(address)
        self.at |= dict.fromkeys(addresses, name)
        self.down -= set(addresses)
        self.servers[name] = type(self.servers[name])()
        self.found[named(number)] = list(addresses)

    def turn(self) -> None:
        super().turn()
        while names := self.core.take_lookups(self.now):
            for each in names:
                self.lookups.append((self.now, each))
                if each in self.found:
                    self.core.located(each, self.found[each], self.now)
            super().turn()

    def run(self, for_s: float) -> None:
        super().run(for_s)
        self.turn()


def test_names_are_looked_up_at_the_start() -> None:
    world = NamedWorld()
    world.core.subscribe(b"t", world.now)
    world.run(1)
    assert world.core.lease_counts(b"t") == (3, 3)
    assert world.leased_at() == set(world.names)
    assert world.published().servers == dict.fromkeys(world.names, Outcome.RECEIPT)
    assert world.core.server_states() == dict.fromkeys(world.names, "alive")
    world.run(600)
    assert len(world.lookups) == 3, "as long as all is well nothing is looked up again"


def test_what_is_published_before_the_answer_waits_for_it() -> None:
    world = NamedWorld()
    answers, world.found = world.found, {}
    handle = world.core.publish(b"t", b"x", world.now)
    world.run(3)
    assert world.take_events() == [] and not world.sent
    for each, addresses in answers.items():
        world.core.located(each, addresses, world.now)
    world.run(1)
    (event,) = world.take_events(Published)
    assert isinstance(event, Published) and event.handle == handle and event.receipts == 3


def test_name_that_does_not_resolve_is_a_server_that_is_down() -> None:
    world = NamedWorld()
    world.found[named(0)] = []
    world.core.subscribe(b"t", world.now)
    world.run(1)
    assert world.core.lease_counts(b"t") == (2, 3)
    assert world.take_events(ServerLost) == [ServerLost(world.names[0], "name", has_answered=False)]
    assert world.core.server_states()[world.names[0]] == "lost"
    outcome = world.published(confirm=True)
    assert outcome.receipts == 2
    assert outcome.servers[world.names[0]] is Outcome.NO_ANSWER
    world.run(200)
    times = [at for at, each in world.lookups if each == named(0)]
    gaps = [round(later - earlier) for earlier, later in pairwise(times)]
    assert gaps[:6] == [1, 1, 2, 4, 8, 16] and set(gaps[6:]) == {LOOKUP_INTERVAL_S_MAX}
    world.move(0, v4(9))
    world.run(LOOKUP_INTERVAL_S_MAX + 1)
    assert world.take_events(ServerReturned) == [ServerReturned(world.names[0])]
    assert world.core.lease_counts(b"t") == (3, 3)


def test_server_that_comes_back_at_another_address_is_found() -> None:
    world = NamedWorld()
    world.core.subscribe(b"t", world.now)
    world.run(1)
    world.move(1, v4(77))
    world.run(60)
    assert world.take_events(ServerLost, ServerReturned) == [
        ServerLost(world.names[1]),
        ServerReturned(world.names[1]),
    ]
    assert world.core.lease_counts(b"t") == (3, 3)
    assert world.leased_at() == set(world.names)
    assert v4(2) not in world.core.sessions.at


def test_addresses_are_kept_while_the_name_server_is_down() -> None:
    """It takes nobody's servers away: a server that comes back where it was is found without it."""
    for silent in (True, False):
        world = NamedWorld()
        world.core.subscribe(b"t", world.now)
        world.run(1)
        if silent:
            world.found.clear()
        else:
            world.found[named(0)] = []
        world.down.add(v4(1))
        world.run(60)
        assert world.core.server_states()[world.names[0]] == "lost"
        world.down.clear()
        world.run(60)
        assert world.core.lease_counts(b"t") == (3, 3)


def test_two_names_of_one_server_are_one_server_and_one_that_is_down() -> None:
    """Its copies come by one of them; a mistake in DNS does not make two servers of one."""
    world = NamedWorld()
    world.found[named(1)] = world.found[named(0)]
    world.core.subscribe(b"t", world.now)
    world.run(30)
    assert world.core.lease_counts(b"t") == (2, 3)
    assert world.core.sessions.at[v4(1)].server.name == world.names[0]
    assert world.take_events(ServerLost) == [ServerLost(world.names[1], "name", has_answered=False)]
    assert world.core.server_states()[world.names[0]] == "alive"
    before = len(world.lookups)
    world.run(600)
    assert len(world.lookups) - before < 60, "both are looked up now and then, and not all the time"


def test_server_that_has_forgotten_us_is_looked_up() -> None:
    """It may be another one, which has the address now."""
    world = NamedWorld()
    world.core.subscribe(b"t", world.now)
    world.run(1)
    name = world.names[0]
    world.servers[name] = type(world.servers[name])()
    world.run(60)
    assert world.take_events(ServerForgot) == [ServerForgot(name)]
    assert [each for _, each in world.lookups].count(named(0)) == 2


def test_whatever_befalls_names_all_is_well_once_they_are_right(seeds: Seeds) -> None:
    """Moves, swaps, names without an answer, and wrong answers, in any order."""
    for seed in seeds(8, 40):
        rng, world = Random(seed), NamedWorld(seed=seed)
        world.core.subscribe(b"t", world.now)
        for _ in range(12):
            number = rng.randrange(3)
            match rng.randrange(4):
                case 0:
                    world.move(number, rng.choice([v4(n) for n in range(1, 9) if v4(n) not in world.at]))
                case 1:
                    world.found[named(number)] = []
                case 2:
                    world.found.pop(named(number), None)
                case _:
                    world.found[named(number)] = [v4(rng.randrange(1, 9))]
            world.run(rng.choice((0.1, 2, 20)))
        for address, name in world.at.items():
            world.found[named(world.names.index(name))] = [address]
        for each in list(world.found):  # what was under way without an answer fails in the end
            world.core.located(each, [], world.now)
        world.run(150)
        assert world.core.lease_counts(b"t") == (3, 3)
        assert {at: world.core.sessions.at[at].server.name for at in world.at} == world.at
