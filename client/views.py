"""The view that a client goes by, and former ones that it serves for a while after a change. Sans-IO.

PROTOCOL §10.3. Clients adopt a changed cluster file at different moments. For a topic let S be its servers in
the former view and T those in the new one. While some clients have adopted the change and others have not,
each pair of a publisher and a subscriber must meet as it would have met without the change:

- *Neither has.* Nothing differs.
- *Only the subscriber has.* It keeps the leases that it had drawn of S for the overlap. The publisher draws
  of S, so they meet as before.
- *Only the publisher has.* The subscriber holds leases on its draw of S. The publisher sends to its draw of
  T, in which those that are in S go first, and to all live servers of S that are not in T. Let `publish` be
  m, and let a servers of S and T live, and b of those in S alone. Then it reaches min(m, a) + b live servers
  of S; without the change it would have reached min(m, a + b), which is no more.
- *Both have.* The subscriber has leases on its draw of T, and on that of S for the overlap; the publisher
  reaches its draw of T, and in the first moment, when the new leases do not stand yet, S as above.

So nothing is lost by the change as long as the servers that leave go on serving until the overlap is over.
Where one has stopped before, b is 0 for its topics: the k - 1 that stay are then what is left in either
view, and a message comes as through one dead server of k.

The overlap is longer than it takes until all clients have adopted the change: each looks at its file every
few seconds, and what brings the file to them may take a minute or two (Kubernetes does).
"""

from kcast.client.cluster import Cluster
from kcast.client.view import View

OVERLAP_S = 300.0


class Views:
    """The present view, and the former ones whose overlap is not over, oldest first."""

    def __init__(self, cluster: Cluster) -> None:
        self.present = View(cluster)
        self.former: list[View] = []
        self._ends: list[float] = []

    def adopt(self, cluster: Cluster, now: float) -> None:
        """Goes by another cluster from now on, and by the present one too for the overlap."""
        self.former.append(self.present)
        self._ends.append(now + OVERLAP_S)
        self.present = View(cluster)

    def all(self) -> list[View]:
        """Returns all of them, oldest first."""
        return [*self.former, self.present]

    def next_timeout(self) -> float | None:
        """Returns when an overlap ends; None where there is none."""
        return self._ends[0] if self._ends else None

    def expire(self, now: float) -> int:
        """Forgets views whose overlap is over; returns how many."""
        count = sum(end <= now for end in self._ends)
        del self.former[:count], self._ends[:count]
        return count
