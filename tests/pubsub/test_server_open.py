"""pubsub/server.py: open servers, and that nothing forged sets them talking to each other. PROTOCOL §4.4."""

import random
from collections.abc import Callable

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, Limits
from kcast.pubsub.server import Server
from tests.support.forms import Seeds
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    THIRD,
    flushed,
    handshake,
    lease,
    new_server,
    open_server,
    publish_lease,
    send,
    sent,
    vouched,
)


@pytest.fixture
def server() -> Server:
    return open_server()


# --- By hand ------------------------------------------------------------------------------------------


def test_open_server_speaks_the_note_as_it_stands() -> None:
    """§4.4"""
    server = open_server(limits=Limits(leases=2))
    assert send(server, b"t\n") == []
    assert send(server, b"t m\n", OTHER) == [(CLIENT, b"\nt m\n")]
    assert send(server, b"u\nv\n%41\n", OTHER) == []
    assert server.drops == {Drop.FULL: 1, Drop.TOPIC: 1}
    server.handle_timeout(START + 60)
    assert send(server, b"t m\n", OTHER, START + 60) == []


def test_open_server_is_open_to_some_only(server: Server) -> None:
    """§4.4"""
    assert send(server, b"t\nt m\n", ("203.0.113.1", 1)) == []
    assert server.drops == {Drop.UNVOUCHED_SUBSCRIBE: 1, Drop.UNVOUCHED_PUBLISH: 1}
    lease(server, THIRD, b"t")
    assert send(server, b"t m\n") == [(THIRD, b"\nt m\n")]


def test_what_nc_sends_and_shows(server: Server) -> None:
    """A line a datagram, as a terminal gives them; the copy is one blank line and the message."""
    for line in (b"weather\n", b"\n", b"weather\n"):
        assert send(server, line) == []
    for line in (b"weather rain\n", b"weather  \n", b"weather %\n"):
        assert send(server, b"\n", OTHER) == []
        assert send(server, line, OTHER) == [(CLIENT, b"\n" + line)]
    assert send(server, b"weather a\nweather b\n", OTHER) == [(CLIENT, b"\nweather a\nweather b\n")]
    assert server.drops == {Drop.EMPTY: 4}


# --- The mark -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [CLIENT, THIRD])
@pytest.mark.parametrize("datagram", [b"\nt m\n", b"\n\n\nt m\n", b"\nt\nt m\n", b"\nt m\n%~ N\n"])
def test_bare_publishes_behind_a_blank_line_are_not_forwarded(
    source: Address, datagram: bytes, server: Server
) -> None:
    """§4.4: neither for those it is open to, nor for who has a publish lease; all else in it counts."""
    lease(server, OTHER, b"t")
    publish_lease(server, source)
    back = send(server, datagram, source)
    assert [data for _, data in back] == [b"%: N 60\n"] * (b"%~" in datagram)
    assert server.drops[Drop.COPY] == 1
    assert server.counts["messages_received"] == 0


def test_vouched_publishes_are_forwarded_whatever_they_begin_with(server: Server) -> None:
    """No copy can begin with a vouch line: none has a topic that begins so."""
    lease(server, OTHER, b"t")
    datagram = b"\n" + vouched(handshake(server), b"t m")
    assert (OTHER, b"\nt m\n") in send(server, datagram)
    assert not server.drops


def test_other_servers_mark_nothing_and_take_what_is_marked() -> None:
    server = new_server()
    lease(server, OTHER, b"t")
    publish_lease(server)
    assert send(server, b"\nt m\n") == [(OTHER, b"t m\n")]


@pytest.mark.parametrize(("line_bytes", "fits"), [(1198, True), (1199, False)])
def test_line_that_is_too_long_with_the_mark_is_counted(line_bytes: int, fits: bool, server: Server) -> None:
    """§2.1: and nothing is sent in its place."""
    send(server, b"t\n", OTHER)
    line = b"t ".ljust(line_bytes, b"m") + b"\n"
    assert send(server, line) == ([(OTHER, b"\n" + line)] if fits else [])
    assert server.drops == ({} if fits else {Drop.OVERSIZE: 1})


CONTROL_BYTES = [byte for byte in range(256) if byte < 0x20 or byte == 0x7F]


