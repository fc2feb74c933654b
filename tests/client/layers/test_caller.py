"""client/layers/caller.py: what a caller does with what it hears, and with silence."""

from typing import Any

import pytest

from kcast.client.errors import Backlog, ClientClosed, MessageTooLarge, NoWorker, RemoteError, RequestTimeout
from kcast.client.events import Drop
from kcast.client.layers.caller import Caller
from kcast.client.layers.calls import Reply
from kcast.client.layers.members import MEMBERS_MAX
from kcast.client.layers.parts import ANSWER_BYTES_MAX, PART_BYTES, cut
from kcast.client.layers.words import Answer, Asked, Declined, Leaving, More, Question, Working
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


# What is said, and what a caller is to do then. `@1.5`: the time; `>A`: it asks the worker A, `>A32` for
# parts from there on; `A+`, `A-`: A says that it is there, or gone; `A~`, `A!busy`, `A=`, `A=2/3`: A's words;
# the name of a class: how a request ends. A quote mark is for the second request, two are for the third. All
# that the caller says is in the script, but its questions.
SCRIPTS = {
    "held for 50 ms, doubling to 1 s": "A+ ask >A A!busy @.04 @.06 >A A!busy @.14 @.16 >A A!busy @.34 "
    "@.36 >A A!busy @.74 @.76 >A A!busy @1.54 @1.56 >A A!busy @2.54 @2.56 >A A!busy @3.54 @3.56 >A A= Reply",
    "one that is held is asked when one has ended, and the next one for that is not": "A+ ask >A A~ ask' >A' "
    "ask'' >A'' A!busy' A!busy'' @.04 A= Reply >A' @.05 >A''",
    "once one that was tried is taken, the next is tried": "A+ ask >A ask' >A' ask'' >A'' A!busy A!busy' "
    "A!busy'' @.06 >A A~ >A' @.09 A!busy' @.1 @.12 >A'",
    "also when it has ended by its time": "A+ ask0.5 >A A~ ask' >A' A!busy' @.05 >A' A!busy' @.16 >A' "
    "A!busy' @.36 >A' A!busy' @.49 @.5 RequestTimeout >A'",
    "of those that wait for different things the first": "A+add,mul ask >A A~ mul' >A' ask'' >A'' A!busy'' "
    "A!busy' @.04 A= Reply >A' @.05 >A''",
    "but only one that was refused there": "B+mul mul >B B!busy A+ ask' >A' ask'' >A'' A!busy'' A=' Reply' "
    ">A''",
    "another one joins": "A+ ask >A A!busy B+ >B B!busy A- @.04 @.06 >B B= Reply",
    "one that is known has the method now": "A+mul ask @.5 A+ >A",
    "none is known for 1 s": "A+ ask >A @.2 A!leaving @1.19 @1.2 NoWorker",
    "none is known any more": "A+ ask >A @.3 >A @.9 A- @2.8 @2.9 NoWorker",
    "nor one that has the method": "A+ ask >A A!busy A+mul @1.9 @2 NoWorker",
    "who leaves is not asked": "A+ ask >A A!leaving ask' @1 NoWorker NoWorker'",
    "who is gone is not asked once more": "A+ ask >A A- B+ @.29 @.3 >B",
    "who is silent is not asked, though it answers a question": "A+ ask >A @.3 >A @.9 @1 A+ @1.89 A+ "
    "@1.91 A+ >A",
    "who answers others is not": "A+ ask >A ask' >A' @.2 A= Reply @.29 @.31 >A' @1.49 @1.51 >A'",
    "but the next one is asked": "A+ ask >A ask' >A' B+ @.2 A= Reply @.29 @.31 >A' @1.49 @1.51 >B'",
    "over at its deadline, not later": "A+ ask >A A~ @2 A~ @4 A~ @4.99 @5 RequestTimeout",
    "over before it is asked": "ask #5.1 A+ RequestTimeout",
    "~ begins the patience anew": "A+ ask >A @.3 >A A~ @3.79 @3.8 >A",
    "~ of one that was given up": "A+ ask >A @.3 >A @.9 A~ @4 A= Reply",
    "a late answer says that it is there": "A+ ask >A ask' >A' @.3 >A >A' @.9 A= Reply >A'",
    "~ of one before": "A+ ask >A @.3 >A B+ @.9 >B A~ @1.2 >B",
    "busy, of one before": "A+ ask >A @.3 >A B+ @.9 >B A!busy @1.2 >B",
    "a part of one before": "A+ ask >A @.3 >A B+ @.9 >B @1 A=0/2 @1.2 >B",
    "a part of one that was given up": "A+ ask >A @.3 >A @.9 A=0/2 @3.59 @3.61 >A1",
    "~ where parts come": "A+ ask >A A=0/2 A~ @.06 >A1",
    "parts that come slowly": "A+ ask >A @.2 A=0/3 @.7 A=1/3 @1.2 A=2/3 Reply",
    "parts of another answer": "A+ ask >A A=0/3 A=0/2 @.05 >A1 A=0/2 @.15 @1.2 A+ >A A=1/2 A=0/2 Reply",
    "more at once": "A+ ask >A " + "".join(f"A={part}/40 " for part in range(32)) + ">A32",
    "as long as answers take": "A+ ask >A @.03 A~ @1 A= Reply ask' >A' @1.08 @1.1 >A'",
    "answers that come late take that long": "A+ ask >A @.3 >A @.31 A= Reply ask' >A' @1.23 @1.25 >A'",
}


