"""Whoever watches the network sees the same, whatever is said.

In 200 worlds, with loss, dead servers and all else that may happen: times, addresses, lengths, and all bytes
that are not sealed.
"""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client.sealed.cover import Cover
from tests.support.forms import Seeds
from tests.support.observer_lab import WRITER, Circumstances, Seen, Talk, World, difference


def trace(seed: int, talk: object, sabotage: Callable[[World], None] | None = None) -> list[Seen]:
    said = None if talk is None else Talk(talk)
    return World(Circumstances(seed), said, sabotage).run()


@pytest.mark.parametrize("remainder", range(2))
def test_an_observer_sees_the_same_with_messages_and_without(seeds: Seeds, remainder: int) -> None:
    """In two parts, which several processes can run."""
    for seed in seeds(20, 120):
        if seed % 2 == remainder:
            silent, talking = trace(seed, None), trace(seed, seed)
            assert difference(silent, talking) == "", seed
            assert sum(b";S=" in seen.data for seen in silent) > 10


# --- The check on the check ------------------------------------------------------------------------------


def _shorter_dummies(world: World) -> None:
    """Dummies are not filled up."""
    made = Cover.__init__

    def begun(cover: Cover, *args: Any, **options: Any) -> None:
        made(cover, *args, **options)
        cover._dummy._pad_to -= 32

    world.protection.cover = _with_init(world, begun)  # type: ignore[method-assign]


def _with_init(world: World, init: Callable[..., None]) -> Callable[..., Cover]:
    begin = type(world.protection).cover

    def cover(*args: Any) -> Cover:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cover, "__init__", init)
            return begin(world.protection, *args)

    return cover


def _turn_for_each_message(world: World) -> None:
    """What is put is published with the next turn, which is made at once."""
    say = world.say

    def said() -> None:
        say()
        if world.now >= world.cover.schedule.next_at - 0.1:
            world.cover.schedule.next_at = world.now
        world.turn(WRITER)

    world.say = said  # type: ignore[method-assign]


@pytest.mark.parametrize("sabotage", [_shorter_dummies, _turn_for_each_message])
def test_each_leak_is_seen(sabotage: Callable[[World], None]) -> None:
    assert any(
        difference(trace(seed, None, sabotage), trace(seed, seed, sabotage)) for seed in range(200)[:40]
    )
