"""Captures of any size, simulated: what sound runs would have recorded, in parts as a recorder writes them.

    python -m tests.support.big_capture FOLDER [--copies 10000000] [--cells 1] [--seed 1]

Outages, views, draws, losses and leases are consistent in all tables, by the scenario's own plan of outages
and views; each leg takes some 50 to 500 us besides its delay. All is numpy, a slab of the load's time after
the other, so memory is bounded by the rate and time grows with the rows. Half a million rows of `deliver` a
second are written on one core.

Not simulated: servers that are killed or halted, repeats, avoidance, duplication, reordering, placement by
modulo where views differ.
"""

import argparse
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kcast.loadtest.capture import parts
from kcast.loadtest.capture.folder import RunFolder, ScenarioFolder, create_run
from kcast.loadtest.capture.manifest import PART_SUFFIX
from kcast.loadtest.capture.schema import CUT_OFF, EXPIRED, LOST, NONE, OPENED, PASSED, TABLES
from kcast.loadtest.capture.writer import FLUSH_S
from kcast.loadtest.faults.plan import known_servers, outages
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX
from tests.support.handmade_capture import MS, T0, S

Array = NDArray[Any]
Columns = Mapping[str, Any]

US = 1_000
PROCESS = "local"
SLAB_COPIES = 500_000  # about this many copies at a time
SETTLED_NS = T0 - 3 * S  # when leases are asked for first
ASKED_TIMES = 5  # a line that is not answered is sent again so often


def big_scenario(copies: int, **fields: Any) -> Scenario:
    """Returns a scenario with about this many copies: 4 publishers of 250 messages/s, as long as it takes.

    Fields of `Scenario` may be given, but for its duration.
    """
    cluster = {"servers": 100, "k": 8, "k_prime": 3, "loss_in": 0.02, "loss_out": 0.02}
    load = {"publishers": 4, "subscribers": 20, "topics": 40, "topics_per_subscriber": 20, "rate": 250.0}
    faults = {"outages": "independent", "outage": 0.1, "epoch_s": 2.0}
    short = Scenario(**{"name": "big", **cluster, **load, **faults, **fields})
    return short.with_(duration_s=max(1.0, round(copies / copies_per_s(short), 3)))


def copies_per_s(scenario: Scenario) -> float:
    """Returns the approximate number of copies per second."""
    policy = scenario.policy
    audience = scenario.subscribing_users * scenario.topics_per_subscriber / scenario.topics
    reach = policy.publish * policy.subscribe / policy.k * (1 - scenario.outage)
    passing = (1 - scenario.loss_in) * (1 - scenario.loss_out)
    return scenario.publishing_users * scenario.rate * audience * reach * passing


def write_run(path: Path, scenarios: Sequence[Scenario], seed: int = 1) -> RunFolder:
    """Writes a run of these scenarios. Raises CaptureError, ValueError for one that cannot be simulated."""
    run = create_run(path, scenarios, seed=seed, command=["kcast", "load"])
    for scenario in scenarios:
        folder = run.begin(scenario.name)
        write_scenario(folder, seed)
        folder.finish(
            "complete",
            servers=[f"127.0.0.1:{7401 + server}" for server in range(scenario.servers)],
            server_keys=[f"server-{server + 1}" for server in range(scenario.servers)],
        )
    run.finish("complete")
    return run


def write_scenario(folder: ScenarioFolder, seed: int = 1) -> None:
    """Writes all tables of a scenario."""
    simulation, writer = _Simulation(folder.scenario, seed), _Parts(folder.path)
    for table, columns in simulation.beginning():
        writer.add(table, columns)
    for number in range(simulation.slabs):
        for table, columns in simulation.slab(number):
            writer.add(table, columns)
    for table, columns in simulation.end():
        writer.add(table, columns)


