"""Writes a capture's rows into Parquet files, off the hot path: in a thread of the system's, one a process.

Whoever has rows appends them, or is a Source that the thread asks five times a second. The thread spends its
time in Arrow and numpy, which let others run meanwhile. What waits is bounded; what cannot be kept or written
is counted. Nothing here waits for the disk but `close`.
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
from kcast.loadtest.capture.byte_budget import Room
from kcast.loadtest.capture.parts import CaptureError
from kcast.loadtest.capture.schema import TABLES

WAITING_BYTES_MAX_DEFAULT = 256 * 1024 * 1024
FLUSH_S = 2.0
CLOSE_TIMEOUT_S = 60.0

_TICK_S = 0.2  # each costs the writer's thread, and who has to hand the interpreter to it, some 0.1 ms
_POLL_S = 0.005


class Source(Protocol):
    """What has rows when it is asked."""

    @property
    def waiting(self) -> int:
        """Of how many calls it keeps what they were about. For any thread."""

    def take(self, is_last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Tables and columns; `is_last` where nothing more will be asked for. In the writer's thread."""

    def give_up(self) -> int:
        """Nobody will ask any more; about how many rows are lost by that. For any thread."""


class CaptureWriter:
    """Collects rows, and writes them as `folder/table=<t>/<process>-<token>-<n>.parquet`.

    `folder` is a scenario's (`ScenarioFolder.path`); `process` names this process within the run, the token
    keeps two of one name apart. A part has at most 65,536 rows, and is written at the latest two seconds
    after its first row came; it appears under its name only when it is whole. About `waiting_bytes_max` may
    wait for a slow disk: what comes then is lost and counted ("slow"). After a failure all is ("failure").

    Works the same under gevent's monkey patches. For the process that made it; `close` it before it ends.
    Raises CaptureError where `process` does not do for a file's name.
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
            raise CaptureError(f"{process!r} names no process: its files would be hidden, or elsewhere")
        self.room = Room(waiting_bytes_max)
        self._folder = folder
        self._name = f"{process}-{token_hex(4)}"
        self._parts = 0
        self._pid = os.getpid()
        self._sources: tuple[Source, ...] = ()
        self._appended: list[tuple[str, pa.RecordBatch]] = []  # taken out by the thread
        self._tables = {table: _Pending() for table in TABLES}  # the thread's own
        self._pending_rows = 0
        self._rows_written = 0
        self._failure: str | None = None
        self._is_closing = self._is_abandoned = self._has_ended = False
        self._ending = system_threads.new_lock()  # for `_failure` and `_is_abandoned`
        self._sleeping = system_threads.new_lock()
        self._sleeping.acquire()
        atexit.register(self._close_at_exit)
        spawn(self._run)

    @property
    def failure(self) -> str | None:
        """Why nothing more is written (the disk is full, say); None while all is well."""
        return self._failure

    @property
    def rows_waiting(self) -> int:
        """What is not written yet. A burst that was not looked through yet counts as one row."""
        appended: int = sum(rows.num_rows for _, rows in list(self._appended))
        return self._pending_rows + appended + sum(source.waiting for source in self._sources)

    @property
    def rows_written(self) -> int:
        """In parts that have appeared."""
        return self._rows_written

    @property
    def lost(self) -> Counter[str]:
        """What came and will not be written: rows by reason, "slow", "failure", or "late" (came while, or
        after, this was closed)."""
        return self.room.lost

    @property
    def rows_lost(self) -> int:
        """For all reasons together."""
        return self.lost.total()

    def append(self, table: str, columns: Mapping[str, Any], *, wait: bool = False) -> None:
        """Adds rows: all columns of the table, as arrays or lists, equally long. For any thread.

        Raises ValueError where that is not so, and RuntimeError once it is closed, or in a forked process.
        Arrays must not be changed afterwards. With `wait`, waits while there is no room, and loses nothing:
        for what is no live event.
        """
        if self._is_closing or self._pid != os.getpid():
            raise RuntimeError("this capture is closed, or another process's: make a writer here")
        rows = parts.to_rows(table, columns)
        if not rows.num_rows:
            return
        while not self.room.ask(rows.nbytes):
            if not wait or self.room.used_bytes < rows.nbytes:
                self.room.lose("slow", rows.num_rows)
                return
            time.sleep(_POLL_S)
        self._appended.append((table, rows))

    def add_source(self, source: Source) -> None:
        """Asks it for rows from now on, to the end."""
        self._sources += (source,)

    def fail(self, reason: str) -> None:
        """Something is wrong with the capture: nothing more is written. The first reason stays."""
        with self._ending:
            self._failure = self._failure or reason

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Writes what waits; other greenlets run meanwhile. Idempotent.

        Gives up after `timeout_s`: `failure` then says so, and what waits is lost.
        """
        # Looked up here: it may be gevent's, which lets others run, or the system's.
        self._close(timeout_s, time.sleep)

    def _close_at_exit(self) -> None:
        self._close(CLOSE_TIMEOUT_S, system_threads.sleep)

    def _close(self, timeout_s: float, sleep: Callable[[float], object]) -> None:
        if self._pid != os.getpid():
            return  # forked: there is no thread here, and nothing of ours
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
        self._lose_appended("late")  # by another thread, while this was being closed

    def _abandon(self, reason: str) -> None:
        with self._ending:
            if self._has_ended or self._is_abandoned:
                return
            self._is_abandoned = True
            self._failure = self._failure or reason
        self.room.lose("slow", self._pending_rows + sum(source.give_up() for source in self._sources))
        self._lose_appended("slow")

    def _lose_appended(self, reason: str) -> None:
        while self._appended:
            self.room.lose(reason, self._appended.pop()[1].num_rows)

    # --- The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last and not self._is_abandoned:
                if not self._is_closing:
                    self._sleeping.acquire(timeout=_TICK_S)
                is_last = self._is_closing  # read before all is taken that came until then
                self._collect(is_last)
                for table, pending in self._tables.items():
                    self._write_due(table, pending, is_last)
        except BaseException as error:  # nobody else would hear of it
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
                        self.room.exchange(0, rows.nbytes)
                        self._add(table, rows)
            except Exception as error:  # a mistake of ours: the run goes on, and is told
                self.fail(f"a recorder failed: {error!r}")

    def _add(self, table: str, rows: pa.RecordBatch) -> None:
        self._tables[table].add(rows)
        self._pending_rows += rows.num_rows

    def _write_due(self, table: str, pending: "_Pending", is_last: bool) -> None:
        while pending.is_due(is_last) and not self._is_abandoned:
            rows, size_bytes = pending.take()
            if self._failure is not None:
                self.room.lose("failure", rows.num_rows)
            elif self._write(table, rows):
                self._rows_written += rows.num_rows
            self._pending_rows -= rows.num_rows
            self.room.exchange(size_bytes)

    def _write(self, table: str, rows: pa.Table) -> bool:
        path = self._folder / f"table={table}" / f"{self._name}-{self._parts:06d}{parts.SUFFIX}"
        self._parts += 1
        try:
            return parts.write_part(path, rows, may_appear=lambda: not self._is_abandoned)
        except Exception as error:  # whatever it is, the run goes on, and is told
            code = error.errno if isinstance(error, OSError) else None
            self.fail(f"cannot write {path}: {os.strerror(code) if code else error}")
            self.room.lose("failure", rows.num_rows)
            return False


class _Pending:
    """A table's rows that are in no part yet."""

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
        """Rows for a part, and how many bytes they were counted as."""
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
