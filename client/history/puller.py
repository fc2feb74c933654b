"""How a log gets what it lacks: with whom it syncs, and what it has asked. Sans-IO. PROTOCOL §9.12.

One sync goes on at a time, with one holder:

| state | sign | next state |
|---|---|---|
| none | a holder that is due has something else | by runs; by parts, where that takes over 64 lines |
| none | the same, and two syncs by runs have brought nothing | by parts |
| none | a block reaches below our floor, and is new; an entry is wanted, or pinned | by parts |
| by runs, by parts | all was said, 256 answers in a row have brought nothing, or 60 s | none |
| by runs, by parts | silence | none; the next holder at once; 30 s later where all were silent |

A holder with which three syncs have brought nothing is due again after 10 min, doubling; one that was silent
three times once it says something again. A question is for a range, and 16 are under way, for 1,024 lines,
which are until they are held:

| state of a range | sign | next state |
|---|---|---|
| waiting | there is room | asked |
| asked | `sent`, and all lines have come | done; from NEXT on waiting |
| asked | `sent`, and fewer have come | told; from NEXT on waiting |
| told | the last line comes | done |
| told | none has come for a quarter of a time-out | waiting |
| asked | `parts` | done; waiting those that differ, and what they do not reach |
| asked | time-out | asked again |
| asked again, twice | time-out, and the holder has said nothing for three | silence |
"""

import heapq
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import NamedTuple

from kcast.client.events import Drop
from kcast.client.history.having import QUIET_S, VAIN_MAX, Having, Holder
from kcast.client.history.host import Held, SyncHost
from kcast.client.history.index import HIGHEST, after
from kcast.client.history.runs import FIRST, LAST, PLACE_CHARS, Place
from kcast.client.history.words import SHORT_BYTES, Ask, Parts, Sent, What, short_of
from kcast.client.messages import base64url

QUESTIONS_MAX = 16
LINES_MAX = 1024  # under way
LINES_FIRST, LINES_LEAST, LINES_MOST = 64, 16, 512  # of one question
CAME_SHARE = 0.75
LATE_S_MIN = 0.03
SLICES_MAX = 64
RUN_CHARS = 14  # that a publisher takes at least
FEW = 2  # entries that are asked for without saying what is there
TRIES = 3
EMPTY_MAX = 5
IDLE_MAX = 256
SYNC_S = 60.0
VAIN_S = 600.0
SILENT_MAX = 3
PAUSE_S = 30.0
LATELY_S = 40.0  # two intervals
ACROSS_S = 10.0
TASKS_MAX, WANTED_ENTRIES = 1024, 4
BURST, QUESTION_S = 8, 1 / 40  # below what holders answer
Q_BYTES = 6


class Task(NamedTuple):
    """A range that is to be asked for; in order of ranges. `entries`: how many the holder has; 0: unknown."""

    lo: bytes
    start: Place
    hi: bytes
    stop: Place
    by_runs: bool
    entries: int = 0


@dataclass(slots=True)
class Question:
    """A task that was asked."""

    q: str
    task: Task
    lines_max: int  # 0: for parts
    asked_at: float
    deadline: float
    tries: int
    is_heard: bool = False
    sent: Sent | None = None  # what was said of it: lines by other servers may come later
    came: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Sync:
    """What goes on with one holder."""

    holder: Holder
    counts: bool  # whether it is in vain if it brings nothing
    tasks: list[Task]
    heard_at: float  # when the holder said something last, or when the sync began
    questions: dict[str, Question] = field(default_factory=dict)
    lines_max: int = LINES_FIRST
    brought: int = 0
    idle: int = 0  # answers since something was brought
    empty: int = 0  # answers in a row of whose lines none came


