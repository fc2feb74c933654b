"""client/layers/service.py: what a worker runs, answers, refuses and keeps."""

from typing import Any

import pytest

from kcast.client.errors import ClientClosed
from kcast.client.events import Drop
from kcast.client.layers import service
from kcast.client.layers.limit import FixedWindow
from kcast.client.layers.parts import ANSWER_BYTES_MAX, WINDOW_PARTS
from kcast.client.layers.service import KEPT_BYTES_MAX, Job, Service
from kcast.client.layers.words import Answer, Asked, Declined, Leaving, More, Present, Question, Working
from tests.support.layer_lab import ADA, BOB, HERE, ME, TOPIC, FakeHost, advance, heard

MAILBOX = b"{calc}/" + ME.encode()


class Lab:
    """A worker whose handlers run by hand."""

    def __init__(self, concurrency: int = 2, **options: Any) -> None:
        self.host, self.now = FakeHost(), 0.0
        self.jobs: list[Job] = []
        self.stopped: list[Job] = []
        self.service = Service(
            self.host, TOPIC, ME, ("", "add"), self._run, concurrency=concurrency, **options
        )
        self.service.handle_timeout(0.0)
        self.host.take()

    def _run(self, job: Job) -> None:
        self.jobs.append(job)
        job.stop = lambda: self.stopped.append(job)

    def ask(self, q: str, ms: int = 5000, method: str = "add", member: str = ADA, **options: Any) -> None:
        self.service.hear(heard(MAILBOX, Asked(q, member, ms, method, b"1 2"), **options), self.now)

    def go_to(self, now: float) -> None:
        advance(self.service, now)
        self.now = now

    def said(self) -> list[Any]:
        """What was said to callers."""
        return [word for where, word in self.host.take() if where != "here"]


def test_a_q_runs_once_and_its_answer_is_kept() -> None:
    lab = Lab()
    lab.ask("qqqqqqq1")
    assert lab.said() == [] and len(lab.jobs) == 1
    lab.ask("qqqqqqq1")
    assert lab.said() == [Working("qqqqqqq1", ME)]
    for at, words in (0.02, 0), (0.03, 1), (1.02, 0), (1.04, 1), (2.05, 1):
        lab.go_to(at)
        assert lab.said() == [Working("qqqqqqq1", ME)] * words, at
    lab.service.finish(lab.jobs[0], b"3", lab.now)
    for _ in range(2):
        assert lab.said() == [Answer("qqqqqqq1", ME, 0, 1, b"3")]
        lab.ask("qqqqqqq1")
    lab.said()
    lab.ask("qqqqqqq1", member=BOB)
    assert len(lab.jobs) == 2, "a q is its caller's"
    lab.go_to(61.0)
    lab.ask("qqqqqqq1")
    assert len(lab.jobs) == 3, "60 s are over"


def test_what_takes_long_is_kept_for_twice_as_long() -> None:
    lab = Lab()
    lab.ask("qqqqqqq1", ms=100_000)
    lab.service.finish(lab.jobs[0], b"3", 0.0)
    lab.go_to(199.0)
    lab.ask("qqqqqqq1")
    lab.go_to(201.0)
    lab.ask("qqqqqqq1")
    assert len(lab.jobs) == 2


def test_nothing_runs_longer_than_somebody_waits() -> None:
    lab = Lab()
    lab.ask("qqqqqqq1", ms=500)
    lab.go_to(0.4)
    assert lab.service.may_begin(lab.jobs[0], 0.49) and not lab.service.may_begin(lab.jobs[0], 0.5)
    lab.said()
    lab.go_to(0.5)
    assert lab.stopped == lab.jobs and lab.service.running == 0
    lab.service.finish(lab.jobs[0], b"3", 0.6)
    lab.service.fail(lab.jobs[0], "failed", "", 0.6)
    assert lab.service.running == 0 and lab.jobs[0].payload == b""
    lab.ask("qqqqqqq1")
    assert lab.said() == [] and len(lab.jobs) == 1
    lab.ask("qqqqqqq2", ms=500)
    lab.service.finish(lab.jobs[1], b"3", lab.now + 0.5)
    assert lab.said() == [], "also where no turn came between"
    lab.ask("qqqqqqq3", ms=500)
    lab.jobs[2].stop = None
    lab.go_to(lab.now + 0.5)
    assert lab.service.running == 1, "what cannot be stopped holds its place"
    lab.service.finish(lab.jobs[2], b"3", lab.now)
    assert lab.service.running == 0


