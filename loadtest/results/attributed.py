"""What became of each message and subscriber: the result of `attribution`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.results.causes import UNEXPLAINED, Cause
from kcast.loadtest.results.joins import Ints
from kcast.loadtest.results.leg_lines import Legs
from kcast.loadtest.results.tables import Array

Stages = NDArray[np.int8]
"""Values of `Cause`."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What became of each pair. Arrays have one element per pair, in the order of message and subscriber.

    `latencies_ns` is from the time at which the message was to be published to its first copy within the
    deadline, -1 without one. `copies_of` is the number of copies that arrived, late ones too; `heard` that of
    servers that brought one in time. `chances` is the number of sendings to servers that were up and held a
    lease of the subscriber, whether or not they were lost: each could get through with a probability of
    (1 - loss_in)(1 - loss_out). `paths` counts paths by cause, those of delivered pairs too. `legs` has the
    lines that the network alone can have lost; None where nobody asked.
    """

    topics: Array
    pub_ids: Array
    t_intended_ns: Ints
    msg_ids: Ints
    sub_ids: Array
    causes: Stages
    latencies_ns: Ints
    copies_of: Ints
    heard: Ints
    chances: Ints
    paths: dict[Cause, int]
    legs: Legs | None = None

    def __len__(self) -> int:
        return len(self.causes)

    @property
    def copies(self) -> int:
        """Number of copies that subscribers got of the pairs, late ones included."""
        return int(self.copies_of.sum())

    @property
    def duplicates(self) -> int:
        """Number of copies after the first of their pair; that first one may have come too late."""
        return self.copies - int(np.count_nonzero(self.copies_of))

    @property
    def delivered(self) -> Array:
        """Whether each pair was delivered within the deadline."""
        is_delivered: Array = self.causes == Cause.DELIVERED
        return is_delivered

    @property
    def misses(self) -> dict[Cause, int]:
        """Number of missed pairs by cause, for causes that occurred."""
        counts = np.bincount(self.causes, minlength=len(Cause))
        return {
            cause: int(counts[cause]) for cause in Cause if counts[cause] and cause is not Cause.DELIVERED
        }

    @property
    def unexplained(self) -> int:
        """Number of pairs missed for no reason that is recorded."""
        return sum(self.misses.get(cause, 0) for cause in UNEXPLAINED)
