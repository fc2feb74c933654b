"""When a log says what it has, who else holds it, and from where on another has something else. Sans-IO.

PROTOCOL §9.12. Logs say it as Trickle does (RFC 6206): at random in the second half of an interval of 20 s,
and not where three have just said the same; 1 s, doubling, after something was new. Who is heard for the
first time is answered at random within the next moment, by three or some more of all who hear it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

from kcast.client.events import Drop
from kcast.client.history.host import Held, SyncHost
from kcast.client.history.ids import AHEAD_S, CLOCK_MIN, ID_BYTES, varint
from kcast.client.history.index import HIGHEST, LOWEST
from kcast.client.history.words import BLOCKS_MAX, Have
from kcast.client.session.requests import RoundTripTime

AGE_S = 5.0  # of what is said to be there: younger entries may be on their way
SETTLED_S = 3.0  # of what is compared: another's clock may be ahead
BLOCK_US = 120_000_000  # the newest block's; the next ones reach back 8 times as far each
INTERVAL_S_MIN, INTERVAL_S_MAX = 1.0, 20.0
EQUAL_MAX = 3  # that were said by others: then it need not be said
ANSWER_S_MAX, ANSWER_S = 1.0, 0.03  # the longest delay of an answer, and that for each holder
ANSWER_S_BETWEEN = 1.0
NEW_S = ANSWER_S_BETWEEN + ANSWER_S_MAX  # by then all that one does not hear at once have answered
QUIET_S = 2.0
VAIN_MAX = 2  # syncs by runs that brought nothing
HOLDERS_MAX = 1024
HOLDER_S = 600.0
COMPARED_MAX = 50  # in a second
FEWER_S = 10.0  # for which a holder that has fewer is left to ask for what it lacks


@dataclass(slots=True, eq=False)
class Holder:
    """Another log of the topic: its mailbox, what it said last, and what came of asking it."""

    name: str
    have: Have
    bounds: Sequence[bytes]  # of its blocks, the newest first
    sender: str | None  # the key that proves it
    heard_at: float
    equal: tuple[bytes, bytes] = LOWEST, LOWEST  # from here, and up to here, it had what we had
    due_at: float = -inf  # when all is old enough that it speaks of
    silences: int = 0  # since it answered last
    vain: int = 0  # syncs in a row that brought nothing, though it has something else
    again_at: float = -inf  # when to ask it again; until then it is left to ask for what it lacks
    word: str = "-"  # what it said to us
    looked_at: object = None  # what it had across a floor, and we, when all of that was looked at
    pins: object = None  # what it had pinned, and what we lacked, when it was asked for that
    round_trip: RoundTripTime = field(default_factory=RoundTripTime)

    def forgive(self) -> None:
        """Forgets that syncs were in vain."""
        self.vain, self.again_at = 0, -inf


class Difference(NamedTuple):
    """From where on a holder has something that we may lack; the range that cannot be compared, since our
    floor is higher, and what both have there; which pinned entries it was not asked for yet, though it may
    have them; and whether all blocks are equal that can be."""

    lo: bytes | None
    across: tuple[bytes, bytes] | None
    both: object
    pins: Sequence[bytes]
    is_equal: bool


class Having:
    """What a log says that it has, and what others say."""

    def __init__(self, host: SyncHost, held: Held, now: float) -> None:
        self._host = host
        self._held = held
        self.fresh: dict[str, Holder] = {}  # who has something else, or was not compared yet
        self.quiet_until = -inf  # while entries come, for soon there is something else to say
        self.holders: OrderedDict[str, Holder] = OrderedDict()  # who was heard last stands last
        self.opened_s: float | None = host.unix_s()  # None: there was a sync
        self.answered_at = inf  # when others too have had time to speak, after the first one
        self.are_silent = False  # all others, though they have something else
        self.is_new, self._new_until = True, now + NEW_S
        self._said_at = self._compare_at = -inf
        self._say_at = now  # the first one is said at once
        self._begin(INTERVAL_S_MIN, now)

    # --- What others have -----------------------------------------------------------------------------

    def hear(self, have: Have, now: float, sender: str | None = None) -> None:
        """Takes what another has."""
        ahead_s = have.hi / 1e6 - self._host.unix_s()
        bounds = bounds_back(have.hi, have.floor, len(have.blocks))
        if bounds is None or ahead_s > AHEAD_S:
            self._host.drops[Drop.MALFORMED_MESSAGE] += 1
            return
        holder = self.holders.get(have.mine)
        if holder is not None and holder.sender not in (None, sender):
            self._host.drops[Drop.UNSIGNED] += 1  # somebody else's, under this name
            return
        is_known = holder is not None
        if holder is None:
            self.answered_at = self.answered_at if self.holders else now + ANSWER_S_MAX / 2
            holder = self.holders[have.mine] = Holder(have.mine, have, bounds, sender, now)
            self._answer(now)
            if len(self.holders) > HOLDERS_MAX:
                self._forget(next(iter(self.holders)))
        self.holders.move_to_end(have.mine)
        holder.heard_at = now
        if holder.name in self.fresh and now < holder.due_at:
            return  # what it said before is to be compared first
        holder.have, holder.bounds, holder.sender = have, bounds, sender
        holder.due_at = now + ahead_s + SETTLED_S
        self.fresh[holder.name] = holder
        if now < max(holder.due_at, self._compare_at):
            return  # it is compared later
        self._compare_at = max(self._compare_at, now - 1.0) + 1 / COMPARED_MAX
        pinned = self._held.index.block(LOWEST, self._held.floor)
        if self.compare(holder, now).is_equal:  # does it speak of all that is here?
            is_all = have.floor <= self._held.floor and (not pinned.entries or have.pinned == pinned)
            # What is younger than that a newcomer has not: where there is some, it is no answer.
            self._equal += is_all and (is_known or not self._held.index.count(bounds[0], HIGHEST))
        elif holder.vain <= VAIN_MAX or now >= holder.again_at:
            self.hurry(now)

    def compare(self, holder: Holder, now: float) -> Difference:
        """Compares what a holder said with what is held now.

        A holder that has fewer in all blocks that differ is left some time to ask for what it lacks."""
        held, have = self._held, holder.have
        low_equal, high_equal = holder.bounds[-1], holder.bounds[0]
        lo, across, both, has_fewer = None, None, None, True
        for (high, low), theirs in zip(pairwise(holder.bounds), have.blocks, strict=True):
            if high <= held.floor:
                break
            mine = held.index.block(max(low, held.floor), high)
            if mine == theirs:
                continue
            if low < held.floor:
                low_equal, both = high, (theirs, mine)
                across = (held.floor, high) if theirs.entries and both != holder.looked_at else None
                break
            high_equal = low
            if theirs.entries:
                lo, has_fewer = low, has_fewer and theirs.entries < mine.entries
        pins = sorted(each for each in held.pins if each < held.floor and (have.pinned or each >= have.floor))
        pins = [] if holder.pins == (have.pinned, pins) else pins
        holder.equal = low_equal, high_equal
        is_equal = high_equal == holder.bounds[0]
        if is_equal:
            holder.forgive()
            self.are_silent = False
        if lo is None and across is None and not pins and not self.is_first(holder):
            self.fresh.pop(holder.name, None)
        if lo is not None and has_fewer and holder.again_at == -inf:
            holder.again_at = now + FEWER_S
        elif (lo is None or not has_fewer) and holder.vain <= VAIN_MAX:
            holder.again_at = -inf
        return Difference(lo, across, both, pins, is_equal)

    def is_first(self, holder: Holder) -> bool:
        """Whether there was no sync yet, and a holder speaks of the time before we were there: then it is
        asked for all, also for what is younger than what it speaks of."""
        return self.opened_s is not None and holder.have.hi / 1e6 < self.opened_s

    def confirming(self, entry_id: bytes) -> list[Holder]:
        """Returns the holders that had what we had, from their floor up to an entry and with it."""
        return [each for each in self.holders.values() if each.equal[0] <= entry_id < each.equal[1]]

    def _forget(self, name: str) -> None:
        del self.holders[name]
        self.fresh.pop(name, None)

    # --- When to say it -------------------------------------------------------------------------------

    def hurry(self, now: float, anew: bool = False) -> None:
        """Something is new: others are soon to know. `anew`: also where they have just been told."""
        if anew or self._interval_s > INTERVAL_S_MIN:
            self._begin(INTERVAL_S_MIN, now)

    def handle_timeout(self, now: float) -> None:
        """Says what is held, where it is time."""
        if now >= self._say_at:
            self._say_at = inf
            if self._equal < EQUAL_MAX and now >= self.quiet_until:
                self._say(now)
        if now >= self._new_until:
            self.is_new, self._new_until = False, inf
        if now >= self._ends_at:
            self._begin(min(2 * self._interval_s, INTERVAL_S_MAX), now)
        self._set_next()

    def draw_delay(self) -> float:
        """Returns the seconds after which to answer what all have heard."""
        return self._host.rng.random() * min(ANSWER_S_MAX, ANSWER_S * max(1, len(self.holders)))

    def _answer(self, now: float) -> None:
        at = max(now + self.draw_delay(), self._said_at + ANSWER_S_BETWEEN)
        if at < self._say_at:
            self._say_at, self._equal = at, 0
            self._set_next()

    def _begin(self, interval_s: float, now: float) -> None:
        self._interval_s = interval_s
        self._ends_at = now + interval_s
        self._say_at = min(self._say_at, now + interval_s * (0.5 + self._host.rng.random() / 2))
        self._equal = 0
        while self.holders and (oldest := next(iter(self.holders.values()))).heard_at < now - HOLDER_S:
            self._forget(oldest.name)
        self._set_next()

    def _set_next(self) -> None:
        self.next_at = min(self._say_at, self._ends_at, self._new_until)

    def _say(self, now: float) -> None:
        held, host = self._held, self._host
        self._said_at = now
        hi = max(CLOCK_MIN, int((host.unix_s() - AGE_S) * 1e6))
        floor = min(held.floor, clock_bound(hi - 1))
        first = min(max(floor, held.index.first or HIGHEST), clock_bound(hi - 1))
        count = 1
        while count < BLOCKS_MAX and clock_bound(back(hi, count)) > first:
            count += 1
        bounds = bounds_back(hi, floor, count)
        assert bounds is not None
        blocks = [held.index.block(low, high) for high, low in pairwise(bounds)]
        pinned = held.index.block(LOWEST, floor)
        host.say("sync", Have(host.name, hi, floor, blocks, pinned if pinned.entries else None), now)


def back(hi: int, number: int) -> int:
    """Returns the clock at which a block begins, in us; the first one has number 1."""
    return max(0, hi - (BLOCK_US << 3 * (number - 1)))


def clock_bound(clock: int) -> bytes:
    """Returns the bound before all ids of a clock."""
    return varint(clock).ljust(ID_BYTES, b"\0")


def bounds_back(hi: int, floor: bytes, blocks: int) -> list[bytes] | None:
    """Returns the bounds of so many blocks back from a clock, the newest first; None where the floor is not
    below all others."""
    bounds = [clock_bound(hi), *(clock_bound(back(hi, number)) for number in range(1, blocks)), floor]
    return bounds if all(high > low for high, low in pairwise(bounds)) else None