class _Parts:
    """Writes rows as parts of at most 65,536."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: Counter[str] = Counter()

    def add(self, table: str, columns: Columns) -> None:
        types = {column.name: column.type for column in TABLES[table]}
        typed = {
            name: value.astype(types[name]) if isinstance(value, np.ndarray) else value
            for name, value in columns.items()
        }
        batch = parts.to_rows(table, typed)
        for start in range(0, batch.num_rows, parts.ROWS_MAX):
            rows = pa.Table.from_batches([batch.slice(start, parts.ROWS_MAX)])
            name = f"{PROCESS}-simulated-{self._files[table]:06d}{PART_SUFFIX}"
            parts.write_part(self._path / f"table={table}" / name, rows)
            self._files[table] += 1


class _Leases(NamedTuple):
    """The leases, each of a subscriber, a topic and a server, in the order of topic and server."""

    sub: Array
    topic: Array
    server: Array


class _Simulation:
    """One scenario: what is drawn once, and then slab by slab."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        if scenario.repeat > 1 or scenario.avoid_dead or scenario.duplicate or scenario.reorder:
            raise ValueError("repeats, avoidance, duplication and reordering are not simulated")
        if scenario.outages != "none" and scenario.by != "isolation":
            raise ValueError(f"by is {scenario.by}: only isolation is simulated")
        if scenario.known < 1 and scenario.policy.placement == "modulo":
            raise ValueError("placement by modulo is not simulated where views differ")
        self.scenario = scenario
        self.policy = scenario.policy
        self.rng = np.random.default_rng((seed, scenario.seed))
        self.duration_ns = round(scenario.duration_s * S)
        self.end_ns = T0 + self.duration_ns
        self.boots = self.rng.integers(1, 1 << 62, scenario.servers)
        self._plan_outages()
        self._place_topics()
        self._subscribe()
        self._renew()
        slab_ns = min(FLUSH_S, SLAB_COPIES / max(1.0, copies_per_s(scenario))) * S
        self.slabs = max(1, int(np.ceil(self.duration_ns / slab_ns)))
        self.published = np.zeros(scenario.publishing_users, np.int64)
        self.copies = np.zeros(scenario.subscribing_users, np.int64)
        self.deliveries = np.zeros(scenario.subscribing_users, np.int64)

    # --- What is drawn once ---------------------------------------------------------------------------

    def _plan_outages(self) -> None:
        scenario = self.scenario
        self.outages = outages(scenario)
        self.epoch_ns = max(1, round(scenario.epoch_s * S))
        # The last row is that of all times before and after the load.
        self.down = np.zeros((-(-self.duration_ns // self.epoch_ns) + 1, scenario.servers), np.bool_)
        for outage in self.outages:
            self.down[outage.epoch, outage.server] = True

    def _place_topics(self) -> None:
        """Each client's servers of each topic, from one order of all servers for each topic."""
        scenario = self.scenario
        order = np.argsort(self.rng.random((scenario.topics, scenario.servers)), axis=1)
        self.clients = scenario.publishers + scenario.subscribers + scenario.mixed
        self.known = [known_servers(scenario, client) for client in range(self.clients)]
        self.hosts = min(self.policy.k, len(self.known[0]))
        self.places = np.empty((self.clients, scenario.topics, self.hosts), np.int64)
        for client, known in enumerate(self.known):
            is_known = np.zeros(scenario.servers, np.bool_)
            is_known[list(known)] = True
            if len(known) == scenario.servers and client:
                self.places[client] = self.places[0]
            else:
                first = np.argsort(~is_known[order], axis=1, kind="stable")[:, : self.hosts]
                self.places[client] = np.take_along_axis(order, first, axis=1)
        clients = np.arange(self.clients)
        is_pub = (clients < scenario.publishers) | (clients >= scenario.publishers + scenario.subscribers)
        self.client_of_pub = clients[is_pub]
        self.client_of_sub = clients[scenario.publishers :]

    def _subscribe(self) -> None:
        """Subscribers draw their servers of a topic once."""
        scenario, rng = self.scenario, self.rng
        subs = scenario.subscribing_users
        topics = np.argsort(rng.random((subs, scenario.topics)), axis=1)[:, : scenario.topics_per_subscriber]
        self.holder_sub, self.holder_topic = np.repeat(np.arange(subs), topics.shape[1]), topics.reshape(-1)
        count, asked = len(self.holder_sub), min(self.policy.subscribe, self.hosts)
        draws = np.argsort(rng.random((count, self.hosts)), axis=1)[:, :asked]
        places = self.places[self.client_of_sub[self.holder_sub], self.holder_topic]
        sub, topic = np.repeat(self.holder_sub, asked), np.repeat(self.holder_topic, asked)
        server = np.take_along_axis(places, draws, axis=1).reshape(-1)
        self.lease_keys = topic * scenario.servers + server
        by_key = np.argsort(self.lease_keys, kind="stable")
        self.lease_keys = self.lease_keys[by_key]
        self.leases = _Leases(sub[by_key], topic[by_key], server[by_key])

    def _renew(self) -> None:
        """All lines that ask for leases, and the times when leases did not stand because renewals failed."""
        scenario, rng = self.scenario, self.rng
        count = len(self.leases.sub)
        interval_ns = round(min(scenario.ttl_s / scenario.renewals, RENEWAL_INTERVAL_S_MAX) * S)
        again_ns = min(S // 5, interval_ns // ASKED_TIMES)
        rounds = 1 + (self.end_ns - SETTLED_NS) // interval_ns
        phases = rng.integers(interval_ns // 2, interval_ns, scenario.subscribing_users)[self.leases.sub]
        first_ns = SETTLED_NS + rng.integers(0, S // 2, count)
        begins = first_ns + phases[None] + np.arange(rounds)[:, None] * interval_ns
        begins = np.concatenate((first_ns[None], begins)).reshape(-1)
        lease = np.tile(np.arange(count), rounds + 1)
        is_first = np.repeat(np.arange(rounds + 1) == 0, count)
        within = begins < self.end_ns
        begins, lease, is_first = begins[within], lease[within], is_first[within]
        asked = []
        for number in range(ASKED_TIMES):
            at = begins + number * again_ns
            fate = self._fates(at, self.leases.server[lease], scenario.loss_in)
            if number == ASKED_TIMES - 1:
                fate[is_first] = PASSED  # the load begins once all leases stand
            asked.append((lease, at, fate))
            failed = fate != PASSED
            begins, lease, is_first = begins[failed], lease[failed], is_first[failed]
        self.asked_lease, self.asked_at, self.asked_fate = (
            np.concatenate([row[column] for row in asked]) for column in range(3)
        )
        by_time = np.argsort(self.asked_at, kind="stable")
        self.asked_lease, self.asked_at = self.asked_lease[by_time], self.asked_at[by_time]
        self.asked_fate = self.asked_fate[by_time]
        passed = self.asked_fate == PASSED
        order = np.lexsort((self.asked_at[passed], self.asked_lease[passed]))
        of = self.asked_lease[passed][order]
        at = self.asked_at[passed][order] + self._leg_ns(len(order))
        is_first_of = np.diff(of, prepend=-1) != 0
        next_at = np.append(np.where(is_first_of[1:], self.end_ns + S, at[1:]), self.end_ns + S)
        lapses = at + scenario.ttl_s * S < next_at
        self.lapse_of, self.lapse_from = of[lapses], at[lapses] + scenario.ttl_s * S
        self.lapse_to = next_at[lapses]
        comes_back = self.lapse_to < self.end_ns + S
        self.opened_of = np.concatenate((of[is_first_of], self.lapse_of[comes_back]))
        self.opened_at = np.concatenate((at[is_first_of], self.lapse_to[comes_back]))

    # --- What happens to datagrams ---------------------------------------------------------------------

    def _fates(self, at_ns: Array, servers: Array, loss: float) -> Array:
        epoch = (at_ns - T0) // self.epoch_ns
        epoch[(at_ns < T0) | (at_ns >= self.end_ns)] = len(self.down) - 1
        lost = np.where(self.rng.random(len(at_ns)) < loss, LOST, PASSED)
        return np.where(self.down[epoch, servers], CUT_OFF, lost)

    def _leg_ns(self, count: int) -> Array:
        own = self.rng.integers(50 * US, 500 * US, count)
        jitter = self.rng.random(count) * self.scenario.jitter_ms * MS
        return own + round(self.scenario.delay_ms * MS) + jitter.astype(np.int64)

    def _stands(self, lease: Array, at_ns: Array) -> Array:
        """Whether leases stood at these times."""
        if not len(self.lapse_of):
            return np.ones(len(lease), np.bool_)
        span = self.end_ns + 60 * S
        last = np.searchsorted(self.lapse_of * span + self.lapse_from, lease * span + at_ns, side="right") - 1
        stands: Array = (last < 0) | (self.lapse_of[last] != lease) | (at_ns >= self.lapse_to[last])
        return stands

    # --- Tables ---------------------------------------------------------------------------------------

    def beginning(self) -> list[tuple[str, Columns]]:
        """Writes what a capture records once, before the load."""
        scenario, leases = self.scenario, self.leases
        pub_of = np.full(self.clients, NONE)
        pub_of[self.client_of_pub] = np.arange(scenario.publishing_users)
        sub_of = np.full(self.clients, NONE)
        sub_of[self.client_of_sub] = np.arange(scenario.subscribing_users)
        holders = len(self.holder_sub)
        lease_at = np.concatenate((self.opened_at, self.lapse_from))
        lease = np.concatenate((self.opened_of, self.lapse_of))
        by_time = np.argsort(lease_at, kind="stable")
        change = np.repeat((OPENED, EXPIRED), (len(self.opened_at), len(self.lapse_from)))[by_time]
        lease, lease_at = lease[by_time], lease_at[by_time]
        return [
            (
                "member",
                {
                    **{"client_id": np.arange(self.clients), "pub_id": pub_of, "sub_id": sub_of},
                    "port": 20_000 + np.arange(self.clients),
                    "publisher": [f"publisher{client:02d}" for client in range(self.clients)],
                    **{"process": [PROCESS] * self.clients, "t_ns": np.full(self.clients, SETTLED_NS - S)},
                    "servers": [list(known) for known in self.known],
                },
            ),
            (
                "intent",
                {
                    **{"sub_id": self.holder_sub, "topic_id": self.holder_topic},
                    **{"t_from_ns": np.full(holders, T0), "t_to_ns": np.full(holders, self.end_ns)},
                },
            ),
            (
                "lease",
                {
                    **{"server_id": leases.server[lease], "boot_id": self.boots[leases.server[lease]]},
                    **{"sub_id": leases.sub[lease], "topic_id": leases.topic[lease]},
                    **{"t_ns": lease_at, "change": change},
                },
            ),
            (
                "outage",
                {
                    "server_id": np.array([outage.server for outage in self.outages], np.int64),
                    "epoch": np.array([outage.epoch for outage in self.outages], np.int64),
                    "t_down_ns": T0 + np.array([outage.from_ns for outage in self.outages], np.int64),
                    "t_up_ns": T0 + np.array([outage.to_ns for outage in self.outages], np.int64),
                    "kind": [scenario.by] * len(self.outages),
                    "plan": [scenario.outages] * len(self.outages),
                },
            ),
            (
                "clock",
                {
                    **{"process": [PROCESS], "t_ns": np.array([SETTLED_NS - S])},
                    **{"offset_ns": np.zeros(1), "error_ns": np.zeros(1)},
                },
            ),
        ]

    def slab(self, number: int) -> list[tuple[str, Columns]]:
        """Writes the messages between two times of the load, with all their copies."""
        from_ns, to_ns = (T0 + self.duration_ns * edge // self.slabs for edge in (number, number + 1))
        publish = self._publish(from_ns, to_ns)
        sent, came = self._send(publish)
        copies = self._forward(publish, came)
        # What was asked before the load, or after its last message, is in the slab beside it.
        low, high = np.searchsorted(self.asked_at, (from_ns, to_ns))
        asked = slice(low if number else 0, high if number + 1 < self.slabs else None)
        lease = self.asked_lease[asked]
        subscribe = {
            **{"sub_id": self.leases.sub[lease], "topic_id": self.leases.topic[lease]},
            **{"server_id": self.leases.server[lease], "t_tx_ns": self.asked_at[asked]},
            "injected": self.asked_fate[asked],
        }
        rows = [
            *(("publish", publish), ("pub_tx", sent), ("server_rx", came), ("deliver", copies)),
            ("subscribe", subscribe),
        ]
        # Those that end in this slab: what is read then has all that came before.
        is_last = number + 1 == self.slabs
        seconds = range((from_ns - T0) // S, -(-(to_ns - T0) // S) if is_last else (to_ns - T0) // S)
        return rows + [row for second in seconds for row in self._stats(T0 + (second + 1) * S)]

    def _publish(self, from_ns: int, to_ns: int) -> dict[str, Array]:
        scenario, rng = self.scenario, self.rng
        pubs = scenario.publishing_users
        counts = rng.poisson(scenario.rate * (to_ns - from_ns) / S, pubs)
        pub = np.repeat(np.arange(pubs), counts)
        count = len(pub)
        # Sorted by publisher and time, so that numbers grow with time.
        intended = np.sort(pub * (1 << 62 - 12) + rng.integers(from_ns, to_ns, count)) % (1 << 62 - 12)
        seq = np.arange(count) - np.repeat(np.cumsum(counts) - counts, counts) + self.published[pub]
        self.published += counts
        return {
            **{"msg_id": pub << 32 | seq, "pub_id": pub},
            "topic_id": rng.integers(0, scenario.topics, count),
            "digest": rng.integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max, count),
            **{"t_intended_ns": intended, "t_send_ns": intended + rng.integers(2 * US, 20 * US, count)},
            "size_bytes": np.full(count, scenario.payload_bytes + 30),
        }

    def _send(self, publish: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """All sends to servers, and the messages that reached them."""
        count, to = len(publish["msg_id"]), min(self.policy.publish, self.hosts)
        draws = np.argsort(self.rng.random((count, self.hosts)), axis=1)[:, :to]
        places = self.places[self.client_of_pub[publish["pub_id"]], publish["topic_id"]]
        server = np.take_along_axis(places, draws, axis=1).reshape(-1)
        of = np.repeat(np.arange(count), to)
        at = publish["t_send_ns"][of] + 10 * US
        fate = self._fates(at, server, self.scenario.loss_in)
        sent = {
            **{"msg_id": publish["msg_id"][of], "pub_id": publish["pub_id"][of], "server_id": server},
            **{"t_tx_ns": at, "injected": fate},
        }
        rows = np.flatnonzero(fate == PASSED)
        came = {
            **{"server_id": server[rows], "boot_id": self.boots[server[rows]]},
            **{"msg_id": sent["msg_id"][rows], "pub_id": sent["pub_id"][rows]},
            "topic_id": publish["topic_id"][of[rows]],
            "t_rx_ns": at[rows] + self._leg_ns(len(rows)),
        }
        self._of_came = of[rows]
        return sent, came

    def _forward(self, publish: Mapping[str, Array], came: Mapping[str, Array]) -> dict[str, Array]:
        """The copies: each message that a server has goes to the leases of its topic there."""
        keys = came["topic_id"] * self.scenario.servers + came["server_id"]
        low, high = (np.searchsorted(self.lease_keys, keys, side=side) for side in ("left", "right"))
        rows = np.repeat(np.arange(len(keys)), high - low)
        lease = np.arange(len(rows)) - (np.cumsum(high - low) - high)[rows]
        stands = self._stands(lease, came["t_rx_ns"][rows])
        rows, lease = rows[stands], lease[stands]
        at = came["t_rx_ns"][rows] + self._leg_ns(len(rows))
        fate = self._fates(at, came["server_id"][rows], self.scenario.loss_out)
        sub = self.leases.sub[lease]
        arrived = fate == PASSED
        subs = self.scenario.subscribing_users
        self.copies += np.bincount(sub[arrived], minlength=subs)
        has_come = np.zeros(len(publish["msg_id"]) * subs, np.bool_)
        has_come[self._of_came[rows[arrived]] * subs + sub[arrived]] = True
        self.deliveries += has_come.reshape(-1, subs).sum(axis=0)
        # In the order in which they come.
        order = np.argsort(at, kind="stable")
        return {
            **{"sub_id": sub[order], "msg_id": came["msg_id"][rows[order]]},
            **{"server_id": came["server_id"][rows[order]]},
            **{"t_kernel_ns": at[order] - 10 * US, "t_user_ns": at[order], "injected": fate[order]},
        }

    def _stats(self, at_ns: int) -> list[tuple[str, Columns]]:
        """Writes what is read once a second; copies count in the slab of their message."""
        copies, deliveries = np.zeros(self.clients, np.int64), np.zeros(self.clients, np.int64)
        copies[self.client_of_sub], deliveries[self.client_of_sub] = self.copies, self.deliveries
        none, no_server = np.zeros(self.clients), np.zeros(self.scenario.servers)
        ran_ns = at_ns - SETTLED_NS
        return [
            (
                "client_stat",
                {
                    **{"client_id": np.arange(self.clients), "t_ns": np.full(self.clients, at_ns)},
                    **{"copies": copies, "deliveries": deliveries, "duplicates": copies - deliveries},
                    **{"slow_consumer": none, "kernel_drops": none, "send_errors": none},
                },
            ),
            (
                "process_stat",
                {
                    **{"process": [PROCESS], "t_ns": np.array([at_ns]), "cpu_ns": np.array([ran_ns // 2])},
                    **{"rss_bytes": np.array([200_000_000]), "lag_max_ns": self.rng.integers(MS, 5 * MS, 1)},
                    **{"rows_waiting": np.zeros(1), "rows_lost": np.zeros(1)},
                },
            ),
            (
                "server_stat",
                {
                    "server_id": np.arange(self.scenario.servers),
                    "t_ns": np.full(self.scenario.servers, at_ns),
                    "cpu_ns": np.full(self.scenario.servers, ran_ns // 100),
                    "rss_bytes": np.full(self.scenario.servers, 25_000_000),
                    **{"kernel_drops": no_server, "queue_bytes": no_server},
                },
            ),
        ]

    def end(self) -> list[tuple[str, Columns]]:
        """Writes what is known only at the end."""
        pubs, servers = self.scenario.publishing_users, self.scenario.servers
        return [
            (
                "window",
                {
                    **{"pub_id": np.arange(pubs), "t_from_ns": np.full(pubs, T0)},
                    **{"t_to_ns": np.full(pubs, self.end_ns), "scheduled": self.published},
                },
            ),
            (
                "server_life",
                {
                    **{"server_id": np.arange(servers), "boot_id": self.boots},
                    "t_from_ns": np.full(servers, SETTLED_NS - S),
                    "t_to_ns": np.full(servers, self.end_ns + 3 * S),
                    **{"lost_lines": np.zeros(servers), "ended": np.ones(servers)},
                },
            ),
        ]


def main() -> None:
    """Writes a capture, and prints how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", type=int, default=10_000_000, help="in all cells together, about")
    parser.add_argument("--cells", type=int, default=1, help="K' of 1, 2, ... in turn")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    each = options.copies // options.cells
    scenarios = [big_scenario(each)]
    if options.cells > 1:
        few = [1 + number % 8 for number in range(options.cells)]
        scenarios = [
            big_scenario(each, name=f"big-{number}", k_prime=k_prime) for number, k_prime in enumerate(few)
        ]
    began, began_cpu = time.perf_counter(), time.process_time()
    run = write_run(options.folder, scenarios, options.seed)
    tables: Counter[str] = Counter()
    for folder in run.scenarios:
        tables.update({table: facts["rows"] for table, facts in folder.info["tables"].items()})
    size = sum(path.stat().st_size for path in options.folder.rglob("*.parquet"))
    print(
        f"{tables['deliver']:,} copies of {tables['publish']:,} messages in "
        f"{time.perf_counter() - began:.1f} s, {time.process_time() - began_cpu:.1f} s of CPU, "
        f"{size / 1e6:.0f} MB, peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB"
    )


if __name__ == "__main__":
    main()
