"""pubsub/linked_list.py: an order, against a list."""

from random import Random

from kcast.pubsub.linked_list import Link, LinkedList
from tests.support.forms import Seeds


class Thing(Link):
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def listed(order: LinkedList[Thing]) -> list[Thing]:
    """All things, the oldest first; both ways along the ring say the same."""
    forwards: list[Thing] = []
    backwards: list[Thing] = []
    oldest, newest = order.oldest, order.newest
    for _ in range(order.count):
        assert oldest is not None and newest is not None
        forwards.append(oldest)
        backwards.append(newest)
        oldest, newest = oldest.newer, newest.older
    assert forwards == backwards[::-1]
    return forwards


def test_an_order_is_a_list(seeds: Seeds) -> None:
    for seed in seeds(2, 10):
        rng = Random(seed)
        order: LinkedList[Thing] = LinkedList()
        naive: list[Thing] = []
        for number in range(500):
            verb = rng.choice(("put", "put again", "remove")) if naive else "put"
            thing = rng.choice(naive) if naive else Thing(number)
            if verb == "put":
                thing = Thing(number)
                order.put(thing)
                naive.append(thing)
            else:
                naive.remove(thing)
                if verb == "put again":
                    order.put_again(thing)
                    naive.append(thing)
                else:
                    order.remove(thing)
            assert listed(order) == naive
            assert (order.oldest, order.newest) == ((naive[0], naive[-1]) if naive else (None, None))


def test_what_was_removed_can_be_put_elsewhere() -> None:
    first, second = LinkedList[Thing](), LinkedList[Thing]()
    things = [Thing(number) for number in range(3)]
    for thing in things:
        first.put(thing)
    first.remove(things[1])
    second.put(things[1])
    assert (listed(first), listed(second)) == ([things[0], things[2]], [things[1]])
