"""One address of a server, and what a client finds there: pings, a lease, a message and its copy. Sans-IO.

For `kcast health`, `doctor`, `ping` and `top`; `kcast.client.cli.probing` moves the datagrams. Leases are
taken on the topic that is reserved for that, on which they do not keep a draining server from ending.
"""

from collections import deque
from dataclasses import dataclass, field
from math import inf
from random import Random

from kcast.client.clusters.cluster import ServerEntry
from kcast.client.events import Outcome
from kcast.client.session.allowance import Spending
from kcast.client.session.liveness import Change
from kcast.client.session.session import Session
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

PING_BYTES = 64  # longer than today's pong: a server never answers at greater length than it was asked
COPY_TIMEOUT_S = 0.5  # a copy or its publish may get lost; after this the publish is repeated
RECENT_MAX = 20  # pings
WORK_TRIES = 4096  # for a stamp, before sockets are looked at again: about 2 ms
NO_ADDRESS = "down: the name leads to no address"

_HANDLE = 0  # for the one message


@dataclass
class Pings:
    """Pings of one size, and the round-trip times of those that were answered."""

    size_bytes: int
    sent: int = 0
    rtts_s: list[float] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """The number of pings without an answer."""
        return self.sent - len(self.rtts_s)


class Probe:
    """What came of asking at an address; None stands for that of a name that leads to none.

    `problem` says why it is not asked. `version` is what the server says to be: "" where it does not say,
    None until it is asked with a cookie. `is_closed` says that by the network nobody listens there, and the
    errors are names of the system's, or of the network's answer. An answer that should come from here came
    from `elsewhere`; `strange_count` datagrams came from here that answer nothing.

    Refusals are reasons of the last ones. `is_too_dear` says that a lease costs more than any client pays;
    `forgotten_count` is how often a cookie was not taken that had been made a moment before; `took_s` is the
    time from the begin to the last step that was done. `is_copy_marked` says that the copy is one of an open
    server (§4.4). `has_full_copy` is None until a message of full size was sent.
    """

    def __init__(
        self,
        server: str,
        address: Address | None,
        rng: Random,
        label: str = "",
        topic: bytes = wire.HEALTH_TOPIC,
    ) -> None:
        self.server, self.address, self.label = server, address, label or server
        self.problem = "" if address else NO_ADDRESS
        self.is_closed = False
        self.send_error = self.network_error = ""
        self.elsewhere: Address | None = None
        self.strange_count = 0
        self.work_bits: int | None = None  # its price of a new lease; None if it has not said
        self.head: str | None = None
        self.version: str | None = None
        # pings
        self.small, self.full = Pings(PING_BYTES), Pings(DATAGRAM_BYTES_MAX)
        self.awaited: dict[bytes, tuple[Pings, float]] = {}  # with the time when each was sent
        self.recent: deque[float | None] = deque(maxlen=RECENT_MAX)  # the last ones: None if lost
        self._asked: deque[bytes] = deque(maxlen=RECENT_MAX)
        self._cookie = b""
        self._is_pong_draining = False
        # a client's dealings
        self.lease_refusal = self.publish_refusal = ""
        self.is_answered = self.has_receipt = self.has_copy = self.is_copy_marked = self.is_too_dear = False
        self.takes_bare = self.is_heard = False  # publishes without a cookie (§7.2); a copy on the topic came
        self.has_full_copy: bool | None = None
        self.forgotten_count = 0
        self.waited_s = self.deadline = inf  # for each step
        self.took_s = self._began_at = 0.0
        # Whoever drives this bounds the time, and so what a stamp may cost.
        entry = ServerEntry((address or ("::", 0),), "")
        self.session = Session(entry, rng, spending=Spending(try_s=0.0))
        self._topic, self._rng = topic, rng
        # No other probe's copy is taken for ours.
        self._line = wire.publish_line(topic, self._token())
        self._full_line = b""
        self._published_at = -inf
        self._is_awaiting_receipt = False
        self._progress: tuple[bool, ...] = ()

    @property
    def rtts_s(self) -> list[float]:
        """The round-trip times of all pings that were answered."""
        return [*self.small.rtts_s, *self.full.rtts_s]

    @property
    def is_draining(self) -> bool:
        """Whether it says that it is about to stop."""
        return self._is_pong_draining or self.session.is_draining

    @property
    def may_answer(self) -> bool:
        """Whether it has answered, or neither system nor network say that nothing gets through."""
        is_off = self.is_closed or bool(self.send_error or self.network_error)
        return self.is_answered or not is_off

    @property
    def is_leased(self) -> bool:
        """Whether the lease stands."""
        return self.session.is_leased(self._topic)

    @property
    def is_done(self) -> bool:
        """Whether all has come that can: without a lease, there is no copy to wait for."""
        return self.has_receipt and (self.has_copy or not self.is_leased)

    def _token(self) -> bytes:
        return b"%016x" % self._rng.getrandbits(64)

    # --- Pings ---------------------------------------------------------------------------------------

    def ping(self, now: float, pings: Pings | None = None) -> bytes:
        """Returns a ping, which is to be sent now."""
        pings = pings or self.small
        nonce = self._token()
        pings.sent += 1
        self.awaited[nonce] = pings, now
        return wire.pad(wire.format_line(wire.Ping(nonce)), pings.size_bytes)

    def ask(self) -> bytes:
        """Returns a request for price and head, and with a cookie for the version; it is not timed."""
        nonce = self._token()
        self._asked.append(nonce)
        if not self._cookie:
            return wire.request_datagram(wire.Ask(nonce))
        return wire.request_datagram(wire.Vouch(nonce, self._cookie, None, asks_version=True))

    def close(self) -> None:
        """Notes that nobody listens. A report does not say which ping it is about; others under way will fare
        no better."""
        self.is_closed = True
        self.give_up()

    def give_up(self, before: float = inf) -> None:
        """Awaits no longer what was sent before a time."""
        lost = [nonce for nonce, (_, sent_at) in self.awaited.items() if sent_at < before]
        for nonce in lost:
            del self.awaited[nonce]
        self.recent.extend([None] * len(lost))

    # --- A client's dealings -------------------------------------------------------------------------

    def begin(self, now: float, step_s: float = inf, *, leases: bool = True) -> None:
        """Asks for the lease, or publishes without one. Each step may take `step_s`."""
        self.waited_s, self.deadline, self._began_at = step_s, now + step_s, now
        if leases:
            self.session.want(self._topic, now)
        else:
            self._publish(now)

    def is_settled(self, now: float) -> bool:
        """Whether nothing more is to be expected."""
        return self.is_done or self.is_draining or not self.may_answer or now >= self.deadline

    def next_timeout(self) -> float:
        """Returns when there is something to do again, unless something arrives before."""
        if self.session.is_minting:
            return -inf
        copy_at = self._published_at + COPY_TIMEOUT_S if self.has_receipt else inf
        session_at = self.session.next_timeout()
        return min(self.deadline, copy_at, inf if session_at is None else session_at)

    def datagrams_to_send(self, now: float) -> list[bytes]:
        """Returns what is to go to the server now, and looks for a stamp for a moment, if one is needed."""
        due = self.session.next_timeout()
        if due is not None and due <= now:
            self.session.handle_timeout(now)
        found = [each for burst in self.session.datagrams_to_send(now) for each in datagrams(*burst)]
        self.session.work(WORK_TRIES, now)
        return found

    def full_datagram(self) -> bytes:
        """Returns a message that fills a datagram, which goes bare, under the publish lease."""
        if not self._full_line:
            self.has_full_copy = False
            start = wire.publish_line(self._topic, self._token())[:-1]
            # An open server puts a LF before it (§4.4).
            self._full_line = start.ljust(DATAGRAM_BYTES_MAX - 1 - self.is_copy_marked, b".") + b"\n"
        return self._full_line

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
        is_told = self.is_leased or bool(self.lease_refusal)
        if (is_told or self.is_too_dear) and not (self._is_awaiting_receipt or self.is_done):
            self._publish(now)
        progress = self.is_answered, is_told, self.has_receipt, self.has_copy
        if progress > self._progress:
            self._progress = progress
            self.took_s, self.deadline = now - self._began_at, now + self.waited_s

    def _publish(self, now: float) -> None:
        if now >= self._published_at + COPY_TIMEOUT_S:
            self._published_at = now
            self._is_awaiting_receipt = True
            self.session.publish(self._line, _HANDLE, confirm=True)

    # --- What comes ----------------------------------------------------------------------------------

    def take(self, datagram: bytes, source: Address, now: float) -> list[bytes]:
        """Takes a datagram; returns those with which to answer it."""
        lines, had_cookie = wire.split_lines(datagram)[0], bool(self._cookie)
        replies = [reply for line in lines if (reply := wire.parse_reply(line)) is not None]
        pongs = [each for each in replies if isinstance(each, wire.Pong) and each.nonce in self.awaited]
        if source != self.address:
            self.elsewhere = source if pongs else self.elsewhere
            return []
        for pong in pongs:
            pings, sent_at = self.awaited.pop(pong.nonce)
            pings.rtts_s.append(now - sent_at)
            self.recent.append(now - sent_at)
            self.is_closed = False
            self._is_pong_draining = pong.attributes.get("drain") == "1"
        for reply in replies:
            self.takes_bare |= isinstance(reply, wire.Receipt) and reply.attributes.get("bare") != "0"
            if isinstance(reply, wire.Challenge | wire.Receipt):
                self.work_bits = reply.bits
                self.head = reply.attributes.get("head", self.head)
                self._cookie = reply.cookie
        others = [reply for reply in replies if reply not in pongs]
        is_answer = bool(others) and self.session.handle_replies(others, now) < len(others)
        self.is_answered |= is_answer
        copies = [line for line in lines if line.startswith(self._topic + b" ")]
        self.is_heard |= bool(copies)
        if self._line[:-1] in copies:
            self.has_copy = True
            self.is_copy_marked |= datagram.startswith(b"\n")
        if self._full_line and self._full_line[:-1] in copies:
            self.has_full_copy = True
        told = [reply for reply in others if reply.nonce in self._asked]
        self.strange_count += not (pongs or is_answer or copies or told)
        for reply in told:
            if isinstance(reply, wire.Receipt):
                version = reply.attributes.get("version", "")
                self.version = version if wire.is_version(version) else ""
        return [self.ask()] if told and self._cookie and not had_cookie else []
