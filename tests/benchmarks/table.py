"""What a lease costs a server: memory, and time to open, renew and forget it; and what a stamp costs.

    python -m tests.benchmarks.table [--leases 100000]

Memory is what tracemalloc counts, names and addresses with it, as they come from the network: every datagram
brings an address and topics of its own, which the table keeps.
"""

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.fifo_table import TABLES
from kcast.pubsub.limits import COOKIE_CHARS, Limits
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import Mint, is_valid
from kcast.pubsub.table import LeaseTable

LINES = 63  # in a datagram, beside the vouch line
TTL_S = 60.0
ROUNDS = 7  # of which the fastest counts

Request = tuple[Address, list[bytes]]


def topic(number: int) -> bytes:
    return b"sensor/%08x" % (number * 2654435761 % 2**32)


def address(number: int) -> Address:
    """Spread over prefixes, as clients are."""
    spread = number * 40503 % 2**24
    return f"100.{spread >> 16}.{spread >> 8 & 255}.{spread & 255}", 1024 + number % 60_000


def one_topic(leases: int) -> Iterator[Request]:
    """Distinct addresses, one topic."""
    for number in range(leases):
        yield address(number), [topic(0)]


def few_addresses(leases: int) -> Iterator[Request]:
    """Distinct topics; each address has as many as the limit allows, 63 in a datagram."""
    per_address = Limits().leases_per_address
    for start in range(0, leases, LINES):
        yield address(start // per_address), [topic(n) for n in range(start, min(start + LINES, leases))]


def all_distinct(leases: int) -> Iterator[Request]:
    """Each lease has an address and a topic of its own."""
    for number in range(leases):
        yield address(number), [topic(number)]


CASES: dict[str, Callable[[int], Iterator[Request]]] = {
    "distinct addresses, one topic": one_topic,
    "distinct topics, few addresses": few_addresses,
    "all distinct": all_distinct,
}


def new_table(kind: str, leases: int, places: int) -> LeaseTable:
    most = 2 * leases
    limits = Limits(
        leases=places, leases_per_address=most, leases_per_prefix=most, topics=most, topics_per_prefix=most
    )
    return TABLES[kind](TTL_S, limits)


def open_all(table: LeaseTable, requests: Iterable[Request]) -> None:
    for source, topics in requests:
        for name in topics:
            assert table.open(name, source, 0.0) is None


def renew_all(table: LeaseTable, requests: Iterable[Request]) -> None:
    for source, topics in requests:
        for name in topics:
            if table.is_live(name, source, 1.0):
                table.renew(name, source, 1.0)


def expire_all(table: LeaseTable) -> None:
    """A slice at a time, as a server does."""
    while table.expire(1.0 + TTL_S):
        pass


def bytes_per_lease(kind: str, case: Callable[[int], Iterator[Request]], leases: int, places: int) -> float:
    gc.collect()
    tracemalloc.start()
    table = new_table(kind, leases, places)
    open_all(table, case(leases))
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(table) == leases
    return held / leases


def seconds(work: Callable[[], object]) -> float:
    """Of this process's own time, so that a busy machine tells the same."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def table_us(
    kind: str, case: Callable[[int], Iterator[Request]], leases: int, places: int
) -> tuple[float, float, float]:
    """Microseconds a lease: open, renew, expire."""
    requests = list(case(leases))
    open_s, renew_s, expire_s = [], [], []
    for _ in range(3):
        table = new_table(kind, leases, places)
        open_s.append(seconds(partial(open_all, table, requests)))
        renew_s.append(seconds(partial(renew_all, table, requests)))
        expire_s.append(seconds(partial(expire_all, table)))
        assert not len(table)
    return min(open_s) / leases * 1e6, min(renew_s) / leases * 1e6, min(expire_s) / leases * 1e6


def server_us(kind: str, topics_each: int, datagrams: int = 2000) -> tuple[float, float]:
    """Microseconds a lease at the server, from vouched datagrams of so many topics: opened, and renewed."""
    opened_s, renewed_s = [], []
    for _ in range(3):
        most = datagrams * topics_each
        # With so much room leases have no price.
        limits = Limits(leases=2 * most, leases_per_prefix=most, topics=2 * most, topics_per_prefix=most)
        server = Server(secret=bytes(32), table=kind, limits=limits)
        bursts = []
        for number in range(datagrams):
            cookie = server._cookies.mint(address(number), 0.0)
            lines = [topic(number * topics_each + line) + b"\n" for line in range(topics_each)]
            data = wire.request_datagram(wire.Vouch(b"n" * 11, cookie, None), lines)
            bursts.append(Burst(data, len(data), address(number)))

        def take_all(server: Server = server, bursts: Sequence[Burst] = tuple(bursts)) -> None:
            for burst in bursts:
                server.receive(burst, 1.0)
            server.flush(1.0)

        opened_s.append(seconds(take_all))
        renewed_s.append(seconds(take_all))
        assert server.counts["leases_opened"] == server.counts["leases_renewed"] == most
    return min(opened_s) / most * 1e6, min(renewed_s) / most * 1e6


def check_us(topic_count: int, checks: int = 20_000) -> float:
    """Microseconds to check a stamp for so many topics."""
    cookie, topics = b"A" * COOKIE_CHARS, [topic(number) for number in range(topic_count)]

    def check_all() -> None:
        for _ in range(checks):
            is_valid(b"1f3a9c", cookie, topics, 20)

    return min(seconds(check_all) for _ in range(ROUNDS)) / checks * 1e6


def mint_hz(topic_count: int, tries: int = 200_000) -> float:
    """Hashes a second of one mint."""
    topics = [topic(number) for number in range(topic_count)]

    def mint() -> None:
        assert Mint(b"A" * COOKIE_CHARS, topics, 60).work(tries) is None

    return tries / min(seconds(mint) for _ in range(ROUNDS))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, default=100_000, help="in the table")
    leases: int = parser.parse_args(arguments).leases
    print(f"{leases:,} leases")
    print(f"{'table':6} {'':38} {'bytes':>7} {'open us':>8} {'renew us':>9} {'expire us':>10}")
    for kind in TABLES:
        for name, case in CASES.items():
            # A table that is nearly full knows who is on probation, and who holds few leases (§7.10).
            for places, ending in (2 * leases, ""), (leases, ", full"):
                held = bytes_per_lease(kind, case, leases, places)
                open_us, renew_us, expire_us = table_us(kind, case, leases, places)
                times = f"{open_us:8.2f} {renew_us:9.2f} {expire_us:10.2f}"
                print(f"{kind:6} {name + ending:38} {held:7.0f} {times}", flush=True)
    for kind in TABLES:
        for topics_each in (1, LINES):
            opened_us, renewed_us = server_us(kind, topics_each)
            what = f"server, {topics_each} in a datagram"
            print(f"{kind:6} {what:38} {'':7} {opened_us:8.2f} {renewed_us:9.2f}", flush=True)
    for topic_count in (1, LINES):
        print(f"a stamp checked, {topic_count:2} topics   {check_us(topic_count):6.2f} us")
    for topic_count in (1, LINES):
        print(f"stamps minted,  {topic_count:2} topics   {mint_hz(topic_count) / 1e6:6.2f} million tries/s")


if __name__ == "__main__":
    main()
