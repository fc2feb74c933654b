"""Lines that somebody makes up, by the thousand, and what it costs to reject one."""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from time import thread_time

from kcast.client.messages.base64url import encode_ascii
from kcast.pubsub.endpoint import Burst
from tests.support.attack_stage import (
    STRANGER,
    Process,
    Stage,
    epoch,
    sealed_stage,
    signed,
    signed_stage,
)
from tests.support.sealed_by_hand import Epoch as EpochByHand

Forging = Callable[[], Iterator[bytes]]


def under_an_allowed_key() -> Iterator[bytes]:
    """Whoever has seen a line of Alice's puts something else into it."""
    line = signed(payload=b"PAYLOAD")
    for number in count():
        yield line.replace(b"PAYLOAD", b"forged %d" % number)


def by_strangers() -> Iterator[bytes]:
    """Rightly signed, by somebody who is not allowed."""
    line = signed(by=STRANGER, payload=b"PAYLOAD")
    for number in count():
        yield line.replace(b"PAYLOAD", b"forged %d" % number)


def with_ever_new_enc() -> Iterator[bytes]:
    """By one who knows the topic secret, so that each costs an operation on the curve."""
    rng = Random(1)
    topic, envelope, payload = Process().line(payload=bytes(100)).split(b" ")
    by_hand = EpochByHand("ops", 1, 1, 1)
    by_hand.topic_secret = epoch().topic_secret
    start = b"%b %b" % (topic, envelope[: envelope.index(b";S=")])
    for _ in count():
        enc = rng.randbytes(32)
        yield b"%b;S=%b %b" % (start, encode_ascii(by_hand.tag(topic.decode(), enc) + enc), payload)


def under_a_known_enc() -> Iterator[bytes]:
    """Whoever has seen a sealed line puts another payload behind its head."""
    rng = Random(2)
    line = Process().line(payload=bytes(100))
    start, size = line[: line.rindex(b" ") + 1], len(line[line.rindex(b" ") + 1 :]) * 3 // 4
    for _ in count():
        yield b"%b%b\n" % (start, encode_ascii(rng.randbytes(size)))


def without_the_topic_secret() -> Iterator[bytes]:
    """By a stranger, on the hidden topic that servers see."""
    rng = Random(3)
    topic, envelope, payload = Process().line(payload=bytes(100)).split(b" ")
    start = b"%b %b" % (topic, envelope[: envelope.index(b";S=")])
    for _ in count():
        yield b"%b;S=%b %b" % (start, encode_ascii(rng.randbytes(38)), payload)


SIGNED: dict[str, Forging] = {
    "under an allowed key": under_an_allowed_key,
    "by strangers": by_strangers,
}
SEALED: dict[str, Forging] = {
    "with ever new enc": with_ever_new_enc,
    "under a known enc": under_a_known_enc,
    "without the topic secret": without_the_topic_secret,
}
ALL = {**SIGNED, **SEALED}


def stage_of(name: str) -> Stage:
    """The subscriber that is to reject lines."""
    if name in SIGNED:
        return signed_stage()
    stage = sealed_stage()
    if name == "under a known enc":
        stage.hear(Process().line())
    return stage


def take(stage: Stage, lines: list[bytes]) -> float:
    """Lets lines come together, as many as there are in a datagram; returns the CPU seconds that it took."""
    core, now = stage.subscriber, stage.lab.now
    server = stage.lab.cluster.servers[0].addresses[0]
    datagrams, size = [b""], 0
    for line in lines:
        if size + len(line) > 1200:
            datagrams.append(b"")
            size = 0
        datagrams[-1] += line
        size += len(line)
    bursts = [Burst(datagram, len(datagram), server) for datagram in datagrams if datagram]
    begun_s = thread_time()
    for burst in bursts:
        core.receive(burst, now)
    core.handle_timeout(now)
    core.flush(now)
    return thread_time() - begun_s


def rejected_per_s(name: str, lines: int = 1000, rounds: int = 3) -> float:
    """Returns at how many lines a second to reject them fills a core."""
    forged, best_s = ALL[name](), float("inf")
    stage = stage_of(name)
    for _ in range(rounds):
        some = [next(forged) for _ in range(lines)]
        best_s = min(best_s, take(stage, some) / lines)
        assert not stage.take()
    return 1 / best_s
