"""Judges the messages of a subscription: who signed them, for whom they are sealed, and whether they are new.
Sans-IO. PROTOCOL §9.6, §9.7.

    signed:  can it be read? -> signed at all? -> by a key that is allowed? -> in time? -> first copy?
             -> is the signature one of it? -> no repeat?
    sealed:  can it be read? -> sealed at all? -> for an epoch that is held? -> first copy? -> does it open?
             -> signed at all? -> in time, and in its epoch? -> by a key that is allowed? -> signature?
             -> no repeat?

What is cheap comes first, and the memory of copies, which strangers can fill, decides nothing: it only saves
the cost of proving copies of what was proven. Each subscription has a guard of its own.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count
from math import inf
from typing import NamedTuple

from kcast.client.events import Drop, Event
from kcast.client.messages.envelope import (
    BEGINNING,
    SEAL,
    SIGNATURE,
    Envelope,
    needs_understanding,
    parse_envelope,
)
from kcast.client.messages.guard_and_writer import AHEAD_S, BACK_S, TAKEN, Proven, Taken
from kcast.client.sealed.doubts import ClockWatch, FloodMeter
from kcast.client.sealed.membership import LINGER_S, Group
from kcast.client.sealed.replay import Replays
from kcast.client.sealed.sealing import Epoch, Frame, Opener, SealError, Unsealed, parse_seal
from kcast.client.sealed.signing import MessageSignature, is_signed, key_text, parse_signature
from kcast.client.sealed.topics import hash_of, hidden, parse_certified
from kcast.pubsub import wire

CLOCKS_S = 30.0  # by which clocks may differ where an epoch ends and the next begins

_TIME = re.compile("[1-9][0-9]{0,14}")
_SEALED = re.compile(rb"%@([0-9A-Za-z_-]{1,43}+)\.([1-9][0-9]{0,17}+);S=([0-9A-Za-z_-]{51}) ")
_HERE = b"/here"  # the end of a topic on which members speak (§9.10)

_marks = count(1)

Allows = Callable[[bytes, bytes], bool]
"""Says of a topic's name and a key whether this key may publish there."""


class Times(NamedTuple):
    """How old a message may be, in seconds, and by how much it may be ahead of this clock."""

    back_s: float = BACK_S
    ahead_s: float = AHEAD_S


def senders_of(keys: frozenset[bytes]) -> Allows:
    """Returns what allows these keys, whatever the topic."""
    return lambda _, key: key in keys


@lru_cache(maxsize=1024)
def is_certified(name: bytes, key: bytes) -> bool:
    """Whether a topic names this key alone as its sender's (§9.6)."""
    return parse_certified(name) == hash_of([key])


class _Watching:
    """What both kinds of guards have: a mark, what is remembered of repeats, and what there is to tell."""

    def __init__(self, times: Times, begun_s: float) -> None:
        self.mark = b"\0%d " % next(_marks)  # no line begins so
        self._times = times
        self._begun_s = begun_s
        self._replays = Replays(int(begun_s * 1000))
        self._clock = ClockWatch(begun_s)
        self._floods = FloodMeter()
        self._events: list[Event] = []

    def take_events(self) -> list[Event]:
        """Returns what there is to tell since the last call."""
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def _time_fault(self, sent_ms: int, unix_s: float) -> Drop | None:
        if unix_s < self._begun_s:  # the clock was set back
            self._begun_s = unix_s
            self._replays.begin_earlier(int(unix_s * 1000))
        off_s = sent_ms / 1000 - unix_s
        if off_s > self._times.ahead_s:
            return Drop.FROM_FUTURE
        if off_s < -self._times.back_s or self._replays.is_too_old(sent_ms):
            return Drop.TOO_OLD
        return None

    def _note_off(self, name: bytes, key: bytes, sent_ms: int, unix_s: float) -> None:
        doubt = self._clock.is_off(name, key_text(key), sent_ms / 1000 - unix_s, unix_s)
        if doubt is not None:
            self._events.append(doubt)

    def _note_forged(self, name: bytes, unix_s: float, by: bytes | None = None) -> None:
        forged = self._floods.count(name, None if by is None else key_text(by), unix_s)
        if forged is not None:
            self._events.append(forged)

    def _repeat_fault(
        self, name: bytes, publisher: str, key: bytes, seq: int, sent_ms: int, unix_s: float
    ) -> Drop | None:
        """Takes a proven message that is in time; returns why it is dropped all the same."""
        self._clock.is_in_time(unix_s)
        fault = self._replays.take(name, publisher, key, seq, sent_ms)
        if self._replays.is_crowded:
            self._note_forged(name, unix_s, key)
        return fault


