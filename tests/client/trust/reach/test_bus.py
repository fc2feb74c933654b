"""What clients tell each other of a list: on a bus in memory, with virtual time and liars."""

from collections.abc import Callable, Iterable
from random import Random
from zlib import compressobj

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.bundle import format_bundle
from kcast.client.trust.forms.note import Note, VerifierKey, sign, verify
from kcast.client.trust.reach import bus
from kcast.client.trust.reach.bus import Collected, Forked, ListBus, Newer, pack
from tests.support.lists import NAME, WITNESSES, Lists, key

TOPIC, ASKING, DATA = bus.topics_of(NAME)


class Room:
    """Clients that hear each other; `lose` says which messages do not come."""

    def __init__(self, *clients: ListBus, lose: Callable[[bytes], bool] = lambda payload: False) -> None:
        self.clients = clients
        self.said: list[tuple[float, bytes, bytes]] = []
        self.lose = lose
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
            for topic, payload in speaker.take():
                self.said.append((self.now, topic, payload))
                for each in self.clients:
                    if each is not speaker and topic in each.topics and not self.lose(payload):
                        each.hear(topic, payload, self.now)

    def count(self, topic: bytes) -> int:
        return sum(each == topic for _, each, _ in self.said)


def client(
    lists: Lists, seed: int, *, bundle: bytes | None = None, checkpoint: bytes | None = None
) -> ListBus:
    made = ListBus(NAME, Random(seed))
    made.adopt(lists.document, checkpoint or lists.files["checkpoint"], pack(bundle), 0.0)
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
    first.adopt(lists.document, new, b"", 0.0)
    room.run(bus.SAY_SOON_S)
    said = [payload for _, _, payload in room.said]
    assert said.count(new) == 1
    assert Newer(3) in second.news()
    second.adopt(lists.document, new, b"", room.now)
    room.run(room.now + bus.SAY_SOON_S)
    assert [payload for _, _, payload in room.said].count(new) == 1


def test_few_say_what_all_know() -> None:
    lists, _ = two_versions()
    room = Room(*(client(lists, seed) for seed in range(50)))
    room.run(24 * 3600)
    assert 24 * 0.6 <= room.count(TOPIC) <= 24 * 1.5, room.count(TOPIC)


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
            each.hear(TOPIC, each._note.data if each._note else b"", room.now)
        room.run(room.now + 1800)
        if any(isinstance(news, Forked) for each in room.clients for news in each.news()):
            found_at = room.now
    assert found_at is not None and found_at < 3 * 86_400
    assert room.count(TOPIC) < 10


def test_a_flood_of_what_all_know_makes_nobody_talk_more() -> None:
    lists, _ = two_versions()
    room = Room(*(client(lists, seed) for seed in range(20)))
    (note,) = {each._note.data for each in room.clients if each._note}
    for minute in range(24 * 60):
        for each in room.clients:
            each.hear(TOPIC, note, room.now)
        room.run(minute * 60.0)
    assert room.count(TOPIC) <= 15, room.count(TOPIC)


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
    victim.hear(TOPIC, note.data, 1.0)
    victim.hear(TOPIC, b"rubbish", 1.0)
    assert victim.news() == []


def big_bundle() -> bytes:
    return format_bundle({"list/1": Random(1).randbytes(200_000)})


def judged(asker: ListBus, room: Room, until: float) -> list[bytes]:
    """Returns the bundles that were collected, each of which is refused at once, as a judge does."""
    bundles = []
    while room.now < until:
        room.run(min(until, room.now + 1))
        for each in asker.news():
            assert isinstance(each, Collected)
            bundles.append(each.bundle())
            asker.refuse(room.now)
    return bundles


