"""What a log has on disk, and how that changes: by a thread, so that a slow disk holds nobody up.

A log reads at once, in its turn. What it changes waits, and `Store.take` tells what came of it once it is on
disk. In memory there is no thread: there `StoreFile.commit` is called when it is time.
"""

import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from kcast.client.history.entries import Change, Done, StoreError
from kcast.client.history.tables import Reader, Tables, open_file

COMMIT_AFTER_S = 0.05  # how long changes wait for others, to be written together
COMMIT_CHANGES = 1_000  # that wait for no others
MEMORY_CHANGES = 200  # that are written at once where a turn does it: some 5 ms
TRY_AGAIN_S = 5.0  # after a commit that failed
CLOSE_TIMEOUT_S = 10.0

Wake = Callable[[], object]
Senders = Collection[str] | None

# By process: a forked one has not its parent's threads.
_files: dict[tuple[int, Path | None], "StoreFile"] = {}
_files_lock = threading.Lock()


def open_store(path: Path | None, name: bytes, wake: Wake, senders: Senders = None) -> "Store":
    """Opens what a file, or memory, has of a wire topic. Logs of one process may share a file.

    `senders` are the keys whose entries are read; None for anybody's. `wake` is called when there is
    something to take, or `trouble` has changed: in the file's thread, where there is one. Raises StoreError
    where the file is another's or in use, or cannot be read or written.
    """
    if path is None:
        return Store(StoreFile(None), name, wake)
    key = os.getpid(), path.resolve()
    with _files_lock:
        file = _files.get(key) or StoreFile(key[1])
        try:
            store = Store(file, name, wake, senders)
        except BaseException:
            if not file.stores:
                file.close()
            raise
        _files[key] = file
    return store


class Store(Reader):
    """What a log has in a file. Its methods are called in the log's turns."""

    def __init__(self, file: "StoreFile", name: bytes, wake: Wake, senders: Senders = None) -> None:
        topic = file.tables.topic(name)
        # Each of two would take what the other one has for lost.
        if any(each.topic == topic for each in file.stores):
            raise StoreError(f"{file.path}: a log of this process has {name.decode()} open there: use that")
        super().__init__(file.tables.reading(), file.path, topic)
        if senders is not None and file.path is not None:  # what is in memory was judged already
            self.name(senders)
        self.file, self.wake = file, wake
        self.done: list[Done] = []
        file.stores.append(self)

    @property
    def trouble(self) -> str | None:
        """Why nothing is written at present: meanwhile changes wait, and it is tried again."""
        return self.file.trouble

    def put(self, change: Change, at_once: bool = False) -> None:
        """Lets a change be made; a log bounds how many of its own wait. `at_once`: it waits for no others."""
        file = self.file
        with file.changed:
            file.waiting.append((self, change))
            file.is_urgent |= at_once
            if at_once or len(file.waiting) in (1, COMMIT_CHANGES):
                file.changed.notify_all()

    def take(self) -> list[Done]:
        """Returns what is new on disk: what came of each change, in their order."""
        with self.file.changed:
            done, self.done = self.done, []
        return done

    def close(self) -> None:
        """Ends it, and returns once what it has put is written."""
        file = self.file
        with _files_lock:
            if file.path is not None:
                file.settle(self)
                super().close()
            file.stores.remove(self)
            if not file.stores:
                _files.pop((file.process, file.path), None)
                file.close()


class StoreFile:
    """A file that no other process has open, what waits to be written there, and the thread that does it."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.process = path, os.getpid()
        self.is_durable = path is not None  # whether what is written outlives the process
        self.stores: list[Store] = []
        self.waiting: deque[tuple[Store, Change]] = deque()
        self.trouble: str | None = None
        self.changed = threading.Condition()
        self.is_urgent = self._is_closing = False
        with ExitStack() as resources:
            if path is not None:
                _lock(path, resources)
            db = open_file(path)
            resources.callback(db.close)
            self.tables = Tables(db, path)
            self._resources = resources.pop_all()
        self._thread = threading.Thread(target=self._run, name="kcast-store", daemon=True)
        if path is not None:
            self._thread.start()

    def commit(self) -> None:
        """Writes what waits, in memory the first of it, and then tells what came of it."""
        with self.changed:
            batch = list(islice(self.waiting, MEMORY_CHANGES if self.path is None else None))
            self.is_urgent = False
        trouble, done = None, list[Done]()
        try:
            done = self.tables.commit([(store.topic, change) for store, change in batch])
        except StoreError as error:
            trouble = str(error)
        with self.changed:
            told = set(self.stores) if trouble != self.trouble else set()
            self.trouble = trouble
            for each in done:
                store, _ = self.waiting.popleft()
                store.done.append(each)
                told.add(store)
            self.changed.notify_all()
        for store in told:
            store.wake()

    def settle(self, store: Store) -> None:
        """Waits until what a log has put is written, or that fails."""
        if os.getpid() != self.process:
            return
        with self.changed:
            self.is_urgent = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.trouble or store not in dict(self.waiting), CLOSE_TIMEOUT_S)

    def close(self) -> None:
        """Lets other processes open the file."""
        if self.path is None:
            self._resources.close()
        elif os.getpid() == self.process:
            with self.changed:
                self._is_closing = True
                self.changed.notify_all()
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while self._is_due():
            self.commit()
        if os.getpid() == self.process:  # gevent lets it go on in a forked process
            self._resources.close()

    def _is_due(self) -> bool:
        """Waits until it is time to write; returns False at the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self._is_closing)
            self.changed.wait_for(self._is_enough, TRY_AGAIN_S if self.trouble else COMMIT_AFTER_S)
            return not self._is_closing and os.getpid() == self.process

    def _is_enough(self) -> bool:
        is_much = self.is_urgent or len(self.waiting) >= COMMIT_CHANGES
        return self._is_closing or (is_much and not self.trouble)


def _lock(path: Path, resources: ExitStack) -> None:
    """Locks a file beside it: SQLite's own locks on it would end when a descriptor of it is closed."""
    beside = path.with_name(f"{path.name}-lock")
    try:
        file = resources.enter_context(beside.open("a"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(f"{path}: another process has it open: end that, or give another file") from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}: make its folder, or give another file") from None
    resources.callback(fcntl.flock, file, fcntl.LOCK_UN)  # forked processes may still have it open