class _Signed(NamedTuple):
    """A message that claims to be signed by a key that is allowed, and to be in time."""

    envelope: Envelope
    claimed: MessageSignature
    sent_ms: int
    unsigned_line: bytes


class SignedGuard(_Watching):
    """Takes messages signed by keys that are allowed. `begun_s` is the time now, in seconds since 1970; `own`
    returns how messages of its client begin."""

    is_sealed = False

    def __init__(
        self,
        allows: Allows,
        begun_s: float,
        times: Times | None = None,
        own: Callable[[], bytes] = lambda: b"\0",  # no message begins so
    ) -> None:
        super().__init__(times or Times(), begun_s)
        self._allows = allows
        self._own = own

    def places(self, name: bytes, unix_s: float, lead_s: float) -> tuple[Mapping[bytes, bool], float]:
        """Returns the topic itself, for ever."""
        return {name: True}, inf

    def glance(self, wire_topic: bytes, message: bytes, unix_s: float) -> _Signed | Taken | Drop:
        """Returns why a message is dropped at first sight, or its claim; `TAKEN` for what its own client says
        to members, which need not count here."""
        found = self._claim(wire_topic, message)
        is_unproven = found in (Drop.UNSIGNED, Drop.UNAUTHORISED)
        if is_unproven and wire_topic.endswith(_HERE) and message.startswith(self._own()):
            return TAKEN
        fault = found if isinstance(found, Drop) else self._time_fault(found.sent_ms, unix_s)
        if isinstance(found, Drop) or fault is None:
            return found
        if self._clock.wants_proof(unix_s) and is_signed(found.claimed, found.unsigned_line):
            name = wire.decode_topic(wire_topic) or b""
            self._note_off(name, found.claimed.key, found.sent_ms, unix_s)
        return fault

    def _claim(self, wire_topic: bytes, message: bytes) -> _Signed | Drop:
        envelope = parse_envelope(message)
        if envelope is None:
            return Drop.MALFORMED_MESSAGE if message.startswith(BEGINNING) else _of_raw(message)
        if needs_understanding(envelope) is not None:
            return Drop.NOT_UNDERSTOOD
        text = envelope.attributes.get(SIGNATURE)
        if text is None:
            return Drop.UNSIGNED
        claimed = parse_signature(text)
        if claimed is None:
            return Drop.MALFORMED_MESSAGE
        name = wire.decode_topic(wire_topic) or b""
        if not self._allows(name, claimed.key):
            return Drop.UNAUTHORISED
        time = envelope.attributes.get("t", "")
        if not _TIME.fullmatch(time):
            return Drop.BAD_SIGNATURE
        at = message.index(b" ")
        signed_part = message[: at - len(text) - len(";g=")]
        return _Signed(envelope, claimed, int(time), b"%b %b%b\n" % (wire_topic, signed_part, message[at:]))

    def judge(self, name: bytes, claim: _Signed, unix_s: float) -> Proven | Drop:
        """Returns a message that is proven and no repeat, or why it is dropped."""
        if not is_signed(claim.claimed, claim.unsigned_line):
            self._note_forged(name, unix_s)
            return Drop.BAD_SIGNATURE
        proven = _proven(claim)
        repeat = self._repeat_fault(name, proven.publisher, proven.by, proven.seq, claim.sent_ms, unix_s)
        return proven if repeat is None else repeat

    def prove(self, wire_topic: bytes, message: bytes) -> Proven | Drop:
        """Returns a message that is proven, whenever it was sent, or why it is not: for those that were kept
        (§9.12)."""
        claim = self._claim(wire_topic, message)
        if isinstance(claim, Drop):
            return claim
        return _proven(claim) if is_signed(claim.claimed, claim.unsigned_line) else Drop.BAD_SIGNATURE


class _Sealed(NamedTuple):
    """A line that claims to be sealed for an epoch."""

    opener: Opener
    head: bytes
    wire_topic: bytes
    publisher: bytes
    seq: int
    enc: bytes
    payload: bytes


