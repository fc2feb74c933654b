"""client/layers/caller.py: what a caller does with what it hears, and with silence."""

from typing import Any

import pytest

from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge, NoWorker, RemoteError, RequestTimeout
from kcast.client.events import Drop
from kcast.client.layers.caller import Caller
from kcast.client.layers.calls import Reply
from kcast.client.layers.parts import PART_BYTES, cut
from kcast.client.layers.words import Answer, Asked, Declined, More, Question, Working
from tests.support.layer_lab import ADA, BOB, HERE, ME, TOPIC, FakeHost, FakeWaiter, advance, asked_of, heard
from tests.support.layer_lab import present as says_here

MAILBOX = b"{calc}/" + ME.encode()


class Lab:
    """A caller that knows some workers."""

    def __init__(self, *workers: str, seed: int = 1) -> None:
        self.host, self.now = FakeHost(seed), 0.0
        self.caller = Caller(self.host, TOPIC, ME)
        self.caller.handle_timeout(0.0)
        for worker in workers:
            self.hear(says_here(worker, "add", seconds=300))

    def ask(self, timeout_s: float = 5.0, **options: Any) -> FakeWaiter:
        waiter = FakeWaiter()
        self.caller.ask(waiter, b"1 2", "add", timeout_s, self.now, **options)
        return waiter

    def hear(self, delivery: Any) -> None:
        self.caller.hear(delivery, self.now)

    def answer(self, word: Any, sender: str | None = None) -> None:
        self.hear(heard(MAILBOX, word, sender))

    def go_to(self, now: float) -> None:
        advance(self.caller, now)
        self.now = now

    def asked(self) -> list[tuple[str, Asked]]:
        return asked_of(self.host.take())

    def asked_once(self) -> tuple[str, Asked]:
        (asked,) = self.asked()
        return asked


def test_the_first_request_waits_for_the_leases_and_asks_who_is_there() -> None:
    for stands, ready_at in (((2, 2), (2, 2)), 0.0), (((1, 2), (1, 2)), 0.3), (((0, 2), (2, 2)), 9.0):
        lab = Lab()
        lab.caller = Caller(lab.host, TOPIC, ME)
        lab.host.stands = stands
        waiter = lab.ask()
        lab.caller.handle_timeout(0.0)
        times = []
        for step in range(2000):
            lab.go_to(step / 1000)
            times += [step / 1000 for _, word in lab.host.take() if word == Question("add")]
            if waiter.told:
                break
        assert times == ([] if ready_at > 5 else pytest.approx([ready_at, ready_at + 0.1, ready_at + 0.3]))
        assert [type(told) for told in waiter.told] == ([] if ready_at > 5 else [NoWorker])
        assert ready_at > 5 or lab.now == pytest.approx(ready_at + 1.0)


def test_a_request_is_answered_once() -> None:
    lab = Lab(ADA)
    waiter = lab.ask()
    where, asked = lab.asked_once()
    assert (where, asked.member, asked.ms, asked.method, asked.payload) == (ADA, ME, 5000, "add", b"1 2")
    for _ in range(2):
        lab.answer(Answer(asked.q, ADA, 0, 1, b"3"))
    assert waiter.told == [Reply(b"3", ADA, None, 1)]
    assert lab.host.drops == {Drop.UNAWAITED: 1}, "a second answer"
    assert len(lab.caller) == 0


def test_what_nobody_waits_for_is_counted() -> None:
    lab = Lab(ADA)
    waiter = lab.ask()
    _, asked = lab.asked_once()
    for word in (
        Answer("unknownq", ADA, 0, 1, b"4"),
        Answer(asked.q, BOB, 0, 1, b"4"),  # who was not asked
        Working("unknownq", ADA),
        asked,  # no caller is asked, nor sends parts
        More(asked.q, ADA, 0),
    ):
        lab.answer(word)
    lab.answer(Answer(asked.q, ADA, 0, 1, b"4"), sender="K" * 43)  # known by another key
    assert lab.host.drops == {Drop.UNAWAITED: 6}
    for junk in (b"", b"=5f0Kz81q " + ADA.encode() + b" 3/3 x", b"=%b short 0/1 x" % asked.q.encode()):
        lab.hear(heard(MAILBOX, junk))
    lab.hear(heard(MAILBOX, Answer(asked.q, ADA, 0, 1, b"4"), publisher=None))  # raw
    lab.hear(heard(HERE, b"+nobody"))
    assert lab.host.drops == {Drop.UNAWAITED: 6, Drop.MALFORMED_MESSAGE: 5} and not waiter.told


