"""Captures made by hand: small ones of known rows, and simulated ones of any size."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kcast.loadtest.capture import parts
from kcast.loadtest.capture.folder import ScenarioFolder
from kcast.loadtest.capture.schema import (
    CUT_OFF,
    LOST,
    NONE,
    OPENED,
    PASSED,
    SCHEMA_VERSION,
    STANDING,
    TABLES,
)
from kcast.loadtest.scenario import Scenario, message_id

S = 1_000_000_000
MS = 1_000_000
T0 = 1000 * S

_DEFAULTS: Mapping[str, Any] = {"string": "", "list<int32>": ()}


class Handmade:
    """A capture, row by row; `folder` writes it. Columns that are not given are 0, "" or empty."""

    def __init__(self, path: Path, scenario: Scenario, status: str = "complete") -> None:
        self.path = path
        self.scenario = scenario
        self.status = status
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}

    def add(self, table: str, **values: Any) -> dict[str, Any]:
        """Adds a row; it may be changed until it is written."""
        row = {column.name: _DEFAULTS.get(column.type, 0) for column in TABLES[table]}
        assert set(values) <= set(row), f"{table} has no {set(values) - set(row)}"
        self.rows[table].append(row | values)
        return self.rows[table][-1]

    def where(self, table: str, **values: Any) -> list[dict[str, Any]]:
        """Returns the rows with these values."""
        return [row for row in self.rows[table] if all(row[name] == value for name, value in values.items())]

    def drop(self, table: str, **values: Any) -> None:
        """Removes the rows with these values, of which there must be some."""
        gone = self.where(table, **values)
        assert gone, f"no {table} with {values}"
        self.rows[table] = [row for row in self.rows[table] if row not in gone]

    def folder(self) -> ScenarioFolder:
        """Writes what there is, over what was written before."""
        for table, rows in self.rows.items():
            columns = {column.name: [row[column.name] for row in rows] for column in TABLES[table]}
            write_table(self.path, table, columns)
        return scenario_folder(self.path, self.scenario, self.status)


class World(Handmade):
    """A sound run: `publishers` and `subscribers`, each on all of `topics`, leases at all servers.

    The policy's `subscribe` first servers are asked and hold leases; nothing is published yet.
    """

    def __init__(self, path: Path, status: str = "complete", **fields: Any) -> None:
        policy: dict[str, Any] = {"servers": 3, "k": 3, "k_prime": 2}
        clients = {"publishers": 1, "subscribers": 2, "topics": 1, "topics_per_subscriber": 1}
        times = {"ttl_s": 10, "deadline_s": 2.0, "duration_s": 10.0}
        scenario = Scenario(name="handmade", **(policy | clients | times | fields))
        super().__init__(path, scenario, status)
        self.seq = 0
        every = list(range(scenario.servers))
        for pub in range(scenario.publishers):
            self.add("member", client_id=pub, pub_id=pub, sub_id=NONE, port=5000 + pub, servers=every)
            self.add("window", pub_id=pub, t_from_ns=T0, t_to_ns=T0 + 10 * S)
        for sub in range(scenario.subscribers):
            client = 100 + sub
            self.add("member", client_id=client, pub_id=NONE, sub_id=sub, port=6000 + sub, servers=every)
            for topic in range(scenario.topics):
                self.add("intent", sub_id=sub, topic_id=topic, t_from_ns=T0, t_to_ns=T0 + 10 * S)
                for server in every[: scenario.policy.subscribe]:
                    held = {"sub_id": sub, "topic_id": topic, "server_id": server}
                    self.add("subscribe", **held, t_tx_ns=T0 - S)
                    self.add("lease", **held, boot_id=100 + server, t_ns=T0 - S, change=OPENED)
        for server in every:
            self.life(server, 100 + server, T0 - 2 * S, T0 + 20 * S)

    def life(self, server: int, boot: int, from_ns: int, to_ns: int, ended: int = 1) -> dict[str, Any]:
        """Adds a life of a server."""
        return self.add(
            "server_life", server_id=server, boot_id=boot, t_from_ns=from_ns, t_to_ns=to_ns, ended=ended
        )

    def message(self, *servers: int, at_s: float = 1.0, topic: int = 0, pub: int = 0) -> int:
        """Publishes a message to these servers, which bring it to all subscribers; returns its number."""
        at_ns = T0 + round(at_s * S)
        msg = message_id(pub, self.seq)
        self.seq += 1
        self.add("publish", msg_id=msg, pub_id=pub, topic_id=topic, t_intended_ns=at_ns, t_send_ns=at_ns + MS)
        self.where("window", pub_id=pub)[0]["scheduled"] += 1
        for server in servers:
            self.add("pub_tx", msg_id=msg, pub_id=pub, server_id=server, t_tx_ns=at_ns + MS)
            self.receive(msg, server, at_ns + 2 * MS)
            for sub in range(self.scenario.subscribers):
                self.deliver(msg, server, sub, at_ns + 3 * MS)
        return msg

    def receive(self, msg: int, server: int, at_ns: int, boot: int | None = None) -> None:
        """The server takes a message."""
        boot = 100 + server if boot is None else boot
        life = {"server_id": server, "boot_id": boot}
        self.add("server_rx", **life, msg_id=msg, pub_id=msg >> 32, t_rx_ns=at_ns)

    def deliver(self, msg: int, server: int, sub: int, at_ns: int, injected: int = PASSED) -> None:
        """A copy comes to a subscriber."""
        self.add("deliver", sub_id=sub, msg_id=msg, server_id=server, t_user_ns=at_ns, injected=injected)

    def lose_in(self, msg: int, server: int, injected: int = PASSED) -> None:
        """The message does not come to the server."""
        for row in self.where("pub_tx", msg_id=msg, server_id=server):
            row["injected"] = injected
        self.drop("server_rx", msg_id=msg, server_id=server)
        self.drop("deliver", msg_id=msg, server_id=server)

    def lose_out(self, msg: int, server: int, sub: int) -> None:
        """The server's copy does not come to the subscriber."""
        self.drop("deliver", msg_id=msg, server_id=server, sub_id=sub)


