"""What clients tell each other of a signed list on kcast's own topics. Sans-IO. PROTOCOL §10.8.

    %00list/ID        the newest checkpoint that a client has verified: at adoption, then every hour or so
    %00list/ID/get    `get SIZE OFFSET`: who has the bundle of the log at this size? `take ...`: I answer
    %00list/ID/data   the bundle, piece by piece

ID is 22 characters of the SHA-256 of the list's name. As in RFC 6206, whoever has just heard what he would
say keeps silent: what all clients together send does not grow with their number.

A checkpoint is believed only where its log and a quorum have signed it. One that is newer is a hint to fetch.
One that contradicts the one held is evidence of a fork, for all who hear it. A bundle is believed for
nothing: it is judged like any other source. Strangers can waste a client's time, which is bounded, and no
more: pieces of another bundle under the same size are collected apart, and a bundle that is refused is not
taken again.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from random import Random
from zlib import compress, decompressobj
from zlib import error as ZlibError  # noqa: N812

from kcast.client.trust.bundle import BUNDLE_BYTES_MAX
from kcast.client.trust.checkpoint import Checkpoint, cosignatures
from kcast.client.trust.document import TrustDocument
from kcast.client.trust.note import Note, NoteError, verify

SAY_INTERVAL_S = 3600.0
SAY_SOON_S = 10.0  # after a checkpoint was adopted
ANSWER_WITHIN_S = 2.0
PIECE_BYTES = 700  # at most 934 characters of base64url
PIECES_PER_S = 50
WINDOW_PIECES = 100  # that one answer has
ASK_AGAIN_S = 5.0  # after the last piece came, or nobody answered
ASKS_MAX = 20  # in a row without a piece
SENT_BYTES_MAX = 16 * 1024 * 1024
CANDIDATES_MAX = 4  # different bundles that are collected at once
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
    """A whole bundle has come. It is worth nothing before it is judged."""

    bundle: bytes


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
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all pieces have come."""
        return len(self.pieces) == -(-self.total_bytes // PIECE_BYTES)

    def first_missing(self) -> int:
        """Returns where the first piece begins that has not come."""
        return next(at for at in range(0, self.total_bytes, PIECE_BYTES) if at not in self.pieces)


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
        self._heard: tuple[Checkpoint, float] | None = None  # the newest that was verified, and when
        self._answers: dict[int, float] = {}  # offset -> when to answer
        self._sending: list[int] = []  # offsets of pieces, the next one last
        self._send_at = inf
        self._wanted = 0  # the size of the tree whose bundle is wanted
        self._ask_at = inf
        self._asks = 0
        self._candidates: dict[tuple[str, int], _Candidate] = {}
        self._done: set[tuple[str, int]] = set()
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
            is_newer = is_newer and now - self._heard[1] > SAY_INTERVAL_S
        self._say_at = now + self._rng.uniform(0, SAY_SOON_S if is_newer else SAY_INTERVAL_S)
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
            self._wanted, self._ask_at = size, now
            self._done.clear()

    def stop_wanting(self) -> None:
        """Asks for no bundle any more."""
        self._wanted, self._ask_at, self._asks = 0, inf, 0
        self._candidates.clear()

    def refuse(self, now: float) -> None:
        """Asks for another bundle than those collected so far, of which none was accepted."""
        if self._wanted:
            self._ask_at = now

    # --- Time ----------------------------------------------------------------------------------------------

    def next_timeout(self) -> float | None:
        """Returns when there is something to do next; None where there is nothing."""
        at = min(self._say_at, self._send_at, self._ask_at, *self._answers.values(), inf)
        return at if at < inf else None

    def handle_timeout(self, now: float) -> None:
        """Does what is due."""
        if now >= self._say_at and self._note is not None:
            self._say(now)
        for offset in [offset for offset, at in self._answers.items() if at <= now]:
            del self._answers[offset]
            self._answer(offset, now)
        if now >= self._send_at:
            self._send(now)
        if now >= self._ask_at:
            self._ask(now)

    def take(self) -> list[tuple[bytes, bytes]]:
        """Returns topics and payloads to publish."""
        out, self._out = self._out, []
        return out

    def news(self) -> list[News]:
        """Returns what was learned since the last call."""
        news, self._news = self._news, []
        return news

    def _say(self, now: float) -> None:
        assert self._note is not None
        self._out.append((self._topic, self._note.data))
        self._say_at = now + self._rng.uniform(1.0, 1.5) * SAY_INTERVAL_S

    def _ask(self, now: float) -> None:
        self._asks += 1
        if self._asks > ASKS_MAX:
            self.stop_wanting()
            return
        # Each candidate in turn: those that nobody goes on with must not keep others from being collected.
        candidates = list(self._candidates.values())
        offset = candidates[self._asks % len(candidates)].first_missing() if candidates else 0
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
            is_news = heard.size >= self._checkpoint.size and heard != self._checkpoint
            if is_news and not _is_verified(note, heard, self._document):
                return
        except NoteError:
            return
        if heard == self._checkpoint:
            if self._say_at < inf and note.data == self._note.data:
                self._say_at = now + self._rng.uniform(1.0, 1.5) * SAY_INTERVAL_S
        elif heard.size == self._checkpoint.size:
            self._news.append(Forked(payload))
        elif is_news:
            self._heard = heard, now
            self._news.append(Newer(heard.size))
        else:  # whoever said this is behind: he should hear of the newer one soon
            self._say_at = min(self._say_at, now + self._rng.uniform(0, SAY_SOON_S))

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
        if verb == "get" and offset not in self._sending:
            self._answers.setdefault(offset, now + self._rng.uniform(0, ANSWER_WITHIN_S))
        elif verb == "take" and words[2:] == [self._packed_hash]:
            self._answers.pop(offset, None)  # another one answers

    def _hear_piece(self, payload: bytes, now: float) -> None:
        words = payload.split(b" ", 4)
        if len(words) != 5 or not self._wanted:
            return
        size, total, at = (_number(words[index].decode("ascii", "replace")) for index in (0, 2, 3))
        name = words[1].decode("ascii", "replace")
        if size != self._wanted or total is None or at is None or len(name) != _HASH_CHARS:
            return
        if not 0 < total <= SENT_BYTES_MAX or at % PIECE_BYTES or (name, total) in self._done:
            return
        if at >= total or len(words[4]) != min(PIECE_BYTES, total - at):
            return
        candidate = self._candidates.get((name, total))
        if candidate is None:
            if len(self._candidates) == CANDIDATES_MAX:
                return
            candidate = self._candidates[name, total] = _Candidate(total)
        if at not in candidate.pieces:
            candidate.pieces[at] = words[4]
            self._asks, self._ask_at = 0, now + ASK_AGAIN_S
            if candidate.is_whole:
                del self._candidates[name, total]
                self._done.add((name, total))  # it is not to come again, whatever it is worth
                packed = b"".join(candidate.pieces[at] for at in sorted(candidate.pieces))
                bundle = _unpacked(packed) if _hash_of(packed) == name else None
                if bundle is not None:
                    self._news.append(Collected(bundle))
                    self._ask_at = inf  # until it is judged


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


def _unpacked(packed: bytes) -> bytes | None:
    """Returns a bundle, at most as long as one may be; None where there is none."""
    unpacking = decompressobj()
    try:
        data = unpacking.decompress(packed, BUNDLE_BYTES_MAX)
    except ZlibError:
        return None
    return data if unpacking.eof and not unpacking.unused_data else None


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
