"""Converts servers' taps (docs/tap.md) to rows of server_rx, lease and server_life.

A tap has digests of lines, and addresses. The `publish` table has the digest of each message, the `member`
table the port of each client: so messages and clients get their numbers here, and servers need not know them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kcast.loadtest.capture.parts import CaptureError
from kcast.loadtest.capture.schema import EVICTED, EXPIRED, NONE, OPENED, STANDING
from kcast.loadtest.scenario import topic_name
from kcast.pubsub.endpoint import LeaseChange
from kcast.pubsub.tap import read_all, read_clock, read_clock_id
from kcast.pubsub.tap_format import (
    Clock,
    Continued,
    Cut,
    End,
    FileHead,
    Lost,
    Record,
    Standing,
    TapBurst,
    TapError,
    TapLease,
)

_CHANGES = {LeaseChange.OPENED: OPENED, LeaseChange.EXPIRED: EXPIRED, LeaseChange.EVICTED: EVICTED}
_GATHERED_MAX = 65_536
_PREFIX = topic_name(0)[:-6]

Numbers = NDArray[np.int64]


class PortOwner(NamedTuple):
    """The owner of a socket, as publisher and as subscriber; NONE for what it is not."""

    pub_id: int
    sub_id: int


_NOBODY = PortOwner(NONE, NONE)


class Rows(Protocol):
    """Takes rows, as a CaptureWriter does."""

    def append(self, table: str, columns: Mapping[str, Any], *, wait: bool = False) -> None:
        """Adds rows of a table: all columns, as arrays or lists of equal length."""


def topic_id_of(topic: bytes) -> int:
    """Returns the number of a load test's topic; NONE for other topics."""
    digits = topic.removeprefix(_PREFIX)
    return int(digits) if len(digits) == 6 and digits.isdigit() and topic.startswith(_PREFIX) else NONE


class MessageIds:
    """The messages by their digests."""

    def __init__(self, digests: Numbers, msg_ids: Numbers) -> None:
        order = digests.argsort()
        self._digests, self._msg_ids = digests[order], msg_ids[order]

    def __len__(self) -> int:
        return len(self._digests)

    def of(self, digests: Numbers) -> Numbers:
        """Returns the message of each digest; NONE if there is none."""
        if not len(self):
            return np.full(len(digests), NONE, np.int64)
        places = self._digests.searchsorted(digests).clip(max=len(self) - 1)
        return np.where(self._digests[places] == digests, self._msg_ids[places], NONE)


def owners_by_port(table: pa.Table) -> dict[int, PortOwner]:
    """Returns the owner of each port by the `member` table; the last one if there were several."""
    columns = (table[name].to_pylist() for name in ("t_ns", "port", "pub_id", "sub_id"))
    rows = sorted(zip(*columns, strict=True))
    return {port: PortOwner(pub_id, sub_id) for _, port, pub_id, sub_id in rows}


def msg_ids_by_digest(table: pa.Table) -> MessageIds:
    """Indexes a `publish` table, of which it needs msg_id and digest. Messages never sent have no digest."""
    digests, msg_ids = table["digest"].to_numpy(), table["msg_id"].to_numpy()
    return MessageIds(digests[digests != 0], msg_ids[digests != 0])


class Converted(NamedTuple):
    """Counts over a server's taps."""

    lives: int
    received: int  # messages of this run
    foreign: int  # other messages, such as a warm-up's
    lost_lines: int  # lines that the taps could not write


def convert(
    tap_files: Sequence[Path],
    server_id: int,
    members: Mapping[int, PortOwner],
    msg_ids: MessageIds,
    writer: Rows,
    *,
    t_from_ns: int,
    t_to_ns: int,
    offset_ns: int = 0,
    topic_id: Callable[[bytes], int] = topic_id_of,
) -> Converted:
    """Writes the rows of one server's taps. `tap_files` has the base file of each of its lives.

    Messages are converted between the two times, changes of leases up to `t_to_ns`. Times of a tap from
    another machine are converted to this one's clock by way of Unix time; `offset_ns` is added to all times.
    `topic_id` returns a topic's number by its name. A base file that does not exist is skipped. Raises
    CaptureError for a file that is no tap, and OSError.
    """
    reader = _Reader(server_id, members, msg_ids, writer, (t_from_ns, t_to_ns), offset_ns, topic_id)
    for path in tap_files:
        try:
            for record in read_all(path):
                reader.take(record)
        except FileNotFoundError:
            continue
        except TapError as error:
            raise CaptureError(str(error)) from None
    try:
        return reader.finish()
    except OverflowError:
        raise CaptureError(f"{tap_files[-1]}: times that no clock has; is it damaged?") from None


@dataclass(slots=True)
class _Life:
    """One life of the server, as far as it was read."""

    boot_id: int
    t_from_ns: int
    t_to_ns: int
    lost_lines: int = 0
    has_ended: bool = False


