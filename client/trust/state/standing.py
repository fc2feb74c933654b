"""What a stored state is worth when a program starts, and for how long. Sans-IO. PROTOCOL §10.8.

At the start, these are verified again: that enough owners have signed the trust document, that the log and a
quorum of witnesses have signed the checkpoint, that the list's record is in that log, that the list is that
of the record byte for byte, and that enough signers have signed it. That suffices. All other checks compare
a list with those before it, and were made when it was accepted; they cannot come out otherwise now. A disk
that has changed a bit, or lost a file, is found by hashes and signatures. Whoever can put one sound state in
place of another owns the user's files, and the user.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from kcast.client.clusters.cluster import Cluster, ClusterError, facts_of
from kcast.client.trust.checks import list_checks
from kcast.client.trust.checks.asking import Fault
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.list_checks import Clock
from kcast.client.trust.checks.log_checks import proven_unix_s as proven_by
from kcast.client.trust.checks.log_checks import read_tree
from kcast.client.trust.checks.verdicts import Accepted, Held, Trouble
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note, NoteError
from kcast.client.trust.forms.record import ListRecord


@dataclass(frozen=True)
class Standing:
    """A list that was verified: its cluster, the trust document, and the newest checkpoint of the log.

    `former` are the lists before it that are still valid, unread, newest first. `note` is the newest
    checkpoint as it was signed, `proven_unix_s` the time that it proves to be over, `seen_unix_s` one that is
    over by what lists say.
    """

    document: TrustDocument
    cluster: Cluster
    former: tuple[bytes, ...]
    note: bytes
    proven_unix_s: int = 0
    seen_unix_s: int = 0

    @cached_property  # a client that runs looks at it with each of its looks at what servers hint
    def checkpoint(self) -> Checkpoint:
        """The newest checkpoint of the log."""
        return Checkpoint.read(self.note)

    @classmethod
    def of(cls, accepted: Accepted) -> "Standing":
        """Returns that of a list that was just accepted."""
        held = accepted.held
        document, _ = documents.parse(held.trust)
        return cls.with_time(held, document, document, accepted.upcoming or accepted.cluster)

    @classmethod
    def with_time(
        cls, held: Held, document: TrustDocument, signed_under: TrustDocument, newest: Cluster
    ) -> "Standing":
        """Returns that of what is held, with the times that are over."""
        note = held.checkpoint or b""
        proven, seen = proven_by(Note.parse(note), signed_under), 0
        if not proven:
            before = (cluster for data in held.former[:1] if (cluster := _read(data)) is not None)
            seen = list_checks.seen_unix_s((newest, *before))
        return cls(document, newest, held.former, note, proven, seen)

    def clock(self, now_unix_s: float) -> Clock:
        """Returns this machine's time, and what is proven."""
        return Clock(int(now_unix_s), self.proven_unix_s, self.seen_unix_s)

    def present(self, now_unix_s: float) -> Cluster:
        """Returns the cluster to go by at this time: that of the list before, while the newest waits."""
        clock = self.clock(now_unix_s)
        if list_checks.in_force([self.cluster], clock) is None:
            every = [cluster for data in self.former if (cluster := _read(data)) is not None]
            return list_checks.in_force(every, clock) or self.cluster
        return self.cluster

    def is_due(self, now_unix_s: float, share: float, since_unix_s: float | None = None) -> bool:
        """Returns whether this share of the list's fresh interval is over; since `since_unix_s`, if that is
        before the list holds. Before both it is due where the clock is slow: many lists wait to hold."""
        facts = facts_of(self.cluster)
        begin = min(facts.valid_after_s, facts.valid_after_s if since_unix_s is None else since_unix_s)
        if now_unix_s < begin:
            return self.clock(now_unix_s).trouble is not None
        return now_unix_s - begin >= share * (facts.fresh_until_s - facts.valid_after_s)

    def lateness(self, now_unix_s: float) -> Trouble | None:
        """Returns what to say of a list that should have been replaced, or holds no more."""
        return list_checks.overdue(self.cluster, self.clock(now_unix_s))

    def troubles(self, now_unix_s: float) -> list[Trouble]:
        """Returns what to say of the times: that, and that the clock of this machine is slow."""
        every = (self.clock(now_unix_s).trouble, self.lateness(now_unix_s))
        return [each for each in every if each is not None]


def refusal(standing: Standing, now_unix_s: float) -> ClusterError | None:
    """Returns why a list must not be used: it has expired, and its trust document wants that; or it is one of
    0.4 whose salts hold by epochs. None where it may be used."""
    why = documents.why_not_used(standing.document)
    if why is None and facts_of(standing.cluster).has_later_salt:
        why = f"version {facts_of(standing.cluster).version} has {list_checks.LATER_SALT}"
    if why is not None:
        return ClusterError(f"@{standing.document.name}: {why}")
    late = standing.lateness(now_unix_s)
    if late is None or late.fault is not ListFault.EXPIRED or standing.document.expiry == "warn":
        return None
    return ClusterError(f"@{standing.document.name}: {late.text}. Its trust document forbids to use it")


@lru_cache(maxsize=2)
def standing_of(held: Held) -> Standing:
    """Verifies a stored state that has a list. Raises Fault, NoteError and ClusterError where it is damaged.

    What was verified last is not verified again: a program may open many clients.
    """
    document = documents.check_own(held.trust)
    # The list was accepted under this one, which may have other keys, of the log too.
    signed_under = documents.check_own(held.list_trust or b"")
    data = held.list or b""
    tree = read_tree(held.proof or b"", signed_under)
    if not tree.proof.shows(tree.proof.extra, tree.checkpoint):
        raise NoteError("the list is not in the log")
    cluster, note = list_checks.read_list(data)
    if not signed_under.has_enough_signers(note):
        raise NoteError("too few signers have signed the list")
    facts = facts_of(cluster)
    if cluster.name != document.name:
        raise NoteError("the list is that of another name")
    if ListRecord.of(cluster.name, facts.version, facts.trust, data).data != tree.proof.extra:
        raise NoteError("the list is not the one that is in the log")
    Checkpoint.read(held.checkpoint or b"")
    return Standing.with_time(held, document, signed_under, cluster)


def is_sound(held: Held, name: str) -> bool:
    """Returns whether a stored state is undamaged, and that of this name: folders can be renamed."""
    try:
        document = documents.check_own(held.trust) if held.list is None else standing_of(held).document
    except (Fault, NoteError, ClusterError):
        return False
    return document.name == name


@lru_cache(maxsize=4)
def _read(data: bytes) -> Cluster | None:
    """Reads a former list. One that is damaged is as good as none."""
    try:
        return list_checks.read_list(data)[0]
    except (ClusterError, NoteError):
        return None