def _proven(claim: _Signed) -> Proven:
    (publisher, seq, payload, attributes), claimed, sent_ms, _ = claim
    others = {key: value for key, value in attributes.items() if key not in (SIGNATURE, "t")}
    sender = key_text(claimed.key)
    return Proven(payload, publisher, seq, others, sender, None, sent_ms / 1000, claimed.key)


class SealedGuard(_Watching):
    """Takes messages sealed for a group that one of its senders has signed. `on_adopt` is called when it goes
    by newer epochs.

    `allows` says whose messages count besides that, None for all senders. With `has_plain_topics` topics
    travel under their own names. `begun_s` is the time now, in seconds since 1970. Raises SealError where one
    may not read what the group writes.
    """

    is_sealed = True

    def __init__(
        self,
        group: Group,
        begun_s: float,
        times: Times | None = None,
        *,
        allows: Allows | None = None,
        has_plain_topics: bool = False,
    ) -> None:
        super().__init__(times or Times(), begun_s)
        self._allows = allows
        self._has_plain_topics = has_plain_topics
        self._openers: dict[int, Opener] = {}
        self.on_adopt: Callable[[], object] = lambda: None
        self.adopt(group)
        if group.epochs and not self._openers:
            Opener(group.epochs[-1])  # which says what is missing

    def adopt(self, group: Group) -> None:
        """Goes by a group's newer epochs. What is known of those that it still has, stays.

        Where one of them cannot be opened, the rest goes on: a reader may have become a writer.
        """
        self._group = group
        openers = {}
        for epoch in group.epochs:
            with suppress(SealError):
                openers[epoch.number] = self._opener(epoch)
        self._openers = openers
        self._replays.keep_only(frozenset[bytes]().union(*(epoch.senders for epoch in group.epochs)))
        self.on_adopt()

    def _opener(self, epoch: Epoch) -> Opener:
        known = self._openers.get(epoch.number)
        if known is None or known.epoch.public != epoch.public:
            return Opener(epoch)
        known.epoch = epoch
        return known

    def places(self, name: bytes, unix_s: float, lead_s: float) -> tuple[Mapping[bytes, bool], float]:
        """Returns the topics that stand for this one in each epoch that is held."""
        writing = self._group.writing(unix_s)
        places: dict[bytes, bool] = {}
        for epoch in self._group.held(unix_s, lead_s + CLOCKS_S):
            place = name if self._has_plain_topics else hidden(epoch.topic_secret, name)
            places[place] = places.get(place, False) or epoch is writing
        return places, self._next_change(unix_s, lead_s + CLOCKS_S)

    def _next_change(self, unix_s: float, lead_s: float) -> float:
        """Returns when an epoch is next to be listened in, holds, or is over."""
        times: list[float] = [self._group.until_unix_s]
        for epoch in self._group.epochs:
            end = self._group.end_of(epoch)
            times += [epoch.from_unix_s - lead_s, epoch.from_unix_s, end, end + LINGER_S]
        return min((time for time in times if time > unix_s), default=inf)

    def glance(self, wire_topic: bytes, message: bytes, unix_s: float) -> _Sealed | Drop:
        """Returns why a message is dropped at first sight, or its claim."""
        found = self._claim(wire_topic, message)
        if not isinstance(found, Drop) and unix_s >= self._group.end_of(found.opener.epoch) + LINGER_S:
            return Drop.UNKNOWN_KEY  # its key may still be here: nobody may have looked at the group's file
        return found

    def _claim(self, wire_topic: bytes, message: bytes) -> _Sealed | Drop:
        found = _SEALED.match(message)
        if found is not None:
            publisher, number, text = found.groups()
            seal, end = text.decode("ascii"), found.end()
        else:
            envelope = parse_envelope(message)
            if envelope is None:
                return (
                    Drop.MALFORMED_MESSAGE if message.startswith(BEGINNING) else _of_raw(message, sealed=True)
                )
            if SEAL not in envelope.attributes:
                return Drop.NOT_SEALED
            if any(name[0].isupper() for name in envelope.attributes if name != SEAL):
                return Drop.NOT_UNDERSTOOD
            publisher, number = envelope.publisher.encode(), b"%d" % envelope.seq
            seal, end = envelope.attributes[SEAL], message.index(b" ") + 1
        parsed = parse_seal(seal)
        if parsed is None:
            return Drop.MALFORMED_MESSAGE
        tag, enc = parsed
        for opener in self._openers.values():
            if opener.is_tag(wire_topic, publisher, enc, tag):
                head = b"%b %b" % (wire_topic, message[:end])
                return _Sealed(opener, head, wire_topic, publisher, int(number), enc, message[end:])
        return Drop.UNKNOWN_KEY

    def judge(self, name: bytes, claim: _Sealed, unix_s: float) -> Proven | Drop:
        """Returns a message that is opened and no repeat, or why it is dropped."""
        opener, head, wire_topic, publisher, seq, enc, payload = claim
        unsealed = opener.unseal(head, wire_topic, publisher, seq, enc, payload)
        if isinstance(unsealed, Drop):
            if unsealed is Drop.NOT_OPENED:
                self._note_forged(name, unix_s)
            return unsealed
        frame = unsealed.frame
        sender = frame.sender
        fault = self._time_fault(frame.sent_ms, unix_s)
        is_sender = self._is_sender(name, opener, sender)
        if fault is not None:
            if is_sender and self._clock.wants_proof(unix_s) and opener.verify(unsealed):
                self._note_off(name, sender, frame.sent_ms, unix_s)
            return fault
        fault = self._sender_fault(opener, unsealed, is_sender=is_sender)
        if fault is Drop.BAD_SIGNATURE:
            self._note_forged(name, unix_s)
        if fault is not None:
            return fault
        by_name = publisher.decode("ascii")
        repeat = self._repeat_fault(name, by_name, sender, seq, frame.sent_ms, unix_s)
        return self._proven(by_name, seq, frame) if repeat is None else repeat

    def prove(self, wire_topic: bytes, message: bytes) -> Proven | Drop:
        """Returns a message that is proven, whenever in its epoch it was sent, or why it is not: for those
        that were kept (§9.12)."""
        claim = self._claim(wire_topic, message)
        if isinstance(claim, Drop):
            return claim
        unsealed = claim.opener.unseal(*claim[1:])
        if isinstance(unsealed, Drop):
            return unsealed
        name, sender = wire.decode_topic(wire_topic) or b"", unsealed.frame.sender
        is_sender = self._is_sender(name, claim.opener, sender)
        fault = self._sender_fault(claim.opener, unsealed, is_sender=is_sender)
        return fault or self._proven(claim.publisher.decode("ascii"), claim.seq, unsealed.frame)

    def _is_sender(self, name: bytes, opener: Opener, key: bytes) -> bool:
        return key in opener.epoch.senders and (self._allows is None or self._allows(name, key))

    def _sender_fault(self, opener: Opener, unsealed: Unsealed, *, is_sender: bool) -> Drop | None:
        """Returns why a message is not one of its epoch's senders."""
        fault = self._epoch_fault(opener.epoch, unsealed.frame.sent_ms / 1000)
        if fault is None and not is_sender:
            fault = Drop.UNAUTHORISED
        return Drop.BAD_SIGNATURE if fault is None and not opener.verify(unsealed) else fault

    def _proven(self, publisher: str, seq: int, frame: Frame) -> Proven | Drop:
        if any(key[0].isupper() for key in frame.attributes):  # §9.2: none is known there yet
            return Drop.NOT_UNDERSTOOD
        if frame.is_cover:
            return Drop.COVER
        number = seq if frame.count is None else frame.count
        of_whom = key_text(frame.sender), self._group.name, frame.sent_ms / 1000, frame.sender
        return Proven(frame.content, publisher, number, frame.attributes, *of_whom)

    def _epoch_fault(self, epoch: Epoch, sent_s: float) -> Drop | None:
        if sent_s < epoch.from_unix_s - CLOCKS_S:
            return Drop.FROM_FUTURE
        if sent_s > self._group.end_of(epoch) + CLOCKS_S:
            return Drop.TOO_OLD
        return None


def _of_raw(message: bytes, *, sealed: bool = False) -> Drop:
    """Returns why a message without an envelope is dropped."""
    if wire.decode_message(message) is None:
        return Drop.MALFORMED_MESSAGE
    return Drop.NOT_SEALED if sealed else Drop.UNSIGNED
