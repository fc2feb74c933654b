"""A server: whatever arrives, from wherever and whenever, it answers, forwards and keeps no more than it may.

An input is a script: a byte that chooses the server, then steps, with 0xFE between them. A step is a byte for
the source, a byte for what else is done, and the text of a datagram. In that text some bytes stand for what
no fuzzer can guess: cookies, a good stamp, padding, much at once.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.limits import (
    COOKIE_LEASE_LIFE_S,
    COOKIE_PUBLISH_LIFE_S,
    CREDIT_BYTES_MIN,
    DATAGRAM_BYTES_MAX,
    LINES_PER_DATAGRAM_MAX,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MIN,
    Limits,
)
from kcast.pubsub.networks import is_loopback
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import Mint, price_bits

STEP_END = b"\xfe"
STEPS_MAX = 24
OWN: Address = ("192.0.2.1", 7400)
SOURCES: tuple[Address, ...] = (
    ("198.51.100.1", 1000), ("198.51.100.1", 1001), ("198.51.100.2", 1000), ("203.0.113.9", 53),
    ("2001:db8::1", 1000), ("2001:db8:0:1::1", 1000), ("127.0.0.1", 1000), OWN,
)  # fmt: skip
TIMES_S = (0.0, 0.001, 0.5, 5.0, 21.0, 61.0, 130.0, 3601.0)
REPEATS = (1, 1, 2, 5)
FLUSHES_MAX = 1_000
MORE_COUNTS_MAX = 3  # of a datagram beside its lines: unterminated, old cookie, no room for a publish lease
START = 1000.0

# Bytes of a datagram's text, and what they stand for. `\x04` is minted for the whole datagram.
NEWEST_COOKIE, FORMER_COOKIE, FOREIGN_COOKIE, STAMP, PADDING, MANY_LINES, FULL_LINE = range(1, 8)


class Settings(NamedTuple):
    """How a server is set up."""

    options: dict[str, Any]
    is_open: bool = False


SETTINGS = (
    Settings({}),
    Settings({"table": "fifo", "limits": Limits(leases=3, topics=2), "ttl_s": 20}),
    Settings({"work_bits": 3, "head": "x" * 32}),
    Settings(
        {
            "limits": Limits(
                leases=4, leases_per_address=2, leases_per_prefix=3, topics=3, publishers=2,
                lines_per_datagram=4, publishes_per_s=6, copies_per_s=12, egress_bytes_per_s=3_000,
                uplink_bytes_per_s=20_000, challenges_per_s=3,
            ),
            "exempts_loopback": False,
        }
    ),
    Settings({"tells_audience": False, "ttl_s": 1}),
    Settings({"limits": Limits(leases=3)}, is_open=True),
)  # fmt: skip

Lease = tuple[bytes, Address]

FORMS: list[list[type[wire.Reply]]] = [
    [wire.Challenge], [wire.Receipt], [wire.Refusal], [wire.Pong], [wire.Receipt, wire.Refusal]
]  # fmt: skip
_OF_COPIES = {Drop.NO_SUBSCRIBER, Drop.CREDIT, Drop.EGRESS_RATE, Drop.CROWD, Drop.LATE}
_OF_VOUCHED_DATAGRAMS = {Drop.COOKIE_FOREIGN, Drop.COOKIE_OLD, Drop.SHORT}


class _Unanswered(NamedTuple):
    """A datagram that may be answered in this turn."""

    datagram: bytes
    source: Address
    at: float
    was_proven: bool


def check(data: bytes) -> None:
    """Takes bytes as a script."""
    run(data)


def datagrams_in(data: bytes) -> int:
    """The number of datagrams in a script that has no end before its last step."""
    return sum(REPEATS[step[1] >> 4 & 3] for step in _steps(data) if len(step) > 2)


def run(data: bytes) -> Server:
    """Takes bytes as a script; returns the server, as it is at the end."""
    world = _World(SETTINGS[data[0] % len(SETTINGS) if data else 0])
    for step in _steps(data):
        if world.server.is_drained(world.now):
            return world.server  # it has ended
        world.step(step)
    world.end()
    return world.server


def _steps(data: bytes) -> list[bytes]:
    return data[1:].split(STEP_END)[:STEPS_MAX]


class _World:
    """A server, and what may come of all that it was sent."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        open_to: Callable[[Address], bool] | None = _is_welcome if settings.is_open else None
        self.server = Server(
            secret=b"s" * 32, own_addresses=frozenset((OWN,)), open_to=open_to, **settings.options
        )
        self.now = START
        self.cookies: defaultdict[Address, list[tuple[bytes, float]]] = defaultdict(list)
        self.proven: set[Address] = set()
        self.unproven_bytes: Counter[Address] = Counter()  # received, without those sent
        self.unanswered: deque[_Unanswered] = deque()
        self.lease_until: dict[Lease, float] = {}
        self.publish_until: dict[Address, float] = {}
        self.published: Counter[bytes] = Counter()
        self.copied: Counter[tuple[bytes, Address]] = Counter()
        self.sent_bytes: Counter[Address] = Counter()  # of copies, before the last sign of life ...
        self.unshown_bytes: Counter[Address] = Counter()  # ... and since

    def step(self, step: bytes) -> None:
        """Takes a step: time passes, a burst arrives, and the server sends."""
        head = step[:2].ljust(2, b"\0")
        source, also = SOURCES[head[0] % len(SOURCES)], head[1]
        self._wait(TIMES_S[also & 7])
        if also >> 6 == 3:
            self.server.start_drain(self.now)
        datagram = self._expanded(step[2:], source)
        count = REPEATS[also >> 4 & 3] if datagram else 1
        self._arrive(datagram, count, source)
        if not also & 8:  # else more arrives in the same turn
            self._flush()

    def end(self) -> None:
        """Lets all time pass: nothing may be kept for good."""
        self._wait(0.0)
        self._flush()
        for wait_s in (self.server.ttl_s + 1, COOKIE_PUBLISH_LIFE_S, 1.0):
            self._wait(wait_s)
            self._flush()
        server = self.server
        if not server.is_draining:
            assert not (len(server.leases) or server.leases.topic_count or len(server.publish_leases))
            assert server.next_timeout() is None and not list(server.known_sources(Random(1)))

    # --- What is done

    def _wait(self, time_s: float) -> None:
        """Lets time pass; what falls due meanwhile is done, as a driver does it."""
        until = self.now + time_s
        for _ in range(FLUSHES_MAX):
            due_at = self.server.next_timeout()
            if due_at is None or due_at > until or self.server.is_drained(self.now):
                self.now = until
                return
            self.now = max(self.now, due_at)
            self.server.handle_timeout(self.now)
            self._flush()
        raise AssertionError("something is due without an end")

    def _expanded(self, text: bytes, source: Address) -> bytes:
        """The datagram that a text stands for."""
        mine = [cookie for cookie, _ in self.cookies[source]]
        others = [
            cookie for address, known in self.cookies.items() if address != source for cookie, _ in known
        ]
        for byte, expansion in (
            (NEWEST_COOKIE, mine[-1] if mine else b"A" * 32),
            (FORMER_COOKIE, mine[0] if mine else b"B" * 32),
            (FOREIGN_COOKIE, others[-1] if others else b"C" * 32),
            (MANY_LINES, b"many m\n" * LINES_PER_DATAGRAM_MAX),
            (FULL_LINE, b"full " + b"m" * (DATAGRAM_BYTES_MAX - 6) + b"\n"),
        ):
            text = text.replace(bytes([byte]), expansion)
        if bytes([PADDING]) in text:
            text = text.replace(bytes([PADDING]), b"").ljust(REQUEST_BYTES_MIN, b"\n")
        return self._stamped(text)

    def _stamped(self, text: bytes) -> bytes:
        """The text, with a stamp that is good for its cookie and its subscribe lines."""
        mark = bytes([STAMP])
        if mark not in text:
            return text
        words = text.lstrip(b"\n").partition(b"\n")[0].split(b" ")
        lines = wire.split_lines(text)[0]
        topics = wire.sorted_lines(lines[1:])[0] if lines else []
        bits = price_bits(self.server.work_bits, len(topics))
        stamp = None
        if bits and len(words) > 2 and len(topics) <= LINES_PER_DATAGRAM_MAX:
            stamp = Mint(words[2], topics, bits).work(64 << bits)
        return text.replace(mark, stamp or b"-")

    def _arrive(self, datagram: bytes, count: int, source: Address) -> None:
        """Lets a burst of equal datagrams arrive, and notes what may come of it."""
        server = self.server
        is_welcome = self.settings.is_open and _is_welcome(source)
        is_looked_at = is_welcome or server.publish_leases.left_s(source, self.now) > 0
        for _ in range(count):
            is_looked_at = self._note(datagram, source) or is_looked_at
        is_looked_at = is_looked_at and source != OWN
        before = Counter(server.drops)
        accounted_before, received_before = self._accounted(), self._received()
        server.receive(Burst(datagram * count, len(datagram), source), self.now)
        assert self._received() - received_before == count
        accounted = self._accounted() - accounted_before
        assert accounted >= count, f"{datagram!r} is not accounted for"
        if is_looked_at:
            self._check_lines(datagram, count, accounted, server.drops - before)
        limits = server.limits
        assert len(server.leases) <= limits.leases and server.leases.topic_count <= limits.topics
        assert len(server.publish_leases) <= limits.publishers

    def _note(self, datagram: bytes, source: Address) -> bool:
        """Notes what may come of a datagram. Returns whether each of its lines must be accounted for."""
        self.unanswered.append(_Unanswered(datagram, source, self.now, source in self.proven))
        if source not in self.proven:
            self.unproven_bytes[source] += len(datagram)
        lines = wire.split_lines(datagram)[0]
        if source == OWN or not lines or len(datagram) > DATAGRAM_BYTES_MAX:
            return False
        subscribes, publishes, _ = wire.sorted_lines(lines)
        may_publish = may_subscribe = self.settings.is_open and _is_welcome(source)
        may_publish = may_publish or self.publish_until.get(source, 0.0) > self.now
        is_vouched = wire.is_vouched(datagram)
        if is_vouched:
            age_s = self._age_s(lines[0], source)
            if age_s is None or len(datagram) < REQUEST_BYTES_MIN:
                return False
            self.proven.add(source)
            self._saw_life(source)
            may_publish, may_subscribe = True, age_s <= COOKIE_LEASE_LIFE_S
            if publishes or not subscribes:
                self.publish_until[source] = self.now + self.server.ttl_s
        if may_subscribe:
            self.lease_until |= {(topic, source): self.now + self.server.ttl_s for topic in subscribes}
        if may_publish:
            self.published.update(publishes)
        return is_vouched and (may_subscribe or not subscribes)

    def _age_s(self, line: bytes, source: Address) -> float | None:
        """The age of the cookie that a line shows, if it was given to this source and is still good."""
        vouch = wire.parse_request(line)
        if isinstance(vouch, wire.Vouch):
            for cookie, at in self.cookies[source]:
                if cookie == vouch.cookie and self.now - at <= COOKIE_PUBLISH_LIFE_S:
                    return self.now - at
        return None

    def _saw_life(self, source: Address) -> None:
        self.sent_bytes[source] += self.unshown_bytes.pop(source, 0)

    # --- What must hold

    def _check_lines(self, datagram: bytes, count: int, accounted: int, drops: Counter[Drop]) -> None:
        """Each line is done, refused or dropped, and none of them twice."""
        lines = wire.split_lines(datagram)[0]
        if len(datagram) > DATAGRAM_BYTES_MAX or len(lines) > self.server.limits.lines_per_datagram:
            return
        # A publish on what is no topic is counted as received, too.
        once = accounted - drops[Drop.TOPIC]
        assert once <= count * (len(lines) + MORE_COUNTS_MAX), f"{datagram!r}: {drops}"
        is_vouched = wire.is_vouched(datagram)
        if is_vouched and not (lines and isinstance(wire.parse_request(lines[0]), wire.Vouch)):
            return
        if is_vouched and drops.keys() & _OF_VOUCHED_DATAGRAMS:
            return
        subscribes, publishes, controls = wire.sorted_lines(lines[is_vouched:])
        publish_count = len(publishes)
        if is_vouched and drops.keys() & {Drop.PUBLISH_RATE, Drop.BACKLOG}:
            assert accounted >= publish_count  # the whole datagram was refused
        else:
            least = len(set(subscribes)) + publish_count + len(controls)
            assert accounted >= count * least, f"{datagram!r}: {accounted} of {count} times {least}: {drops}"

    def _flush(self) -> None:
        """Sends all that goes out now."""
        for _ in range(FLUSHES_MAX):
            transmits = self.server.flush(self.now)
            if not transmits:
                self.unanswered.clear()
                return
            for transmit in transmits:
                for datagram in datagrams(transmit.data, transmit.segment_bytes):
                    for to in transmit.destinations:
                        if transmit.is_answer:
                            self._check_answer(datagram, to)
                        else:
                            self._check_copies(datagram, to)
        raise AssertionError("the server sends without an end")

    def _check_answer(self, answer: bytes, to: Address) -> None:
        replies = [wire.parse_reply(line) for line in wire.split_lines(answer)[0]]
        assert to != OWN and answer.endswith(b"\n") and [type(reply) for reply in replies] in FORMS, answer
        first = replies[0]
        assert first is not None and all(reply and reply.nonce == first.nonce for reply in replies)
        while self.unanswered:  # answers come in the order of what they answer
            datagram, source, at, was_proven = self.unanswered.popleft()
            if (
                source == to
                and first.nonce in datagram
                and len(answer) <= min(len(datagram), REPLY_BYTES_MAX)
            ):
                break
        else:
            raise AssertionError(f"{answer!r} to {to} answers nothing, or something shorter, or again")
        if not was_proven:
            self.unproven_bytes[to] -= len(answer)
            assert self.unproven_bytes[to] >= 0, f"{to} is sent more than came from there"
        for reply in replies:
            if isinstance(reply, wire.Challenge | wire.Receipt):
                self.cookies[to].append((reply.cookie, at))
            if isinstance(reply, wire.Receipt | wire.Pong):
                assert (reply.ttl_s if isinstance(reply, wire.Receipt) else reply.left_s) <= self.server.ttl_s

    def _check_copies(self, datagram: bytes, to: Address) -> None:
        lines, is_unterminated = wire.split_lines(datagram)
        assert lines and not is_unterminated and len(datagram) <= DATAGRAM_BYTES_MAX
        assert datagram.startswith(b"\n") or not self.settings.is_open  # which marks its copies (§4.4)
        for line in lines:
            topic, _, _ = line.partition(b" ")
            assert self.lease_until.get((topic, to), 0.0) > self.now, f"{line!r} goes to {to} without a lease"
            self.copied[line, to] += 1
            assert self.copied[line, to] <= self.published[line], f"{line!r} goes to {to} too often"
        if not is_loopback(to[0]) or not self.server.exempts_loopback:
            self.unshown_bytes[to] += len(datagram)
            credit_bytes = max(CREDIT_BYTES_MIN, self.sent_bytes[to])
            assert self.unshown_bytes[to] <= credit_bytes, f"{to} is sent more than its credit"

    def _received(self) -> int:
        return self.server.counts["datagrams_received"] + self.server.drops[Drop.OWN_ADDRESS]

    def _accounted(self) -> int:
        """All that was answered, forwarded, leased, or dropped on its arrival."""
        counts, drops = self.server.counts, self.server.drops
        done = counts["answers_sent"] + counts["messages_received"]
        done += counts["leases_opened"] + counts["leases_renewed"]
        return done + drops.total() - sum([drops[drop] for drop in _OF_COPIES])


def _is_welcome(source: Address) -> bool:
    return source[0].startswith("198.51.100.")