def restarted_world(path: Path, messages: int) -> World:
    """A run in which a restarted server took the publisher's first message, and none of the others.

    So it would have taken them, too: no cause is recorded. Who does not look at the first message takes the
    publisher for one that the server did not know yet.
    """
    world = World(path)
    world.where("server_life", server_id=0)[0].update(t_to_ns=T0, ended=0)
    world.life(0, 200, T0 + S - MS, T0 + 20 * S)
    taken = world.message(0)
    world.where("server_rx", msg_id=taken)[0]["boot_id"] = 200
    for number in range(1, messages):
        lost = world.message(at_s=1 + 0.9 * number / messages)
        sent_ns = T0 + S + 900 * MS * number // messages
        world.add("pub_tx", msg_id=lost, pub_id=0, server_id=0, t_tx_ns=sent_ns)
    return world


def write_table(path: Path, table: str, columns: Mapping[str, Any]) -> None:
    """Writes all rows of a table as one part."""
    rows = pa.Table.from_batches([parts.to_rows(table, columns)])
    parts.write_part(path / f"table={table}" / "hand-0.parquet", rows)


def scenario_folder(path: Path, scenario: Scenario, status: str = "complete") -> ScenarioFolder:
    """Writes scenario.json, and returns the folder."""
    info = {"schema_version": SCHEMA_VERSION, "status": status, "scenario": scenario.as_json()}
    path.mkdir(parents=True, exist_ok=True)
    (path / "scenario.json").write_text(json.dumps(info))
    return ScenarioFolder(path, scenario)


