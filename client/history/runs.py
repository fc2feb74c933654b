"""Runs of numbers that are held of each publisher, as a question carries them. Sans-IO. PROTOCOL §9.12.

A run is some 20 characters for any number of entries: `q7Hn2sV0aLx:1-4711,4713`. A number is a claim: two
entries may have one, and what that hides is found by fingerprints.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

Run = tuple[int, int]  # the first number, and the last
RunsOf = Mapping[str, Sequence[Run]]  # by publisher
_HeldRun = tuple[int, int, bytes]  # and the largest id of an entry with one of these numbers
Place = tuple[str, int]  # a publisher and a number: a place among all of them

FIRST: Place = ("", 0)
LAST: Place = ("~", 0)  # after all publishers
SEQ_MAX = 10**18 - 1
REFUSED_RUNS = 8  # of a publisher, beyond which refused numbers are taken only beside others
RISE_PUBLISHERS = 1_000  # that are looked at when the floor rises: some 1 ms
PLACE_CHARS = 43 + 1 + 18  # at most
_SEQ = "[1-9][0-9]{0,17}"
_PLACE = re.compile(rf"([0-9A-Za-z_-]{{1,43}})\.({_SEQ})")
_RUNS = re.compile(rf"([0-9A-Za-z_-]{{1,43}}):({_SEQ}(?:-{_SEQ})?(?:,{_SEQ}(?:-{_SEQ})?)*)")


class Slice(NamedTuple):
    """A part of all runs: those from a place on, and before another, as text."""

    start: Place
    stop: Place
    text: str


class Runs:
    """Runs of the numbers of each publisher, and its newest id."""

    def __init__(self) -> None:
        self._runs: dict[str, list[_HeldRun]] = {}
        self._newest: dict[str, bytes] = {}
        self._unseen: list[str] = []  # publishers at which the floor has not looked in this round

    def __len__(self) -> int:
        return len(self._runs)

    def refuse(self, publisher: str, seq: int, entry_id: bytes) -> None:
        """Takes the number of an entry in that is not wanted, so that it is not asked for: of a publisher
        that is known, and where that takes little room."""
        runs = self._runs.get(publisher, [])
        at = bisect_right(runs, seq, key=itemgetter(0))
        is_beside = any(first - 1 <= seq <= last + 1 for first, last, _ in runs[max(0, at - 1) : at + 1])
        if is_beside or 0 < len(runs) < REFUSED_RUNS:
            self.add(publisher, seq, entry_id)

    def add(self, publisher: str, seq: int, entry_id: bytes) -> None:
        """Takes a number of a publisher in, which may be known."""
        if entry_id > self._newest.get(publisher, b""):
            self._newest[publisher] = entry_id
        runs = self._runs.get(publisher)
        if runs is None:
            self._runs[publisher] = [(seq, seq, entry_id)]
            return
        if runs:
            first, last, newest = runs[-1]
            if last + 1 == seq and entry_id > newest:  # as most come
                runs[-1] = first, seq, entry_id
                return
        high = bisect_right(runs, seq + 1, key=itemgetter(0))
        low = bisect_left(runs, seq - 1, hi=high, key=itemgetter(1))
        firsts, lasts, ids = zip(*runs[low:high], (seq, seq, entry_id), strict=True)  # those beside it, too
        runs[low:high] = [(min(firsts), max(lasts), max(ids))]

    def remove(self, publisher: str, seq: int) -> None:
        """Takes a number of a publisher out."""
        runs = self._runs.get(publisher, [])
        at = bisect_right(runs, seq, key=itemgetter(0)) - 1
        if at >= 0 and runs[at][1] >= seq:
            first, last, newest = runs[at]
            parts = (first, seq - 1, newest), (seq + 1, last, newest)
            runs[at : at + 1] = [each for each in parts if each[0] <= each[1]]

    def rise(self, floor: bytes) -> None:
        """Forgets runs of which nothing is held from a floor on, beginning with the smallest numbers; of
        some publishers, and with the next rise of others."""
        self._unseen = self._unseen or list(self._runs)
        for _ in range(min(len(self._unseen), RISE_PUBLISHERS)):
            runs = self._runs[publisher := self._unseen.pop()]
            del runs[: next((at for at, run in enumerate(runs) if run[2] >= floor), len(runs))]
            if not runs:
                del self._newest[publisher], self._runs[publisher]

    def heard_since(self, since: bytes) -> int:
        """Returns how many publishers were heard since an id."""
        return sum(newest >= since for newest in self._newest.values())

    def _heard(self, since: bytes, start: Place, stop: Place) -> list[str]:
        heard = [each for each, newest in self._newest.items() if newest >= since]
        return [each for each in heard if start[0] <= each <= stop[0]]

    def slices(
        self, since: bytes, chars_max: int, start: Place = FIRST, stop: Place = LAST
    ) -> Iterator[Slice]:
        """Yields the runs of the publishers that were heard since an id, cut into texts of at most so many
        characters. Together they reach from `start` to `stop`, without a gap."""
        text = ""
        for publisher in sorted(self._heard(since, start, stop)):
            before = f" {publisher}:"
            for first, last, _ in self._runs[publisher]:
                if (publisher, last) < start or (publisher, first) >= stop:
                    continue
                low = max(first, start[1]) if publisher == start[0] else first
                high = min(last, stop[1] - 1) if publisher == stop[0] else last
                run = str(low) if low == high else f"{low}-{high}"
                if text and len(text) + len(before) + len(run) > chars_max + 1:
                    yield Slice(start, (publisher, low), text[1:])
                    start, text, before = (publisher, low), "", f" {publisher}:"
                text += before + run
                before = ","
        yield Slice(start, stop, text[1:])

    def beyond(self, held: RunsOf, since: bytes, start: Place, stop: Place) -> Iterator[tuple[str, int, int]]:
        """Yields the runs that are here and not in `held`, each with its publisher: of those publishers that
        were heard since an id, and from `start` on and before `stop`."""
        for publisher in self._heard(since, start, stop):
            low = start[1] if publisher == start[0] else 0
            high = stop[1] - 1 if publisher == stop[0] else SEQ_MAX
            theirs = held.get(publisher, ())
            for first, last, _ in self._runs[publisher]:
                first, last = max(first, low), min(last, high)
                at = max(0, bisect_right(theirs, first, key=itemgetter(0)) - 1)
                while first <= last and at < len(theirs) and theirs[at][0] <= last:
                    if theirs[at][0] > first:
                        yield publisher, first, theirs[at][0] - 1
                    first = max(first, theirs[at][1] + 1)
                    at += 1
                if first <= last:
                    yield publisher, first, last


def place_text(place: Place) -> str:
    """Returns a place as text."""
    return "-" if place in (FIRST, LAST) else f"{place[0]}.{place[1]}"


def parse_place(text: str, otherwise: Place) -> Place | None:
    """Reads a place; `-` is what is given; None where it is none."""
    if text == "-":
        return otherwise
    found = _PLACE.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def parse_runs(text: str) -> dict[str, list[Run]] | None:
    """Reads runs by publisher; None where it is none, or they are not in order. They are never unrolled."""
    runs: dict[str, list[Run]] = {}
    for each in text.split(" ") if text else ():
        found = _RUNS.fullmatch(each)
        if found is None or found[1] in runs:
            return None
        of_one: list[Run] = []
        for run in found[2].split(","):
            first, _, last = run.partition("-")
            of_one.append((int(first), int(last or first)))
        if any(first > last for first, last in of_one) or any(
            before[1] >= after[0] for before, after in pairwise(of_one)
        ):
            return None
        runs[found[1]] = of_one
    return runs


def has(runs: RunsOf, publisher: str, seq: int) -> bool:
    """Whether a number is in runs."""
    of_one = runs.get(publisher, ())
    at = bisect_left(of_one, seq + 1, key=itemgetter(0))
    return at > 0 and of_one[at - 1][1] >= seq
