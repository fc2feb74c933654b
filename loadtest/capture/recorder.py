"""What clients send and receive, recorded: the hot path keeps bytes, the writer's thread looks into them.

    client's thread:  a burst -> its data at a list's end, the rest, packed, at a bytearray's
    writer's thread:  the beginning of both -> one string of bytes -> lines -> columns -> Parquet

No lock: a client adds at the end, and the thread takes away from the beginning, each with operations that are
one step for Python. Bytes are bounded by credit: of the writer's room, a client asks for 32 KB at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from kcast.loadtest.capture import lines
from kcast.loadtest.capture.byte_budget import Room
from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.pubsub.tap import read_clock
from kcast.pubsub.tap_format import Clock

UNSENT_S = 30.0  # a message that has not left by then is recorded without digest
UNSENT_MAX = 65_536

_CREDIT_BYTES = 32 * 1024
_CALL_BYTES = 200  # what a call leaves behind besides its data
_LOOK_BYTES = 4 * 1024 * 1024  # looked through at once

# What a call is told besides data. Packed, it is read as an array, at once, and refers to nothing.
_pack_head = Struct("<dqiib7x").pack
_HEAD = np.dtype(
    {
        "names": ["now", "kernel_ns", "server", "size_bytes", "fate"],
        "formats": ["<f8", "<i8", "<i4", "<i4", "i1"],
        "offsets": [0, 8, 16, 20, 24],
        "itemsize": 32,
    }
)

_Table = tuple[str, dict[str, Any]]


class _Calls(NamedTuple):
    """Calls of the hot path: what they were told, by which client, and the data."""

    heads: NDArray[np.void]
    clients: NDArray[np.intp]
    datas: list[bytes]

    @property
    def size_bytes(self) -> int:
        """What room they take."""
        return int(self.heads["size_bytes"].sum()) + _CALL_BYTES * len(self.datas)

    def portions(self) -> Iterator["_Calls"]:
        """The same, in portions that have some megabytes of data together, or one call."""
        if not self.datas:
            return
        portions = (self.heads["size_bytes"].cumsum(dtype=np.int64) - 1) // _LOOK_BYTES
        bounds = [0, *(np.flatnonzero(np.diff(portions)) + 1).tolist(), len(portions)]
        for start, end in pairwise(bounds):
            yield _Calls(self.heads[start:end], self.clients[start:end], self.datas[start:end])


class Recorder:
    """Makes the rows of `publish`, `pub_tx`, `deliver` and `subscribe` for all clients of a process.

    `offset_ns` is added to all times: what this machine's clock lacks to that of the one that leads. It may
    be set later, before there is anything to record. All ends with the writer's `close`: close clients first.

    `counts` tells what was seen: "messages" received, "sends" and "subscribes" (each a row), "unscheduled"
    (messages with an id below 0, as of a warm-up) and "foreign" (lines that are no load test's, or come from
    no server of the run's), of which no rows are made.
    """

    def __init__(
        self, writer: CaptureWriter, *, offset_ns: int = 0, read_clock: Callable[[], Clock] = read_clock
    ) -> None:
        self.offset_ns = offset_ns
        self.counts: Counter[str] = Counter()
        self._room = writer.room
        self._fail = writer.fail
        # Flat, so that a message is added in one step: msg_id, pub_id, topic_id, t_intended_ns, t_send_ns.
        self.published: list[int] = []
        self._read_clock = read_clock
        self._clients: list[ClientRecorder] = []
        self._unsent: dict[int, tuple[int, ...]] = {}  # what `published` had, by message
        writer.add_source(self)

    def client(self, *, pub_id: int = NONE, sub_id: int = NONE) -> "ClientRecorder":
        """What records one client's socket."""
        client = ClientRecorder(self._room, self.published, pub_id, sub_id)
        self._clients.append(client)
        return client

    # --- Source: in the writer's thread ---------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Bursts that were not looked through yet, and messages that were not seen to leave yet."""
        calls = sum(len(log.datas) for client in self._clients for log in (client.log_in, client.log_out))
        return calls + len(self.published) // 5 + len(self._unsent)

    def take(self, is_last: bool) -> list[_Table]:
        """The rows of what has gathered."""
        if is_last:
            self._end()
        clock = self._read_clock()
        # In this order: what has left was published before, so its message is known.
        sent = self._gather([client.log_out for client in self._clients])
        published = _cut(self.published)
        received = self._gather([client.log_in for client in self._clients])
        self._room.exchange(_CALL_BYTES * (len(published) // 5))
        for message in zip(*(published[column::5] for column in range(5)), strict=True):
            self._unsent[message[0]] = message
        kernel_offset_ns = clock.monotonic_ns - clock.wall_ns + self.offset_ns
        tables: list[_Table] = []
        for calls in sent.portions():
            tables += self._look(calls, self._sent_rows)
        for calls in received.portions():
            tables += self._look(calls, partial(self._received_rows, kernel_offset_ns))
        overdue = list(self._overdue(clock.monotonic_ns, is_last))
        return [*tables, self._publish_rows(overdue)] if overdue else tables

    def give_up(self) -> int:
        """Keeps nothing from now on; about how many rows are left."""
        self._end()
        logs = [log for client in self._clients for log in (client.log_in, client.log_out)]
        rows = sum(lines.count_about(data) for log in logs for data in log.datas)
        return len(self.published) // 5 + len(self._unsent) + rows

    def _end(self) -> None:
        for client in self._clients:
            client.end()

    def _gather(self, logs: Sequence["_Log"]) -> _Calls:
        """Takes what each client has recorded."""
        heads, clients, datas = [], [], []
        for client, log in enumerate(logs):
            if log.heads:
                some_heads, some_datas = log.take()
                heads.append(some_heads)
                clients.append(np.full(len(some_datas), client, np.intp))
                datas += some_datas
        nobody = np.empty(0, np.intp)
        return _Calls(np.frombuffer(b"".join(heads), _HEAD), np.concatenate([nobody, *clients]), datas)

    def _look(self, calls: _Calls, to_rows: Callable[[_Calls, lines.Found], list[_Table]]) -> list[_Table]:
        """Whatever happens, these calls take up no room any more, and are accounted for."""
        try:
            return to_rows(calls, lines.find(calls.datas, calls.heads["size_bytes"]))
        except Exception as error:  # a mistake of ours: the run goes on, and is told
            self._fail(f"the recorder failed: {error!r}")
            self._room.lose("failure", sum(map(lines.count_about, calls.datas)))
            return []
        finally:
            self._room.exchange(calls.size_bytes)

    def _received_rows(self, kernel_offset_ns: int, calls: _Calls, found: lines.Found) -> list[_Table]:
        servers = calls.heads["server"]
        of_run = (found.msg_ids >= 0) & (servers[found.bursts] != NONE)
        bursts = found.bursts[of_run]
        unscheduled = int(np.count_nonzero(found.msg_ids < 0))
        self.counts["messages"] += len(bursts)
        self.counts["unscheduled"] += unscheduled
        self.counts["foreign"] += found.foreign + len(found.subscribe_bursts)
        self.counts["foreign"] += len(of_run) - len(bursts) - unscheduled
        t_kernel_ns = calls.heads["kernel_ns"].copy()
        t_kernel_ns[t_kernel_ns != 0] += kernel_offset_ns
        sub_ids = np.array([client.sub_id for client in self._clients], np.int32)[calls.clients]
        columns = {
            "sub_id": sub_ids[bursts],
            "msg_id": found.msg_ids[of_run],
            "server_id": servers[bursts],
            "t_kernel_ns": t_kernel_ns[bursts],
            "t_user_ns": self._times(calls)[bursts],
            "injected": calls.heads["fate"][bursts],
        }
        return [("deliver", columns)]

    def _sent_rows(self, calls: _Calls, found: lines.Found) -> list[_Table]:
        times, servers, fates = self._times(calls), calls.heads["server"], calls.heads["fate"]
        pub_ids = np.array([client.pub_id for client in self._clients], np.int32)[calls.clients]
        sub_ids = np.array([client.sub_id for client in self._clients], np.int32)[calls.clients]
        of_run = found.msg_ids >= 0
        bursts, asking = found.bursts[of_run], found.subscribe_bursts
        self.counts["sends"] += len(bursts)
        self.counts["subscribes"] += len(asking)
        self.counts["unscheduled"] += len(of_run) - len(bursts)
        self.counts["foreign"] += found.foreign
        pub_tx = {
            "msg_id": found.msg_ids[of_run],
            "pub_id": pub_ids[bursts],
            "server_id": servers[bursts],
            "t_tx_ns": times[bursts],
            "injected": fates[bursts],
        }
        subscribe = {
            "sub_id": sub_ids[asking],
            "topic_id": found.subscribe_topics,
            "server_id": servers[asking],
            "t_tx_ns": times[asking],
            "injected": fates[asking],
        }
        return [("pub_tx", pub_tx), ("subscribe", subscribe), self._first_sends(found)]

    def _first_sends(self, found: lines.Found) -> _Table:
        """The messages that were seen to leave for the first time."""
        messages, digests, sizes_bytes = [], [], []
        for msg_id, start, end in zip(
            found.msg_ids.tolist(), found.starts.tolist(), found.ends.tolist(), strict=True
        ):
            message = self._unsent.pop(msg_id, None)
            if message is not None:
                messages.append(message)
                digests.append(xxh3_64_intdigest(found.data[start:end]))
                sizes_bytes.append(end - start + 1)
        return self._publish_rows(messages, digests, sizes_bytes)

    def _overdue(self, now_ns: int, is_last: bool) -> Iterator[tuple[int, ...]]:
        """The messages that are waited for no longer."""
        before_ns = now_ns - int(UNSENT_S * 1e9)
        while self._unsent:
            msg_id, message = next(iter(self._unsent.items()))
            if not is_last and len(self._unsent) <= UNSENT_MAX and message[4] >= before_ns:
                return
            yield self._unsent.pop(msg_id)

    def _publish_rows(
        self,
        messages: Sequence[tuple[int, ...]],
        digests: Sequence[int] = (),
        sizes_bytes: Sequence[int] = (),
    ) -> _Table:
        """Rows of messages, which all have left, or none of them."""
        msg_ids, pub_ids, topic_ids, t_intended_ns, t_send_ns = np.array(messages, np.int64).reshape(-1, 5).T
        return "publish", {
            "msg_id": msg_ids,
            "pub_id": pub_ids.astype(np.int32),
            "topic_id": topic_ids.astype(np.int32),
            "digest": np.array(digests or [0] * len(messages), np.uint64).view(np.int64),
            "t_intended_ns": t_intended_ns + self.offset_ns,
            "t_send_ns": t_send_ns + self.offset_ns,
            "size_bytes": np.array(sizes_bytes or [0] * len(messages), np.int32),
        }

    def _times(self, calls: _Calls) -> NDArray[np.int64]:
        times: NDArray[np.int64] = (calls.heads["now"] * 1e9).astype(np.int64)
        return times + self.offset_ns


class _Log:
    """What a client records of one direction: for each call a head, and its data."""

    __slots__ = ("datas", "heads")

    def __init__(self) -> None:
        self.heads = bytearray()
        self.datas: list[bytes] = []

    def take(self) -> tuple[bytearray, list[bytes]]:
        """All of it that is whole: there is data for every head."""
        count = len(self.heads) // _HEAD.itemsize
        heads, datas = self.heads[: count * _HEAD.itemsize], self.datas[:count]
        del self.heads[: count * _HEAD.itemsize]
        del self.datas[:count]
        return heads, datas


class ClientRecorder:
    """An `Observer` (loadtest.faults.impairment) that keeps what it is told; `Recorder.client` makes it.

    For one thread at a time. Nothing raises: what there is no room for is in the writer's `lost`.
    """

    __slots__ = (
        "_credit_bytes",
        "_has_ended",
        "_published",
        "_room",
        "log_in",
        "log_out",
        "pub_id",
        "sub_id",
    )

    def __init__(self, room: Room, published: list[int], pub_id: int, sub_id: int) -> None:
        self.pub_id = pub_id
        self.sub_id = sub_id
        self.log_in = _Log()
        self.log_out = _Log()
        self._published = published
        self._room = room
        self._credit_bytes = 0
        self._has_ended = False

    # The hot path: every name looked up here costs. Data goes before its head: the writer's thread may come
    # in between.

    def publish(self, msg_id: int, topic_id: int, t_intended_ns: int, t_send_ns: int) -> None:
        """A message is about to be given to the client: call it right before. Times without the offset.

        Its digest and size are those of the line that the client then sends; 0 where it sends none in time.
        """
        credit_bytes = self._credit_bytes - _CALL_BYTES
        if credit_bytes < 0 and (credit_bytes := self._more(credit_bytes, None)) < 0:
            return
        self._credit_bytes = credit_bytes
        published = self._published
        published += (msg_id, self.pub_id, topic_id, t_intended_ns, t_send_ns)

    def sent(self, now: float, server: int, data: bytes, segment_bytes: int, injected: int) -> None:
        """Datagrams left for a server, or would have."""
        size_bytes = len(data)
        credit_bytes = self._credit_bytes - size_bytes - _CALL_BYTES
        if credit_bytes < 0 and (credit_bytes := self._more(credit_bytes, data)) < 0:
            return
        self._credit_bytes = credit_bytes
        head = _pack_head(now, 0, server, size_bytes, injected)
        log = self.log_out
        log.datas.append(data)
        log.heads += head

    def received(
        self, now: float, server: int, data: bytes, segment_bytes: int, kernel_ns: int, injected: int
    ) -> None:
        """Datagrams came from a server, or would have. `kernel_ns` is Unix time; 0 is not known."""
        size_bytes = len(data)
        credit_bytes = self._credit_bytes - size_bytes - _CALL_BYTES
        if credit_bytes < 0 and (credit_bytes := self._more(credit_bytes, data)) < 0:
            return
        self._credit_bytes = credit_bytes
        head = _pack_head(now, kernel_ns, server, size_bytes, injected)
        log = self.log_in
        log.datas.append(data)
        log.heads += head

    def _more(self, credit_bytes: int, data: bytes | None) -> int:
        """Credit, with more of it; below 0 where there is none, and then the call is counted as lost."""
        if not self._has_ended:
            wanted_bytes = max(_CREDIT_BYTES, -credit_bytes)
            if self._room.ask(wanted_bytes):
                return credit_bytes + wanted_bytes
        rows = 1 if data is None else lines.count_about(data)
        self._room.lose("late" if self._has_ended else "slow", rows)
        return -1

    def close(self) -> None:
        """The client has been closed: gives back the room that it has not used. Idempotent."""
        credit_bytes, self._credit_bytes = self._credit_bytes, 0
        self._room.exchange(credit_bytes)

    def end(self) -> None:
        """Nothing is kept from now on. For the writer's thread."""
        self._has_ended = True
        self._credit_bytes = 0


def _cut(published: list[int]) -> list[int]:
    """Takes all messages off a list to which others go on adding."""
    count = len(published)
    taken = published[:count]
    del published[:count]
    return taken