def test_what_is_declined() -> None:
    lab = Lab(concurrency=1, limit=FixedWindow(2, 10.0))
    lab.ask("qqqqqqq1")
    lab.ask("qqqqqqq2", method="sub")
    lab.ask("qqqqqqq3")
    assert lab.said() == [Declined("qqqqqqq2", ME, "method"), Declined("qqqqqqq3", ME, "busy")]
    lab.service.fail(lab.jobs[0], "Not a code", "ValueError", 0.0)
    assert lab.said() == [Declined("qqqqqqq1", ME, "failed", "ValueError")]
    lab.ask("qqqqqqq3")
    assert len(lab.jobs) == 2, "what was busy may come again"
    lab.service.finish(lab.jobs[1], bytes(ANSWER_BYTES_MAX + 1), 0.0)
    (too_long,) = lab.said()
    assert (too_long.code, too_long.q) == ("size", "qqqqqqq3")
    lab.go_to(2.5)
    lab.ask("qqqqqqq4")
    assert lab.said() == [Declined("qqqqqqq4", ME, "limited", "8")]
    lab.ask("qqqqqqq5", publisher="another")
    assert len(lab.jobs) == 3
    lab.service.finish(lab.jobs[2], b"3", lab.now)
    for number in range(4):
        lab.ask(f"proven-{number}", publisher=f"p{number}", sender="K" * 43)
        lab.service.finish(lab.jobs[-1], b"3", lab.now)
    assert lab.said()[-1] == Declined("proven-3", ME, "limited", "10"), "a key is one sender"
    lab.ask("qqqqqqq3")
    assert lab.said()[0].code == "size", "what is kept is not limited"


def test_who_comes_again_because_it_was_busy_keeps_its_share() -> None:
    lab = Lab(concurrency=1, limit=FixedWindow(2, 10.0))
    lab.ask("qqqqqqq1")
    for _ in range(10):
        lab.ask("qqqqqqq2")
    assert lab.said() == [Declined("qqqqqqq2", ME, "busy")] * 10
    lab.service.finish(lab.jobs[0], b"3", 0.0)
    lab.ask("qqqqqqq2")
    assert len(lab.jobs) == 2


def test_a_handlers_own_word_is_cut_to_what_fits() -> None:
    lab = Lab()
    lab.ask("qqqqqqq1")
    lab.service.fail(lab.jobs[0], "mine", "ø" * 1000, 0.0)
    (declined,) = lab.said()
    assert declined.code == "mine" and declined.text == "ø" * 150
    lab.ask("qqqqqqq2")
    lab.service.fail(lab.jobs[1], "mine", "\ud800", 0.0)
    assert lab.said() == [Declined("qqqqqqq2", ME, "mine", "?")]


def test_parts_are_sent_as_they_are_asked_for() -> None:
    lab = Lab()
    lab.ask("qqqqqqq1")
    lab.service.finish(lab.jobs[0], bytes(range(256)) * 100, 0.0)
    first = lab.said()
    assert [word.part for word in first] == list(range(WINDOW_PARTS))
    lab.service.hear(heard(MAILBOX, More("qqqqqqq1", ADA, 32)), 0.1)
    rest = lab.said()
    assert b"".join(word.payload for word in first + rest) == bytes(range(256)) * 100
    for more in (More("qqqqqqq1", BOB, 0), More("qqqqqqq2", ADA, 0), More("qqqqqqq1", ADA, 511)):
        lab.service.hear(heard(MAILBOX, more), 0.1)
    assert lab.said() == []
    lab.ask("qqqqqqq3")
    lab.service.finish(lab.jobs[1], b"", 0.1)
    assert lab.said() == [Answer("qqqqqqq3", ME, 0, 1, b"")]


def test_what_is_asked_for_again_and_again_is_said_a_bounded_number_of_times() -> None:
    """`>` has 41 bytes, and what it asks for 19 KB."""
    for answer, parts in (bytes(ANSWER_BYTES_MAX), 469), (b"3", 1), (None, 0):
        lab = Lab()
        lab.ask("qqqqqqq1")
        if answer is None:
            lab.service.fail(lab.jobs[0], "failed", "", 0.0)
        else:
            lab.service.finish(lab.jobs[0], answer, 0.0)
        for number in range(1000):
            lab.ask("qqqqqqq1")
            lab.service.hear(heard(MAILBOX, More("qqqqqqq1", ADA, number % 512)), 0.0)
        assert 4 * parts < len(lab.said()) <= 4 * parts + 64
        assert lab.host.drops[Drop.LIMITED] > 1000


