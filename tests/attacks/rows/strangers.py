"""What strangers may make a server do: nothing that is larger than what they sent, and no loops."""

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

from kcast.client.aio import Client
from kcast.client.events import Drop
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address
from tests.attacks.figures import Figure, at_least, at_most, told
from tests.attacks.junk import KINDS, datagrams_of
from tests.attacks.lab import Lab, Skipped
from tests.attacks.row import Row
from tests.attacks.wire_peer import WirePeer
from tests.support.machine import has_ipv6

ANSWERED_MIN = 0.1  # of the mutated requests, else they show nothing
_REPLIES = (
    b"%= n " + b"A" * 32 + b" 0\n",
    b"%+ n 60 " + b"A" * 32 + b" 0\n",
    b"%- n full 1\n",
    b"%: n 60\n",
    b"\nloop x\n",
    b"loop x\n",
    b"loop\n",
)


def mutated(seed: int, count: int) -> Iterator[bytes]:
    """Yields requests, junk, and what becomes of them when bytes are changed, cut, doubled or padded."""
    chance = random.Random(seed)
    seeds = [data for kind in KINDS for data in datagrams_of(kind)[:8]]
    seeds += [
        wire.request_datagram(wire.Ask(b"ask")),
        wire.request_datagram(wire.Vouch(b"v", b"A" * 32, None), [b"t\n", b"t m\n"]),
        b"%~ ping\n",
        *_REPLIES,
    ]
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(0, 3)):
            change = chance.randrange(4)
            at = chance.randrange(len(data) + 1)
            if change == 0 and data:
                data[at % len(data)] = chance.randrange(256)
            elif change == 1:
                del data[at:]
            elif change == 2:
                data[at:at] = data[:at][-40:]
            else:
                data += b"\n" * chance.randrange(200)
        yield bytes(data[:1400])


def amplification(lab: Lab) -> Iterator[Figure]:
    """Mutated requests, each from an address of its own: what comes back there, at its most."""
    count = 20_000 if lab.is_full else 1_500
    cases: dict[str, tuple[str, ...]] = {
        "IPv4": (),
        "fifo": ("--table", "fifo"),
        "draining": (),
        "with work": ("--work-bits", "12"),
        "two workers": ("--workers", "2"),  # of which the first is attacked
    }
    if has_ipv6():
        cases["IPv6"] = ()
    for seed, (name, options) in enumerate(cases.items()):
        host = "::1" if name == "IPv6" else "127.0.0.1"
        server = lab.serve(*options, "--challenge-rate", "0", host=host)
        if name == "draining":
            with WirePeer(server.address) as peer:
                peer.lease(b"t")
            server.process.terminate()
            time.sleep(0.1)
        most, answered = _most(server.address, list(mutated(seed, count)))
        yield at_least(f"{name}: answered", answered, ANSWERED_MIN * count)
        yield at_most(f"{name}: bytes back for a byte", most, 1)
        if name != "draining":
            yield at_most(f"{name}: leases", server.metrics()["kcast_leases"], 0)
        server.end()


def _most(server: Address, datagrams: list[bytes]) -> tuple[float, int]:
    """Sends each from a port of its own. Returns the most that came back for one, as a ratio of bytes, and
    the number of those that were answered."""
    most, answered = 0.0, 0
    for start in range(0, len(datagrams), 100):
        peers = [WirePeer(server) for _ in datagrams[start : start + 100]]
        for peer, data in zip(peers, datagrams[start:], strict=False):
            peer.say(data)
        time.sleep(0.02)
        for peer, data in zip(peers, datagrams[start:], strict=False):
            with peer:
                came_bytes = peer.take_bytes()
                answered += came_bytes > 0
                most = max(most, came_bytes / max(1, len(data)))
    return most, answered


