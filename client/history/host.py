"""What the sync has of a log: what is held, and a way to speak. PROTOCOL §9.12."""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from random import Random
from typing import Protocol, SupportsBytes

from kcast.client.events import Drop
from kcast.client.history.index import Index
from kcast.client.history.runs import Place, Runs, RunsOf

Lines = tuple[Sequence[tuple[bytes, bytes]], bytes]  # ids and messages, and a bound


class Held(Protocol):
    """What a log holds: what counts, and is stored. Ids, and bounds of them, are 24 bytes."""

    @property
    def index(self) -> Index:
        """The ids."""

    @property
    def runs(self) -> Runs:
        """The numbers of each publisher."""

    @property
    def floor(self) -> bytes:
        """The bound below which nothing is held but what is pinned."""

    @property
    def pins(self) -> Set[bytes]:
        """The ids that are pinned, and are not there."""

    @property
    def not_held(self) -> Iterable[bytes]:
        """The ids of entries that have come, and are not held: they wait, or were refused of late."""

    @property
    def copies_waiting(self) -> int:
        """How many copies have come, and are not held yet."""

    def messages(self, ids: Sequence[bytes]) -> Sequence[tuple[bytes, bytes]]:
        """Returns those of these ids that are there, and the messages as their authors made them."""

    def lacking(self, lo: bytes, hi: bytes, start: Place, stop: Place, runs: RunsOf, most: int) -> Lines:
        """Returns ids and messages in [lo, hi) whose place is in [start, stop), and that are not in the runs:
        the first ones in the order of ids, `most` of them at most; and the bound before which there are
        no others, which is more than `lo`."""

    def on_disk(self, ids: Sequence[bytes]) -> Sequence[bytes]:
        """Returns those of the ids that are held for good."""


class SyncHost(Protocol):
    """Who runs the sync. `name` is its mailbox, `room_bytes` how long a payload may be there."""

    rng: Random
    drops: Counter[Drop]
    name: str
    room_bytes: int

    def unix_s(self) -> float:
        """Returns the time of day, in seconds since 1970."""

    def say(self, where: str, word: SupportsBytes, now: float) -> None:
        """Publishes on the topic `sync`, or in a mailbox, by one server, which is drawn anew each time. What
        cannot leave is as if lost on its way."""

    def copy(self, mailbox: str, message: bytes, now: float) -> None:
        """Publishes a message in a mailbox as its author made it, by the server of the words there."""
