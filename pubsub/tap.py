"""The tap of a server: records in files what it took in and who held leases, so that losses can be explained.

The server stays dumb: it reads no message and looks nothing up. The tap keeps a digest of each line. With the
digests of what was published and of what arrived, one can find out later on which leg a message was lost.
docs/tap.md describes the files.

The core's thread only makes bytes. The tap's own thread writes them within a second, and sleeps while there
is nothing to write, because a disk that hangs must not hold up datagrams. If that thread cannot keep up,
records are left out, and their number is recorded: a marked gap can be allowed for, but an unmarked one would
look like a loss on the network.

    python -m kcast.pubsub.tap FILE       prints FILE, the files before it, and then those of FILE.bulk
                                          (`kcast.pubsub.tap_parts`), one JSON object per line
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Lock, Thread
from time import time_ns
from typing import Any, BinaryIO

from kcast.pubsub.clock import identity_of_lead, now_ns
from kcast.pubsub.endpoint import Address, LeaseChange, format_address
from kcast.pubsub.tap_files import FILES_MAX, TapFiles, numbered
from kcast.pubsub.tap_format import (
    CLOSING_ROOM_BYTES,
    LINES_PER_RECORD_MAX,
    RECORD_ROOM_BYTES,
    Clock,
    Encoder,
    Lost,
    Record,
    TapBurst,
    TapError,
    TapLease,
    decode,
)

SIZE_BYTES_MAX_DEFAULT = 512 * 1024 * 1024
SIZE_BYTES_MIN = 1024 * 1024
QUEUE_BYTES_MAX_DEFAULT = 16 * 1024 * 1024  # two seconds at a million messages per second
QUEUE_BYTES_MIN = 512 * 1024
FLUSH_S = 1.0  # how long a record may wait for further ones
CLOCK_INTERVAL_NS = 60_000_000_000
CLOSE_TIMEOUT_S = 5.0

_CHUNK_BYTES = 256 * 1024  # this much is written without waiting for more
_NEVER = 1 << 62
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_clock() -> Clock:
    """Reads both clocks; the readings are at most a microsecond or so apart."""
    readings = []
    for _ in range(3):
        before_ns, wall_ns, after_ns = now_ns(), time_ns(), now_ns()
        readings.append((after_ns - before_ns, (before_ns + after_ns) // 2, wall_ns))
    _, at_ns, wall_ns = min(readings)
    return Clock(at_ns, wall_ns)


def read_clock_id() -> str:
    """Returns what identifies the clock that this process goes by; "" if unknown.

    It is that of the machine since its start; after a suspension, that of the processes that began since.
    """
    try:
        return _BOOT_ID.read_text("ascii").strip() + identity_of_lead()
    except OSError:
        return ""


@dataclass(slots=True)
class _Gap:
    """Counts of what has been dropped since recording stopped."""

    since_ns: int = 0
    until_ns: int = 0
    records: int = 0
    lines: int = 0


class TapWriter:
    """A `kcast.pubsub.endpoint.Tap` that writes files, which together never exceed `size_bytes_max`.

    `boot_id` is 8 random bytes, new for each process. `addresses` are those at which the server is reached.
    `queue_bytes_max` bounds what waits to be written. If nothing more can be written, `on_failure` is called
    once with the reason, in the tap's thread or in `close`, and the tap counts what it drops. Unless
    `lists_leases`, files do not begin with the leases that stand. `read_clock` must use the monotonic clock
    of the core's `now`; `clock_id` identifies that clock.

    Raises ValueError if a size is too small, TapError if `path` must not be used, and OSError if it cannot be
    written. For one calling thread, in the process that made it.
    """

    def __init__(
        self,
        path: Path,
        *,
        boot_id: bytes,
        addresses: Sequence[Address],
        size_bytes_max: int = SIZE_BYTES_MAX_DEFAULT,
        queue_bytes_max: int = QUEUE_BYTES_MAX_DEFAULT,
        lists_leases: bool = True,
        on_failure: Callable[[str], None] = lambda reason: None,
        read_clock: Callable[[], Clock] = read_clock,
        clock_id: str | None = None,
    ) -> None:
        if size_bytes_max < SIZE_BYTES_MIN:
            raise ValueError(f"size_bytes_max is {size_bytes_max}: give {SIZE_BYTES_MIN} or more")
        if queue_bytes_max < QUEUE_BYTES_MIN:
            raise ValueError(f"queue_bytes_max is {queue_bytes_max}: give {QUEUE_BYTES_MIN} or more")
        self._encoder = Encoder(
            boot_id=boot_id,
            addresses=addresses,
            clock_id=read_clock_id() if clock_id is None else clock_id,
            standing_bytes_max=min(size_bytes_max // 32, queue_bytes_max // 4) if lists_leases else None,
        )
        self._read_clock = read_clock
        self._on_failure = on_failure
        self._files = TapFiles(path, size_bytes_max)
        self._file_full_at = self._files.file_bytes_max - RECORD_ROOM_BYTES - CLOSING_ROOM_BYTES
        self._queue_bytes_max = queue_bytes_max
        self._queue_full_at = queue_bytes_max - RECORD_ROOM_BYTES - CLOSING_ROOM_BYTES
        self.bytes_written = 0  # to all files so far
        self._clock_at_ns = self._write_first_head()
        # The lock guards the encoder and all attributes below. What waits is in the encoder and,
        # for full files, in `_full`; `_in_hand_bytes` is what the thread is writing.
        self._lock = Lock()
        self._wake = Condition(self._lock)
        self._full: list[bytearray] = []
        self._in_hand_bytes = 0
        self._records_taken = 0
        self._records_written = 0
        self._records_dropped = 0
        self._gap: _Gap | None = None  # while nothing is recorded
        self._failure: str | None = None
        self._is_closed = False
        # Number of bytes in the encoder at which to wake the thread, and at which to do anything at all.
        self._wake_at = _NEVER
        self._look_at = 0
        self._thread = Thread(target=self._run, name="kcast-tap", daemon=True)
        self._thread.start()

    def __enter__(self) -> "TapWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records_dropped(self) -> int:
        """Number of bursts and lease changes that are not recorded, and never will be."""
        return self._records_dropped

    @property
    def failure(self) -> str | None:
        """The reason why nothing more is written; None while all is well."""
        return self._failure

    # --- Tap -----------------------------------------------------------------------------------------

    def burst(self, now: float, source: Address, topic: bytes, lines: Sequence[bytes]) -> None:
        """Records a digest of each line."""
        if len(lines) > LINES_PER_RECORD_MAX:
            for start in range(0, len(lines), LINES_PER_RECORD_MAX):
                self.burst(now, source, topic, lines[start : start + LINES_PER_RECORD_MAX])
            return
        with self._lock:
            if self._gap is not None:
                self._drop(self._gap, now, len(lines))
                return
            if self._encoder.burst(now, source, topic, lines) >= self._look_at:
                self._look()

    def lease(self, now: float, change: LeaseChange, topic: bytes, address: Address) -> None:
        """Records a lease change."""
        with self._lock:
            if self._gap is not None:
                self._drop(self._gap, now, 0)
                if self._failure is None:
                    self._encoder.follow(change, topic, address)
                return
            self._encoder.lease(now, change, topic, address)
            if len(self._encoder.buffer) >= self._look_at:
                self._look()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Writes what waits, and ends the file. Gives up after `timeout_s`, since a disk may hang."""
        with self._lock:
            if not self._is_closed and self._failure is None:
                self._write_gap()
                self._encoder.end(self._read_clock(), self._records_dropped)
            self._is_closed = True
            self._gap = self._gap or _Gap()
            self._wake.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._fail(f"the last records were not written within {timeout_s:g} s")

    # --- Called with the lock held ---------------------------------------------------------------------

    def _drop(self, gap: _Gap, now: float, lines: int) -> None:
        gap.until_ns = int(now * 1e9)
        gap.since_ns = gap.since_ns or gap.until_ns
        gap.records += 1
        gap.lines += lines
        self._records_dropped += 1

    def _look(self) -> None:
        """Begins a gap or a file, and wakes the thread, as the gathered bytes require."""
        encoder = self._encoder
        is_full = encoder.file_bytes >= self._file_full_at
        if self._waiting_bytes() + (encoder.head_bytes if is_full else 0) >= self._queue_full_at:
            self._gap = self._gap or _Gap()
        elif is_full:
            self._begin_next_file()
        if len(encoder.buffer) >= self._wake_at or self._full:
            self._wake_at = _NEVER
            self._wake.notify()
        self._aim()

    def _aim(self) -> None:
        """Sets at how many bytes to look again."""
        gathered_bytes = len(self._encoder.buffer)
        file_room_bytes = self._file_full_at - self._encoder.file_bytes
        queue_room_bytes = self._queue_full_at - self._waiting_bytes()
        self._look_at = min(self._wake_at, gathered_bytes + min(file_room_bytes, queue_room_bytes))

    def _waiting_bytes(self) -> int:
        """Returns the number of bytes that are not written yet."""
        return self._in_hand_bytes + sum(map(len, self._full)) + len(self._encoder.buffer)

    def _begin_next_file(self) -> None:
        clock = self._read_clock()
        self._encoder.continued(clock)
        self._full.append(self._encoder.take())
        self._encoder.begin_file(clock)

    def _write_gap(self) -> None:
        if self._gap is not None and self._gap.records:
            gap = self._gap
            self._encoder.lost(Lost(gap.since_ns, gap.until_ns, gap.records, gap.lines))

    def _resume(self) -> None:
        """Records again after a gap."""
        encoder, gap = self._encoder, self._gap
        self._write_gap()
        self._gap = None
        if gap is None or not gap.records:
            return
        if encoder.file_bytes + encoder.head_bytes >= self._file_full_at:
            self._begin_next_file()
        else:
            encoder.standing(self._read_clock().monotonic_ns)

    # --- The thread ----------------------------------------------------------------------------------

    def _write_first_head(self) -> int:
        """Writes in the caller's thread, so that the maker of the tap learns what is wrong with the file."""
        clock = self._read_clock()
        self._encoder.begin_file(clock)
        try:
            self._write(self._encoder.take())
        except BaseException:
            self._files.close()
            raise
        return clock.monotonic_ns

    def _run(self) -> None:
        try:
            while batches := self._await_batches():
                self._write(batches[0])
                for batch in batches[1:]:
                    self._files.rotate()
                    self._write(batch)
                self._finish()
        except OSError as error:
            self._fail(error.strerror or str(error))
        except Exception as error:  # whatever it is, the server goes on, and is told
            self._fail(repr(error))
        finally:
            self._files.close()

    def _write(self, batch: bytearray) -> None:
        self._files.write(batch)
        self.bytes_written += len(batch)

    def _await_batches(self) -> list[bytearray]:
        """Waits for what to write; each item but the first goes into a new file. Empty when all is done."""
        with self._lock:
            while not (self._is_closed or self._full or self._encoder.buffer):
                self._wake_at = 1
                self._aim()
                self._wake.wait()
            if not (self._is_closed or self._full or len(self._encoder.buffer) >= _CHUNK_BYTES):
                self._wake_at = _CHUNK_BYTES
                self._aim()
                self._wake.wait(FLUSH_S)
            if not self._is_closed:
                self._tie_clock()
            batches = [*self._full, self._encoder.take()]
            self._full = []
            self._in_hand_bytes = sum(map(len, batches))
            self._records_taken = self._encoder.records
            self._aim()
            return batches if self._in_hand_bytes else []

    def _tie_clock(self) -> None:
        """Records both clocks, once a minute. Call it with the lock held."""
        clock = self._read_clock()
        if clock.monotonic_ns - self._clock_at_ns >= CLOCK_INTERVAL_NS:
            self._clock_at_ns = clock.monotonic_ns
            self._encoder.clock(clock)
            self._look()

    def _finish(self) -> None:
        """Notes that all batches are written, and ends a gap if there is room."""
        with self._lock:
            self._in_hand_bytes = 0
            self._records_written = self._records_taken
            is_overloaded = self._waiting_bytes() > self._queue_bytes_max // 2
            if self._gap is not None and not self._is_closed and not is_overloaded:
                self._resume()
            self._aim()

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = reason
            self._gap = self._gap or _Gap()
            self._records_dropped += self._encoder.records - self._records_written
            self._full = []
            self._in_hand_bytes = 0
            self._encoder.take()
        self._on_failure(reason)