@pytest.mark.parametrize("lost", [0.0, 0.05])
def test_a_bundle_comes_whole(lost: float) -> None:
    lists, old = two_versions()
    rng = Random(3)
    bundle = big_bundle()
    holders = [client(lists, seed, bundle=bundle) for seed in range(10)]
    asker = client(lists, 99, checkpoint=old)
    room = Room(asker, *holders, lose=lambda payload: rng.random() < lost)
    asker.want(3, 0.0)
    room.run(120)
    (collected,) = asker.news()
    assert isinstance(collected, Collected) and collected.bundle() == bundle
    pieces = -(-200_000 // bus.PIECE_BYTES)
    assert room.count(DATA) < pieces * (1.2 if not lost else 3)
    per_second: dict[int, int] = {}
    for at, topic, _ in room.said:
        if topic == DATA:
            per_second[int(at)] = per_second.get(int(at), 0) + 1
    assert max(per_second.values()) <= bus.PIECES_PER_S * (1.1 if not lost else 4)


def test_a_liar_cannot_keep_a_bundle_from_coming() -> None:
    lists, old = two_versions()
    bundle = big_bundle()
    asker = client(lists, 99, checkpoint=old)
    room = Room(asker, client(lists, 1, bundle=bundle), client(lists, 2, bundle=b"no bundle" * 1000))
    asker.want(3, 0.0)
    for number in range(3):  # candidates that nobody goes on with
        asker.hear(DATA, b"3 %s 9000 0 " % (b"%022d" % number) + bytes(700), 0.0)
    assert bundle in judged(asker, room, 300)


def test_pieces_that_make_no_sense_are_ignored() -> None:
    lists, old = two_versions()
    asker = client(lists, 1, checkpoint=old)
    asker.want(3, 0.0)
    name = b"x" * 22
    for payload in (
        b"",
        b"3",
        b"3 x 9000 0 " + bytes(700),
        b"3 %s 9000 1 " % name + bytes(700),
        b"3 %s 9000 0 " % name + bytes(699),
        b"3 %s 99999999 0 " % name + bytes(700),
        b"4 %s 9000 0 " % name + bytes(700),
        b"3 %s 09000 0 " % name + bytes(700),
        b"3 %s 9000 9100 " % name,
    ):
        asker.hear(DATA, payload, 0.0)
    assert not asker._candidates  # nothing was taken


def test_who_asks_in_vain_stops() -> None:
    lists, old = two_versions()
    asker = client(lists, 1, checkpoint=old)
    asker.want(3, 0.0)
    room = Room(asker)
    room.run(3000)
    assert room.count(ASKING) == bus.ASKS_MAX
    assert DATA not in asker.topics


# --- Floods --------------------------------------------------------------------------------------------


def piece(packed: bytes, at: int = 0, name: str = "") -> bytes:
    head = f"3 {name or bus._hash_of(packed)} {len(packed)} {at} "
    return head.encode() + packed[at : at + bus.PIECE_BYTES]


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
        victim.hear(TOPIC, forged, 10 + number / 10_000)
    assert len(tried) <= 4 * bus.VERIFIED_PER_S + 1
    victim.hear(TOPIC, true, 14)
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
        victim.hear(TOPIC, dressed, number * 10.0)
    told = victim.news()
    assert len(told) == 2 and len(set(told)) == 1


def test_endless_questions_have_few_answers() -> None:
    lists, _ = two_versions()
    bundle = format_bundle({"list/1": Random(1).randbytes(300_000)})
    victim = client(lists, 1, bundle=bundle)
    room = Room(victim)
    pieces = -(-len(bundle) // bus.PIECE_BYTES)
    for tenth in range(36_000):
        for number in range(3):
            at = (tenth * 3 + number) * 7 % pieces * bus.PIECE_BYTES
            victim.hear(ASKING, f"get 3 {at}".encode(), tenth / 10)
        assert len(victim._answers) <= bus.ANSWERS_MAX
        assert len(victim._sending) <= (2 * bus.ANSWERS_MAX) * bus.WINDOW_PIECES
        room.run(tenth / 10)
    assert pieces < room.count(DATA) <= bus.SENT_BUNDLES_PER_H * (pieces + 1) + bus.WINDOW_PIECES
    victim.hear(ASKING, b"get 3 0", 7300.0)
    before = room.count(DATA)
    room.run(7310.0)
    assert room.count(DATA) == before + bus.WINDOW_PIECES, "an hour later it answers again"


def test_nobody_can_make_a_client_ask_for_ever() -> None:
    """A liar goes on with a bundle that never ends, a piece now and then."""
    lists, old = two_versions()
    asker = client(lists, 1, checkpoint=old)
    asker.want(3, 0.0)
    room = Room(asker)
    for number in range(4000):
        asker.hear(DATA, b"3 %s 16000000 %d " % (b"x" * 22, number * 700) + bytes(700), number * 2.0)
        room.run(number * 2.0)
    assert asker.topics == (TOPIC,) and not asker._candidates
    assert room.count(ASKING) <= bus.WANT_MAX_S / bus.ASK_AGAIN_S + 1


def test_a_bundle_that_unpacks_without_end_is_none() -> None:
    endless = compressobj()
    packed = b"".join(endless.compress(bytes(1 << 20)) for _ in range(70)) + endless.flush()
    assert len(packed) < 100_000 and Collected(packed).bundle() == b""
    assert Collected(b"rubbish").bundle() == b""


def test_a_fork_that_too_few_have_signed_is_not_told() -> None:
    lists, _ = two_versions()
    other = Lists()
    other.publish()
    other.publish(other.cluster(14), witnesses=WITNESSES[:4])
    listener = client(lists, 1)
    listener.hear(TOPIC, other.files["checkpoint"], 0.0)
    assert listener.news() == []
    other.serve_tree(WITNESSES[:5])
    listener.hear(TOPIC, other.files["checkpoint"], 0.0)
    assert [type(each) for each in listener.news()] == [Forked]
