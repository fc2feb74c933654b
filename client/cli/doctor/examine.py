"""Observes one address of a server: pings of two sizes, then a lease and copies, as a client has them."""

import errno
import secrets
import socket
import sys
from collections.abc import Callable
from random import SystemRandom

from kcast.client.cli.doctor.idle import observe_idle
from kcast.client.cli.doctor.line import Line, converse
from kcast.client.cli.doctor.seen import Dealing, Pings, Seen
from kcast.client.cli.trial import Trial
from kcast.pubsub import clock, wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

PING_COUNT = 10  # of each size
PING_INTERVAL_S = 0.05
FULL_TRIES = 3
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_IP_MTU, _IPV6_MTU = 14, 24  # <linux/in.h>, <linux/in6.h>


async def examine(seen: Seen, timeout_s: float, pauses_s: tuple[float, ...] = ()) -> None:
    """Fills in what can be observed at an address. Each step may take `timeout_s` at most.

    With `pauses_s` it observes, too, for how long the way back stays open without traffic.
    """
    if seen.address is None:
        return
    if error := _error_of_route(seen.address):
        if error.errno in _NO_WAY:
            seen.no_family = error.strerror or str(error)
        else:
            seen.send_error = errno.errorcode.get(error.errno or 0, "EUNKNOWN")
        return
    with Line(seen.address) as line:
        trial, seen.dealing = await _deal(line, timeout_s)
        if trial.is_answered or not line.is_refused:
            # In a flood a server drops pings of strangers, which this port is not any more.
            await _Pinging(seen, line).run(timeout_s)
            if trial.has_copy and trial.takes_bare and seen.full.rtts_s:
                seen.dealing.has_full_copy = await _has_full_copy(line, trial, timeout_s)
        seen.is_closed, seen.send_error = line.is_closed, line.send_error
        seen.network_error = line.network_error
    seen.path_bytes = _path_bytes(seen.address)
    if pauses_s and seen.dealing.is_leased and seen.dealing.has_copy and seen.dealing.ttl_s is not None:
        seen.idle = await observe_idle(seen.address, seen.dealing.ttl_s, pauses_s, timeout_s)


class _Pinging:
    """Pings of both sizes in turns."""

    def __init__(self, seen: Seen, line: Line) -> None:
        self._seen = seen
        self._line = line
        self._awaited: dict[bytes, tuple[Pings, float]] = {}
        self._answered: dict[bytes, Pings] = {}

    async def run(self, timeout_s: float) -> None:
        """Returns when all are answered, or the time after the last one is over."""
        began = clock.now()
        for number in range(2 * PING_COUNT):
            pings = self._seen.full if number % 2 else self._seen.small
            await self._hear(began + number * PING_INTERVAL_S, is_over=lambda: False)
            self._ping(pings)
        await self._hear(clock.now() + timeout_s, is_over=lambda: not self._awaited or self._line.is_refused)

    def _ping(self, pings: Pings) -> None:
        nonce = secrets.token_urlsafe(12).encode()
        pings.sent += 1
        self._awaited[nonce] = pings, clock.now()
        self._line.send(wire.pad(wire.format_line(wire.Ping(nonce)), pings.size_bytes))

    async def _hear(self, until: float, is_over: Callable[[], bool]) -> None:
        while clock.now() < until and not is_over():
            for datagram, source in await self._line.heard(until):
                self._take(datagram, source, clock.now())

    def _take(self, datagram: bytes, source: Address, now: float) -> None:
        for text in wire.split_lines(datagram)[0]:
            reply = wire.parse_reply(text)
            if source != self._line.address:
                if isinstance(reply, wire.Pong) and reply.nonce in self._awaited:
                    self._seen.elsewhere = source
            elif isinstance(reply, wire.Pong) and reply.nonce in self._awaited:
                pings, sent_at = self._awaited.pop(reply.nonce)
                pings.rtts_s.append(now - sent_at)
                self._answered[reply.nonce] = pings
            elif reply is not None and reply.nonce in self._answered:
                self._answered[reply.nonce].doubled_count += 1
            else:
                self._seen.unasked_count += 1


async def _deal(line: Line, timeout_s: float) -> tuple[Trial, Dealing]:
    """Uses the server as a client does."""
    trial = Trial(line.address, SystemRandom())
    began = clock.now()
    trial.begin(began)
    await converse(
        line,
        trial,
        began + timeout_s,
        lambda: trial.is_done or trial.session.is_draining or (line.is_refused and not trial.is_answered),
    )
    return trial, Dealing(
        waited_s=timeout_s,
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
        unasked_count=trial.unasked_count,
        price_bits=trial.price_bits,
        ttl_s=trial.session.ttl_s,
    )


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
