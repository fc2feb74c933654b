"""loadtest/clusters/gate.py: a socket that is cut off takes in nothing and lets nothing out."""

from collections.abc import Iterator

import pytest

from kcast.loadtest.clusters.gate import Gate, cut_off
from kcast.pubsub.endpoint import Transmit, datagrams
from kcast.pubsub.udp import UdpPort, open_socket


@pytest.fixture
def flags() -> bytearray:
    return bytearray(3)


@pytest.fixture
def gate(flags: bytearray) -> Iterator[Gate]:
    port = Gate(open_socket("127.0.0.1", 0), flags, 1)
    yield port
    port.close()


@pytest.fixture
def peer() -> Iterator[UdpPort]:
    with UdpPort(open_socket("127.0.0.1", 0)) as port:
        yield port


def received(port: UdpPort) -> list[bytes]:
    return [each for burst in port.receive() for each in datagrams(burst.data, burst.segment_bytes)]


def test_an_open_gate_is_a_port(gate: Gate, peer: UdpPort) -> None:
    peer.send([Transmit(b"abcdef", 2, [gate.address])])
    assert received(gate) == [b"ab", b"cd", b"ef"]
    gate.send([Transmit(b"123", 2, [peer.address])])
    assert received(peer) == [b"12", b"3"]
    assert cut_off([gate]) == 0


def test_what_comes_meanwhile_is_lost_and_counted(gate: Gate, peer: UdpPort, flags: bytearray) -> None:
    flags[1] = 1
    peer.send([Transmit(b"abcdef", 2, [gate.address]), Transmit(b"g", 2, [gate.address])])
    assert received(gate) == []
    assert gate.cut_off == 4
    flags[1] = 0
    assert received(gate) == []
    peer.send([Transmit(b"late", 9, [gate.address])])
    assert received(gate) == [b"late"]
    assert gate.cut_off == 4


def test_what_leaves_meanwhile_is_lost_and_counted(gate: Gate, peer: UdpPort, flags: bytearray) -> None:
    flags[1] = 1
    gate.send([Transmit(b"abcde", 2, [peer.address, peer.address]), Transmit(b"f", 2, [peer.address])])
    assert gate.cut_off == 7
    flags[1] = 0
    assert received(peer) == []
    gate.send([Transmit(b"late", 9, [peer.address])])
    assert received(peer) == [b"late"]
    assert cut_off([gate, peer]) == 7


def test_the_flags_of_others_do_not_matter(gate: Gate, peer: UdpPort, flags: bytearray) -> None:
    flags[0] = flags[2] = 1
    peer.send([Transmit(b"here", 9, [gate.address])])
    assert received(gate) == [b"here"]
