"""How the process itself fares: how late its loop is, and what its clients and its system count."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic_ns, process_time_ns

import gevent

from kcast.client.events import Drop
from kcast.loadtest.capture.writer import CaptureWriter
from kcast.loadtest.users.user_client import UserClient

TICK_NS = 10_000_000
EVERY_NS = 1_000_000_000

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


class ProcessStats:
    """Writes the rows of `process_stat` and `client_stat` once a second; call `run` in a greenlet.

    The loop's lag is how much later than asked a greenlet wakes up that sleeps for 10 ms. `counts` are sums
    over all clients that are or were here: copies, overflows, slow_consumer, send_errors.
    """

    def __init__(
        self,
        process: str,
        users: Callable[[], Iterable[UserClient]],
        writer: CaptureWriter | None,
        offset_ns: Callable[[], int],
    ) -> None:
        self.lag_max_ns = 0  # of the last whole second
        self._process = process
        self._users = users
        self._writer = writer
        self._offset_ns = offset_ns
        self._gone: Counter[str] = Counter()
        self._here: dict[int, Counter[str]] = {}

    @property
    def counts(self) -> Counter[str]:
        """The last sampled values, at most one second old."""
        return sum(self._here.values(), self._gone.copy())

    def run(self) -> None:
        """Samples for ever."""
        lag_max_ns, second_ends_ns = 0, monotonic_ns() + EVERY_NS
        while True:
            due_ns = monotonic_ns() + TICK_NS
            gevent.sleep(TICK_NS / 1e9)
            now_ns = monotonic_ns()
            lag_max_ns = max(lag_max_ns, now_ns - due_ns)
            if now_ns >= second_ends_ns:
                self.lag_max_ns, lag_max_ns = lag_max_ns, 0
                second_ends_ns = max(second_ends_ns + EVERY_NS, now_ns)
                self.sample()

    def sample(self) -> None:
        """Samples the process and all clients, and writes the rows."""
        if self._writer is not None:
            self._writer.append(
                "process_stat",
                {
                    "process": [self._process],
                    "t_ns": [monotonic_ns() + self._offset_ns()],
                    "cpu_ns": [process_time_ns()],
                    "rss_bytes": [int(_STATM.read_text().split()[1]) * _PAGE_BYTES],
                    "lag_max_ns": [self.lag_max_ns],
                    "rows_waiting": [self._writer.rows_waiting],
                    "rows_lost": [self._writer.rows_lost],
                },
            )
        self.sample_users()

    def sample_users(self) -> None:
        """Samples all clients, and writes their rows."""
        for user in tuple(self._users()):
            if not user.is_gone:  # other greenlets have run since the list was made
                self.sample_user(user)
            gevent.sleep(0)

    def sample_user(self, user: UserClient, *, is_last: bool = False) -> None:
        """Samples one client; for the last time once its user is gone, before the client is closed."""
        client, client_id = user.client, user.ids.client_id
        # The time right after the count: other greenlets may run while the other figures are read, and what
        # they take in is not counted yet (`results.copy_counts`).
        counts, read_ns = client.counts, monotonic_ns() + self._offset_ns()
        drops = client.drops
        slow, overflows = drops[Drop.SLOW_CONSUMER], client.kernel_drops
        send_errors = client.send_errors.total()
        copies = counts["copies_received"]
        figures = Counter(copies=copies, overflows=overflows, slow_consumer=slow, send_errors=send_errors)
        if is_last:
            self._here.pop(client_id, None)
            self._gone.update(figures)
        elif user.is_gone:
            return  # it has left while its figures were read, and was sampled for the last time then
        else:
            self._here[client_id] = figures
        if self._writer is not None:
            self._writer.append(
                "client_stat",
                {
                    "client_id": [client_id],
                    "t_ns": [read_ns],
                    "copies": [copies],
                    "deliveries": [counts["deliveries"]],
                    "duplicates": [counts["duplicates"]],
                    "slow_consumer": [slow],
                    "kernel_drops": [overflows],
                    "send_errors": [send_errors],
                },
            )
