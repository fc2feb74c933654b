"""Puts deliveries into the order in which each publisher sent them, within a short hold time.

Messages travel by different servers, so the second may arrive before the first. Early ones are held until
the missing ones have come, but not for long: a lost message must not stop the others. Anyone can claim any
number, so a number decides only what waits, and for that time only.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable

from kcast.client.events import Delivery
from kcast.client.messages.sequence import JUMP_MAX

HELD_MAX = 4096
PUBLISHERS_MAX = 4096

_Key = tuple[bytes, str, str | None]  # with the sender, where that is proven


class Sequencer:
    """Holds early deliveries for at most `hold_s` seconds; 0 holds nothing. Clock readings are arguments."""

    def __init__(self, hold_s: float) -> None:
        self.hold_s = hold_s
        self._next_seq: OrderedDict[_Key, int] = OrderedDict()
        self._held: dict[_Key, dict[int, Delivery]] = {}
        self._numbers: dict[_Key, list[int]] = {}  # of what is held, a heap for each key
        self._due: deque[tuple[float, _Key, int]] = deque()
        self._held_count = 0

    def put(self, delivery: Delivery, now: float) -> list[Delivery]:
        """Takes a delivery; returns what can be handed on now, in order."""
        if delivery.seq is None or delivery.publisher is None or not self.hold_s:
            return [delivery]
        key = delivery.topic, delivery.publisher, delivery.sender
        expected = self._next_seq.get(key, 1)
        if delivery.seq < expected - JUMP_MAX:
            expected = delivery.seq  # no late message, but a new start (§9.4)
        self._remember(key, expected)
        held = self._held.get(key, {})
        if delivery.seq < expected or delivery.seq in held:
            return [delivery]  # late; or two have the same number, and neither may be lost
        if delivery.seq == expected:
            self._remember(key, expected + 1)
            return [delivery, *self._run_of(key)]
        self._held.setdefault(key, {})[delivery.seq] = delivery
        heapq.heappush(self._numbers.setdefault(key, []), delivery.seq)
        self._held_count += 1
        self._due.append((now + self.hold_s, key, delivery.seq))
        ready: list[Delivery] = []
        while self._held_count > HELD_MAX:
            ready += self._release_oldest()
        if len(self._due) > 2 * HELD_MAX:  # most of them went out before their time
            self._due = deque(due for due in self._due if due[2] in self._held.get(due[1], ()))
        return ready

    def release(self, now: float) -> list[Delivery]:
        """Returns what has been held long enough."""
        ready: list[Delivery] = []
        while self._due and self._due[0][0] <= now:
            ready += self._release_oldest()
        return ready

    def release_all(self) -> list[Delivery]:
        """Returns all that is held."""
        return self.release(float("inf"))

    def next_timeout(self) -> float | None:
        """Returns when `release` has something to do; None while nothing is held."""
        return self._due[0][0] if self._due else None

    def _release_oldest(self) -> Iterable[Delivery]:
        """Gives up waiting for what precedes the delivery that has been held longest."""
        _, key, seq = self._due.popleft()
        held = self._held.get(key, {})
        if seq not in held:
            return []
        numbers = self._numbers[key]
        before = []
        while numbers and numbers[0] <= seq:
            before.append(held.pop(heapq.heappop(numbers)))
        self._let_go(key, len(before))
        self._remember(key, seq + 1)
        return before + self._run_of(key)

    def _run_of(self, key: _Key) -> list[Delivery]:
        """Returns the held deliveries that come next in order."""
        held = self._held.get(key)
        if not held:
            return []
        seq, numbers = self._next_seq[key], self._numbers[key]
        run: list[Delivery] = []
        while numbers and numbers[0] == seq:  # nothing that is held comes before what is expected
            run.append(held.pop(heapq.heappop(numbers)))
            seq += 1
        self._let_go(key, len(run))
        self._remember(key, seq)
        return run

    def _let_go(self, key: _Key, count: int) -> None:
        self._held_count -= count
        if not self._held[key]:
            del self._held[key], self._numbers[key]

    def _remember(self, key: _Key, next_seq: int) -> None:
        self._next_seq[key] = next_seq
        self._next_seq.move_to_end(key)
        while len(self._next_seq) > PUBLISHERS_MAX:
            # Its held deliveries stay due, and its next number is learnt again.
            self._next_seq.popitem(last=False)
