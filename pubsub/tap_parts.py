"""A tap that one publisher cannot fill: what it writes beyond its part goes to files of its own. docs/tap.md.

The threat: a tap is bounded, so its oldest files are deleted. Whoever publishes junk fast enough would have
deleted what everybody else did. So there are two series of files, each with half of the bound. `FILE` has all
lease changes, and of each publisher's bursts no more than its part: a network (IPv4 /24) alone takes an hour
to fill it. The rest of its bursts goes to `FILE.bulk`, which those who publish most delete for each other.

Loopback addresses are in no network, so all that they publish is in `FILE`.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from kcast.pubsub.endpoint import Address, LeaseChange
from kcast.pubsub.networks import IPV4_NETWORK_FACTOR, Networks, Share
from kcast.pubsub.tap import QUEUE_BYTES_MAX_DEFAULT, SIZE_BYTES_MAX_DEFAULT, TapWriter, bulk_path
from kcast.pubsub.tap_format import BURST_BYTES, DIGEST_BYTES

PERIOD_S = 60.0  # in which each has its part
FILL_PERIODS = 60  # in which an IPv4 /24 fills the files
SHARES_MAX = 8192  # told apart in a period; what others publish goes to the bulk


class FairTap:
    """A `kcast.pubsub.endpoint.Tap` of two `TapWriter`s, which together write `size_bytes_max` at most.

    Parameters and errors are those of `TapWriter`; `on_failure` is also told which file it is.
    """

    def __init__(
        self,
        path: Path,
        *,
        boot_id: bytes,
        addresses: Sequence[Address],
        networks: Networks,
        size_bytes_max: int = SIZE_BYTES_MAX_DEFAULT,
        on_failure: Callable[[Path, str], None] = lambda path, reason: None,
    ) -> None:
        self._networks = networks
        self._part_bytes = size_bytes_max // 2 // FILL_PERIODS // IPV4_NETWORK_FACTOR  # of an IP
        self._period_ends_at = 0.0
        self._used_bytes: dict[Share, int] = {}  # in this period

        def opened(path: Path, queue_bytes_max: int, *, lists_leases: bool) -> TapWriter:
            return TapWriter(
                path,
                boot_id=boot_id,
                addresses=addresses,
                size_bytes_max=size_bytes_max // 2,
                queue_bytes_max=queue_bytes_max,
                lists_leases=lists_leases,
                on_failure=lambda reason: on_failure(path, reason),
            )

        with ExitStack() as stack:
            self._main = stack.enter_context(opened(path, QUEUE_BYTES_MAX_DEFAULT, lists_leases=True))
            self._bulk = opened(bulk_path(path), QUEUE_BYTES_MAX_DEFAULT // 2, lists_leases=False)
            stack.pop_all()

    def __enter__(self) -> "FairTap":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def records_dropped(self) -> int:
        """Number of bursts and lease changes that are not recorded, and never will be."""
        return self._main.records_dropped + self._bulk.records_dropped

    @property
    def bytes_written(self) -> int:
        """Number of bytes in all files so far, also those that were deleted."""
        return self._main.bytes_written + self._bulk.bytes_written

    def burst(self, now: float, source: Address, topic: bytes, lines: Sequence[bytes]) -> None:
        """Records a digest of each line."""
        # As if the topic were a new one. That of a burst of many lines counts little.
        size_bytes = BURST_BYTES + len(topic) + DIGEST_BYTES * len(lines)
        tap = self._main if self._takes_part(source, size_bytes, now) else self._bulk
        tap.burst(now, source, topic, lines)

    def lease(self, now: float, change: LeaseChange, topic: bytes, address: Address) -> None:
        """Records a lease change."""
        self._main.lease(now, change, topic, address)

    def close(self) -> None:
        """Writes what waits, and ends the files."""
        self._main.close()
        self._bulk.close()

    def _takes_part(self, source: Address, size_bytes: int, now: float) -> bool:
        """Whether so much more is within the part of this source; if so, it is charged for it."""
        shares = self._networks.shares_of(source)
        if len(shares) == 1:
            return True
        if now >= self._period_ends_at:
            self._period_ends_at = now + PERIOD_S
            self._used_bytes.clear()
        used = self._used_bytes
        for share, factor in shares:
            if used.get(share, 0) + size_bytes > self._part_bytes * factor:
                return False
        if len(used) >= SHARES_MAX and shares[0][0] not in used:
            return False
        for share, _ in shares:
            used[share] = used.get(share, 0) + size_bytes
        return True
