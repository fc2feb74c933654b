"""What both drivers share: a client's core on its socket, and those who wait for what the core tells.

    turn:  take what arrived -> do what is due -> send -> tell those who wait

A driver decides when turns are made: soon after something was asked for or has arrived, and at the time that
the last turn named. Nothing here waits, and nothing is locked: a driver with threads does that.

Between turns the core works on the stamp that a server asks for, a millisecond at a time, so that whatever
else has to run, and what arrives, waits no longer than that.

A load test has to lose, delay and write down datagrams of real clients. So an endpoint of the caller's, a
*path*, may stand between socket and core.

All events but deliveries and outcomes are logged (`kcast.client.event_log`). Drivers may hold a lock
meanwhile, so a handler of these logs must not use the client.
"""

import os
import random
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import thread_time, time
from typing import Any, Protocol

from kcast.client.arguments import PublishOptions, as_bytes, refuse_unknown
from kcast.client.cluster import Cluster
from kcast.client.core import COUNTS, ClientCore
from kcast.client.errors import ClientClosed
from kcast.client.event_log import EventLog
from kcast.client.events import (
    Delivery,
    Drop,
    Event,
    Gap,
    GapFilled,
    LeaseRefused,
    LeasesChanged,
    Outcome,
    Published,
)
from kcast.client.families import ANY_HOSTS, present_families, usable_families
from kcast.client.inbox import DeliveryInbox, Inbox
from kcast.client.list_state import ListState
from kcast.client.resolver import Resolver
from kcast.client.source import named
from kcast.client.watch import Change, Listen, News, Say, Stop
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Endpoint
from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import RENEWALS_PER_TTL
from kcast.pubsub.udp import UdpPort, open_socket
from kcast.pubsub.wire import TopicError

Wrap = Callable[[Endpoint], Endpoint]  # puts a path before a core

QUEUE_MAX = 65_536  # deliveries that wait to be taken
EVENTS_MAX = 4096  # events that wait to be taken

UNREAD_S_MAX = 0.5  # so long at most nothing counts as overdue because more has arrived than is read
MINT_SLICE_S = 0.001
_MINT_TRIES = 250  # between two looks at the clock


class Waiter(Protocol):
    """Where the outcome of a publish goes: a future of asyncio or of concurrent.futures."""

    def done(self) -> bool:
        """Returns whether there is nothing to wait for any more."""

    def set_result(self, result: Published, /) -> None:
        """Takes the outcome."""

    def set_exception(self, error: BaseException, /) -> None:
        """Takes the reason why there will be no outcome."""

    def exception(self) -> BaseException | None:
        """Returns the error that was set, which from then on counts as seen."""


