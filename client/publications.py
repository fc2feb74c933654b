"""Messages on their way: which servers each goes to, when it is sent again, what became of it. Sans-IO.

PROTOCOL §8.5. A message goes to `publish` servers, drawn at random from its topic's. One that a server does
not answer goes to another one instead, as long as there is one that is believed alive.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from numbers import Integral, Real
from random import Random

from kcast.client.events import Outcome, Published
from kcast.client.outbox import Settled
from kcast.client.routes import Route, Routes
from kcast.client.session import Session

REPEAT_INTERVAL_S = 0.2


@dataclass(slots=True)
class Publication:
    """A message, and what is known of it.

    `line` is its wire form, with the LF. `sent_to` are the servers that it was sent to, the last one last.
    `servers` and `reasons` are as in `Published`.
    """

    topic: bytes
    seq: int | None
    line: bytes
    confirm: bool
    route: Route
    repeats_left: int
    repeat_interval_s: float
    awaited: int = 0
    sent_to: Sequence[Session] = ()
    servers: dict[str, Outcome] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    audience: int | None = None


class Publications:
    """All messages of a client whose outcome is not known yet.

    `touch` is called with each session that has something to send, `tell` with each outcome.
    """

    def __init__(
        self,
        rng: Random,
        routes: Routes,
        touch: Callable[[Session], None],
        tell: Callable[[Published], None],
    ) -> None:
        self._rng = rng
        self._routes = routes
        self._touch = touch
        self._tell = tell
        self._publications: dict[int, Publication] = {}
        self._repeats: list[tuple[float, int]] = []
        self._handle = 0

    def __len__(self) -> int:
        return len(self._publications)

    def begin(self, publication: Publication, now: float) -> int:
        """Sends a message for the first time; returns the handle that its outcome will carry."""
        self._handle += 1
        self._publications[self._handle] = publication
        self._send(self._handle, publication, publication.route.draw(self._rng), now)
        return self._handle

    def next_timeout(self) -> float | None:
        """Returns when the next message is to be sent again; None where none is."""
        return self._repeats[0][0] if self._repeats else None

    def handle_timeout(self, now: float) -> None:
        """Sends again what is due."""
        while self._repeats and self._repeats[0][0] <= now:
            _, handle = heapq.heappop(self._repeats)
            publication = self._publications.get(handle)
            if publication is not None:
                publication.repeats_left -= 1
                route = publication.route
                drawn = sorted(route.candidates, key=lambda each: self._rank(publication, each, now))
                self._send(handle, publication, drawn[: route.count], now)

    def settle(self, settled: Settled, session: Session, now: float) -> None:
        """Takes what became of messages at one server."""
        lines, outcome, audience, reason = settled
        name, is_silent = session.name, outcome is Outcome.NO_ANSWER
        # A server that has just come back has few leases yet, so another one is to forward the message too.
        # Not where it was refused: whoever publishes too much would only send more.
        is_lacking = self._routes.avoid_dead and (is_silent or now < session.warm_at)
        for line in lines:
            publication = self._publications.get(line.handle)
            if publication is None:
                continue  # a Ctrl-C came in the middle of `begin`
            publication.awaited -= 1
            if publication.servers.get(name) is not Outcome.RECEIPT:
                publication.servers[name] = outcome
                if reason:
                    publication.reasons[name] = reason
                elif publication.reasons:
                    publication.reasons.pop(name, None)
            if audience is not None:
                publication.audience = max(audience, publication.audience or 0)
            if is_lacking and outcome is not Outcome.REFUSED:
                self._send_to_another(line.handle, publication, now, is_silent=is_silent)
            if not publication.awaited and not publication.repeats_left:
                self._finish(line.handle, publication)

    def _send_to_another(self, handle: int, publication: Publication, now: float, *, is_silent: bool) -> None:
        """Sends a message to one server more, if there is one that is believed alive."""
        sent_to = publication.sent_to
        fresh = [each for each in publication.route.candidates if each not in sent_to and each.is_alive]
        if not is_silent:
            fresh = [each for each in fresh if each.is_warm(now)]
        if fresh:
            another = min(fresh, key=lambda each: self._rank(publication, each, now))
            self._send_to(handle, publication, (another,))

    def _rank(self, publication: Publication, session: Session, now: float) -> tuple[int, int, float]:
        """Alive first, then not yet used for this message, then least recently used, then by chance."""
        rank = publication.route.rank(session, now, self._routes.avoid_dead)
        sends = [number for number, each in enumerate(publication.sent_to, 1) if each is session]
        return rank, sends[-1] if sends else 0, self._rng.random()

    def _send(self, handle: int, publication: Publication, drawn: Sequence[Session], now: float) -> None:
        """Sends a message once, to the servers that were drawn for it."""
        self._send_to(handle, publication, drawn)
        if leavers := publication.route.leavers():
            self._send_to(handle, publication, leavers)
        if publication.repeats_left:
            heapq.heappush(self._repeats, (now + publication.repeat_interval_s, handle))
        elif not publication.awaited:
            self._finish(handle, publication)

    def _send_to(self, handle: int, publication: Publication, sessions: Sequence[Session]) -> None:
        publication.sent_to = (*publication.sent_to, *sessions) if publication.sent_to else sessions
        for session in sessions:
            if session.publish(publication.line, handle, publication.confirm):
                publication.awaited += 1
                self._touch(session)
            else:
                publication.servers.setdefault(session.name, Outcome.QUEUE_FULL)

    def _finish(self, handle: int, publication: Publication) -> None:
        del self._publications[handle]
        self._tell(
            Published(
                handle,
                publication.topic,
                publication.seq,
                publication.servers,
                publication.audience,
                publication.reasons,
            )
        )


def check_repeats(repeat: int, repeat_interval_s: float) -> None:
    """Raises TypeError and ValueError for what makes no sense."""
    if not isinstance(repeat, Integral) or not isinstance(repeat_interval_s, Real):
        raise TypeError("repeat is a whole number, and repeat_interval_s a number of seconds")
    if repeat < 1:
        raise ValueError(f"repeat is {repeat}: a message is sent at least once")
    if not 0 <= repeat_interval_s < inf:
        raise ValueError(f"repeat_interval_s is {repeat_interval_s}: give 0 or more seconds")
