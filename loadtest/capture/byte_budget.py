"""How much may wait to be written: a bound in bytes for all that a process records."""

from collections import Counter

from kcast.loadtest.capture import system_threads


class Room:
    """Bytes that wait, at most about `bytes_max`; and the rows for which there was none, by reason.

    For any thread, and for greenlets: no lock is held for longer than it takes to add.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used_bytes = 0
        self._lost: Counter[str] = Counter()
        self._lock = system_threads.new_lock()

    @property
    def lost(self) -> Counter[str]:
        """A copy."""
        with self._lock:
            return self._lost.copy()

    @property
    def used_bytes(self) -> int:
        """What waits, with what was granted and is not used yet."""
        return self._used_bytes

    def ask(self, size_bytes: int) -> bool:
        """Takes so much, if it is there."""
        with self._lock:
            if self._used_bytes + size_bytes > self._bytes_max:
                return False
            self._used_bytes += size_bytes
            return True

    def exchange(self, freed_bytes: int, taken_bytes: int = 0) -> None:
        """Gives so much back, and takes so much in any case."""
        with self._lock:
            self._used_bytes += taken_bytes - freed_bytes

    def lose(self, reason: str, rows: int) -> None:
        """Counts rows that are not kept."""
        with self._lock:
            self._lost[reason] += rows
