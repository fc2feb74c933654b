"""loadtest/users/progress.py: lines through a pipe, and its closing."""

import json
import os
from collections.abc import Iterator

import pytest

from kcast.loadtest.users.progress import Progress, ProgressPipe

PROGRESS: Progress = {
    "phase": "running",
    "t0_ns": 1,
    "t_s": 0.5,
    "users": 2,
    "ready": 2,
    "published": 3,
    "delivered": 4,
    "missed": 5,
    "late": 0,
    "latency_p50_ms": 0.123,
    "latency_p99_ms": 4.56,
    "publish_delay_p99_ms": 0.1,
    "copies": 6,
    "overflows": 0,
    "slow_consumer": 0,
    "send_errors": 0,
    "lag_max_ms": 1.5,
    "rows_waiting": 0,
    "rows_lost": 0,
    "error": "",
}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_each_progress_is_a_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    progress_pipe = ProgressPipe(writing)
    progress_pipe.write(PROGRESS)
    progress_pipe.write({**PROGRESS, "error": "ä" * 5000})
    first, second, rest = os.read(reading, 65_536).split(b"\n")
    assert json.loads(first) == PROGRESS
    assert json.loads(second)["error"] == "ä" * 200
    assert rest == b""


def test_the_pipe_is_closed_when_nobody_can_read(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    progress_pipe = ProgressPipe(writing)
    assert not progress_pipe.is_closed
    os.close(reading)
    assert progress_pipe.is_closed
    progress_pipe.write(PROGRESS)  # to nobody


def test_a_reader_that_does_not_read_loses_lines_and_blocks_nobody(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    progress_pipe = ProgressPipe(writing)
    for _ in range(1000):
        progress_pipe.write(PROGRESS)
    told = os.read(reading, 1 << 20)
    assert told.endswith(b"\n")
    assert {line for line in told.split(b"\n") if line} == {json.dumps(PROGRESS).encode()}
    assert not progress_pipe.is_closed


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        ProgressPipe(writing)
