"""Joins of tables in numpy, by packed integer keys, with sorting and bisection instead of loops.

Keys are int64. Nothing here knows what they stand for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NOWHERE = -1


def places(ids: Ints, wanted: NDArray[np.integer]) -> Ints:
    """Returns the index of each of `wanted` in `ids`, which are sorted and unique; -1 where it is not."""
    if not len(ids):
        return np.full(len(wanted), NOWHERE, dtype=np.int64)
    found = np.searchsorted(ids, wanted)
    found[found == len(ids)] = 0
    return np.where(ids[found] == wanted, found, NOWHERE)


def expanded(counts: Ints) -> tuple[Ints, Ints]:
    """Returns the rows of a one-to-many join in which owner i has `counts[i]` rows.

    Two arrays: the owner of each row, and the row's number among its owner's rows, from 0.
    """
    owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    firsts = np.cumsum(counts) - counts
    return owners, np.arange(len(owners), dtype=np.int64) - firsts[owners]


class Groups:
    """The rows of a table grouped by key: `keys` are sorted and unique, and each has `counts` rows.

    `rows[starts[i] : starts[i] + counts[i]]` are the rows of `keys[i]`, in their order in the table.
    """

    def __init__(self, keys: Ints) -> None:
        self.rows: Ints = np.argsort(keys, kind="stable")
        ordered = keys[self.rows]
        is_first = np.ones(len(ordered), dtype=np.bool_)
        is_first[1:] = ordered[1:] != ordered[:-1]
        self.starts: Ints = np.flatnonzero(is_first)
        self.keys: Ints = ordered[self.starts]
        self.counts: Ints = np.diff(self.starts, append=len(ordered))

    def __len__(self) -> int:
        return len(self.keys)

    def least(self, values: Ints) -> Ints:
        """Returns the least value in each group, of `values` by row."""
        return np.minimum.reduceat(values[self.rows], self.starts) if len(self) else values[:0]

    def most(self, values: Ints) -> Ints:
        """Returns the greatest value in each group, of `values` by row."""
        return np.maximum.reduceat(values[self.rows], self.starts) if len(self) else values[:0]

    def some(self, flags: Bools) -> Bools:
        """Returns whether any row of each group has its flag set."""
        return np.logical_or.reduceat(flags[self.rows], self.starts) if len(self) else flags[:0]

    def rows_of(self, groups: Ints) -> tuple[Ints, Ints]:
        """Returns all rows of these groups, as two arrays: the index into `groups`, and the row."""
        owners, numbers = expanded(self.counts[groups])
        return owners, self.rows[self.starts[groups][owners] + numbers]


def last_before(keys: Ints, times: Ints, wanted_keys: Ints, wanted_times: Ints) -> Ints:
    """Returns, for each wanted key and time, the last row with that key at or before that time; -1 for none.

    Among rows of one key and time it is the one given last.
    """
    count = len(keys)
    every_key = np.concatenate((keys, wanted_keys))
    every_time = np.concatenate((times, wanted_times))
    # The sort is stable and rows are put first, so a row at the wanted time comes before what is wanted.
    order = np.lexsort((every_time, every_key))
    is_row = order < count
    last = np.maximum.accumulate(np.where(is_row, np.arange(len(order)), NOWHERE))
    at = np.flatnonzero(~is_row)
    candidates = np.where(last[at] < 0, NOWHERE, order[last[at]])
    asked = order[at] - count
    found = np.full(len(wanted_keys), NOWHERE, dtype=np.int64)
    if count:
        found[asked] = np.where(keys[candidates] == wanted_keys[asked], candidates, NOWHERE)
    return found


class Spans:
    """Intervals of time by key, both ends included; those given may overlap."""

    def __init__(self, keys: Ints, starts: Ints, ends: Ints) -> None:
        order = np.lexsort((starts, keys))
        merged: list[list[int]] = []
        for key, start, end in zip(
            keys[order].tolist(), starts[order].tolist(), ends[order].tolist(), strict=True
        ):
            if merged and merged[-1][0] == key and start <= merged[-1][2]:
                merged[-1][2] = max(merged[-1][2], end)
            else:
                merged.append([key, start, end])
        table = np.array(merged, dtype=np.int64).reshape(-1, 3)
        self._keys, self._starts, self._ends = table[:, 0], table[:, 1], table[:, 2]

    def __len__(self) -> int:
        return len(self._keys)

    def contain(self, keys: Ints, times: Ints) -> Bools:
        """Returns whether each time is within one of its key's spans."""
        if not len(self):
            return np.zeros(len(keys), dtype=np.bool_)
        last = last_before(self._keys, self._starts, keys, times)
        is_within: Bools = (last != NOWHERE) & (times <= self._ends[last])
        return is_within

    def overlap(self, keys: Ints, froms: Ints, tos: Ints) -> Bools:
        """Returns whether each interval `froms` .. `tos` overlaps one of its key's spans."""
        if not len(self):
            return np.zeros(len(keys), dtype=np.bool_)
        last = last_before(self._keys, self._starts, keys, tos)
        has_met: Bools = (last != NOWHERE) & (froms <= self._ends[last])
        return has_met


def group_sums(
    keys: Sequence[NDArray[Any]], values: Sequence[NDArray[Any]]
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Returns the distinct combinations of keys, sorted, and the sums of each of `values` over their rows.

    Without keys, or without rows, nothing is sorted: all rows are one group, or none.
    """
    whole = [np.asarray(key).astype(np.int64, copy=False) for key in keys]
    totals = [np.asarray(value).astype(np.int64, copy=False) for value in values]
    if not whole or not len(whole[0]):
        return whole, [total.sum(keepdims=True) if not whole else total for total in totals]
    packed = _packed(whole)
    order = np.argsort(packed, kind="stable") if packed is not None else np.lexsort(whole[::-1])
    ordered = [key[order] for key in ([packed] if packed is not None else whole)]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in ordered])
    starts = np.flatnonzero(is_first)
    firsts = order[starts]
    return [key[firsts] for key in whole], [np.add.reduceat(total[order], starts) for total in totals]


def _packed(keys: Sequence[Ints]) -> Ints | None:
    """The keys as one, in the same order; None where that takes more than 63 bits."""
    lows = [int(key.min()) for key in keys]
    widths = [int(key.max()) - low + 1 for key, low in zip(keys, lows, strict=True)]
    if np.prod([float(width) for width in widths]) >= 2.0**62:
        return None
    packed = keys[0] - lows[0]
    for key, low, width in zip(keys[1:], lows[1:], widths[1:], strict=True):
        packed = packed * width + (key - low)
    return packed
