"""How many Python functions are called on a message's way, counted with sys.setprofile.

Calls are what the core's time is made of. Whatever is added for changes of the cluster must add none while
nothing changes: a rise of these figures wants a reason.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from kcast.client.events import Delivery
from kcast.client.messages.lines import publish_line
from kcast.client.receiving.dedup import CopyFilter
from kcast.pubsub.endpoint import Burst
from tests.client.test_core_servers import FEW_PUBLISH, World, known
from tests.support.takers import TAKERS

# With Python 3.11; later ones call less, since comprehensions are no functions there. Version 0.4.0 had
# 45, 30, 444 and 446. Commit 79fe9d1, the last one without signed and sealed messages, has what stands here.
FIRST_COPY_CALLS = {"python": 35, "native": 31}
DUPLICATE_CALLS = {"python": 24, "native": 23}
BARE_CALLS = 163
VOUCHED_CALLS = 179


def calls_of(act: Callable[[], object]) -> Counter[str]:
    """Returns the Python functions that are called by `act`, by their names."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/client/test_calls.py" not in frame.f_code.co_filename:
            found[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


def turn(world: World) -> None:
    """What a driver calls after something has come."""
    world.core.handle_timeout(world.now)
    world.core.flush(world.now)
    world.core.take_lookups(world.now)
    world.events += world.core.events()
    world.core.next_timeout()


def heard(world: World, seq: int, server: int) -> int:
    """Counts the calls for a datagram with one message, and the turn that follows."""
    line = publish_line(b"t", b"payload", "publisher", seq)
    burst = Burst(line, len(line), world.cluster.servers[server].addresses[0])

    def act() -> None:
        world.core.receive(burst, world.now)
        turn(world)

    return counted(world, act)


def published(world: World, confirm: bool) -> int:
    def act() -> None:
        world.core.publish(b"t", b"payload", world.now, confirm=confirm)
        turn(world)

    return counted(world, act)


def counted(world: World, act: Callable[[], object]) -> int:
    calls = calls_of(act)
    looks = [name for name in calls if name in ("ClientCore._look", "Views.look", "Views.is_due")]
    assert bool(looks) == world.core._views.is_moving, "nobody looks for other views where there are none"
    return calls.total()


def quiet_world(taker: str = "python") -> World:
    """A client that has all leases, to publish too, and nothing under way."""
    world = known(FEW_PUBLISH, copies=CopyFilter(is_native=TAKERS[taker]))
    for _ in range(30):
        world.core.publish(b"t", b"x", world.now, confirm=False)
        world.turn()
    world.run(0.5)
    world.take_events()
    return world


@pytest.mark.parametrize("taker", TAKERS)
def test_receiving_takes_no_more_calls_than_before_lists_could_change(taker: str) -> None:
    world = quiet_world(taker)
    first = heard(world, 1, 0), heard(world, 2, 0)
    assert [event.seq for event in world.take_events(Delivery) if isinstance(event, Delivery)] == [1, 2]
    duplicate = heard(world, 2, 1)
    assert not world.take_events(Delivery)
    assert max(first) <= FIRST_COPY_CALLS[taker]
    assert duplicate <= DUPLICATE_CALLS[taker]


def test_publishing_takes_no_more_calls_than_before_lists_could_change() -> None:
    world = quiet_world()
    assert published(world, confirm=False) <= BARE_CALLS
    assert published(world, confirm=True) <= VOUCHED_CALLS


@pytest.mark.parametrize("taker", TAKERS)
def test_a_client_without_guards_calls_nothing_of_what_proves_messages(taker: str) -> None:
    world = quiet_world(taker)
    line = publish_line(b"t", b"payload", "publisher", 1)
    burst = Burst(line, len(line), world.cluster.servers[0].addresses[0])

    def act() -> None:
        world.core.receive(burst, world.now)
        world.core.publish(b"t", b"payload", world.now)
        world.core.publish_many(b"t", [b"payload"] * 3, world.now)
        turn(world)

    words = ("guard", "sign", "seal", "writer", "proof", "prov", "judge")
    assert not [name for name in calls_of(act) if any(word in name.lower() for word in words)]


def test_what_comes_is_looked_for_on_a_messages_way_only_while_something_comes() -> None:
    """Else the counts above would show nothing of it."""
    world = quiet_world()
    without = published(world, confirm=False), heard(world, 1, 0)
    world.core.adopt(replace(world.cluster, salt=b"other"), world.now, from_unix_s=world.now + 3600)
    turn(world)
    assert published(world, confirm=False) > without[0]
    assert heard(world, 3, 0) > without[1]
