"""Looks up names of hosts while turns go on, since a lookup may take many seconds; and tells which IP
versions this machine can use.

Each lookup runs in a thread of its own (under gevent a greenlet), of which there are few at a time. Nobody
waits for it: as long as any is under way, the engine makes a turn every few milliseconds. One that takes too
long counts as failed, but what it still finds is of use later.
"""

import _thread
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from time import sleep

from kcast.client.clusters.cluster import Cluster
from kcast.client.session.whereabouts import FAMILIES, family_of
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Address

LOOKUP_TIMEOUT_S = 5.0
LOOKUPS_MAX = 8
POLL_INTERVAL_S = 0.01

ANY_HOSTS = {4: "0.0.0.0", 6: "::"}
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}

Named = tuple[str, int]  # a host's name, and a port
LookUp = Callable[[Named], Iterable[Address]]


class Resolver:
    """Lookups that are under way, and those that wait for one to end. For one thread at a time."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        self._look_up = look_up or addresses_of
        self._deadlines: dict[Named, float] = {}  # of those whose answer is awaited
        self._queue: deque[Named] = deque()
        self._running: set[Named] = set()
        self._found: deque[tuple[Named, tuple[Address, ...]]] = deque()  # threads append to it

    def ask(self, names: Iterable[Named], now: float) -> None:
        """Looks these up; `answers` has the result of each some time later."""
        for named in names:
            self._deadlines[named] = now + LOOKUP_TIMEOUT_S
            if named not in self._running and named not in self._queue:
                self._queue.append(named)
        self._start()

    def answers(self, now: float) -> list[tuple[Named, tuple[Address, ...]]]:
        """Returns what was found since the last call; no addresses where a lookup failed or took too long."""
        answers = []
        while self._found:
            answer = self._found.popleft()
            self._running.discard(answer[0])
            self._deadlines.pop(answer[0], None)
            answers.append(answer)
        for named in [named for named, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[named]
            answers.append((named, ()))
        self._start()
        return answers

    def next_timeout(self, now: float) -> float | None:
        """Returns when to ask for `answers` again; None while nothing is awaited."""
        return now + POLL_INTERVAL_S if self._deadlines else None

    def _start(self) -> None:
        while self._queue and len(self._running) < LOOKUPS_MAX:
            try:
                # No threading.Thread: the interpreter must not wait for a lookup when it ends.
                _thread.start_new_thread(self._run, (self._queue[0],))
            except RuntimeError:  # the system has no thread for it: the next turn tries again
                return
            self._running.add(self._queue.popleft())

    def _run(self, named: Named) -> None:
        found: tuple[Address, ...] = ()
        with suppress(OSError):  # such as too many open files
            found = tuple(self._look_up(named))
        self._found.append((named, found))


def look_up_all(names: Iterable[Named]) -> dict[Named, tuple[Address, ...]]:
    """Looks all of these up, and waits for as long as that may take."""
    found: dict[Named, tuple[Address, ...]] = dict.fromkeys(names, ())
    resolver = Resolver()
    resolver.ask(found, clock.now())
    while resolver.next_timeout(clock.now()) is not None:
        sleep(POLL_INTERVAL_S)
        found |= dict(resolver.answers(clock.now()))
    return found


def addresses_of(named: Named) -> tuple[Address, ...]:
    """Returns a host's first address of each family, without those to which this machine has no route where
    it has one to the other. Returns none where the name does not resolve. It may take many seconds."""
    try:
        found = socket.getaddrinfo(*named, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return ()
    first: dict[int, Address] = {}
    for *_, address in found:
        ip = ip_address(str(address[0]))
        if isinstance(ip, IPv6Address):
            if ip.scope_id:
                continue
            ip = ip.ipv4_mapped or ip
        first.setdefault(ip.version, (str(ip), named[1]))
    usable = usable_families([first.values()])
    return tuple(address for address in first.values() if family_of(address) in usable)


def present_families() -> tuple[int, ...]:
    """Returns the IP versions, 4 and 6, for which the system has sockets."""
    return tuple(version for version in FAMILIES if _has_sockets(version))


def usable_families(servers: Iterable[Iterable[Address]]) -> tuple[int, ...]:
    """Returns the IP versions, 4 and 6, in which this machine has a route to one of the servers' addresses.

    Where there is no route at all, the network may be down for a moment only: then it returns all versions of
    the addresses for which the system has sockets. It sends nothing.
    """
    hosts: dict[int, list[Address]] = {4: [], 6: []}
    for addresses in servers:
        for address in addresses:
            hosts[6 if ":" in address[0] else 4].append(address)
    present = tuple(version for version, some in hosts.items() if some and _has_sockets(version))
    return tuple(version for version in present if _has_route(version, hosts[version])) or present


def families_for(cluster: Cluster) -> tuple[int, ...]:
    """Returns the IP versions, 4 and 6, in which to ask a cluster's servers: those of `usable_families`, and
    all that the system has where servers have names, since nobody knows yet where these lead."""
    if any(server.named for server in cluster.servers):
        return present_families()
    return usable_families(server.addresses for server in cluster.servers)


def _has_sockets(version: int) -> bool:
    try:
        with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as sock:
            sock.bind((ANY_HOSTS[version], 0))
    except OSError:
        return False
    return True


def _has_route(version: int, addresses: Iterable[Address]) -> bool:
    with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as sock:
        for address in addresses:
            try:
                sock.connect(address)  # UDP: this only looks at the routing table
            except OSError:
                continue
            return True
    return False
