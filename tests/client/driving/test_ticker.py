import os
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from kcast.client.driving.ticker import Ticker
from tests.support.locks import held_elsewhere

WAIT_S = 20.0


class Timed:
    """A ticker, and when it has called."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[float] = SimpleQueue()
        self.ticker = Ticker(lambda: self.calls.put(time.monotonic()))


@pytest.fixture
def timed() -> Iterator[Timed]:
    timed = Timed()
    yield timed
    timed.ticker.close()


def test_it_calls_once_and_not_before_its_time(timed: Timed) -> None:
    for delay_s in (0.0, 0.0005, 0.03):
        set_at = time.monotonic()
        timed.ticker.wake_in(delay_s)
        assert timed.calls.get(timeout=WAIT_S) >= set_at + delay_s
    with pytest.raises(Empty):
        timed.calls.get(timeout=0.05)


def test_the_time_that_was_set_last_counts(timed: Timed) -> None:
    set_at = time.monotonic()
    timed.ticker.wake_in(1000.0)
    timed.ticker.wake_in(0.01)
    assert timed.calls.get(timeout=WAIT_S) < set_at + WAIT_S
    set_at = time.monotonic()
    timed.ticker.wake_in(0.01)
    timed.ticker.wake_in(0.2)
    assert timed.calls.get(timeout=WAIT_S) >= set_at + 0.2
    timed.ticker.wake_in(0.01)
    timed.ticker.wake_in(None)
    with pytest.raises(Empty):
        timed.calls.get(timeout=0.05)


def test_its_thread_ends() -> None:
    before = set(threading.enumerate())
    ticker = Timed().ticker
    (thread,) = [each for each in threading.enumerate() if each.name == "kcast-ticker" and each not in before]
    ticker.close()
    ticker.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_forked_process_closes_it_without_waiting(timed: Timed) -> None:
    with held_elsewhere(timed.ticker._changed):
        child = os.fork()
        if child == 0:
            timed.ticker.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
