"""Observes addresses of servers: a lease and copies, as a client has them, and pings of two sizes.

Where it is wanted, also how long the way back to this machine stays open without traffic, past NAT and
firewall.
"""

import errno
import socket
import sys
from collections.abc import Sequence
from random import SystemRandom

from kcast.client.cli.doctor.findings import Idle, Seen
from kcast.client.cli.probe import Probe
from kcast.client.cli.probing import Probing
from kcast.pubsub import clock, wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL

PING_COUNT = 10  # of each size
PING_INTERVAL_S = 0.05
ASK_EVERY = 5  # pings, for the version, until it is told
FULL_TRIES = 3
PAUSES_S = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 55.0)
COPY_WAIT_S = 1.0
TRIES = 2  # one message may get lost
_RNG = SystemRandom()
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_IP_MTU, _IPV6_MTU = 14, 24  # <linux/in.h>, <linux/in6.h>


def examine(each_seen: Sequence[Seen], timeout_s: float, *, is_slow: bool) -> None:
    """Fills in what can be observed at some addresses, at the same time. Each step may take `timeout_s`.

    No address is pinged while the price of a lease is worked for at another, as the times would tell of that.
    """
    asked = [seen for seen in each_seen if _has_way(seen)]
    probes = [seen.probe for seen in asked]
    with Probing(probes) as probing:
        for probe in probes:
            probe.begin(clock.now(), timeout_s)
        probing.deal(probes)
        # In a flood a server drops pings of strangers, which these ports are not any more.
        _ping(probing, [seen for seen in asked if seen.probe.may_answer], timeout_s)
        _try_full_copies(probing, probes, timeout_s)
    for seen in asked:
        seen.path_bytes = _path_bytes(seen.probe.address)
    if is_slow:
        _observe_idle([seen for seen in asked if seen.probe.is_leased and seen.probe.has_copy], timeout_s)


def _ping(probing: Probing, each_seen: Sequence[Seen], timeout_s: float) -> None:
    """Sends pings of both sizes in turns; returns when all are answered, or `timeout_s` after the last."""
    believed: dict[bytes, int] = {}  # what the path was believed to take when a long ping left
    began = clock.now()
    for number in range(2 * PING_COUNT):
        for probe in (seen.probe for seen in each_seen):
            path_bytes = _path_bytes(probe.address) if number % 2 else None
            probing.send(probe, probe.ping(clock.now(), probe.full if number % 2 else probe.small))
            if number % ASK_EVERY == 0 and probe.version is None:
                probing.send(probe, probe.ask())
            believed[next(reversed(probe.awaited))] = path_bytes or 0
        probing.run(began + (number + 1) * PING_INTERVAL_S)
    probes = [seen.probe for seen in each_seen]
    probing.run(
        clock.now() + timeout_s,
        lambda: not any(probe.awaited or probe.version is None for probe in probes if probe.may_answer),
    )
    for seen in each_seen:
        # A ping by whose loss the kernel learned what the path takes went in one piece; later ones do not.
        path_bytes, full = _path_bytes(seen.probe.address), seen.probe.full
        if path_bytes is not None and path_bytes < seen.needed_bytes and full.rtts_s:
            full.sent -= sum(believed[nonce] > path_bytes for nonce in seen.probe.awaited)


def _try_full_copies(probing: Probing, probes: Sequence[Probe], timeout_s: float) -> None:
    """Lets messages that fill a datagram come back."""
    tried = [each for each in probes if each.has_copy and each.takes_bare and each.full.rtts_s]
    began = clock.now()
    for number in range(FULL_TRIES):
        for probe in tried:
            if not probe.has_full_copy:
                probing.send(probe, probe.full_datagram())
        until = began + timeout_s * (number + 1) / FULL_TRIES
        probing.run(until, lambda: all(probe.has_full_copy for probe in tried))


# --- The way back without traffic ---------------------------------------------------------------------


class _Silent(Probe):
    """A port that takes a lease on a topic of its own, and sends nothing afterwards."""

    def __init__(self, seen: Seen) -> None:
        self.topic = b"%b-%016x" % (wire.HEALTH_TOPIC, _RNG.getrandbits(64))
        super().__init__(seen.probe.server, seen.probe.address, _RNG, topic=self.topic)


def _observe_idle(each_seen: Sequence[Seen], timeout_s: float) -> None:
    """Observes what comes after each pause that a lease outlives. Takes as long as the longest, and a little.

    For each pause a fresh port takes a lease, and then keeps silent. After the pause another port publishes
    on its topic. If the copy arrives, the way was still open.
    """
    with Probing() as probing:
        silent: dict[float, list[tuple[Idle, _Silent]]] = {pause_s: [] for pause_s in PAUSES_S}
        for seen in each_seen:
            ttl_s = seen.probe.session.ttl_s or 0.0
            seen.idle = Idle(min(ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX))
            for pause_s in (each for each in PAUSES_S if each + TRIES * COPY_WAIT_S < ttl_s):
                probe = _Silent(seen)
                probing.add(probe)
                probe.begin(clock.now(), timeout_s)
                silent[pause_s].append((seen.idle, probe))
        leasing = [probe for some in silent.values() for _, probe in some]
        probing.deal(leasing, is_over=lambda probe: probe.is_leased)
        began = clock.now()
        for pause_s, some in silent.items():
            asked = [(idle, probe) for idle, probe in some if probe.is_leased and not _is_dead(idle)]
            if asked:
                probing.run(began + pause_s)
                _publish_to([probe for _, probe in asked], probing, timeout_s)
            for idle, probe in asked:
                idle.outcomes.append((pause_s, probe.is_heard or (False if probe.has_receipt else None)))


def _is_dead(idle: Idle) -> bool:
    """Whether nothing came after two pauses in a row: longer ones will bring nothing."""
    return [came for _, came in idle.outcomes[-2:]] == [False] * 2


def _publish_to(silent: Sequence[_Silent], probing: Probing, timeout_s: float) -> None:
    """Publishes on the topic of each from another port, until a copy comes to it, at most twice.

    Afterwards `is_heard` says whether one came, and `has_receipt` whether the server has forwarded any.
    """
    for probe in silent:
        probe.is_heard = probe.has_receipt = False
    for _ in range(TRIES):
        others = {
            Probe(each.server, each.address, _RNG, topic=each.topic): each
            for each in silent
            if not each.is_heard
        }
        with Probing(others) as publishing:
            for other in others:
                other.begin(clock.now(), timeout_s, leases=False)
            publishing.deal(others)
        for other, probe in others.items():
            probe.has_receipt |= other.has_receipt
        probing.run(clock.now() + COPY_WAIT_S, lambda: all(probe.is_heard for probe in silent))


# --- What the system says of the way there ------------------------------------------------------------


def _has_way(seen: Seen) -> bool:
    """Whether this machine has a socket for, and a route to, an address. It sends nothing."""
    if seen.probe.address is None:
        return False
    try:
        _connected(seen.probe.address).close()
    except OSError as error:
        if error.errno in _NO_WAY:
            seen.no_family = error.strerror or str(error)
        else:
            seen.probe.send_error = errno.errorcode.get(error.errno or 0, "EUNKNOWN")
        return False
    return True


def _path_bytes(address: Address | None) -> int | None:
    """Returns the largest packet that the kernel believes the path to take; None if it does not tell.

    Servers ignore datagrams above 1200 bytes, so nothing larger can be tried.
    """
    if sys.platform != "linux" or address is None:
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
