"""Looks through a published log: all that it shows must follow from its entries. PROTOCOL §10.6.

A client checks what it needs of a log. An audit reads every entry, builds the tree anew, with our own code
and with pymerkle, and holds the published files to it. It finds what no single client would: two lists of one
version, a list that is logged and not handed out, a proof of another history.

    trust documents -> checkpoint -> entries -> tree and tiles -> records, each with its file and its proof
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcast.client.clusters.cluster import FILE_BYTES_MAX, ClusterError, facts_of
from kcast.client.trust.checks.judge import DOCUMENTS_MAX, VERSIONS_AHEAD_MAX
from kcast.client.trust.checks.list_checks import read_list
from kcast.client.trust.extras import MissingExtra
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.checkpoint import Checkpoint, LogProof, cosignatures
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
from kcast.client.trust.forms.tiles import ENTRIES_LEVEL, WIDTH, Tile, tile_at
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


class _Audit:
    """One audit. Methods add findings, and go on where they can."""

    def __init__(self, source: Source, pins: Mapping[int, str], held_checkpoint: bytes | None) -> None:
        self._source = source
        self._pins = pins
        self._held_checkpoint = held_checkpoint
        self._findings: list[Finding] = []
        self._documents: dict[int, TrustDocument] = {}
        self._newest: TrustDocument
        self._tree: Any  # pymerkle's
        self._lists = 0

    def run(self) -> Audit:
        pin = self._read_documents()
        checkpoint = self._read_checkpoint()
        entries = self._read_entries(checkpoint.size)
        if len(entries) == checkpoint.size:
            self._tree = InmemoryTree.init_from_entries(entries)
            self._check_tree(checkpoint, entries)
            self._check_held(checkpoint)
            self._check_records(entries)
        return Audit(checkpoint, pin, len(self._documents), self._lists, tuple(self._findings))

    def _find(self, where: str, text: str) -> None:
        if len(self._findings) < FINDINGS_MAX:
            self._findings.append(Finding(where, text))

    def _tile(self, tile: Tile) -> bytes | None:
        return tiles.read_tile(tile, self._source.get)

    # --- Trust documents, and the checkpoint ------------------------------------------------------------

    def _read_documents(self) -> str:
        """Reads all trust documents; returns the pin of the first. Raises AuditError."""
        first = ""
        for version in range(1, DOCUMENTS_MAX + 1):
            path = trust_path(version)
            data = self._source.get(path, DOCUMENT_BYTES_MAX)
            if data is None:
                break
            try:
                pin = pin_of(Note.parse(data).text)
                if self._pins.get(version, pin) != pin:
                    self._find(path, f"its pin is {pin}, and should be {self._pins[version]}")
                follows = documents.check_next(self._newest, data) if first else documents.check_own(data)
            except NoteError as error:
                self._find(path, str(error))
                break
            first = first or pin
            self._newest = self._documents[version] = follows
        if not first:
            why = f": {self._findings[-1].text}" if self._findings else ""
            raise AuditError(f"{self._source.name}: no trust document, trust/1, can be used{why}")
        for version in sorted(self._pins.keys() - self._documents.keys()):
            self._find(trust_path(version), "it is not there, and was shown before")
        return first

    def _read_checkpoint(self) -> Checkpoint:
        """Returns the newest checkpoint. Raises AuditError."""
        try:
            data = self._source.get(CHECKPOINT, PROOF_BYTES_MAX)
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
                text = f"{len(cosigned)} witnesses have cosigned it, of {policy.needed} needed"
                self._find(CHECKPOINT, text)
        except NoteError as error:
            self._find(CHECKPOINT, str(error))
        return checkpoint

    def _check_signed(self, where: str, note: Note) -> None:
        """Checks that a checkpoint is one of the log, by its key of now or of before."""
        try:
            if not verify(note, {document.policy.log for document in self._documents.values()}):
                self._find(where, f"its checkpoint is not signed by the log {self._newest.policy.log.name}")
        except NoteError as error:
            self._find(where, str(error))

    # --- The tree ---------------------------------------------------------------------------------------

    def _read_entries(self, size: int) -> list[bytes]:
        """Returns all entries; fewer where some cannot be had."""
        if size > ENTRIES_MAX:
            self._find(CHECKPOINT, f"it has {size} entries; an audit reads {ENTRIES_MAX} at most")
            return []
        entries: list[bytes] = []
        left = ENTRIES_BYTES_MAX
        for number in range(-(-size // WIDTH)):
            tile = tile_at(ENTRIES_LEVEL, number, size)
            data = self._tile(tile) or b""
            try:
                found = tiles.read_entries(data)[: tile.width]
            except NoteError as error:
                self._find(tile.path, str(error))
                break
            left -= len(data)
            if len(found) < tile.width or left < 0:
                few = f"it has {len(found)} entries of {tile.width}" if left >= 0 else "all are too long"
                self._find(tile.path, f"{few}: the tree cannot be built")
                break
            entries += found
        return entries

    def _root(self, size: int) -> bytes:
        """Returns the tree's root when it had this size, as pymerkle has it."""
        return bytes(self._tree.get_root(size))

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
                self._check_tile(tile_at(level, number, len(entries)), b"".join(row))
            hashes, level = [merkle.root_of(row) for row in rows if len(row) == WIDTH], level + 1

    def _check_tile(self, tile: Tile, right: bytes) -> None:
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
        elif held.root != self._root(held.size):
            text = f"the log does not begin with the {held.size} entries that it showed before"
            self._find(CHECKPOINT, text)

    # --- Records ----------------------------------------------------------------------------------------

    def _check_records(self, entries: list[bytes]) -> None:
        logged: dict[int, int] = {}  # the entry of each trust document
        newest: tuple[int, ListRecord] | None = None
        highest = 0
        for index, entry in enumerate(entries):
            where = f"entry {index}"
            try:
                record = read_record(entry)
            except NoteError as error:
                self._find(where, str(error))
                continue
            if record.name != self._newest.name:
                self._find(where, f"it is of {record.name[:80]!r}, and not of {self._newest.name}")
            elif isinstance(record, TrustRecord):
                first = logged.setdefault(record.version, index)
                if first == index:
                    self._check_file(index, record, trust_path(record.version))
                else:
                    self._find(where, f"it is another trust document {record.version}, after entry {first}")
            else:
                if record.trust not in logged:
                    self._find(where, f"no entry before it is trust document {record.trust}, which it names")
                if record.trust in self._documents:
                    highest = self._next_version(where, record, newest and newest[1], highest)
                self._check_list(index, record)
                newest = index, record
        for version in self._documents.keys() - logged.keys():
            self._find(trust_path(version), "it is not in the log")
        if newest:
            self._check_proof(LATEST, *newest)

    def _next_version(self, where: str, record: ListRecord, before: ListRecord | None, highest: int) -> int:
        """Checks that versions of lists rise, from where their trust documents let them count; returns the
        highest."""
        version, lists_from = record.version, self._documents[record.trust].lists_from
        former = self._documents.get(before.trust) if before else None
        counts_on = former is not None and former.lists_from == lists_from
        wrong = ""
        if before and record.trust < before.trust:
            wrong = f"it is under trust document {record.trust}, and one before it under {before.trust}"
        elif version < lists_from:
            wrong = f"it is version {version}, and the first is {lists_from}"
        elif counts_on and version <= highest:
            another = "another list of version" if version == highest else "version"
            wrong = f"it is {another} {version}, after version {highest}"
        elif counts_on and version > highest + VERSIONS_AHEAD_MAX:
            wrong = f"it is version {version}, and the one before is {highest}"
        if wrong:
            self._find(where, wrong)
        return highest if wrong else version

    def _check_file(self, index: int, record: Record, path: str) -> bytes | None:
        """Returns the file of a record, if it is that of the entry, and checks its proof."""
        data = self._source.get(path, min(record.size_bytes, FILE_BYTES_MAX))
        if data is None:
            self._find(path, f"it is not to be had: nobody can see what entry {index} shows")
        elif not is_file_of(record, data):
            self._find(path, f"it is not what entry {index} shows")
        else:
            self._check_proof(proof_path(path), index, record)
            return data
        return None

    def _check_list(self, index: int, record: ListRecord) -> None:
        path = list_path(record.version)
        data = self._check_file(index, record, path)
        if data is None:
            return
        self._lists += 1
        try:
            cluster, note = read_list(data, path)
            facts = facts_of(cluster)
            if (cluster.name, facts.version, facts.trust) != (record.name, record.version, record.trust):
                self._find(path, f"it is version {facts.version} of {cluster.name}, unlike entry {index}")
            document = self._documents.get(record.trust)
            if document is None:
                self._find(path, f"trust/{record.trust}, under which it is signed, is not there")
            elif (count := len(document.signers_of(note))) < document.signer_threshold:
                needed = document.signer_threshold
                self._find(path, f"it is signed by {count} of the {needed} signers that it takes")
        except (ClusterError, NoteError) as error:
            self._find(path, str(error))

    def _check_proof(self, path: str, index: int, record: Record) -> None:
        """Checks that a file is the proof of an entry, in a tree that this log had."""
        data = self._source.get(path, PROOF_BYTES_MAX)
        if data is None:
            self._find(path, "it is missing")
            return
        try:
            proof = LogProof.parse(data)
            checkpoint = Checkpoint.parse(proof.checkpoint.text)
        except NoteError as error:
            self._find(path, str(error))
            return
        self._check_signed(path, proof.checkpoint)
        if (proof.extra, proof.index) != (record.data, index):
            self._find(path, f"it is not the proof of entry {index}")
        if not proof.shows(proof.extra, checkpoint):
            self._find(path, "it proves nothing: its hashes do not lead to the root of its checkpoint")
        if checkpoint.size > self._tree.get_size():
            self._find(path, "it is newer than the checkpoint: was something published meanwhile? Try again")
        elif checkpoint.root != self._root(checkpoint.size):
            self._find(path, f"its checkpoint of size {checkpoint.size} has another history than the entries")
