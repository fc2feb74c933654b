"""client/driving/engine.py: families, closing, forks, slices of minting; without any driver."""

import logging
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from kcast.client.cluster import format_cluster, lab
from kcast.client.clusters.facts import ListState
from kcast.client.clusters.watch import Change, Listen, News
from kcast.client.core import ClientCore
from kcast.client.driving.engine import Engine
from kcast.client.driving.inbox import DeliveryInbox, Inbox
from kcast.client.driving.own_address import LOOK_INTERVAL_S, OwnAddress
from kcast.client.errors import ClientClosed
from kcast.client.events import (
    AllServersLost,
    Delivery,
    Event,
    FamilyMissing,
    LeaseRefused,
    LeasesChanged,
    MachineSuspended,
    Published,
)
from kcast.hashring.policy import Policy
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Address, Burst, Endpoint, Transmit
from kcast.pubsub.udp import UdpPort, open_socket
from kcast.pubsub.wire import TopicError
from tests.support.client_paths import Through
from tests.support.driver_suite import lacking
from tests.support.serve_process import NEEDS_IPV6
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

ONE = Policy(1, 1, 1)
NOBODY = lab([("127.0.0.1", 9)], ONE)
LOOPBACK: Address = ("127.0.0.1", 9)
UNROUTABLE: Address = ("fe80::1", 9)  # says nothing without an interface


class Bell:
    """Counts how often it woke somebody up."""

    def __init__(self) -> None:
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        function(item)


def box(hold_s: float = 0.0) -> DeliveryInbox:
    return DeliveryInbox(Bell(), 10, hold_s)


def flood(monkeypatch: pytest.MonkeyPatch, engine: Engine, *, has_more: bool = True) -> None:
    """Lets something have arrived at each turn, and perhaps more than it takes."""
    monkeypatch.setattr(engine._port, "receive", lambda: [Burst(b"x\n", 2, UNROUTABLE)])
    monkeypatch.setattr(UdpPort, "has_more", has_more)


@contextmanager
def opened(**options: Any) -> Iterator[Engine]:
    engine = Engine(NOBODY, usage="with it:", **options)
    engine.open()
    try:
        yield engine
    finally:
        engine.close()


# --- Families -----------------------------------------------------------------------------------------


def test_server_of_a_lacking_family_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET6))
    engine = Engine(lab([("::1", 9)], ONE), usage="with it:")
    engine.open()
    events: Inbox[Event] = Inbox(Bell(), 10)
    engine.listen(events)
    engine.subscribe([b"t"], box())
    engine.turn()
    engine.close()
    assert list(events.items) == [FamilyMissing("[::1]:9", 6), AllServersLost(1)]


@pytest.mark.parametrize(
    ("address", "family"),
    [(LOOPBACK, socket.AF_INET), pytest.param(UNROUTABLE, socket.AF_INET6, marks=NEEDS_IPV6)],
)
def test_socket_is_of_ipv6_only_where_that_is_used(address: Address, family: int) -> None:
    engine = Engine(lab([address], ONE), usage="with it:")
    engine.open()
    assert engine._port._socket.family == family
    engine.close()


@NEEDS_IPV6
def test_file_may_come_to_have_servers_of_the_other_family(tmp_path: Path) -> None:
    path = tmp_path / "a.cluster"
    path.write_text(format_cluster(NOBODY))
    engine = Engine(path, usage="with it:")
    engine.open()
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as server:
        server.bind(("::1", 0))
        server.settimeout(20.0)
        engine._take(Change(lab([server.getsockname()[:2]], ONE)), clock.now())
        engine.subscribe([b"t"], box())
        engine.turn()
        data, (host, port, *_) = server.recvfrom(2000)
        assert data.startswith(b"%") and (host, port) == ("::1", engine.local_port)
    engine.close()


# --- Opening and closing ------------------------------------------------------------------------------