# --- Reading -----------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[Record]:
    """Yields the records of one file, as `decode`. Raises TapError, or OSError if it cannot be read."""
    with path.open("rb") as file:
        yield from _decode(file, path)


def read_all(path: Path) -> Iterator[Record]:
    """Yields the records of `path` and of the files before it, oldest first; then those of `path`.bulk.

    Raises as `read`. A server may be writing meanwhile: then it ends with what has been written when it gets
    there.
    """
    with ExitStack() as stack:
        files = _opened(path, stack)
        if not files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        for file, its_path in [*files, *_opened(bulk_path(path), stack)]:
            yield from _decode(file, its_path)


def bulk_path(path: Path) -> Path:
    """Returns where the tap at `path` has the bursts that are beyond their publisher's part."""
    return path.with_name(f"{path.name}.bulk")


def _opened(path: Path, stack: ExitStack) -> list[tuple[BinaryIO, Path]]:
    """Opens `path` and the files before it, and returns them, the oldest first."""
    # Newest first, since files move to higher numbers meanwhile: so none is missed, if one is met twice.
    files: dict[tuple[int, int], tuple[BinaryIO, Path]] = {}
    for number in range(FILES_MAX):
        with suppress(FileNotFoundError):
            file: BinaryIO = stack.enter_context(numbered(path, number).open("rb"))
            status = os.fstat(file.fileno())
            files.setdefault((status.st_dev, status.st_ino), (file, numbered(path, number)))
    return list(reversed(files.values()))


