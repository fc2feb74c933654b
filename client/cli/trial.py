"""Uses one server as a client does: a lease, a publish, its receipt, and the copy that comes back. Sans-IO.

It takes the topic that is reserved for that, on which leases do not keep a draining server from ending. For
`kcast health` and `kcast doctor`, each of which drives it in its own way.
"""

from dataclasses import dataclass
from math import inf
from random import Random

from kcast.client.clusters.cluster import ServerEntry
from kcast.client.events import Outcome
from kcast.client.session.allowance import Spending
from kcast.client.session.notices import Change
from kcast.client.session.session import Session
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, datagrams

COPY_TIMEOUT_S = 0.5  # a copy or its publish may get lost; after this the publish is repeated
UNASKED_BYTES_MAX = 40  # that are kept of a line
WORK_TRIES = 4096  # for a stamp, before the socket is looked at again: about 2 ms

_HANDLE = 0  # for the one message


@dataclass
class Unasked:
    """How many lines came that answer nothing that was asked, and the first of them."""

    count: int = 0
    first: bytes = b""

    def add(self, line: bytes) -> None:
        """Counts a line."""
        self.first = self.first or line[:UNASKED_BYTES_MAX]
        self.count += 1


class Trial:
    """A client's session with a server, and what has come of it so far.

    `lease_refusal` and `publish_refusal` are the reasons of the last refusals. `is_too_dear` says that a new
    lease costs more than any client pays. `forgotten_count` is how often the server did not take a cookie
    that it had made a moment before, `unasked` what came of it that answers nothing that was asked.
    `takes_bare` says that it takes publishes without a cookie now (§7.2), `tells_credit` that it told of
    credit (§7.7), `is_copy_marked` that the copy is one of an open server (§4.4).
    """

    def __init__(self, address: Address, rng: Random, topic: bytes = wire.HEALTH_TOPIC) -> None:
        self.lease_refusal = self.publish_refusal = ""
        self.is_answered = self.has_receipt = self.has_copy = self.is_copy_marked = self.is_too_dear = False
        self.forgotten_count = 0
        self.unasked = Unasked()
        self.price_bits = 0
        self.tells_credit = self.takes_bare = False
        # Whoever drives this bounds the time, and so what a stamp may cost.
        self.session = Session(ServerEntry((address,), ""), rng, spending=Spending(try_s=0.0))
        self._topic = topic
        self._nonces: set[bytes] = set()  # of all that was asked, since answers may be late
        message = b"%016x" % rng.getrandbits(64)  # no other trial's copy is taken for ours
        self._line = wire.publish_line(topic, message)
        self._published_at = -inf
        self._is_awaiting_receipt = False

    @property
    def is_leased(self) -> bool:
        """Whether the lease stands."""
        return self.session.is_leased(self._topic)

    @property
    def progress(self) -> tuple[bool, ...]:
        """Which of its steps are done: each begins when the one before is."""
        return self.is_answered, self.is_leased or bool(self.lease_refusal), self.has_receipt, self.has_copy

    @property
    def is_done(self) -> bool:
        """Whether all has come that can: without a lease, there is no copy to wait for."""
        return self.has_receipt and (self.has_copy or not self.is_leased)

    def begin(self, now: float, *, leases: bool = True) -> None:
        """Asks for the lease, or publishes without one."""
        if leases:
            self.session.want(self._topic, now)
        else:
            self._publish(now)

    def next_timeout(self) -> float:
        """Returns when there is something to do again, unless something arrives before."""
        if self.session.is_minting:
            return -inf
        times = [self.session.next_timeout()]
        if self.has_receipt:
            times.append(self._published_at + COPY_TIMEOUT_S)
        return min([at for at in times if at is not None], default=inf)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, int]]:
        """Returns what is to go to the server now, as a session does."""
        due = self.session.next_timeout()
        if due is not None and due <= now:
            self.session.handle_timeout(now)
        found = self.session.datagrams_to_send(now)
        for data, segment_bytes in found:
            for datagram in datagrams(data, segment_bytes):
                lines, _ = wire.split_lines(datagram)
                requests = map(wire.parse_request, lines)
                self._nonces.update(
                    r.nonce for r in requests if isinstance(r, wire.Ask | wire.Vouch | wire.Ping)
                )
        return found

    def work(self, now: float) -> None:
        """Looks for a stamp for a moment, if one is needed."""
        self.session.work(WORK_TRIES, now)

    def take(self, datagram: bytes, now: float) -> None:
        """Takes a datagram that came from the server."""
        lines, has_tail = wire.split_lines(datagram)
        if self._line[:-1] in lines:
            self.has_copy = True
            self.is_copy_marked |= datagram.startswith(b"\n")
        replies = [reply for line in lines if (reply := wire.parse_reply(line)) is not None]
        for reply in replies:
            if isinstance(reply, wire.Challenge | wire.Receipt):
                self.price_bits = reply.bits
            self.tells_credit |= "credit" in reply.attributes
            self.takes_bare |= isinstance(reply, wire.Receipt) and reply.attributes.get("bare") != "0"
        if replies:
            self.is_answered |= self.session.handle_replies(replies, now) < len(replies)
        if has_tail and not lines:
            self.unasked.add(datagram)
        for line in lines:
            if not self.expects(line):
                self.unasked.add(line)

    def expects(self, line: bytes) -> bool:
        """Whether a line from the server comes of what was asked: an answer, also one that is late or came
        before, or a copy on the topic, whoever published it."""
        if line.startswith(self._topic + b" "):
            return True
        reply = wire.parse_reply(line)
        return reply is not None and reply.nonce in self._nonces

    def look(self, now: float) -> None:
        """Takes note of what has come of it, and publishes when it is time for that."""
        for notice in self.session.notices:
            if notice.change is Change.REFUSED:
                self.lease_refusal = notice.reason
            elif notice.change is Change.LOST and notice.reason == "price":
                self.is_too_dear = True
            elif notice.change is Change.FORGOT:
                self.forgotten_count += 1
        self.session.notices.clear()
        for settled in self.session.take_settled():
            self._is_awaiting_receipt = False
            self.has_receipt |= settled.outcome is Outcome.RECEIPT
            if settled.outcome is Outcome.REFUSED:
                self.publish_refusal = settled.reason
        is_time = self.is_leased or self.lease_refusal or self.is_too_dear
        if is_time and not (self._is_awaiting_receipt or self.is_done):
            self._publish(now)

    def _publish(self, now: float) -> None:
        if now >= self._published_at + COPY_TIMEOUT_S:
            self._published_at = now
            self._is_awaiting_receipt = True
            self.session.publish(self._line, _HANDLE, confirm=True)
