"""What somebody sees who watches the whole network, while a client has cover traffic: in virtual time.

A world is drawn from a seed: its cluster, what is lost, which servers are dead and when, when the epoch
changes, when the machine is too busy. What the program says is drawn apart from it. So two runs of one seed
differ in what is said alone.
"""

import heapq
import re
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Any, NamedTuple

from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.driving.arguments import CoverOptions, WriteOptions
from kcast.client.driving.protection import Protection
from kcast.client.errors import Backlog
from kcast.client.events import Published
from kcast.client.publishing.waiters import Waiters
from kcast.client.sealed.cover import Cover
from kcast.client.sealed.membership import Group
from kcast.hashring.policy import Policy
from kcast.pubsub.endpoint import Address, Burst
from tests.support.groups import ALICE, BOB, OWNER
from tests.support.sealed_lines import epoch
from tests.support.server_core import SteadyServer, flushed, sent

START = 1000.0
UNIX_S = 1_800_000_000.0
RUN_S = 16.0
TOPIC = b"weather/oslo"
WRITER: Address = ("198.51.100.1", 1)
READER: Address = ("198.51.100.2", 1)
QUEUE_MAX = 3

_SEALED = re.compile(rb"( %@[^ \n]*;S=[^ \n]* )([^ \n]*)\n")


class Seen(NamedTuple):
    """A datagram as an observer has it: all but what is sealed, of which there is only the length."""

    at: float
    source: Address
    destination: Address
    data: bytes


class Circumstances:
    """What is drawn for a seed, and is the same whatever is said."""

    def __init__(self, seed: int) -> None:
        rng = Random(f"circumstances {seed}")
        self.seed = seed
        self.policy = rng.choice((Policy(5, 3, 5), Policy(3, 2, 3), Policy(3, 1, 3), Policy(4, 4, 4)))
        self.loss = rng.choice((0.0, 0.05, 0.3))
        self.delay_s = rng.choice((0.001, 0.03))
        self.rate = rng.choice((1.0, 2.5, 7.0))
        self.size = rng.choice((0, 30, 200, 600))
        self.options: CoverOptions = {
            "rate": self.rate,
            "size": self.size,
            "queue_max": QUEUE_MAX,
            "plain_topic": rng.random() < 0.3,
            "repeat": rng.choice((1, 1, 3)),
            "confirm": rng.random() < 0.7,
        }
        self.dead = rng.choice((None, 0, 1))  # this server, from a time on
        self.dead_s = rng.uniform(2, 10)
        silence = rng.random() < 0.5  # then no server answers for some time: NoReceipt
        self.silent_s = (begun := rng.uniform(2, 8), begun + rng.uniform(1, 8)) if silence else (0.0, 0.0)
        self.changes_s = rng.choice((None, rng.uniform(3, 13)))  # when the next epoch begins
        self.busy_s = sorted(rng.uniform(2, RUN_S) for _ in range(rng.choice((0, 3))))
        self.also = rng.random() < 0.5  # whether it publishes on other topics, too

    def group(self) -> Group:
        """The group, with one epoch or two."""
        first = epoch()
        owner = OWNER.note_key.verifier
        if self.changes_s is None:
            return Group("ops", owner, (first,), int(UNIX_S) + 86_400)
        second = epoch(number=2, private=bytes(range(7, 39)))
        changes: Any = UNIX_S + self.changes_s
        object.__setattr__(first, "next_from_unix_s", changes)
        object.__setattr__(second, "from_unix_s", changes)
        object.__setattr__(second, "topic_secret", bytes(range(64, 96)))
        return Group("ops", owner, (first, second), int(UNIX_S) + 86_400)


class Talk:
    """What a program says: when, and how much; of one seed always the same. It reacts to outcomes, too."""

    def __init__(self, seed: object) -> None:
        self.rng = Random(f"talk {seed}")
        self.share = self.rng.choice((0.2, 1.0, 3.0))  # messages for each tick

    def times(self, rate: float) -> list[float]:
        """When it says something, in bursts."""
        count = int(self.share * rate * RUN_S / 3)
        return [at for _ in range(count) for at in [self.rng.uniform(0, RUN_S)] * self.rng.choice((1, 1, 6))]


