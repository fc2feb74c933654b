"""Messages on their way: which servers each goes to, when it is sent again, what became of it. Sans-IO.

PROTOCOL §8.5. A message goes to `publish` servers, drawn at random from its topic's. One that a server does
not answer goes to another one instead, as long as there is one that is believed alive. Messages that are
published together are in `kcast.client.publishing.batches`.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from numbers import Integral, Real
from random import Random

from kcast.client.errors import Backlog
from kcast.client.events import Outcome, Published, PublishedMany
from kcast.client.messages.guard_and_writer import Writer
from kcast.client.messages.lines import Publisher, wire_topic_of
from kcast.client.publishing.batches import Batches
from kcast.client.publishing.routes import Route, Routes
from kcast.client.session.outbox import Settled
from kcast.client.session.requests import Parcel
from kcast.client.session.session import Session
from kcast.pubsub import wire

REPEAT_INTERVAL_S = 0.2
UNSETTLED_MAX = 65_536  # messages
LATELY_S = 5.0  # a server that was good a minute ago may have fallen mute since
TRY_SHARE = 1 / 8  # or who was heard once would be used by all, and so be heard, for ever

NEEDS_KEY = "the topic names the keys of its senders (~): sign with one of them"


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

    `publisher` is who they are from. `touch` is called with each session that has something to send, `tell`
    with each outcome. It adds to `counts` and `outcomes`. `batches` has those that are published together.
    `next_at` is when the next message is to be sent again; infinite where none is.
    """

    def __init__(
        self,
        publisher: Publisher,
        rng: Random,
        routes: Routes,
        touch: Callable[[Session], None],
        tell: Callable[[Published | PublishedMany], None],
        counts: Counter[str],
        outcomes: Counter[Outcome],
    ) -> None:
        self.publisher = publisher
        self._rng = rng
        self._routes = routes
        self._touch = touch
        self._tell = tell
        self._counts = counts
        self._outcomes = outcomes
        self.batches = Batches(rng, routes, touch, self._tell_of_many)
        self._publications: dict[int, Publication] = {}
        self._repeats: list[tuple[float, int]] = []
        self.next_at = inf
        self.newest = 0  # the handle that was given last

    @property
    def oldest(self) -> int | None:
        """The smallest handle whose outcome is not known yet; None where all are."""
        handles = next(iter(self._publications), None), self.batches.oldest
        return min([handle for handle in handles if handle is not None], default=None)

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        now: float,
        repeat: int,
        repeat_interval_s: float,
        *,
        confirm: bool,
        raw: bool,
        is_own: bool,
    ) -> int:
        """Sends a message: see `ClientCore.publish`."""
        if type(repeat) is not int or repeat != 1 or repeat_interval_s is not REPEAT_INTERVAL_S:
            check_repeats(repeat, repeat_interval_s)
        if len(self._publications) + self.batches.messages >= UNSETTLED_MAX:
            self._require_room(1)
        route = self._routes.make(topic, now, is_own=True) if is_own else self._routes.of(topic, now)
        if route.names_senders:
            raise wire.TopicError(NEEDS_KEY)
        seq, line = self.publisher.line(route.wire_topic, payload, raw)
        publication = Publication(topic, seq, line, confirm, route, repeat - 1, repeat_interval_s)
        self.newest = handle = self.newest + 1
        self._publications[handle] = publication
        self._send(handle, publication, route.draw(self._rng), now)
        return handle

    def publish_many(
        self, topic: bytes, payloads: Sequence[bytes], now: float, *, confirm: bool, raw: bool
    ) -> int:
        """Sends messages of one topic, from the next flush on: see `ClientCore.publish_many`."""
        self._require_room(len(payloads))
        route = self._routes.of(topic, now)
        if route.names_senders:
            raise wire.TopicError(NEEDS_KEY)
        first_seq, lines = self.publisher.lines(route.wire_topic, payloads, raw)
        self.newest += 1
        self.batches.begin(self.newest, topic, first_seq, lines, confirm)
        return self.newest

    def publish_by(
        self,
        writer: Writer,
        topic: bytes,
        payload: bytes,
        now: float,
        unix_s: float,
        repeat: int,
        repeat_interval_s: float,
        *,
        confirm: bool,
    ) -> int:
        """Sends a message that a writer makes, as `publish` does; `unix_s` is its time."""
        check_repeats(repeat, repeat_interval_s)
        wire_topic_of(topic, is_own=False)
        self._require_room(1)
        route = self._routes.of(writer.place(topic, unix_s), now)
        seq, (line,) = writer.lines(route.wire_topic, (payload,), unix_s)
        publication = Publication(topic, seq, line, confirm, route, repeat - 1, repeat_interval_s)
        self.newest = handle = self.newest + 1
        self._publications[handle] = publication
        drawn = route.draw(self._rng)
        if writer.is_once and self._routes.are_all_heard:
            drawn = (self._one_of(route, drawn, now),)
        self._send(handle, publication, drawn, now)
        return handle

    def _one_of(self, route: Route, drawn: Sequence[Session], now: float) -> Session:
        """Returns one server: mostly one that has just brought copies, which receipts do not promise."""
        able = [each for each in route.candidates if each.is_alive and not each.is_draining]
        lately = [each for each in able if now < each.credit.taken_at + LATELY_S]
        if lately and self._rng.random() >= TRY_SHARE:
            return self._rng.choice(lately)
        return self._rng.choice([each for each in drawn if each.is_alive] or drawn)

    def publish_many_by(
        self,
        writer: Writer,
        topic: bytes,
        payloads: Sequence[bytes],
        now: float,
        unix_s: float,
        *,
        confirm: bool,
    ) -> int:
        """Sends messages that a writer signs or seals, as `publish_many` does; `unix_s` is their time."""
        wire_topic_of(topic, is_own=False)
        self._require_room(len(payloads))
        placed = writer.place(topic, unix_s)
        first_seq, lines = writer.lines(self._routes.of(placed, now).wire_topic, payloads, unix_s)
        self.newest += 1
        self.batches.begin(self.newest, placed, first_seq, lines, confirm, told_as=topic)
        return self.newest

    def handle_timeout(self, now: float) -> None:
        """Sends again what is due."""
        while self.next_at <= now:
            _, handle = heapq.heappop(self._repeats)
            self.next_at = self._repeats[0][0] if self._repeats else inf
            publication = self._publications.get(handle)
            if publication is not None:
                publication.repeats_left -= 1
                route = publication.route = self._routes.again(publication.route, now)
                drawn = sorted(route.candidates, key=lambda each: self._rank(publication, each, now))
                self._send(handle, publication, drawn[: route.count], now)

    def settle(self, settled: Settled, session: Session, now: float) -> None:
        """Takes what became of messages at one server."""
        parcels, outcome, audience, reason = settled
        name, is_silent = session.name, outcome is Outcome.NO_ANSWER
        wants_another = self._routes.wants_another(session, outcome, now)
        of_batches: list[Parcel] = []
        for parcel in parcels:
            handle = parcel.handle
            publication = self._publications.get(handle)
            if publication is None:  # it is of a batch; or a Ctrl-C came in the middle of `publish`
                of_batches.append(parcel)
                continue
            publication.awaited -= 1
            if publication.servers.get(name) is not Outcome.RECEIPT:
                publication.servers[name] = outcome
                if reason:
                    publication.reasons[name] = reason
                elif publication.reasons:
                    publication.reasons.pop(name, None)
            if audience is not None:
                publication.audience = max(audience, publication.audience or 0)
            if wants_another:
                sent_to = publication.sent_to
                another = publication.route.another(sent_to, self._rng, now, only_warm=not is_silent)
                if another is not None:
                    self._send_to(handle, publication, (another,))
            if not publication.awaited and not publication.repeats_left:
                self._finish(handle, publication)
        if of_batches:
            self.batches.settle(of_batches, settled, session, now)

    def _require_room(self, messages: int) -> None:
        """Raises Backlog where too many messages would await their outcome."""
        waiting = len(self._publications) + self.batches.messages
        if messages > UNSETTLED_MAX:
            raise Backlog(f"{messages} messages are too many for one call: give {UNSETTLED_MAX} at most")
        if waiting + messages > UNSETTLED_MAX:
            raise Backlog(f"{waiting} publishes await their outcome; wait for some, or use confirm=False")

    def _rank(self, publication: Publication, session: Session, now: float) -> tuple[int, int, float]:
        """Alive first, then not yet used for this message, then least recently used, then by chance."""
        rank = publication.route.rank(session, now, self._routes.avoid_dead)
        sends = [number for number, each in enumerate(publication.sent_to, 1) if each is session]
        return rank, sends[-1] if sends else 0, self._rng.random()

    def _send(self, handle: int, publication: Publication, drawn: Sequence[Session], now: float) -> None:
        """Sends a message once, to the servers that were drawn for it."""
        self._send_to(handle, publication, drawn)
        if publication.route.former and (leavers := publication.route.leavers()):
            self._send_to(handle, publication, leavers)
        if publication.repeats_left:
            heapq.heappush(self._repeats, (now + publication.repeat_interval_s, handle))
            self.next_at = self._repeats[0][0]
        elif not publication.awaited:
            self._finish(handle, publication)

    def _send_to(self, handle: int, publication: Publication, sessions: Sequence[Session]) -> None:
        publication.sent_to = (*publication.sent_to, *sessions) if publication.sent_to else sessions
        for session in sessions:
            if session.outbox.put(Parcel(publication.line, handle, publication.confirm)):
                publication.awaited += 1
                self._touch(session)
            else:
                publication.servers.setdefault(session.name, Outcome.QUEUE_FULL)

    def _finish(self, handle: int, publication: Publication) -> None:
        del self._publications[handle]
        if publication.topic[:1] != b"\0":  # kcast's own (§3.4) are no user's
            self._counts["published"] += 1
            for outcome in publication.servers.values():
                self._outcomes[outcome] += 1
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

    def _tell_of_many(self, published: PublishedMany) -> None:
        self._counts["published"] += published.messages
        for outcome, times in published.outcomes.items():
            self._outcomes[outcome] += times
        self._tell(published)


def check_repeats(repeat: int, repeat_interval_s: float) -> None:
    """Raises ValueError and TypeError for what a message cannot be repeated by."""
    if not isinstance(repeat, Integral) or not isinstance(repeat_interval_s, Real):
        raise TypeError("repeat is a whole number, and repeat_interval_s a number of seconds")
    if repeat < 1:
        raise ValueError(f"repeat is {repeat}: a message is sent at least once")
    if not 0 <= repeat_interval_s < inf:
        raise ValueError(f"repeat_interval_s is {repeat_interval_s}: give 0 or more seconds")
