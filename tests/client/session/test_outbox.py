"""client/session/outbox.py: how much may be on its way, and until when."""

from random import Random

from kcast.client.events import Outcome
from kcast.client.session.outbox import PATIENCE_S, WAIT_S, WINDOW_BYTES, Outbox, Window
from kcast.client.session.requests import Parcel, Requests
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

NOW = 100.0


def test_a_windows_worth_leaves_and_no_more_until_an_answer_comes() -> None:
    window = Window()
    assert window.room_bytes(NOW) == WINDOW_BYTES
    first = window.sent(WINDOW_BYTES // 2, NOW)
    second = window.sent(WINDOW_BYTES // 2, NOW)
    assert window.room_bytes(NOW) == 0
    window.answered(first, 0.001)
    assert window.room_bytes(NOW) == WINDOW_BYTES // 2
    window.answered(second, 0.001)
    window.answered(first, 0.001)  # an older answer that comes late takes nothing back
    assert window.room_bytes(NOW) == WINDOW_BYTES


def test_without_an_answer_the_wait_is_short() -> None:
    window = Window()
    window.sent(WINDOW_BYTES, NOW)
    assert window.opens_at == NOW + WAIT_S
    assert window.room_bytes(NOW + WAIT_S * 0.99) == 0
    assert window.room_bytes(window.opens_at) == WINDOW_BYTES


def test_a_server_whose_answers_come_late_gets_no_more_than_it_works_off() -> None:
    """Else what waits there grows, until all of it seems unanswered."""
    window = Window()
    window.answered(window.sent(1000, NOW), 0.1)
    assert window.opens_at == NOW + WAIT_S, "it is far away"
    window.answered(window.sent(1000, NOW), 0.4)
    window.sent(WINDOW_BYTES, NOW)
    assert window.room_bytes(NOW + 0.5) == 0 < window.room_bytes(NOW + 1.0)


def test_a_server_that_refuses_gets_half_as_much_after_a_pause_and_more_with_each_answer() -> None:
    window = Window()
    window.refused(NOW, 0.02)
    assert window.room_bytes(NOW) == 0
    assert window.room_bytes(window.opens_at) == WINDOW_BYTES // 2
    for _ in range(10):
        window.refused(NOW, 0.02)
    least = window.room_bytes(window.opens_at)
    window.answered(0, 0.1)
    assert 0 < least < window.room_bytes(NOW + 1.0) <= 2 * DATAGRAM_BYTES_MAX


def test_patience_begins_anew_where_nothing_was_refused_for_as_long() -> None:
    outbox = Outbox(Requests(Random(1)), 10)
    one, several = Parcel(b"t x\n", 1, True), Parcel(b"t x\nt y\n", 2, True, (0, 1))
    outbox.refused([one], "rate", NOW)
    for at, is_settled in (
        (NOW + PATIENCE_S + 10, False),
        (NOW + 2 * PATIENCE_S, False),
        (NOW + 2 * PATIENCE_S + 11, True),
    ):
        outbox.take_settled()
        outbox.refused([several], "rate", at)
        assert [each.outcome for each in outbox.take_settled()] == [Outcome.REFUSED] * is_settled