class Player:
    """Plays a script."""

    def __init__(self) -> None:
        self.lab = Lab()
        # No jitter, so that scripts can say when: chance is replaced, which mypy forbids.
        self.lab.host.rng.random = lambda: 1.0  # type: ignore[method-assign]
        self.waiters: list[FakeWaiter] = []
        self.qs: list[str] = []

    def play(self, script: str) -> None:
        done: list[str] = []
        expected: list[str] = []
        for token in [*script.split(), "#0"]:
            if token[0] == ">" or token.rstrip("'") in ("Reply", "NoWorker", "RequestTimeout"):
                expected.append(token)
                continue
            assert sorted(self.happened()) == sorted(expected), f"{' '.join(done)}: not {expected}"
            self.act(token.rstrip("'"), token.count("'"))
            done += [*expected, token]
            expected = []

    def act(self, token: str, number: int) -> None:
        lab = self.lab
        if token[0] == "@":
            lab.go_to(float(token[1:]) + 1e-9)
        elif token[0] == "#":
            lab.now = float(token[1:])
        elif token[0] not in "AB":
            self.waiters.append(FakeWaiter())
            timeout_s, method = (float(token[3:] or 5), "add") if token[:3] == "ask" else (5.0, token)
            lab.caller.ask(self.waiters[-1], b"1 2", method, timeout_s, lab.now)
        else:
            who, what = token[0] * 11, token[2:]
            match token[1]:
                case "+":
                    lab.hear(says_here(who, *(what or "add").split(","), seconds=300))
                case "-":
                    lab.hear(heard(HERE, Leaving(who)))
                case "~":
                    lab.answer(Working(self.qs[number], who))
                case "!":
                    lab.answer(Declined(self.qs[number], who, what))
                case _:
                    part, parts = map(int, (what or "0/1").split("/"))
                    lab.answer(Answer(self.qs[number], who, part, parts, b"3"))

    def happened(self) -> list[str]:
        """What it said since the last time, and which requests ended."""
        said = []
        for where, word in self.lab.host.take():
            if isinstance(word, Asked | More):
                if word.q not in self.qs:
                    self.qs.append(word.q)
                first = word.part if isinstance(word, More) else ""
                said.append(f">{where[0]}{first}" + "'" * self.qs.index(word.q))
        for number, waiter in enumerate(self.waiters):
            said += [type(told).__name__ + "'" * number for told in waiter.told]
            waiter.is_cancelled = waiter.is_cancelled or bool(waiter.told)
            waiter.told.clear()
        return said


@pytest.mark.parametrize("what", SCRIPTS)
def test_what_a_caller_does_then(what: str) -> None:
    Player().play(SCRIPTS[what])


