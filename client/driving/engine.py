"""What both drivers share: a client's core on its socket, and those who wait for what the core tells.

    turn:  take what arrived -> tell those who wait -> do what is due -> send -> tell those who wait

A driver decides when turns are made: soon after something was asked for or has arrived, and at the time that
the last turn named. Nothing here waits, and nothing is locked: a driver with threads does that.

Between turns the core works on the stamp that a server asks for, a millisecond at a time, so that whatever
else has to run, and what arrives, waits no longer than that.

All events but deliveries and outcomes are logged. Drivers may hold a lock meanwhile, so a handler of these
logs must not use the client.
"""

import os
import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from math import inf
from pathlib import Path
from time import sleep, thread_time, time
from typing import TYPE_CHECKING, Any

from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.facts import ListState
from kcast.client.clusters.watch import Change, Stop
from kcast.client.core import ClientCore
from kcast.client.driving.arguments import (
    PLAIN_OPTIONS,
    CoverOptions,
    PublishOptions,
    ReadOptions,
    WriteOptions,
    as_bytes,
    as_payloads,
    refuse_unknown,
    split_options,
)
from kcast.client.driving.event_log import EventLog
from kcast.client.driving.inbox import DeliveryInbox, Inbox
from kcast.client.driving.layers import Layers
from kcast.client.driving.lazy_protection import LazyProtection
from kcast.client.driving.own_address import OwnAddress
from kcast.client.driving.recipients import Recipients
from kcast.client.driving.resolver import ANY_HOSTS, Resolver, families_for, present_families
from kcast.client.driving.watches import Watches
from kcast.client.errors import ClientClosed
from kcast.client.events import Delivery, Event, Published, PublishedMany
from kcast.client.layers.limit import FixedWindow
from kcast.client.messages.guard_and_writer import Guard, Guarded, Told
from kcast.client.publishing.waiters import Waiter, Waiters
from kcast.client.receiving import native
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.source import named
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Burst, Endpoint
from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import RENEWALS_PER_TTL
from kcast.pubsub.udp import UdpPort, open_socket
from kcast.pubsub.wire import TopicError

if TYPE_CHECKING:  # their libraries are those of an extra, and imported where something is to be proven
    from kcast.client.sealed.cover import Cover
    from kcast.client.sealed.keys import Identity
    from kcast.client.sealed.membership import Group

Wrap = Callable[[Endpoint], Endpoint]  # puts a path before a core

QUEUE_MAX = 65_536  # deliveries that wait to be taken
EVENTS_MAX = 4096  # events that wait to be taken

# In which what waits for room on its way leaves, before the socket is closed. It leaves at 6 MB/s or more
# (see `Window`), the largest backlog within 13 s; only a machine that hardly runs needs more. A server whose
# cookie is waited for answers sooner, or counts as alive no more.
CLOSE_S = 15.0
UNREAD_S_MAX = 0.5  # so long at most nothing counts as overdue because more has arrived than is read

MINT_S = 0.001  # of work on a stamp at a time ...
_TRIES = 250  # ... between two looks at the clock


