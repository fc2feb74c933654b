"""client/publishing/waiters.py: who is told which outcome, and when all of them are known."""

from concurrent.futures import Future
from typing import Any

import pytest

from kcast.client.events import Published
from kcast.client.publishing.waiters import Waiters


def published(handle: int) -> Published:
    return Published(handle, b"t", 1, {})


def test_each_is_told_the_outcome_of_its_handle_once() -> None:
    waiters = Waiters()
    first, second = Future[Any](), Future[Any]()
    waiters.put(1, first)
    waiters.put(2, second)
    waiters.tell(published(2))
    waiters.tell(published(2))
    waiters.tell(published(3))  # for which nobody waits
    assert not first.done() and second.result(0) == published(2)
    assert len(waiters) == 1


def test_a_flush_ends_when_no_older_handle_is_without_an_outcome() -> None:
    waiters = Waiters()
    early, late = Future[Any](), Future[Any]()
    waiters.put_flushing(5, early)
    waiters.put_flushing(9, late)
    waiters.look_for_flushed(oldest=5)
    assert not early.done() and waiters.is_flushing
    waiters.look_for_flushed(oldest=6)
    assert early.result(0) is None and not late.done()
    waiters.look_for_flushed(oldest=None)
    assert late.result(0) is None and not waiters.is_flushing and not len(waiters)


def test_at_the_end_all_are_told_why_but_those_who_wait_no_longer() -> None:
    waiters = Waiters()
    one, flushing, done = Future[Any](), Future[Any](), Future[Any]()
    done.set_result(None)
    for handle, waiter in ((1, one), (2, done)):
        waiters.put(handle, waiter)
    waiters.put_flushing(2, flushing)
    waiters.end(lambda: ValueError("closed"))
    for each in (one, flushing):
        with pytest.raises(ValueError, match="closed"):
            each.result(0)
    assert not len(waiters)
