"""Messages on their way: which servers each goes to, when it is sent again, what became of it. Sans-IO.

PROTOCOL §8.5. A message goes to `publish` servers, drawn at random from its topic's. One that a server does
not answer goes to another one instead, as long as there is one that is believed alive.
"""

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random

from kcast.client.events import Outcome, Published
from kcast.client.outbox import Settled
from kcast.client.session import Session

REPEAT_INTERVAL_S = 0.2


@dataclass(slots=True)
class Publication:
    """A message, and what is known of it at each server.

    `line` is its wire form, with the LF. Each time it is sent to `count` of the candidates. After a change of
    the cluster, `former` are the servers that the topic has in views that it overlaps with: see
    `kcast.client.views`.
    """

    topic: bytes
    seq: int | None
    line: bytes
    confirm: bool
    candidates: list[Session]
    count: int
    repeats_left: int
    repeat_interval_s: float
    former: Collection[Session] = ()
    awaited: int = 0
    sends: int = 0
    last_send: dict[Session, int] = field(default_factory=dict)
    outcomes: dict[Session, Outcome] = field(default_factory=dict)
    reasons: dict[Session, str] = field(default_factory=dict)
    audience: int | None = None


class Publications:
    """All messages of a client whose outcome is not known yet.

    With `avoid_dead`, servers believed alive are preferred. `touch` is called with each session that has
    something to send, `tell` with each outcome.
    """

    def __init__(
        self,
        rng: Random,
        touch: Callable[[Session], None],
        tell: Callable[[Published], None],
        *,
        avoid_dead: bool,
    ) -> None:
        self.avoid_dead = avoid_dead
        self._rng = rng
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
        self._send(self._handle, publication, now)
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
                self._send(handle, publication, now)

    def settle(self, settled: Settled, session: Session, now: float) -> None:
        """Takes what became of a message at one server."""
        handle, outcome = settled.handle, settled.outcome
        publication = self._publications.get(handle)
        if publication is None:
            return  # a Ctrl-C came in the middle of `begin`
        publication.awaited -= 1
        if publication.outcomes.get(session) is not Outcome.RECEIPT:
            publication.outcomes[session] = outcome
            publication.reasons[session] = settled.reason
        if settled.audience is not None:
            publication.audience = max(settled.audience, publication.audience or 0)
        is_silent = outcome is Outcome.NO_ANSWER
        # A server that has just come back has few leases yet, so another one is to forward the message too.
        # Not where it was refused: whoever publishes too much would only send more.
        if self.avoid_dead and outcome is not Outcome.REFUSED and (is_silent or now < session.warm_at):
            fresh = [s for s in publication.candidates if s not in publication.last_send and s.is_alive]
            if not is_silent:
                fresh = [s for s in fresh if s.is_warm(now)]
            if fresh:
                self._send_to(handle, publication, min(fresh, key=lambda s: self._rank(publication, s, now)))
        if not publication.awaited and not publication.repeats_left:
            self._finish(handle, publication)

    def _send(self, handle: int, publication: Publication, now: float) -> None:
        """Sends a message once, to as many servers as the policy says."""
        drawn = sorted(publication.candidates, key=lambda session: self._rank(publication, session, now))
        leavers = [
            each for each in publication.former if each not in publication.candidates and each.is_alive
        ]
        for session in (*drawn[: publication.count], *leavers):
            self._send_to(handle, publication, session)
        if publication.repeats_left:
            heapq.heappush(self._repeats, (now + publication.repeat_interval_s, handle))
        elif not publication.awaited:
            self._finish(handle, publication)

    def _rank(self, publication: Publication, session: Session, now: float) -> tuple[int, int, float]:
        """Alive first, then not yet used for this message, then least recently used, then by chance."""
        rank = session.rank(now) if self.avoid_dead else 0
        if publication.former and session not in publication.former:
            rank = max(rank, 2)  # subscribers may have still to lease there, as where it has just come back
        return rank, publication.last_send.get(session, 0), self._rng.random()

    def _send_to(self, handle: int, publication: Publication, session: Session) -> None:
        publication.sends += 1
        publication.last_send[session] = publication.sends
        if session.publish(publication.line, handle, publication.confirm):
            publication.awaited += 1
            self._touch(session)
        else:
            publication.outcomes.setdefault(session, Outcome.QUEUE_FULL)

    def _finish(self, handle: int, publication: Publication) -> None:
        del self._publications[handle]
        servers = {session.server.name: outcome for session, outcome in publication.outcomes.items()}
        reasons = {session.server.name: reason for session, reason in publication.reasons.items() if reason}
        self._tell(
            Published(handle, publication.topic, publication.seq, servers, publication.audience, reasons)
        )
