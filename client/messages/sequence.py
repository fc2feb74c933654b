"""One publisher's numbers on one topic: which are missing, and which are believed. Sans-IO. PROTOCOL §9.4.

The first number is the baseline. Until two more have followed it, three in a row that are far off take its
place: it may be made up. A sequence goes on by the number that comes next. Any other number above it is a
*jump*: messages between may be lost or late, or somebody has made the number up. So numbers beyond are
kept in runs, beside the sequence, and a run is believed only if

- it has three numbers in a row, so that two successors confirm the first, and
- neither the sequence nor a run below has gone on, once its late numbers had time to come (the settling time)
  and the next one had, too. Where something below goes on, the run is forgotten.

What was skipped by a run that is believed is missing: it is reported, and withdrawn when it comes. A run that
is far off, by more than 1000 forward or backward, is a new start: it takes longer to be believed, and nothing
is missing before it. So a number that nobody continues changes nothing, and where the publisher itself goes
on, neither does a whole run of them.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

SETTLING_S = 2.0
JUMP_MAX = 1000
TOPICS_MAX = 65_536  # whose last number is remembered
RUNS_MAX = 64  # of missing numbers; and of numbers that are not believed yet
IN_A_ROW = 3
GOING_ON_S_MIN = 0.5  # the time that a sequence has to go on, after late numbers had time to come; longer ...
GOING_ON_PERIODS = 3.5  # ... where the publisher takes longer between messages, of which two may be lost
WAIT_S_MAX = 60.0
RESTART_S = 10.0


@dataclass(slots=True)
class _Missing:
    first: int
    last: int
    due_at: float
    reported: bool = False


@dataclass(slots=True)
class _Run:
    """Numbers in a row beyond the sequence, that are not believed yet."""

    first: int
    last: int
    began_at: float
    due_at: float  # when it may be believed
    went_on_at: float

    @property
    def is_confirmed(self) -> bool:
        return self.last - self.first + 1 >= IN_A_ROW


class Sequence:
    """The sequence, what is missing of it, and the runs beside it.

    While there are no runs, and no gaps to report (`has_unreported`), `settle` has nothing to do. `looked_at`
    is for its owner's timer.
    """

    def __init__(self, seq: int, now: float, settling_s: float = SETTLING_S) -> None:
        self.looked_at: float | None = None
        self.missing: list[_Missing] = []
        self.runs: list[_Run] = []  # by `first`; none touches another
        self._baseline = seq
        self._highest = seq
        self.has_unreported = False
        self._settling_s = settling_s
        self._runs_since = inf  # when the first of the runs began, or before
        self._went_on_at = now
        self._period_s = 0.0

    def heard(self, seq: int, now: float) -> bool:
        """Takes note of a number; returns whether it had been reported missing."""
        if seq == self._highest + 1:
            self._highest = seq
            since_s, self._period_s = now - self._went_on_at, self._period_s / 2
            if since_s > self._period_s:
                self._period_s = since_s
            self._went_on_at = now
            if self.runs:
                self._absorb()
                self._forget_beyond(None, now)
        elif seq > self._highest or seq < self._highest - JUMP_MAX:
            self._put_beside(seq, now)
            if self._highest - self._baseline + 1 < IN_A_ROW:
                self._look_for_a_baseline()
        elif self.missing:
            return self._fill(seq)
        return False

    def heard_run(self, first: int, last: int, now: float) -> bool:
        """Takes note of numbers in a row, as `heard` does of each. Returns False, and does nothing, unless
        they are the next ones, or a run beyond, and nothing else follows from them."""
        runs, highest = self.runs, self._highest
        if runs and self._runs_since < now - self._settling_s:
            return False  # some may have to be forgotten, which matters to what is joined with what
        if first != highest + 1:
            return self._put_run_beside(first, last, now)
        if runs and runs[0].first <= last:
            return False
        since_s, period_s = now - self._went_on_at, self._period_s / 2
        self._period_s = max(since_s, period_s) / 2 ** min(last - first, 1000)
        self._highest, self._went_on_at = last, now
        if runs:
            self._absorb()
        return True

    def next_due(self) -> float | None:
        """Returns when `settle` has something to do; None for never."""
        if not self.runs and not self.has_unreported:
            return None
        due = [each.due_at for each in self.missing if not each.reported]
        if (run := self._next_to_believe()) is not None:
            due.append(run.due_at)
        return min(due, default=None)

    def settle(self, now: float) -> Iterator[tuple[int, int]]:
        """Yields the first and the last number of each gap that is certain by now, each once."""
        while (run := self._next_to_believe()) is not None and run.due_at <= now:
            self._believe(run)
        for each in self.missing:
            if each.due_at <= now and not each.reported:
                each.reported = True
                yield each.first, each.last
        self.has_unreported = not all(each.reported for each in self.missing)

    # --- Runs beside the sequence --------------------------------------------------------------------

    def _put_beside(self, seq: int, now: float) -> None:
        index, before, after = self._neighbours(seq)
        if before is not None and seq <= before.last:
            return
        if before is not None and seq == before.last + 1:
            self._extend(before, seq, after, now)
        elif after is not None and after.first == seq + 1:
            after.first = seq
            self._forget_beyond(after, now)
        else:
            self._begin_run(index, seq, seq, now)

    def _put_run_beside(self, first: int, last: int, now: float) -> bool:
        """Puts numbers in a row beside a sequence whose baseline is confirmed. Returns False, and does
        nothing, unless they extend a run at its end, or begin one that touches none."""
        is_beyond = self._highest < first and last <= self._highest + JUMP_MAX
        if not is_beyond or self._highest - self._baseline + 1 < IN_A_ROW:
            return False
        index, before, after = self._neighbours(first)
        if (before is not None and first <= before.last) or (after is not None and after.first <= last):
            return False
        if before is not None and first == before.last + 1:
            self._extend(before, last, after, now)
            return True
        if (after is not None and after.first == last + 1) or len(self.runs) >= RUNS_MAX:
            return False
        self._begin_run(index, first, last, now)
        return True

    def _neighbours(self, seq: int) -> tuple[int, _Run | None, _Run | None]:
        """Returns the place of a number among the runs, the run that begins before it or with it, and the one
        that begins behind it."""
        runs = self.runs
        if not runs or runs[-1].first <= seq:  # as nearly always
            return len(runs), runs[-1] if runs else None, None
        index = bisect_right(runs, seq, key=lambda run: run.first)
        return index, runs[index - 1] if index else None, runs[index]

    def _extend(self, run: _Run, last: int, after: _Run | None, now: float) -> None:
        run.last, run.went_on_at = last, now
        if after is not None and after.first == last + 1:
            self._join(run, after)
        self._forget_beyond(run, now)

    def _begin_run(self, index: int, first: int, last: int, now: float) -> None:
        run = _Run(first, last, now, now + self._wait_s(first), now)
        self.runs.insert(index, run)
        self._runs_since = min(self._runs_since, now) if len(self.runs) > 1 else now
        if len(self.runs) > RUNS_MAX:
            self._make_room()
        self._forget_beyond(run, now)

    def _look_for_a_baseline(self) -> None:
        """Believes a run that is far off at once, since nobody has confirmed the baseline."""
        run = next((run for run in self.runs if run.is_confirmed and not self._is_near(run.first)), None)
        if run is not None:
            self.runs.remove(run)
            self._believe(run)

    def _wait_s(self, seq: int) -> float:
        going_on_s = max(GOING_ON_S_MIN, GOING_ON_PERIODS * self._period_s)
        wait_s = min(self._settling_s + going_on_s, WAIT_S_MAX)
        return wait_s if self._is_near(seq) else max(wait_s, RESTART_S)

    def _is_near(self, seq: int) -> bool:
        return self._highest < seq <= self._highest + JUMP_MAX

    def _join(self, run: _Run, after: _Run) -> None:
        run.last = after.last
        run.began_at, run.due_at = min(run.began_at, after.began_at), min(run.due_at, after.due_at)
        self.runs.remove(after)

    def _absorb(self) -> None:
        """Takes the run that the sequence has reached."""
        for run in self.runs:
            if run.first == self._highest + 1:
                self._highest = run.last
                self.runs.remove(run)
                return

    def _forget_beyond(self, run: _Run | None, now: float) -> None:
        """Forgets what is beyond the sequence (None), or beyond a run in its reach, since that goes on; but
        not what came lately, since this may be late."""
        late = now - self._settling_s
        if self._runs_since < late and (run is None or self._is_near(run.first)):
            first = 0 if run is None else run.first
            self.runs = [
                each
                for each in self.runs
                if each.began_at >= late or (each.first <= first and self._is_near(each.first))
            ]
            self._runs_since = min([each.began_at for each in self.runs], default=inf)

    def _next_to_believe(self) -> _Run | None:
        """Returns the run that is believed next: of those in reach the lowest, else the first that has begun
        elsewhere."""
        confirmed = [run for run in self.runs if run.is_confirmed]
        near = next((run for run in confirmed if self._is_near(run.first)), None)
        return near or min(confirmed, key=lambda run: run.began_at, default=None)

    def _believe(self, believed: _Run) -> None:
        self._went_on_at = believed.went_on_at
        if not self._is_near(believed.first):
            self._baseline, self._highest = believed.first, believed.last
            self.missing.clear()
            self.runs = [run for run in self.runs if self._is_near(run.first)]
            return
        while self._highest < believed.last:
            run = next(run for run in self.runs if run.first > self._highest)
            due_at = max(run.began_at + self._settling_s, believed.due_at)
            self.missing.append(_Missing(self._highest + 1, run.first - 1, due_at))
            self._highest = run.last
            self.runs.remove(run)
        self.has_unreported = True
        del self.missing[:-RUNS_MAX]

    def _make_room(self) -> None:
        """Believes a run before its time, where there are too many; or else forgets the farthest number that
        nobody has continued."""
        near = next((run for run in self.runs if run.is_confirmed and self._is_near(run.first)), None)
        if near is not None:
            self._believe(near)
            return
        single = [run for run in self.runs if run.first == run.last] or self.runs
        farthest = max(single[0], single[-1], key=lambda run: abs(run.first - self._highest))
        self.runs = [run for run in self.runs if run is not farthest]

    def _fill(self, seq: int) -> bool:
        """Takes one number out of the missing ones; returns whether it had been reported."""
        for index, each in enumerate(self.missing):
            if each.first <= seq <= each.last:
                halves = replace(each, last=seq - 1), replace(each, first=seq + 1)
                self.missing[index : index + 1] = [half for half in halves if half.first <= half.last]
                del self.missing[:-RUNS_MAX]
                return each.reported
        return False


class Numbering:
    """The last number that a publisher has used on each topic; the topics used longest ago are forgotten
    first.

    A topic that was forgotten must not begin at 1 again, since subscribers would take that for old messages.
    It continues above all numbers that were ever forgotten, with a jump that subscribers take for a new start
    and not for a gap.
    """

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._last: OrderedDict[bytes, int] = OrderedDict()
        self._forgotten = 0  # the highest number of any topic that was forgotten

    def __len__(self) -> int:
        return len(self._last)

    def next(self, topic: bytes) -> int:
        """Returns the number for the topic's next message. It counts as used only after `use`."""
        last = self._last.get(topic)
        if last is not None:
            return last + 1
        return self._forgotten + JUMP_MAX + 1 if self._forgotten else 1

    def use(self, topic: bytes, seq: int) -> None:
        """Notes the topic's last number."""
        self._last[topic] = seq
        self._last.move_to_end(topic)
        if len(self._last) > self._topics_max:
            self._forgotten = max(self._forgotten, self._last.popitem(last=False)[1])
