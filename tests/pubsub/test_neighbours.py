"""pubsub/neighbours.py: what the kernel tells, and what is made of any bytes."""

import ipaddress
import re
import socket
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcast.pubsub import neighbours
from kcast.pubsub.neighbours import Neighbours, ask_kernel, parse
from tests.support.namespaces import Namespace, need_namespaces
from tests.support.waiting import wait_until

INCOMPLETE, REACHABLE, STALE, FAILED, NOARP = 1, 2, 4, 32, 64


def attribute(kind: int, value: bytes) -> bytes:
    return (struct.pack("=HH", 4 + len(value), kind) + value).ljust(4 + (len(value) + 3 & ~3), b"\0")


def message(ip: str, state: int, *before: bytes, kind: int = 28) -> bytes:
    address = ipaddress.ip_address(ip)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    body = struct.pack("=BxxxiHBB", family, 2, state, 0, 1) + b"".join(before)
    body += attribute(1, address.packed) + attribute(3, bytes(20))
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


DONE = struct.pack("=IHHII", 20, 3, 2, 1, 0) + bytes(4)


def test_states_are_told_apart() -> None:
    states = {"192.0.2.1": INCOMPLETE, "192.0.2.2": REACHABLE, "192.0.2.3": STALE, "192.0.2.4": NOARP}
    states |= {"2001:db8::1": FAILED, "2001:db8::2": STALE, "192.0.2.5": 0}
    found = parse([b"".join(message(ip, state) for ip, state in states.items()), DONE])
    assert found.unresolved == {"192.0.2.1", "2001:db8::1"}
    assert found.resolved == {"192.0.2.2", "192.0.2.3", "192.0.2.4", "2001:db8::2"}


def test_who_answers_on_one_link_is_resolved() -> None:
    both = message("192.0.2.1", FAILED) + message("192.0.2.1", STALE)
    assert parse([both]) == Neighbours(frozenset({"192.0.2.1"}), frozenset())


@given(st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_are_read(parts: list[bytes]) -> None:
    found = parse(parts)
    assert not found.resolved & found.unresolved
    for part in parts:
        neighbours.is_last(part)


@pytest.mark.world
def test_the_kernel_tells_what_ip_tells() -> None:
    need_namespaces()
    with Namespace() as here, Namespace() as there:
        here.link("a", there, "b")
        here.add("a", "192.0.2.1/24", "2001:db8::1/64")
        there.add("b", "192.0.2.2/24", "2001:db8::2/64")
        here.run("ip", "neigh", "add", "192.0.2.7", "lladdr", "02:00:00:00:00:07", "dev", "a")

        def speak() -> None:
            for host in ("192.0.2.2", "192.0.2.3", "2001:db8::2", "2001:db8::3"):
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                with socket.socket(family, socket.SOCK_DGRAM) as sock:
                    sock.sendto(b"x", (host, 9))

        here.call(speak)
        silent, answering = {"192.0.2.3", "2001:db8::3"}, {"192.0.2.2", "192.0.2.7", "2001:db8::2"}

        def is_told() -> bool:
            told = here.call(ask_kernel)
            return told is not None and told.unresolved == silent and told.resolved >= answering

        wait_until(is_told)
        shown = here.run("ip", "neigh", "show", "nud", "all")
        for ips, states in (
            (silent, "INCOMPLETE|FAILED"),
            (answering, "REACHABLE|DELAY|STALE|PROBE|PERMANENT"),
        ):
            assert ips <= set(re.findall(rf"^(\S+) dev \S+ .*(?:{states})", shown, re.M))


@pytest.mark.world
@pytest.mark.skipif(sys.platform != "linux", reason="netlink is Linux's own")
def test_a_bound_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "ANSWER_BYTES_MAX", 0)
    assert ask_kernel() == Neighbours(frozenset(), frozenset())


@pytest.mark.parametrize(("number", "is_told"), [(-95, False), (0, True)])
def test_a_kernel_that_refuses_to_tell(monkeypatch: pytest.MonkeyPatch, number: int, is_told: bool) -> None:
    answer = struct.pack("=IHHIIi", 20, 2, 0, 1, 0, number)

    class Refusing:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> "Refusing":
            return self

        def __exit__(self, *_: object) -> None: ...

        def send(self, data: bytes) -> None: ...

        def recv(self, size: int) -> bytes:
            return answer

    monkeypatch.setattr(socket, "socket", Refusing)
    assert (ask_kernel() is not None) is is_told


def test_where_there_is_no_netlink_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refuse)
    assert ask_kernel() is None
