"""Looks through a published log: all that it shows must follow from its entries. PROTOCOL §10.6.

A client checks what it needs of a log. An audit reads every entry, builds the tree anew, with our own code
and with pymerkle, and holds the published files to it. It finds what no single client would: two lists of one
version, a list that is logged and not handed out, a proof of another history.

    trust documents -> checkpoint -> entries -> tree and tiles -> records, each with its file and its proof
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kcast.client.clusters.cluster import FILE_BYTES_MAX, ClusterError, facts_of
from kcast.client.trust.checks.asking import Fault
from kcast.client.trust.checks.judge import DOCUMENTS_MAX, VERSIONS_AHEAD_MAX
from kcast.client.trust.checks.list_checks import read_list
from kcast.client.trust.checks.log_checks import require_signed
from kcast.client.trust.extras import MissingExtra
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.checkpoint import Checkpoint, LogProof
from kcast.client.trust.forms.document import DOCUMENT_BYTES_MAX, TrustDocument, pin_of
from kcast.client.trust.forms.note import Note, NoteError, verify
from kcast.client.trust.forms.paths import (
    CHECKPOINT,
    LATEST,
    PROOF_BYTES_MAX,
    list_path,
    proof_path,
    trust_path,
)
from kcast.client.trust.forms.record import ListRecord, TrustRecord, is_file_of, read_record
from kcast.client.trust.forms.tiles import WIDTH, tile_at
from kcast.client.trust.reach.sources import Source
from kcast.pubsub.errors import KcastError

try:
    from pymerkle import InmemoryTree
except ImportError:
    raise MissingExtra("an audit of a log", "list-log") from None

ENTRIES_MAX = 1_000_000
ENTRIES_BYTES_MAX = 256 * 1024 * 1024
FINDINGS_MAX = 1000

Record = ListRecord | TrustRecord


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
    findings: tuple[Finding, ...]


def audit(
    source: Source, pins: Mapping[int, str] | None = None, held_checkpoint: bytes | None = None
) -> Audit:
    """Returns what is to be found in the log of a source.

    `pins` are those of trust documents that the caller trusts, by version; `held_checkpoint` is one that the
    log has shown him before. Raises AuditError where there is no log, and SourceError.
    """
    return _Audit(source, pins or {}, held_checkpoint).run()


@dataclass
class _Audit:
    """One audit. Each look at a file or an entry ends with the first thing that is wrong with it."""

    source: Source
    pins: Mapping[int, str]
    held_checkpoint: bytes | None
    findings: list[Finding] = field(default_factory=list)
    documents: dict[int, TrustDocument] = field(default_factory=dict)
    tree: Any = None  # pymerkle's
    lists: int = 0

    def run(self) -> Audit:
        pin = self._read_documents()
        checkpoint = self._read_checkpoint()
        entries = self._read_entries(checkpoint.size)
        if len(entries) == checkpoint.size:
            self.tree = InmemoryTree.init_from_entries(entries)
            self._check_tree(checkpoint, entries)
            self._check_records(entries)
        return Audit(checkpoint, pin, len(self.documents), self.lists, tuple(self.findings))

    def _find(self, where: str, text: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(where, text))

    @contextmanager
    def _looking_at(self, where: str) -> Iterator[None]:
        """Makes a finding of what is wrong there."""
        try:
            yield
        except (NoteError, ClusterError, Fault) as error:
            self._find(where, str(error))

    def _file(self, path: str, bytes_max: int, so: str = "") -> bytes:
        """Returns a file. Raises NoteError where there is none, and says what follows from that."""
        data = self.source.get(path, bytes_max)
        if data is None:
            raise NoteError(f"it is missing{so}")
        return data

    # --- Trust documents, and the checkpoint ------------------------------------------------------------

    def _read_documents(self) -> str:
        """Reads all trust documents; returns the pin of the first. Raises AuditError."""
        first, newest = "", None
        for version in range(1, DOCUMENTS_MAX + 1):
            path = trust_path(version)
            data = self.source.get(path, DOCUMENT_BYTES_MAX)
            if data is None:
                break
            try:
                pin = pin_of(Note.parse(data).text)
                newest = documents.check_next(newest, data) if newest else documents.check_own(data)
            except NoteError as error:
                self._find(path, str(error))
                break
            if self.pins.get(version, pin) != pin:
                self._find(path, f"its pin is {pin}, and should be {self.pins[version]}")
            first = first or pin
            self.documents[version] = newest
        if newest is None:
            why = f": {self.findings[-1].text}" if self.findings else ""
            raise AuditError(f"{self.source.name}: no trust document, trust/1, can be used{why}")
        for version in sorted(self.pins.keys() - self.documents.keys()):
            self._find(trust_path(version), "it is not there, and was shown before")
        return first

    @property
    def _newest(self) -> TrustDocument:
        return self.documents[len(self.documents)]

    def _read_checkpoint(self) -> Checkpoint:
        """Returns the newest checkpoint. Raises AuditError."""
        try:
            note = Note.parse(self._file(CHECKPOINT, PROOF_BYTES_MAX))
            checkpoint = Checkpoint.parse(note.text)
        except NoteError as error:
            raise AuditError(f"{self.source.name}: {CHECKPOINT}: {error}") from None
        with self._looking_at(CHECKPOINT):
            require_signed(note, self._newest, CHECKPOINT)
        return checkpoint

    # --- The tree ---------------------------------------------------------------------------------------

    def _read_entries(self, size: int) -> list[bytes]:
        """Returns all entries; none where some cannot be had."""
        left = ENTRIES_BYTES_MAX

        def get(path: str, bytes_max: int) -> bytes | None:
            nonlocal left
            data = self.source.get(path, bytes_max)
            left -= len(data or b"")
            if left < 0:
                raise NoteError(f"up to {path} they have more than {ENTRIES_BYTES_MAX} bytes")
            return data

        with self._looking_at("entries"):
            if size > ENTRIES_MAX:
                raise NoteError(f"there are {size}; an audit reads {ENTRIES_MAX} at most")
            return tiles.answered(tiles.entries(0, size), get)
        return []

    def _root(self, size: int) -> bytes:
        """Returns the tree's root when it had this size, as pymerkle has it."""
        return bytes(self.tree.get_root(size))

    def _check_tree(self, checkpoint: Checkpoint, entries: list[bytes]) -> None:
        hashes, level = list(map(merkle.leaf_hash, entries)), 0
        root = merkle.root_of(hashes)
        if root != self._root(checkpoint.size):
            self._find("entries", "kcast and pymerkle make different trees of them: one of both has a fault")
        if root != checkpoint.root:
            self._find(CHECKPOINT, "its root is not that of the entries: the log shows another history")
        while hashes:
            rows = [hashes[at : at + WIDTH] for at in range(0, len(hashes), WIDTH)]
            for number, row in enumerate(rows):
                tile, right = tile_at(level, number, len(entries)), b"".join(row)
                if not (tiles.read_tile(tile, self.source.get) or b"").startswith(right):
                    self._find(tile.path, "it is missing, or not that of the entries")
            hashes, level = [merkle.root_of(row) for row in rows if len(row) == WIDTH], level + 1
        with self._looking_at(CHECKPOINT):
            self._check_held(checkpoint)

    def _check_held(self, checkpoint: Checkpoint) -> None:
        held = checkpoint if self.held_checkpoint is None else Checkpoint.read(self.held_checkpoint)
        if held.origin != checkpoint.origin:
            return  # a new log, by a new trust document
        if held.size > checkpoint.size:
            raise NoteError(f"it has {checkpoint.size} entries, and had {held.size} before")
        if held is not checkpoint and held.root != self._root(held.size):
            raise NoteError(f"the log does not begin with the {held.size} entries that it showed before")

    # --- Records ----------------------------------------------------------------------------------------

    def _check_records(self, entries: list[bytes]) -> None:
        logged: dict[str, int] = {}  # the entry of each file, by its path
        before: ListRecord | None = None
        latest: tuple[int, ListRecord] | None = None
        for index, entry in enumerate(entries):
            with self._looking_at(f"entry {index}"):
                record = read_record(entry)
                if record.name != self._newest.name:
                    raise NoteError(f"it is of {record.name[:80]!r}, and not of {self._newest.name}")
                is_list = isinstance(record, ListRecord)
                path = list_path(record.version) if is_list else trust_path(record.version)
                self._check_file(path, index, record)
                if isinstance(record, ListRecord):
                    latest = index, record
                if (first := logged.setdefault(path, index)) != index:
                    raise NoteError(f"it is another {path}, after entry {first}")
                if isinstance(record, ListRecord):
                    if trust_path(record.trust) not in logged:
                        raise NoteError(f"no entry before it is trust/{record.trust}, which it names")
                    self._check_follows(record, before)
                    before = record
        for version in self.documents:
            if trust_path(version) not in logged:
                self._find(trust_path(version), "it is not in the log")
        if latest:
            self._check_proof(LATEST, *latest)

    def _check_follows(self, record: ListRecord, before: ListRecord | None) -> None:
        """Checks that versions of lists rise, from where their trust documents let them count."""
        if before is not None and record.trust < before.trust:
            raise NoteError(f"it is under trust/{record.trust}, and one before it under trust/{before.trust}")
        document = self.documents.get(record.trust)
        former = self.documents.get(before.trust) if before else None
        if document is None:
            return
        counts_on = before and former and former.lists_from == document.lists_from
        least = before.version + 1 if before and counts_on else document.lists_from
        if record.version < least or (counts_on and record.version >= least + VERSIONS_AHEAD_MAX):
            after = f", after version {before.version}" if before else ""
            raise NoteError(f"it is version {record.version}{after}: one from {least} on should come there")

    def _check_file(self, path: str, index: int, record: Record) -> None:
        """Checks the file of a record, and its proof."""
        with self._looking_at(path):
            so = f": nobody can see what entry {index} shows"
            data = self._file(path, min(record.size_bytes, FILE_BYTES_MAX), so)
            if not is_file_of(record, data):
                raise NoteError(f"it is not what entry {index} shows")
            self._check_proof(proof_path(path), index, record)
            if isinstance(record, ListRecord):
                self._check_list(path, record, data)

    def _check_list(self, path: str, record: ListRecord, data: bytes) -> None:
        self.lists += 1
        cluster, note = read_list(data, path)
        facts = facts_of(cluster)
        if (cluster.name, facts.version, facts.trust) != (record.name, record.version, record.trust):
            raise NoteError(f"it is version {facts.version} of {cluster.name}, unlike its entry")
        document = self.documents.get(record.trust)
        if document is None:
            raise NoteError(f"trust/{record.trust}, under which it is signed, is not there")
        count, needed = len(document.signers_of(note)), document.signer_threshold
        if count < needed:
            raise NoteError(f"it is signed by {count} of the {needed} signers that it takes")

    def _check_proof(self, path: str, index: int, record: Record) -> None:
        """Checks that a file is the proof of an entry, in a tree that this log had."""
        with self._looking_at(path):
            proof = LogProof.parse(self._file(path, PROOF_BYTES_MAX))
            checkpoint = Checkpoint.parse(proof.checkpoint.text)
            # By the log's key of now, or of before.
            if not verify(proof.checkpoint, {document.policy.log for document in self.documents.values()}):
                raise NoteError(f"its checkpoint is not signed by the log {self._newest.policy.log.name}")
            if checkpoint.size > self.tree.get_size():
                raise NoteError("it is newer than the checkpoint: if something was published now, try again")
            if checkpoint.root != self._root(checkpoint.size):
                raise NoteError(
                    f"its checkpoint of size {checkpoint.size} has another history than the entries"
                )
            if (proof.extra, proof.index) != (record.data, index):
                raise NoteError(f"it is not the proof of entry {index}")
            if not proof.shows(proof.extra, checkpoint):
                raise NoteError("it proves nothing: its hashes do not lead to the root of its checkpoint")
