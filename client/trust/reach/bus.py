"""What clients tell each other of a signed list on kcast's own topics. Sans-IO. PROTOCOL §10.8.

    %00list/ID        the newest checkpoint that a client has verified: at adoption, then every hour or so
    %00list/ID/get    `get SIZE OFFSET`: who has the bundle of the log at this size? `take ...`: I answer
    %00list/ID/data   the bundle, piece by piece

ID is 22 characters of the SHA-256 of the list's name. As in RFC 6206, whoever has just heard what he would
say keeps silent, but once in 100 h on average: else a server could keep clients silent whose checkpoints
contradict each other, by telling each its own.

A checkpoint is believed only where its log and a quorum have signed it. One that is newer is a hint to fetch.
One that contradicts the one held is evidence of a fork, for all who hear it. A bundle is believed for
nothing: it is judged like any other source.

Anybody may say anything on these topics. So whatever a message makes a client do has a bound: signatures
verified in a second, questions that wait, pieces sent in an hour, bundles collected at once and judged one
after another, and how long one is asked for. A flood can keep the bus from being of use, and costs no more.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from random import Random
from zlib import compress, decompressobj
from zlib import error as ZlibError  # noqa: N812

from kcast.client.trust.forms.bundle import BUNDLE_BYTES_MAX
from kcast.client.trust.forms.checkpoint import Checkpoint, cosignatures
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note, NoteError, verify

HOUR_S = 3600.0
SAY_INTERVAL_S = HOUR_S
SAY_ANYWAY_S = 100 * HOUR_S  # on average, whatever others say
SAY_SOON_S = 10.0  # after a checkpoint was adopted
ANSWER_WITHIN_S = 2.0
PIECE_BYTES = 700  # at most 934 characters of base64url
PIECES_PER_S = 50
WINDOW_PIECES = 100  # that one answer has
ASK_AGAIN_S = 5.0  # after the last piece came, or nobody answered
ASKS_MAX = 20  # in a row without a piece
SENT_BYTES_MAX = 16 * 1024 * 1024
ANSWERS_MAX = 4  # questions that wait for an answer
SENT_BUNDLES_PER_H = 10  # as many bytes as so many whole bundles have
CANDIDATES_MAX = 4  # different bundles that are collected at once
IDLE_S = 15.0  # without a piece: then another candidate may have the place
HAND_OVER_INTERVAL_S = 10.0  # from one bundle that was judged in vain to the next
JUDGED_MAX = 64  # bundles that are remembered, so as not to be taken again
WANT_MAX_S = 3600.0
VERIFIED_PER_S = 10  # checkpoints, of about 100 us each where they are forged
SAY_AGAIN_S = 60.0  # the least time between what one client says because of others
FORKS_MAX = 4  # that are told of
_ID_CHARS = 22
_HASH_CHARS = 22
_NUMBER_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class Newer:
    """Somebody has a newer checkpoint that is verified: time to fetch."""

    size: int


@dataclass(frozen=True, slots=True)
class Forked:
    """Somebody has a checkpoint that contradicts the one held: both are signed by the log and a quorum."""

    heard: bytes


@dataclass(frozen=True, slots=True)
class Collected:
    """A whole bundle has come, compressed. It is worth nothing before it is judged."""

    packed: bytes

    def bundle(self) -> bytes:
        """Returns the bundle, at most as long as one may be; empty where there is none.

        That takes up to a second, so it is for a thread.
        """
        unpacking = decompressobj()
        try:
            data = unpacking.decompress(self.packed, BUNDLE_BYTES_MAX)
        except ZlibError:
            return b""
        return data if unpacking.eof and not unpacking.unused_data else b""


News = Newer | Forked | Collected


def topics_of(name: str) -> tuple[bytes, bytes, bytes]:
    """Returns the topics of a list's name: of checkpoints, of questions, and of bundles."""
    digest = urlsafe_b64encode(sha256(name.encode()).digest()).decode().rstrip("=")
    topic = f"\0list/{digest[:_ID_CHARS]}".encode()
    return topic, topic + b"/get", topic + b"/data"