@pytest.mark.parametrize("is_vouched", [False, True])
def test_lines_with_control_bytes_are_dropped_and_no_others(is_vouched: bool, server: Server) -> None:
    """§4.4: whatever the way they come, and whoever sends them; the rest of their datagram counts."""
    send(server, b"t\n", OTHER)
    cookie = handshake(server)
    for byte in sorted({*range(256)} - set(b"\n")):
        line = b"t a%bz" % bytes([byte])
        lines = [b"t before", line, b"t behind"]
        datagram = vouched(cookie, *lines) if is_vouched else b"\n".join(lines) + b"\n"
        copies = b"".join(data for where, data in send(server, datagram) if where == OTHER)
        expected = [b"t before", b"t behind"] if byte in CONTROL_BYTES else lines
        assert copies == b"\n" + b"\n".join(expected) + b"\n", byte
    assert server.drops == {Drop.CONTROL_BYTE: 32}
    assert server.counts["messages_received"] == 3 * 255 - 32


def test_burst_with_control_bytes_is_dropped(server: Server) -> None:
    """§4.4: not even one that could be forwarded as it came."""
    send(server, b"t\n", OTHER)
    publish_lease(server)
    server.receive(Burst(b"t \x1b1\nt \x1b2\n", 5, CLIENT), START)
    assert flushed(server) == []
    assert server.drops == {Drop.CONTROL_BYTE: 2}
    assert server.counts["messages_received"] == 0


def test_everything_canonical_passes(server: Server) -> None:
    """§3.2: no smart client loses a message, whatever its payload."""
    send(server, b"t\n", OTHER)
    for byte in range(256):
        line = wire.publish_line(b"t", wire.encode_message(bytes([byte])))
        assert send(server, line) == [(OTHER, b"\n" + line)]
    assert not server.drops


def test_others_than_open_servers_never_look_into_messages() -> None:
    """§3.2"""
    server = new_server()
    lease(server, OTHER, b"t")
    publish_lease(server)
    assert send(server, b"t \x1b\n") == [(OTHER, b"t \x1b\n")]


def test_bursts_are_not_forwarded_as_they_came(server: Server) -> None:
    """Each datagram of copies has its mark, and each that comes is looked at."""
    lease(server, OTHER, b"t")
    publish_lease(server)
    server.receive(Burst(b"t 1\n\nt 2\n\n\nt 3\nt 4\n\n", 5, CLIENT), START)
    assert sent(flushed(server)) == [(OTHER, b"\nt 1\nt 2\nt 4\n")]
    assert server.drops == {Drop.COPY: 1}


# --- Several open servers, and whoever can forge ------------------------------------------------------

ADDRESSES: list[Address] = [("198.51.100.11", 7400), ("198.51.100.12", 7400), ("198.51.100.13", 7400)]
TOPICS = [b"t", b"u", b"room/1", b"%00" * 85]