def test_the_first_request_waits_for_the_leases_and_asks_who_is_there() -> None:
    for stands, ready_at in (((2, 2), (2, 2)), 0.0), (((1, 2), (1, 2)), 0.3), (((0, 2), (2, 2)), 9.0):
        lab = Lab()
        lab.caller = Caller(lab.host, TOPIC, ME)
        lab.host.stands = stands
        waiter = lab.ask()
        lab.caller.ask(FakeWaiter(), b"", "mul", 5.0, 0.0)
        lab.caller.handle_timeout(0.0)
        times = []
        for step in range(2000):
            lab.go_to(step / 1000)
            if step == 200:
                lab.ask()  # the same is asked already
            if step == 900:
                lab.hear(says_here(BOB, "mul"))  # for the other request
            times += [step / 1000 for _, word in lab.host.take() if word in (Question("add"), Question(None))]
            if waiter.told:
                break
        assert sorted({*times}) == (
            [] if ready_at > 5 else pytest.approx([ready_at, ready_at + 0.1, ready_at + 0.3])
        )
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


def test_what_is_no_part_of_an_answer() -> None:
    lab = Lab(ADA)
    waiter = lab.ask()
    _, asked = lab.asked_once()
    lab.answer(Answer(asked.q, ADA, 0, 2, bytes(PART_BYTES + 1)))
    for part in range(512):
        lab.answer(Answer(asked.q, ADA, part, 512, bytes(PART_BYTES)))
    assert not waiter.told, "more than 256 KiB"
    assert lab.host.drops == {Drop.MALFORMED_MESSAGE: 1 + 512 - ANSWER_BYTES_MAX // PART_BYTES}


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
    assert [word.ms for each in asked for _, word in each] == [5000, 4700, 4100], "what is left"
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


def test_the_worker_with_the_fewest_is_asked_and_of_several_any() -> None:
    first: set[str] = set()
    for seed in range(8):
        lab = Lab(ADA, BOB, seed=seed)
        for _ in range(6):
            lab.ask()
        asked = lab.asked()
        first.add(asked[0][0])
        assert [where for where, _ in asked].count(ADA) == 3
        for where, word in asked:
            if where == ADA:
                lab.answer(Answer(word.q, where, 0, 1, b"3"))
        for _ in range(3):
            lab.ask()
        assert [where for where, _ in lab.asked()] == [ADA] * 3
    assert first == {ADA, BOB}


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


def test_who_has_begun_with_it_is_waited_for() -> None:
    for said, ends_at, kind in (
        (None, 1.3, NoWorker),
        (Working, 5.0, RequestTimeout),
        (Declined, 1.0, NoWorker),
    ):
        lab = Lab(ADA)
        waiter = lab.ask()
        _, asked = lab.asked_once()
        if said is not None:
            lab.answer(Working(asked.q, ADA) if said is Working else Declined(asked.q, ADA, "leaving"))
        lab.hear(heard(HERE, Leaving(ADA)))
        lab.go_to(ends_at - 0.01)
        assert not waiter.told
        lab.go_to(ends_at)
        assert [type(error) for error in waiter.told] == [kind], said


def test_a_flood_of_members_and_answers_is_bounded() -> None:
    lab = Lab()
    waiters = [lab.ask(timeout_s=60.0) for _ in range(50)]
    for number in range(10_000):
        lab.hear(says_here(f"f{number:010d}", "add", seconds=300))
        lab.answer(Answer(f"{number:08d}", ADA, 0, 1, b"forged"))
    assert len(lab.caller._workers.known) == MEMBERS_MAX and lab.host.drops == {Drop.UNAWAITED: 10_000}
    assert len(lab.asked()) == len(waiters) and not any(waiter.told for waiter in waiters)


def test_only_one_worker_may_be_asked() -> None:
    lab = Lab(ADA, BOB)
    for to in (ADA, BOB):
        lab.ask(to=to)
        assert lab.asked_once()[0] == to
    waiter = lab.ask(to="CCCCCCCCCCC")
    assert ("here", Question(None)) in lab.host.take(), "whatever its methods"
    lab.go_to(1.0)
    assert isinstance(waiter.told[0], NoWorker) and "CCCCCCCCCCC" in str(waiter.told[0])


def test_who_asks_for_a_method_that_nobody_has_is_told_which_there_are() -> None:
    lab = Lab(ADA, BOB)
    lab.hear(says_here("CCCCCCCCCCC", "show"))
    waiter = FakeWaiter()
    lab.caller.ask(waiter, b"", "sub", 5.0, 0.0)
    lab.go_to(1.0)
    said = [word for _, word in lab.host.take()]
    assert said == [Question("sub"), Question("sub"), Question(None)], "at last whatever their methods"
    (error,) = waiter.told
    assert isinstance(error, NoWorker) and "they have add, show" in str(error)


def test_all_are_asked() -> None:
    lab = Lab(ADA, BOB)
    lab.hear(says_here("CCCCCCCCCCC", "mul"))
    waiter = FakeWaiter()
    lab.caller.ask_all(waiter, b"1 2", "add", 5.0, 0.0)
    lab.go_to(0.99)
    assert lab.host.take() == [("here", Question("add"))] * 3
    lab.go_to(1.0)
    asked = dict(lab.asked())
    assert set(asked) == {ADA, BOB}
    lab.answer(Answer(asked[ADA].q, ADA, 0, 1, b"3"))
    lab.go_to(2.0)
    assert lab.asked_once()[0] == BOB and not waiter.told, "no other one in its place"
    lab.answer(Declined(asked[BOB].q, BOB, "failed", "ValueError"))
    (found,) = waiter.told
    assert found[ADA].payload == b"3" and found[BOB].code == "failed"
    nobody = FakeWaiter()
    lab.caller.ask_all(nobody, b"", "sub", 5.0, lab.now)
    assert isinstance(nobody.told[0], NoWorker)


def test_who_asks_all_and_waits_no_longer() -> None:
    lab = Lab(ADA)
    early, cancelled, closed = FakeWaiter(), FakeWaiter(), FakeWaiter()
    for waiter, timeout_s in (early, 0.5), (cancelled, 5.0), (closed, 5.0):
        lab.caller.ask_all(waiter, b"1 2", "add", timeout_s, 0.0)
    lab.go_to(0.5)
    assert isinstance(early.told[0], RequestTimeout) and lab.asked() == []
    lab.go_to(1.0)
    asked = [word for _, word in lab.asked()]
    cancelled.is_cancelled = True
    lab.answer(Answer(asked[0].q, ADA, 0, 1, b"3"))
    assert len(asked) == 2 and not cancelled.told
    lab.caller.end(lambda: ClientClosed("closed"))
    assert isinstance(closed.told[0], ClientClosed)


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
    parts = lab.ask()
    _, asked = lab.asked_once()
    for part in range(32):
        parts.is_cancelled = part == 31
        lab.answer(Answer(asked.q, ADA, part, 40, b"3"))
    lab.go_to(9.0)
    assert lab.host.take() == [] and len(lab.caller) == 0, "nor are more parts"
    looking = lab.ask(to=BOB)
    looking.is_cancelled = True
    lab.hear(says_here(BOB, "add"))
    assert lab.asked() == [] and len(lab.caller) == 0


def test_what_cannot_be_sent() -> None:
    lab = Lab(ADA)
    lab.host.error = MessageTooLarge("too large")
    assert isinstance(lab.ask().told[0], MessageTooLarge)
    lab.host.error = Backlog("later")
    waiter = lab.ask()
    lab.go_to(2.0)
    lab.host.error = None
    lab.go_to(2.3)
    assert not waiter.told and len(lab.asked()) == 1, "its own backlog is no silence of the worker"
    lab.caller.end(lambda: ClientClosed("closed"))
    assert isinstance(waiter.told[0], ClientClosed) and waiter.is_seen
    lab = Lab(ADA)
    for now in (0.0, 499.1):  # where floats make a little more of 3600 s
        lab.now = now
        lab.ask(timeout_s=3600.0)
    assert {word.ms for _, word in lab.asked()} == {3_600_000}


def test_a_caller_that_is_not_used_is_over() -> None:
    lab = Lab(ADA)
    waiter = lab.ask(timeout_s=3600.0)
    _, asked = lab.asked_once()
    lab.go_to(3.0)
    lab.answer(Answer(asked.q, ADA, 0, 1, b"3"))
    assert waiter.told
    lab.go_to(60.0)
    assert not lab.caller.is_over
    lab.go_to(64.0)
    assert lab.caller.is_over
