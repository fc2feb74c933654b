"""What a lease takes in a whole server: bytes, with all that is kept against abuse; and time.

    python -m tests.benchmarks.memory [--leases 100000] [--beside COMMIT]

Leases are opened by handshakes from addresses that are in networks, each in a turn of its own, and renewed
once, which establishes them; then each subscriber gets a copy. As from a real network, each datagram brings
an address and topics of its own. Memory is what tracemalloc counts:

    names     topics, addresses and times
    table     what finds them: the table, and who holds leases
    caches    of networks and addresses; they are full at some thousand entries, however many leases there are
    rest      all else of the server, but for what comes with copies
    all       the sum of these
    copies    what comes with the first copy: a route for each topic, credit of each address, rates of each IP
              and network

A table that is *full* has as many places as leases; the others have twice as many. Where others *have left*,
as many addresses as hold leases held one a moment ago, and are still known.

With `--beside COMMIT` (or a folder) all is told of this project as it was then, too.
"""

import argparse
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kcast.pubsub import cookie, networks, wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.benchmarks.table import LINES, Request, address, server_us, topic
from tests.support.checkout import ROOT
from tests.support.server_core import SteadyServer
from tests.support.trees import HERE, NoHistory, Tree, tree_of

TURN_S = 0.00005
RENEWED_AFTER_S = 20.0  # longer than half a renewal interval: so it establishes
TIME_ROUNDS = 3  # the fastest counts
LEFT_AFTER_S = 61.0  # longer than a ttl
PUBLISHER: Address = ("192.0.2.1", 7)
NAMES = {"memory.py", "wire.py"}  # addresses and times come from here, topics from there
TABLE = {
    *("table.py", "fifo_table.py", "audience.py", "holders.py", "order.py", "probation.py"),
    *("networks.py", "by_network.py", "crowds.py", "expiring.py"),
}


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


def child(name: str, leases: int) -> None:
    """Prints what a process of its own has found: a row, or if there is no such one, the times."""
    row = ROWS.get(name)
    print(json.dumps(held(row, leases) if row else [server_us("ttl", each) for each in (1, LINES)]))


def found_by(tree: Tree, name: str, leases: int) -> Any:
    """Returns what a process prints that imports this version."""
    code = f"from tests.benchmarks.memory import child; child({name!r}, {leases})"
    command = (sys.executable, "-c", code)
    return json.loads(
        subprocess.run(command, cwd=ROOT, env=tree.environment, stdout=subprocess.PIPE, check=True).stdout
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, default=100_000, help="at the server")
    parser.add_argument("--beside", metavar="COMMIT|FOLDER", help="tell of this version, too")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="kcast-bench-") as scratch:
        trees = {"": HERE}
        if options.beside:
            try:
                trees[options.beside] = tree_of(options.beside, Path(scratch))
            except NoHistory as error:
                sys.exit(f"memory: {error}")
        compare(trees, options.leases)


def compare(trees: dict[str, Tree], leases: int) -> None:
    """Prints what leases take in each of these versions."""
    print(f"{leases:,} leases")
    print(f"{'bytes a lease':48}" + "".join(f"{name:>8}" for name in (*Held._fields[:4], "all", "copies")))
    for name in ROWS:
        for version, tree in trees.items():
            print(f"{name:38} {version[:9]:9}" + Held(*found_by(tree, name, leases)).text, flush=True)
    print(f"{'microseconds a lease, at the server':48}" + "".join(f"{name:>8}" for name in ("open", "renew")))
    times: dict[str, list[list[list[float]]]] = {version: [] for version in trees}
    for _ in range(TIME_ROUNDS):
        for version, tree in trees.items():
            times[version].append(found_by(tree, "times", leases))
    for place, what in enumerate(("alone in a datagram", f"{LINES} in a datagram")):
        for version, rounds in times.items():
            opened_us, renewed_us = (min(each[place][which] for each in rounds) for which in (0, 1))
            print(f"{what:38} {version[:9]:9}{opened_us:8.1f}{renewed_us:8.1f}")


if __name__ == "__main__":
    main()
