"""Cookies that are not one's own: shown elsewhere, later, at another server, and guessed. PROTOCOL §6."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from itertools import product
from random import Random

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.attacks.figures import Figure, at_least, at_most
from tests.attacks.lab import Lab, Skipped
from tests.attacks.row import Row
from tests.attacks.wire_peer import WirePeer
from tests.support.trees import HERE

TRIES = 25  # of each kind, from ever new addresses
PURPOSES: dict[str, list[bytes]] = {
    "a lease": [b"t\n"],
    "a publish": [b"t m\n"],
    "both": [b"t\n", b"t m\n"],
    "a publish lease": [],
}


def borrowed(lab: Lab) -> Iterator[Figure]:
    """A good cookie is shown from another port, from another IP, and at another server, for each purpose."""
    server, other = lab.serve(), lab.serve()
    shown = cookies_got = taken = 0
    with WirePeer(server.address, "127.4.1.1") as owner:
        cookie = owner.cookie()
        for (text, lines), number in product(PURPOSES.items(), range(TRIES)):
            for target, source in (
                (server, "127.4.1.1"),
                (server, f"127.4.2.{1 + number}"),
                (other, "127.4.1.1"),
            ):
                nonce = text[:5].strip().encode().replace(b" ", b"-") + b"%d" % number
                with WirePeer(target.address, source) as thief:
                    reply = thief.request(
                        wire.request_datagram(wire.Vouch(nonce, cookie, None), lines), nonce
                    )
                shown += 1
                cookies_got += isinstance(reply, wire.Challenge)
                taken += not isinstance(reply, wire.Challenge)
        reply = owner.request(wire.request_datagram(wire.Vouch(b"own", cookie, None), [b"t\n"]), b"own")
        yield at_least("taken where it is good", float(isinstance(reply, wire.Receipt)), 1)
    yield at_least("shown elsewhere", shown, 3 * TRIES * len(PURPOSES))
    yield at_least("answered by another cookie", cookies_got, shown)
    yield at_most("taken", taken, 0)
    metrics = [each.metrics() for each in (server, other)]
    yield at_most("leases opened by them", sum(each["kcast_leases_opened_total"] for each in metrics) - 1, 0)
    yield at_most("messages", sum(each["kcast_messages_total"] for each in metrics), 0)


def guessed(lab: Lab) -> Iterator[Figure]:
    """A server's core is shown tags at random, and good cookies of which a bit or a byte has changed."""
    if lab.tree is not HERE:
        raise Skipped("it is measured with this version alone")
    count = 100_000
    server = Server(secret=bytes(32), limits=Limits(challenges_per_s=0))
    source: Address = ("198.51.100.1", 1000)
    good = _cookie(server, source)
    chance = Random(4)
    answered = 0
    for number in range(count):
        guess = bytearray(good)
        if number % 2:
            guess[8:] = chance.randbytes(16)
        else:
            guess[chance.randrange(len(guess))] ^= chance.randrange(1, 256)
        vouch = wire.Vouch(b"v", urlsafe_b64encode(guess), None)
        datagram = wire.request_datagram(vouch, [b"t\n", b"t m\n"])
        server.receive(Burst(datagram, len(datagram), source), 1000.0)
        answered += len(server.flush(1000.0))
    yield at_least("refused as foreign", server.drops[Drop.COOKIE_FOREIGN], count)
    yield at_least("answered by another cookie", answered, count)
    yield at_most("leases and messages", len(server.leases) + server.counts["messages"], 0)


def _cookie(server: Server, source: Address) -> bytes:
    ask = wire.request_datagram(wire.Ask(b"ask"))
    server.receive(Burst(ask, len(ask), source), 1000.0)
    (answer,) = server.flush(1000.0)
    reply = wire.parse_reply(answer.data.split(b"\n")[0])
    assert isinstance(reply, wire.Challenge)
    return urlsafe_b64decode(reply.cookie)


ROWS = (
    Row("borrowed-cookies", "none of 300 taken", borrowed, is_light=True),
    Row("guessed-cookies", "none of 100,000 taken", guessed, in_short=False),
)