def _decode(file: BinaryIO, path: Path) -> Iterator[Record]:
    try:
        yield from decode(file)
    except TapError as error:
        raise TapError(f"{path}: {error}") from None


def as_json(record: Record) -> str:
    """Returns a record as a line of JSON: its type and fields; topics in wire form, other bytes in hex."""
    fields = {name: _plain(value) for name, value in record._asdict().items()}
    if isinstance(record, (TapBurst, TapLease)):
        fields["topic"] = _topic_text(record.topic)
    # What others have written: in ASCII, and without DEL, so that no terminal acts on it.
    return json.dumps({"record": type(record).__name__} | fields).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    match value:
        case Clock():
            return value._asdict()
        case (str(host), int(port)):
            return format_address((host, port))
        case (bytes(topic), (str(), int()) as address):
            return [_topic_text(topic), _plain(address)]
        case tuple():
            return [_plain(one) for one in value]
        case bytes():
            return value.hex()
    return value


def _topic_text(topic: bytes) -> str:
    return topic.decode("ascii", "backslashreplace")


def main(arguments: Sequence[str]) -> int:
    """Runs `python -m kcast.pubsub.tap FILE`; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m kcast.pubsub.tap FILE", file=sys.stderr)
        return 2
    try:
        for record in read_all(Path(arguments[0])):
            print(as_json(record))
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough; what is left must not be flushed to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (TapError, OSError) as error:
        print(f"kcast.pubsub.tap: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
