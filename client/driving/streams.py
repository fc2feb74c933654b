"""Streams that take what comes to several inboxes, and those who listen to events. No waiting of its own."""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kcast.client.driving.inbox import Inbox
from kcast.client.events import Event


class Streams:
    """The stream that takes the items of all inboxes, and the inboxes of events. One that nobody refers to
    any more is forgotten."""

    def __init__(self) -> None:
        # Weakly: see `Inbox`.
        self._catch_all: Callable[[], Inbox[Any] | None] = lambda: None
        # (A WeakSet could change while another thread walks it.)
        self._listeners: list[weakref.ref[Inbox[Event]]] = []

    def merge(
        self, inbox: Inbox[Any], sources: Sequence[Inbox[Any]], others: Iterable[Inbox[Any]]
    ) -> list[object]:
        """Lets one inbox take the items of several; without any, those of all others, later ones too. Returns
        what had to go for it.

        Raises ValueError where another inbox, or a function, takes those of a source.
        """
        if not sources and self._catch_all() is not None:
            raise ValueError("there is a stream of all subscriptions already: use that, or close it first")
        if any(source.target is not source for source in sources):
            raise ValueError("one of these is part of another stream: use that, or close it first")
        if any(source.is_called for source in sources):
            raise ValueError("one of these has an on_delivery, to which its deliveries go: leave it out")
        free = (each for each in others if each.target is each and not each.is_called)
        gone = [item for source in sources or free for item in inbox.take_over(source)]
        if sources:
            inbox.end_with_sources()
        else:
            self._catch_all = weakref.ref(inbox)
        return gone

    def unmerge(self, inbox: Inbox[Any]) -> None:
        """Ends an inbox, and lets its sources keep what comes to them from now on."""
        if inbox is self._catch_all():
            self._catch_all = lambda: None
        inbox.give_back()

    def begin(self, inbox: Inbox[Any]) -> None:
        """Lets the stream of all take what will come to a new inbox, if there is one."""
        stream = self._catch_all()
        if stream is not None and not inbox.is_called:
            stream.take_over(inbox)

    def listen(self, inbox: Inbox[Event]) -> None:
        """Lets an inbox have events."""
        self._listeners = [weakref.ref(inbox), *map(weakref.ref, self.listening())]

    def ignore(self, inbox: Inbox[Event]) -> None:
        """Ends an inbox of events."""
        self._listeners = [weakref.ref(other) for other in self.listening() if other is not inbox]
        inbox.end()

    def listening(self) -> list[Inbox[Event]]:
        """Returns the inboxes of events."""
        return [inbox for reference in self._listeners if (inbox := reference()) is not None]

    def end(self) -> None:
        """Ends all of them."""
        stream = self._catch_all()
        for inbox in (*([] if stream is None else [stream]), *self.listening()):
            inbox.end()
