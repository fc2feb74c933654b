"""Things in the order in which they were put last, each of which knows its neighbours. Sans-IO.

A thing takes two references here; an `OrderedDict` takes some 150 bytes for each key. All things of an order
live equally long from when they were put, so the oldest ends first, and no scan is needed.
"""

from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing", bound="Link")


class Link:
    """What can be in one order at a time."""

    __slots__ = ("newer", "older")

    older: Any  # as the types of orders differ
    newer: Any


class LinkedList(Generic[Thing]):
    """A ring of things, which is closed by a link that is none of them."""

    __slots__ = ("_end", "count")

    def __init__(self) -> None:
        self._end = Link()
        self._end.older = self._end.newer = self._end
        self.count = 0
        """The number of things."""

    @property
    def oldest(self) -> Thing | None:
        """What was put longest ago; None if there is nothing."""
        thing: Thing = self._end.newer
        return thing if self.count else None

    @property
    def newest(self) -> Thing | None:
        """What was put last; None if there is nothing."""
        thing: Thing = self._end.older
        return thing if self.count else None

    def put(self, thing: Thing) -> None:
        """Takes in a thing that is in no order."""
        end = self._end
        newest = end.older
        thing.older, thing.newer = newest, end
        newest.newer = end.older = thing
        self.count += 1

    def put_again(self, thing: Thing) -> None:
        """Lets a thing of this order be the newest."""
        older, newer, end = thing.older, thing.newer, self._end
        older.newer, newer.older = newer, older
        newest = end.older
        thing.older, thing.newer = newest, end
        newest.newer = end.older = thing

    def remove(self, thing: Thing) -> None:
        """Leaves out a thing of this order."""
        older, newer = thing.older, thing.newer
        older.newer, newer.older = newer, older
        thing.older = thing.newer = None
        self.count -= 1
