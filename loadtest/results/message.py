"""What became of one message: where it was sent, which servers had it, and whom it reached.

The rows of that message are read alone. Only where servers were restarted, all messages are looked at: what
a server took from a publisher before tells whether it would take more (`attribution.admissions`).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kcast.loadtest.capture.folder import ScenarioFolder
from kcast.loadtest.capture.manifest import CaptureError
from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST, PASSED
from kcast.loadtest.results.admissions import Admissions
from kcast.loadtest.results.attribution import MESSAGE_COLUMNS, admissions, at_servers, judge, messages_of
from kcast.loadtest.results.causes import MEANINGS, Cause
from kcast.loadtest.results.surroundings import Surroundings
from kcast.loadtest.results.tables import columns
from kcast.loadtest.scenario import Scenario

FATES: Mapping[int, str] = {PASSED: "passed", LOST: "lost", CUT_OFF: "cut off", DUPLICATE: "an extra copy"}
"""What the load test itself did to a datagram, in words."""

_MS_NS, _SECOND_NS = 1_000_000, 1_000_000_000
_NUMBER_BITS = 32

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class AtServer:
    """A message at one server. Times are in ms since the message was due.

    `sent` has when it was sent to the server, and each fate (FATES). `taken_ms` is when the server took it;
    None if its tap does not have it. `cause` is what stopped it there, a label; None: the server had it, as
    copies show that came from it (`is_copied`), or its tap.
    """

    server: int
    name: str
    sent: tuple[tuple[float, str], ...]
    taken_ms: float | None
    cause: str | None
    meaning: str
    is_copied: bool


@dataclass(frozen=True, slots=True)
class AtSubscriber:
    """What became of a message for one subscriber. Times are in ms since the message was due.

    `latency_ms` None: missed, for the `cause`, which is "delivered" otherwise. `copies` are each copy's
    server, time and fate.
    """

    subscriber: int
    latency_ms: float | None
    cause: str
    meaning: str
    copies: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `due_s` is in seconds since the load began; `given_ms` is when it was given to the client,
    in ms since it was due."""

    scenario: str
    msg_id: int
    publisher: int
    number: int
    topic: int
    due_s: float
    given_ms: float
    size_bytes: int
    servers: tuple[AtServer, ...]
    subscribers: tuple[AtSubscriber, ...]

    def as_json(self) -> dict[str, Any]:
        """The message as plain values."""
        return asdict(self)


class _OneMessage:
    """A capture in which tables of messages have one message only (`tables.Capture`)."""

    def __init__(self, folder: ScenarioFolder, msg_id: int) -> None:
        self._folder, self._msg_id = folder, msg_id

    @property
    def scenario(self) -> Scenario:
        return self._folder.scenario

    @property
    def status(self) -> str:
        return self._folder.status

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        if table not in MESSAGE_COLUMNS:
            return self._folder.read(table, columns)
        return self._folder.read(table, columns, msg_id=self._msg_id)


def has_message(folder: ScenarioFolder, msg_id: int) -> bool:
    """Whether a scenario published this message. Raises CaptureError."""
    return bool(folder.read("publish", ["msg_id"], msg_id=msg_id).num_rows)


def known_messages(folder: ScenarioFolder) -> str:
    """Which messages a scenario published, in words. Raises CaptureError."""
    ids = columns(folder, "publish", "msg_id")["msg_id"]
    ids = ids[ids >= 0]
    if not len(ids):
        return f"{folder.scenario.name} has no messages"
    publishers, counts = np.unique(ids >> _NUMBER_BITS, return_counts=True)
    first, last = publishers[0], publishers[-1]
    words = f"{folder.scenario.name} has {first}:0 to {first}:{counts[0] - 1}"
    if len(publishers) > 1:
        words += f", and so on to publisher {last} with {last}:0 to {last}:{counts[-1] - 1}"
    return words


def message(folder: ScenarioFolder, msg_id: int) -> Message:
    """What became of a message that the scenario published. Raises CaptureError."""
    one = _OneMessage(folder, msg_id)
    publish = _rows(one, "publish")
    if not publish:
        raise CaptureError(f"{folder.path}: no message {msg_id}")
    first, around = publish[0], Surroundings(one)
    rows = messages_of(one)
    admitted: Admissions | None = None
    if around.lives.were_restarted:
        admitted = admissions(around, messages_of(folder))
    due_ns = first["t_intended_ns"]
    names = _names(folder)
    found = judge(around, rows, admitted=admitted)
    stopped = {server: cause for _, server, cause in at_servers(around, rows, admitted)}
    copies = defaultdict(list)
    delivered = sorted(_rows(one, "deliver"), key=lambda row: row["t_user_ns"])
    for row in delivered:
        copy = names(row["server_id"]), _ms(row["t_user_ns"] - due_ns), FATES[row["injected"]]
        copies[row["sub_id"]].append(copy)
    return Message(
        folder.scenario.name,
        msg_id,
        *divmod(msg_id, 1 << _NUMBER_BITS),
        first["topic_id"],
        (due_ns - _began_ns(folder)) / _SECOND_NS,
        _ms(first["t_send_ns"] - due_ns),
        first["size_bytes"],
        tuple(_servers(one, stopped, {row["server_id"] for row in delivered}, due_ns, names)),
        tuple(
            AtSubscriber(
                int(subscriber),
                None if latency_ns < 0 else _ms(int(latency_ns)),
                Cause(cause).label,
                MEANINGS[Cause(cause)],
                tuple(copies[int(subscriber)]),
            )
            for subscriber, latency_ns, cause in zip(
                found.sub_ids, found.latencies_ns, found.causes, strict=True
            )
        ),
    )


def _servers(
    one: _OneMessage,
    stopped: Mapping[int, Cause | None],
    copying: Collection[int],
    due_ns: int,
    names: "_Names",
) -> Sequence[AtServer]:
    """Servers in the order in which the message was sent to them."""
    sent, taken = defaultdict(list), {}
    for row in sorted(_rows(one, "pub_tx"), key=lambda row: (row["t_tx_ns"], row["server_id"])):
        sent[row["server_id"]].append((_ms(row["t_tx_ns"] - due_ns), FATES[row["injected"]]))
    for row in sorted(_rows(one, "server_rx"), key=lambda row: -row["t_rx_ns"]):
        taken[row["server_id"]] = _ms(row["t_rx_ns"] - due_ns)
    found = []
    for server in [*sent, *(server for server in taken if server not in sent)]:
        cause, is_copied = stopped.get(server), server in copying
        is_known = cause is None or (cause is Cause.UNTAPPED and is_copied)
        label, meaning = (None, "") if is_known or cause is None else (cause.label, MEANINGS[cause])
        times = tuple(sent[server]), taken.get(server)
        found.append(AtServer(server, names(server), *times, label, meaning, is_copied))
    return found


class _Names:
    """The names of servers, as their addresses are in scenario.json; else their numbers."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, server: int) -> str:
        return self._known[server] if 0 <= server < len(self._known) else f"server {server}"


def _names(folder: ScenarioFolder) -> _Names:
    known = folder.info.get("servers")
    return _Names([str(name) for name in known] if isinstance(known, list) else [])


def _began_ns(folder: ScenarioFolder) -> int:
    told = folder.info.get("t0_ns")
    if isinstance(told, int):
        return told
    return int(columns(folder, "window", "t_from_ns")["t_from_ns"].min(initial=np.iinfo(np.int64).max))


def _rows(one: _OneMessage, table: str) -> Rows:
    found: Rows = one.read(table).to_pylist()
    return found


def _ms(time_ns: int) -> float:
    return time_ns / _MS_NS
