"""The smart client: draws servers, keeps their sessions, and tells first copies from duplicates. Sans-IO.

    publish -> draw servers -> sessions -> datagrams
    bursts  -> session (answers) -> outcomes, lease changes
            -> copies -> deliveries, gaps

Each server's handshake, leases and liveness are in its session (`client/session/session.py`); messages on
their way are in `client/publishing/publications.py`, and what comes of copies in
`client/receiving/deliveries.py`.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from math import inf
from random import Random

from kcast.client.clusters.cluster import Cluster, ServerEntry
from kcast.client.clusters.view import View
from kcast.client.clusters.views import Views, change_between
from kcast.client.events import Drop, FamilyMissing, MachineSuspended, Outcome
from kcast.client.messages.envelope import new_publisher
from kcast.client.messages.guard_and_writer import Guard, Told, Writer
from kcast.client.messages.lines import Publisher, wire_topic_of
from kcast.client.publishing.publications import REPEAT_INTERVAL_S, Publications
from kcast.client.publishing.routes import Routes
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.receiving.deliveries import Deliveries, has_only_copies
from kcast.client.receiving.gaps import GapTracker
from kcast.client.receiving.places import Places
from kcast.client.receiving.subscriptions import Subscriptions
from kcast.client.session.checks import Checks
from kcast.client.session.liveness import Change, Notice
from kcast.client.session.outages import Outages
from kcast.client.session.session import Session
from kcast.client.session.sessions import Sessions, Wakeups
from kcast.client.session.whereabouts import FAMILIES, family_of
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, RENEWALS_PER_TTL

FLUSH_BYTES_MAX = 131_072  # so that neither our own send buffer overflows, nor what comes back the other
HURRY_S = 60.0  # for which lost servers are asked often after a suspension
COUNTS = ("datagrams_received", "copies_received", "deliveries", "duplicates", "published")


class ClientCore:
    """A client of one cluster, without clock, socket or randomness of its own; satisfies `Endpoint`.

    Its methods are of four kinds:

    A. What is known: `lease_counts`, `server_states`, `heads`, `is_minting`, `holds_back`, and the counters.
    B. What the application wants: `subscribe`, `unsubscribe`, `publish`, `publish_many`, `renew_publisher`.
    C. What has happened: `receive`, `handle_unreachable`, `handle_timeout`, `located`, `adopt`, `resumed`;
       `checks.ask_all` where this machine has another address.
    D. What the caller is to do: send what `flush` returns, look up what `take_lookups` returns, tell the
       application of `events`, and then wait until `next_timeout` at most.

    Call B and C as things come, then all of D, in this order; A at any time. `now` is in seconds of one clock
    that never goes back. While `is_minting`, call `work` between turns: where servers ask for work, leases
    come up only if somebody does.

    `clock_offset_s` makes seconds since 1970 of `now`, for `Delivery.received_at_s`, and for lists that hold
    from a time on. The caller sets it, and again where the wall clock has been changed.

    Topics are given decoded, and appear decoded in events. A server has one name, which is its first address,
    whichever of its addresses it is asked at.

    `avoid_dead`: publishers prefer those of a topic's servers that are believed alive, and send again to
    another when one does not answer. Without it every publish goes to its random draw, as in plain theory.

    `families` are the IP versions, of 4 and 6, in which the client can send.
    `renewals_per_ttl` is the number of times a lease is renewed while it lasts, 1 or more (3 is usual).
    """

    def __init__(
        self,
        cluster: Cluster,
        rng: Random,
        *,
        avoid_dead: bool = True,
        publisher: str | None = None,
        families: Collection[int] = FAMILIES,
        renewals_per_ttl: float = RENEWALS_PER_TTL,
        copies: CopyFilter | None = None,
        gaps: GapTracker | None = None,
    ) -> None:
        if not 1 <= renewals_per_ttl < inf:
            raise ValueError(f"renewals_per_ttl is {renewals_per_ttl}: give 1 or more, else leases lapse")
        self.clock_offset_s = 0.0
        self.counts: Counter[str] = Counter()
        self.drops: Counter[Drop] = Counter()
        self.outcomes: Counter[Outcome] = Counter()  # of publishes, at each server
        self.rng = rng
        self._views = Views(cluster)
        self.sessions = Sessions(rng, frozenset(families), renewals_per_ttl)
        self._touched: OrderedDict[Session, None] = OrderedDict()
        self._minting: dict[Session, None] = {}
        self._wakeups = Wakeups()
        self.checks = Checks(self.sessions, self._touch)
        self._outages = Outages(self.sessions)
        self._events: list[Told] = []
        tell = self._events.append
        self._subscriptions = Subscriptions(self._views, rng, self._session, self._touch, tell)
        self.places = Places(self._subscriptions, self.sessions, self._replace)
        self._deliveries = Deliveries(self._subscriptions, copies, gaps, self.counts, self.drops)
        self._routes = Routes(self._views, self._session, avoid_dead=avoid_dead)
        self.publications = Publications(
            Publisher(publisher or new_publisher(rng)),
            *(rng, self._routes, self._touch, tell, self.counts, self.outcomes),
        )
        self._unsent_since: float | None = None  # there is more to send than one flush takes

    # --- Verbs ---------------------------------------------------------------------------------------

    def subscribe(
        self, topic: bytes, now: float, *, is_own: bool = False, guard: Guard | None = None
    ) -> None:
        """Holds leases on this topic at as many of its servers as the policy says. Raises wire.TopicError.

        `is_own` opens kcast's own topics (§3.4). A `guard` judges what comes for its subscription, and may
        say that the messages of a topic travel on others; its events come as `Guarded`.
        """
        wire_topic = wire_topic_of(topic, is_own)
        self.checks.begin(now)
        if guard is not None:
            self.places.begin(guard, topic, now, self.clock_offset_s)
        elif not self._subscriptions.is_wanted(wire_topic):
            self._subscriptions.begin(topic, wire_topic, now)
            self._replace(wire_topic, now)

    def unsubscribe(self, topic: bytes, guard: Guard | None = None) -> None:
        """Stops renewing, and ignores what still comes; with a `guard`, for its subscription."""
        if guard is not None:
            self.places.end(guard, topic)
        else:
            self._subscriptions.end(wire.encode_topic(topic))

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        now: float,
        *,
        repeat: int = 1,
        repeat_interval_s: float = REPEAT_INTERVAL_S,
        confirm: bool = True,
        raw: bool = False,
        is_own: bool = False,
        writer: Writer | None = None,
    ) -> int:
        """Sends a message; returns the handle that its `Published` event will carry.

        The same bytes are sent `repeat` times in all. With `confirm`, each server is asked for a receipt;
        without, a busy publisher sends bare lines under a publish lease. `raw` leaves the envelope out. A
        `writer` signs or seals the message.

        Raises wire.TopicError, MessageTooLarge, ValueError, TypeError and Backlog.
        """
        if self._views.is_moving:
            self._look(now)
        if writer is not None:
            unix_s = now + self.clock_offset_s
            return self.publications.publish_by(
                writer, topic, payload, now, unix_s, repeat, repeat_interval_s, confirm=confirm
            )
        return self.publications.publish(
            topic, payload, now, repeat, repeat_interval_s, confirm=confirm, raw=raw, is_own=is_own
        )

    def publish_many(
        self,
        topic: bytes,
        payloads: Sequence[bytes],
        now: float,
        *,
        confirm: bool = True,
        raw: bool = False,
        writer: Writer | None = None,
    ) -> int:
        """Sends messages of one topic; returns the handle that their `PublishedMany` will carry.

        Each has a draw of servers of its own. Raises what `publish` raises, and then none is sent.
        """
        if self._views.is_moving:
            self._look(now)
        if writer is not None:
            unix_s = now + self.clock_offset_s
            return self.publications.publish_many_by(writer, topic, payloads, now, unix_s, confirm=confirm)
        return self.publications.publish_many(topic, payloads, now, confirm=confirm, raw=raw)

    def adopt(
        self,
        cluster: Cluster,
        now: float,
        from_unix_s: float | None = None,
        view: View | None = None,
    ) -> None:
        """Goes by another cluster: from a time on, in seconds since 1970, or at once.

        Publishers go by it from that time on, and subscribers hold leases in both for a while
        (`kcast.client.clusters.views`). What was to come at that time or later comes no more. `view` is the
        view of it, where the caller has made it.
        """
        self._views.adopt(cluster, now, self.clock_offset_s, self.sessions.ttl_s_max, from_unix_s, view)
        self._look(now)

    def _look(self, now: float) -> None:
        """Sees whether another view is in force or held by now, and does what follows from it."""
        before, held_before = self.view, self._views.held
        if not self._views.is_due(now, self.clock_offset_s):
            return
        if not self._views.look(now, self.clock_offset_s, self.sessions.ttl_s_max):
            return
        self._routes.clear()
        changed = [] if self.view is before else self.sessions.adopt(self.view.by_name, now)
        self._subscriptions.look_at_all(now)
        self._subscriptions.look(now, may_replace=self.avoid_dead)  # of few topics all is told at once
        held = self._views.held
        if any(view not in held for view in held_before):
            changed += self.sessions.keep([view.by_name for view in held], now)
        for session in changed:
            self._digest(session, now)
        if self.view is not before:
            self._events.append(change_between(before.by_name.keys(), self.view.by_name.keys()))

    def take_lookups(self, now: float) -> list[tuple[str, int]]:
        """Returns the names of hosts to look up now, with their ports; `located` is told what was found."""
        return self.sessions.take_lookups(now)

    def located(self, named: tuple[str, int], addresses: Collection[Address], now: float) -> None:
        """Takes what a lookup has found: at most one address of each family; none where it has failed."""
        session = self.sessions.located(named, addresses, now)
        if session is not None:
            self._digest(session, now)

    def renew_publisher(self) -> None:
        """Takes a new publisher's name and begins its sequences at 1, as a forked process must (§9.1)."""
        self.publications.publisher = Publisher(new_publisher(self.rng))

    # --- What is known -------------------------------------------------------------------------------

    @property
    def publisher(self) -> str:
        """The name that its messages carry."""
        return self.publications.publisher.name

    @property
    def view(self) -> View:
        """The servers that there are at present, and which of them a topic has: the view in force."""
        return self._views.present

    @property
    def avoid_dead(self) -> bool:
        """Whether servers believed dead are avoided; may be changed at any time."""
        return self._routes.avoid_dead

    @avoid_dead.setter
    def avoid_dead(self, avoid_dead: bool) -> None:
        self._routes.avoid_dead = avoid_dead
        self._routes.clear()

    def lease_counts(self, topic: bytes) -> tuple[int, int]:
        """Returns the number of servers that hold a lease on this topic for us, and the number wanted."""
        subscription = self._subscriptions.get(wire.encode_topic(topic))
        if subscription is None:
            raise KeyError(topic)
        return subscription.leases

    def server_states(self) -> dict[str, str]:
        """Returns `alive`, `suspected` or `lost` for each server that this client has dealings with, by name.

        `lost` includes servers that ask more for a new lease than a client pays.
        """
        return {each.name: "lost" if each.is_lost else each.liveness.value for each in self.sessions.all()}

    def heads(self) -> dict[str, str]:
        """Returns the opaque string (`head=`, §5.1) that each server told last, by name, where one did."""
        return {session.name: session.head for session in self.sessions.all() if session.head is not None}

    @property
    def holds_back(self) -> bool:
        """Whether there are messages that wait for room on the way to their servers, or for the cookie or the
        address of one that is believed alive."""
        return bool(self._touched) or any(
            each.outbox.go_on_at < inf or (each.is_alive and len(each.outbox) > 0)
            for each in self.sessions.all()
        )

    @property
    def is_minting(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._minting)

    def work(self, tries: int, now: float) -> bool:
        """Tries at most `tries` stamps for the new leases that wait for one; returns whether there is more to
        do. What was found leaves with the next `flush`.

        A try takes some microseconds, so callers with other things to do call it in slices, between turns.
        A server that still needs one afterwards goes to the end of the queue: none keeps others waiting.
        Callers that can measure how long a try takes set `sessions.spending.try_s`, in seconds.
        """
        while tries > 0 and self._minting:
            session = next(iter(self._minting))
            tries -= session.work(tries, now)
            if session.is_minting:
                self._minting.pop(session)
                self._minting[session] = None
            else:
                self._digest(session, now)
        return self.is_minting

    def resumed(self, suspended_s: float, now: float) -> None:
        """Takes that the machine was suspended. Its network may need some seconds until it is up again."""
        self._events.append(MachineSuspended(suspended_s))
        for session in self.sessions.at.values():
            session.hurried_until = now + HURRY_S

    # --- Endpoint ------------------------------------------------------------------------------------

    def receive(self, burst: Burst, now: float) -> None:
        """Takes answers and copies from the cluster's servers; all else is counted and dropped."""
        session = self.sessions.at.get(burst.source)
        if session is not None and session.address != burst.source and not session.moves_to(burst, now):
            session = None  # the server is asked at another of its addresses at present
        if session is not None and has_only_copies(burst):
            self.counts["datagrams_received"] += -(-len(burst.data) // burst.segment_bytes)
            self._receive_copies(burst.data, len(burst.data), session, now)
            return
        for datagram in datagrams(burst.data, burst.segment_bytes):
            self.counts["datagrams_received"] += 1
            if session is None:
                self.drops[Drop.UNKNOWN_SOURCE] += 1
            elif len(datagram) > DATAGRAM_BYTES_MAX:
                self.drops[Drop.OVERSIZE] += 1
            elif not datagram.strip(b"\n"):
                self.drops[Drop.EMPTY] += 1
            else:
                self._receive_datagram(datagram, session, now)

    def handle_unreachable(self, server: Address, now: float, *, is_closed: bool = True) -> None:
        """Takes the network's word that nobody listens at this address, or that nothing gets there now."""
        session = self.sessions.at.get(server)
        if session is not None:
            session.handle_unreachable(server, now, is_closed=is_closed)
            self._digest(session, now)

    def handle_timeout(self, now: float) -> None:
        """Does what has fallen due: sessions' deadlines, repeats, gaps."""
        if now >= self._wakeups.next_at:
            for session in self._wakeups.take_due(now):
                session.handle_timeout(now)
                self._digest(session, now)
        if now >= self.checks.next_at:
            self.checks.ask_one(now)
        if now >= self._outages.next_at:
            self._events += self._outages.missed(self.view.policy, self.clock_offset_s, now)
        if self._views.is_moving:
            self._look(now)
        if now >= self.publications.next_at:
            self.publications.handle_timeout(now)
        if now >= self.places.next_at:
            self.places.look(now, self.clock_offset_s)
        if now >= self._subscriptions.look_at:
            self._subscriptions.look(now, may_replace=self.avoid_dead)
        if self._deliveries.unheard:
            self._deliveries.hear(self._events)
        self._events += self._deliveries.gaps.settle(now)

    def next_timeout(self) -> float | None:
        """Returns when something is due, or there is something to send again; None where nothing is."""
        times = self._deliveries.gaps.next_timeout(), self._views.next_timeout(), self.sessions.next_timeout()
        at = min([at for at in (*times, self._unsent_since) if at is not None], default=inf)
        at = min(at, self._wakeups.next_at, self.publications.next_at, self.places.next_at)
        at = min(at, self._subscriptions.look_at, self.checks.next_at, self._outages.next_at)
        return None if at == inf else at

    def events(self) -> list[Told]:
        """Returns what has happened since the last call, in order."""
        if self._outages.has_lost_some:
            self._events += self._outages.all_lost()
        events = self._events.copy()
        self._events.clear()
        return events

    def flush(self, now: float) -> list[Transmit]:
        """Returns what is to be sent now: no more than the sender's own buffers take."""
        transmits, size_bytes, batches = list[Transmit](), 0, self.publications.batches
        if self._deliveries.unheard:
            self._deliveries.hear(self._events)
        if batches.waiting:
            batches.hand_over(now)
        while self._touched and size_bytes < FLUSH_BYTES_MAX:
            session, _ = self._touched.popitem(last=False)
            for data, segment_bytes in session.datagrams_to_send(now):
                if (address := session.address) is not None:
                    transmits.append(Transmit(data, segment_bytes, (address,)))
                    size_bytes += len(data)
            if session.whereabouts.next_at <= now:
                transmits.append(session.whereabouts.ask_next(now))
            self._digest(session, now, has_sent=True)
            if batches.waiting and not self._touched:
                batches.hand_over(now)
        self._unsent_since = now if self._touched else None
        return transmits

    # --- Receiving -----------------------------------------------------------------------------------

    def _receive_datagram(self, datagram: bytes, session: Session, now: float) -> None:
        lines, unterminated = wire.split_lines(datagram)
        if unterminated:
            self.drops[Drop.UNTERMINATED] += 1
        copies, replies = [], []
        for line in lines:
            if not wire.is_control(line):
                copies.append(line)
                continue
            reply = wire.parse_reply(line)
            if reply is None:
                self.drops[Drop.MALFORMED_CONTROL] += 1
            else:
                replies.append(reply)
        if copies:
            self._receive_copies(b"\n".join([*copies, b""]), len(datagram), session, now)
        if replies:
            unasked = session.handle_replies(replies, now)
            if unasked:
                self.drops[Drop.UNASKED_REPLY] += unasked
            self._digest(session, now)

    def _receive_copies(self, data: bytes, size_bytes: int, session: Session, now: float) -> None:
        """Takes copies, each with its LF; `size_bytes` is the length of their datagrams."""
        self._deliveries.take(data, session, now, self.clock_offset_s, self._events)
        if session.credit.took(size_bytes, now):
            self._touch(session)

    # --- Sessions ------------------------------------------------------------------------------------

    def _session(self, server: ServerEntry, now: float) -> Session:
        is_new = server not in self.sessions
        session = self.sessions.of(server, now)
        if is_new and session.is_lost:
            self._outages.has_lost_some = True
            self._events.append(FamilyMissing(server.name, family_of(server.addresses[0])))
        return session

    def _touch(self, session: Session) -> None:
        """Lets the session send with the next flush."""
        self._touched[session] = None

    def _digest(self, session: Session, now: float, has_sent: bool = False) -> None:
        """Turns what a session reports into events and further sends, and sees to its next wake-up."""
        notices, session.notices = session.notices, []
        for notice in notices:
            self._handle_notice(notice, session, now)
        for settled in session.take_settled():
            self.publications.settle(settled, session, now)
        if session.is_minting:
            self._minting.setdefault(session)
        else:
            self._minting.pop(session, None)
        if not has_sent:
            # It may have something to send. Only after that is its next wake-up known.
            if not session.has_nothing_to_send(now):
                self._touch(session)
            return
        at = session.next_timeout()
        if at is not None:
            self._wakeups.put(session, at)

    def _handle_notice(self, notice: Notice, session: Session, now: float) -> None:
        """Makes an event of what a session reports, and does what follows from it."""
        has_answered = session.heard_at > -inf
        topic = self._subscriptions.name_of(notice.topic)
        event = notice.event(session.name, topic, has_answered=has_answered)
        if event is not None:
            self._events.append(event)
        self._outages.take(notice, session, now)
        self.checks.take(notice, now)
        if notice.change not in (Change.LEASES, Change.REFUSED):
            self._routes.clear()
        match notice.change:
            case Change.LEASES:
                self._subscriptions.count_leases(notice.topic)
                self.places.lead(now)
            case Change.LOST:
                self.sessions.doubt(session, now)
                self._subscriptions.look_at_all(now)
            case Change.RETURNED | Change.TRUSTED | Change.DRAINING:
                self._subscriptions.look_at_all(now)
            case Change.FORGOT:
                self.sessions.doubt(session, now)

    def _replace(self, wire_topic: bytes, now: float) -> None:
        if self.avoid_dead:
            self._subscriptions.replace(wire_topic, now)
