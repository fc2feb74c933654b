"""What takes the messages on a log's topics: entries, copies of them, and what holders say. Sans-IO.

PROTOCOL §9.12. On the topic itself messages are judged by the guard that a subscription would have, if any.
On the log's own topics only copies are, as messages of the topic; what holders say is in clear, and proves
nothing, but for `have` and `kept` that somebody has signed.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from math import inf
from typing import Any

from kcast.client.events import Drop, Event, Limited
from kcast.client.history.entries import Row
from kcast.client.history.having import Holder
from kcast.client.history.ids import AHEAD_S, BACK_S, clock_of, id_of, read_stamp
from kcast.client.history.log import Log
from kcast.client.history.words import parse_said, parse_word
from kcast.client.layers.limit import FixedWindow, Windows
from kcast.client.messages.envelope import SEAL, SIGNATURE, Envelope, parse_envelope, read
from kcast.client.messages.guard_and_writer import TAKEN, Proven, Prover, Taken
from kcast.client.session.requests import LINE_BYTES_MAX
from kcast.pubsub import wire

_marks = count(1)


class LogGuard:
    """The guard of a log, around that of its topic. `limit` is how many entries one sender may make."""

    def __init__(self, log: Log, inner: Prover | None = None, limit: FixedWindow | None = None) -> None:
        self.mark = b"\0log %d " % next(_marks)  # no line begins so
        self._log = log
        self._inner = log.inner = inner
        self._limit, self._windows = limit, None if limit is None else Windows(limit)
        self._events: list[Event] = []
        # A longer one fits into nobody's mailbox, so that nobody could be given it.
        head = wire.publish_line(wire.encode_topic(log.topics[2]), b"")
        self._message_bytes_max = LINE_BYTES_MAX - len(head)
        self._sync_topic = wire.encode_topic(log.topics[1])

    def places(self, name: bytes, unix_s: float, lead_s: float) -> tuple[Mapping[bytes, bool], float]:
        """Returns the topic itself, for ever."""
        return {name: True}, inf

    def take_events(self) -> Sequence[Event]:
        """Returns what there is to tell since the last call."""
        events, self._events = self._events, []
        return events if self._inner is None else [*events, *self._inner.take_events()]

    def _over_limit(self, row: Row) -> Drop | None:
        """Counts an entry in the window of its clock, so that it is over or not whenever it comes."""
        if self._limit is None or self._windows is None or self._log.is_known(row.entry_id):
            return None
        window_us = max(1, int(self._limit.window_s * 1e6))
        sender = row.sender or row.publisher
        of_window = f"{clock_of(row.entry_id) // window_us} {sender}"
        over = self._windows.take(of_window, len(row.message), 0.0)
        if over is None:
            return None
        if over.is_first:
            self._events.append(Limited(self._log.title, sender, self._limit.window_s))
        return Drop.LIMITED

    def glance(self, wire_topic: bytes, message: bytes, unix_s: float) -> Any:
        """Takes what came on the log's own topics; of an entry returns the claim, or why it is dropped."""
        if wire_topic == self._log.wire_topic:
            claim = message if self._inner is None else self._inner.glance(wire_topic, message, unix_s)
            return claim if isinstance(claim, Drop) else (claim, message)
        envelope = parse_envelope(message)
        if envelope is None:
            return Drop.MALFORMED_MESSAGE
        if wire_topic != self._sync_topic and "c" in envelope.attributes:
            return self._take_copy(message, unix_s)
        return self._take_words(envelope, wire_topic, message, unix_s)

    def judge(self, name: bytes, claim: tuple[Any, bytes], unix_s: float) -> Taken | Drop:
        """Takes an entry that came live, if it is proven; or says why it is dropped."""
        inner_claim, message = claim
        sender = None
        if self._inner is not None:
            found = self._inner.judge(self._log.title, inner_claim, unix_s)
            if not isinstance(found, Proven):
                return found
            sender = found.sender
        row = self._row(message, unix_s, sender)
        if not isinstance(row, Row):
            return row
        if clock_of(row.entry_id) / 1e6 < unix_s - BACK_S:
            return Drop.WRONG_CLOCK
        return self._take(row, self._over_limit(row), self._now(unix_s))

    def _take_copy(self, message: bytes, unix_s: float) -> Taken | Drop:
        """Takes a copy in the mailbox. It is proven as what it is a copy of, and only where it is awaited."""
        now, row = self._now(unix_s), self._row(message, unix_s)
        if not isinstance(row, Row):
            return row
        holder = self._log.asked_for(row, now)
        if holder is None:
            return TAKEN  # what is not awaited is counted there
        found = None if self._inner is None else self._inner.prove(self._log.wire_topic, message)
        if isinstance(found, Drop):
            return self._take(row, found, now)
        row = row._replace(sender=found and found.sender)
        return self._take(row, self._over_limit(row), now, holder)

    def _take(self, row: Row, refused: Drop | None, now: float, holder: Holder | None = None) -> Taken | Drop:
        if refused is None:
            self._log.came(row, now, holder)
        else:
            self._log.refuse(row, refused, now)
        return refused or TAKEN

    def _take_words(
        self, envelope: Envelope, wire_topic: bytes, message: bytes, unix_s: float
    ) -> Taken | Drop:
        """Takes what a holder says, and who has signed it, if anybody."""
        by = self._proven_by(envelope, wire_topic, message, unix_s)
        if wire_topic == self._sync_topic:
            said = parse_said(envelope.payload)
            if said is None:
                return Drop.MALFORMED_MESSAGE
            self._log.said(said, by, self._now(unix_s))
        else:
            word = parse_word(envelope.payload)
            if word is None:
                return Drop.MALFORMED_MESSAGE
            self._log.word(word, by or self._claimed_by(envelope), self._now(unix_s))
        return TAKEN

    def _proven_by(self, envelope: Envelope, wire_topic: bytes, message: bytes, unix_s: float) -> str | None:
        """Returns the key of the topic's senders that has signed what a holder says; None where none has."""
        if self._inner is None or self._inner.is_sealed or SIGNATURE not in envelope.attributes:
            return None
        claim = self._inner.glance(wire_topic, message, unix_s)
        if isinstance(claim, Drop):
            return None
        proven = self._inner.judge(self._log.title, claim, unix_s)
        return proven.sender if isinstance(proven, Proven) else None

    def _claimed_by(self, envelope: Envelope) -> str | None:
        """Returns who says that a word is theirs, where nobody proves it."""
        return envelope.publisher if self._inner is None or self._inner.is_sealed else None

    def _row(self, message: bytes, unix_s: float, sender: str | None = None) -> Row | Drop:
        found = self._plain(message)
        if isinstance(found, Drop):
            return found
        if "c" not in found.attributes or len(message) > self._message_bytes_max:
            return Drop.NOT_KEPT
        stamp = read_stamp(found.attributes)
        if stamp is None or stamp.clock / 1e6 > unix_s + AHEAD_S:
            return Drop.WRONG_CLOCK
        entry_id = id_of(stamp.clock, self._log.wire_topic, message)
        return Row(entry_id, found.publisher, found.seq, message, sender, parents=tuple(stamp.parents))

    def _plain(self, message: bytes) -> Envelope | Drop:
        """Reads what is in clear. What is sealed is kept also by those who cannot open it."""
        found = read(message)
        sealed = parse_envelope(message) if found is Drop.NOT_UNDERSTOOD else None
        if sealed and [each for each in sealed.attributes if each[0].isupper()] == [SEAL]:
            return sealed
        return found if isinstance(found, Drop) else Envelope(found[0] or "", found[1] or 0, *found[2:])

    def _now(self, unix_s: float) -> float:
        return unix_s - self._log.clock_offset_s
