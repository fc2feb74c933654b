"""When each life of a server first accepted a line of each publisher: until then it forwards nothing of
theirs."""

from dataclasses import dataclass

import numpy as np

from kcast.loadtest.results.joins import Bools, Ints, places
from kcast.loadtest.results.tables import Array


@dataclass(frozen=True, slots=True)
class Admissions:
    """Lives of servers (`boots`), publishers, and the time at which the first line of each was accepted."""

    boots: Ints
    pubs: Ints
    times: Ints

    @classmethod
    def earliest(cls, boots: Ints, pubs: Ints, times: Ints) -> "Admissions":
        """Returns the first of all these, which may have several of one life and publisher."""
        order = np.lexsort((times, pubs, boots))
        boots, pubs, times = boots[order], pubs[order], times[order]
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = (boots[1:] != boots[:-1]) | (pubs[1:] != pubs[:-1])
        is_first &= pubs >= 0
        return cls(boots[is_first], pubs[is_first], times[is_first])

    def had_been(self, boots: Array, pubs: Ints, times: Ints) -> Bools:
        """Returns whether each life had accepted a line of each publisher by a time."""
        if not len(self.boots):
            return np.zeros(len(boots), dtype=np.bool_)
        every = np.unique(self.boots)
        width = 1 + int(max(self.pubs.max(initial=0), pubs.max(initial=0)))
        keys = places(every, self.boots) * width + self.pubs  # sorted, as boots and publishers are
        lives = places(every, boots)
        found = places(keys, np.where(lives < 0, -1, lives * width + pubs))
        had: Bools = (found >= 0) & (self.times[found] <= times)
        return had