class Engine:
    """A client's core, its socket once it is open, and those who wait for outcomes, deliveries and events.

    For one thread at a time. The options are those of `kcast.client.base.ClientBase`. `usage` tells, in
    errors, how the driver's client is opened. `resources` are closed with the socket, the last one first: a
    driver adds its own.

    `path` is given the core, and returns what all datagrams and timeouts go through instead: an Endpoint that
    calls the core's. It is called in the engine's turns, so it must not wait, nor use the client. Its
    `next_timeout` must be no later than the core's. What it raises, the turn raises. What it still holds when
    the client is closed is lost.
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
    ) -> None:
        # Whoever gives a Cluster has nothing that could change.
        source = None
        if isinstance(cluster, Cluster):
            found = cluster
        else:
            source = named(cluster)
            found = source.read()
        self.families = usable_families(server.addresses for server in found.servers)
        if any(server.named for server in found.servers):
            self.families = present_families()
        self._resolver = Resolver()
        self.core = ClientCore(
            found,
            rng or random.SystemRandom(),
            avoid_dead=avoid_dead,
            publisher=publisher,
            families=self.families,
            renewals_per_ttl=renewals_per_ttl,
            unix_s=time(),
        )
        self._watch = None if source is None else source.watch(found, clock.now(), self.core.heads)
        self.local_port = 0  # until it is open
        self.send_errors: Counter[str] = Counter()
        self.resources = ExitStack()
        self.is_open = False
        self.is_forked = False
        self.failure: BaseException | None = None
        self._not_open = f"is not open: use it within '{usage}'"
        self._has_been_open = False
        self._port: UdpPort
        self._endpoint = self.core if path is None else path(self.core)
        self._kernel_times = kernel_times
        self._kernel_drops = 0
        self._inboxes: dict[bytes, list[DeliveryInbox]] = {}
        self._own_topics: tuple[bytes, ...] = ()  # kcast's, on which the watch listens
        self._log = EventLog()
        self._suspensions = clock.SuspensionWatch()
        self._timed_out_at = float("-inf")  # when it was last looked for what is overdue
        self._holding: list[DeliveryInbox] = []  # those that put deliveries in order
        # Takes what comes to each inbox that no other stream has. (Weakly: see `Inbox`.)
        self._catch_all: Callable[[], Inbox[Any] | None] = lambda: None
        self._waiters: dict[int, Waiter] = {}
        # A listener that is no longer referred to is forgotten. (A WeakSet could change while another thread
        # walks it.)
        self._listeners: list[weakref.ref[Inbox[Event]]] = []
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
        host = ANY_HOSTS[6 if 6 in self.families else 4]
        sock = open_socket(host, 0, report_unreachable=True)
        self._port = self.resources.enter_context(UdpPort(sock, kernel_times=self._kernel_times))
        self.local_port, self.send_errors = self._port.address[1], self._port.send_errors
        if self._watch is not None:
            self.resources.callback(self._watch.close)
        self.is_open = self._has_been_open = True

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
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(self.closed_error("was closed before the outcome was known"))
                waiter.exception()  # asyncio complains of errors that nobody has looked at
        self._waiters.clear()
        for inbox in self._subscribed():
            self._end(inbox)
        stream = self._catch_all()
        if stream is not None:
            stream.end()
        for listener in self._listening():
            listener.end()

    def closed_error(self, what: str = "") -> ClientClosed:
        """Returns the error to raise where there is nothing to wait for."""
        if self.is_forked:
            what = "belongs to the process that this one was forked from: open one here"
        elif self.failure is not None:
            what = (
                f"has failed: {self.failure if isinstance(self.failure, KcastError) else repr(self.failure)}"
            )
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

    def counters(self) -> dict[str, Any]:
        """Returns what `kcast.client.base.ClientBase.counters` tells."""
        core, subscribed = self.core, self._subscribed()
        states = Counter(core.server_states().values())
        return {
            **{name: core.counts[name] for name in COUNTS},
            "kernel_drops": self.kernel_drops,
            "queued": sum(len(inbox.items) for inbox in {inbox.target for inbox in subscribed}),
            "leases": sum(inbox.leases[0] for inbox in subscribed),
            "leases_wanted": sum(inbox.leases[1] for inbox in subscribed),
            "outcomes": {outcome.value: core.outcomes[outcome] for outcome in Outcome},
            "drops": {reason.value: core.drops[reason] for reason in Drop},
            "send_errors": dict(self.send_errors),
            "servers": {state: states[state] for state in ("alive", "suspected", "lost")},
        }

    def list_state(self) -> ListState | None:
        """Returns what `kcast.client.base.ClientBase.list_state` tells."""
        return None if self._watch is None else self._watch.state()

    # --- Verbs ----------------------------------------------------------------------------------------

    def publish(
        self, waiter: Waiter, topic: str | bytes, payload: str | bytes, options: PublishOptions
    ) -> None:
        """Publishes with the next turn; the outcome goes to `waiter`. Raises what the core raises."""
        self.require_open()
        refuse_unknown(options)
        now = clock.now()
        self.core.clock_offset_s = time() - now  # the last turn may have been before the machine slept
        handle = self.core.publish(as_bytes(topic, "topic"), as_bytes(payload, "payload"), now, **options)
        self._waiters[handle] = waiter

    def subscribe(self, topics: Sequence[bytes], inbox: DeliveryInbox) -> None:
        """Subscribes to all topics with the next turn, or to none. Raises TopicError."""
        self.require_open()
        try:
            for topic in topics:
                self.core.subscribe(topic, clock.now())
                self._inboxes.setdefault(topic, []).append(inbox)
                inbox.put_leases(topic, *self.core.lease_counts(topic))
        except TopicError:
            self.unsubscribe(topics, inbox)
            raise
        if inbox.sequencer is not None:
            self._holding.append(inbox)
        stream = self._catch_all()
        if stream is not None and not inbox.is_called:
            stream.take_over(inbox)

    def unsubscribe(self, topics: Sequence[bytes], inbox: DeliveryInbox) -> None:
        """Ends an inbox, and the leases of each topic whose last one it was."""
        for topic in topics:
            inboxes = self._inboxes.get(topic, [])
            if inbox in inboxes:
                inboxes.remove(inbox)
                if not inboxes:
                    del self._inboxes[topic]
                    self.core.unsubscribe(topic)
        if inbox in self._holding:
            self._holding.remove(inbox)
        self._end(inbox)

    def _end(self, inbox: DeliveryInbox) -> None:
        """Lets go of what an inbox holds, and ends it."""
        if inbox.sequencer is not None:
            for delivery in inbox.sequencer.release_all():
                self._put(inbox, delivery)
        inbox.end()

    def merge(self, inbox: Inbox[Any], sources: Sequence[Inbox[Any]]) -> None:
        """Lets one inbox take the items of several; without any, those of all topics, later ones too, as long
        as somebody refers to it.

        Raises ValueError where another inbox, or a function, takes those of a source.
        """
        self.require_open()
        if not sources and self._catch_all() is not None:
            raise ValueError("there is a stream of all subscriptions already: use that, or close it first")
        if any(source.target is not source for source in sources):
            raise ValueError("one of these is part of another stream: use that, or close it first")
        if any(source.is_called for source in sources):
            raise ValueError("one of these has an on_delivery, to which its deliveries go: leave it out")
        free = (each for each in self._subscribed() if each.target is each and not each.is_called)
        for source in sources or free:
            for gone in inbox.take_over(source):
                self._count_gone(gone)
        if sources:
            inbox.end_with_sources()
        else:
            self._catch_all = weakref.ref(inbox)

    def unmerge(self, inbox: Inbox[Any]) -> None:
        """Ends an inbox, and lets its sources keep what comes to them from now on."""
        if inbox is self._catch_all():
            self._catch_all = lambda: None
        inbox.give_back()

    def _subscribed(self) -> list[DeliveryInbox]:
        return list({id(inbox): inbox for inboxes in self._inboxes.values() for inbox in inboxes}.values())

    def listen(self, inbox: Inbox[Event]) -> None:
        """Puts all events but deliveries and outcomes into an inbox, as long as somebody refers to it."""
        self.require_open()
        self._listeners = [weakref.ref(inbox), *map(weakref.ref, self._listening())]

    def ignore(self, inbox: Inbox[Event]) -> None:
        """Ends an inbox of events."""
        self._listeners = [weakref.ref(other) for other in self._listening() if other is not inbox]
        inbox.end()

    def _listening(self) -> list[Inbox[Event]]:
        return [inbox for reference in self._listeners if (inbox := reference()) is not None]

    # --- Turns ----------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """Makes a turn; returns the seconds until the next is due, None where only arrivals cause one."""
        port, core, endpoint = self._port, self.core, self._endpoint
        reading_at = clock.now()
        bursts = port.receive()
        has_read_all = not port.has_more
        now = clock.now()
        core.clock_offset_s = time() - now
        suspended_s = self._suspensions.look(now)
        if suspended_s:
            core.resumed(suspended_s, now)
        for burst in bursts:
            endpoint.receive(burst, now)
        for server in port.unreachable():
            core.handle_unreachable(server, now)
        for host, addresses in self._resolver.answers(now):
            core.located(host, addresses, now)
        if self._watch is not None and now >= self._watch.look_at:
            for news in self._watch.look(now):
                self._take(news, now)
            if not self.is_open:
                return None
        # An answer that is here counts, however late a busy machine lets us read it. So only that is overdue
        # which was so before the reading, if it has read all; and a flood puts that off for a moment only.
        if has_read_all or now >= self._timed_out_at + UNREAD_S_MAX:
            endpoint.handle_timeout(reading_at)
            self._timed_out_at = now
        port.send(endpoint.flush(now))
        self._resolver.ask(core.take_lookups(now), now)
        for event in core.events():
            self._dispatch(event, now)
        due = [endpoint.next_timeout(), *(self._release(box, now, has_read_all) for box in self._holding)]
        due += [self._resolver.next_timeout(now), None if self._watch is None else self._watch.look_at]
        due_at = min([at for at in due if at is not None], default=None)
        # The timer that is to end this stands still while the machine is suspended.
        return None if due_at is None else min(max(0.0, due_at - now), clock.LOOK_S)

    def _take(self, news: News, now: float) -> None:
        """Goes by another cluster, or by none any more, or tells what is new of the one there is."""
        match news:
            case Change(cluster, from_unix_s, views):
                self.core.adopt(cluster, now, from_unix_s, views)
            case Stop(error):
                self.close(error)
            case Listen(topics):
                for topic in set(self._own_topics) - set(topics):
                    self.core.unsubscribe(topic)
                for topic in topics:
                    self.core.subscribe(topic, now, is_own=True)
                self._own_topics = topics
            case Say(topic, payload):
                # What does not fit, or has to wait too long, another client says, or this one later.
                with suppress(KcastError):
                    self.core.publish(topic, payload, now, is_own=True)
            case _:
                self._dispatch(news, now)

    def mint(self) -> None:
        """Works for a millisecond on the stamp that is being minted. The next turn sends what is found."""
        until = clock.now() + MINT_SLICE_S
        begun_s, tries = thread_time(), _MINT_TRIES
        while self.core.work(_MINT_TRIES, now := clock.now()) and now < until:
            tries += _MINT_TRIES
        # What a found stamp leaves of its last tries counts as tried, which makes little difference.
        self.core.try_s += ((thread_time() - begun_s) / tries - self.core.try_s) / 8

    def _dispatch(self, event: Event, now: float) -> None:
        """Gives an event to those who wait for it."""
        match event:
            case Delivery():
                if event.topic in self._own_topics and self._watch is not None:
                    self._watch.hear(event.topic, event.payload, now)
                for inbox in self._inboxes.get(event.topic, ()):
                    if inbox.sequencer is None:
                        self._put(inbox, event)
                    else:
                        for delivery in inbox.sequencer.put(event, now):
                            self._put(inbox, delivery)
                return
            case Published():
                waiter = self._waiters.pop(event.handle, None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(event)
                return
            case LeasesChanged() | LeaseRefused() | Gap() | GapFilled() if event.topic[:1] == b"\0":
                return  # kcast's own: nobody has asked for it, also where it comes late
            case LeasesChanged():
                for inbox in self._inboxes.get(event.topic, ()):
                    inbox.put_leases(event.topic, event.leased, event.wanted)
        self._log.tell(event, now)
        for listener in self._listening():
            self._put(listener, event)

    def _put(self, inbox: Inbox[Any], item: Event) -> None:
        self._count_gone(inbox.put(item))

    def _count_gone(self, gone: object) -> None:
        """Counts what had to go for something newer, if it is a delivery."""
        if isinstance(gone, Delivery):
            self.core.drops[Drop.SLOW_CONSUMER] += 1

    def _release(self, inbox: DeliveryInbox, now: float, has_read_all: bool) -> float | None:
        """Delivers what an inbox has held long enough; returns when more is due, None while nothing is.

        What is waited for may have arrived, and not have been read: then it waits once more as long at most.
        """
        sequencer = inbox.sequencer
        assert sequencer is not None
        for delivery in sequencer.release(now if has_read_all else now - sequencer.hold_s):
            self._put(inbox, delivery)
        return sequencer.next_timeout()


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _after_fork() -> None:
    for engine in _engines:
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)
