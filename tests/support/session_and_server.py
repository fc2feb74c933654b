"""A session and one server core, with a clock moved by hand."""

from math import inf
from random import Random
from typing import Any

from kcast.client.cluster import ServerEntry
from kcast.client.events import Outcome
from kcast.client.session.liveness import Change
from kcast.client.session.session import Session
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from tests.support.server_core import SteadyServer, flushed, sent

SERVER: Address = ("192.0.2.1", 7400)
CLIENT: Address = ("198.51.100.1", 1000)
START = 1000.0


class SessionAndServer:
    """A session and a server, `rtt_s` apart. What crosses is recorded with its time."""

    def __init__(self, rtt_s: float = 0.0, seed: int = 1, **options: Any) -> None:
        self.now = START
        self.rtt_s = rtt_s
        self.options = options
        self.boots = 0
        self.is_up = True
        self.source = CLIENT
        self.out: list[tuple[float, bytes]] = []
        self.session = Session(ServerEntry((SERVER,), "h"), Random(seed))
        self.restart()

    def restart(self) -> None:
        """A new process: another secret, and nothing in its tables."""
        self.boots += 1
        self.server = SteadyServer(secret=bytes([self.boots]) * 32, **self.options)

    def exchange(self) -> None:
        """What is due now, there and back, until both are quiet."""
        while True:
            self.session.handle_timeout(self.now)
            sending = self.session.datagrams_to_send(self.now)
            if not sending:
                return
            self.out += [(self.now, each) for data, size in sending for each in datagrams(data, size)]
            assert all(size <= DATAGRAM_BYTES_MAX for _, size in sending)
            if not self.is_up:
                continue
            for data, size in sending:
                self.server.receive(Burst(data, size, self.source), self.now + self.rtt_s / 2)
            transmits = flushed(self.server, self.now + self.rtt_s / 2)
            self.now += self.rtt_s
            for _, datagram in sent(transmits):
                replies = [wire.parse_reply(line) for line in wire.split_lines(datagram)[0]]
                known = [reply for reply in replies if reply is not None]
                assert self.session.handle_replies(known, self.now) == 0

    def run(self, for_s: float) -> None:
        """Lets time pass, from one thing due to the next."""
        end = self.now + for_s
        self.exchange()
        while (at := self.session.next_timeout()) is not None and at <= end:
            assert at > self.now - self.rtt_s, "nothing is due again and again at one time"
            self.now = max(self.now, at)
            self.server.handle_timeout(self.now)
            self.exchange()
        self.now = max(self.now, end)

    def verbs(self, since: float = -inf) -> str:
        """The first lines' verbs, of what was sent, in order."""
        return "".join(
            data[1:2].decode() if data[:1] == b"%" else "." for at, data in self.out if at >= since
        )

    def times(self, verb: bytes) -> list[float]:
        return [at for at, data in self.out if data.startswith(verb)]

    def changes(self) -> list[tuple[Change, bytes]]:
        notices, self.session.notices = self.session.notices, []
        return [(notice.change, notice.topic) for notice in notices]

    def outcomes(self) -> list[tuple[int, Outcome]]:
        settled = self.session.take_settled()
        return [(parcel.handle, each.outcome) for each in settled for parcel in each.parcels]


def vouched_at_last(**options: Any) -> SessionAndServer:
    """A session that holds a publish lease, and has settled what opened it."""
    line = SessionAndServer(**options)
    assert line.session.publish(b"t first\n", 0, True)
    line.exchange()
    assert line.outcomes() == [(0, Outcome.RECEIPT)]
    line.out.clear()
    return line