def loops(lab: Lab) -> Iterator[Figure]:
    """Two open servers get what each could have sent, with the other's address as its source."""
    first, second = (lab.serve("--open", exempts_loopback=True) for _ in range(2))
    try:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    except PermissionError:
        raise Skipped("forging a source takes the right to open raw sockets") from None
    before = [server.metrics()["kcast_received_datagrams_total"] for server in (first, second)]
    count = 0
    with raw:
        raw.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
        for number in range(100):
            for data in (*_REPLIES, b"topic%d\n" % number, b"%~ p\n", wire.request_datagram(wire.Ask(b"a"))):
                raw.sendto(_forged(second.address, first.address, data), (first.address[0], 0))
                count += 1
    time.sleep(1.0)
    arrived = sum(
        server.metrics()["kcast_received_datagrams_total"] - had
        for server, had in zip((first, second), before, strict=True)
    )
    yield told("forged", count, "datagrams")
    yield at_least("arrived of them", arrived / count, 1)
    # Each may be answered once, or forwarded to the topic that was subscribed to in the other's name.
    yield at_most("arrived for each", arrived / count, 2.01)
    later = sum(server.metrics()["kcast_received_datagrams_total"] for server in (first, second))
    time.sleep(1.0)
    still = sum(server.metrics()["kcast_received_datagrams_total"] for server in (first, second))
    yield at_most("still going round", still - later, 0)


def _forged(source: Address, destination: Address, data: bytes) -> bytes:
    """Returns an IPv4 packet with a UDP datagram, whose source is forged. The kernel fills in the sums."""
    length = 8 + len(data)
    udp = struct.pack("!HHHH", source[1], destination[1], length, 0)
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + addresses + udp + data


def forged_replies(lab: Lab) -> Iterator[Figure]:
    """A client asks, and gets nothing but replies with nonces that it did not choose."""
    count = 40_000 if lab.is_full else 10_000
    chance = random.Random(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        cluster = lab.cluster_file(sock.getsockname())

        def forge() -> None:
            _, client = sock.recvfrom(2000)
            for number in range(count):
                nonce = b"%x" % chance.getrandbits(64)
                reply = chance.choice((b"%%= %s %s 0\n", b"%%+ %s 60 %s 0\n"))
                sock.sendto(reply % (nonce, b"%032d" % number), client)
                if number % 100 == 99:
                    time.sleep(0.01)  # so that none is lost on the way

        attacker = threading.Thread(target=forge)
        attacker.start()
        leases, unasked = asyncio.run(_asked(cluster, attacker))
        attacker.join()
    yield told("forged", count)
    yield told("dropped as unasked", unasked)
    yield at_most("believed", count - unasked if unasked < 0.5 * count else leases, 0)


async def _asked(cluster: str, attacker: threading.Thread) -> tuple[int, int]:
    async with Client(cluster) as client:
        subscription = client.subscribe("t")
        await asyncio.to_thread(attacker.join)
        await asyncio.sleep(0.2)
        return subscription.leases[0], client.drops[Drop.UNASKED_REPLY]


def odd_datagrams(lab: Lab) -> Iterator[Figure]:
    """Datagrams of 0 bytes, cut, too long, and mutated come from a stranger, and from one with a lease."""
    server = lab.serve()
    honest = lab.honest(server.address, 3.0, rate=100)
    whole = wire.request_datagram(wire.Vouch(b"v", b"A" * 32, None), [b"t\n", b"t m\n"])
    odd = [b"", *(whole[:end] for end in range(0, len(whole), 7)), b"x" * 60_000, b"t m\n" * 15_000]
    odd += list(mutated(99, 500))
    with WirePeer(server.address, "127.8.8.8") as stranger, WirePeer(server.address, "127.8.8.9") as known:
        known.open_publish_lease()
        for data in odd:
            stranger.say(data)
            known.say(data)
            time.sleep(0.001)
        known.open_publish_lease()  # it still answers
    result = honest.result()
    arrived = server.metrics()["kcast_received_datagrams_total"] - len(result.sent)
    yield at_least("odd datagrams that arrived", arrived, 0.9 * 2 * len(odd))
    yield at_least("of them too long", server.dropped("oversize"), 4)
    yield at_least("honest ones", len(result.sent), 200)
    yield at_most("leases lost", result.leases_lost, 0)
    yield at_most("lost", 100 - result.delivered_percent, 0, "%")
    yield at_most("ended with an error", float(server.process.poll() is not None), 0)


ROWS = (
    Row("amplification", "1.000; no lease", amplification),
    Row("loops", "2.01 datagrams for each; none goes round", loops, is_light=True),
    Row("forged-replies", "none believed", forged_replies, is_light=True),
    Row("odd-datagrams", "0 lost; the server lives", odd_datagrams, is_light=True),
)
