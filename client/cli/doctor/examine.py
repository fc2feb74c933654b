"""Observes addresses of servers: pings of two sizes, then a lease and copies, as a client has them."""

import asyncio
import errno
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import SystemRandom

from kcast.client.cli.doctor.idle import observe_idle
from kcast.client.cli.doctor.line import Line, converse_in_steps
from kcast.client.cli.doctor.seen import Dealing, Pings, Seen, packet_bytes
from kcast.client.cli.trial import Trial
from kcast.pubsub import clock, wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

PING_COUNT = 10  # of each size
PING_INTERVAL_S = 0.05
FULL_TRIES = 3
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_IP_MTU, _IPV6_MTU = 14, 24  # <linux/in.h>, <linux/in6.h>


async def examine(
    each_seen: Sequence[Seen], timeout_s: float, pauses_s: tuple[float, ...], on_done: Callable[[], None]
) -> None:
    """Fills in what can be observed at some addresses, at the same time. Each step may take `timeout_s`.

    With `pauses_s` it observes, too, for how long the way back stays open without traffic. No address is
    pinged while the price of a lease is worked for at another, as the times would tell of that.
    """
    with ExitStack() as stack:
        visits = [visit for seen in each_seen if (visit := _visit(seen, timeout_s, stack)) is not None]
        for _ in range(len(each_seen) - len(visits)):
            on_done()
        await asyncio.gather(*(visit.deal() for visit in visits))
        await asyncio.gather(*(visit.ping() for visit in visits))

        async def end(visit: _Visit) -> None:
            await visit.idle(pauses_s)
            on_done()

        await asyncio.gather(*map(end, visits))


def _visit(seen: Seen, timeout_s: float, stack: ExitStack) -> "_Visit | None":
    """Begins to examine an address, if there is a way to it."""
    if seen.address is None:
        return None
    if error := _error_of_route(seen.address):
        if error.errno in _NO_WAY:
            seen.no_family = error.strerror or str(error)
        else:
            seen.send_error = errno.errorcode.get(error.errno or 0, "EUNKNOWN")
        return None
    return _Visit(seen, stack.enter_context(Line(seen.address)), timeout_s)


class _Visit:
    """The examination of one address, by a socket of its own."""

    def __init__(self, seen: Seen, line: Line, timeout_s: float) -> None:
        self._seen = seen
        self._line = line
        self._timeout_s = timeout_s
        self._trial = Trial(line.address, SystemRandom())

    async def deal(self) -> None:
        """Uses the server as a client does."""
        line, trial = self._line, self._trial
        began = clock.now()
        trial.begin(began)
        await converse_in_steps(
            line,
            trial,
            self._timeout_s,
            lambda: trial.is_done or trial.session.is_draining or (line.is_refused and not trial.is_answered),
        )
        self._seen.dealing = Dealing(
            waited_s=self._timeout_s,
            took_s=clock.now() - began,
            is_answered=trial.is_answered,
            is_leased=trial.is_leased,
            has_receipt=trial.has_receipt,
            has_copy=trial.has_copy,
            is_copy_marked=trial.is_copy_marked,
            is_draining=trial.session.is_draining,
            is_too_dear=trial.is_too_dear,
            is_minting=trial.session.is_minting,
            tells_credit=trial.tells_credit,
            lease_refusal=trial.lease_refusal,
            publish_refusal=trial.publish_refusal,
            forgotten_count=trial.forgotten_count,
            price_bits=trial.price_bits,
            ttl_s=trial.session.ttl_s,
        )

    async def ping(self) -> None:
        """Pings it, and lets a message of full size come back."""
        seen, line, trial = self._seen, self._line, self._trial
        if trial.is_answered or not line.is_refused:
            # In a flood a server drops pings of strangers, which this port is not any more.
            await _Pinging(seen, line, trial).run(self._timeout_s)
            if seen.dealing and trial.has_copy and trial.takes_bare and seen.full.rtts_s:
                seen.dealing.has_full_copy = await _has_full_copy(line, trial, self._timeout_s)
        seen.unasked_count, seen.unasked_first = trial.unasked.count, trial.unasked.first
        seen.is_closed, seen.send_error = line.is_closed, line.send_error
        seen.network_error = line.network_error
        seen.path_bytes = _path_bytes(line.address)

    async def idle(self, pauses_s: tuple[float, ...]) -> None:
        """Observes for how long the way back stays open, if copies came at all."""
        dealing = self._seen.dealing
        if pauses_s and dealing and dealing.is_leased and dealing.has_copy and dealing.ttl_s is not None:
            self._seen.idle = await observe_idle(self._line.address, dealing.ttl_s, pauses_s, self._timeout_s)


