"""Who answers: a worker's requests, what runs, and the answers that it keeps. Sans-IO. PROTOCOL §9.11.

A request, by its q and its caller:

| state | sign | next state |
|---|---|---|
| unknown | `?`, and there is room | running |
| unknown | `?`, and it leaves, has no such method, is over the limit or busy | unknown; it is declined |
| running | `?` again, 30 ms, each second | running; it says `~` |
| running | its handler returns, or fails | answered |
| running | its time is over | void: nothing is answered |
| answered | `?` again | answered; it says so again |
| answered | `>` | answered; it sends more parts |
| answered, void | 60 s or twice its time, or 16 MiB | unknown |
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import ceil, inf

from kcast.client.events import Delivery, Drop
from kcast.client.layers.host import Due, Host, say
from kcast.client.layers.limit import FixedWindow, Windows
from kcast.client.layers.members import Herald, Here, MemberJoined, MemberLeft
from kcast.client.layers.parts import ANSWER_BYTES_MAX, WINDOW_PARTS, cut
from kcast.client.layers.words import (
    Answer,
    Asked,
    Declined,
    More,
    Question,
    Working,
    is_code,
    layer_topic,
    parse_word,
)

WORKING_AFTER_S = 0.03
WORKING_INTERVAL_S = 1.0
KEPT_S = 60.0
KEPT_BYTES_MAX = 16 * 1024 * 1024
JOB_BYTES = 512  # what a request takes beside its answer
LEAVE_S = 5.0
TEXT_BYTES_MAX = 300
REPEATED_MAX = 4  # how often an answer is sent on average, and so many words more
WORDS_MORE = 64

_Key = tuple[str | None, str, str]


@dataclass(slots=True, eq=False)
class Job:
    """A request that runs, or has run. `until` is when its time is over.

    `stop` is called once its time is over: whoever runs it sets that. What cannot be stopped holds its place
    until it returns.
    """

    key: _Key
    topic: bytes
    method: str
    payload: bytes
    sender: str | None
    until: float
    forget_at: float
    is_running: bool = True
    holds_place: bool = True
    parts: Sequence[bytes] = ()
    declined: Declined | None = None
    stop: Callable[[], object] | None = None
    bytes_kept: int = JOB_BYTES
    words_left: int = WORDS_MORE  # that may be said when it has ended
    at: float = inf  # when to say that it runs, or to stop it


class Service:
    """A worker of a topic: it takes requests for its methods. A layer.

    `run` is called with each job that begins; `finish` or `fail` is to be called with it then. `concurrency`
    is the number of jobs that run at a time. `name` is that of its mailbox.
    """

    def __init__(
        self,
        host: Host,
        topic: bytes,
        name: str,
        methods: Collection[str],
        run: Callable[[Job], object],
        *,
        concurrency: int,
        limit: FixedWindow | None = None,
        info: str = "",
    ) -> None:
        self._host = host
        self._topic = topic
        self.name = name
        self._methods = tuple(methods)
        self._run = run
        self._concurrency = concurrency
        self._windows = None if limit is None else Windows(limit)
        self._here = Here(host, topic, _ignore)
        self._herald = Herald(host, self._here.topic, self._here.roster, name, self._methods, info)
        self.topics = self._here.topic, layer_topic(topic, name.encode())
        self._is_begun = False
        self._jobs: OrderedDict[_Key, Job] = OrderedDict()  # that were read first, first
        self._bytes_kept = 0
        self.running = 0
        self._due: Due[Job] = Due()
        self._leaves_at = inf

    @property
    def next_at(self) -> float:
        """When `handle_timeout` has something to do."""
        at = min(self._due.next_at, self._here.next_at, self._herald.next_at, self._leaves_at)
        return -inf if self.is_over else at

    @property
    def is_over(self) -> bool:
        """Whether it has left, and nothing runs any more, or has been given up."""
        return self._leaves_at == -inf or (self._leaves_at < inf and not self.running)

    def __len__(self) -> int:
        return len(self._jobs)

    # --- A layer's ------------------------------------------------------------------------------------

    def hear(self, delivery: Delivery, now: float) -> None:
        """Takes presence, and requests."""
        if delivery.topic == self._here.topic:
            said = self._here.hear(delivery, now)
            if isinstance(said, Question):
                self._herald.asked(said, now)
            return
        word = None if delivery.publisher is None else parse_word(delivery.payload)
        match word:
            case None:
                self._host.drops[Drop.MALFORMED_MESSAGE] += 1
            case Asked():
                self._forget_old(now)
                self._take(word, delivery, now)
            case More():
                job = self._jobs.get((delivery.sender, word.member, word.q))
                if job is not None:
                    self._answer(job, word.part, now)
            case _:
                self._host.drops[Drop.UNAWAITED] += 1

    def handle_timeout(self, now: float) -> None:
        """Says that it is there and works, and stops what has no time left."""
        if not self._is_begun and self._here.look(now):
            self._is_begun = True
            self._herald.begin(now)
        self._here.handle_timeout(now)
        self._herald.handle_timeout(now)
        while (job := self._due.pop(now)) is not None:
            if now >= job.until:
                self._stop(job)
            else:
                self._say_working(job, now)
                self._due.put(job, min(now + WORKING_INTERVAL_S, job.until))
        if now >= self._leaves_at:
            self.stop_all()
            self._leaves_at = -inf

    def end(self, make_error: Callable[[], Exception]) -> None:
        """Stops all that runs."""
        self.stop_all()

    def leave(self, now: float) -> None:
        """Takes no more requests; what runs has 5 s."""
        if self._leaves_at == inf:
            self._herald.leave(now)
            self._leaves_at = now + LEAVE_S

    def stop_all(self) -> None:
        """Stops all that runs; nothing is answered."""
        for job in list(self._jobs.values()):
            if job.is_running:
                self._stop(job)

    # --- Requests -------------------------------------------------------------------------------------

    def _take(self, asked: Asked, delivery: Delivery, now: float) -> None:
        key = delivery.sender, asked.member, asked.q
        job = self._jobs.get(key)
        if job is not None:
            if job.is_running:
                self._say_working(job, now)
            else:
                self._answer(job, 0, now)
            return
        refused = self._refusal(asked, delivery, now)
        if refused is not None:
            self._say(asked.member, Declined(asked.q, self.name, *refused), now)
            return
        left_s = asked.ms / 1000
        until, forget_at = now + left_s, now + max(KEPT_S, 2 * left_s)
        job = Job(key, self._topic, asked.method, asked.payload, delivery.sender, until, forget_at)
        self._jobs[key] = job
        self._bytes_kept += job.bytes_kept
        self.running += 1
        self._due.put(job, min(now + WORKING_AFTER_S, until))
        self._run(job)

    def _refusal(self, asked: Asked, delivery: Delivery, now: float) -> tuple[str, str] | None:
        if self._leaves_at < inf:
            return "leaving", ""
        if asked.method not in self._methods:
            return "method", ""
        if self.running >= self._concurrency:
            return "busy", ""
        if self._windows is not None:
            over = self._windows.take(delivery.sender or delivery.publisher or "", len(asked.payload), now)
            if over is not None:
                return "limited", str(ceil(over.wait_s))
        return None

    def may_begin(self, job: Job, now: float) -> bool:
        """Whether a job that waited for a thread may still begin."""
        return job.is_running and now < job.until

    def finish(self, job: Job, payload: bytes, now: float) -> None:
        """Answers a job, if its time is not over. It is to be called also then."""
        if len(payload) > ANSWER_BYTES_MAX:
            self.fail(job, "size", f"the answer has {len(payload)} bytes", now)
        elif self._has_ended(job, now):
            job.parts = cut(payload)
            job.words_left += REPEATED_MAX * len(job.parts)
            job.bytes_kept += len(payload)
            self._bytes_kept += len(payload)
            self._forget_old(now)
            self._answer(job, 0, now)

    def fail(self, job: Job, code: str, text: str, now: float) -> None:
        """Declines a job that has run; a code that cannot be said is `failed`."""
        if self._has_ended(job, now):
            shown = text.encode("utf-8", "replace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
            _, _, q = job.key
            job.declined = Declined(q, self.name, code if is_code(code) else "failed", shown)
            self._answer(job, 0, now)

    def _has_ended(self, job: Job, now: float) -> bool:
        """Returns whether a job ran until now, and has time left to be answered."""
        self._free_place(job)
        if not job.is_running:
            return False
        if now >= job.until:
            self._stop(job)
            return False
        self._end(job)
        return True

    def _stop(self, job: Job) -> None:
        stop = job.stop
        self._end(job)
        if stop is not None:
            self._free_place(job)
            stop()

    def _end(self, job: Job) -> None:
        job.is_running = False
        job.payload, job.stop, job.at = b"", None, inf

    def _free_place(self, job: Job) -> None:
        if job.holds_place:
            job.holds_place = False
            self.running -= 1

    def _forget_old(self, now: float) -> None:
        """Forgets answers whose time is over, and the oldest ones of too many. One that is to be kept
        for long keeps those behind it, within the bound."""
        kept = self._bytes_kept
        oldest = next(iter(self._jobs.values()), None)
        if kept <= KEPT_BYTES_MAX and (oldest is None or now < oldest.forget_at):
            return
        old: list[_Key] = []
        for key, job in self._jobs.items():
            if now < job.forget_at and kept <= KEPT_BYTES_MAX:
                break
            if not job.is_running:
                old.append(key)
                kept -= job.bytes_kept
        for key in old:
            del self._jobs[key]
        self._bytes_kept = kept

    # --- What it says ---------------------------------------------------------------------------------

    def _answer(self, job: Job, first: int, now: float) -> None:
        _, member, q = job.key
        payloads = job.parts[first : first + WINDOW_PARTS]
        job.words_left -= max(1, len(payloads))
        if job.words_left < 0:  # nobody may have a worker say ever more
            self._host.drops[Drop.LIMITED] += 1
        elif job.declined is not None:
            self._say(member, job.declined, now)
        else:
            for part, payload in enumerate(payloads, first):
                self._say(member, Answer(q, self.name, part, len(job.parts), payload), now)

    def _say_working(self, job: Job, now: float) -> None:
        _, member, q = job.key
        self._say(member, Working(q, self.name), now)

    def _say(self, member: str, word: Answer | Declined | Working, now: float) -> None:
        say(self._host, layer_topic(self._topic, member.encode()), word, now)


def _ignore(change: MemberJoined | MemberLeft) -> None:
    """A worker does not care who is there; it only counts them."""
