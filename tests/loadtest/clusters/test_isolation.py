"""loadtest/clusters/host_common.py: a socket that is cut off receives and sends nothing."""

from collections.abc import Iterator

import pytest

from kcast.loadtest.clusters.host_common import IsolatablePort, count_cut_off
from kcast.pubsub.endpoint import Transmit, datagrams
from kcast.pubsub.udp import UdpPort, open_socket


@pytest.fixture
def flags() -> bytearray:
    return bytearray(3)


@pytest.fixture
def port(flags: bytearray) -> Iterator[IsolatablePort]:
    port = IsolatablePort(open_socket("127.0.0.1", 0), flags, 1)
    yield port
    port.close()


@pytest.fixture
def peer() -> Iterator[UdpPort]:
    with UdpPort(open_socket("127.0.0.1", 0)) as port:
        yield port


def received(port: UdpPort) -> list[bytes]:
    return [each for burst in port.receive() for each in datagrams(burst.data, burst.segment_bytes)]


def test_without_isolation_it_is_any_port(port: IsolatablePort, peer: UdpPort) -> None:
    peer.send([Transmit(b"abcdef", 2, [port.address])])
    assert received(port) == [b"ab", b"cd", b"ef"]
    port.send([Transmit(b"123", 2, [peer.address])])
    assert received(peer) == [b"12", b"3"]
    assert count_cut_off([port]) == 0


def test_what_comes_meanwhile_is_lost_and_counted(
    port: IsolatablePort, peer: UdpPort, flags: bytearray
) -> None:
    flags[1] = 1
    peer.send([Transmit(b"abcdef", 2, [port.address]), Transmit(b"g", 2, [port.address])])
    assert received(port) == []
    assert port.cut_off == 4
    flags[1] = 0
    assert received(port) == []
    peer.send([Transmit(b"late", 9, [port.address])])
    assert received(port) == [b"late"]
    assert port.cut_off == 4


def test_what_leaves_meanwhile_is_lost_and_counted(
    port: IsolatablePort, peer: UdpPort, flags: bytearray
) -> None:
    flags[1] = 1
    port.send([Transmit(b"abcde", 2, [peer.address, peer.address]), Transmit(b"f", 2, [peer.address])])
    assert port.cut_off == 7
    flags[1] = 0
    assert received(peer) == []
    port.send([Transmit(b"late", 9, [peer.address])])
    assert received(peer) == [b"late"]
    assert count_cut_off([port, peer]) == 7


def test_the_flags_of_others_do_not_matter(port: IsolatablePort, peer: UdpPort, flags: bytearray) -> None:
    flags[0] = flags[2] = 1
    peer.send([Transmit(b"here", 9, [port.address])])
    assert received(port) == [b"here"]
