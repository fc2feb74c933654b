"""The rows of the benchmark, and those that are in its short form."""

from collections.abc import Sequence
from typing import Protocol

from bench.peers.bench import Bench
from bench.peers.client_rows import ClientRow
from bench.peers.kinds import BARE, BETTER_OF, FORWARDER, MOSQUITTO, NATS, REDIS, Kind, kcast
from bench.peers.results import RowResult
from bench.peers.server_rows import ServerRow
from bench.peers.workloads import Workload
from tests.support.trees import Tree

LOADS = {"0.3": 0.3, "1": 1.0, "3": 3.0}
SERVED = {"0.3": 0.3, "1": 1.0}
SINGLE_LOADS = {"0.1": 0.1, "1.5": 1.5}
GROWTH_ROUNDS = 0.6
WORKERS = ("kcast --workers 1", "kcast --workers 2")


class Row(Protocol):
    """A row: its name, for people to type, its title, and how it is measured."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    def measure(self, bench: Bench) -> RowResult: ...


def rows(here: Sequence[Kind], tree: Tree, before: Sequence[Kind]) -> list[Row]:
    """Returns all rows. `here` are the servers of kcast that are measured in each, `before` older ones."""
    brokers = (*here, NATS, REDIS)
    everyone = (*brokers, MOSQUITTO, BARE)

    def main(name: str, title: str, workload: Workload, kinds: Sequence[Kind] = everyone) -> ServerRow:
        return ServerRow(name, title, workload, lambda: kinds, LOADS, BETTER_OF)

    def growth(name: str, title: str, workload: Workload, *, has_quiet_topic: bool = False) -> ServerRow:
        return ServerRow(
            name,
            title,
            workload,
            lambda: brokers,
            SERVED,
            BETTER_OF,
            finds_highest=False,
            rounds_share=GROWTH_ROUNDS,
            has_quiet_topic=has_quiet_topic,
        )

    def single(name: str, title: str, publisher_count: int) -> ServerRow:
        workload = Workload(256, 256, 1, single_publishers=publisher_count)
        return ServerRow(name, title, workload, lambda: [*here, FORWARDER], SINGLE_LOADS, (FORWARDER.name,))

    return [
        main("1-to-1", "One topic, one subscriber", Workload(1, 1, 1)),
        main("1-to-100", "One topic, 100 subscribers", Workload(1, 100, 100)),
        main("fan-out-10", "1000 topics, fan-out 10, 100 subscribers", Workload(1000, 100, 10)),
        main(
            "fan-out-1",
            "1000 topics, fan-out 1, 100 subscribers",
            Workload(1000, 100, 1),
            (*everyone, *before),
        ),
        growth("audience-10", "One topic, 10 subscribers", Workload(1, 10, 10)),
        growth("audience-1000", "One topic, 1000 subscribers", Workload(1, 1000, 1000)),
        growth(
            "audience-10000",
            "One topic, 10,000 subscribers, and a quiet topic",
            Workload(1, 10_000, 10_000),
            has_quiet_topic=True,
        ),
        growth("topics-100", "100 topics, fan-out 1, 100 subscribers", Workload(100, 100, 1)),
        growth("topics-10000", "10,000 topics, fan-out 1, 100 subscribers", Workload(10_000, 100, 1)),
        growth(
            "topics-100000",
            "100,000 topics, fan-out 1, 100 subscribers, and a quiet topic",
            Workload(100_000, 100, 1),
            has_quiet_topic=True,
        ),
        growth(
            "leases-100000",
            "As fan-out-10, with 90,000 leases on idle topics",
            Workload(10_000, 100, 10, idle_count=9_000),
        ),
        growth(
            "leases-400000",
            "As fan-out-10, with 390,000 leases on idle topics",
            Workload(40_000, 100, 10, idle_count=39_000),
        ),
        growth("size-16", "As fan-out-10, with payloads of 16 bytes", Workload(1000, 100, 10, size_bytes=16)),
        growth(
            "size-1000",
            "As fan-out-10, with payloads of 1000 bytes",
            Workload(1000, 100, 10, size_bytes=1000),
        ),
        ServerRow(
            "workers",
            "As fan-out-1, with one and two servers of kcast on a host",
            Workload(1000, 100, 1),
            lambda: [
                *(
                    kcast(tree, name, f"--workers={count}", server_count=count)
                    for count, name in enumerate(WORKERS, 1)
                ),
                NATS,
                REDIS,
            ],
            SERVED,
            BETTER_OF,
            rounds_share=GROWTH_ROUNDS,
            uses_all_cores=True,
        ),
        single(
            "single", "One message a datagram, from one publisher to 256 topics with a subscriber each", 1
        ),
        single("single-256", "The same from 256 publishers that take turns", 256),
        ClientRow("client-k1", "One client, one server", tree, "k=1 publish=1 subscribe=1", 1),
        ClientRow(
            "client-k5", "One client, five servers, policy 5/3/5", tree, "k=5 publish=3 subscribe=5", 5
        ),
    ]


SHORT = ("1-to-1", "1-to-100", "fan-out-10", "fan-out-1", "single", "client-k1")