def test_wall_clock_counts_for_a_message_even_before_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have slept since the last turn."""
    engine = Engine(NOBODY, usage="with it:")
    engine.open()
    try:
        engine.turn()
        engine.core.adopt(replace(NOBODY, salt=b"coming"), clock.now(), 4_000_000_000.0)
        monkeypatch.setattr("kcast.client.driving.engine.time", lambda: 4_000_000_100.0)
        assert engine.cluster.salt == NOBODY.salt
        engine.publish(Future(), "t", "x", {})
        assert engine.cluster.salt == b"coming"
    finally:
        engine.close()


def test_names_of_publishers_differ_and_can_be_given() -> None:
    assert len({Engine(NOBODY, usage="").core.publisher for _ in range(50)}) == 50
    assert Engine(NOBODY, usage="", publisher="me").core.publisher == "me"


def test_closing_closes_what_the_driver_had_opened_and_keeps_what_was_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(NOBODY, usage="with it:")
    with pytest.raises(ClientClosed, match="is not open: use with it:"):
        engine.require_open()
    assert engine.kernel_drops == 0
    engine.open()
    monkeypatch.setattr(type(engine._port), "overflow_count", 7)
    closed: list[str] = []
    engine.resources.callback(closed.append, "the driver's")
    engine.close()
    engine.close()
    assert closed == ["the driver's"]
    assert engine.kernel_drops == 7
    with pytest.raises(ClientClosed, match="has been open before"):
        engine.open()


def test_open_engine_of_a_parent_is_of_no_use_in_a_forked_process() -> None:
    """§9.1: and the publisher there has another name, else two would number different messages alike."""
    with opened() as engine:
        unopened = Engine(NOBODY, usage="with it:")
        engine.core.publish(b"t", b"x", 0.0)
        names = engine.core.publisher, unopened.core.publisher
        fd = engine.fileno()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.fstat(fd)
                is_closed = False
            except OSError:
                is_closed = True
            unopened.open()
            told = (
                engine.core.publisher,
                unopened.core.publisher,
                engine.is_open,
                unopened.is_open,
                is_closed,
            )
            os.write(writer, " ".join(map(str, told)).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        *renewed, is_usable, is_other_usable, is_let_go = os.read(reader, 100).decode().split()
        os.close(reader)
        assert len({*names, *renewed}) == 4
        assert (is_usable, is_other_usable, is_let_go) == ("False", "True", "True")
        assert (engine.core.publisher, unopened.core.publisher) == names
        os.fstat(fd)
        engine.turn()


# --- Inboxes ------------------------------------------------------------------------------------------


def test_listener_hears_until_it_is_dropped_or_ignored() -> None:
    with opened() as engine:
        heard, ignored, dropped = (Inbox[Event](Bell(), 10) for _ in range(3))
        for inbox in (heard, ignored, dropped):
            engine.listen(inbox)
        engine.recipients.ignore(ignored)
        del dropped, inbox
        event: Event = LeasesChanged(b"t", 0, 1)
        engine.tell((event,), 0.0)
        assert (list(heard.items), list(ignored.items)) == ([event], [])
        assert engine.recipients._streams.listening() == [heard]


def test_what_is_held_is_let_go_in_time_and_at_the_end() -> None:
    with opened() as engine:
        inbox = box(hold_s=0.5)
        engine.subscribe([b"t"], inbox)
        for seq, now in ((2, 0.0), (4, 0.3)):
            engine.tell((Delivery(b"t", b"", "s", "p", seq),), now)
        assert (engine.recipients.release(0.4, True), len(inbox.items)) == (0.5, 0)
        assert engine.recipients.release(0.5, True) == 0.8
        assert [delivery.seq for delivery in inbox.items] == [2]
        engine.unsubscribe([b"t"], inbox)
        assert [delivery.seq for delivery in inbox.items] == [2, 4]
        assert engine.recipients.release(0.8, True) == inf


@pytest.mark.parametrize(
    ("held_s", "has_more", "is_let_go"), [(0.6, True, False), (0.6, False, True), (1.1, True, True)]
)
def test_what_is_held_waits_for_what_has_arrived_but_is_not_read_yet(
    monkeypatch: pytest.MonkeyPatch, held_s: float, has_more: bool, is_let_go: bool
) -> None:
    with opened() as engine:
        inbox = box(hold_s=0.5)
        engine.subscribe([b"t"], inbox)
        engine.tell((Delivery(b"t", b"", "s", "p", 2),), time.monotonic() - held_s)
        flood(monkeypatch, engine, has_more=has_more)
        engine.turn()
        assert len(inbox.items) == is_let_go


# --- Turns --------------------------------------------------------------------------------------------


def test_deliveries_are_taken_before_answers_and_no_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    with opened() as engine:
        monkeypatch.setattr(engine._endpoint, "receive", lambda burst, _: seen.append(burst.data))
        copy, answer = Burst(b"t m\n", 4, LOOPBACK), Burst(b"%+ n\n", 5, LOOPBACK)
        monkeypatch.setattr(engine._port, "receive", lambda: [answer, copy, answer])
        engine.take_in()
        assert seen == [copy.data]
        engine.take_in()  # something may arrive again before the rest of the turn
        assert seen == [copy.data] * 2
        monkeypatch.setattr(engine._port, "receive", lambda: [])
        engine.turn()
        assert seen == [copy.data] * 2 + [answer.data] * 4
        monkeypatch.setattr(engine._port, "receive", lambda: [answer])
        engine.take_in()
        assert seen[6:] == [answer.data], "alone it waits for nothing"


def test_what_can_leave_leaves_at_once_and_its_outcome_is_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        engine = Engine(lab([server.getsockname()], ONE), usage="with it:")
        engine.open()
        try:
            outcome: Future[Published] = Future()
            engine.publish(outcome, "t", "x", {})
            delay_s = engine.send_at_once()
            assert server.recv(2000).startswith(b"%? "), "it asks for a cookie, with no turn"
            assert delay_s is not None and 0 < delay_s <= 1.0 and not outcome.done()
        finally:
            engine.close()


def test_turn_tells_when_the_next_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as engine:
        assert engine.turn() is None
        due_at = time.monotonic() + 5.0
        monkeypatch.setattr(engine.core, "next_timeout", lambda: due_at)
        delay_s = engine.turn()
        assert delay_s is not None
        assert 0.0 < delay_s <= 5.0
        due_at = 0.0
        assert engine.turn() == 0.0


def test_answer_that_comes_while_the_machine_is_busy_is_not_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come after the reading, and long before the thread has its next moment."""
    overdue_at: list[float] = []
    with opened() as engine:
        time_s = clock.now()
        monkeypatch.setattr(clock, "now", lambda: time_s)
        monkeypatch.setattr(engine.core, "handle_timeout", overdue_at.append)

        def read_slowly() -> list[Burst]:
            nonlocal time_s
            time_s += 3.0
            return []

        monkeypatch.setattr(engine._port, "receive", read_slowly)
        engine.turn()
        assert overdue_at == [time_s - 3.0]


