"""client/clusters/views.py against its rule written down literally, under clocks that are set, and
lists that replace each other. PROTOCOL §10.3."""

from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from random import Random

from kcast.client.cluster import Cluster, lab
from kcast.client.clusters.views import AHEAD_S, LATE_S, OVERLAP_S, Views
from tests.support.forms import Seeds

TTL_S = 60.0
EDGE_S = 1.0  # what is due is done within a moment: no look is taken at the moment itself
START_UNIX_S = 1_800_000_000.0

Stages = list[tuple[float, bytes]]  # from when each list holds, which its salt stands for


def cluster_of(salt: bytes) -> Cluster:
    return replace(lab([("192.0.2.1", 7400)]), salt=salt)


@dataclass
class Model:
    """What is known, and since when: each line in full, and when it ends."""

    line: Stages
    former: list[tuple[float, Stages]] = field(default_factory=list)

    def adopt(self, salt: bytes, now: float, offset_s: float, from_unix_s: float | None) -> None:
        if from_unix_s is not None and from_unix_s > now + offset_s:
            self.line = [stage for stage in self.line if stage[0] < from_unix_s]
            self.line.append((from_unix_s, salt))
            return
        end_at = now + OVERLAP_S
        if from_unix_s is not None:
            end_at = max(end_at, from_unix_s - offset_s + LATE_S + 2 * TTL_S)
        self.former.append((end_at, self.line))
        self.line = [(-inf if from_unix_s is None else from_unix_s, salt)]

    def in_force(self, line: Stages, unix_s: float) -> bytes:
        return [salt for at, salt in line if at <= unix_s or at == line[0][0]][-1]

    def held(self, line: Stages, unix_s: float) -> set[bytes]:
        ends = [*(at for at, _ in line[1:]), inf]
        around = {
            salt
            for (at, salt), end in zip(line, ends, strict=True)
            if at - AHEAD_S <= unix_s < end + LATE_S + 2 * TTL_S
        }
        return around | {self.in_force(line, unix_s)}

    def edges(self, now: float, offset_s: float) -> list[float]:
        """The moments at which anything changes, on the clock of `now`."""
        lines = [self.line, *(line for _, line in self.former)]
        times = [at for line in lines for at, _ in line]
        shifts = (0.0, -AHEAD_S, LATE_S + 2 * TTL_S)
        return [*(at + by - offset_s for at in times for by in shifts), *(end for end, _ in self.former)]

    def lines_at(self, now: float) -> list[Stages]:
        return [self.line, *(line for end, line in self.former if end > now)]


def test_views_are_those_of_the_rule(seeds: Seeds) -> None:
    for seed in seeds(12, 60):
        assert_views_are_those_of_the_rule(Random(seed))


def assert_views_are_those_of_the_rule(rng: Random) -> None:
    names = (b"%d" % number for number in count())
    now, offset_s = 5000.0, START_UNIX_S - 5000.0
    first = next(names)
    model, views = Model([(-inf, first)]), Views(cluster_of(first))
    newest_unix_s, checks = START_UNIX_S, 0
    for _ in range(300):
        now += rng.choice((1.0, 60.0, 600.0, 4000.0)) * rng.random()
        what = rng.random()
        if what < 0.1:
            # Set back by less than a day: what has ended for longer is forgotten.
            error_s = max(rng.uniform(-9, 9) * 3600, newest_unix_s - 20 * 3600 - now - offset_s)
            offset_s += error_s
        if what > 0.95:
            unix_s = now + offset_s
            from_unix_s = rng.choice((None, float(int(unix_s + rng.uniform(-2000, 40 * 3600)))))
            new = next(names)
            model.adopt(new, now, offset_s, from_unix_s)
            views.adopt(cluster_of(new), now, offset_s, TTL_S, from_unix_s)
        newest_unix_s = max(newest_unix_s, now + offset_s)
        if views.is_moving and views.is_due(now, offset_s):
            views.look(now, offset_s, TTL_S)
        if any(abs(edge - now) < EDGE_S for edge in model.edges(now, offset_s)):
            continue
        checks += 1
        lines = model.lines_at(now)
        unix_s = now + offset_s
        in_force = [model.in_force(line, unix_s) for line in lines]
        assert views.present.cluster.salt == in_force[0]
        assert {view.cluster.salt for view in views.overlapping} == {*in_force[1:]} - {in_force[0]}
        held = set().union(*(model.held(line, unix_s) for line in lines))
        assert {view.cluster.salt for view in views.held} == held
        assert len(views.held) == len(held)
        due_at = views.next_timeout()
        assert due_at is None or now < due_at <= now + 60.0
    assert checks > 100
