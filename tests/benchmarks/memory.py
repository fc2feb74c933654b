"""What a lease takes in a whole server: bytes, with all that is kept against abuse.

    python -m tests.benchmarks.memory [--leases 100000]

Leases are opened by handshakes from addresses that are in networks, each in a turn of its own, and renewed
once, which establishes them; then each subscriber gets a copy. As from a real network, each datagram brings an
address and topics of its own. Memory is what tracemalloc counts:

    names     topics, addresses and times
    table     what finds them: the table, and who holds leases
    caches    of networks and addresses; they are full at 4,096 entries each, however many leases there are
    rest      all else of the server, but for the credit
    all       the sum of these
    credit    what comes with the first copy: credit of each address, rates of each IP and network

A table that is *full* has as many places as leases; the others have twice as many.
"""

import argparse
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kcast.pubsub import cookie, networks, wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.benchmarks.table import LINES, Request, address, topic
from tests.support.server_core import SteadyServer

TURN_S = 0.00005
RENEWED_AFTER_S = 20.0  # longer than half a renewal interval: so it establishes
PUBLISHER: Address = ("192.0.2.1", 7)
NAMES = {"memory.py", "wire.py"}  # addresses and times come from here, topics from there
TABLE = {
    *("table.py", "fifo_table.py", "audience.py", "holders.py", "order.py", "probation.py"),
    *("networks.py", "by_network.py", "crowds.py"),
}


class Held(NamedTuple):
    """Bytes a lease."""

    names: float
    table: float
    caches: float
    rest: float
    credit: float

    @property
    def all(self) -> float:
        """What a lease takes until something is published."""
        return self.names + self.table + self.caches + self.rest


# --- Leases -------------------------------------------------------------------------------------------


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


CASES: dict[str, Callable[[int], Iterator[Request]]] = {
    "1000 topics x 100 addresses": grid,
    "... each lease by itself": partial(grid, together=1),
    "distinct addresses, one topic": one_topic,
    "all distinct": all_distinct,
    "all distinct, two of a network": partial(all_distinct, address_of=in_pairs),
    "all distinct, IPv6": partial(all_distinct, address_of=ipv6),
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
        its = self.server.leases.holders._networks
        for cached in (networks.networks_of, cookie._address_bytes, its.path_of, its.shares_of):
            getattr(cached, "cache_clear")()  # noqa: B009

    def _answer(self, source: Address, datagram: bytes) -> wire.Reply | None:
        self.server.receive(Burst(datagram, len(datagram), source), self.now)
        (answer,) = self.server.flush(self.now)
        return wire.parse_reply(answer.data.rstrip(b"\n"))


def held(table: str, case: Callable[[int], Iterator[Request]], leases: int, places: int) -> Held:
    """Returns what a lease takes. Only leases that are not refused count."""
    names = {name for _, topics in case(leases) for name in topics}
    networks.networks_of.cache_clear()
    cookie._address_bytes.cache_clear()
    gc.collect()
    tracemalloc.start()
    run = Run(table, leases, places)
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, default=100_000, help="at the server")
    leases: int = parser.parse_args(arguments).leases
    print(f"{leases:,} leases")
    print(f"{'bytes a lease':44}" + "".join(f"{name:>8}" for name in (*Held._fields[:4], "all", "credit")))
    rows = [("ttl", name, case, 2) for name, case in CASES.items()]
    rows += [("ttl", f"{name}, full", case, 1) for name, case in CASES.items() if "by itself" not in name]
    rows += [("fifo", name, CASES[name], 2) for name in ("1000 topics x 100 addresses", "all distinct")]
    for table, name, case, factor in rows:
        found = held(table, case, leases, factor * leases)
        figures = (*found[:4], found.all, found.credit)
        print(f"{table:5} {name:38}" + "".join(f"{figure:8.0f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
