"""Writes the demo as a capture that `kcast analyse` reads: a scenario for each judged phase and K'.

While the demo runs, an observer sees each client's datagrams, and keeps only numbers of them. At the end the
servers' taps are read, and everything is written at once. The phase "recovering" is left out: what is lost
until all leases stand again does not depend on K'.
"""

import asyncio
import re
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from kcast.client.aio import Client
from kcast.client.engine import Wrap
from kcast.client.envelope import parse_envelope
from kcast.client.events import Drop
from kcast.loadtest.capture.folder import ScenarioFolder, create_run
from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.capture.taps import MessageIds, PortOwner, convert
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.demo.plan import DemoPlan
from kcast.loadtest.demo.tally import Phase, Topic
from kcast.loadtest.faults.impairment import Impairment
from kcast.loadtest.scenario import ID_CHARS, PAYLOAD_BYTES_MAX, Scenario, message_id
from kcast.pubsub.endpoint import Address, Endpoint

CAPTURED = (Phase.UP, Phase.DOWN, Phase.RECOVERED)

_PROCESS = "demo"
_LINE = re.compile(rb"^demo/(\d+)/(\d+)(?: (%@.*))?$", re.MULTILINE)
_TOPIC = re.compile(rb"demo/(\d+)/(\d+)")
_TICK_S = 0.01
_STATS_INTERVAL_S = 1.0
_MARGIN_NS = 1_000_000_000
_ONE_DRAW_S = 3600.0  # longer than any run: which servers are down is drawn once

Ints = NDArray[np.int64]


@dataclass(slots=True)
class _ClientRecord:
    k_prime: int
    pub_id: int
    sub_id: int
    client: Client
    port: int


@dataclass(slots=True)
class _PhaseTimes:
    """When a phase began, when its last message was published, and when all had arrived that would."""

    from_ns: int
    to_ns: int = 0
    settled_ns: int = 0


@dataclass(slots=True)
class _SentMessage:
    phase: Phase
    k_prime: int
    pub_id: int
    msg_id: int
    topic_id: int
    t_intended_ns: int
    t_send_ns: int
    digest: int = 0  # of its line; 0 until it is sent
    size_bytes: int = 0


class _IntRows:
    """Rows of whole numbers, kept in one flat array."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.values = array("q")

    def columns(self, keep: Callable[[Mapping[str, Ints]], NDArray[np.bool_]]) -> dict[str, Ints]:
        """Returns the columns of the rows for which `keep` is true."""
        table = np.frombuffer(self.values, np.int64).reshape(-1, len(self.names)).T
        columns = dict(zip(self.names, table, strict=True))
        wanted = keep(columns)
        return {name: column[wanted] for name, column in columns.items()}


@dataclass(slots=True)
class _TrafficObserver:
    """Observes one client's datagrams. `number` is the number that the demo gives a message."""

    recorder: "DemoRecorder"
    k_prime: int
    sub_id: int

    def sent(self, now: float, server: int, data: bytes, segment_bytes: int, injected: int) -> None:
        """Takes datagrams that are sent."""
        recorder, at_ns = self.recorder, int(now * 1e9)
        for line in _LINE.finditer(data):
            if line[3] is None:
                recorder.asked.values.extend((self.k_prime, self.sub_id, int(line[2]) - 1, server, at_ns))
                continue
            number = _number_of(line[3])
            recorder.sent.values.extend((number, server, at_ns))
            message = recorder.messages.get(number)
            if message is not None and not message.size_bytes:
                message.digest, message.size_bytes = xxh3_64_intdigest(line[0]), len(line[0]) + 1

    def received(
        self, now: float, server: int, data: bytes, segment_bytes: int, kernel_ns: int, injected: int
    ) -> None:
        """Takes datagrams that have arrived."""
        copies, at_ns = self.recorder.copies.values, int(now * 1e9)
        for line in _LINE.finditer(data):
            if line[3] is not None:
                copies.extend((_number_of(line[3]), self.sub_id, server, at_ns))


def _number_of(message: bytes) -> int:
    """Returns the number that the demo put before the text, however the payload travels; else -1."""
    envelope = parse_envelope(message)
    digits = b"" if envelope is None else envelope.payload.partition(b" ")[0]
    return int(digits) if digits.isdigit() and len(digits) < 18 else -1