class Engine:
    """A client's core, its socket once it is open, and those who wait for outcomes, deliveries and events.

    For one thread at a time. The options are those of `ClientBase` (`client/driving/base.py`). `usage` tells,
    in errors, how the driver's client is opened. `resources` are closed with the socket, the last one first:
    a driver adds its own.

    `path` is given the core, and returns what all datagrams and timeouts go through instead, for load tests:
    an Endpoint that calls the core's. It must not wait, nor use the client. Its `next_timeout` must be no
    later than the core's. What it raises, the turn raises. What it still holds when the client is closed is
    lost.
    """

    def __init__(
        self,
        cluster: Cluster | str | Path | None,
        *,
        usage: str,
        avoid_dead: bool = True,
        publisher: str | None = None,
        rng: random.Random | None = None,
        path: Wrap | None = None,
        renewals_per_ttl: float = RENEWALS_PER_TTL,
        kernel_times: bool = False,
        identity: "Identity | str | Path | None" = None,
        group: "Group | str | Path | None" = None,
    ) -> None:
        if publisher is not None and (identity is not None or group is not None):
            raise ValueError(
                "a client with an identity or a group has names that nobody chooses: leave publisher out"
            )
        # Whoever gives a Cluster has nothing that could change.
        source = None
        if isinstance(cluster, Cluster):
            found = cluster
        else:
            source = named(cluster)
            found = source.read()
        self.families = families_for(found)
        self._resolver = Resolver()
        self._own_address = OwnAddress()
        self.core = ClientCore(
            found,
            rng or random.SystemRandom(),
            avoid_dead=avoid_dead,
            publisher=publisher,
            families=self.families,
            renewals_per_ttl=renewals_per_ttl,
            copies=CopyFilter(is_native=native.is_allowed()),
        )
        self._watch = None if source is None else source.watch(found, clock.now(), self.core.heads)
        self._watches = Watches(self.core)
        if self._watch is not None:
            self._watches.add(self._watch)
        self.local_port = 0  # until it is open
        self.send_errors: Counter[str] = Counter()
        self.resources = ExitStack()
        self.is_open = False
        self.is_forked = False
        self.failure: BaseException | None = None
        self._not_open, self._has_been_open = f"is not open: use {usage}", False
        self._port: UdpPort
        self._endpoint = self.core if path is None else path(self.core)
        self._kernel_times = kernel_times
        self._kernel_drops = 0
        self.recipients = Recipients(self.core.drops)
        self._log = EventLog()
        self._suspensions = clock.SuspensionWatch()
        self._timed_out_at = float("-inf")  # when it was last looked for what is overdue
        self._overdue_at: float | None = None  # what was due then is overdue
        self._answers: list[Burst] = []  # that the rest of the turn takes
        self.waiters = Waiters()
        self._protection = LazyProtection(self.core, identity, group, self._watches)
        self.layers = Layers(self, self._protection)
        _engines.add(self)

    @property
    def cluster(self) -> Cluster:
        """The cluster of the moment."""
        return self.core.view.cluster

    # --- Opening and closing --------------------------------------------------------------------------

    def open(self) -> None:
        """Opens the socket. Raises ClientClosed where it has been open before, and OSError."""
        if self._has_been_open:
            raise self.closed_error("has been open before: make another")
        # A wildcard IPv6 socket takes IPv4 too; where there is only IPv4, nothing must depend on IPv6.
        # What is watched may come to have servers of the other IP version.
        families = self.families if self._watch is None else present_families()
        host = ANY_HOSTS[6 if 6 in families else 4]
        sock = open_socket(host, 0, report_unreachable=True)
        port = UdpPort(sock, kernel_times=self._kernel_times, is_native=native.is_allowed())
        self._port = self.resources.enter_context(port)
        self.local_port, self.send_errors = self._port.address[1], self._port.send_errors
        self.resources.callback(self._watches.close)
        self.is_open = self._has_been_open = True
        self._not_open = "is closed: make another"

    def close(self, failure: BaseException | None = None) -> None:
        """Closes the socket, and ends all waiting; does nothing where it is closed already.

        `failure` is the error because of which it closes, None where the user closes it: it may also close
        by itself, where its signed list must not be used any more.
        """
        if self.is_open:
            self._kernel_drops = self.kernel_drops
            self.failure = failure
            self.is_open = False
        self.resources.close()
        make_error = partial(self.closed_error, "was closed before the outcome was known")
        self.layers.close(make_error)
        if self._protection.made is not None:
            self._protection.made.covers.close(make_error)
        self.waiters.end(make_error)
        self.recipients.end_all()

    def closed_error(self, what: str = "") -> ClientClosed:
        """Returns the error to raise where there is nothing to wait for."""
        if self.is_forked:
            what = "belongs to the process that this one was forked from: open one here"
        elif self.failure is not None:
            failure = self.failure if isinstance(self.failure, KcastError) else repr(self.failure)
            what = f"has failed: {failure}"
        error = ClientClosed(f"this client {what or self._not_open}")
        if self.failure is not None:  # to set it to None would hide the error that is being handled
            error.__cause__ = self.failure
        return error

    def require_open(self) -> None:
        """Raises ClientClosed where the client cannot be used."""
        if not self.is_open:
            raise self.closed_error()

    def refuse_forked(self) -> None:
        """Raises ClientClosed in a forked process, where waiting could last for ever."""
        if self.is_forked:
            raise self.closed_error()

    def refuse_failed(self) -> None:
        """Raises ClientClosed where the client has failed, and in a forked process."""
        if self.is_forked or self.failure is not None:
            raise self.closed_error()

    def after_fork(self) -> None:
        """Closes the client in a forked process: what the socket receives is for the parent to take."""
        # Two processes with one publisher's name would give different messages the same number.
        self.core.renew_publisher()
        if self._protection.made is not None:
            self._protection.made.renew()
        if self.is_open:
            self.is_open = False
            self.is_forked = True
            # This closes only this process's descriptors. Waiters cannot be woken: the thread that may have
            # held their locks does not exist here.
            self.resources.close()

    def fileno(self) -> int:
        """Returns the descriptor to watch for reading."""
        return self._port.fileno()

    @property
    def kernel_drops(self) -> int:
        """Number of datagrams that the kernel dropped because this process did not read them in time."""
        return self._port.overflow_count if self.is_open else self._kernel_drops

    def list_state(self) -> ListState | None:
        """Returns what `kcast.client.driving.base.ClientBase.list_state` tells."""
        return None if self._watch is None else self._watch.state()

    # --- Verbs ----------------------------------------------------------------------------------------

    def begin(self) -> float:
        """Returns the time of a call, which the core goes by. Raises ClientClosed."""
        self.require_open()
        self.core.clock_offset_s = time() - (now := clock.now())  # the machine may have slept since a turn
        return now

    def publish(
        self, waiter: Waiter, topic: str | bytes, payload: str | bytes, options: PublishOptions
    ) -> None:
        """Publishes with the next turn; the outcome goes to `waiter`. Raises what the core raises."""
        now = self.begin()
        name, content = as_bytes(topic, "topic"), as_bytes(payload, "payload")
        plain: Any = options
        if PLAIN_OPTIONS.issuperset(options) and self._protection.made is None:
            handle = self.core.publish(name, content, now, **plain)
        else:
            refuse_unknown(options, "publish")
            plain, writing = split_options(options)
            writer = self._protection.writer(name, writing, now, is_raw=plain.get("raw", False))
            handle = self.core.publish(name, content, now, writer=writer, **plain)
        self.waiters.put(handle, waiter)

    def publish_many(
        self,
        waiter: Waiter,
        topic: str | bytes,
        payloads: Iterable[str | bytes],
        writing: WriteOptions,
        *,
        confirm: bool,
        raw: bool,
    ) -> None:
        """Publishes several messages from the next turn on; their outcome goes to `waiter`. Raises what the
        core raises."""
        now = self.begin()
        refuse_unknown(writing, "publish_many")
        name, several = as_bytes(topic, "topic"), as_payloads(payloads)
        writer = self._protection.writer(name, writing, now, is_raw=raw)
        handle = self.core.publish_many(name, several, now, confirm=confirm, raw=raw, writer=writer)
        self.waiters.put(handle, waiter)

    def cover(self, topic: str | bytes, options: CoverOptions) -> "Cover":
        """Begins cover traffic on a topic with the next turn. Raises ValueError, TypeError and KcastError."""
        now = self.begin()
        return self._protection.cover(as_bytes(topic, "topic"), options, now, self.waiters.put)

    def guard(
        self, topics: Sequence[bytes], options: ReadOptions, limit: FixedWindow | None = None
    ) -> Guard | None:
        """Returns what judges the messages of a subscription that begins now (`LazyProtection.guard`)."""
        return self._protection.guard(topics, options, limit, self.begin())

    def flush(self, waiter: Waiter) -> None:
        """Tells `waiter`, by None, once the outcome of all that was published until now is known."""
        self.require_open()
        self.waiters.put_flushing(self.core.publications.newest, waiter)
        self.waiters.look_for_flushed(self.core.publications.oldest)

    def subscribe(self, topics: Sequence[bytes], inbox: DeliveryInbox) -> None:
        """Subscribes to all topics with the next turn; raises TopicError, and then subscribes to none."""
        now, guard = self.begin(), inbox.guard
        try:
            for topic in topics:
                self.core.subscribe(topic, now, guard=guard)
                self.recipients.add(topic, inbox)
                if guard is None:
                    inbox.put_leases(topic, *self.core.lease_counts(topic))
        except TopicError:
            self.unsubscribe(topics, inbox)
            raise
        self.recipients.begin(inbox)
        if guard is not None:
            self.tell(self.core.events(), now)  # of the leases that are wanted

    def unsubscribe(self, topics: Sequence[bytes], inbox: DeliveryInbox) -> None:
        """Ends an inbox, and the leases of each topic whose last one it was."""
        guard = inbox.guard
        for topic in topics:
            if guard is not None:
                self.core.unsubscribe(topic, guard)
            elif self.recipients.remove(topic, inbox):
                self.core.unsubscribe(topic)
        self.recipients.end(inbox)
        if guard is not None and self._protection.made is not None:
            self._protection.made.end(guard)

    def merge(self, inbox: Inbox[Any], sources: Sequence[Inbox[Any]]) -> None:
        """Lets one inbox take the items of several; without any, those of all topics, later ones too, as long
        as somebody refers to it.

        Raises ValueError where another inbox, or a function, takes those of a source.
        """
        self.require_open()
        self.recipients.merge(inbox, sources)

    def listen(self, inbox: Inbox[Event]) -> None:
        """Puts all events but deliveries and outcomes into an inbox, as long as somebody refers to it."""
        self.require_open()
        self.recipients.listen(inbox)

    # --- Turns ----------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """Makes a turn; returns the seconds until the next is due, None where only arrivals cause one."""
        self.take_in()
        return self.finish_turn()

    def take_in(self) -> None:
        """Takes what has arrived, and tells what comes of it. `finish_turn` must follow, but those who have
        waited for a delivery may go on before. So answers that came with deliveries are left to it."""
        port, core, endpoint = self._port, self.core, self._endpoint
        reading_at = clock.now()
        bursts = port.receive()
        now = clock.now()
        # An answer that is here counts, however late a busy machine lets us read it. So only that is overdue
        # which was so before the reading, if it has read all; and a flood puts that off for a moment only.
        is_read = not port.has_more or now >= self._timed_out_at + UNREAD_S_MAX
        self._overdue_at = reading_at if is_read else None
        core.clock_offset_s = time() - now
        suspended_s = self._suspensions.look(now)
        if suspended_s:
            core.resumed(suspended_s, now)
        if not bursts:
            return
        if len(bursts) > 1:
            copies = [burst for burst in bursts if burst.data[:1] != b"%"]
            if 0 < len(copies) < len(bursts):
                self._answers += [burst for burst in bursts if burst.data[:1] == b"%"]
                bursts = copies
        for burst in bursts:
            endpoint.receive(burst, now)
        self.tell(core.events(), now)

    def finish_turn(self) -> float | None:
        """Does what is due, and sends; returns as `turn` does."""
        port, core, endpoint = self._port, self.core, self._endpoint
        now = clock.now()
        if self._answers:
            answers, self._answers = self._answers, []
            for burst in answers:
                endpoint.receive(burst, now)
        for server in port.unreachable():
            core.handle_unreachable(server, now)
        for server in port.take_refused() if port.refused else ():
            core.handle_unreachable(server, now, is_closed=False)
        for host, addresses in self._resolver.answers(now):
            core.located(host, addresses, now)
        if now >= self._own_address.look_at and self._own_address.has_changed(core.sessions.leased_at(), now):
            core.checks.ask_all(now)
        if now >= self._watches.look_at:
            for news in self._watches.look(now):
                self._take(news, now)
            if not self.is_open:
                return None
        protection = self._protection.made
        covers = None if protection is None else protection.covers
        if covers is not None and now >= covers.begin_at:
            now = max(now, covers.next_at)
            covers.look(now)
        if self._overdue_at is not None:
            endpoint.handle_timeout(self._overdue_at)
            self._overdue_at, self._timed_out_at = None, now
        if now >= self.layers.next_at:
            self.layers.look(now)
        transmits = endpoint.flush(now)
        if covers is not None and (left_s := now - clock.now()) > 0:
            sleep(left_s)  # a line of cover traffic was made before its tick
        port.send(transmits)
        self._resolver.ask(core.take_lookups(now), now)
        self.tell(core.events(), now)
        return self._next_due_s(now)

    def send_at_once(self) -> float | None:
        """Sends what can leave; returns the seconds until the next turn is due, as `turn` does."""
        now = clock.now()
        self._port.send(self._endpoint.flush(now))
        self.tell(self.core.events(), now)
        return self._next_due_s(now)

    def _next_due_s(self, now: float) -> float | None:
        if self.waiters.is_flushing:
            self.waiters.look_for_flushed(self.core.publications.oldest)
        due = [self._endpoint.next_timeout(), self._resolver.next_timeout(now), self._own_address.wake_at]
        if self._port.refused:
            due.append(now)  # for another address may take it
        due += self._watches.look_at, self.layers.next_at
        if self._protection.made is not None and self._protection.made.covers.begin_at < inf:
            due.append(self._protection.made.covers.begin_at)
        if self.recipients.holding:
            due.append(self.recipients.release(now, has_read_all=not self._port.has_more))
        due_at = min([at for at in due if at is not None], default=inf)
        # The timer that is to end this stands still while the machine is suspended.
        return None if due_at == inf else min(max(0.0, due_at - now), clock.LOOK_S)

    def _take(self, news: Change | Stop | Event, now: float) -> None:
        """Goes by another cluster, or by none any more, or tells what is new of the one there is."""
        match news:
            case Change(cluster, from_unix_s, view):
                self.core.sessions.add_families(families_for(cluster))
                self.core.adopt(cluster, now, from_unix_s, view)
            case Stop(error):
                self.close(error)
            case _:
                self.tell((news,), now)

    def mint(self) -> None:
        """Works for a millisecond on the stamp that is being minted (PROTOCOL §5.11), and measures how long a
        try takes. The next turn sends what is found."""
        until = clock.now() + MINT_S
        begun_s, tries = thread_time(), _TRIES
        while self.core.work(_TRIES, now := clock.now()) and now < until:
            tries += _TRIES
        # What a found stamp leaves of its last tries counts as tried, which makes little difference.
        self.core.sessions.spending.measured(thread_time() - begun_s, tries)

    def tell(self, events: Iterable[Told], now: float) -> None:
        """Gives events to those who wait for them, in order."""
        deliveries: list[Delivery] = []  # the last ones in a row, of one topic
        for event in events:
            if isinstance(event, Delivery):
                if deliveries and event.topic != deliveries[0].topic:
                    self._deliver(deliveries, now)
                    deliveries = []
                deliveries.append(event)
                continue
            if deliveries:
                self._deliver(deliveries, now)
                deliveries = []
            if isinstance(event, (Published, PublishedMany)):
                self.waiters.tell(event)
            elif not isinstance(event, Guarded):
                self._tell_of_change(event, None, now)
            elif isinstance(event.event, Delivery):
                self.recipients.deliver_guarded(event.guard, event.event, now)
            else:
                self._tell_of_change(event.event, event.guard, now)
        if deliveries:
            self._deliver(deliveries, now)

    def _deliver(self, deliveries: Sequence[Delivery], now: float) -> None:
        """Gives deliveries of one topic to those who subscribe to it."""
        topic = deliveries[0].topic
        if topic in self._watches.topics:
            for delivery in deliveries:
                self._watches.hear(topic, delivery.payload, now)
        self.recipients.deliver(deliveries, now)

    def _tell_of_change(self, event: Event, guard: Guard | None, now: float) -> None:
        """Gives an event that is neither a delivery nor an outcome to those who listen, and logs it."""
        if self.recipients.tell(event, guard):
            self._log.tell(event, now)


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _after_fork() -> None:
    for engine in _engines:
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)