def test_the_same_worker_is_asked_once_more_and_then_the_next() -> None:
    lab = Lab(ADA, BOB)
    waiter = lab.ask()
    asked = []
    for at in (0.0, 0.29, 0.31, 0.89, 0.91):
        lab.go_to(at)
        asked.append(lab.asked())
    first, second = asked[0][0][0], asked[4][0][0]
    assert [len(each) for each in asked] == [1, 0, 1, 0, 1] and {first, second} == {ADA, BOB}
    assert asked[2][0][0] == first and {word.q for each in asked for _, word in each} == {asked[0][0][1].q}
    lab.answer(Answer(asked[0][0][1].q, first, 0, 1, b"late"))
    assert waiter.told == [Reply(b"late", first, None, 3)], "it was asked"


def test_a_silent_worker_is_not_asked_until_it_is_heard() -> None:
    lab = Lab(ADA)
    waiter = lab.ask()
    lab.go_to(2.0)
    assert len(lab.asked()) == 2 and not waiter.told
    lab.hear(says_here(ADA, "add", seconds=300))
    assert lab.asked_once()[0] == ADA
    lab.go_to(5.0)
    (error,) = waiter.told
    assert isinstance(error, RequestTimeout) and isinstance(error, TimeoutError)
    assert (error.attempts, error.worked) == (4, False) and "asked 4 times" in str(error)


def test_a_worker_that_works_is_waited_for() -> None:
    lab = Lab(ADA, BOB)
    waiter = lab.ask(timeout_s=8.0)
    where, asked = lab.asked_once()
    for at in (0.03, 1.03, 2.03):
        lab.go_to(at)
        lab.answer(Working(asked.q, where))
    lab.go_to(5.5)
    assert lab.asked() == []
    lab.go_to(5.55)
    assert lab.asked_once()[0] == where
    lab.go_to(8.0)
    (error,) = waiter.told
    assert isinstance(error, RequestTimeout) and error.worked


def test_busy_workers_hold_a_request_back() -> None:
    lab = Lab(ADA, BOB)
    first, second = lab.ask(), lab.ask()
    (one, of_first), (other, of_second) = lab.asked()
    assert {one, other} == {ADA, BOB}, "each goes to the worker with the fewest"
    waiter = lab.ask()
    where, asked = lab.asked_once()
    lab.answer(Declined(asked.q, where, "busy"))
    where, asked = lab.asked_once()
    lab.answer(Declined(asked.q, where, "busy"))
    assert lab.asked() == []
    for at in (0.06, 0.17):  # then 0.2 s, to 1 s
        lab.go_to(at)
        tried = [lab.asked_once()[0]]
        lab.answer(Declined(asked.q, tried[0], "busy"))
        tried.append(lab.asked_once()[0])
        lab.answer(Declined(asked.q, tried[1], "busy"))
        assert set(tried) == {ADA, BOB} and lab.asked() == []
    lab.answer(Answer(of_first.q, one, 0, 1, b"3"))
    assert lab.asked_once()[0] == one, "as soon as one of ours ends there"
    lab.answer(Answer(asked.q, one, 0, 1, b"3"))
    lab.answer(Answer(of_second.q, other, 0, 1, b"3"))
    assert all(isinstance(each.told[0], Reply) for each in (first, second, waiter))
    held = lab.ask()
    for _ in range(2):
        where, asked = lab.asked_once()
        lab.answer(Declined(asked.q, where, "busy"))
    lab.hear(says_here("CCCCCCCCCCC", "add"))
    assert lab.asked_once()[0] == "CCCCCCCCCCC" and not held.told