class _Pinging:
    """Pings of both sizes in turns."""

    def __init__(self, seen: Seen, line: Line, trial: Trial) -> None:
        self._seen = seen
        self._line = line
        self._trial = trial
        self._awaited: dict[bytes, tuple[Pings, float]] = {}
        self._answered: dict[bytes, Pings] = {}
        self._believed: dict[bytes, int] = {}  # what the path was believed to take when a long ping left

    async def run(self, timeout_s: float) -> None:
        """Returns when all are answered, or the time after the last one is over."""
        began = clock.now()
        for number in range(2 * PING_COUNT):
            pings = self._seen.full if number % 2 else self._seen.small
            await self._hear(began + number * PING_INTERVAL_S, is_over=lambda: False)
            self._ping(pings)
        await self._hear(clock.now() + timeout_s, is_over=lambda: not self._awaited or self._line.is_refused)
        self._forgive_discovery()

    def _ping(self, pings: Pings) -> None:
        nonce = secrets.token_urlsafe(12).encode()
        pings.sent += 1
        if pings is self._seen.full and (path_bytes := _path_bytes(self._line.address)) is not None:
            self._believed[nonce] = path_bytes
        self._awaited[nonce] = pings, clock.now()
        self._line.send(wire.pad(wire.format_line(wire.Ping(nonce)), pings.size_bytes))

    def _forgive_discovery(self) -> None:
        """Counts no ping by whose loss the kernel learned what the path takes: it went in one piece, and the
        next ones did not."""
        path_bytes = _path_bytes(self._line.address)
        full = self._seen.full
        if path_bytes is None or path_bytes >= packet_bytes(self._line.address) or not full.rtts_s:
            return
        full.sent -= sum(self._believed.get(nonce, 0) > path_bytes for nonce in self._awaited)

    async def _hear(self, until: float, is_over: Callable[[], bool]) -> None:
        while clock.now() < until and not is_over():
            for datagram, source in await self._line.heard(until):
                self._take(datagram, source, clock.now())

    def _take(self, datagram: bytes, source: Address, now: float) -> None:
        lines, has_tail = wire.split_lines(datagram)
        is_theirs = source == self._line.address
        if is_theirs and has_tail and not lines:
            self._trial.unasked.add(datagram)
        for text in lines:
            reply = wire.parse_reply(text)
            if not is_theirs:
                if isinstance(reply, wire.Pong) and reply.nonce in self._awaited:
                    self._seen.elsewhere = source
            elif isinstance(reply, wire.Pong) and reply.nonce in self._awaited:
                pings, sent_at = self._awaited.pop(reply.nonce)
                pings.rtts_s.append(now - sent_at)
                self._answered[reply.nonce] = pings
            elif reply is not None and reply.nonce in self._answered:
                self._answered[reply.nonce].doubled_count += 1
            elif not self._trial.expects(text):
                self._trial.unasked.add(text)


async def _has_full_copy(line: Line, trial: Trial, timeout_s: float) -> bool:
    """Whether a copy comes back in a datagram of full size. It goes there bare, under the publish lease."""
    start = wire.publish_line(wire.HEALTH_TOPIC, secrets.token_hex(8).encode())[:-1]
    # An open server puts a LF before it (§4.4).
    full = start.ljust(DATAGRAM_BYTES_MAX - 1 - trial.is_copy_marked, b".") + b"\n"
    began = clock.now()
    for number in range(FULL_TRIES):
        line.send(full)
        until = began + timeout_s * (number + 1) / FULL_TRIES
        while clock.now() < until:
            for datagram, source in await line.heard(until):
                if source == line.address and full[:-1] in wire.split_lines(datagram)[0]:
                    return True
    return False


def _error_of_route(address: Address) -> OSError | None:
    """Returns why this machine has no socket for, or no route to, an address; None if it has. It sends
    nothing."""
    try:
        with _connected(address):
            return None
    except OSError as error:
        return error


def _path_bytes(address: Address) -> int | None:
    """Returns the largest packet that the kernel believes the path to take; None if it does not tell.

    Servers ignore datagrams above 1200 bytes, so nothing larger can be tried.
    """
    if sys.platform != "linux":
        return None
    level, option = (socket.IPPROTO_IPV6, _IPV6_MTU) if ":" in address[0] else (socket.IPPROTO_IP, _IP_MTU)
    try:
        with _connected(address) as sock:
            return sock.getsockopt(level, option)
    except OSError:
        return None


def _connected(address: Address) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.connect(address)  # UDP: this only looks at the routing table
    except BaseException:
        sock.close()
        raise
    return sock
