"""Copies: what clients make of them in native code is what they make of them in Python, whatever arrives."""

from collections import Counter
from random import Random

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.events import Delivery
from kcast.client.messages.guard_and_writer import Told
from kcast.client.receiving.dedup import CopyFilter
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, Burst
from tests.support.takers import TAKERS

SERVERS: tuple[Address, ...] = (("192.0.2.1", 7400), ("192.0.2.2", 7400))
CLUSTER = lab(SERVERS, Policy(2, 2, 2))
TOPICS = (b"t", b"u", b"a b")
START = 1000.0
BURST_END = b"\xfe"
BURSTS_MAX = 12
# Bytes of a text, and what they stand for: what a fuzzer would be long in finding.
WORDS = {
    1: b"t %@p.1 m\n",
    2: b"t %@p.2 m\n",
    3: b"u %@" + b"q" * 43 + b".999999999999999999 ",
    4: b" %@p.",
    5: b"t %@p.7;B=1 bQ\n",
    6: b"t on\n",
    7: b"t %@p.8;t=1;g=" + b"A" * 128 + b" m\n",
    8: b"t %@p.9;S=" + b"A" * 51 + b" CgoK\n",
    9: b";g=" + b"A" * 150 + b".2.1 ",
}


def check(data: bytes) -> None:
    """Takes a byte for how much is remembered, then bursts: a byte for when, and from whom, and the text."""
    count, size_bytes = ((65_536, 2**24), (3, 2**24), (65_536, 900))[data[0] % 3 if data else 0]
    found = [run(data[1:], CopyFilter(count, size_bytes, is_native=each)) for each in TAKERS.values()]
    assert all(each == found[0] for each in found), "native code and Python differ"


def run(text: bytes, copies: CopyFilter) -> tuple[object, ...]:
    """Returns all that a client tells, counts and remembers of these bursts."""
    core, now = ClientCore(CLUSTER, Random(1), copies=copies), START
    for topic in TOPICS:
        core.subscribe(topic, now)
    core.flush(now)
    events: list[Told] = []
    for step in text.split(BURST_END)[:BURSTS_MAX]:
        head, data = step[:1] or b"\0", step[1:]
        for byte, word in WORDS.items():
            data = data.replace(bytes([byte]), word)
        now += (0.0, 0.0, 1.5, 130.0)[head[0] & 3]
        if data:
            core.receive(Burst(data, len(data) >> (head[0] >> 3 & 1) or 1, SERVERS[head[0] >> 2 & 1]), now)
        core.handle_timeout(now)
        core.flush(now)
        events += core.events()
    copies._forget_old(now)  # which may come sooner or later, as long as it comes before what is new
    told = [event for event in events if isinstance(event, Delivery)]
    kinds = Counter(type(event).__name__ for event in events)
    remembered = [(line, str(what)) for line, what in copies._seen.items()]
    return told, kinds, core.counts, core.drops, remembered, copies.size_bytes, len(copies)
