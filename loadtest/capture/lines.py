"""Finds a load test's lines in received and sent bursts, many datagrams at once, with numpy.

    load/000012 %@PUBLISHER.17 ....00000007000004d2 LF      a message: its id is the last 16 digits
    load/000012 LF                                          asks for a lease on topic 12, or renews it

A client parses each line in Python, in microseconds. Here a line takes tens of nanoseconds: only LFs are
searched for, everything else is at fixed distances from them. `scenario.topic_name` and `payload` define what
topics and messages of a load test look like.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcast.loadtest.scenario import ID_CHARS, topic_name

_LF, _SPACE, _PERCENT = b"\n %"
_DIGITS = 6
_PREFIX = topic_name(0)[:-_DIGITS]
_TOPIC_BYTES = len(_PREFIX) + _DIGITS
_MESSAGE_BYTES_MIN = _TOPIC_BYTES + 1 + ID_CHARS
_PADDING_BYTES = 16  # is read from where a line begins, even the last one
_PREFIX_WORD = int.from_bytes(_PREFIX, "little")
_PREFIX_MASK = (1 << 8 * len(_PREFIX)) - 1

Indexes = NDArray[np.intp]
Numbers = NDArray[np.int64]


class Found(NamedTuple):
    """The lines that were found.

    Messages: the index of their burst, their id, and the start and end of their line in `data`, without LF.
    Requests for leases: the index of their burst, and their topic. `foreign` is the number of other lines,
    without control lines and empty ones.
    """

    data: bytes
    bursts: Indexes
    msg_ids: Numbers
    starts: Indexes
    ends: Indexes
    subscribe_bursts: Indexes
    subscribe_topics: Numbers
    foreign: int


def sizes_of(bursts: Sequence[bytes]) -> Numbers:
    """Returns the size of each burst."""
    return np.fromiter(map(len, bursts), np.int64, len(bursts))


def find(bursts: Sequence[bytes], sizes_bytes: Numbers) -> Found:
    """Finds the lines in bursts of datagrams. What follows a burst's last LF is ignored."""
    data = b"".join(chain(bursts, (bytes(_PADDING_BYTES),)))
    octets = np.frombuffer(data, np.uint8)
    burst_ends = sizes_bytes.cumsum()
    if not (octets[burst_ends - 1] == _LF).all():
        whole = [burst[: burst.rfind(b"\n") + 1] or b"\n" for burst in bursts]
        return find(whole, sizes_of(whole))
    ends = (octets == _LF).nonzero()[0]
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    sizes = ends - starts
    sources = _sources(ends, burst_ends)

    is_ours = (_items(data, "<u8")[starts] & _PREFIX_MASK) == _PREFIX_WORD
    is_message = is_ours & (sizes >= _MESSAGE_BYTES_MIN) & (octets[starts + _TOPIC_BYTES] == _SPACE)
    messages = is_message.nonzero()[0]
    msg_ids, is_id = _ids(_text(data, ends[messages] - ID_CHARS, ID_CHARS))
    if not is_id.all():
        messages, msg_ids = messages[is_id], msg_ids[is_id]
    none = np.empty(0, np.int64)
    if len(messages) == len(ends):
        return Found(data, sources, msg_ids, starts, ends, none, none, 0)

    subscribes = (is_ours & (sizes == _TOPIC_BYTES)).nonzero()[0]
    topics, is_topic = _topics(_text(data, starts[subscribes] + len(_PREFIX), _DIGITS))
    subscribes, topics = subscribes[is_topic], topics[is_topic]
    has_meaning = (sizes > 0) & (octets[starts] != _PERCENT)
    return Found(
        data,
        sources[messages],
        msg_ids,
        starts[messages],
        ends[messages],
        sources[subscribes],
        topics,
        int(np.count_nonzero(has_meaning)) - len(messages) - len(subscribes),
    )


def _sources(ends: Indexes, burst_ends: Numbers) -> Indexes:
    """Returns the index of each line's burst."""
    if np.array_equal(ends + 1, burst_ends):  # one line in each, as usual at low rates
        return np.arange(len(ends))
    return np.arange(len(burst_ends)).repeat(np.diff(ends.searchsorted(burst_ends), prepend=0))


def count_about(burst: bytes) -> int:
    """Estimates the number of a load test's lines in a burst that is not parsed, warm-ups included."""
    return burst.count(_PREFIX)


def _items(data: bytes, dtype: str) -> NDArray[Any]:
    """Views the data as overlapping items, one at each byte."""
    size_bytes = np.dtype(dtype).itemsize
    return np.ndarray((len(data) - size_bytes + 1,), dtype, data, strides=(1,))


def _text(data: bytes, starts: Indexes, size_bytes: int) -> NDArray[np.uint16]:
    """Returns the text at each of these places, as rows of byte pairs."""
    return _items(data, f"V{size_bytes}")[starts].view("<u2").reshape(-1, size_bytes // 2)


def _ids(text: NDArray[np.uint16]) -> tuple[Numbers, NDArray[np.bool_]]:
    """Parses 16 hex digits as a signed number. Returns numbers, and which of them are valid."""
    octets = _HEX[text]
    return octets.astype(np.uint8).view(">i8").ravel().astype(np.int64), _all(octets >= 0)


def _topics(text: NDArray[np.uint16]) -> tuple[Numbers, NDArray[np.bool_]]:
    """Parses decimal digits. Returns numbers, and which of them are valid."""
    pairs = _DECIMAL[text]
    worths = np.array([100**place for place in reversed(range(_DIGITS // 2))], np.int64)
    return pairs.astype(np.int64) @ worths, _all(pairs >= 0)


def _all(table: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns which rows are all true."""
    rows: NDArray[np.bool_] = np.logical_and.reduce(table, axis=1)
    return rows


def _pair_values(digits: bytes) -> NDArray[np.int16]:
    """Returns the value of two digits, by the number that their bytes make; -1 if they are no digits."""
    values = np.full(1 << 16, -1, np.int16)
    for high, first in enumerate(digits):
        for low, second in enumerate(digits):
            values[second << 8 | first] = high * len(digits) + low
    return values


_HEX = _pair_values(b"0123456789abcdef")
_DECIMAL = _pair_values(b"0123456789")
