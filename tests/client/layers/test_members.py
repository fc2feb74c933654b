"""client/layers/members.py: who is known, who says what when, and that a flood has bounds."""

from collections import Counter
from typing import Any

from kcast.client.events import Drop
from kcast.client.layers.members import MEMBERS_MAX, Herald, MemberJoined, MemberLeft, Members, Roster
from kcast.client.layers.words import Leaving, Present, Question
from tests.support.layer_lab import ADA, BOB, HERE, ME, TOPIC, FakeHost, advance, heard, present


class Lab:
    """A member, or somebody who watches, with what it was told."""

    def __init__(self, info: str | None = "me") -> None:
        self.host, self.now = FakeHost(), 0.0
        self.told: list[MemberJoined | MemberLeft] = []
        self.members = Members(self.host, TOPIC, ME, info, self.told.append)
        self.members.handle_timeout(0.0)

    def hear(self, delivery: Any) -> None:
        self.members.hear(delivery, self.now)

    def go_to(self, now: float) -> None:
        advance(self.members, now)
        self.now = now

    def said(self) -> list[Any]:
        return [word for _, word in self.host.take()]


def test_a_member_comes_and_says_so_again_and_leaves() -> None:
    lab = Lab()
    here = Present(ME, 6, (), "me")
    assert lab.said() == [Question(None), here]
    lab.go_to(0.3)
    assert lab.said() == [Question(None)] * 2
    assert not lab.members.is_ready(0.49) and lab.members.is_ready(0.51)
    lab.go_to(4.0)
    assert lab.said() == [here] * 2
    late = Lab()
    late.said()
    late.members.handle_timeout(9.0)
    assert late.said() == [Question(None), here] and late.members.next_at == 11.0, "once, where it is late"
    lab.members.leave(lab.now)
    assert lab.said() == [Leaving(ME)] and lab.members.is_over
    watching = Lab(info=None)
    watching.go_to(10.0)
    watching.hear(heard(HERE, Question(None)))
    watching.members.leave(10.0)
    assert watching.said() == [Question(None)] * 3


def test_who_is_known() -> None:
    lab = Lab()
    for methods, info, seconds in (("mul",), "", 300), (("mul",), "new", 300), (("add",), "new", 6):
        lab.hear(heard(HERE, Present(ADA, seconds, methods, info)))
        assert lab.members.alive == ((ADA, None, methods, info),), "as it says now"
    lab.hear(present(BOB, seconds=300))
    lab.hear(present(BOB, seconds=300, sender="K" * 43))
    assert [(each.name, each.sender) for each in lab.members.alive] == [(ADA, None), (BOB, None)]
    lab.hear(heard(HERE, Leaving(BOB)))
    lab.hear(present(BOB, seconds=300, sender="K" * 43))  # whose name it may be now
    lab.hear(heard(HERE, Leaving(ADA), "K" * 43))  # who is another one
    lab.go_to(5.9)
    assert len(lab.members.alive) == 2
    lab.go_to(6.0)
    assert [each.sender for each in lab.members.alive] == ["K" * 43]
    assert [(type(told), told.member.name, getattr(told, "why", "")) for told in lab.told] == [
        (MemberJoined, ADA, ""),
        (MemberJoined, BOB, ""),
        (MemberLeft, BOB, "left"),
        (MemberJoined, BOB, ""),
        (MemberLeft, ADA, "silent"),
    ]
    for junk in (b"", b"+short 6 -", b"+AAAAAAAAAAA 301 -", b"+AAAAAAAAAAA 6 - \xff"):
        lab.hear(heard(HERE, junk))
    lab.hear(heard(HERE, Present(ADA, 6), publisher=None))
    assert lab.host.drops == {Drop.MALFORMED_MESSAGE: 5} and len(lab.members.alive) == 1


def test_questions_are_answered_at_once_where_few_are_there_and_else_spread() -> None:
    for members, latest_s in (15, 0.0), (16, 0.0), (17, 0.17), (200, 2.0):
        lab = Lab()
        lab.go_to(0.5)
        for number in range(members):
            lab.hear(present(f"{number:011d}", seconds=300))
        lab.said()
        herald = lab.members._herald
        assert herald is not None
        times = []
        for _ in range(40):
            lab.go_to(lab.now + 0.11)
            lab.said()
            herald.next_at = 1e9
            herald._asked.clear()
            lab.hear(heard(HERE, Question(None)))
            times.append(0.0 if lab.said() else herald.next_at - lab.now)
        if latest_s:
            assert latest_s / 2 < max(times) <= latest_s + 0.1
        else:
            assert max(times) == 0.0
    host, roster = FakeHost(), Roster(lambda change: None)
    herald = Herald(host, HERE, roster, ME, ("add", "mul"), "")
    herald.begin(0.0)
    for number in range(200):
        roster.hear(None, Present(f"{number:011d}", 300, ("add",) if number < 16 else ("mul",)), 0.0)
    herald.handle_timeout(0.0)
    for _ in range(20):
        before = herald.next_at
        herald.asked(Question("mul"), 0.3)
        assert herald.next_at <= before, "a question puts off no answer"
    herald.handle_timeout(3.0)
    herald.asked(Question("add"), 3.5)
    assert herald.next_at == 3.5, "those count that have the method"