class _Reader:
    """Converts the records of one tap file after another."""

    def __init__(
        self,
        server_id: int,
        members: Mapping[int, PortOwner],
        msg_ids: MessageIds,
        writer: Rows,
        between_ns: tuple[int, int],
        offset_ns: int,
        topic_id: Callable[[bytes], int],
    ) -> None:
        self._server_id = server_id
        self._members = members
        self._msg_ids = msg_ids
        self._writer = writer
        self._topic_id = topic_id
        self._t_from_ns, self._t_to_ns = between_ns
        self._offset_ns = self._file_offset_ns = offset_ns
        self._lives: dict[int, _Life] = {}
        self._life = _Life(0, 0, 0)  # in the file that is being read; each begins with FileHead
        self._bursts: list[tuple[int, int, int, int, int]] = []  # boot_id, pub_id, topic_id, time, lines
        self._digests: list[bytes] = []
        self._leases: list[tuple[int, int, int, int, int]] = []  # boot_id, sub_id, topic_id, time, change
        self._received = self._foreign = 0

    def take(self, record: Record) -> None:
        """Converts the next record."""
        match record:
            case TapBurst(time_ns, source, topic, digests):
                if self._t_from_ns <= (at_ns := self._saw(time_ns)) < self._t_to_ns:
                    pub_id = self._members.get(source[1], _NOBODY).pub_id
                    topic_id = self._topic_id(topic)
                    self._bursts.append((self._life.boot_id, pub_id, topic_id, at_ns, len(digests)))
                    self._digests += digests
                    if len(self._digests) >= _GATHERED_MAX:
                        self._write_bursts()
            case TapLease(time_ns, change, topic, address):
                self._add_lease(self._saw(time_ns), topic, address[1], _CHANGES[change])
            case Standing(time_ns, leases, _):
                at_ns = self._saw(time_ns)
                for topic, address in leases:
                    self._add_lease(at_ns, topic, address[1], STANDING)
            case FileHead():
                self._begin_file(record)
            case Lost(_, until_ns, _, lines):
                self._saw(until_ns)
                self._life.lost_lines += lines
            case Clock(monotonic_ns, _) | Continued(Clock(monotonic_ns, _)):
                self._saw(monotonic_ns)
            case End(Clock(monotonic_ns, _)):
                self._saw(monotonic_ns)
                self._life.has_ended = True
            case Cut(_, reason):
                # How much follows the damage is unknown; it must not count as nothing.
                self._life.lost_lines += reason in ("damaged", "goes on after its end")

    def finish(self) -> Converted:
        """Writes the rest."""
        self._write_bursts()
        self._write_leases()
        lives = list(self._lives.values())
        self._writer.append(
            "server_life",
            {
                "server_id": [self._server_id] * len(lives),
                "boot_id": [life.boot_id for life in lives],
                "t_from_ns": [life.t_from_ns for life in lives],
                "t_to_ns": [life.t_to_ns for life in lives],
                "lost_lines": [life.lost_lines for life in lives],
                "ended": [int(life.has_ended) for life in lives],
            },
        )
        lost_lines = sum(life.lost_lines for life in lives)
        return Converted(len(lives), self._received, self._foreign, lost_lines)

    def _begin_file(self, head: FileHead) -> None:
        self._file_offset_ns = self._offset_ns
        if head.clock_id != read_clock_id():
            here = read_clock()
            self._file_offset_ns += here.monotonic_ns - here.wall_ns
            self._file_offset_ns += head.clock.wall_ns - head.clock.monotonic_ns
        boot_id = int.from_bytes(head.boot_id, "big", signed=True)
        at_ns = head.clock.monotonic_ns + self._file_offset_ns
        self._life = self._lives.setdefault(boot_id, _Life(boot_id, at_ns, at_ns))
        self._saw(head.clock.monotonic_ns)

    def _saw(self, time_ns: int) -> int:
        """Returns the time of a record by this machine's clock, and extends the life to it."""
        at_ns = time_ns + self._file_offset_ns
        self._life.t_to_ns = max(self._life.t_to_ns, at_ns)
        return at_ns

    def _add_lease(self, at_ns: int, topic: bytes, port: int, change: int) -> None:
        if at_ns >= self._t_to_ns:
            return
        sub_id = self._members.get(port, _NOBODY).sub_id
        self._leases.append((self._life.boot_id, sub_id, self._topic_id(topic), at_ns, change))
        if len(self._leases) >= _GATHERED_MAX:
            self._write_leases()

    def _write_bursts(self) -> None:
        bursts = np.array(self._bursts, np.int64).reshape(-1, 5)
        rows = bursts.repeat(bursts[:, 4], axis=0)
        msg_ids = self._msg_ids.of(np.frombuffer(b"".join(self._digests), ">i8").astype(np.int64))
        received = int(np.count_nonzero(msg_ids != NONE))
        self._received += received
        self._foreign += len(msg_ids) - received
        self._writer.append(
            "server_rx",
            {
                "server_id": np.full(len(rows), self._server_id),
                "boot_id": rows[:, 0],
                "msg_id": msg_ids,
                "pub_id": rows[:, 1],
                "topic_id": rows[:, 2],
                "t_rx_ns": rows[:, 3],
            },
            wait=True,
        )
        self._bursts, self._digests = [], []

    def _write_leases(self) -> None:
        rows = np.array(self._leases, np.int64).reshape(-1, 5)
        self._writer.append(
            "lease",
            {
                "server_id": np.full(len(rows), self._server_id),
                "boot_id": rows[:, 0],
                "sub_id": rows[:, 1],
                "topic_id": rows[:, 2],
                "t_ns": rows[:, 3],
                "change": rows[:, 4],
            },
            wait=True,
        )
        self._leases = []
