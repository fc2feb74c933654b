"""What clients tell each other of a list: on a bus in memory, with virtual time and liars."""

from collections.abc import Iterable
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.note import Note, VerifierKey, sign, verify
from kcast.client.trust.reach import bus
from kcast.client.trust.reach.bus import Forked, ListBus, Newer
from tests.support.lists import NAME, WITNESSES, Lists, key


class Room:
    """Clients that hear each other."""

    def __init__(self, *clients: ListBus) -> None:
        self.clients = clients
        self.said: list[bytes] = []
        self.now = 0.0

    def run(self, until: float) -> None:
        while True:
            self.spread()
            times = [at for each in self.clients if (at := each.next_timeout()) is not None]
            if not times or min(times) > until:
                break
            self.now = max(self.now, min(times))
            for each in self.clients:
                each.handle_timeout(self.now)
        self.now = until

    def spread(self) -> None:
        for speaker in self.clients:
            for payload in speaker.take():
                self.said.append(payload)
                for each in self.clients:
                    if each is not speaker:
                        each.hear(payload, self.now)


def client(lists: Lists, seed: int, *, checkpoint: bytes | None = None) -> ListBus:
    made = ListBus(NAME, Random(seed))
    made.adopt(lists.document, checkpoint or lists.files["checkpoint"], 0.0)
    return made


def two_versions() -> tuple[Lists, bytes]:
    """Lists of two versions, and the checkpoint of the first."""
    lists = Lists()
    lists.publish()
    old = lists.files["checkpoint"]
    lists.publish(lists.cluster(13))
    return lists, old


def test_what_is_newer_is_said_soon_unless_another_has_said_it() -> None:
    lists, old = two_versions()
    new = lists.files["checkpoint"]
    first, second, third = (client(lists, seed, checkpoint=old) for seed in range(3))
    room = Room(first, second, third)
    first.adopt(lists.document, new, 0.0)
    room.run(bus.SAY_SOON_S)
    assert room.said.count(new) == 1
    assert Newer(3) in second.news()
    second.adopt(lists.document, new, room.now)
    room.run(room.now + bus.SAY_SOON_S)
    assert room.said.count(new) == 1


def test_few_say_what_all_know() -> None:
    lists, _ = two_versions()
    room = Room(*(client(lists, seed) for seed in range(50)))
    room.run(24 * 3600)
    assert 24 * 0.6 <= len(room.said) <= 24 * 1.5, len(room.said)


def test_who_tells_each_client_its_own_checkpoint_does_not_keep_them_silent_for_good() -> None:
    """A lying server hides a split view by suppression: it goes on saying to each what that one would say."""
    lists, _ = two_versions()
    other = Lists()
    other.publish()
    other.publish(other.cluster(14))
    views = [lists] * 5 + [other] * 5
    room = Room(*(client(each, seed) for seed, each in enumerate(views)))
    found_at = None
    while found_at is None and room.now < 30 * 86_400:
        for each in room.clients:
            each.hear(each._note.data if each._note else b"", room.now)
        room.run(room.now + 1800)
        if any(isinstance(news, Forked) for each in room.clients for news in each.news()):
            found_at = room.now
    assert found_at is not None and found_at < 3 * 86_400
    assert len(room.said) < 10


def test_a_flood_of_what_all_know_makes_nobody_talk_more() -> None:
    lists, _ = two_versions()
    room = Room(*(client(lists, seed) for seed in range(20)))
    (note,) = {each._note.data for each in room.clients if each._note}
    for minute in range(24 * 60):
        for each in room.clients:
            each.hear(note, room.now)
        room.run(minute * 60.0)
    assert len(room.said) <= 15, len(room.said)


def test_who_is_behind_hears_of_it_and_the_other_says_it_soon() -> None:
    lists, old = two_versions()
    ahead, behind = client(lists, 1), client(lists, 2, checkpoint=old)
    room = Room(ahead, behind)
    room.run(4000)
    assert Newer(3) in behind.news()
    assert ahead.news() == []


def test_a_fork_is_seen_by_all_who_hear_it() -> None:
    one, other = Lists(), Lists()
    one.publish(one.cluster(12))
    other.publish(other.cluster(13))
    first, second = client(one, 1), client(other, 2)
    room = Room(first, second)
    room.run(4000)
    assert set(first.news()) == {Forked(other.files["checkpoint"])}
    assert set(second.news()) == {Forked(one.files["checkpoint"])}


@pytest.mark.parametrize("liar", ["unsigned", "no quorum", "another log"])
def test_what_is_not_verified_is_ignored(liar: str) -> None:
    lists, old = two_versions()
    victim = client(lists, 1, checkpoint=old)
    if liar == "unsigned":
        note = Note(Note.parse(lists.files["checkpoint"]).text, Note.parse(old).signatures)
    else:
        lists.log = key("example.org/lab/log", 0x70) if liar == "another log" else lists.log
        note = lists.serve_tree(WITNESSES[:4] if liar == "no quorum" else WITNESSES)
    victim.hear(note.data, 1.0)
    victim.hear(b"rubbish", 1.0)
    assert victim.news() == []


# --- Floods --------------------------------------------------------------------------------------------


def test_forged_checkpoints_cost_few_verifications(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, old = two_versions()
    victim, true = client(lists, 1, checkpoint=old), lists.files["checkpoint"]
    tried = []

    def counted(note: Note, keys: Iterable[VerifierKey]) -> tuple[VerifierKey, ...]:
        tried.append(note)
        return verify(note, keys)

    monkeypatch.setattr(bus, "verify", counted)
    forged = Note(Note.parse(true).text.replace("\n3\n", "\n4\n"), Note.parse(true).signatures).data
    for number in range(30_000):
        victim.hear(forged, 10 + number / 10_000)
    assert len(tried) <= 4 * bus.VERIFIED_PER_S + 1
    victim.hear(true, 14)
    assert victim.news() == [Newer(3)], "a second later all is as before"


def test_one_fork_is_told_once_an_hour_however_it_is_dressed() -> None:
    """Whoever has heard of it can add lines of signatures, and would fill disks with evidence."""
    one, other = Lists(), Lists()
    one.publish(one.cluster(12))
    other.publish(other.cluster(13))
    victim, fork = client(one, 1), other.files["checkpoint"]
    for number in range(500):
        stranger = sign(Note.parse(fork).text, [key(f"stranger-{number}", number % 256)]).signatures
        dressed = Note(Note.parse(fork).text, (*Note.parse(fork).signatures, *stranger)).data
        victim.hear(dressed, number * 10.0)
    told = victim.news()
    assert len(told) == 2 and len(set(told)) == 1


def test_a_fork_that_too_few_have_signed_is_not_told() -> None:
    lists, _ = two_versions()
    other = Lists()
    other.publish()
    other.publish(other.cluster(14), witnesses=WITNESSES[:4])
    listener = client(lists, 1)
    listener.hear(other.files["checkpoint"], 0.0)
    assert listener.news() == []
    other.serve_tree(WITNESSES[:5])
    listener.hear(other.files["checkpoint"], 0.0)
    assert [type(each) for each in listener.news()] == [Forked]
