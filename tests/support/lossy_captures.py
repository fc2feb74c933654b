"""Captures of a network that loses lines though no scenario asks for it, by known chances; in memory.

A sound capture is simulated, and lines are taken out of it, with what would have followed from them. Losses
are independent, or come in runs (Gilbert's two states: a link loses everything for a while, then nothing), on
each leg by itself, or on the link of a client that all of its legs share.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kcast.loadtest.capture import parts
from kcast.loadtest.capture.schema import NONE, STANDING, TABLES
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import MS, T0, S

Array = NDArray[Any]
Columns = dict[str, Any]


class Network(NamedTuple):
    """What a network loses: shares of lines on both legs, how many in a row on average, and where."""

    loss_in: float
    loss_out: float
    in_a_row: float = 1.0
    of: Literal["leg", "client"] = "leg"


class InMemory:
    """A capture of one scenario, as `kcast.loadtest.results.tables.Capture`."""

    def __init__(self, scenario: Scenario, tables: dict[str, Columns]) -> None:
        self.scenario, self.status = scenario, "complete"
        self.columns = tables
        self._tables = {name: _table(name, tables.get(name, {})) for name in TABLES}

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        whole = self._tables[table]
        return whole if columns is None else whole.select(list(columns))


def _table(name: str, columns: Columns) -> pa.Table:
    given = columns or {column.name: [] for column in TABLES[name]}
    types = {column.name: column.type for column in TABLES[name]}
    typed = {
        each: values.astype(types[each]) if isinstance(values, np.ndarray) else values
        for each, values in given.items()
    }
    return pa.Table.from_batches([parts.to_rows(name, typed)])


def lossy_capture(scenario: Scenario, network: Network, seed: int, *, has_taps: bool = True) -> InMemory:
    """Returns the capture of a scenario without outages or planned losses, on such a network."""
    rng = np.random.default_rng(seed)
    policy, servers, subs = scenario.policy, scenario.servers, scenario.subscribers
    places = np.argsort(rng.random((scenario.topics, servers)), axis=1)[:, : policy.k]

    per_pub = rng.poisson(scenario.rate * scenario.duration_s, scenario.publishers)
    pub = np.repeat(np.arange(scenario.publishers), per_pub)
    intended = T0 + rng.integers(0, round(scenario.duration_s * S), len(pub))
    order = np.lexsort((intended, pub))
    intended = intended[order]
    number = np.arange(len(pub)) - np.repeat(np.cumsum(per_pub) - per_pub, per_pub)
    msg = pub.astype(np.int64) << 32 | number
    topic = rng.integers(0, scenario.topics, len(pub))

    draws = np.argsort(rng.random((len(msg), policy.k)), axis=1)[:, : policy.publish]
    of = np.repeat(np.arange(len(msg)), policy.publish)
    server = places[topic[of], draws.reshape(-1)]
    at = intended[of] + MS
    owner = pub[of] if network.of == "client" else pub[of] * servers + server
    came = np.flatnonzero(~_lost(rng, owner, at, network.loss_in, network.in_a_row))

    own = np.argsort(rng.random((subs, scenario.topics)), axis=1)[:, : scenario.topics_per_subscriber]
    sub_id, sub_topic = np.repeat(np.arange(subs), own.shape[1]), own.reshape(-1)
    held = np.argsort(rng.random((len(sub_id), policy.k)), axis=1)[:, : policy.subscribe]
    lease_sub, lease_topic = (np.repeat(each, policy.subscribe) for each in (sub_id, sub_topic))
    lease_server = places[lease_topic, held.reshape(-1)]
    by_place = np.argsort(lease_topic * servers + lease_server, kind="stable")
    keys = (lease_topic * servers + lease_server)[by_place]
    wanted = topic[of[came]] * servers + server[came]
    low, high = (np.searchsorted(keys, wanted, side=side) for side in ("left", "right"))
    copy = np.repeat(np.arange(len(came)), high - low)
    lease = by_place[low[copy] + np.arange(len(copy)) - (np.cumsum(high - low) - (high - low))[copy]]
    copy_at, copy_sub, copy_server = at[came][copy] + 2 * MS, lease_sub[lease], server[came][copy]
    flow = copy_sub * servers + copy_server
    owner = copy_sub if network.of == "client" else flow
    kept = ~_lost(rng, owner, copy_at, network.loss_out, network.in_a_row)

    window, leases, every = len(sub_id), len(lease_sub), np.arange(servers)
    end_ns = T0 + round(scenario.duration_s * S)
    tables: dict[str, Columns] = {
        "publish": {
            **{"msg_id": msg, "pub_id": pub, "topic_id": topic, "digest": msg, "t_intended_ns": intended},
            **{"t_send_ns": intended, "size_bytes": np.full(len(msg), 100)},
        },
        "window": {
            **{"pub_id": np.arange(scenario.publishers), "t_from_ns": np.full(scenario.publishers, T0)},
            **{"t_to_ns": np.full(scenario.publishers, end_ns), "scheduled": per_pub},
        },
        "pub_tx": {
            **{"msg_id": msg[of], "pub_id": pub[of], "server_id": server, "t_tx_ns": at},
            "injected": np.zeros(len(of)),
        },
        "deliver": {
            **{"sub_id": copy_sub[kept], "msg_id": msg[of[came[copy[kept]]]]},
            **{"server_id": copy_server[kept], "t_kernel_ns": copy_at[kept], "t_user_ns": copy_at[kept]},
            "injected": np.zeros(int(kept.sum())),
        },
        "intent": {
            **{"sub_id": sub_id, "topic_id": sub_topic, "t_from_ns": np.full(window, T0)},
            "t_to_ns": np.full(window, end_ns),
        },
        "subscribe": {
            **{"sub_id": lease_sub, "topic_id": lease_topic, "server_id": lease_server},
            **{"t_tx_ns": np.full(leases, T0 - S), "injected": np.zeros(leases)},
        },
        "member": _members(scenario),
    }
    if has_taps:
        tables |= {
            "server_rx": {
                **{"server_id": server[came], "boot_id": 1000 + server[came], "msg_id": msg[of[came]]},
                **{"pub_id": pub[of[came]], "topic_id": topic[of[came]], "t_rx_ns": at[came] + MS},
            },
            "lease": {
                **{"server_id": lease_server, "boot_id": 1000 + lease_server, "sub_id": lease_sub},
                **{"topic_id": lease_topic, "t_ns": np.full(leases, T0 - S)},
                "change": np.full(leases, STANDING),
            },
            "server_life": {
                **{"server_id": every, "boot_id": 1000 + every, "t_from_ns": np.full(servers, T0 - 2 * S)},
                **{"t_to_ns": np.full(servers, end_ns + 9 * S), "lost_lines": np.zeros(servers)},
                "ended": np.ones(servers),
            },
        }
    return InMemory(scenario, tables)


def _members(scenario: Scenario) -> Columns:
    pubs, subs = scenario.publishers, scenario.subscribers
    clients = pubs + subs
    return {
        "client_id": np.arange(clients),
        "pub_id": np.concatenate((np.arange(pubs), np.full(subs, NONE))),
        "sub_id": np.concatenate((np.full(pubs, NONE), np.arange(subs))),
        **{"port": 5000 + np.arange(clients), "publisher": [""] * clients, "process": [""] * clients},
        **{"t_ns": np.full(clients, T0), "servers": [list(range(scenario.servers))] * clients},
    }


def _lost(rng: np.random.Generator, owner: Array, at_ns: Array, share: float, in_a_row: float) -> Array:
    """Which lines are lost; those of one owner follow each other in the order of time."""
    if in_a_row == 1:
        independent: Array = rng.random(len(owner)) < share
        return independent
    order = np.lexsort((at_ns, owner))
    is_lost = np.empty(len(owner), dtype=np.bool_)
    is_lost[order] = chain(rng, len(owner), share, in_a_row)
    return is_lost


def chain(rng: np.random.Generator, length: int, share: float, in_a_row: float) -> Array:
    """A stationary chain of two states: `share` of its members are True, `in_a_row` of them on average.

    One chain goes through all owners: the last line of one says next to nothing of the first of the next.
    """
    if not length:
        return np.zeros(0, dtype=np.bool_)
    ends, begins = 1 / in_a_row, share / (1 - share) / in_a_row
    runs = 2 + round(2.2 * length * share / in_a_row + 20 * (length * share / in_a_row + 1) ** 0.5)
    is_first_lost = rng.random() < share
    lost = (np.arange(2 * runs) % 2 == 0) == is_first_lost
    lengths = rng.geometric(np.where(lost, ends, begins))
    return np.repeat(lost, lengths)[:length]
