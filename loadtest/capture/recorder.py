"""Records what clients send and receive: the hot path keeps bytes, and the writer's thread parses them.

    client's thread:  a burst -> its data is appended to a list, the rest, packed, to a bytearray
    writer's thread:  the beginnings of both -> one string of bytes -> lines -> columns -> Parquet

There is no lock: a client appends, and the thread removes from the beginning, both with atomic operations.
Memory is bounded by credit: a client reserves 32 KB of the writer's budget at a time.
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
from kcast.loadtest.capture.schema import NONE
from kcast.loadtest.capture.writer import ByteBudget, CaptureWriter
from kcast.pubsub.tap import read_clock
from kcast.pubsub.tap_format import Clock

UNSENT_S = 30.0  # a message that is not sent within this time is recorded without digest
UNSENT_MAX = 65_536

_CREDIT_BYTES = 32 * 1024
_CALL_BYTES = 200  # memory of a recorded call, besides its data
_PARSE_BYTES = 4 * 1024 * 1024  # parsed at once

# The arguments of a call besides its data. Packed, they are read as one array, without Python objects.
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
    """Calls of the hot path: their arguments, the client of each, and their data."""

    heads: NDArray[np.void]
    clients: NDArray[np.intp]
    datas: list[bytes]

    @property
    def size_bytes(self) -> int:
        """The memory that they take."""
        return int(self.heads["size_bytes"].sum()) + _CALL_BYTES * len(self.datas)

    def portions(self) -> Iterator["_Calls"]:
        """Yields the same calls in portions of some megabytes, at least one call each."""
        if not self.datas:
            return
        portions = (self.heads["size_bytes"].cumsum(dtype=np.int64) - 1) // _PARSE_BYTES
        bounds = [0, *(np.flatnonzero(np.diff(portions)) + 1).tolist(), len(portions)]
        for start, end in pairwise(bounds):
            yield _Calls(self.heads[start:end], self.clients[start:end], self.datas[start:end])


class Recorder:
    """Makes the rows of `publish`, `pub_tx`, `deliver` and `subscribe` for all clients of a process.

    `offset_ns` is added to all times: the coordinator's clock minus this machine's. It may be set later,
    before the first record. Recording ends with the writer's `close`: close clients first.

    `counts`: "messages" received, "sends" and "subscribes" have a row each. "unscheduled" (messages with an
    id below 0, such as a warm-up's) and "foreign" (lines of no load test, or from no server of the run) have
    none.
    """

    def __init__(
        self, writer: CaptureWriter, *, offset_ns: int = 0, read_clock: Callable[[], Clock] = read_clock
    ) -> None:
        self.offset_ns = offset_ns
        self.counts: Counter[str] = Counter()
        self._budget = writer.budget
        self._fail = writer.fail
        # Flat, so that adding a message is atomic: msg_id, pub_id, topic_id, t_intended_ns, t_send_ns.
        self.published: list[int] = []
        self._read_clock = read_clock
        self._clients: list[ClientRecorder] = []
        self._unsent: dict[int, tuple[int, ...]] = {}  # the entries of `published`, by msg_id
        writer.add_source(self)

    def client(self, *, pub_id: int = NONE, sub_id: int = NONE) -> "ClientRecorder":
        """Returns a recorder for one client's socket."""
        client = ClientRecorder(self._budget, self.published, pub_id, sub_id)
        self._clients.append(client)
        return client

    # --- Source: runs in the writer's thread ---------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of bursts that are not parsed yet, and of messages that are not sent yet."""
        calls = sum(len(log.datas) for client in self._clients for log in (client.log_in, client.log_out))
        return calls + len(self.published) // 5 + len(self._unsent)

    def take(self, is_last: bool) -> list[_Table]:
        """Returns the rows of what was recorded since the last call."""
        if is_last:
            self._end()
        clock = self._read_clock()
        # In this order: `publish` is called before a message is sent, so every sent message is known.
        sent = self._gather([client.log_out for client in self._clients])
        published = _cut(self.published)
        received = self._gather([client.log_in for client in self._clients])
        self._budget.release(_CALL_BYTES * (len(published) // 5))
        for message in zip(*(published[column::5] for column in range(5)), strict=True):
            self._unsent[message[0]] = message
        kernel_offset_ns = clock.monotonic_ns - clock.wall_ns + self.offset_ns
        tables: list[_Table] = []
        for calls in sent.portions():
            tables += self._parse(calls, self._sent_rows)
        for calls in received.portions():
            tables += self._parse(calls, partial(self._received_rows, kernel_offset_ns))
        overdue = list(self._overdue(clock.monotonic_ns, is_last))
        return [*tables, self._publish_rows(overdue)] if overdue else tables

    def give_up(self) -> int:
        """Stops recording. Returns about how many rows are left."""
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

    def _parse(self, calls: _Calls, to_rows: Callable[[_Calls, lines.Found], list[_Table]]) -> list[_Table]:
        """Turns calls into rows, and releases their memory, even after an error."""
        try:
            return to_rows(calls, lines.find(calls.datas, calls.heads["size_bytes"]))
        except Exception as error:  # a bug here: the run goes on, and reports it
            self._fail(f"the recorder failed: {error!r}")
            self._budget.count_lost("failure", sum(map(lines.count_about, calls.datas)))
            return []
        finally:
            self._budget.release(calls.size_bytes)

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
        """Returns the `publish` rows of messages that were sent for the first time."""
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
        """Yields messages that were not sent in time."""
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
        """Returns the `publish` rows of messages; without digests and sizes if they were not sent."""
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
    """The calls of one direction of a client: for each a head, and its data."""

    __slots__ = ("datas", "heads")

    def __init__(self) -> None:
        self.heads = bytearray()
        self.datas: list[bytes] = []

    def take(self) -> tuple[bytearray, list[bytes]]:
        """Takes out the whole calls: those whose head has been appended, which comes after the data."""
        count = len(self.heads) // _HEAD.itemsize
        heads, datas = self.heads[: count * _HEAD.itemsize], self.datas[:count]
        del self.heads[: count * _HEAD.itemsize]
        del self.datas[:count]
        return heads, datas


class ClientRecorder:
    """An `Observer` (loadtest.faults.impairment) that records its calls; made by `Recorder.client`.

    For one thread at a time. Nothing raises: rows without room are in the writer's `lost`.
    """

    __slots__ = (
        "_budget",
        "_credit_bytes",
        "_has_ended",
        "_published",
        "log_in",
        "log_out",
        "pub_id",
        "sub_id",
    )

    def __init__(self, room: ByteBudget, published: list[int], pub_id: int, sub_id: int) -> None:
        self.pub_id = pub_id
        self.sub_id = sub_id
        self.log_in = _Log()
        self.log_out = _Log()
        self._published = published
        self._budget = room
        self._credit_bytes = 0
        self._has_ended = False

    # The hot path: every name that is looked up costs. Data is appended before its head, since the writer's
    # thread may run in between.

    def publish(self, msg_id: int, topic_id: int, t_intended_ns: int, t_send_ns: int) -> None:
        """Records a message: call it right before giving it to the client. Times are without the offset.

        Digest and size in the row are those of the line that the client then sends; 0 if it sends none in
        time.
        """
        credit_bytes = self._credit_bytes - _CALL_BYTES
        if credit_bytes < 0 and (credit_bytes := self._more_credit(credit_bytes, None)) < 0:
            return
        self._credit_bytes = credit_bytes
        published = self._published
        published += (msg_id, self.pub_id, topic_id, t_intended_ns, t_send_ns)

    def sent(self, now: float, server: int, data: bytes, segment_bytes: int, injected: int) -> None:
        """Records datagrams that were sent to a server, or lost or cut off before."""
        size_bytes = len(data)
        credit_bytes = self._credit_bytes - size_bytes - _CALL_BYTES
        if credit_bytes < 0 and (credit_bytes := self._more_credit(credit_bytes, data)) < 0:
            return
        self._credit_bytes = credit_bytes
        head = _pack_head(now, 0, server, size_bytes, injected)
        log = self.log_out
        log.datas.append(data)
        log.heads += head

    def received(
        self, now: float, server: int, data: bytes, segment_bytes: int, kernel_ns: int, injected: int
    ) -> None:
        """Records datagrams that came from a server, also those that are lost or cut off here.

        `kernel_ns` is Unix time; 0: unknown.
        """
        size_bytes = len(data)
        credit_bytes = self._credit_bytes - size_bytes - _CALL_BYTES
        if credit_bytes < 0 and (credit_bytes := self._more_credit(credit_bytes, data)) < 0:
            return
        self._credit_bytes = credit_bytes
        head = _pack_head(now, kernel_ns, server, size_bytes, injected)
        log = self.log_in
        log.datas.append(data)
        log.heads += head

    def _more_credit(self, credit_bytes: int, data: bytes | None) -> int:
        """Returns the credit after reserving more; below 0 if there is none: then counts the call as lost."""
        if not self._has_ended:
            wanted_bytes = max(_CREDIT_BYTES, -credit_bytes)
            if self._budget.reserve(wanted_bytes):
                return credit_bytes + wanted_bytes
        rows = 1 if data is None else lines.count_about(data)
        self._budget.count_lost("late" if self._has_ended else "slow", rows)
        return -1

    def close(self) -> None:
        """Releases unused credit; call it after closing the client. Idempotent."""
        credit_bytes, self._credit_bytes = self._credit_bytes, 0
        self._budget.release(credit_bytes)

    def end(self) -> None:
        """Stops recording. For the writer's thread."""
        self._has_ended = True
        self._credit_bytes = 0


def _cut(published: list[int]) -> list[int]:
    """Takes all messages off a list to which clients go on appending."""
    count = len(published)
    taken = published[:count]
    del published[:count]
    return taken
