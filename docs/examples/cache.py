"""Cache invalidation: programs keep what they have read, until one of them says that it has changed.

    mkdir store
    python cache.py store --cluster lab.txt        # then type: set colour red, get colour, get colour

Here a folder stands for the database, and standard input for requests. Start it several times.

Whoever changes an entry writes it to the database first, and then publishes its key. That message may be
lost. So a cache is used only while invalidations can reach us, it is emptied when we notice that some may
have been missed, and each entry has an age at which it is read again in any case:

- While too few of our leases stand, a message might go only to servers that know nothing of us. Then all
  reads go to the database. It takes up to a renewal interval, 20 s, to notice that servers are dead.
- A `Gap` says that a message is missing. It comes 2 s after the next message of the same publisher.
- Where neither tells us, the age ends it.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from kcast.client.blocking import (
    AllServersLost,
    Client,
    Delivery,
    Events,
    Gap,
    KcastError,
    LeasesChanged,
    NoReceipt,
    ServerForgot,
    ServerReturned,
)

TOPIC = b"cache/changed"
AGE_MAX_S = 30.0
ENTRIES_MAX = 10_000


class Cache:
    """Values by key, for any number of threads. `load` reads one from the database."""

    def __init__(self, client: Client, load: Callable[[str], str | None]) -> None:
        self._client = client
        self._load = load
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[float, str | None]] = {}  # key: (when it was read, value)
        self._changes = 0  # number of invalidations until now
        self._is_told = False  # whether invalidations reach us
        self._changed = client.subscribe(TOPIC, on_delivery=self._invalidate)
        threading.Thread(target=self._watch, args=(client.events(),), daemon=True).start()

    def get(self, key: str) -> tuple[str | None, bool]:
        """Returns the value of a key, None where it has none; and whether it came from the cache."""
        with self._lock:
            read_at, value = self._entries.get(key, (0.0, None))
            if self._is_told and key in self._entries and time.monotonic() - read_at < AGE_MAX_S:
                return value, True
            changes = self._changes
        read_at, value = time.monotonic(), self._load(key)
        with self._lock:
            # Where something was invalidated while we read, the value may be the old one.
            if self._is_told and changes == self._changes:
                self._entries[key] = read_at, value
                if len(self._entries) > ENTRIES_MAX:
                    del self._entries[next(iter(self._entries))]  # the one read first
        return value, False

    def tell_changed(self, key: str) -> None:
        """Tells all caches, ours too, that the database has another value. Raises NoReceipt."""
        self._client.publish(TOPIC, key, repeat=2)

    def _invalidate(self, delivery: Delivery) -> None:
        """Forgets a key. The client's thread calls this, so it must not wait for long."""
        with self._lock:
            self._changes += 1
            self._entries.pop(delivery.payload.decode(errors="replace"), None)

    def _watch(self, events: Events) -> None:
        policy, are_lost = self._client.cluster.policy, False
        for event in events:
            match event:
                case AllServersLost():
                    are_lost = True
                case ServerReturned():
                    are_lost = False
                case LeasesChanged() | ServerForgot() | Gap():
                    pass
                case _:
                    continue
            # A message goes to `publish` of the topic's k servers. If we have leases at more than k - publish
            # of them, one of those that it goes to at least has a lease of ours.
            leases, _ = self._changed.leases
            self._start_anew(is_told=not are_lost and leases > policy.k - policy.publish)

    def _start_anew(self, *, is_told: bool) -> None:
        with self._lock:
            self._changes += 1
            self._entries.clear()
            self._is_told = is_told


class Store:
    """A folder with a file for each key, in place of a database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: str) -> str | None:
        """Returns a value; None where there is none."""
        try:
            return self._file(key).read_text()
        except FileNotFoundError:
            return None

    def write(self, key: str, value: str) -> None:
        """Writes a value."""
        self._file(key).write_text(value)

    def _file(self, key: str) -> Path:
        return self._folder / f"{quote(key, safe='')}.txt"


def serve(cache: Cache, store: Store) -> None:
    """Answers requests on standard input until its end."""
    for line in sys.stdin:
        match line.split(maxsplit=2):
            case ["get", key]:
                value, is_cached = cache.get(key)
                print(f"{key} = {value} ({'cached' if is_cached else 'read'})", flush=True)
            case ["set", key, value]:
                store.write(key, value.rstrip("\n"))
                try:
                    cache.tell_changed(key)
                    print(f"{key} is set", flush=True)
                except NoReceipt as error:
                    print(f"{key} is set, but others may see the old value: {error}", flush=True)
            case _:
                print("type: get KEY, or set KEY VALUE", flush=True)


def main() -> None:
    """Reads the command line, and answers requests."""
    parser = argparse.ArgumentParser(description="Read values through a cache that others keep fresh.")
    parser.add_argument("store", type=Path, help="a folder")
    parser.add_argument("--cluster", help="a cluster file, or a context; by default what KCAST_CLUSTER names")
    given = parser.parse_args()
    if not given.store.is_dir():
        parser.error(f"{given.store}: no such folder")
    store = Store(given.store)
    try:
        with Client(given.cluster) as client:
            serve(Cache(client, store.read), store)
    except (KcastError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
