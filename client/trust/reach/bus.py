"""What clients tell each other of a signed list on a topic of kcast's own. Sans-IO. PROTOCOL §10.8.

    %00list/ID        the newest checkpoint that a client has verified: at adoption, then every hour or so

ID is 22 characters of the SHA-256 of the list's name. As in RFC 6206, whoever has just heard what he would
say keeps silent, but once in 100 h on average: else a server could keep clients silent whose checkpoints
contradict each other, by telling each its own.

A checkpoint is believed only where its log and a quorum have signed it. One that is newer is a hint to fetch.
One that contradicts the one held is evidence of a fork, for all who hear it.

Anybody may say anything there. So what a message makes a client do has a bound: signatures verified in a
second, and forks that are told of. A flood can keep the topic from being of use, and costs no more.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from random import Random

from kcast.client.trust.forms.checkpoint import Checkpoint, cosignatures
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note, NoteError, verify

HOUR_S = 3600.0
SAY_INTERVAL_S = HOUR_S
SAY_ANYWAY_S = 100 * HOUR_S  # on average, whatever others say
SAY_SOON_S = 10.0  # after a checkpoint was adopted
VERIFIED_PER_S = 10  # checkpoints, of about 100 us each where they are forged
SAY_AGAIN_S = 60.0  # the least time between what one client says because of others
FORKS_MAX = 4  # that are told of
_ID_CHARS = 22


@dataclass(frozen=True, slots=True)
class Newer:
    """Somebody has a newer checkpoint that is verified: time to fetch."""

    size: int


@dataclass(frozen=True, slots=True)
class Forked:
    """Somebody has a checkpoint that contradicts the one held: both are signed by the log and a quorum."""

    heard: bytes


News = Newer | Forked


def topic_of(name: str) -> bytes:
    """Returns the topic on which clients tell each other of the list of a name."""
    digest = urlsafe_b64encode(sha256(name.encode()).digest()).decode().rstrip("=")
    return f"\0list/{digest[:_ID_CHARS]}".encode()


class ListBus:
    """One client's part of the talk about one list.

    Hand it what comes on `topic` by `hear`, call `handle_timeout` at `next_timeout`, then publish what
    `take` returns, and look at `news`. `now` is in seconds of one clock.
    """

    def __init__(self, name: str, rng: Random) -> None:
        self.topic = topic_of(name)
        self._rng = rng
        self._document: TrustDocument | None = None
        self._note: Note | None = None
        self._checkpoint: Checkpoint | None = None
        self._say_at = inf
        self._say_anyway_at = inf
        self._said_at = -inf
        self._heard: tuple[Checkpoint, bytes, float] | None = None  # the last that was verified, and when
        self._forks: dict[Checkpoint, float] = {}  # that were verified, and when they were told
        self._verified = 0  # in the second that began at `_second_at`
        self._second_at = -inf
        self._out: list[bytes] = []
        self._news: list[News] = []

    def adopt(self, document: TrustDocument, checkpoint: bytes, now: float) -> None:
        """Goes by a checkpoint from now on, which was verified.

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

    def next_timeout(self) -> float | None:
        """Returns when there is something to do next; None where there is nothing."""
        at = min(self._say_at, self._say_anyway_at)
        return at if at < inf else None

    def handle_timeout(self, now: float) -> None:
        """Does what is due."""
        if now >= self._say_anyway_at:
            self._say_anyway_at = now + self._rng.expovariate(1 / SAY_ANYWAY_S)
            self._say_at = now
        if now >= self._say_at and self._note is not None:
            self._out.append(self._note.data)
            self._said_at = now
            self._say_at = now + self._rng.uniform(1.0, 1.5) * SAY_INTERVAL_S

    def take(self) -> list[bytes]:
        """Returns payloads to publish."""
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

    def hear(self, payload: bytes, now: float) -> None:
        """Takes a message; what is no sense is ignored."""
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
            self._hear_fork(note, heard, self._document, now)
        elif self._is_verified(note, heard, self._document, now):
            self._heard = heard, payload, now
            self._news.append(Newer(heard.size))

    def _hear_fork(self, note: Note, heard: Checkpoint, document: TrustDocument, now: float) -> None:
        told_at = self._forks.get(heard)
        if told_at is None:
            if len(self._forks) == FORKS_MAX or not self._is_verified(note, heard, document, now):
                return
        elif now - told_at < SAY_INTERVAL_S:
            return
        self._forks[heard] = now
        # Without what anybody may have added: the same fork is the same evidence.
        self._news.append(Forked(_trimmed(note, document).data))

    def _is_verified(self, note: Note, heard: Checkpoint, document: TrustDocument, now: float) -> bool:
        """Returns whether the log and a quorum have signed a checkpoint, as far as there is time for that."""
        if now - self._second_at >= 1.0:
            self._verified, self._second_at = 0, now
        if self._verified >= VERIFIED_PER_S:
            return False
        self._verified += 1
        policy = document.policy
        try:
            is_logs = verify(note, [policy.log]) and heard.origin == policy.log.name
            return bool(is_logs) and policy.is_met(cosignatures(note, policy.keys))
        except NoteError:
            return False


def _trimmed(note: Note, document: TrustDocument) -> Note:
    """Returns a checkpoint with the log's signature and those of one quorum, to fit into one message."""
    policy = document.policy
    quorum = policy.fewest(cosignatures(note, policy.keys)) or ()
    kept = [each for key in (policy.log, *quorum) for each in note.signatures if each.is_of(key)]
    return Note(note.text, tuple(kept))
