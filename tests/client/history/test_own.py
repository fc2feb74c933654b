"""client/history/own.py: until a server has an entry, and enough others."""

from random import Random
from typing import SupportsBytes

from kcast.client.events import Outcome, Published
from kcast.client.history.entries import Row, entry_of
from kcast.client.history.ids import id_of
from kcast.client.history.own import OwnEntries
from kcast.client.history.words import Keep, Kept, short_of
from kcast.client.publishing.waiters import Waiter
from tests.support import log_lab

ROW = Row(id_of(1_790_000_000_000_000, b"t", b"m"), "a", 1, b"%@AAAAAAAAAAA.1 m")


class Owner:
    """An entry that is on disk, and what is sent and said of it."""

    def __init__(self, confirm: int) -> None:
        self.sent: list[Waiter] = []
        self.said: list[SupportsBytes] = []
        self.outcome = log_lab.Outcome()
        self.own = OwnEntries(self.send, lambda word, now: self.said.append(word), "A" * 11, Random(1))
        entry = entry_of(ROW)
        assert entry is not None
        self.own.begin(ROW, entry, self.outcome, confirm, 1e9)
        self.own.held(ROW, 0.0)
        self.own.handle_timeout(0.0)

    def send(self, message: bytes, now: float, waiter: Waiter) -> None:
        self.sent.append(waiter)

    def tell(self, outcome: Outcome) -> None:
        self.sent[-1].set_result(Published(1, b"t", 1, {"192.0.2.1:1": outcome}))


def test_what_no_server_took_leaves_again_later_and_later() -> None:
    owner, now, waits = Owner(confirm=0), 0.0, list[float]()
    owner.own.handle_timeout(0.0)
    for number in range(1, 8):
        assert len(owner.sent) == number and owner.own.on_the_way == 1
        owner.tell(Outcome.NO_ANSWER)
        waits.append(owner.own.next_at - now)
        now = owner.own.next_at
        owner.own.handle_timeout(now)
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    owner.tell(Outcome.RECEIPT)
    assert owner.own.on_the_way == 0
    owner.own.handle_timeout(now)
    assert not len(owner.own)


def test_an_answer_to_another_question_is_no_vote() -> None:
    owner = Owner(confirm=1)
    (keep,) = owner.said
    assert isinstance(keep, Keep)
    shorts = frozenset([short_of(ROW.entry_id, keep.q)])
    for q in "zzzzzzzz", keep.q:
        assert not owner.outcome.done()
        owner.own.kept(Kept(q, shorts), "B" * 11, 1.0)
        owner.own.handle_timeout(1.0)
    assert owner.outcome.result is not None
