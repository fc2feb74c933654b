"""Forged traffic: what anyone on the Internet can send, and what someone on the path can send again.

The attacker may claim any source address, sees all datagrams, and has an address of its own where it plays
by the rules when that helps. What it publishes counts as published, by it. It cannot guess secrets.
"""

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit
from tests.simulation.ledger import Boot, lines_of
from tests.simulation.network import Packet

if TYPE_CHECKING:
    from tests.simulation.world import World

BASE64URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
SPECIAL = (b"\n", b"\n\n", b" ", b"%", b"%!", b"%?", b"%~", b"%=", b"%+", b"%-", b"%:", b"%@", b"\0", b"\xff")


def token(rng: Random, length: int) -> bytes:
    return bytes(rng.choices(BASE64URL, k=length))


def mutated(rng: Random, data: bytes) -> bytes:
    """These bytes with a few changes: flipped, cut, doubled, or something special put in."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(changed))
        match rng.randrange(5):
            case 0:
                changed[at : at + 1] = bytes((rng.randrange(256),))
            case 1:
                del changed[at : at + rng.randint(1, 40)]
            case 2:
                changed[at:at] = rng.choice(SPECIAL)
            case 3:
                changed[at:at] = changed[at : at + rng.randint(1, 60)]
            case _:
                changed += b"\n" * rng.randint(1, 200)
    return bytes(changed)


def made_line(rng: Random, topics: list[bytes]) -> bytes:
    """A line by the grammar, or nearly."""
    topic = wire.encode_topic(rng.choice(topics))
    nonce = token(rng, rng.choice((1, 11, 22, 23)))
    cookie = token(rng, rng.choice((31, 32, 32, 32, 33)))
    publisher = token(rng, rng.choice((1, 11, 43, 44)))
    number = b"%d" % rng.choice((0, 1, 2, 900, 5000, 10**9, 10**18))
    return rng.choice(
        (
            topic,
            topic + b" " + token(rng, rng.randint(0, 30)),
            topic + b" %41%zz",
            topic + b" %@" + publisher + b"." + number + b" forged",
            topic + b" %@" + publisher + b"." + number + b";t=5;X=1 forged",
            topic + b" %@" + publisher + b"." + number + b";B=1 " + token(rng, rng.randint(0, 9)),
            topic + b" %@ forged",
            b"%g1 not%20canonical",
            b"%20 space",
            b"%? " + nonce,
            b"%? " + nonce + b" name=value",
            b"%~ " + nonce,
            b"%! " + nonce + b" " + cookie + b" -",
            b"%! " + nonce + b" " + cookie + b" " + token(rng, 9),
            b"%= " + nonce + b" " + cookie + b" 0",
            b"%+ " + nonce + b" " + number + b" " + cookie + b" 0 drain=1",
            b"%- " + nonce + b" full ff",
            b"%- " + nonce + b" drain -",
            b"%: " + nonce + b" " + number,
            b"%_ reserved",
            b"%",
            b" ",
            bytes(rng.choices(range(256), k=rng.randint(1, 40))).replace(b"\n", b""),
        )
    )


def made_datagram(rng: Random, topics: list[bytes]) -> bytes:
    """Lines by the grammar; padded, cut or overlong now and then."""
    count = rng.choice((1, 1, 2, 3, 5, 70))
    data = b"\n".join([made_line(rng, topics) for _ in range(count)]) + rng.choice((b"\n", b"\n", b""))
    return data.ljust(rng.choice((0, 0, 192, 1200, 1201)), b"\n")


def fitting(lines: list[bytes]) -> list[bytes]:
    """As many of these lines as a vouched datagram takes."""
    room = 1100
    return [line for line in lines if (room := room - len(line)) >= 0]


def random_bytes(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 20, 200, 1200, 1400)))


class Attacker:
    """Acts when it is told to; draws what it does from the run's own chance."""

    name = "attacker"
    is_up = True

    def __init__(self, world: "World", addresses: list[Address]) -> None:
        self.world = world
        self.addresses = addresses
        self._cookies: defaultdict[Address, list[tuple[Address, bytes]]] = defaultdict(list)
        for address in addresses:
            world.network.bind(address, self)

    def arrive(self, packets: list[Packet]) -> None:
        self.world.network.fates["handed-over"] += len(packets)
        for packet in packets:
            self.world.note_cookies(packet)
            if isinstance(packet.sender, Boot):
                for line in lines_of(packet.data):
                    reply = wire.parse_reply(line)
                    if isinstance(reply, wire.Challenge | wire.Receipt):
                        cookies = self._cookies[packet.source]
                        cookies.append((packet.destination, reply.cookie))
                        del cookies[:-8]

    def unreachable(self, address: Address) -> None:
        """Does not matter to it."""

    def act(self) -> None:
        """Sends one forged thing."""
        rng = self.world.rng
        server = rng.choice(self.world.servers).address
        victim = rng.choice(self.world.clients).address
        other = rng.choice(self.world.servers).address
        source = rng.choice((victim, other, rng.choice(self.addresses), ("203.0.113.9", 53)))
        topics = self.world.topics
        match rng.randrange(10):
            case 0:
                self._send(random_bytes(rng), source, rng.choice((server, victim)))
            case 1 | 2:
                self.replay()
            case 3:
                self._send(made_datagram(rng, topics), source, server)
            case 4:
                self._send(made_datagram(rng, topics), server, victim)
            case 5:
                self._reflect(server, other)
            case 6:
                self._steal_subscription(server, victim)
            case 7:
                self._own_handshake(server)
            case 8:
                self._own_requests(server)
            case _:
                self._poison(server, victim)

    def _send(self, data: bytes, source: Address, destination: Address) -> None:
        self.world.ledger.forge(data)
        transmit = Transmit(data, len(data), (destination,))
        self.world.network.send(transmit, source, self.name, None)

    def replay(self) -> None:
        """An earlier datagram again: as it was or changed, from or to elsewhere, or back to its sender."""
        rng = self.world.rng
        if not self.world.network.recent:
            return
        packet = rng.choice(self.world.network.recent)
        data = packet.data if rng.random() < 0.6 else mutated(rng, packet.data)
        everyone = [host.address for host in (*self.world.servers, *self.world.clients)]
        source = rng.choice((packet.source, packet.source, packet.destination, rng.choice(everyone)))
        destination = rng.choice(
            (packet.destination, packet.destination, packet.source, rng.choice(everyone))
        )
        self._send(data, source, destination)

    def _reflect(self, server: Address, other: Address) -> None:
        """A reply verb to one server in the name of another: were it answered, they would never stop."""
        rng = self.world.rng
        nonce, cookie = token(rng, 11), token(rng, 32)
        verb = rng.choice((wire.Challenge(nonce, cookie, 0), wire.Receipt(nonce, 60, cookie, 0)))
        self._send(wire.format_line(verb).ljust(rng.choice((0, 192)), b"\n"), other, server)

    def _steal_subscription(self, server: Address, victim: Address) -> None:
        """A subscribe in a victim's name, with the attacker's own cookie, or a made one."""
        rng = self.world.rng
        cookies = self._cookies[server]
        cookie = rng.choice(cookies)[1] if cookies and rng.random() < 0.7 else token(rng, 32)
        topics = [wire.encode_topic(topic) + b"\n" for topic in self.world.topics[:20]]
        vouch = wire.Vouch(token(rng, 11), cookie, None)
        self._send(wire.request_datagram(vouch, fitting(topics)), victim, server)

    def _own_handshake(self, server: Address) -> None:
        rng = self.world.rng
        ask = wire.request_datagram(wire.Ask(token(rng, 11)))
        self._send(ask[: rng.choice((len(ask), len(ask), 20))], rng.choice(self.addresses), server)

    def _own_requests(self, server: Address) -> None:
        """By the rules: leases to fill the table with, or publishes in others' names."""
        rng = self.world.rng
        if not self._cookies[server]:
            self._own_handshake(server)
            return
        address, cookie = rng.choice(self._cookies[server])
        topics = [wire.encode_topic(topic) for topic in self.world.topics]
        if rng.random() < 0.5:
            lines = [rng.choice((rng.choice(topics), b"filler-" + token(rng, 6))) + b"\n" for _ in range(8)]
        else:
            lines = [self._forged_publish() for _ in range(4)]
        vouch = wire.Vouch(token(rng, 11), cookie, None)
        self._send(wire.request_datagram(vouch, fitting(lines)), address, server)

    def _forged_publish(self) -> bytes:
        """The next number of a real publisher, with another payload."""
        rng = self.world.rng
        client = rng.choice(self.world.clients)
        topic = rng.choice(self.world.topics)
        seq = client.seqs.get(wire.encode_topic(topic), 0) + rng.choice((-3, 1, 1, 7, 2000))
        head = b"%%@%b.%d" % (client.core.publisher.encode(), max(1, seq))
        return b"%b %b forged-%b\n" % (wire.encode_topic(topic), head, token(rng, 4))

    def _poison(self, server: Address, victim: Address) -> None:
        """Publishes without a cookie in a client's name, or a copy straight to a client in a server's."""
        data = self._forged_publish() * self.world.rng.choice((1, 3))
        if self.world.rng.random() < 0.5:
            self._send(data, victim, server)
        else:
            self._send(data, server, victim)