class World:
    """A client with cover traffic, one that reads it, servers, and the network between them.

    With a `talk` there are messages, without one only dummies. `sabotage` is called with the world before it
    begins.
    """

    def __init__(
        self, of: Circumstances, talk: Talk | None, sabotage: Callable[["World"], None] | None = None
    ) -> None:
        self.of = of
        self.talk = talk
        self.now = START
        self.seen: list[Seen] = []
        self._network = Random(f"network {of.seed}")
        self._plan: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        addresses: list[Address] = [(f"192.0.2.{host}", 7400) for host in range(1, 6)]
        self.servers = {
            address: SteadyServer(secret=bytes([number]) * 32) for number, address in enumerate(addresses, 1)
        }
        cluster = lab(addresses, of.policy)
        self.group = of.group()
        self.clients = {
            WRITER: ClientCore(cluster, Random(f"writer {of.seed}")),
            READER: ClientCore(cluster, Random(f"reader {of.seed}")),
        }
        for client in self.clients.values():
            client.clock_offset_s = UNIX_S - START
        entropy = Random(f"entropy {of.seed}").randbytes
        self.protection = Protection(self.clients[WRITER], ALICE, self.group, START, entropy)
        reading = Protection(self.clients[READER], BOB, self.group, START)
        guard = reading.guard([TOPIC], {"plain_topic": of.options["plain_topic"]}, START)
        self.clients[READER].subscribe(TOPIC, START, guard=guard)
        self.waiters = Waiters()
        self._timers = dict.fromkeys(self.clients, 0.0)
        self.cover: Cover
        if sabotage is not None:
            sabotage(self)

    def run(self) -> list[Seen]:
        """Lets it all happen; returns what an observer sees."""
        self.at(START, lambda: self.turn(READER))
        self.at(START + 0.5, self._begin)
        if self.talk is not None:
            for at in self.talk.times(self.of.rate):
                self.at(START + 0.5 + at, self.say)
        if self.of.also:
            for number in range(8):
                self.at(START + 1.1 + number * 1.7, self._publish_beside)
        for second in range(1, int(RUN_S)):
            self.at(START + second, self._tidy)
        while self._plan and self._plan[0][0] <= START + RUN_S:
            self.now, _, act = heapq.heappop(self._plan)
            act()
        return self.seen

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Plans something."""
        self._planned += 1
        heapq.heappush(self._plan, (time, self._planned, act))

    # --- The program -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.cover = self.protection.cover(TOPIC, self.of.options, self.now, self.waiters.put)
        self.turn(WRITER)

    def say(self) -> None:
        """Lets a message wait for its tick, if there is room."""
        assert self.talk is not None
        payload = self.talk.rng.randbytes(self.talk.rng.randint(0, self.of.size))
        outcome: Future[Published] = Future()
        try:
            self.cover.put(payload, outcome)
        except Backlog:
            return
        if self.talk.rng.random() < 0.1:
            outcome.cancel()
            return
        outcome.add_done_callback(self._react)

    def _react(self, outcome: "Future[Published]") -> None:
        assert self.talk is not None
        if self.talk.rng.random() < 0.3:
            self.say()

    def _publish_beside(self) -> None:
        client = self.clients[WRITER]
        sealed = self.protection.writer(WriteOptions(sign=None), self.now)
        client.publish(b"another", b"x", self.now, writer=sealed)
        client.publish(b"clear", b"x", self.now, confirm=False)
        self.turn(WRITER)

    # --- Hosts -------------------------------------------------------------------------------------------

    def turn(self, address: Address, burst: Burst | None = None) -> None:
        """A turn of a client, as an engine makes it."""
        now, client = self.now, self.clients[address]
        if burst is not None:
            client.receive(burst, now)
        if address == WRITER and self._is_busy():
            self.at(now + 0.05, lambda: self.turn(address))
            return
        if address == WRITER and now >= self.protection.covers.next_at:
            self.protection.covers.look(now)
        client.handle_timeout(now)
        self._send(address, client.flush(now))
        for event in client.events():
            if isinstance(event, Published):
                self.waiters.tell(event)
        due = client.next_timeout() or START + RUN_S + 1
        if address == WRITER:
            due = min(due, self.protection.covers.next_at)
        self._timers[address] = due = max(now, due)
        self.at(due, lambda: self._timer(address, due))

    def _timer(self, address: Address, due: float) -> None:
        if self._timers[address] == due:
            self.turn(address)

    def _is_busy(self) -> bool:
        since_s = self.now - START
        return any(begun <= since_s < begun + 1.7 / self.of.rate for begun in self.of.busy_s)

    def _serve(self, address: Address, burst: Burst) -> None:
        since_s, of = self.now - START, self.of
        number = list(self.servers).index(address)
        if (number == of.dead and since_s > of.dead_s) or of.silent_s[0] < since_s < of.silent_s[1]:
            return
        self.servers[address].receive(burst, self.now)
        self._send(address, flushed(self.servers[address], self.now))

    def _tidy(self) -> None:
        for server in self.servers.values():
            server.handle_timeout(self.now)

    def _send(self, source: Address, transmits: Any) -> None:
        for to, data in sent(transmits):
            masked = _SEALED.sub(lambda found: found[1] + b"?" * len(found[2]) + b"\n", data)
            self.seen.append(Seen(self.now, source, to, masked))
            if self._network.random() < self.of.loss:
                continue
            burst = Burst(data, len(data), source)
            at = self.now + self.of.delay_s * self._network.uniform(1, 2)
            if to in self.servers:
                self.at(at, lambda to=to, burst=burst: self._serve(to, burst))  # type: ignore[misc]
            else:
                self.at(at, lambda to=to, burst=burst: self.turn(to, burst))  # type: ignore[misc]


def difference(one: list[Seen], other: list[Seen]) -> str:
    """Returns where two traces differ first; "" where they do not."""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f"datagram {number}: {left} and {right}"
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} datagrams"
    return ""
