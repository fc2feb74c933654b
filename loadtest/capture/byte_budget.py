"""A bound, in bytes, on what one process has recorded and not yet written."""

from collections import Counter

from kcast.loadtest.capture import system_threads


class ByteBudget:
    """Counts the bytes in use, at most about `bytes_max`, and the rows that were lost, by reason.

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
