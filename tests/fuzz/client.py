"""A client: whatever servers and strangers send it, it tells, sends and keeps no more than it may.

An input is a script: a byte for what the client remembers, then steps, with 0xFE between them. A step is a
byte for who sends, one for what else is done, and the text of a datagram. In that text some bytes stand for
what no fuzzer can guess: nonces that the client awaits, and cookies.
"""

from collections import Counter, defaultdict
from random import Random
from typing import get_args

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.events import Delivery, Drop, Published, PublishedMany
from kcast.client.messages import envelope as enveloping
from kcast.client.messages.guard_and_writer import Told
from kcast.client.receiving.dedup import WINDOW_S, CopyFilter
from kcast.client.receiving.gaps import GapTracker
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, LINES_PER_DATAGRAM_MAX, REQUEST_BYTES_MIN

STEP_END = b"\xfe"
STEPS_MAX = 12
SERVERS: tuple[Address, ...] = (("192.0.2.1", 7400), ("192.0.2.2", 7400))
SOURCES = (*SERVERS, ("203.0.113.9", 53))
TOPICS = (b"t", b"u", b"a b")
TIMES_S = (0.0, 0.0, 0.01, 0.3, 1.0, 5.0, 22.0, 61.0)
TIME_S_MAX = 30.0  # in which no step begins to wait any more
START = 1000.0
WORK_TRIES = 4
TURNS_MAX = 20  # in which no time passes
OUTCOME_S_MAX = 30.0
TOGETHER = 3  # messages of a batch
SENT_PER_S = 4  # to a server that does not answer: a request is given half a second
SENT_PER_ANSWER = 6
REMEMBERED = 8  # lines of a client that remembers little; and publishers of one
REMEMBERED_BYTES = 2_000

# Bytes of a datagram's text, and what they stand for.
NEWEST_NONCE, FORMER_NONCE, FOREIGN_NONCE, COOKIE, MANY_LINES = range(1, 6)
_OF_COPIES = (Drop.NOT_SUBSCRIBED, Drop.MALFORMED_MESSAGE, Drop.NOT_UNDERSTOOD)


def check(data: bytes) -> None:
    """Takes bytes as a script."""
    run(data)


def datagrams_in(data: bytes) -> int:
    """The number of datagrams in a script."""
    return sum(1 + (step[1] >> 6 == 3) for step in _steps(data) if len(step) > 2)


def run(data: bytes) -> ClientCore:
    """Takes bytes as a script; returns the client, as it is at the end."""
    world = _World(remembers_little=bool(data[:1] > b"\x7f"))
    for step in _steps(data):
        world.step(step)
    world.end()
    return world.core


def _steps(data: bytes) -> list[bytes]:
    return data[1:].split(STEP_END)[:STEPS_MAX]


