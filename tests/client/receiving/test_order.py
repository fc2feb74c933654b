"""client/receiving/order.py: deliveries in the order in which each publisher sent them."""

from random import Random

import pytest

from kcast.client.events import Delivery
from kcast.client.receiving import order
from kcast.client.receiving.order import Sequencer
from tests.support.forms import Seeds


def delivery(seq: int | None, publisher: str | None = "alice", topic: bytes = b"t") -> Delivery:
    return Delivery(topic, b"%d" % (seq or 0), "server", publisher, seq)


def seqs(deliveries: list[Delivery]) -> list[int | None]:
    return [each.seq for each in deliveries]


@pytest.fixture
def sequencer() -> Sequencer:
    return Sequencer(0.1)


def test_what_comes_in_order_is_not_held(sequencer: Sequencer) -> None:
    assert [seqs(sequencer.put(delivery(seq), 0.0)) for seq in (1, 2, 3)] == [[1], [2], [3]]
    assert sequencer.next_timeout() is None


def test_what_comes_early_waits_for_what_is_missing(sequencer: Sequencer) -> None:
    assert sequencer.put(delivery(3), 0.0) == []
    assert sequencer.put(delivery(2), 0.01) == []
    assert seqs(sequencer.put(delivery(1), 0.02)) == [1, 2, 3]
    assert sequencer.release_all() == []


def test_what_is_missing_is_not_waited_for_long(sequencer: Sequencer) -> None:
    sequencer.put(delivery(1), 0.0)
    for seq, now in ((3, 1.0), (4, 1.05), (6, 1.06)):
        assert sequencer.put(delivery(seq), now) == []
    assert sequencer.next_timeout() == pytest.approx(1.1)
    assert sequencer.release(1.09) == []
    assert seqs(sequencer.release(1.1)) == [3, 4]
    assert seqs(sequencer.put(delivery(2), 1.11)) == [2]  # late, but not lost
    assert seqs(sequencer.put(delivery(5), 1.12)) == [5, 6]
    assert sequencer.release_all() == []


@pytest.mark.parametrize("hold_s", [0.0, 0.1])
def test_raw_messages_have_no_order(hold_s: float) -> None:
    assert seqs(Sequencer(hold_s).put(delivery(None, None), 0.0)) == [None]


def test_no_hold_is_no_order() -> None:
    sequencer = Sequencer(0.0)
    assert [seqs(sequencer.put(delivery(seq), 0.0)) for seq in (3, 1, 2)] == [[3], [1], [2]]


def test_a_number_claimed_twice_loses_neither(sequencer: Sequencer) -> None:
    sequencer.put(delivery(2), 0.0)
    assert seqs(sequencer.put(delivery(2), 0.0)) == [2]
    assert seqs(sequencer.put(delivery(1), 0.0)) == [1, 2]


def test_nothing_is_lost_or_doubled_whatever_the_order(seeds: Seeds, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds(10, 50):
        monkeypatch.setattr(order, "HELD_MAX", 20)
        monkeypatch.setattr(order, "PUBLISHERS_MAX", 3)
        rng = Random(seed)
        sent = [delivery(seq, publisher) for publisher in "abcdef" for seq in range(1, 60)]
        arriving = sorted(sent, key=lambda each: (each.seq or 0) + rng.uniform(0, rng.choice((1, 10, 100))))
        sequencer = Sequencer(0.1)
        got: list[Delivery] = []
        now = 0.0
        for each in arriving:
            now += rng.uniform(0, 0.02)
            got += sequencer.release(now) + sequencer.put(each, now)
        got += sequencer.release_all()
        assert sequencer.next_timeout() is None
        assert len(got) == len(sent)
        assert {(d.publisher, d.seq) for d in got} == {(d.publisher, d.seq) for d in sent}


def test_what_is_remembered_is_bounded_however_long_the_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what went out long before its time was over."""
    monkeypatch.setattr(order, "HELD_MAX", 20)
    sequencer = Sequencer(3600.0)
    sequencer.put(delivery(9, "lost"), 0.0)
    for seq in range(1, 1001, 2):
        assert seqs(sequencer.put(delivery(seq + 1), 0.0)) == []
        assert seqs(sequencer.put(delivery(seq), 0.0)) == [seq, seq + 1]
    assert len(sequencer._due) <= 41
    assert seqs(sequencer.release_all()) == [9]


@pytest.mark.parametrize("forged", [10**17, 5000])
def test_a_forged_number_costs_no_publisher_its_order(forged: int) -> None:
    """Anyone can claim any number; and a publisher that begins again has lower ones."""
    sequencer = Sequencer(0.1)
    assert seqs(sequencer.put(delivery(1), 0.0)) == [1]
    assert seqs(sequencer.put(delivery(forged), 0.0)) == []
    assert seqs(sequencer.release(0.1)) == [forged]
    assert seqs(sequencer.put(delivery(2), 0.2)) == [2]
    assert seqs(sequencer.put(delivery(4), 0.2)) == []
    assert seqs(sequencer.put(delivery(3), 0.2)) == [3, 4]


def test_nobody_disturbs_the_order_of_one_whose_signatures_are_verified(sequencer: Sequencer) -> None:
    """Who may publish, too, and claims her name with a huge number."""
    for seq in (1, 2):
        assert seqs(sequencer.put(delivery(seq)._replace(sender="key of alice"), 0.0)) == [seq]
    assert sequencer.put(delivery(10**17)._replace(sender="key of bob"), 0.0) == []
    assert sequencer.put(delivery(4)._replace(sender="key of alice"), 0.01) == []
    assert seqs(sequencer.put(delivery(3)._replace(sender="key of alice"), 0.02)) == [3, 4]
    assert seqs(sequencer.release(0.1)) == [10**17]
    assert seqs(sequencer.put(delivery(5)._replace(sender="key of alice"), 0.2)) == [5]
