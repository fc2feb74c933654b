"""client/layers/limit.py: a window for each sender, held against a naive one."""

from random import Random
from typing import Any

import pytest

from kcast.client.layers.limit import SENDERS_MAX, FixedWindow, Windows


def test_a_naive_window_says_the_same() -> None:
    rng = Random(1)
    for limit in (
        FixedWindow(3, 1.0),
        FixedWindow(3, 1.0, size_bytes=100),
        FixedWindow(1, 0.5, size_bytes=100),
        FixedWindow(5, 2.0, size_bytes=300, ban_s=7.0),
        FixedWindow(1, 10.0, ban_s=1.0),
    ):
        windows, now = Windows(limit), 0.0
        begun: dict[str, tuple[float, int, int]] = {}
        out_until: dict[str, float] = {}
        for _ in range(3000):
            now += rng.expovariate(8.0)
            sender, size = rng.choice("abc"), rng.choice((10, 90, 101))
            verdict = windows.take(sender, size, now)
            if now < out_until.get(sender, 0.0):
                assert verdict is not None and not verdict.is_first
                assert verdict.wait_s == pytest.approx(out_until[sender] - now)
                continue
            since, count, total = begun.get(sender, (now, 0, 0))
            if now >= since + limit.window_s or sender in out_until:
                since, count, total = now, 0, 0
                out_until.pop(sender, None)
            count, total = count + 1, total + size
            begun[sender] = since, count, total
            if count <= limit.count and (limit.size_bytes is None or total <= limit.size_bytes):
                assert verdict is None
            else:
                assert verdict is not None and verdict.is_first
                out_until[sender] = now + limit.ban_s if limit.ban_s else since + limit.window_s
                assert verdict.wait_s == pytest.approx(out_until[sender] - now)


def test_it_remembers_so_many_senders() -> None:
    windows = Windows(FixedWindow(1, 60.0))
    for number in range(SENDERS_MAX + 10):
        assert windows.take(str(number), 1, 0.0) is None
    assert len(windows) == SENDERS_MAX
    assert windows.take("10", 1, 1.0) is not None and windows.take("9", 1, 1.0) is None
    assert windows.take("11", 1, 60.0) is None, "a new window"
    assert windows.take("new", 1, 60.0) is None and windows.take("11", 1, 60.0) is not None, (
        "is the last to go"
    )


def test_what_is_no_limit() -> None:
    for wrong in ((0, 1.0), (1, 0), (1, float("inf")), (1, 1.0, 0), (1, 1.0, None, -1)):
        with pytest.raises(ValueError, match=r"give"):
            FixedWindow(*wrong)
    kinds: Any = ((1.5, 1.0), (True, 1.0), (1, "1"))
    for kind in kinds:
        with pytest.raises(TypeError, match=r"give"):
            FixedWindow(*kind)