@dataclass(slots=True)
class _Candidate:
    """A bundle that is being collected."""

    total_bytes: int
    heard_at: float
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all pieces have come."""
        return len(self.pieces) == -(-self.total_bytes // PIECE_BYTES)

    def first_missing(self) -> int:
        """Returns where the first piece begins that has not come."""
        return next(at for at in range(0, self.total_bytes, PIECE_BYTES) if at not in self.pieces)


@dataclass(slots=True)
class _Use:
    """How often something was done in the present interval."""

    interval_s: float
    count: int = 0
    begun_at: float = -inf

    def look(self, now: float) -> int:
        """Returns the count, from 0 on where another interval begins."""
        if now - self.begun_at >= self.interval_s:
            self.count, self.begun_at = 0, now
        return self.count


class ListBus:
    """One client's part of the talk about one list.

    Hand it what comes on `topics` by `hear`, call `handle_timeout` at `next_timeout`, then publish what
    `take` returns, and look at `news`. `now` is in seconds of one clock.
    """

    def __init__(self, name: str, rng: Random) -> None:
        self._topic, self._asking, self._data = topics_of(name)
        self._rng = rng
        self._document: TrustDocument | None = None
        self._note: Note | None = None
        self._checkpoint: Checkpoint | None = None
        self._packed = b""  # the bundle of the checkpoint, compressed
        self._packed_hash = ""
        self._say_at = inf
        self._say_anyway_at = inf
        self._said_at = -inf
        self._heard: tuple[Checkpoint, bytes, float] | None = None  # the last that was verified, and when
        self._forks: dict[Checkpoint, float] = {}  # that were verified, and when they were told
        self._verified = _Use(1.0)
        self._answers: dict[int, float] = {}  # offset -> when to answer
        self._sending: list[int] = []  # offsets of pieces, the next one last
        self._send_at = inf
        self._sent_pieces = _Use(HOUR_S)
        self._wanted = 0  # the size of the tree whose bundle is wanted
        self._ask_at = inf
        self._asks = 0
        self._want_until = inf
        self._candidates: dict[tuple[str, int], _Candidate] = {}
        self._judged: dict[tuple[str, int], None] = {}  # the oldest first
        self._is_judging = False  # a bundle was handed over
        self._hand_at = inf
        self._out: list[tuple[bytes, bytes]] = []
        self._news: list[News] = []

    @property
    def topics(self) -> tuple[bytes, ...]:
        """The topics to be subscribed to at the moment."""
        return (
            self._topic,
            *((self._asking,) if self._packed else ()),
            *((self._data,) if self._wanted else ()),
        )

    def adopt(self, document: TrustDocument, checkpoint: bytes, packed: bytes, now: float) -> None:
        """Goes by a checkpoint from now on, which was verified; `packed` is the bundle to answer with, as
        `pack` makes it, if it is there.

        A newer one than before is said soon, unless another client has just said it.
        """
        is_newer = self._note is not None and self._note.text != Note.parse(checkpoint).text
        self._document, self._note = document, _trimmed(Note.parse(checkpoint), document)
        self._checkpoint = Checkpoint.parse(self._note.text)
        if self._heard is not None and self._heard[0] == self._checkpoint:
            is_newer = is_newer and now - self._heard[2] > SAY_INTERVAL_S
        self._say_at = now + self._rng.uniform(0, SAY_SOON_S if is_newer else SAY_INTERVAL_S)
        if self._say_anyway_at == inf:
            self._say_anyway_at = now + self._rng.expovariate(1 / SAY_ANYWAY_S)
        self._packed = packed
        self._packed_hash = _hash_of(self._packed)
        self._answers.clear()
        self._sending.clear()
        self._send_at = inf
        if self._wanted <= self._checkpoint.size:
            self.stop_wanting()

    # --- Asking --------------------------------------------------------------------------------------------

    def want(self, size: int, now: float) -> None:
        """Asks for the bundle of the log at this size, since no other source has it."""
        if size != self._wanted:
            self.stop_wanting()
            self._wanted, self._ask_at, self._want_until = size, now, now + WANT_MAX_S

    def stop_wanting(self) -> None:
        """Asks for no bundle any more."""
        self._wanted, self._ask_at, self._asks, self._want_until = 0, inf, 0, inf
        self._candidates.clear()
        self._judged.clear()
        self._is_judging, self._hand_at = False, inf

    def refuse(self, now: float) -> None:
        """Asks for another bundle than those handed over so far, of which none was accepted."""
        if self._wanted:
            self._is_judging, self._hand_at = False, now + HAND_OVER_INTERVAL_S
            self._ask_at = now

    # --- Time ----------------------------------------------------------------------------------------------

    def next_timeout(self) -> float | None:
        """Returns when there is something to do next; None where there is nothing."""
        says = self._say_at, self._say_anyway_at
        at = min(*says, self._send_at, self._ask_at, self._hand_at, self._want_until, *self._answers.values())
        return at if at < inf else None

    def handle_timeout(self, now: float) -> None:
        """Does what is due."""
        if now >= self._say_anyway_at:
            self._say_anyway_at = now + self._rng.expovariate(1 / SAY_ANYWAY_S)
            self._say_at = now
        if now >= self._say_at and self._note is not None:
            self._say(now)
        for offset in [offset for offset, at in self._answers.items() if at <= now]:
            del self._answers[offset]
            self._answer(offset, now)
        if now >= self._send_at:
            self._send(now)
        if now >= self._want_until:
            self.stop_wanting()
        if now >= self._hand_at:
            self._hand_at = inf
            self._hand_over()
        if now >= self._ask_at:
            self._ask(now)

    def take(self) -> list[tuple[bytes, bytes]]:
        """Returns topics and payloads to publish."""
        out, self._out = self._out, []
        return out

    @property
    def has_news(self) -> bool:
        """Whether there is something that `news` would return."""
        return bool(self._news)

    def news(self) -> list[News]:
        """Returns what was learned since the last call."""
        news, self._news = self._news, []
        return news

    def _say(self, now: float) -> None:
        assert self._note is not None
        self._out.append((self._topic, self._note.data))
        self._said_at = now
        self._say_at = now + self._rng.uniform(1.0, 1.5) * SAY_INTERVAL_S

    def _ask(self, now: float) -> None:
        self._asks += 1
        if self._asks > ASKS_MAX:
            self.stop_wanting()
            return
        # The one that has most, and in between each in turn: those that nobody goes on with must not keep
        # others from being collected.
        candidates = [each for each in self._candidates.values() if not each.is_whole]
        candidates.sort(key=lambda each: len(each.pieces), reverse=True)
        turn = self._asks // 2 % len(candidates) if candidates and self._asks % 2 == 0 else 0
        offset = candidates[turn].first_missing() if candidates else 0
        self._out.append((self._asking, f"get {self._wanted} {offset}".encode()))
        self._ask_at = now + ASK_AGAIN_S

    def _answer(self, offset: int, now: float) -> None:
        assert self._checkpoint is not None
        claim = f"take {self._checkpoint.size} {offset} {self._packed_hash}".encode()
        self._out.append((self._asking, claim))
        end = min(len(self._packed), offset + WINDOW_PIECES * PIECE_BYTES)
        self._sending = sorted({*self._sending, *range(offset, end, PIECE_BYTES)}, reverse=True)
        self._send_at = min(self._send_at, now)

    def _send(self, now: float) -> None:
        assert self._checkpoint is not None
        at = self._sending.pop()
        head = f"{self._checkpoint.size} {self._packed_hash} {len(self._packed)} {at} ".encode()
        self._sent_pieces.count += 1
        if self._sent_pieces.count >= self._sent_pieces_max:
            self._sending.clear()
        self._out.append((self._data, head + self._packed[at : at + PIECE_BYTES]))
        self._send_at = now + 1 / PIECES_PER_S if self._sending else inf

    # --- Hearing -------------------------------------------------------------------------------------------

    def hear(self, topic: bytes, payload: bytes, now: float) -> None:
        """Takes a message on one of the topics; what is no sense is ignored."""
        if topic == self._topic:
            self._hear_checkpoint(payload, now)
        elif topic == self._asking:
            self._hear_question(payload, now)
        elif topic == self._data:
            self._hear_piece(payload, now)

    def _hear_checkpoint(self, payload: bytes, now: float) -> None:
        if self._document is None or self._checkpoint is None or self._note is None:
            return
        try:
            note = Note.parse(payload)
            heard = Checkpoint.parse(note.text)
        except NoteError:
            return
        if heard == self._checkpoint:
            if note.data == self._note.data:
                self._say_at = now + self._rng.uniform(1.0, 1.5) * SAY_INTERVAL_S
        elif heard.size < self._checkpoint.size:  # whoever said this is behind: he should hear of the newer
            soon = max(now, self._said_at + SAY_AGAIN_S) + self._rng.uniform(0, SAY_SOON_S)
            self._say_at = min(self._say_at, soon)
        elif self._heard is not None and heard == self._heard[0]:
            if payload == self._heard[1]:
                self._heard = heard, payload, now
        elif heard.size == self._checkpoint.size:
            self._hear_fork(note, heard, now)
        elif self._is_verified(note, heard, now):
            self._heard = heard, payload, now
            self._news.append(Newer(heard.size))

    def _hear_fork(self, note: Note, heard: Checkpoint, now: float) -> None:
        told_at = self._forks.get(heard)
        if told_at is None and (len(self._forks) == FORKS_MAX or not self._is_verified(note, heard, now)):
            return
        if told_at is None or now - told_at >= SAY_INTERVAL_S:
            assert self._document is not None
            self._forks[heard] = now
            # Without what anybody may have added: the same fork is the same evidence.
            self._news.append(Forked(_trimmed(note, self._document).data))

    def _is_verified(self, note: Note, heard: Checkpoint, now: float) -> bool:
        """Returns whether the log and a quorum have signed a checkpoint, as far as there is time for that."""
        assert self._document is not None
        if self._verified.look(now) >= VERIFIED_PER_S:
            return False
        self._verified.count += 1
        try:
            return _is_verified(note, heard, self._document)
        except NoteError:
            return False

    def _hear_question(self, payload: bytes, now: float) -> None:
        if self._checkpoint is None or not self._packed:
            return
        verb, *words = payload.decode("ascii", "replace").split(" ")
        numbers = [_number(word) for word in words[:2]]
        if len(numbers) < 2 or numbers[0] != self._checkpoint.size:
            return
        offset = numbers[1]
        if offset is None or offset % PIECE_BYTES or offset >= len(self._packed):
            return
        if verb == "get" and offset not in self._sending and self._can_answer(now):
            self._answers.setdefault(offset, now + self._rng.uniform(0, ANSWER_WITHIN_S))
        elif verb == "take" and words[2:] == [self._packed_hash]:
            self._answers.pop(offset, None)  # another one answers

    @property
    def _sent_pieces_max(self) -> int:
        return SENT_BUNDLES_PER_H * -(-len(self._packed) // PIECE_BYTES)

    def _can_answer(self, now: float) -> bool:
        is_free = len(self._answers) < ANSWERS_MAX and len(self._sending) < ANSWERS_MAX * WINDOW_PIECES
        return is_free and self._sent_pieces.look(now) < self._sent_pieces_max

    def _hear_piece(self, payload: bytes, now: float) -> None:
        words = payload.split(b" ", 4)
        if len(words) != 5 or not self._wanted:
            return
        size, total, at = (_number(words[index].decode("ascii", "replace")) for index in (0, 2, 3))
        name = words[1].decode("ascii", "replace")
        if size != self._wanted or total is None or at is None or len(name) != _HASH_CHARS:
            return
        if not 0 < total <= SENT_BYTES_MAX or at % PIECE_BYTES or (name, total) in self._judged:
            return
        if at >= total or len(words[4]) != min(PIECE_BYTES, total - at):
            return
        candidate = self._candidates.get((name, total)) or self._new_candidate(name, total, now)
        if candidate is not None and at not in candidate.pieces:
            candidate.pieces[at], candidate.heard_at = words[4], now
            self._asks = 0
            if self._ask_at < inf:
                self._ask_at = now + ASK_AGAIN_S
            if candidate.is_whole and self._hand_at == inf:
                self._hand_over()

    def _new_candidate(self, name: str, total_bytes: int, now: float) -> _Candidate | None:
        """Begins to collect a bundle; None where there is no place.

        Where all are taken, it gets that of one that nobody goes on with, or of a smaller one that waits to
        be judged: so a liar has to send as much as the truth has.
        """
        if len(self._candidates) == CANDIDATES_MAX:
            giving_way = [
                key
                for key, each in self._candidates.items()
                if now - each.heard_at >= IDLE_S or (each.is_whole and each.total_bytes < total_bytes)
            ]
            if not giving_way:
                return None
            del self._candidates[min(giving_way, key=lambda key: len(self._candidates[key].pieces))]
        candidate = self._candidates[name, total_bytes] = _Candidate(total_bytes, now)
        return candidate

    def _hand_over(self) -> None:
        """Hands over the largest whole bundle, unless one is being judged; it is not to come again, whatever
        it is worth."""
        whole = [key for key, each in self._candidates.items() if each.is_whole]
        for key in sorted(whole, key=lambda key: key[1], reverse=True):
            if self._is_judging:
                break
            pieces = self._candidates.pop(key).pieces
            self._judged[key] = None
            if len(self._judged) > JUDGED_MAX:
                del self._judged[next(iter(self._judged))]
            packed = b"".join(pieces[at] for at in sorted(pieces))
            if _hash_of(packed) == key[0]:
                self._news.append(Collected(packed))
                self._is_judging, self._ask_at = True, inf


def pack(bundle: bytes | None) -> bytes:
    """Returns a bundle as it is sent; empty where there is none, or it is too long. It may take a second."""
    packed = compress(bundle) if bundle else b""
    return packed if len(packed) <= SENT_BYTES_MAX else b""


def _number(text: str) -> int | None:
    """Reads a number without leading zeros; None where it is none."""
    if not text.isascii() or not text.isdigit() or len(text) > _NUMBER_DIGITS_MAX:
        return None
    return int(text) if str(int(text)) == text else None


def _hash_of(packed: bytes) -> str:
    return urlsafe_b64encode(sha256(packed).digest()).decode()[:_HASH_CHARS]


def _is_verified(note: Note, checkpoint: Checkpoint, document: TrustDocument) -> bool:
    """Returns whether the log and a quorum have signed a checkpoint. Raises BadSignature."""
    policy = document.policy
    is_logs = verify(note, [policy.log]) and checkpoint.origin == policy.log.name
    return bool(is_logs) and policy.is_met(cosignatures(note, policy.keys))


def _trimmed(note: Note, document: TrustDocument) -> Note:
    """Returns a checkpoint with the log's signature and those of one quorum, to fit into one message."""
    policy = document.policy
    kept = [each for each in note.signatures if each.is_of(policy.log)]
    cosigners = set(cosignatures(note, policy.keys))
    for key in sorted(cosigners, key=str):
        if policy.is_met(cosigners - {key}):
            cosigners.discard(key)
    kept += [each for each in note.signatures if any(each.is_of(key) for key in cosigners)]
    return Note(note.text, tuple(kept))
