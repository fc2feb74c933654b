"""What clients tell each other of a list: on a bus in memory, with virtual time and liars."""

from collections.abc import Callable
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust import bus
from kcast.client.trust.bundle import format_bundle
from kcast.client.trust.bus import Collected, Forked, ListBus, Newer, pack
from kcast.client.trust.note import Note
from tests.support.lists import NAME, SIGNERS, WITNESSES, Lists, document, key, policy

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


def test_topics_are_kcasts_own_and_short() -> None:
    assert TOPIC.startswith(b"\0list/")
    assert len(TOPIC) == 1 + 5 + 22


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


def test_a_checkpoint_fits_into_one_message() -> None:
    lists, _ = two_versions()
    lists.publish(witnesses=WITNESSES)
    room = Room(client(lists, 1))
    room.run(4000)
    (_, _, payload), *_ = room.said
    assert len(Note.parse(payload).signatures) == 6
    assert len(payload) + 2 * payload.count(b"\n") <= 1000


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
    assert Collected(bundle) in asker.news()
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
    room.run(300)
    collected = [each.bundle for each in asker.news() if isinstance(each, Collected)]
    assert bundle in collected


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


def test_a_list_without_witnesses_has_short_checkpoints() -> None:
    lists = Lists(
        document=document(policy=policy(0), own_owners=(), owner_threshold=1, signer_threshold=1),
        owners=SIGNERS[:1],
    )
    lists.publish(keys=SIGNERS[:1], witnesses=())
    room = Room(client(lists, 1))
    room.run(4000)
    assert room.said
