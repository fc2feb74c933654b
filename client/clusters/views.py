"""The views that a client goes by: the present one, former and coming ones. Sans-IO. PROTOCOL §10.3.

Clients learn of a changed list at different moments, and their clocks differ. Each pair of a publisher and a
subscriber must meet all the while. There are two kinds of changes.

**A change that holds from a set time on**: a list with `valid-after`.
Publishers go by the list that is in force by their own clocks, and by no other. Subscribers hold leases in
the view in force and in those around it: in a coming one from when they know of it, in a former one until
`LATE_S` and two ttl after its end. So a message finds its subscribers, whichever of the two its publisher
goes by, as long as each subscriber has learnt of the change before the first publisher goes by it, and no
publisher goes by the former list for longer than that. It costs twice the leases meanwhile, and not a
datagram more on a message's way.

How far ahead? A clock in a wrong time zone is wrong by up to 14 h, one whose date was typed by a day. A
publisher whose clock is that fast goes by the coming list so much too early; a subscriber whose clock is that
slow believes that there is still so much time. So subscribers hold a coming view for `AHEAD_S`, a day, and
not for ever: a list may be announced for next month. The other way round there are only those `LATE_S`: lists
that end are left by servers that stop, and whose clock is slow is told so by a signed list's cosignatures.

**A change that holds at once**: a file that is not signed has changed, or a list has come whose time has come
already. For a topic let S be its servers in the former view and T those in the new one. Both views are served
for an overlap:

- *Nobody has adopted the change.* Nothing differs.
- *Only the subscriber has.* It keeps the leases that it had drawn of S for the overlap. The publisher draws
  of S, so they meet as before.
- *Only the publisher has.* The subscriber holds leases on its draw of S. The publisher sends to its draw of
  T, in which those that are in S go first, and to all live servers of S that are not in T. Let `publish` be
  m, and let a servers of S and T live, and b of those in S alone. Then it reaches min(m, a) + b live servers
  of S; without the change it would have reached min(m, a + b), which is no more.
- *Both have.* The subscriber has leases on its draw of T, and on that of S for the overlap; the publisher
  reaches its draw of T, and in the first moment, when the new leases do not stand yet, S as above.

So nothing is lost by the change as long as the servers that leave go on serving until the overlap is over.
Where one has stopped before, b is 0 for its topics: the k - 1 that stay are then what is left in either view,
and a message comes as through one dead server of k. The overlap is longer than it takes until all clients
have adopted the change: each looks at its file every few seconds, and what brings the file to them may take a
minute or two (Kubernetes does). Lists that differ by little need no overlap: their clients meet for ever
(`kcast.client.trust.checks.meeting`).

**Both are one**: a client has *lines* of stages (`Stage`). A change at a set time ends
the present line at that time, and goes on with the new list: so it replaces what was to come after. A change
at once begins another line; the former one goes on for the overlap, as it does at those who have not adopted
the change. Of each line, subscribers hold the views around the present, and publishers go by the one in
force.

A wall clock may be set at any time, and goes on while a machine sleeps, as `now` does not. So what is in
force is found anew whenever the two have moved apart, and once a minute. A stage that has ended is remembered
for a day, in case the clock is set back.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from operator import attrgetter

from kcast.client.clusters.cluster import Cluster
from kcast.client.clusters.view import View
from kcast.client.events import ClusterChanged

OVERLAP_S = 300.0
AHEAD_S = 24 * 3600.0
LATE_S = 600.0  # and twice the servers' ttl
LOOK_INTERVAL_S = 60.0
_LOOK_INTERVAL_S_MIN = 0.01  # since a time of the wall clock, taken to `now` and back, is not quite the same
_CLOCK_STEP_S = 0.5  # a smaller change of the wall clock can wait for the next look


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A cluster that holds from a time on, until the next stage begins.

    Each is equal to itself alone: to compare two lists of many servers would take long.
    """

    from_unix_s: float
    cluster: Cluster


def index_in_force(line: Sequence[Stage], unix_s: float) -> int:
    """Returns which of these stages is in force: the last that has begun, or the first where none has."""
    return max(0, bisect_right(line, unix_s, key=attrgetter("from_unix_s")) - 1)