class Lab:
    """Open servers that reach each other, and nobody else: `waves` is how many datagrams they exchange after
    each forged one, wave after wave, until it is quiet or has gone on for `waves_max`."""

    def __init__(self, count: int, sabotage: Callable[[Server], None] = lambda server: None) -> None:
        self.servers = {
            address: Server(
                secret=bytes([number]) * 32, own_addresses=frozenset([address]), open_to=lambda source: True
            )
            for number, address in enumerate(ADDRESSES[:count])
        }
        for server in self.servers.values():
            sabotage(server)

    def forge(
        self, data: bytes, source: Address, destination: Address, segment_bytes: int = 0, waves_max: int = 6
    ) -> list[int]:
        """One burst from an address that is not the sender's, and what it sets off."""
        arriving = [(destination, Burst(data, segment_bytes or max(1, len(data)), source))]
        waves: list[int] = []
        while arriving and len(waves) < waves_max:
            for to, burst in arriving:
                self.servers[to].receive(burst, START)
            arriving = [
                (to, Burst(transmit.data, transmit.segment_bytes, address))
                for address, server in self.servers.items()
                for transmit in flushed(server)
                for to in transmit.destinations
                if to in self.servers
            ]
            waves.append(sum(-(-len(burst.data) // burst.segment_bytes) for _, burst in arriving))
        return waves

    def subscribe_all_to_all(self) -> None:
        """Each server's address at each other, to every topic: one forged datagram each."""
        for source in self.servers:
            for destination in self.servers:
                lines = b"".join(topic + b"\n" for topic in TOPICS)
                assert self.forge(lines, source, destination) == [0]
        for address, server in self.servers.items():
            assert len(server.leases) == (len(self.servers) - 1) * len(TOPICS)
            assert all(address not in server.leases.subscribers(topic, START) for topic in TOPICS)


def unmark(server: Server) -> None:
    """The same server without the mark on its copies."""
    egress = server._egress
    egress._mark = egress._first._mark = egress._round._mark = b""


def forged_line(rng: random.Random) -> bytes:
    topic = rng.choice([*TOPICS, *TOPICS, b"%41", b"nobody"])
    size = rng.choice((0, 1, 5, 100, 600, DATAGRAM_BYTES_MAX - len(topic) - 3, DATAGRAM_BYTES_MAX))
    return rng.choice((
        topic, topic + b" " + b"m" * size, topic + b" " + b"m" * size, topic + b" %@p.1 x",
        b"", b"", b"%? N", b"%~ N", b"%= N AAAA 0", b"%: N 7", b"%! N " + b"A" * 32 + b" -",
    ))  # fmt: skip


def forged_burst(rng: random.Random) -> tuple[bytes, int]:
    """Anything that could set off copies or answers, up to a burst as the kernel hands it over."""
    segment_bytes = rng.choice((8, 192, 600, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MAX))
    parts = []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        lines = b"".join(forged_line(rng) + b"\n" for _ in range(rng.choice((1, 1, 2, 4, 12))))
        parts.append(lines[:segment_bytes].ljust(segment_bytes, b"\n"))
    last = parts.pop()
    return b"".join(parts) + (last.rstrip(b"\n") + b"\n" if rng.random() < 0.5 else last), segment_bytes


@pytest.mark.parametrize("count", [2, 3])
def test_open_servers_exchange_no_more_than_the_first_copies(count: int, seeds: Seeds) -> None:
    """§4.4, §5.2: what a forged datagram sets off reaches another server once, and sets off nothing there."""
    for seed in seeds(1, 6):
        rng = random.Random(seed)
        lab = Lab(count)
        lab.subscribe_all_to_all()
        total = set_off = 0
        for _ in range(300):
            data, segment_bytes = forged_burst(rng)
            source, destination = rng.choice([*ADDRESSES[:count], CLIENT]), rng.choice(ADDRESSES[:count])
            waves = lab.forge(data, source, destination, segment_bytes)
            assert len(waves) <= 2, (data, segment_bytes)
            assert waves[1:] in ([], [0]), (data, segment_bytes)
            # Lines are put together, so that there are fewer datagrams than copies; and an answer for each.
            copies = (count - 1) * data.count(b"\n") + -(-len(data) // segment_bytes)
            assert waves[0] <= copies
            total += waves[0]
            set_off += waves[0] > 0
        assert set_off > 50, "the attack is one"
        received = sum(server.counts["datagrams_received"] for server in lab.servers.values())
        assert total < received
        assert sum(server.drops[Drop.COPY] for server in lab.servers.values()) > 50


@pytest.mark.parametrize(("count", "grows"), [(2, False), (3, True)])
def test_without_the_mark_they_loop(count: int, grows: bool) -> None:
    """Sabotage: the same lab sees it. Two servers go on for ever, three double it each time."""
    lab = Lab(count, unmark)
    lab.subscribe_all_to_all()
    waves = lab.forge(b"t " + b"m" * 300 + b"\n", CLIENT, ADDRESSES[0], waves_max=12)
    assert len(waves) == 12
    assert min(waves) > 0
    copies = sum(server.counts["copies_sent"] for server in lab.servers.values())
    assert copies > 1000 if grows else copies == 12


def test_one_server_with_the_mark_is_not_enough_and_each_protects_itself() -> None:
    """A server that marks does not forward what is marked; one that does not mark is the only one to."""
    lab = Lab(2)
    lab.subscribe_all_to_all()
    unmark(lab.servers[ADDRESSES[1]])
    waves = lab.forge(b"t m\n", CLIENT, ADDRESSES[1], waves_max=12)
    assert waves == [1, 1, 0], "forwarded once by each"


def test_attacker_with_a_good_cookie_sets_off_no_more() -> None:
    """Vouched publishes are forwarded, marked as others are."""
    lab = Lab(3)
    lab.subscribe_all_to_all()
    for address, server in lab.servers.items():
        datagram = b"\n" + vouched(handshake(server), b"t m", b"u " + b"m" * 900)
        assert lab.forge(datagram, CLIENT, address) == [2, 0]
