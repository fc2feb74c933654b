"""client/driving/resolver.py: lookups beside the turns; resolvers are slow, fail, or say odd things."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kcast.client.driving import resolver as resolvers
from kcast.client.driving.resolver import (
    LOOKUP_TIMEOUT_S,
    LOOKUPS_MAX,
    Named,
    Resolver,
    addresses_of,
    present_families,
    usable_families,
)
from kcast.pubsub.endpoint import Address
from tests.support.driver_suite import lacking
from tests.support.serve_process import NEEDS_IPV6
from tests.support.waiting import wait_until

A: Named = ("a.example", 7400)
B: Named = ("b.example", 7400)
HERE: Address = ("127.0.0.1", 7400)


class Slow:
    """A resolver that answers when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked: list[Named] = []

    def __call__(self, named: Named) -> list[Address]:
        self.asked.append(named)
        self.let.wait(30)
        return [HERE]


@contextmanager
def slow() -> Iterator[Slow]:
    found = Slow()
    try:
        yield found
    finally:
        found.let.set()


def answers_of(resolver: Resolver, count: int, now: float) -> list[tuple[Named, tuple[Address, ...]]]:
    """Waits for so many answers."""
    found: list[tuple[Named, tuple[Address, ...]]] = []

    def has_come() -> bool:
        found.extend(resolver.answers(now))
        return len(found) >= count

    wait_until(has_come)
    return found


def test_answer_comes_in_a_later_turn() -> None:
    with slow() as look_up:
        resolver = Resolver(look_up)
        resolver.ask([A], 0.0)
        assert resolver.answers(1.0) == [] and resolver.next_timeout(1.0) is not None
        look_up.let.set()
        found = answers_of(resolver, 1, 1.0)
    assert found == [(A, (HERE,))]
    assert resolver.next_timeout(1.0) is None


def test_lookup_that_takes_too_long_has_failed_but_its_answer_is_taken_later() -> None:
    with slow() as look_up:
        resolver = Resolver(look_up)
        resolver.ask([A], 0.0)
        assert resolver.answers(LOOKUP_TIMEOUT_S) == [(A, ())]
        assert resolver.next_timeout(LOOKUP_TIMEOUT_S) is None
        resolver.ask([A], 10.0)
        look_up.let.set()
        found = answers_of(resolver, 1, 10.0)
    assert look_up.asked == [A], "no second thread waits for the same name"
    assert found == [(A, (HERE,))]


def test_few_run_at_a_time_and_those_that_wait_fail_in_time_too() -> None:
    names = [(f"{n}.example", 1) for n in range(2 * LOOKUPS_MAX)]
    with slow() as look_up:
        resolver = Resolver(look_up)
        resolver.ask(names, 0.0)
        wait_until(lambda: len(look_up.asked) == LOOKUPS_MAX)
        assert sorted(resolver.answers(LOOKUP_TIMEOUT_S)) == sorted((name, ()) for name in names)
        look_up.let.set()
        assert len(answers_of(resolver, len(names), 6.0)) == len(names)


def test_what_finds_no_thread_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails in time, is looked up as soon as there is one, and is asked for anew like any other."""
    resolver = Resolver(lambda named: [HERE])

    def start_new_thread(*_: Any) -> int:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("_thread.start_new_thread", start_new_thread)
        resolver.ask([A, B], 0.0)
        assert resolver.answers(1.0) == [] and resolver.next_timeout(1.0) is not None
        assert sorted(resolver.answers(LOOKUP_TIMEOUT_S)) == [(A, ()), (B, ())]
        resolver.ask([A], 10.0)
    assert sorted(answers_of(resolver, 2, 10.0)) == [(A, (HERE,)), (B, (HERE,))]
    resolver.ask([A], 20.0)
    assert answers_of(resolver, 1, 20.0) == [(A, (HERE,))]


def test_what_the_system_says_is_an_address_of_each_family_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of each: but none with a scope, and IPv4 in IPv6's clothes is IPv4."""
    said = ["127.0.0.2", "127.0.0.3", "::ffff:127.0.0.4", "fe80::1%eth0", "::1"]

    def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        assert (host, port) == A
        return [(0, 0, 0, "", (text, port)) for text in said]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(resolvers, "usable_families", lambda servers: (4, 6))
    assert addresses_of(A) == (("127.0.0.2", 7400), ("::1", 7400))
    monkeypatch.setattr(resolvers, "usable_families", lambda servers: (4,))
    assert addresses_of(A) == (("127.0.0.2", 7400),)
    said[:] = ["::ffff:127.0.0.4"]
    assert addresses_of(A) == (("127.0.0.4", 7400),)
    said.clear()
    assert addresses_of(A) == ()


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")]
)
def test_name_that_does_not_resolve(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert addresses_of(A) == ()


pytestmark = pytest.mark.world

LOOPBACK: Address = ("127.0.0.1", 9)
UNROUTABLE: Address = ("fe80::1", 9)  # says nothing without an interface


def test_families_that_the_system_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 4 in present_families()
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET6))
    assert present_families() == (4,)


@pytest.mark.parametrize(
    ("servers", "families"),
    [
        ([[LOOPBACK]], (4,)),
        ([[LOOPBACK, UNROUTABLE]], (4,)),
        ([[UNROUTABLE], [LOOPBACK]], (4,)),
        # There is no way at all: the network may come up later.
        pytest.param([[UNROUTABLE]], (6,), marks=NEEDS_IPV6),
        ([], ()),
    ],
)
def test_families_are_those_by_which_some_server_has_a_route(
    servers: list[list[Address]], families: tuple[int, ...]
) -> None:
    assert usable_families(servers) == families


def test_families_that_the_system_lacks_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET6))
    assert usable_families([[("::1", 9), LOOPBACK], [("::1", 9)]]) == (4,)
    assert usable_families([[("::1", 9)]]) == ()
    monkeypatch.setattr(socket, "socket", lacking(socket.AF_INET, socket.AF_INET6))
    assert usable_families([[LOOPBACK]]) == ()


def test_to_look_for_families_sends_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        assert usable_families([[listening.getsockname()]]) == (4,)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(1)