class Views:
    """The view in force, and those beside it; `look` keeps all of this as it should be.

    `present` is the view in force. `overlapping` are those in force in lines that end, which publishers serve
    too. `held` are all those in which subscribers want leases. `is_moving` tells whether any of this can
    change, so that `look` is of use.

    `offset_s` makes seconds since 1970 of `now`; `ttl_s` is the longest that a server
    has told, within reason (`kcast.client.session.sessions`).
    """

    def __init__(self, cluster: Cluster) -> None:
        stage = Stage(-inf, cluster)
        self._line = [stage]
        self._former: list[tuple[float, list[Stage]]] = []  # each with the time at which it ends
        self._look_at = -inf
        self._offset_s = inf  # at the last look
        self.present = View(cluster)
        self._views = {stage: self.present}  # of all stages that are held: a view of many servers is costly
        self.held = [self.present]
        self.overlapping: list[View] = []
        self.is_moving = False
        self._made_before: View | None = None

    def adopt(
        self,
        cluster: Cluster,
        now: float,
        offset_s: float,
        ttl_s: float,
        from_unix_s: float | None,
        view: View | None = None,
    ) -> None:
        """Takes a changed list, which holds from a time on, or at once. `look` sees to the rest.

        `view` is the view of it, where somebody had the time to make it.
        """
        self._made_before = view
        if from_unix_s is not None and from_unix_s > now + offset_s:
            until_then = [stage for stage in self._line if stage.from_unix_s < from_unix_s]
            self._line = [*until_then, Stage(from_unix_s, cluster)]
        else:
            # Where the time has come a moment ago, others may go by the former list as long as at a switch.
            end_at = now if from_unix_s is None else from_unix_s - offset_s + LATE_S + 2 * ttl_s
            self._former.append((max(now + OVERLAP_S, end_at), self._line))
            self._line = [Stage(-inf if from_unix_s is None else from_unix_s, cluster)]
        self._look_at = -inf
        self.is_moving = True

    def is_due(self, now: float, offset_s: float) -> bool:
        """Whether `look` may find something new."""
        return now >= self._look_at or abs(offset_s - self._offset_s) > _CLOCK_STEP_S

    def look(self, now: float, offset_s: float, ttl_s: float) -> bool:
        """Sees what is in force and what is held by now; returns whether any of it has changed."""
        self._offset_s, unix_s = offset_s, now + offset_s
        self._former = [(end_at, line) for end_at, line in self._former if end_at > now]
        self._line = self._line[_forgotten(self._line, unix_s) :]
        lines = [self._line, *(line for _, line in self._former)]
        in_force = [line[index_in_force(line, unix_s)] for line in lines]
        spans = [span for line in lines for span in _spans(line, LATE_S + 2 * ttl_s)]
        held = [stage for stage, begins, ends in spans if stage in in_force or begins <= unix_s < ends]

        before = self.present, self.held, self.overlapping
        self._views = self._made(held)
        self.present, *former = (self._views[stage] for stage in in_force)
        self.present.cluster = in_force[0].cluster  # the same servers, but perhaps of a later list
        self.overlapping = [view for view in dict.fromkeys(former) if view is not self.present]
        self.held = list(dict.fromkeys(self._views.values()))
        self.is_moving = len(self._line) > 1 or bool(self._former)

        turns = [turn for stage, *span in spans for turn in (stage.from_unix_s, *span) if turn > unix_s]
        ends = (end_at for end_at, _ in self._former)
        self._look_at = min((now + LOOK_INTERVAL_S, *(turn - offset_s for turn in turns), *ends))
        self._look_at = max(self._look_at, now + _LOOK_INTERVAL_S_MIN)
        return before != (self.present, self.held, self.overlapping)

    def next_timeout(self) -> float | None:
        """Returns when `look` is due again; None where nothing can change."""
        return self._look_at if self.is_moving else None

    def _made(self, held: Iterable[Stage]) -> dict[Stage, View]:
        """Returns the views of these stages. Two that place all topics alike have one."""
        views = self._views
        made: dict[Stage, View] = {}
        for stage in held:
            others = *views.values(), *made.values(), *filter(None, (self._made_before,))
            view = views.get(stage) or _alike(stage.cluster, others)
            made[stage] = view or View(stage.cluster)
        return made


def change_between(old: Set[str], new: Set[str]) -> ClusterChanged:
    """Returns the event that tells which servers another cluster adds and removes, by the names in both."""
    return ClusterChanged(tuple(sorted(new - old)), tuple(sorted(old - new)))


def _spans(line: list[Stage], late_s: float) -> Iterator[tuple[Stage, float, float]]:
    """Yields each stage of a line, with the times from and until which subscribers hold its view."""
    for stage, following in zip_longest(line, line[1:]):
        ends = inf if following is None else following.from_unix_s + late_s
        yield stage, stage.from_unix_s - AHEAD_S, ends


def _forgotten(line: list[Stage], unix_s: float) -> int:
    """Returns how many stages of a line have ended for so long that no clock is set back to them."""
    return sum(following.from_unix_s + AHEAD_S <= unix_s for following in line[1:])


def _alike(cluster: Cluster, views: Iterable[View]) -> View | None:
    """Returns the one of these views that has the same servers, policy and salt, if there is one."""
    for view in views:
        other = view.cluster
        if (other.salt, other.policy) == (cluster.salt, cluster.policy) and other.servers == cluster.servers:
            return view
    return None