def test_answer_that_is_not_read_yet_is_not_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """But a flood, of which something is always left, puts that off for half a second only."""
    overdue_at: list[float] = []
    with opened() as engine:
        began_at = time_s = clock.now()
        monkeypatch.setattr(clock, "now", lambda: time_s)
        monkeypatch.setattr(engine.core, "handle_timeout", overdue_at.append)
        engine.turn()
        flood(monkeypatch, engine)
        for after_s in (0.1, 0.4, 0.6, 0.9, 1.2):
            time_s = began_at + after_s
            engine.turn()
    assert [round(at - began_at, 3) for at in overdue_at] == [0.0, 0.6, 1.2]


def test_turns_follow_each_other_so_that_a_suspension_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer of whoever waits stands still meanwhile."""
    with opened() as engine:
        monkeypatch.setattr(engine.core, "next_timeout", lambda: clock.now() + 1000.0)
        assert engine.turn() == clock.LOOK_S


def test_a_suspension_is_told_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    suspended_s, now, watch = 0.0, clock.now, clock.SuspensionWatch
    monkeypatch.setattr(clock, "now", lambda: now() + suspended_s)
    monkeypatch.setattr(clock, "SuspensionWatch", lambda: watch(lambda: suspended_s))
    with opened() as engine, caplog.at_level(logging.INFO, "kcast.client"):
        inbox: Inbox[Event] = Inbox(Bell(), 10)
        engine.listen(inbox)
        engine.turn()
        suspended_s = 3600.0
        engine.turn()
        engine.turn()
        assert [event for event in inbox.items if isinstance(event, MachineSuspended)] == [
            MachineSuspended(3600.0)
        ]
    assert "this machine was suspended for 3600 s" in caplog.messages


def test_another_address_of_this_machine_has_all_servers_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found, moved = "198.51.100.1", list[float]()
    with opened() as engine:
        monkeypatch.setattr(engine, "_own_address", own := OwnAddress(lambda _: found))
        monkeypatch.setattr(engine.core.sessions, "leased_at", lambda: [("192.0.2.1", 9)])
        monkeypatch.setattr(engine.core.checks, "ask_all", moved.append)
        assert (engine.turn() or inf) <= LOOK_INTERVAL_S
        found = "198.51.100.2"
        engine.turn()
        assert not moved, "it is looked at each second"
        own.look_at = -inf
        engine.turn()
        assert len(moved) == 1


def test_minting_takes_slices_of_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls, stop_at = 100.0, 0, 1000

    def clock() -> float:
        return now

    def work(core: ClientCore, tries: int, now_: float) -> bool:
        nonlocal now, calls
        assert now_ == now
        now += 0.0004
        calls += 1
        return calls < stop_at

    monkeypatch.setattr("kcast.pubsub.clock.now", clock)
    monkeypatch.setattr(ClientCore, "work", work)
    with opened() as engine:
        engine.mint()
        assert calls == 4, "begun at 0, 0.4, 0.8 and 1.2 ms"
        calls, stop_at = 0, 2
        engine.mint()
        assert calls == 2, "it was found"


# --- Paths --------------------------------------------------------------------------------------------


class Booked(Through):
    """Books what is called."""

    def __init__(self, core: Endpoint, calls: list[str]) -> None:
        super().__init__(core)
        self.calls = calls

    def receive(self, burst: Burst, now: float) -> None:
        self.calls.append("receive")
        super().receive(burst, now)

    def handle_timeout(self, now: float) -> None:
        self.calls.append("handle_timeout")
        super().handle_timeout(now)

    def next_timeout(self) -> float | None:
        self.calls.append("next_timeout")
        return super().next_timeout()

    def flush(self, now: float) -> list[Transmit]:
        self.calls.append("flush")
        return super().flush(now)


def arriving(engine: Engine, *datagrams: bytes) -> None:
    """Has these arrive at its socket."""
    with UdpPort(open_socket("127.0.0.1", 0)) as port:
        port.send([Transmit(data, len(data), [("127.0.0.1", engine.local_port)]) for data in datagrams])
    wait_until(lambda: bool(select.select([engine.fileno()], [], [], 0.0)[0]))


def test_all_that_comes_goes_and_falls_due_does_so_through_the_path() -> None:
    calls: list[str] = []
    paths: list[Booked] = []

    def make(core: Endpoint) -> Booked:
        paths.append(Booked(core, calls))
        return paths[-1]

    with opened(path=make) as engine:
        assert paths[0].core is engine.core
        engine.core.publish(b"t", b"x", time.monotonic())
        engine.turn()
        assert calls == ["handle_timeout", "flush", "next_timeout"]
        assert paths[0].sent[0].destinations == (LOOPBACK,)
        calls.clear()
        arriving(engine, b"a")
        engine.turn()
        assert calls == ["receive", "handle_timeout", "flush", "next_timeout"]
        assert engine.core.counts["datagrams_received"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's timestamps")
@pytest.mark.parametrize("kernel_times", [False, True])
def test_path_sees_when_the_kernel_took_what_came(kernel_times: bool) -> None:
    paths: list[Through] = []

    def make(core: Endpoint) -> Through:
        paths.append(Through(core))
        return paths[-1]

    with opened(path=make, kernel_times=kernel_times) as engine:
        before_ns = time.time_ns()
        arriving(engine, b"a")
        engine.turn()
        (burst,) = paths[0].received
        assert (before_ns <= burst.kernel_ns <= time.time_ns()) if kernel_times else not burst.kernel_ns


# --- kcast's own topics -------------------------------------------------------------------------------


class Ear:
    """A watch that listens on one of kcast's own topics."""

    def __init__(self, topic: bytes) -> None:
        self.look_at = 0.0
        self.heard: list[tuple[bytes, bytes]] = []
        self._topic = topic

    def look(self, now: float) -> Sequence[News]:
        self.look_at = inf
        return [Listen((self._topic,))]

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        self.heard.append((topic, payload))

    def state(self) -> ListState | None:
        return None

    def close(self) -> None:
        pass


def test_what_comes_on_topics_of_kcasts_own_is_nobodys_delivery() -> None:
    """Neither a stream of all subscriptions nor the events have it, nor what tells of its leases."""
    own = b"\0list/example"
    ear = Ear(own)
    with opened() as engine:
        engine._watches.add(ear)
        engine.turn()
        everything, subscription, events = Inbox[Any](Bell(), 10), box(), Inbox[Event](Bell(), 10)
        engine.merge(everything, ())
        engine.subscribe([b"t"], subscription)
        engine.listen(events)
        with pytest.raises(TopicError, match="such topics are kcast's own"):
            engine.subscribe([own], box())
        users = Delivery(b"t", b"for users", "192.0.2.1:7400")
        told = LeasesChanged(b"t", 1, 1)
        for event in (
            *(Delivery(own, b"a checkpoint", "192.0.2.1:7400"), LeasesChanged(own, 1, 1)),
            *(LeaseRefused(own, "192.0.2.1:7400", "full"), users, told),
        ):
            engine.tell((event,), 0.0)
        assert ear.heard == [(own, b"a checkpoint")]
        assert list(everything.items) == [users]
        assert list(events.items) == [told]
