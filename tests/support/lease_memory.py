"""What a lease takes in a whole server, in bytes, as tracemalloc counts them.

Leases are opened by handshakes from addresses that are in networks, each in a turn of its own, and renewed
once, which establishes them; then each subscriber gets a copy. As from a real network, each datagram brings
an address and topics of its own. `bench/memory.py` says what each figure has in it.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kcast.pubsub import cookie, networks, wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.support.server_core import SteadyServer

LINES = 63  # in a datagram, beside the vouch line
TURN_S = 0.00005
RENEWED_AFTER_S = 20.0  # longer than half a renewal interval: so it establishes
LEFT_AFTER_S = 61.0  # longer than a ttl
PUBLISHER: Address = ("192.0.2.1", 7)
NAMES = {"memory.py", "wire.py"}  # addresses and times come from here, topics from there
TABLE = {
    *("table.py", "fifo_table.py", "audience.py", "holders.py", "linked_list.py", "probation.py"),
    *("networks.py", "publishing.py"),
}


Request = tuple[Address, list[bytes]]


class Held(NamedTuple):
    """Bytes a lease."""

    names: float
    table: float
    caches: float
    rest: float
    copies: float

    @property
    def all(self) -> float:
        """What a lease takes until something is published."""
        return self.names + self.table + self.caches + self.rest

    @property
    def text(self) -> str:
        """The figures, as a row has them."""
        return "".join(f"{figure:8.0f}" for figure in (*self[:4], self.all, self.copies))


# --- Leases -------------------------------------------------------------------------------------------


def topic(number: int) -> bytes:
    return b"sensor/%08x" % (number * 2654435761 % 2**32)


def address(number: int) -> Address:
    """Spread over prefixes, as clients are."""
    spread = number * 40503 % 2**24
    return f"100.{spread >> 16}.{spread >> 8 & 255}.{spread & 255}", 1024 + number % 60_000


def grid(leases: int, addresses: int = 100, together: int = LINES) -> Iterator[Request]:
    """Each of 100 addresses has leases on all topics."""
    topics = leases // addresses
    for number in range(addresses):
        for start in range(0, topics, together):
            yield fresh(address(number)), [topic(each) for each in range(topics)[start : start + together]]


def one_topic(leases: int) -> Iterator[Request]:
    """Distinct addresses, one topic."""
    for number in range(leases):
        yield fresh(address(number)), [topic(0)]


def all_distinct(leases: int, address_of: Callable[[int], Address] = address) -> Iterator[Request]:
    """Each lease has an address and a topic of its own."""
    for number in range(leases):
        yield fresh(address_of(number)), [topic(number)]


def in_pairs(number: int) -> Address:
    """Two of each network, which is the worst that there is."""
    network, host = divmod(number, 2)
    return f"{100 + (network >> 16)}.{network >> 8 & 255}.{network & 255}.{host}", 1024 + number % 60_000


def ipv6(number: int) -> Address:
    """Two of each network, too."""
    network, host = divmod(number, 2)
    return f"2001:db8:{network:x}:{host}:a1b2:c3d4:e5f6:{network % 9999:x}", 1024 + number % 60_000


def fresh(address: Address) -> Address:
    """Returns an equal address, of objects that nobody else has."""
    host, port = address
    return host.encode().decode(), port


class Row(NamedTuple):
    """A table, the leases in it, and what it has room for."""

    case: Callable[[int], Iterator[Request]]
    table: str = "ttl"
    is_full: bool = False
    others_left: bool = False


ROWS = {
    "1000 topics x 100 addresses": Row(grid),
    "... full": Row(grid, is_full=True),
    "... each lease in a datagram of its own": Row(partial(grid, together=1)),
    "... fifo": Row(grid, "fifo"),
    "distinct addresses, one topic": Row(one_topic),
    "..., full": Row(one_topic, is_full=True),
    "all distinct": Row(all_distinct),
    "all distinct, full": Row(all_distinct, is_full=True),
    "all distinct, fifo": Row(all_distinct, "fifo"),
    "all distinct, others have left": Row(all_distinct, others_left=True),
    "all distinct, two of a network": Row(partial(all_distinct, address_of=in_pairs)),
    "all distinct, two of a network, full": Row(partial(all_distinct, address_of=in_pairs), is_full=True),
    "all distinct, IPv6, two of a network": Row(partial(all_distinct, address_of=ipv6)),
}


# --- A server -----------------------------------------------------------------------------------------


class Run:
    """A server, and the time there."""

    def __init__(self, table: str, leases: int, places: int) -> None:
        # What leases cost, and how much may be published, is no matter here.
        limits = Limits(
            leases=places, leases_per_address=places, leases_per_prefix=places, topics=places,
            topics_per_prefix=places, challenges_per_s=0, publishes_per_s=0, copies_per_s=0,
        )  # fmt: skip
        self.server: Server = SteadyServer(secret=bytes(32), table=table, limits=limits)
        self.now = 1000.0

    def ask(self, source: Address, *lines: bytes) -> None:
        """A handshake, and a datagram with its cookie."""
        challenge = self._answer(source, wire.request_datagram(wire.Ask(b"n" * 11)))
        assert isinstance(challenge, wire.Challenge)
        vouch = wire.Vouch(b"n" * 11, challenge.cookie, None)
        assert isinstance(self._answer(source, wire.request_datagram(vouch, lines)), wire.Receipt)

    def ask_all(self, requests: Iterator[Request], over_s: float) -> None:
        """Asks for these leases, in as many seconds."""
        ends_at = self.now + over_s
        for source, topics in requests:
            self.now += TURN_S
            self.ask(source, *[name + b"\n" for name in topics])
            self.server.handle_timeout(self.now)
        self.now = ends_at

    def publish(self, names: set[bytes]) -> int:
        """Publishes a message on each of these topics; returns how many copies left."""
        self.ask(PUBLISHER)
        before = self.server.counts["copies_sent"]
        for name in names:
            line = name + b" m\n"
            self.server.receive(Burst(line, len(line), PUBLISHER), self.now)
            while self.server.flush(self.now):
                pass
        return self.server.counts["copies_sent"] - before

    def clear_caches(self) -> None:
        """Empties what fills however few leases there are."""
        its = self.server.leases._networks
        caches: list[Any] = [networks.networks_of, cookie._address_bytes, its.path_of, its.shares_of]
        for cached in caches:
            cached.cache_clear()

    def _answer(self, source: Address, datagram: bytes) -> wire.Reply | None:
        self.server.receive(Burst(datagram, len(datagram), source), self.now)
        (answer,) = self.server.flush(self.now)
        return wire.parse_reply(answer.data.rstrip(b"\n"))


def held(row: Row, leases: int) -> Held:
    """Returns what a lease takes. It leaves the caches of this process empty."""
    case = row.case
    names = {name for _, topics in case(leases) for name in topics}
    networks.networks_of.cache_clear()
    cookie._address_bytes.cache_clear()
    gc.collect()
    tracemalloc.start()
    run = Run(row.table, leases, leases if row.is_full else 2 * leases)
    if row.others_left:
        run.ask_all(all_distinct(leases, lambda number: address(number + leases)), LEFT_AFTER_S)
    run.ask_all(case(leases), RENEWED_AFTER_S)
    run.ask_all(case(leases), RENEWED_AFTER_S)
    server = run.server
    assert len(server.leases) == leases == server.counts["leases_renewed"]
    before = _allocated()
    run.clear_caches()
    found = _allocated()
    copies = run.publish(names)
    assert copies == leases, f"{copies} copies"
    run.clear_caches()
    with_copies = _allocated()
    tracemalloc.stop()
    total, in_names, in_table = sum(found.values()), _of(found, NAMES), _of(found, TABLE)
    parts = (in_names, in_table, sum(before.values()) - total, total - in_names - in_table)
    return Held(*(part / leases for part in (*parts, sum(with_copies.values()) - total)))


def _allocated() -> dict[str, int]:
    """Bytes by the file that asked for them."""
    gc.collect()
    found: dict[str, int] = {}
    for each in tracemalloc.take_snapshot().statistics("filename"):
        path = Path(each.traceback[0].filename)
        if path.name != "tracemalloc.py":
            found[path.name] = found.get(path.name, 0) + each.size
    return found


def _of(allocated: dict[str, int], files: set[str]) -> int:
    return sum(size_bytes for name, size_bytes in allocated.items() if name in files)
