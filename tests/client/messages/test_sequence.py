"""client/messages/sequence.py: one sequence for each topic, within a bound. PROTOCOL §9.1, §9.4."""

from random import Random

from kcast.client.messages.sequence import JUMP_MAX, Numbering
from kcast.client.receiving.gaps import GapTracker


def published(numbering: Numbering, topic: bytes) -> int:
    seq = numbering.next(topic)
    numbering.use(topic, seq)
    return seq


def test_each_topic_counts_from_1() -> None:
    numbering = Numbering()
    assert [published(numbering, topic) for topic in (b"t", b"u", b"t", b"t", b"u")] == [1, 1, 2, 3, 2]
    assert numbering.next(b"t") == numbering.next(b"t") == 4, "only use counts"


def test_topics_are_bounded_and_those_used_longest_ago_go_first() -> None:
    numbering = Numbering(topics_max=2)
    for topic in (b"t", b"u", b"t", b"v"):
        published(numbering, topic)
    assert len(numbering) == 2
    assert published(numbering, b"t") == 3, "u was forgotten"


def test_a_forgotten_topic_goes_on_where_no_subscriber_takes_it_for_old_or_for_a_gap() -> None:
    rng = Random(1)
    numbering, gaps = Numbering(topics_max=5), GapTracker()
    last: dict[bytes, int] = {}
    jumps = 0
    now = 0.0
    for _ in range(5000):
        topic = b"%d" % min(rng.randrange(12), rng.randrange(12))
        seq = published(numbering, topic)
        before = last.get(topic, 0)
        assert seq == before + 1 or seq > before + JUMP_MAX
        jumps += bool(before) and seq != before + 1
        last[topic] = seq
        now += 0.5
        assert gaps.heard((topic, "p"), seq, now) is None
        assert list(gaps.settle(now)) == []
    assert jumps > 100
    assert max(last.values()) < 10**8