def test_a_worker_that_leaves_or_declines() -> None:
    lab = Lab(ADA, BOB)
    waiter = lab.ask()
    where, asked = lab.asked_once()
    lab.answer(Declined(asked.q, where, "leaving"))
    other, asked = lab.asked_once()
    assert {where, other} == {ADA, BOB}
    lab.answer(Declined(asked.q, other, "limited", "3"))
    (error,) = waiter.told
    assert isinstance(error, RemoteError) and (error.code, error.text) == ("limited", "3")
    assert lab.asked() == [], "no other worker is asked"


def test_only_one_worker_may_be_asked() -> None:
    lab = Lab(ADA, BOB)
    for to in (ADA, BOB):
        lab.ask(to=to)
        assert lab.asked_once()[0] == to
    waiter = lab.ask(to="CCCCCCCCCCC")
    lab.go_to(1.0)
    assert isinstance(waiter.told[0], NoWorker) and "CCCCCCCCCCC" in str(waiter.told[0])


def test_all_are_asked() -> None:
    lab = Lab(ADA, BOB)
    lab.hear(says_here("CCCCCCCCCCC", "mul"))
    waiter = FakeWaiter()
    lab.caller.ask_all(waiter, b"1 2", "add", 5.0, 0.0)
    lab.go_to(0.99)
    assert lab.asked() == []
    lab.go_to(1.0)
    asked = dict(lab.asked())
    assert set(asked) == {ADA, BOB}
    lab.answer(Answer(asked[ADA].q, ADA, 0, 1, b"3"))
    assert not waiter.told
    lab.answer(Declined(asked[BOB].q, BOB, "failed", "ValueError"))
    (found,) = waiter.told
    assert found[ADA].payload == b"3" and found[BOB].code == "failed"
    nobody = FakeWaiter()
    lab.caller.ask_all(nobody, b"", "sub", 5.0, lab.now)
    assert isinstance(nobody.told[0], NoWorker)


def test_an_answer_in_parts_comes_as_the_caller_asks() -> None:
    content = bytes(range(256)) * 150  # 69 parts
    parts = cut(content)
    lab = Lab(ADA)
    waiter = lab.ask(timeout_s=30.0)
    _, asked = lab.asked_once()
    lost = {5, 40}

    def send(first: int) -> None:
        for part in range(first, min(first + 32, len(parts))):
            if part in lost:
                lost.remove(part)
            else:
                lab.answer(Answer(asked.q, ADA, part, len(parts), parts[part]))

    send(0)
    lab.answer(Answer(asked.q, ADA, 0, len(parts), b"changed"))
    lab.answer(Answer(asked.q, ADA, 1, len(parts) + 1, parts[1]))
    assert lab.host.drops == {Drop.MALFORMED_MESSAGE: 2}
    wanted = []
    for step in range(200):
        while said := lab.host.take():
            ((_, word),) = said
            assert isinstance(word, More)
            wanted.append(word.part)
            send(word.part)
        if waiter.told:
            break
        lab.go_to(lab.now + 0.05)
        assert step < 199
    assert waiter.told == [Reply(content, ADA, None, 1)]
    assert wanted == [5, 37, 40] and len(parts[0]) == PART_BYTES


def test_a_cancelled_request_is_sent_no_more() -> None:
    lab = Lab(ADA)
    waiter = lab.ask()
    lab.asked_once()
    waiter.is_cancelled = True
    lab.go_to(5.0)
    assert lab.asked() == [] and not waiter.told and len(lab.caller) == 0


def test_what_cannot_be_sent() -> None:
    lab = Lab(ADA)
    lab.host.error = MessageTooLarge("too large")
    assert isinstance(lab.ask().told[0], MessageTooLarge)
    lab.host.error = Backlog("later")
    waiter = lab.ask()
    lab.host.error = None
    lab.go_to(0.31)
    assert not waiter.told and len(lab.asked()) == 1, "it was as if lost"
    lab.caller.end(lambda: ClientClosed("closed"))
    assert isinstance(waiter.told[0], ClientClosed)


def test_a_caller_that_is_not_used_is_over() -> None:
    lab = Lab(ADA)
    waiter = lab.ask()
    _, asked = lab.asked_once()
    lab.go_to(3.0)
    lab.answer(Answer(asked.q, ADA, 0, 1, b"3"))
    assert waiter.told
    lab.go_to(60.0)
    assert not lab.caller.is_over
    lab.go_to(64.0)
    assert lab.caller.is_over