class _World:
    """A client with subscriptions, and what may come of all that it was sent."""

    def __init__(self, *, remembers_little: bool) -> None:
        self.copies = CopyFilter(REMEMBERED, REMEMBERED_BYTES) if remembers_little else CopyFilter()
        self.gaps = GapTracker(publishers_max=REMEMBERED) if remembers_little else GapTracker()
        self.remembers_little = remembers_little
        self.now = START
        self.core = ClientCore(lab(SERVERS, Policy(2, 1, 2)), Random(1), copies=self.copies, gaps=self.gaps)
        self.subscribed: set[bytes] = set()
        self.nonces: defaultdict[Address, list[bytes]] = defaultdict(list)
        self.all_nonces: set[bytes] = set()
        self.awaited: set[int] = set()
        self.brought: defaultdict[tuple[bytes, bytes], Counter[Address]] = defaultdict(Counter)
        self.delivered: Counter[tuple[bytes, bytes]] = Counter()
        self.remembered_until: dict[bytes, float] = {}
        self.has_been_answered = False
        self.allowed = 0.0  # datagrams that may be sent by now
        self.sent = 0
        for topic in TOPICS[:2]:
            self.subscribe(topic)
        self.turn()

    def step(self, step: bytes) -> None:
        """Takes a step: time passes, the application wants something, and a datagram arrives."""
        head = step[:2].ljust(2, b"\0")
        source, also = SOURCES[head[0] % len(SOURCES)], head[1]
        if self.now - START < TIME_S_MAX:
            self.wait(TIMES_S[also & 7])
        match also >> 3 & 7:
            case 1:
                self.publish(TOPICS[head[0] >> 2 & 1], confirm=bool(head[0] & 8))
            case 2:
                self.subscribe(TOPICS[2])
            case 3:
                self.core.unsubscribe(TOPICS[head[0] >> 2 & 1])
                self.subscribed.discard(TOPICS[head[0] >> 2 & 1])
            case 4:
                self.core.handle_unreachable(source, self.now)
                self.allow(2)
            case 5:
                self.core.resumed(100.0, self.now)
            case 6:
                self.publish_many(TOPICS[head[0] >> 2 & 1], confirm=bool(head[0] & 8))
            case _:
                pass
        self.turn()
        if len(step) > 2:
            self.arrive(self.expanded(step[2:], source), source, 1 + (also >> 6 == 3))

    def end(self) -> None:
        """Lets time pass: each publish comes to an end."""
        if self.awaited:
            self.wait(OUTCOME_S_MAX)
        assert not self.awaited, "publishes have no outcome"

    # --- What is done

    def subscribe(self, topic: bytes) -> None:
        self.core.subscribe(topic, self.now)
        self.subscribed.add(topic)
        self.allow(len(SERVERS))

    def publish(self, topic: bytes, *, confirm: bool) -> None:
        self.awaited.add(self.core.publish(topic, b"%d" % len(self.all_nonces), self.now, confirm=confirm))
        self.allow(len(SERVERS) * 2)

    def publish_many(self, topic: bytes, *, confirm: bool) -> None:
        payloads = [b"%d" % number for number in range(TOGETHER)]
        self.awaited.add(self.core.publish_many(topic, payloads, self.now, confirm=confirm))
        self.allow(len(SERVERS) * TOGETHER)

    def wait(self, time_s: float) -> None:
        """Lets time pass; what falls due meanwhile is done, as a driver does it."""
        until, turns = self.now + time_s, 0
        while (due_at := self.core.next_timeout()) is not None and due_at <= until:
            turns = 0 if due_at > self.now else turns + 1
            assert turns < TURNS_MAX, "something is due without an end"
            self.pass_time(max(self.now, due_at))
            self.core.handle_timeout(self.now)
            self.turn()
        self.pass_time(until)

    def pass_time(self, until: float) -> None:
        self.allow((until - self.now) * len(SERVERS) * SENT_PER_S)
        self.now = until

    def allow(self, datagrams: float) -> None:
        """Lets the client send so many more datagrams."""
        self.allowed += datagrams

    def expanded(self, text: bytes, source: Address) -> bytes:
        """The datagram that a text stands for."""
        mine = self.nonces[source]
        others = next((nonces[-1] for to, nonces in self.nonces.items() if to != source and nonces), b"F")
        for byte, expansion in (
            (NEWEST_NONCE, mine[-1] if mine else b"N"),
            (FORMER_NONCE, mine[-2] if len(mine) > 1 else b"O"),
            (FOREIGN_NONCE, others),
            (COOKIE, b"C" * 32),
            (MANY_LINES, b"".join(b"t %%@p.%d m\n" % seq for seq in range(1, 40))),
        ):
            text = text.replace(bytes([byte]), expansion)
        return text

    def arrive(self, datagram: bytes, source: Address, count: int) -> None:
        """Lets a burst of equal datagrams arrive."""
        core = self.core
        known = set(self.nonces[source])
        words = set(datagram.replace(b"\n", b" ").split(b" "))
        if words & known:
            self.has_been_answered = True
            self.allow(count * SENT_PER_ANSWER)
        elif self.has_been_answered:
            self.allow(count)  # a renewal, since copies use up credit
        received, accounted = core.counts["datagrams_received"], self.accounted()
        expected = [each for _ in range(count) for each in self.expected(datagram, source)]
        core.receive(Burst(datagram * count, len(datagram), source), self.now)
        assert core.counts["datagrams_received"] == received + count
        assert words & known or self.accounted() >= accounted + count, f"{datagram!r} is not accounted for"
        found = [
            event for event in self.turn() if isinstance(event, Delivery) and event.publisher is not None
        ]
        if not self.remembers_little:
            assert [(each.topic, each.publisher, each.seq, each.payload) for each in found] == expected

    def expected(self, datagram: bytes, source: Address) -> list[tuple[bytes, str, int, bytes]]:
        """What is delivered of a datagram's enveloped lines; raw ones are noted."""
        expected: list[tuple[bytes, str, int, bytes]] = []
        if source not in SERVERS or len(datagram) > DATAGRAM_BYTES_MAX:
            return expected
        for line in wire.split_lines(datagram)[0]:
            topic, space, message = line.partition(b" ")
            name = wire.decode_topic(topic)
            if name not in self.subscribed or wire.is_control(line) or not space:
                continue
            read = enveloping.read(message)
            if not enveloping.is_enveloped(message):
                if not isinstance(read, Drop):
                    self.brought[name, read[2]][source] += 1
                continue
            remembered_until = self.remembered_until.get(line, 0.0)
            self.remembered_until[line] = self.now + WINDOW_S
            if remembered_until <= self.now and not isinstance(read, Drop):
                publisher, seq, payload, _ = read
                assert publisher is not None and seq is not None
                expected.append((name, publisher, seq, payload))
        return expected

    # --- What must hold

    def turn(self) -> list[Told]:
        """Sends what is to be sent, and looks at all that is told."""
        core = self.core
        if core.is_minting:
            core.work(WORK_TRIES, self.now)
        for transmit in core.flush(self.now):
            for datagram in datagrams(transmit.data, transmit.segment_bytes):
                (to,) = transmit.destinations
                self.check_sent(datagram, to)
        assert self.sent <= self.allowed, f"{self.sent} datagrams were sent, {self.allowed:g} may be"
        events = core.events()
        for event in events:
            self.check_event(event)
        counts = core.counts
        dropped = sum([core.drops[drop] for drop in _OF_COPIES])
        assert counts["copies_received"] == counts["deliveries"] + counts["duplicates"] + dropped
        if self.remembers_little:
            assert len(self.copies) <= REMEMBERED and len(self.gaps) <= REMEMBERED
            assert self.copies.size_bytes <= REMEMBERED_BYTES or len(self.copies) == 1
        return events

    def check_sent(self, datagram: bytes, to: Address) -> None:
        self.sent += 1
        assert to in SERVERS and len(datagram) <= DATAGRAM_BYTES_MAX
        lines, is_unterminated = wire.split_lines(datagram)
        assert lines and not is_unterminated and len(lines) <= LINES_PER_DATAGRAM_MAX
        for index, line in enumerate(lines):
            if not wire.is_control(line):
                assert wire.is_topic(line.partition(b" ")[0])
                continue
            request = wire.parse_request(line)
            assert request is not None and (index == 0 or isinstance(request, wire.Ping)), datagram
            assert isinstance(request, wire.Ping) or len(datagram) >= REQUEST_BYTES_MIN
            assert request.nonce not in self.all_nonces, "a nonce was used again"
            self.all_nonces.add(request.nonce)
            self.nonces[to].append(request.nonce)

    def check_event(self, event: Told) -> None:
        assert isinstance(event, get_args(Told)), event
        if isinstance(event, Published | PublishedMany):
            self.awaited.remove(event.handle)
        elif isinstance(event, Delivery):
            assert event.topic in self.subscribed
            if event.publisher is None:
                message = event.topic, event.payload
                self.delivered[message] += 1
                assert self.delivered[message] <= self.brought[message].total()

    def accounted(self) -> int:
        """What was taken as a copy, or dropped."""
        return self.core.counts["copies_received"] + self.core.drops.total()