class Puller:
    """The questions of a log, and what comes back."""

    def __init__(self, host: SyncHost, held: Held, having: Having) -> None:
        self._host = host
        self._held = held
        self._having = having
        self._sync: Sync | None = None
        self._silences = 0  # in a row
        self._paused_until = -inf
        self._last: Holder | None = None  # with whom a sync has ended last
        self._across_at = self._ends_at = -inf
        self._free_at = -inf  # when a question may go, if none has gone before
        self._wanted: list[Task] = []  # while no sync goes on
        self._wanted_of: str | None = None
        self.next_at = inf

    @property
    def is_syncing(self) -> bool:
        """Whether a sync goes on."""
        return self._sync is not None

    def want(
        self, lo: bytes, hi: bytes, now: float, name: str | None = None, entries: int = WANTED_ENTRIES
    ) -> None:
        """Asks for a range in which some entries are missing, or as many as there are (0): a holder, or this
        one. What a sync comes to is not asked for beside it."""
        tasks, questions = (self._sync.tasks, self._sync.questions) if self._sync else (self._wanted, {})
        coming = [*tasks, *(each.task for each in questions.values())]
        if len(tasks) < TASKS_MAX and not any(each.lo <= lo and hi <= each.hi for each in coming):
            heapq.heappush(tasks, Task(lo, FIRST, hi, LAST, by_runs=False, entries=entries))
            self.next_at, self._wanted_of = now, name

    # --- What comes -----------------------------------------------------------------------------------

    def copy_came(self, entry_id: bytes, publisher: str, seq: int, now: float) -> Holder | None:
        """Takes note of a copy in the mailbox; returns who was asked for it, None where nobody was."""
        sync = self._sync
        for question in () if sync is None else sync.questions.values():
            task = question.task
            if not (task.lo <= entry_id < task.hi and task.start <= (publisher, seq) < task.stop):
                continue
            if len(question.came) < question.lines_max and entry_id not in question.came:
                question.came.add(entry_id)
                assert sync is not None
                self._heard(sync, question, now)
                if question.sent is not None and len(question.came) >= question.sent.lines:
                    self._finish(sync, question, question.sent)
                    self.next_at = now
                return sync.holder
        self._host.drops[Drop.UNAWAITED] += 1
        return None

    def took(self, holder: Holder, now: float) -> None:
        """An entry that came as a holder's copy counts."""
        self._having.quiet_until = now + QUIET_S
        holder.forgive()  # a sync may have ended before its parents came, or the disk had it
        if self._sync is not None:
            self._sync.brought += 1
            self._sync.idle = 0

    def hear(self, word: Parts | Sent, now: float) -> None:
        """Takes an answer."""
        sync = self._sync
        question = None if sync is None else sync.questions.get(word.q)
        bounds = [word.next] if isinstance(word, Sent) else [bound for bound, _ in word.parts]
        lines = word.lines if isinstance(word, Sent) else 0
        fits = None, isinstance(word, Sent)
        if sync is None or question is None or (question.sent, question.lines_max > 0) != fits:
            self._host.drops[Drop.UNAWAITED] += 1
        elif not question.task.lo < bounds[0] <= bounds[-1] <= question.task.hi or lines > question.lines_max:
            self._host.drops[Drop.MALFORMED_MESSAGE] += 1
        else:
            self._heard(sync, question, now)
            if bounds[-1] < question.task.hi:
                heapq.heappush(sync.tasks, question.task._replace(lo=bounds[-1]))
            question.came = {each for each in question.came if each < bounds[-1]}
            if isinstance(word, Sent) and len(question.came) < lines:
                sync.holder.word, question.sent, question.lines_max = word.word, word, lines
                question.task = question.task._replace(hi=word.next)
                question.deadline = now + self._late_s(sync)
            else:
                self._finish(sync, question, word)
            self.handle_timeout(now)

    @staticmethod
    def _late_s(sync: Sync) -> float:
        """Returns for how long a line may be late: it may have come by another server."""
        return max(LATE_S_MIN, sync.holder.round_trip.timeout_s / 4)

    def _finish(self, sync: Sync, question: Question, word: Parts | Sent) -> None:
        del sync.questions[question.q]
        sync.idle += 1
        if isinstance(word, Parts):
            self._take_parts(sync, question.task, word)
            return
        came, task = len(question.came), question.task
        sync.holder.word = word.word
        if came < CAME_SHARE * word.lines:
            sync.lines_max = max(LINES_LEAST, sync.lines_max // 2)
        elif word.lines >= sync.lines_max:
            sync.lines_max = min(LINES_MOST, 2 * sync.lines_max)
        if came < word.lines:
            entries = task.entries or word.lines - came
            heapq.heappush(sync.tasks, task._replace(hi=word.next, entries=entries))
        sync.empty = 0 if came or not word.lines else sync.empty + 1

    def _take_parts(self, sync: Sync, task: Task, said: Parts) -> None:
        low = task.lo
        for bound, theirs in said.parts:
            if theirs.entries and theirs != self._held.index.block(low, bound):
                part = task._replace(lo=low, hi=bound, entries=theirs.entries)
                heapq.heappush(sync.tasks, part)
            low = bound

    def _heard(self, sync: Sync, question: Question, now: float) -> None:
        sync.heard_at = now
        if not question.is_heard and question.tries == 1:
            sync.holder.round_trip.observe(now - question.asked_at)
        question.is_heard = True
        wait_s = sync.holder.round_trip.timeout_s if question.sent is None else self._late_s(sync)
        question.deadline = max(question.deadline, now + wait_s)

    # --- What is due ----------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        """Asks again, goes on, or begins a sync, where it is time."""
        sync = self._sync
        if sync is not None:
            for question in [each for each in sync.questions.values() if each.deadline <= now]:
                if question.sent is not None:
                    self._finish(sync, question, question.sent)
                    continue
                silent_s = TRIES * sync.holder.round_trip.timeout_s
                if question.tries >= TRIES and now >= sync.heard_at + silent_s:
                    sync.empty = EMPTY_MAX
                    break
                del sync.questions[question.q]
                self._ask(sync, question.task, now, question.q, question.tries + 1)
            is_over = sync.idle >= IDLE_MAX or now >= self._ends_at
            if sync.empty >= EMPTY_MAX:
                self._end_silent(sync, now)
            elif is_over or not (sync.tasks or sync.questions):
                self._end(sync, now)
        if self._sync is None:
            self._ends_at = now + SYNC_S
            self._begin(now)
        if self._sync is not None:
            self._go_on(self._sync, now)
        self._set_next(now)

    def _lines_free(self, sync: Sync) -> int:
        """Returns how many lines more may be asked for: what has come is under way until it is held."""
        coming = sum(each.lines_max - len(each.came) for each in sync.questions.values())
        return LINES_MAX - coming - self._held.copies_waiting

    def _go_on(self, sync: Sync, now: float) -> None:
        most = 1 if sync.holder.word == "-" else QUESTIONS_MAX
        while sync.tasks and len(sync.questions) < most and now >= self._free_at:
            free_min = sync.lines_max if sync.questions else LINES_LEAST
            if not sync.tasks[0].entries and self._lines_free(sync) < free_min:
                break  # what is known to be missing may be what others wait for
            self._ask(sync, heapq.heappop(sync.tasks), now)

    def _ask(self, sync: Sync, task: Task, now: float, q: str | None = None, tries: int = 1) -> None:
        q = base64url.encode(self._host.rng.randbytes(Q_BYTES)) if q is None else q
        holder, lines = sync.holder, min(sync.lines_max, max(LINES_LEAST, self._lines_free(sync)))
        lines = min(lines, task.entries or lines)
        word = Ask(q, self._host.name, holder.word, task.lo, task.hi, lines)
        asked: Ask | What = word
        room = self._host.room_bytes - len(bytes(word))
        if task.by_runs:
            room -= 2 * PLACE_CHARS
            start, stop, runs = next(self._held.runs.slices(task.lo, room, task.start, task.stop))
            asked = word._replace(start=start, stop=stop, runs=runs)
            if stop < task.stop:
                heapq.heappush(sync.tasks, task._replace(start=stop))
            task = task._replace(stop=stop)
        else:
            others = {each for each in self._held.not_held if task.lo <= each < task.hi}
            count = self._held.index.count(task.lo, task.hi) + len(others)
            if count * SHORT_BYTES * 4 // 3 <= room:
                ids = [*self._held.index.ids(task.lo, task.hi), *others]
                asked = word._replace(shorts=frozenset(short_of(each, q) for each in ids))
            elif 0 < task.entries <= FEW:
                asked = word._replace(shorts=frozenset())
            else:
                asked, lines = What(q, self._host.name, holder.word, task.lo, task.hi), 0
        timeout_s = holder.round_trip.timeout_s * (1, 1, 2)[min(tries, TRIES) - 1]
        sync.questions[q] = Question(q, task, lines, now, now + timeout_s, tries)
        self._free_at = max(self._free_at, now - BURST * QUESTION_S) + QUESTION_S
        self._host.say(holder.name, asked, now)

    # --- Syncs ----------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        holders = self._having.holders
        if self._wanted and now >= self._paused_until:
            tasks, self._wanted = self._wanted, []
            holder = holders.get(self._wanted_of or "") or self._draw(list(holders.values()), now)
            if holder is not None:
                self._sync = Sync(holder, False, tasks, now)
                return
        due = [each for each in self._having.fresh.values() if now >= self._due_at(each)]
        holder = self._draw(due, now)
        if holder is None:
            return
        difference = self._having.compare(holder, now)
        lo = difference.lo
        is_first = self._having.is_first(holder)
        if is_first:  # also for what is younger, and what reaches below our floor
            lo = min(filter(None, (lo, holder.bounds[0], *(difference.across or ()))))
        elif now < holder.again_at:
            return  # it has fewer
        if lo is not None:
            lo = max(lo, self._held.floor)
            by_runs = holder.vain < VAIN_MAX and self._fits(lo)
            task = Task(lo, FIRST, HIGHEST, LAST, by_runs)
            self._sync = Sync(holder, not is_first, [task], now)
        elif difference.across is not None and now >= self._across_at:
            self._across_at, holder.looked_at = now + ACROSS_S, difference.both
            low, high = difference.across
            task = Task(low, FIRST, high, LAST, by_runs=False)
            self._sync = Sync(holder, False, [task], now)
        elif difference.pins:
            holder.pins = holder.have.pinned, difference.pins
            tasks = [Task(each, FIRST, after(each), LAST, False, entries=1) for each in difference.pins]
            self._sync = Sync(holder, False, tasks, now)
        self._having.fresh.pop(holder.name, None)

    def _due_at(self, holder: Holder) -> float:
        due_at = max(holder.due_at, self._paused_until if holder.silences else -inf)
        return due_at if self._having.is_first(holder) else max(due_at, holder.again_at)

    def _draw(self, holders: list[Holder], now: float) -> Holder | None:
        """Returns one of some holders: one that a key proves, if any; another than the last; that answered
        before; that was silent the least; that was heard just now. For anybody can say that many are there,
        and who gives a little with each answer is to keep nobody from asking others."""

        def doubt(each: Holder) -> tuple[bool, bool, bool, int, bool, float]:
            is_old, is_last = each.heard_at < now - LATELY_S, each is self._last
            is_new, draw = each.word == "-", self._host.rng.random()
            return each.sender is None, is_last, is_new, each.silences, is_old, draw

        return min(holders, key=doubt, default=None)

    def _fits(self, lo: bytes) -> bool:
        """Whether our runs since an id fit into 64 lines."""
        runs, room = self._held.runs, self._host.room_bytes - 2 * 60
        if runs.heard_since(lo) * RUN_CHARS > SLICES_MAX * room:
            return False
        return sum(1 for _ in islice(runs.slices(lo, room), SLICES_MAX + 1)) <= SLICES_MAX

    def _end_silent(self, sync: Sync, now: float) -> None:
        holder, fresh = sync.holder, self._having.fresh
        holder.silences += 1
        holder.looked_at = holder.pins = None
        self._silences += 1
        if holder.silences < SILENT_MAX:
            fresh[holder.name] = holder  # else once it says something again
        if self._silences >= SILENT_MAX and all(each.silences for each in fresh.values()):
            self._silences, self._paused_until = 0, now + PAUSE_S
            self._having.are_silent = all(each.silences for each in self._having.holders.values())
        self._over(sync, now)

    def _end(self, sync: Sync, now: float) -> None:
        holder = sync.holder
        self._silences = holder.silences = 0
        self._having.are_silent = False
        holder.again_at = -inf
        if sync.brought or not self._having.is_new:
            self._having.opened_s = None
        if sync.brought:
            self._having.fresh[holder.name] = holder
            holder.forgive()
        elif sync.counts:
            holder.vain += 1
            if holder.vain > VAIN_MAX:
                holder.again_at = now + VAIN_S * 2.0 ** (holder.vain - VAIN_MAX - 1)
        self._over(sync, now)

    def _over(self, sync: Sync, now: float) -> None:
        self._sync, self._last = None, sync.holder
        if sync.brought:
            self._having.quiet_until = now
            self._having.hurry(now, anew=True)

    def _set_next(self, now: float) -> None:
        sync = self._sync
        if sync is not None:
            self.next_at = min((each.deadline for each in sync.questions.values()), default=inf)
            if sync.tasks and len(sync.questions) < QUESTIONS_MAX and self._free_at > now:
                self.next_at = min(self.next_at, self._free_at)
            return
        due = min((self._due_at(each) for each in self._having.fresh.values()), default=inf)
        self.next_at = min(due, max(now, self._paused_until)) if self._wanted else due
