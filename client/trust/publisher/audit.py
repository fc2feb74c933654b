"""Looks through a published log: all that it shows must follow from its entries. PROTOCOL §10.6.

A client checks what it needs of a log. An audit reads every entry, builds the tree anew, with our own code
and with pymerkle, and holds every published file to it. It finds what no single client would: two lists of
one version, a list that is logged and not handed out, a proof of another history.

    trust documents -> checkpoint -> entries -> tree and tiles -> records -> lists and their proofs
        -> the newest proof, from/N, bundle
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import ClusterError, facts_of
from kcast.client.trust.checks.judge import DOCUMENTS_MAX, VERSIONS_AHEAD_MAX
from kcast.client.trust.checks.list_checks import read_list
from kcast.client.trust.extras import MissingExtra
from kcast.client.trust.forms import bundle, merkle, tiles
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.bundle import BUNDLE_BYTES_MAX, BundleError
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof, cosignatures
from kcast.client.trust.forms.document import DOCUMENT_BYTES_MAX, TrustDocument, pin_of
from kcast.client.trust.forms.note import Note, NoteError, verify
from kcast.client.trust.forms.paths import (
    CHECKPOINT,
    LATEST,
    PROOF_BYTES_MAX,
    list_path,
    proof_path,
    step_path,
    trust_path,
)
from kcast.client.trust.forms.record import ListRecord, TrustRecord, read_record
from kcast.client.trust.forms.tiles import ENTRIES_LEVEL, WIDTH, Hashes, Tile, tile_at
from kcast.client.trust.reach.sources import Source
from kcast.pubsub.errors import KcastError

try:
    from pymerkle import InmemoryTree
except ImportError:
    raise MissingExtra("an audit of a log", "list-log") from None

ENTRIES_MAX = 1_000_000
ENTRIES_BYTES_MAX = 256 * 1024 * 1024
FINDINGS_MAX = 1000


class AuditError(KcastError, RuntimeError):
    """There is nothing to be audited; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and where: the path of a file, or `entry N`, from 0."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What was looked through, and what was found: nothing, in a log as it should be.

    `pin` is that of the first trust document there, by which all others are judged.
    """

    checkpoint: Checkpoint
    pin: str
    documents: int
    lists: int
    proofs: int
    findings: tuple[Finding, ...]


def audit(
    source: Source, pins: Mapping[int, str] | None = None, held_checkpoint: bytes | None = None
) -> Audit:
    """Returns what is to be found in the log of a source.

    `pins` are those of trust documents that the caller trusts, by version; `held_checkpoint` is one that the
    log has shown him before. Raises AuditError where there is no log, and SourceError.
    """
    return _Audit(source, pins or {}, held_checkpoint).run()


class Tree:
    """A tree of leaf hashes, with all its tiles and older roots, as our own code has them."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.leaves = leaves
        self._roots: dict[int, bytes] = {}

    @cached_property
    def tiles(self) -> dict[Tile, bytes]:
        """Its tiles, each as wide as it is."""
        level, hashes = 0, self.leaves
        found = {}
        while hashes:
            for number in range(-(-len(hashes) // WIDTH)):
                tile = tile_at(level, number, len(self.leaves))
                found[tile] = b"".join(hashes[number * WIDTH : number * WIDTH + tile.width])
            whole = range(0, len(hashes) // WIDTH * WIDTH, WIDTH)
            level, hashes = level + 1, [merkle.root_of(hashes[at : at + WIDTH]) for at in whole]
        return found

    def root(self, size: int) -> bytes:
        """Returns its root when it had this size."""
        if not size:
            return merkle.EMPTY_ROOT
        if size not in self._roots:
            (self._roots[size],) = self.hashes(tiles.root(size))
        return self._roots[size]

    def hashes(self, wanted: Hashes) -> list[bytes]:
        """Returns hashes of it, of any older size."""
        size = len(self.leaves)
        return tiles.answered(wanted, lambda tile: self.tiles[tile_at(tile.level, tile.number, size)])


class _Audit:
    """One audit. Methods add findings, and go on where they can."""

    def __init__(self, source: Source, pins: Mapping[int, str], held_checkpoint: bytes | None) -> None:
        self._source = source
        self._pins = pins
        self._held_checkpoint = held_checkpoint
        self._findings: list[Finding] = []
        self._documents: dict[int, tuple[TrustDocument, bytes]] = {}
        self._newest: TrustDocument
        self._tree: Tree
        self._seen_sizes: set[int] = set()
        self._lists = 0
        self._proofs = 0

    def run(self) -> Audit:
        pin = self._read_documents()
        checkpoint = self._read_checkpoint()
        entries = self._read_entries(checkpoint.size)
        if len(entries) == checkpoint.size:
            self._tree = Tree(list(map(merkle.leaf_hash, entries)))
            self._check_tree(checkpoint, entries)
            self._check_held(checkpoint)
            records = self._read_records(entries)
            self._check_documents_are_logged(records)
            self._check_versions(records)
            for index, record in records.items():
                if isinstance(record, ListRecord):
                    self._check_list(index, record)
            self._check_latest(records)
            self._check_steps()
            self._check_bundle()
        count = len(self._documents)
        return Audit(checkpoint, pin, count, self._lists, self._proofs, tuple(self._findings))

    def _find(self, where: str, text: str) -> None:
        if len(self._findings) < FINDINGS_MAX:
            self._findings.append(Finding(where, text))

    def _get(self, path: str, bytes_max: int) -> bytes | None:
        """Returns a file; None where there is none. One that is too long is a finding, and as if missing."""
        data = self._source.get(path, bytes_max)
        if data is not None and len(data) > bytes_max:
            self._find(path, f"it is longer than {bytes_max} bytes")
            return None
        return data

    def _tile(self, tile: Tile) -> bytes | None:
        return tiles.read_tile(tile, self._get)

    # --- Trust documents --------------------------------------------------------------------------------

    def _read_documents(self) -> str:
        """Reads all trust documents; returns the pin of the first. Raises AuditError."""
        pin = ""
        former: TrustDocument | None = None
        for version in range(1, DOCUMENTS_MAX + 1):
            path = trust_path(version)
            data = self._get(path, DOCUMENT_BYTES_MAX)
            if data is None:
                break
            try:
                found = pin_of(Note.parse(data).text)
                if self._pins.get(version, found) != found:
                    self._find(path, f"its pin is {found}, and should be {self._pins[version]}")
                pin = pin or found
                former = (
                    documents.check_first(data, pin) if former is None else documents.check_next(former, data)
                )
            except NoteError as error:
                self._find(path, str(error))
                break
            self._documents[version] = former, data
        if former is None:
            why = f": {self._findings[-1].text}" if self._findings else ""
            raise AuditError(f"{self._source.name}: no trust document, trust/1, can be used{why}")
        self._newest = former
        for version in sorted(self._pins.keys() - self._documents.keys()):
            self._find(trust_path(version), "it is not there, and was shown before")
        return pin

    # --- The tree ---------------------------------------------------------------------------------------

    def _read_checkpoint(self) -> Checkpoint:
        """Returns the newest checkpoint. Raises AuditError."""
        data = self._get(CHECKPOINT, PROOF_BYTES_MAX)
        try:
            if data is None:
                raise NoteError("there is no such file")
            note = Note.parse(data)
            checkpoint = Checkpoint.parse(note.text)
        except NoteError as error:
            raise AuditError(f"{self._source.name}: {CHECKPOINT}: {error}") from None
        self._check_signed(CHECKPOINT, note)
        policy = self._newest.policy
        try:
            cosigned = cosignatures(note, policy.keys)
            if not policy.is_met(cosigned):
                self._find(
                    CHECKPOINT, f"{len(cosigned)} witnesses have cosigned it, of {policy.needed} needed"
                )
        except NoteError as error:
            self._find(CHECKPOINT, str(error))
        return checkpoint

    def _check_signed(self, where: str, note: Note) -> None:
        """Checks that a checkpoint is one of the log, by its key of now or of before."""
        keys = {document.policy.log for document, _ in self._documents.values()}
        try:
            if not verify(note, keys):
                self._find(where, f"its checkpoint is not signed by the log {self._newest.policy.log.name}")
        except NoteError as error:
            self._find(where, str(error))

    def _read_entries(self, size: int) -> list[bytes]:
        """Returns all entries; fewer where some cannot be had."""
        if size > ENTRIES_MAX:
            self._find(CHECKPOINT, f"it has {size} entries; an audit reads {ENTRIES_MAX} at most")
            return []
        entries: list[bytes] = []
        left = ENTRIES_BYTES_MAX
        for number in range(-(-size // WIDTH)):
            tile = tile_at(ENTRIES_LEVEL, number, size)
            data = self._tile(tile)
            try:
                found = tiles.read_entries(data or b"")[: tile.width]
            except NoteError as error:
                self._find(tile.path, str(error))
                break
            left -= len(data or b"")
            if len(found) < tile.width or left < 0:
                few = f"it has {len(found)} entries of {tile.width}" if left >= 0 else "all are too long"
                self._find(tile.path, f"{few}: the tree cannot be built")
                break
            entries += found
        return entries

    def _check_tree(self, checkpoint: Checkpoint, entries: list[bytes]) -> None:
        root = self._tree.root(checkpoint.size)
        theirs: Any = InmemoryTree.init_from_entries(entries)
        if root != merkle.root_of(self._tree.leaves) or root != theirs.get_root():
            self._find("entries", "kcast and pymerkle make different trees of them: one of both has a fault")
        if root != checkpoint.root:
            self._find(CHECKPOINT, "its root is not that of the entries: the log shows another history")
        for tile, right in self._tree.tiles.items():
            data = self._tile(tile)
            if data is None or data[: len(right)] != right:
                self._find(tile.path, "it is missing" if data is None else "it is not that of the entries")

    def _check_held(self, checkpoint: Checkpoint) -> None:
        if self._held_checkpoint is None:
            return
        held = Checkpoint.read(self._held_checkpoint)
        if held.origin != checkpoint.origin:
            return  # a new log, by a new trust document
        if held.size > checkpoint.size:
            self._find(CHECKPOINT, f"it has {checkpoint.size} entries, and had {held.size} before")
        elif held.root != self._tree.root(held.size):
            self._find(
                CHECKPOINT, f"the log does not begin with the {held.size} entries that it showed before"
            )

    # --- Records ----------------------------------------------------------------------------------------

    def _read_records(self, entries: list[bytes]) -> dict[int, ListRecord | TrustRecord]:
        """Returns the records, by index."""
        found = {}
        for index, entry in enumerate(entries):
            try:
                record = read_record(entry)
            except NoteError as error:
                self._find(f"entry {index}", str(error))
                continue
            if record.name != self._newest.name:
                self._find(f"entry {index}", f"it is of {record.name[:80]!r}, and not of {self._newest.name}")
                continue
            found[index] = record
        return found

    def _check_documents_are_logged(self, records: Mapping[int, ListRecord | TrustRecord]) -> None:
        logged: dict[int, int] = {}
        for index, record in records.items():
            where = f"entry {index}"
            if isinstance(record, ListRecord):
                if record.trust not in logged:
                    self._find(where, f"no entry before it is trust document {record.trust}, which it names")
                continue
            first = logged.setdefault(record.version, index)
            _, data = self._documents.get(record.version, (None, b""))
            if first != index:
                self._find(where, f"it is another trust document {record.version}, after entry {first}")
            elif TrustRecord.of(record.name, record.version, data) != record:
                self._find(where, f"trust/{record.version} is not what it shows")
            else:
                self._check_proof(proof_path(trust_path(record.version)), index, record)
        for version in self._documents.keys() - logged.keys():
            self._find(trust_path(version), "it is not in the log")

    def _check_versions(self, records: Mapping[int, ListRecord | TrustRecord]) -> None:
        """Checks that versions of lists rise, from where their trust documents let them count."""
        highest, trust, first = 0, 0, 1
        for index, record in records.items():
            if not isinstance(record, ListRecord) or record.trust not in self._documents:
                continue
            where, version = f"entry {index}", record.version
            if record.trust < trust:
                self._find(
                    where, f"it is under trust document {record.trust}, and one before it under {trust}"
                )
                continue
            lists_from = self._documents[record.trust][0].lists_from
            if version < lists_from:
                self._find(where, f"it is version {version}, and the first is {lists_from}")
            elif trust and lists_from == first and version <= highest:
                another = "another list of version" if version == highest else "version"
                self._find(where, f"it is {another} {version}, after version {highest}")
            elif trust and lists_from == first and version > highest + VERSIONS_AHEAD_MAX:
                self._find(where, f"it is version {version}, and the one before is {highest}")
            else:
                highest = version
            trust, first = record.trust, lists_from

    # --- Lists and proofs -------------------------------------------------------------------------------

    def _check_list(self, index: int, record: ListRecord) -> None:
        path = list_path(record.version)
        data = self._source.get(path, min(record.size_bytes, clusters.FILE_BYTES_MAX))
        if data is None:
            self._find(path, f"it is not to be had: nobody can see what entry {index} shows")
            return
        if len(data) != record.size_bytes or sha256(data).hexdigest() != record.sha256:
            self._find(path, f"it is not the list that entry {index} shows")
            return
        self._lists += 1
        try:
            cluster, note = read_list(data, path)
            facts = facts_of(cluster)
            if (cluster.name, facts.version, facts.trust) != (record.name, record.version, record.trust):
                self._find(path, f"it is version {facts.version} of {cluster.name}, unlike entry {index}")
            self._check_signers(path, note, record.trust)
        except (ClusterError, NoteError) as error:
            self._find(path, str(error))
        self._check_proof(proof_path(path), index, record)

    def _check_signers(self, path: str, note: Note, trust: int) -> None:
        if trust not in self._documents:
            self._find(path, f"trust/{trust}, under which it is signed, is not there")
            return
        document, _ = self._documents[trust]
        count = len(document.signers_of(note))
        if count < document.signer_threshold:
            self._find(
                path, f"it is signed by {count} of the {document.signer_threshold} signers that it takes"
            )

    def _check_proof(self, path: str, index: int, record: ListRecord | TrustRecord) -> None:
        """Checks that a file is the proof of an entry."""
        data = self._get(path, PROOF_BYTES_MAX)
        if data is None:
            self._find(path, "it is missing")
            return
        proof = self._read_proof(path, data)
        if proof and (proof.extra != record.data or proof.index != index):
            self._find(path, f"it is not the proof of entry {index}")

    def _read_proof(self, where: str, data: bytes) -> LogProof | None:
        """Returns a proof, and checks that it is one of this tree; None where it cannot be read."""
        try:
            proof = LogProof.parse(data)
            checkpoint = Checkpoint.parse(proof.checkpoint.text)
        except NoteError as error:
            self._find(where, str(error))
            return None
        self._proofs += 1
        if not proof.shows(proof.extra, checkpoint):
            self._find(where, "it proves nothing: its hashes do not lead to the root of its checkpoint")
        self._check_history(where, proof.checkpoint, checkpoint)
        return proof

    def _check_history(self, path: str, note: Note, checkpoint: Checkpoint) -> None:
        """Checks that a checkpoint is one that this log had."""
        self._check_signed(path, note)
        if checkpoint.size > len(self._tree.leaves):
            self._find(path, "it is newer than the checkpoint: was something published meanwhile? Try again")
        elif checkpoint.root != self._tree.root(checkpoint.size):
            self._find(path, f"its checkpoint of size {checkpoint.size} has another history than the entries")
        else:
            self._seen_sizes.add(checkpoint.size)

    def _check_latest(self, records: Mapping[int, ListRecord | TrustRecord]) -> None:
        lists = [(index, record) for index, record in records.items() if isinstance(record, ListRecord)]
        if lists:
            self._check_proof(LATEST, *lists[-1])

    def _check_steps(self) -> None:
        """Checks the files from/N that are there, for sizes that the log is known to have had."""
        for size in sorted(self._seen_sizes):
            path = step_path(size)
            data = self._get(path, PROOF_BYTES_MAX)
            if data is None:
                continue
            try:
                body = AddCheckpoint.parse(data)
                new = Checkpoint.parse(body.checkpoint.text)
            except NoteError as error:
                self._find(path, str(error))
                continue
            self._proofs += 1
            self._check_history(path, body.checkpoint, new)
            root = self._tree.root(size)
            if body.old_size != size or not merkle.extends(size, new.size, body.path, root, new.root):
                self._find(path, f"it does not lead from size {size} to its checkpoint")

    def _check_bundle(self) -> None:
        """Checks that the bundle has what the folder has. Nobody needs to have one."""
        data = self._get("bundle", BUNDLE_BYTES_MAX)
        if data is None:
            return
        try:
            files = bundle.parse(data)
        except BundleError as error:
            self._find("bundle", str(error))
            return
        for path, inside in files.items():
            if path.endswith(".tlog-proof"):  # a bundle may have newer proofs of older lists
                self._read_proof(f"bundle: {path}", inside)
            elif self._source.get(path, len(inside)) != inside:
                self._find("bundle", f"its {path} is not the one beside it")