def test_who_asks_often_is_answered_ten_times_a_second() -> None:
    lab = Lab()
    lab.go_to(0.5)
    lab.said()
    for step in range(1000):
        lab.go_to(0.5 + step / 1000)
        lab.hear(heard(HERE, Question(None)))
    answers = [word for word in lab.said() if isinstance(word, Present)]
    assert 9 <= len(answers) <= 11


def test_a_flood_of_questions_is_counted_once() -> None:
    lab = Lab()
    lab.go_to(0.5)  # its own questions are asked
    for number in range(MEMBERS_MAX):
        lab.hear(present(f"{number:011d}", seconds=300))
    drawn = set()
    for _ in range(100_000):
        lab.hear(heard(HERE, Question(None)))
        drawn.add(lab.members.next_at)
    assert len(drawn) == 1, "one answer for all"


def test_many_members_say_it_more_seldom() -> None:
    lab = Lab()
    for number in range(200):
        lab.hear(present(f"{number:011d}", seconds=300))
    lab.go_to(2.0)
    lab.said()
    lab.go_to(60.0)
    said = lab.said()
    assert said == [Present(ME, 30, (), "me")] * len(said) and 5 <= len(said) <= 6


def test_a_flood_of_members_does_not_push_out_who_was_there() -> None:
    told: list[Any] = []
    roster = Roster(told.append)
    for now in (0.0, 10.0):
        for number in range(100):
            roster.hear(None, Present(f"{number:011d}", 300), now)
            roster.hear(None, Present(f"short{number:06d}", 300), min(now, 9.9))
    for number in range(10_000):
        roster.hear(None, Present(f"f{number:010d}", 300), 11.0)
        assert len(roster) <= MEMBERS_MAX
    names = [member.name for _, member in roster]
    assert names[:100] == [f"{number:011d}" for number in range(100)] and len(names) == MEMBERS_MAX
    for number in range(10_000):
        roster.hear(None, Present(f"f{number % 2000:010d}", 300), 22.0 + number / 1000)
    names = [member.name for _, member in roster]
    assert len(roster) == MEMBERS_MAX and "00000000042" in names and "short000042" not in names
    for number in range(1100, 2000):
        roster.hear(None, Present(f"f{number:010d}", 300), 50.0)
    roster.hear(None, Present(ADA, 300), 50.0)
    assert {*names} == {member.name for _, member in roster}, "where all have been there for long"
    roster.expire(400.0)
    assert len(roster) == 0 and roster.next_at == float("inf")
    assert len([1 for each in told if isinstance(each, MemberJoined)]) == len(told) / 2


def test_a_key_with_many_names_makes_room_for_others() -> None:
    roster = Roster(lambda change: None)
    for now in (0.0, 11.0):
        for number in range(900):
            roster.hear("E" * 43, Present(f"e{number:010d}", 300), now)
        for number in range(100):
            roster.hear(f"{number:043d}", Present(f"h{number:010d}", 300), now)
    for number in range(50):
        roster.hear("E" * 43, Present(f"new{number:08d}", 300), 12.0)
        roster.hear("K" * 43, Present(f"k{number:010d}", 300), 12.0)
    senders = Counter(member.sender for _, member in roster)
    assert not any(member.name.startswith("new") for _, member in roster), "of its own it has enough"
    assert senders["E" * 43] == 850 and senders["K" * 43] == 50 and len(senders) == 102


def test_what_expires_soon_is_looked_for_ten_times_a_second() -> None:
    lab = Lab(info=None)
    lab.go_to(1.0)
    for number in range(1000):
        lab.hear(present(f"{number:011d}", seconds=1 + number % 2))
        lab.now += 0.0001
    looked = 0
    while lab.members.next_at < 10.0:
        lab.members.handle_timeout(lab.members.next_at)
        looked += 1
    assert lab.members.alive == () and looked < 20


def test_a_herald_is_silent_before_its_time() -> None:
    host = FakeHost()
    herald = Herald(host, HERE, Roster(lambda change: None), ME, (), "")
    herald.asked(Question(None), 0.0)
    herald.handle_timeout(100.0)
    herald.leave(100.0)
    assert host.take() == []
