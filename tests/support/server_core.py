"""A server core, and datagrams that clients send it, for tests that speak to it directly."""

from collections.abc import Iterable, Sequence
from typing import Any

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.leasing import Price
from kcast.pubsub.limits import REPLY_BYTES_MAX
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import Mint, Quote, is_valid, price_bits

OWN: Address = ("192.0.2.1", 7400)
CLIENT: Address = ("198.51.100.1", 1000)
OTHER: Address = ("198.51.100.2", 1000)
THIRD: Address = ("2001:db8::3", 1000)
START = 1000.0
NONCE_MAX = b"n" * 22


class SteadyPrice(Price):
    """Asks what the operator asks, also where the table is full: most tests have tables of a few leases."""

    def quote(self, address: Address, now: float) -> Quote:
        return Quote(self.least_bits)


class SteadyServer(Server):
    make_price = SteadyPrice


def new_server(secret: int = 1, *, price_follows_load: bool = False, **options: Any) -> Server:
    kind = Server if price_follows_load else SteadyServer
    return kind(secret=bytes([secret]) * 32, **{"own_addresses": frozenset([OWN]), **options})


def open_server(**options: Any) -> Server:
    return new_server(open_to=lambda source: source[0].startswith("198.51.100."), **options)


def sent(transmits: Iterable[Transmit]) -> list[tuple[Address, bytes]]:
    """(destination, datagram) of all that is sent."""
    return [
        (destination, datagram)
        for data, segment_bytes, destinations, _ in transmits
        for destination in destinations
        for datagram in datagrams(data, segment_bytes)
    ]


def flushed(server: Server, now: float = START) -> list[Transmit]:
    """All that the server sends at once, slice by slice."""
    transmits = server.flush(now)
    while more := server.flush(now):
        transmits += more
    return transmits


def send(
    server: Server, datagram: bytes, source: Address = CLIENT, now: float = START
) -> list[tuple[Address, bytes]]:
    """One datagram in; all that comes out, an answer first."""
    server.receive(Burst(datagram, len(datagram), source), now)
    back = flushed(server, now)
    return sent(sorted(back, key=lambda transmit: not transmit.is_answer))


def answer(
    server: Server, datagram: bytes, source: Address = CLIENT, now: float = START
) -> list[wire.Reply | None]:
    """The control lines that a datagram is answered with; there is nothing else but copies."""
    server.receive(Burst(datagram, len(datagram), source), now)
    back = [text for where, text in sent(flushed(server, now)) if where == source and text.startswith(b"%")]
    assert len(back) <= 1, "at most one datagram answers one (§5.2)"
    assert all(len(text) <= min(len(datagram), REPLY_BYTES_MAX) for text in back)
    return [wire.parse_reply(line) for text in back for line in wire.split_lines(text)[0]]


def ask(nonce: bytes = b"A") -> bytes:
    return wire.request_datagram(wire.Ask(nonce))


def handshake(server: Server, address: Address = CLIENT, now: float = START) -> bytes:
    """A cookie for the address."""
    (challenge,) = answer(server, ask(), address, now)
    assert isinstance(challenge, wire.Challenge)
    return challenge.cookie


def vouched(cookie: bytes, *lines: bytes, nonce: bytes = b"V", stamp: bytes | None = None) -> bytes:
    return wire.request_datagram(wire.Vouch(nonce, cookie, stamp), [line + b"\n" for line in lines])


def minted(cookie: bytes, topics: Sequence[bytes], bits: int) -> bytes:
    """A stamp worth so many bits."""
    stamp = Mint(cookie, topics, bits).work(100 << bits)
    assert stamp is not None
    return stamp


def exactly(cookie: bytes, topics: Sequence[bytes], bits: int) -> bytes:
    """A stamp that is worth so many bits and no more."""
    for number in range(1 << bits + 6):
        stamp = b"%x" % number
        if is_valid(stamp, cookie, topics, bits) and not is_valid(stamp, cookie, topics, bits + 1):
            return stamp
    raise AssertionError("no such stamp")


def lease(server: Server, address: Address, *topics: bytes, now: float = START) -> None:
    """Leases on these topics, by the whole procedure."""
    cookie = handshake(server, address, now)
    price = price_bits(server.work_bits, len(topics))
    stamp = minted(cookie, topics, price) if price else None
    (receipt,) = answer(server, vouched(cookie, *topics, stamp=stamp), address, now)
    assert isinstance(receipt, wire.Receipt)


def publish_lease(server: Server, address: Address = CLIENT, now: float = START) -> None:
    lease(server, address, now=now)
    assert server.publish_leases.left_s(address, now) > 0


def publish(server: Server, *lines: bytes, source: Address = CLIENT, now: float = START) -> None:
    """Publishes that are vouched for, with their receipt."""
    (receipt,) = answer(server, vouched(handshake(server, source, now), *lines), source, now)
    assert isinstance(receipt, wire.Receipt)