class DemoRecorder:
    """Keeps what a demo's clients send and receive, and writes it as a capture. For one event loop."""

    def __init__(self, plan: DemoPlan, k: int, tap_dir: Path) -> None:
        self.tap_dir = tap_dir
        self.messages: dict[int, _SentMessage] = {}
        self.asked = _IntRows("k_prime", "sub_id", "topic_id", "server_id", "t_tx_ns")
        self.sent = _IntRows("number", "server_id", "t_tx_ns")
        self.copies = _IntRows("number", "sub_id", "server_id", "t_user_ns")
        self._plan, self._k = plan, k
        self._topics: Sequence[Topic] = ()
        self._addresses: dict[Address, int] = {}
        self._taps: Sequence[Sequence[Path]] = ()
        self._members: list[_ClientRecord] = []
        self._spans: dict[Phase, _PhaseTimes] = {}
        self._published: Counter[tuple[int, int]] = Counter()
        self._outages: list[dict[str, Any]] = []
        self._client_stats: list[tuple[int, ...]] = []
        self._process_stats: list[tuple[int, int]] = []
        self._server_stats: list[tuple[int, int, int]] = []

    # --- While it runs -------------------------------------------------------------------------------

    def prepare(self, topics: Sequence[Topic], servers: ProcessCluster) -> None:
        """Takes the topics and servers, before the first client is made."""
        self._topics = topics
        self._addresses = {address: number for number, address in enumerate(servers.addresses)}

    def path(self, k_prime: int, sub_id: int = NONE) -> Wrap:
        """Returns what shows a client's datagrams to the recorder."""
        socket = _TrafficObserver(self, k_prime, sub_id)

        def wrap(core: Endpoint) -> Endpoint:
            return Impairment(core, servers=self._addresses, rng=Random(0), observer=socket)

        return wrap

    def joined(self, client: Client, k_prime: int, *, pub_id: int = NONE, sub_id: int = NONE) -> None:
        """Takes a client that has been opened."""
        self._members.append(_ClientRecord(k_prime, pub_id, sub_id, client, client.local_port))

    def begin(self, phase: Phase, servers: ProcessCluster) -> None:
        """Notes that a phase begins."""
        self._look_at_servers(servers)
        self._spans[phase] = _PhaseTimes(time.monotonic_ns())

    def published_all(self, phase: Phase) -> None:
        """Notes that the phase's last message has been published."""
        self._spans[phase].to_ns = time.monotonic_ns() + 1

    def settled(self, phase: Phase, servers: ProcessCluster) -> None:
        """Notes that all has arrived that will."""
        self._spans[phase].settled_ns = time.monotonic_ns()
        self._look_at_servers(servers)
        self._look_at_clients()

    def publish(self, number: int, phase: Phase, topic: Topic, pub_id: int) -> None:
        """Takes a message that is about to be published; its intended time is now."""
        seq = self._published[topic.k_prime, pub_id]
        self._published[topic.k_prime, pub_id] += 1
        msg_id = message_id(pub_id, seq)
        topic_id = _numbers_of(topic.name)[1]
        now_ns = time.monotonic_ns()
        self.messages[number] = _SentMessage(phase, topic.k_prime, pub_id, msg_id, topic_id, now_ns, now_ns)

    def killed(self, servers: Collection[int]) -> None:
        """Notes that servers have been killed."""
        now_ns = time.monotonic_ns()
        for server in servers:
            down = {"server_id": server, "epoch": 0, "t_down_ns": now_ns, "t_up_ns": now_ns}
            self._outages.append(down | {"kind": "kill", "plan": "exact"})

    def restarted(self) -> None:
        """Notes that all killed servers run again."""
        for outage in self._outages:
            outage["t_up_ns"] = time.monotonic_ns()

    async def watch(self) -> None:
        """Notes once a second the loop's greatest lateness and the clients' counts; for ever."""
        lag_ns, ends_s = 0, time.monotonic() + _STATS_INTERVAL_S
        while True:
            due_s = time.monotonic() + _TICK_S
            await asyncio.sleep(_TICK_S)
            now_s = time.monotonic()
            lag_ns = max(lag_ns, int((now_s - due_s) * 1e9))
            if now_s >= ends_s:
                self._process_stats.append((time.monotonic_ns(), lag_ns))
                lag_ns, ends_s = 0, now_s + _STATS_INTERVAL_S
                self._look_at_clients()

    def _look_at_clients(self) -> None:
        now_ns = time.monotonic_ns()
        for number, member in enumerate(self._members):
            client = member.client
            self._client_stats.append(
                (
                    *(number, now_ns, client.counts["copies_received"], client.counts["deliveries"]),
                    *(client.counts["duplicates"], client.drops[Drop.SLOW_CONSUMER]),
                    *(client.kernel_drops, client.send_errors.total()),
                )
            )

    def _look_at_servers(self, servers: ProcessCluster) -> None:
        now_ns = time.monotonic_ns()
        stats = enumerate(servers.stats())
        self._server_stats += [(number, now_ns, stat.kernel_drops) for number, stat in stats]

    def ended(self, servers: ProcessCluster) -> None:
        """Notes that the servers have stopped, and their taps are complete."""
        self._taps = servers.taps

    # --- When it is over -----------------------------------------------------------------------------

    def write(self, folder: Path, command: Sequence[str]) -> None:
        """Writes the capture into a new folder. Raises CaptureError and OSError."""
        k_primes = sorted({topic.k_prime for topic in self._topics})
        scenarios = {(phase, k): self._scenario(phase, k) for phase in CAPTURED for k in k_primes}
        run = create_run(
            folder, [*scenarios.values()], seed=self._plan.seed, command=command, facts={"made_by": "demo"}
        )
        try:
            for (phase, k_prime), scenario in scenarios.items():
                self._write(run.begin(scenario.name), phase, k_prime)
        except BaseException as error:
            with suppress(OSError):
                run.finish("failed", reason=str(error))
            raise
        run.finish("complete")

    def _scenario(self, phase: Phase, k_prime: int) -> Scenario:
        plan, k, span = self._plan, self._k, self._spans[phase]
        messages = self._messages_of(phase, k_prime)
        audiences = [len(topic.audience) for topic in self._topics if topic.k_prime == k_prime]
        duration_s = (span.to_ns - span.from_ns) / 1e9
        payload_bytes = round(sum(message.size_bytes for message in messages) / max(1, len(messages)))
        outages: dict[str, Any] = {"outages": "exact", "down": plan.kill, "by": "kill"}
        return Scenario(
            name=f"{phase}-{k}-{k_prime}-{k}",
            seed=plan.seed,
            servers=plan.servers,
            ttl_s=plan.ttl_s,
            k=k,
            k_prime=k_prime,
            avoid_dead=phase is Phase.RECOVERED,
            publishers=plan.publishers,
            subscribers=plan.subscribers,
            topics=plan.topics,
            topics_per_subscriber=max(1, round(sum(audiences) / plan.subscribers)),
            rate=max(1e-3, len(messages) / duration_s / plan.publishers),
            arrivals="constant",
            payload_bytes=min(max(ID_CHARS, payload_bytes), PAYLOAD_BYTES_MAX),
            duration_s=duration_s,
            epoch_s=_ONE_DRAW_S,
            **(outages if phase is Phase.DOWN else {}),
        )

    def _messages_of(self, phase: Phase, k_prime: int) -> list[_SentMessage]:
        return [each for each in self.messages.values() if (each.phase, each.k_prime) == (phase, k_prime)]

    def _write(self, place: ScenarioFolder, phase: Phase, k_prime: int) -> None:
        writer = CaptureWriter(place.path, _PROCESS)
        try:
            self._append_all(writer, phase, k_prime)
        finally:
            writer.close()
        if writer.failure is not None:
            raise OSError(writer.failure)
        place.finish("complete")

    def _append_all(self, writer: CaptureWriter, phase: Phase, k_prime: int) -> None:
        span, messages = self._spans[phase], self._messages_of(phase, k_prime)
        self._append_messages(writer, messages)
        members = [(number, each) for number, each in enumerate(self._members) if each.k_prime == k_prime]
        writer.append("member", _columns(self._member_row(*each, span) for each in members), wait=True)
        self._append_windows(writer, messages, span)
        intents = (
            {
                "sub_id": sub,
                "topic_id": _numbers_of(topic.name)[1],
                "t_from_ns": span.from_ns,
                "t_to_ns": span.to_ns,
            }
            for topic in self._topics
            if topic.k_prime == k_prime
            for sub in sorted(topic.audience)
        )
        writer.append("intent", _columns(intents), wait=True)
        asked = self.asked.columns(
            lambda rows: (rows["k_prime"] == k_prime) & (rows["t_tx_ns"] <= span.settled_ns)
        )
        del asked["k_prime"]
        writer.append("subscribe", asked | {"injected": np.zeros_like(asked["sub_id"])}, wait=True)
        if self._outages:
            writer.append("outage", _columns(self._outages), wait=True)
        self._append_stats(writer, {number for number, _ in members}, span)
        digests = np.array([message.digest for message in messages], np.uint64).view(np.int64)
        msg_ids = np.array([message.msg_id for message in messages], np.int64)
        has_left = digests != 0
        by_port = {each.port: PortOwner(each.pub_id, each.sub_id) for _, each in members}
        for server_id, paths in enumerate(self._taps):
            convert(
                *(paths, server_id, by_port, MessageIds(digests[has_left], msg_ids[has_left])),
                _OnlyThis(writer),
                t_from_ns=span.from_ns,
                t_to_ns=span.settled_ns + _MARGIN_NS,
                topic_id=lambda name: _topic_id(name, k_prime),
            )

    def _append_messages(self, writer: CaptureWriter, messages: Sequence[_SentMessage]) -> None:
        wanted = {id(message) for message in messages}
        numbers = np.array([n for n, message in self.messages.items() if id(message) in wanted], np.int64)
        order = np.argsort(numbers)
        msg_ids = np.array([message.msg_id for message in messages], np.int64)
        names = ("msg_id", "pub_id", "topic_id", "t_intended_ns", "t_send_ns", "size_bytes")
        publish: dict[str, Any] = {name: [getattr(each, name) for each in messages] for name in names}
        publish["digest"] = np.array([each.digest for each in messages], np.uint64).view(np.int64)
        writer.append("publish", publish, wait=True)
        for table, rows in (("pub_tx", self.sent), ("deliver", self.copies)):
            columns = rows.columns(lambda found: np.isin(found["number"], numbers))
            places = order[np.searchsorted(numbers[order], columns.pop("number"))]
            columns["msg_id"] = msg_ids[places]
            columns["injected"] = np.zeros(len(places), np.int64)
            if table == "pub_tx":
                columns["pub_id"] = msg_ids[places] >> 32
            else:
                columns["t_kernel_ns"] = np.zeros(len(places), np.int64)
            writer.append(table, columns, wait=True)

    def _member_row(self, number: int, member: _ClientRecord, span: _PhaseTimes) -> dict[str, Any]:
        return {
            "client_id": number,
            "pub_id": member.pub_id,
            "sub_id": member.sub_id,
            "port": member.port,
            "publisher": member.client.core.publisher,
            "process": _PROCESS,
            "t_ns": span.from_ns,
            "servers": list(range(self._plan.servers)),
        }

    def _append_windows(
        self, writer: CaptureWriter, messages: Sequence[_SentMessage], span: _PhaseTimes
    ) -> None:
        counts = Counter(message.pub_id for message in messages)
        windows = (
            {"pub_id": pub, "t_from_ns": span.from_ns, "t_to_ns": span.to_ns, "scheduled": counts[pub]}
            for pub in range(self._plan.publishers)
        )
        writer.append("window", _columns(windows), wait=True)

    def _append_stats(self, writer: CaptureWriter, clients: Collection[int], span: _PhaseTimes) -> None:
        names = ("client_id", "t_ns", "copies", "deliveries", "duplicates", "slow_consumer", "kernel_drops")
        rows = [
            row for row in self._client_stats if row[0] in clients and row[1] <= span.settled_ns + _MARGIN_NS
        ]
        table = np.array(rows, np.int64).reshape(-1, len(names) + 1).T
        writer.append("client_stat", dict(zip((*names, "send_errors"), table, strict=True)), wait=True)
        servers = np.array(self._server_stats, np.int64).reshape(-1, 3).T
        nothing = np.zeros(servers.shape[1], np.int64)
        known = dict(zip(("server_id", "t_ns", "kernel_drops"), servers, strict=True))
        unknown = dict.fromkeys(("cpu_ns", "rss_bytes", "queue_bytes"), nothing)
        writer.append("server_stat", known | unknown, wait=True)
        process_stats = (
            {"process": _PROCESS, "t_ns": t_ns, "cpu_ns": 0, "rss_bytes": 0, "lag_max_ns": lag_ns}
            | {"rows_waiting": 0, "rows_lost": 0}
            for t_ns, lag_ns in self._process_stats
        )
        if self._process_stats:
            writer.append("process_stat", _columns(process_stats), wait=True)
        clock = {"process": [_PROCESS], "t_ns": [span.from_ns], "offset_ns": [0], "error_ns": [0]}
        writer.append("clock", clock, wait=True)


class _OnlyThis:
    """Leaves out rows of the demo's other scenarios, which ran on the same servers."""

    def __init__(self, writer: CaptureWriter) -> None:
        self._writer = writer

    def append(self, table: str, columns: Mapping[str, Any], *, wait: bool = False) -> None:
        """Appends the rows of a table that belong to this scenario."""
        name = {"server_rx": "msg_id", "lease": "topic_id"}.get(table)
        if name is not None:
            keep = np.asarray(columns[name]) != NONE
            columns = {each: np.asarray(values)[keep] for each, values in columns.items()}
        self._writer.append(table, columns, wait=wait)


def _numbers_of(name: bytes) -> tuple[int, int]:
    """Returns K' and the number of a topic, from 0."""
    found = _TOPIC.fullmatch(name)
    return (int(found[1]), int(found[2]) - 1) if found else (NONE, NONE)


def _topic_id(name: bytes, k_prime: int) -> int:
    of, number = _numbers_of(name)
    return number if of == k_prime else NONE


def _columns(rows: Any) -> dict[str, list[Any]]:
    """Turns rows, at least one, into columns."""
    listed = list(rows)
    return {name: [row[name] for row in listed] for name in listed[0]}
