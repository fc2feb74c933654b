"""What the log must show: a checkpoint that is signed, a history that only grows, and the list's record.

PROTOCOL §10.7, steps 2 to 5. Sans-IO: each check is a generator that asks for files, as
`kcast.client.trust.checks.asking` has it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from kcast.client.trust.checks.asking import Asking, Fault, ask, hashes, need
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Check
from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof, cosignatures
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import BadSignature, Note, NoteError, verify
from kcast.client.trust.forms.paths import LATEST, PROOF_BYTES_MAX, proof_path, step_path
from kcast.client.trust.forms.record import ListRecord, read_record

LATER_ENTRIES_MAX = 1024  # entries after the list's that are looked at


@dataclass(frozen=True, slots=True)
class Tree:
    """The log as its newest checkpoint has it: that note, the proof beside it, and when it was cosigned."""

    note: Note
    checkpoint: Checkpoint
    proof: LogProof
    cosigned_unix_s: tuple[int, ...]  # a time for each witness, the newest first


def read_tree(data: bytes, document: TrustDocument, path: str = LATEST) -> Tree:
    """Returns the tree of a log proof, if the document's log and a quorum of witnesses have signed it.

    Complaints name it by `path`. Raises Fault.
    """
    try:
        proof = LogProof.parse(data)
        checkpoint = Checkpoint.parse(proof.checkpoint.text)
    except NoteError as error:
        raise Fault(ListFault.MALFORMED, f"{path}: {error}") from None
    cosigned_unix_s = require_signed(proof.checkpoint, document, path)
    return Tree(proof.checkpoint, checkpoint, proof, tuple(sorted(cosigned_unix_s, reverse=True)))


def require_signed(note: Note, document: TrustDocument, path: str) -> Collection[int]:
    """Returns a time for each witness that has cosigned a checkpoint, if the document's log has signed it and
    they make a quorum. Raises Fault."""
    policy, checkpoint = document.policy, Checkpoint.parse(note.text)
    try:
        is_logs = verify(note, [policy.log])
        cosigned = cosignatures(note, policy.keys)
    except BadSignature as error:
        raise Fault(ListFault.BAD_SIGNATURE, f"{path}: {error}") from None
    if not is_logs or checkpoint.origin != policy.log.name:
        raise Fault(ListFault.BAD_SIGNATURE, f"the checkpoint is not signed by the log {policy.log.name}")
    if not policy.is_met(cosigned):
        raise Fault(
            ListFault.NO_QUORUM,
            f"{len(cosigned)} of the {len(policy.keys)} witnesses have cosigned the checkpoint of size "
            f"{checkpoint.size}, and it takes {policy.needed}",
        )
    return cosigned.values()


def proven_unix_s(checkpoint: Note, document: TrustDocument) -> int:
    """Returns the time that a checkpoint proves to be over: the q-th newest of its cosignatures, where q of
    them make a quorum, so that no fewer than could show another history can move it. It is 0 where there are
    no witnesses, or too few of those that the document names have cosigned."""
    needed = document.policy.needed
    try:
        times = sorted(cosignatures(checkpoint, document.policy.keys).values(), reverse=True)
    except NoteError:
        return 0
    return times[needed - 1] if 0 < needed <= len(times) else 0


# --- Its history -------------------------------------------------------------------------------------------


def check_history(tree: Tree, held_checkpoint: bytes | None) -> Asking[Check]:
    """Checks that the tree extends the one held; returns what it comes to."""
    if held_checkpoint is None:
        return Check("history", "none held: this is the first checkpoint", is_ok=None)
    held_note = Note.parse(held_checkpoint)
    held, new = Checkpoint.parse(held_note.text), tree.checkpoint
    if held.origin != new.origin:
        text = f"the log is {new.origin} now, and was {held.origin}"
        return Check("history", text, is_ok=None)
    if new.size < held.size:
        raise Fault(
            ListFault.ROLLBACK,
            f"the log has {new.size} entries, and had {held.size}: it, or whoever brings it, goes back",
        )
    if new.size == held.size:
        if new.root != held.root:
            raise _fork(held_note, tree, ())
        return Check("history", f"of the same size {held.size}")
    path = yield from _extension(held_note, tree)
    hashes_text = f"{len(path)} hash{'' if len(path) == 1 else 'es'}"
    return Check("history", f"consistent with size {held.size} ({hashes_text})")


def _extension(held_note: Note, tree: Tree) -> Asking[tuple[bytes, ...]]:
    """Returns a proof that the tree extends the one held, from one file, or else from tiles."""
    held, new = Checkpoint.parse(held_note.text), tree.checkpoint
    if held.size == 0:
        return ()
    data = yield from ask(step_path(held.size), PROOF_BYTES_MAX)
    if data is not None:
        try:
            body = AddCheckpoint.parse(data)
        except NoteError:
            body = None
        # It may be another than what was read before, since each publish replaces it. Tiles only grow.
        if body is not None and merkle.extends(held.size, new.size, body.path, held.root, new.root):
            return body.path
    path = tuple((yield from hashes(tiles.consistency_path(held.size, new.size))))
    if merkle.extends(held.size, new.size, path, held.root, new.root):
        return path
    (root,) = yield from hashes(tiles.prefix_root(held.size, new.size))
    if merkle.extends(held.size, new.size, path, root, new.root):
        raise _fork(held_note, tree, path)
    raise Fault(ListFault.WITHHELD, "the log's tiles are not those of its checkpoint: try another source")


def _fork(held_note: Note, tree: Tree, path: tuple[bytes, ...]) -> Fault:
    """Two checkpoints that the log has signed, of which neither extends the other."""
    old_size = Checkpoint.parse(held_note.text).size
    return Fault(
        ListFault.FORK,
        f"the log shows {tree.checkpoint.size} entries that do not begin with the {old_size} that it showed "
        "before: it tells people different things. Tell the list's owners, and others who use it",
        {
            "held.checkpoint": held_note.data,
            "shown.checkpoint": tree.note.data,
            "shown.add-checkpoint": AddCheckpoint(old_size, path, tree.note).data,
        },
    )


# --- The list's record -------------------------------------------------------------------------------------


def newest_record(tree: Tree) -> Asking[ListRecord]:
    """Returns the record of the list that is shown, once the tree has it, and no newer one after it."""
    proof, checkpoint = tree.proof, tree.checkpoint
    try:
        record = read_record(proof.extra)
    except NoteError as error:
        raise Fault(ListFault.MALFORMED, f"{LATEST}: {error}") from None
    if not isinstance(record, ListRecord):
        raise Fault(ListFault.MALFORMED, f"{LATEST}: expected the record of a list")
    if not proof.shows(proof.extra, checkpoint):
        raise Fault(ListFault.UNLOGGED, f"version {record.version} is not in the public log")
    first, size = proof.index + 1, checkpoint.size
    if size - first > LATER_ENTRIES_MAX:
        raise Fault(ListFault.BEHIND, f"the log has {size - first} entries after version {record.version}")
    for index, entry in enumerate((yield from hashes(tiles.entries(first, size))), first):
        yield from _require_entry(index, entry, tree)
        try:
            other = read_record(entry)
        except NoteError:
            continue  # another use of the log
        if isinstance(other, ListRecord) and other.name == record.name:
            raise Fault(
                ListFault.BEHIND,
                f"the log has version {other.version}, and version {record.version} is shown",
            )
    return record


def last_entries(count: int, tree: Tree) -> Asking[list[tuple[int, bytes]]]:
    """Returns the last entries of the tree, with their indices. One that it does not have is a fault."""
    size = tree.checkpoint.size
    first = max(0, size - count)
    found = list(enumerate((yield from hashes(tiles.entries(first, size))), first))
    for index, entry in found:
        yield from _require_entry(index, entry, tree)
    return found


def _require_entry(index: int, entry: bytes, tree: Tree) -> Asking[None]:
    if not (yield from _is_entry(index, entry, tree)):
        raise Fault(ListFault.WITHHELD, f"entry {index} is not the one that the log has")


def _is_entry(index: int, entry: bytes, tree: Tree) -> Asking[bool]:
    """Returns whether the tree has this entry at an index, by its tiles."""
    checkpoint = tree.checkpoint
    path = yield from hashes(tiles.inclusion_path(index, checkpoint.size))
    return merkle.includes(index, checkpoint.size, merkle.leaf_hash(entry), path, checkpoint.root)


def has_entry(path: str, entry: bytes, tree: Tree) -> Asking[bool]:
    """Returns whether the tree has the entry of the file at `path`; the proof beside it says where. Raises
    Fault where that proof is of another file."""
    data = yield from need(proof_path(path), PROOF_BYTES_MAX)
    try:
        proof = LogProof.parse(data)
    except NoteError as error:
        raise Fault(ListFault.WITHHELD, f"{proof_path(path)}: {error}") from None
    if proof.extra != entry:
        raise Fault(ListFault.WITHHELD, f"{path} is not what its proof is of: try another source")
    if proof.shows(entry, tree.checkpoint):
        return True
    return (yield from _is_entry(proof.index, entry, tree))  # the proof may be of an older tree