def simulate(path: Path, scenario: Scenario, seed: int = 1) -> ScenarioFolder:
    """Writes what a sound run would have recorded: isolation and losses happen as planned.

    Topics lie on random servers, publishers draw anew for each message, subscribers once for each topic.
    """
    rng = np.random.default_rng(seed)
    policy, topics, servers = scenario.policy, scenario.topics, scenario.servers
    places = np.argsort(rng.random((topics, servers)), axis=1)[:, : policy.k]
    epochs = int(np.ceil(scenario.duration_s / scenario.epoch_s)) + 1
    share_down = scenario.outage if scenario.outages == "independent" else 0.0
    down = rng.random((epochs, servers)) < share_down
    epoch_ns = round(scenario.epoch_s * S)

    per_pub = int(scenario.rate * scenario.duration_s)
    pub = np.repeat(np.arange(scenario.publishers), per_pub)
    msg = (pub.astype(np.int64) << 32) | np.tile(np.arange(per_pub), scenario.publishers)
    count = len(msg)
    intended = T0 + rng.integers(0, round(scenario.duration_s * S), count)
    topic = rng.integers(0, topics, count)
    columns: dict[str, dict[str, Any]] = {}
    columns["publish"] = {
        **{"msg_id": msg, "pub_id": pub, "topic_id": topic, "digest": msg, "t_intended_ns": intended},
        **{"t_send_ns": intended + 10_000, "size_bytes": np.full(count, 100)},
    }
    columns["window"] = {
        "pub_id": np.arange(scenario.publishers),
        "t_from_ns": np.full(scenario.publishers, T0),
        "t_to_ns": np.full(scenario.publishers, T0 + round(scenario.duration_s * S)),
        "scheduled": np.full(scenario.publishers, per_pub),
    }

    def cut(at_ns: Any, server: Any) -> Any:
        return down[(at_ns - T0) // epoch_ns, server]

    # To the servers.
    draws = np.argsort(rng.random((count, policy.k)), axis=1)[:, : policy.publish]
    tx_msg = np.repeat(np.arange(count), policy.publish)
    tx_server = places[topic[tx_msg], draws.reshape(-1)]
    tx_at = intended[tx_msg] + 20_000
    fate = np.where(
        cut(tx_at, tx_server), CUT_OFF, np.where(rng.random(len(tx_msg)) < scenario.loss_in, LOST, PASSED)
    )
    columns["pub_tx"] = {
        **{"msg_id": msg[tx_msg], "pub_id": pub[tx_msg], "server_id": tx_server, "t_tx_ns": tx_at},
        "injected": fate,
    }
    rx = np.flatnonzero(fate == PASSED)
    rx_msg, rx_server, rx_at = tx_msg[rx], tx_server[rx], tx_at[rx] + 50_000
    columns["server_rx"] = {
        **{"server_id": rx_server, "boot_id": 1000 + rx_server, "msg_id": msg[rx_msg], "pub_id": pub[rx_msg]},
        **{"topic_id": topic[rx_msg], "t_rx_ns": rx_at},
    }

    # Who subscribes where.
    subs = scenario.subscribers
    own = np.argsort(rng.random((subs, topics)), axis=1)[:, : scenario.topics_per_subscriber]
    sub_ids, sub_topics = np.repeat(np.arange(subs), own.shape[1]), own.reshape(-1)
    windows = len(sub_ids)
    columns["intent"] = {
        **{"sub_id": sub_ids, "topic_id": sub_topics, "t_from_ns": np.full(windows, T0)},
        "t_to_ns": np.full(windows, T0 + round(scenario.duration_s * S)),
    }
    held = np.argsort(rng.random((windows, policy.k)), axis=1)[:, : policy.subscribe]
    lease_sub = np.repeat(sub_ids, policy.subscribe)
    lease_topic = np.repeat(sub_topics, policy.subscribe)
    lease_server = places[lease_topic, held.reshape(-1)]
    leases = len(lease_sub)
    columns["subscribe"] = {
        **{"sub_id": lease_sub, "topic_id": lease_topic, "server_id": lease_server},
        **{"t_tx_ns": np.full(leases, T0 - S), "injected": np.zeros(leases)},
    }
    columns["lease"] = {
        **{"server_id": lease_server, "boot_id": 1000 + lease_server, "sub_id": lease_sub},
        **{"topic_id": lease_topic, "t_ns": np.full(leases, T0 - S), "change": np.full(leases, STANDING)},
    }

    # To the subscribers: each received message meets the leases of its topic at its server.
    lease_at = lease_topic * servers + lease_server
    order = np.argsort(lease_at, kind="stable")
    wanted = topic[rx_msg] * servers + rx_server
    low, high = (np.searchsorted(lease_at[order], wanted, side=side) for side in ("left", "right"))
    copy = np.repeat(np.arange(len(rx)), high - low)
    number = np.arange(len(copy)) - (np.cumsum(high - low) - (high - low))[copy]
    lease = order[low[copy] + number]
    copy_at = rx_at[copy] + rng.integers(50_000, 500_000, len(copy))
    copy_fate = np.where(
        cut(copy_at, rx_server[copy]),
        CUT_OFF,
        np.where(rng.random(len(copy)) < scenario.loss_out, LOST, PASSED),
    )
    columns["deliver"] = {
        **{"sub_id": lease_sub[lease], "msg_id": msg[rx_msg[copy]], "server_id": rx_server[copy]},
        **{"t_kernel_ns": copy_at - 10_000, "t_user_ns": copy_at, "injected": copy_fate},
    }
    columns["server_life"] = {
        **{"server_id": np.arange(servers), "boot_id": 1000 + np.arange(servers)},
        **{"t_from_ns": np.full(servers, T0 - 2 * S), "t_to_ns": np.full(servers, T0 + 10_000 * S)},
        **{"lost_lines": np.zeros(servers), "ended": np.ones(servers)},
    }
    epoch, server = np.nonzero(down)
    columns["outage"] = {
        **{"server_id": server, "epoch": epoch, "t_down_ns": T0 + epoch * epoch_ns},
        **{"t_up_ns": T0 + (epoch + 1) * epoch_ns},
        **{"kind": ["isolation"] * len(epoch), "plan": ["independent"] * len(epoch)},
    }
    clients = scenario.publishers + subs
    columns["member"] = {
        "client_id": np.arange(clients),
        "pub_id": np.concatenate((np.arange(scenario.publishers), np.full(subs, NONE))),
        "sub_id": np.concatenate((np.full(scenario.publishers, NONE), np.arange(subs))),
        "port": 5000 + np.arange(clients),
        **{"publisher": [""] * clients, "process": [""] * clients, "t_ns": np.full(clients, T0)},
        "servers": [list(range(servers))] * clients,
    }
    for table, values in columns.items():
        types = {column.name: column.type for column in TABLES[table]}
        write_table(
            path,
            table,
            {
                name: value.astype(types[name]) if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            },
        )
    return scenario_folder(path, scenario)
