"""Writes a capture's rows into Parquet files, off the hot path: in one real thread per process.

Rows are appended, or come from a Source, which the thread asks five times a second. The thread spends its
time in Arrow and numpy, which release the interpreter. The memory for waiting rows is bounded; rows that
cannot be kept or written are counted. Only `close` waits for the disk.
"""

import atexit
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from secrets import token_hex
from time import monotonic
from typing import Any, Protocol

import pyarrow as pa

from kcast.loadtest.capture import parts, system_threads
from kcast.loadtest.capture.manifest import PART_SUFFIX
from kcast.loadtest.capture.parts import CaptureError
from kcast.loadtest.capture.schema import TABLES

WAITING_BYTES_MAX_DEFAULT = 256 * 1024 * 1024
FLUSH_S = 2.0
CLOSE_TIMEOUT_S = 60.0

_TICK_S = 0.2  # each tick costs the writer's thread, and the thread that runs meanwhile, about 0.1 ms
_POLL_S = 0.005


class Source(Protocol):
    """A producer of rows."""

    @property
    def waiting(self) -> int:
        """Number of calls that it has recorded and not turned into rows. For any thread."""

    def take(self, is_last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Returns tables with columns. `is_last`: it is not called again. Called in the writer's thread."""

    def give_up(self) -> int:
        """Called if `take` is never called again. Returns about how many rows are lost. For any thread."""


class ByteBudget:
    """A bound, in bytes, on what one process has recorded and not yet written, and the rows that were lost,
    by reason.

    For any thread or greenlet: the lock is held only for an addition.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used_bytes = 0
        self._lost: Counter[str] = Counter()
        self._lock = system_threads.new_lock()

    @property
    def lost(self) -> Counter[str]:
        """Lost rows by reason, as a copy."""
        with self._lock:
            return self._lost.copy()

    @property
    def used_bytes(self) -> int:
        """Bytes that were reserved and not released."""
        return self._used_bytes

    def reserve(self, size_bytes: int) -> bool:
        """Reserves bytes. False if fewer are left."""
        with self._lock:
            if self._used_bytes + size_bytes > self._bytes_max:
                return False
            self._used_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Releases bytes. A negative number reserves them even beyond the bound."""
        with self._lock:
            self._used_bytes -= size_bytes

    def count_lost(self, reason: str, rows: int) -> None:
        """Counts rows that are not kept."""
        with self._lock:
            self._lost[reason] += rows


class CaptureWriter:
    """Collects rows, and writes them as `folder/table=<t>/<process>-<token>-<n>.parquet`.

    `folder` is a scenario's (`ScenarioFolder.path`). `process` names this process within the run; the token
    is random. A part has at most 65,536 rows, and is written within two seconds of its first row; it gets its
    name when it is whole. About `waiting_bytes_max` may wait for a slow disk: further rows are lost, and
    counted as "slow". After a failure all rows are lost, and counted as "failure".

    It works under gevent's monkey patches, too. Use it only in the process that made it, and `close` it
    before that ends. Raises CaptureError if `process` cannot be part of a file's name.
    """

    def __init__(
        self,
        folder: Path,
        process: str,
        *,
        waiting_bytes_max: int = WAITING_BYTES_MAX_DEFAULT,
        spawn: Callable[[Callable[[], None]], object] = system_threads.spawn,
    ) -> None:
        if not process or process.startswith((".", "_")) or "/" in process:
            raise CaptureError(f"{process!r} cannot name a process: its files would be hidden, or elsewhere")
        self.budget = ByteBudget(waiting_bytes_max)
        self._folder = folder
        self._name = f"{process}-{token_hex(4)}"
        self._parts = 0
        self._pid = os.getpid()
        self._sources: tuple[Source, ...] = ()
        self._appended: list[tuple[str, pa.RecordBatch]] = []  # emptied by the thread
        self._tables = {table: _Pending() for table in TABLES}  # used by the thread alone
        self._pending_rows = 0
        self._failure: str | None = None
        self._is_closing = self._is_abandoned = self._has_ended = False
        self._ending = system_threads.new_lock()  # for `_failure` and `_is_abandoned`
        self._sleeping = system_threads.new_lock()
        self._sleeping.acquire()
        atexit.register(self._close_at_exit)
        spawn(self._run)

    @property
    def failure(self) -> str | None:
        """Why nothing more is written, such as a full disk; None if all is well."""
        return self._failure

    @property
    def rows_waiting(self) -> int:
        """Rows that are not written yet. A burst that is not parsed yet counts as one row."""
        appended: int = sum(rows.num_rows for _, rows in list(self._appended))
        return self._pending_rows + appended + sum(source.waiting for source in self._sources)

    @property
    def lost(self) -> Counter[str]:
        """Rows that are not written, by reason: "slow", "failure", "late" (came during or after `close`)."""
        return self.budget.lost

    @property
    def rows_lost(self) -> int:
        """The sum of `lost`."""
        return self.lost.total()

    def append(self, table: str, columns: Mapping[str, Any], *, wait: bool = False) -> None:
        """Adds rows: all columns of the table, as arrays or lists of equal length. For any thread.

        Raises ValueError for wrong columns, and RuntimeError if it is closed, or in a forked process. Arrays
        must not be changed afterwards. With `wait`, waits until there is room, and loses nothing: not for
        live events.
        """
        if self._is_closing or self._pid != os.getpid():
            raise RuntimeError("this writer is closed, or was made by another process: make a new one")
        rows = parts.to_rows(table, columns)
        if not rows.num_rows:
            return
        while not self.budget.reserve(rows.nbytes):
            if not wait or self.budget.used_bytes < rows.nbytes:
                self.budget.count_lost("slow", rows.num_rows)
                return
            time.sleep(_POLL_S)
        self._appended.append((table, rows))

    def add_source(self, source: Source) -> None:
        """Asks this source for rows from now on, until the end."""
        self._sources += (source,)

    def fail(self, reason: str) -> None:
        """Makes the capture fail: nothing more is written. Only the first reason is kept."""
        with self._ending:
            self._failure = self._failure or reason

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Writes the waiting rows; other greenlets run meanwhile. Idempotent.

        Gives up after `timeout_s`: `failure` then says so, and the waiting rows are lost.
        """
        # Looked up now, since gevent may have replaced it: then other greenlets run.
        self._close(timeout_s, time.sleep)

    def _close_at_exit(self) -> None:
        self._close(CLOSE_TIMEOUT_S, system_threads.sleep)

    def _close(self, timeout_s: float, sleep: Callable[[float], object]) -> None:
        if self._pid != os.getpid():
            return  # a forked process has no writer thread, and no rows of its own
        atexit.unregister(self._close_at_exit)
        if not self._is_closing:
            self._is_closing = True
            self._sleeping.release()
        give_up_at = monotonic() + timeout_s
        while not self._has_ended:
            if monotonic() >= give_up_at:
                self._abandon(f"the last rows were not written within {timeout_s:g} s")
                return
            sleep(_POLL_S)
        self._lose_appended("late")  # appended by another thread meanwhile

    def _abandon(self, reason: str) -> None:
        with self._ending:
            if self._has_ended or self._is_abandoned:
                return
            self._is_abandoned = True
            self._failure = self._failure or reason
        self.budget.count_lost("slow", self._pending_rows + sum(source.give_up() for source in self._sources))
        self._lose_appended("slow")

    def _lose_appended(self, reason: str) -> None:
        while self._appended:
            self.budget.count_lost(reason, self._appended.pop()[1].num_rows)

    # --- The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last and not self._is_abandoned:
                if not self._is_closing:
                    self._sleeping.acquire(timeout=_TICK_S)
                is_last = self._is_closing  # read first: what was appended before closing must be taken
                self._collect(is_last)
                for table, pending in self._tables.items():
                    self._write_due(table, pending, is_last)
        except BaseException as error:  # otherwise it would go unnoticed
            self._abandon(f"the writer failed: {error!r}")
        finally:
            self._has_ended = True

    def _collect(self, is_last: bool) -> None:
        count = len(self._appended)
        appended = self._appended[:count]
        del self._appended[:count]
        for table, rows in appended:
            self._add(table, rows)
        for source in self._sources:
            try:
                for table, columns in source.take(is_last):
                    rows = parts.to_rows(table, columns)
                    if rows.num_rows:
                        self.budget.release(-rows.nbytes)
                        self._add(table, rows)
            except Exception as error:  # a bug here: the run goes on, and reports it
                self.fail(f"a recorder failed: {error!r}")

    def _add(self, table: str, rows: pa.RecordBatch) -> None:
        self._tables[table].add(rows)
        self._pending_rows += rows.num_rows

    def _write_due(self, table: str, pending: "_Pending", is_last: bool) -> None:
        while pending.is_due(is_last) and not self._is_abandoned:
            rows, size_bytes = pending.take()
            if self._failure is not None:
                self.budget.count_lost("failure", rows.num_rows)
            else:
                self._write(table, rows)
            self._pending_rows -= rows.num_rows
            self.budget.release(size_bytes)

    def _write(self, table: str, rows: pa.Table) -> None:
        path = self._folder / f"table={table}" / f"{self._name}-{self._parts:06d}{PART_SUFFIX}"
        self._parts += 1
        try:
            parts.write_part(path, rows, may_appear=lambda: not self._is_abandoned)
        except Exception as error:  # whatever it is, the run goes on, and reports it
            code = error.errno if isinstance(error, OSError) else None
            self.fail(f"cannot write {path}: {os.strerror(code) if code else error}")
            self.budget.count_lost("failure", rows.num_rows)


class _Pending:
    """The rows of a table that are in no part yet."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._size_bytes = 0
        self._since = 0.0

    def add(self, rows: pa.RecordBatch) -> None:
        if not self._rows:
            self._since = monotonic()
        self._batches.append(rows)
        self._rows += rows.num_rows
        self._size_bytes += rows.nbytes

    def is_due(self, is_last: bool) -> bool:
        is_old = self._rows > 0 and (is_last or monotonic() - self._since >= FLUSH_S)
        return is_old or self._rows >= parts.ROWS_MAX

    def take(self) -> tuple[pa.Table, int]:
        """Takes rows for a part. Returns them, and the bytes that they had reserved."""
        rows = pa.Table.from_batches(self._batches)
        size_bytes = self._size_bytes
        if self._rows > parts.ROWS_MAX:
            size_bytes = size_bytes * parts.ROWS_MAX // self._rows
            self._batches = rows.slice(parts.ROWS_MAX).to_batches()
            rows = rows.slice(0, parts.ROWS_MAX)
        else:
            self._batches = []
        self._rows -= rows.num_rows
        self._size_bytes -= size_bytes
        self._since = monotonic()
        return rows, size_bytes