def test_what_is_no_request() -> None:
    lab = Lab()
    for word in (
        Answer("qqqqqqq1", ADA, 0, 1, b""),
        Working("qqqqqqq1", ADA),
        Declined("qqqqqqq1", ADA, "busy"),
    ):
        lab.service.hear(heard(MAILBOX, word), 0.0)
    assert lab.host.drops == {Drop.UNAWAITED: 3}
    for junk in (
        b"?qqqqqqq1 AAAAAAAAAAA 0 add x",
        b"?qqqqqqq1 AAAAAAAAAAA 3600001 add x",
        b"?qqqqqq1 AAAAAAAAAAA 1 add x",
    ):
        lab.service.hear(heard(MAILBOX, junk), 0.0)
    lab.service.hear(heard(MAILBOX, Asked("qqqqqqq1", ADA, 1, "add", b""), publisher=None), 0.0)
    assert lab.host.drops[Drop.MALFORMED_MESSAGE] == 4 and lab.jobs == [] and lab.said() == []


def test_it_says_that_it_is_there_until_it_leaves() -> None:
    lab = Lab()
    lab.go_to(2.0)
    assert lab.host.take() == [("here", Present(ME, 6, ("", "add")))]
    for method, answers in ("add", 1), ("sub", 0), (None, 1), ("", 1):
        lab.go_to(lab.now + 0.2)
        lab.service.hear(heard(HERE, Question(method)), lab.now)
        lab.go_to(lab.now)
        assert len(lab.host.take()) == answers, method
    lab.ask("qqqqqqq1")
    lab.service.leave(lab.now)
    assert lab.host.take() == [("here", Leaving(ME))]
    lab.ask("qqqqqqq2")
    assert lab.said() == [Declined("qqqqqqq2", ME, "leaving")] and not lab.service.is_over
    lab.service.hear(heard(HERE, Question(None)), lab.now)
    assert lab.host.take() == []
    lab.service.finish(lab.jobs[0], b"3", lab.now)
    assert lab.said() == [Answer("qqqqqqq1", ME, 0, 1, b"3")] and lab.service.is_over


def test_what_still_runs_when_it_leaves_has_5_seconds() -> None:
    lab = Lab()
    lab.ask("qqqqqqq1", ms=60_000)
    for now in (0.0, 4.9):
        lab.go_to(now)
        lab.service.leave(now)
    assert not lab.service.is_over
    assert [word for where, word in lab.host.take() if where == "here"] == [Leaving(ME)]
    lab.go_to(5.0)
    assert lab.service.is_over and lab.stopped == lab.jobs
    assert not lab.service.may_begin(lab.jobs[0], 5.0)
    closed = Lab()
    closed.ask("qqqqqqq1")
    closed.service.end(lambda: ClientClosed("closed"))
    assert closed.stopped == closed.jobs


def test_it_says_nothing_until_it_can_be_asked() -> None:
    host = FakeHost()
    worker = Service(host, TOPIC, ME, ("add",), lambda job: None, concurrency=1)
    for stands in ((0, 2), (2, 2)), ((2, 2), (2, 2)):
        host.stands = stands
        assert host.take() == []
        worker.handle_timeout(1.0)
    assert len(host.take()) == 1


def test_the_oldest_answers_are_forgotten_and_nothing_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "KEPT_BYTES_MAX", 20_000)
    for payload, most in (bytes(500), 20), (b"", 39):
        lab = Lab(concurrency=101)
        lab.ask("qqqqqqq0", ms=60_000)
        for number in range(100):
            lab.ask(f"other{number:03d}")
        for job in lab.jobs[1:]:
            lab.service.finish(job, payload, 0.0)
        assert len(lab.service) == most
        lab.said()
        lab.ask("qqqqqqq0")
        lab.ask("other099")
        assert lab.said() == [Working("qqqqqqq0", ME), Answer("other099", ME, 0, 1, payload)]


def test_a_flood_of_requests_is_bounded() -> None:
    """100,000 forged requests: no more run than may, and what is kept has room."""
    lab = Lab(concurrency=2)
    for number in range(100_000):
        lab.ask(f"{number:08d}", publisher=f"p{number}")
        if number % 50 == 0:
            lab.host.said.clear()
            for job in [job for job in lab.jobs if job.is_running]:
                lab.service.finish(job, bytes(100_000), 0.0)
            lab.jobs.clear()
            assert lab.service.running == 0
    assert lab.service._bytes_kept <= KEPT_BYTES_MAX and 100 < len(lab.service) < 200
    assert len(lab.service._due._heap) < 10_000
    for number in range(99_950, 100_000):
        lab.ask(f"{number:08d}", publisher=f"p{number}")
    assert len(lab.jobs) == 2, "what it remembers does not run again"
    for job in lab.jobs:
        lab.service.finish(job, b"", 0.0)
    lab.ask(f"{0:08d}")
    assert len(lab.jobs) == 3, "what had to go does"
