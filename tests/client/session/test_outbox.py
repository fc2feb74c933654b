"""client/session/outbox.py: how much may be on its way, and until when."""

from kcast.client.session.outbox import WAIT_S, WINDOW_BYTES, Window

NOW = 100.0


def test_a_windows_worth_leaves_and_no_more_until_an_answer_comes() -> None:
    window = Window()
    assert window.room_bytes(NOW) == WINDOW_BYTES
    first = window.sent(WINDOW_BYTES // 2, NOW)
    second = window.sent(WINDOW_BYTES // 2, NOW)
    assert window.room_bytes(NOW) == 0
    window.answered(first)
    assert window.room_bytes(NOW) == WINDOW_BYTES // 2
    window.answered(second)
    window.answered(first)  # an older answer that comes late takes nothing back
    assert window.room_bytes(NOW) == WINDOW_BYTES


def test_without_an_answer_the_wait_is_short() -> None:
    window = Window()
    window.sent(WINDOW_BYTES, NOW)
    assert window.opens_at == NOW + WAIT_S
    assert window.room_bytes(NOW + WAIT_S * 0.99) == 0
    assert window.room_bytes(window.opens_at) == WINDOW_BYTES
