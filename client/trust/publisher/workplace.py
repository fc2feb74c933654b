"""The files of those who publish a list: the work file, and what lies beside it. PROTOCOL §10.

lab.cluster     the work file: the list as it was published, or as it is to be
lab.trust       a trust document that is to be published, while there is one
lab.log/        what any web server may serve: the log, lists, trust documents
lab.log.db      the log's entries, for the publisher alone
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import FILE_BYTES_MAX, Cluster
from kcast.client.clusters.durable import write_whole
from kcast.client.clusters.reader import SIGNATURE_MARK
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.checkpoint import LogProof
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note, NoteError
from kcast.client.trust.forms.paths import LATEST, list_path, trust_path
from kcast.client.trust.forms.record import ListRecord, read_record
from kcast.client.trust.publisher.editing import EditError

LOOKED_AT_MAX = 64  # lists that clients may hold


@dataclass(frozen=True, slots=True)
class Published:
    """The newest list that is published: its record, its file, and the proof of it with the checkpoint."""

    record: ListRecord
    data: bytes
    proof: LogProof

    @property
    def text(self) -> str:
        """The list without its signatures."""
        return Note.parse(self.data).text


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a list is made and published, known by the path of its work file."""

    file: Path

    @property
    def trust_file(self) -> Path:
        """The trust document that is to be published."""
        return self.file.with_suffix(".trust")

    @property
    def served(self) -> Path:
        """The folder for a web server."""
        return self.file.with_suffix(".log")

    @property
    def database(self) -> Path:
        """The log's entries."""
        return self.file.with_suffix(".log.db")

    def trust_documents(self) -> tuple[bytes, ...]:
        """Returns the published trust documents, from version 1 on."""
        found: list[bytes] = []
        while (data := self.served_file(trust_path(len(found) + 1))) is not None:
            found.append(data)
        return tuple(found)

    def published(self) -> Published | None:
        """Returns the newest published list; None where there is none yet. Raises EditError where the folder
        is damaged."""
        data = self.served_file(LATEST)
        if data is None:
            return None
        try:
            proof = LogProof.parse(data)
            record = read_record(proof.extra)
        except NoteError as error:
            raise EditError(f"{self.served / LATEST}: {error}") from None
        if not isinstance(record, ListRecord):
            raise EditError(f"{self.served / LATEST}: it is the proof of no list")
        listed = self.published_list(record.version)
        if listed is None:
            raise EditError(f"{self.served / 'list' / str(record.version)}: there is no such file")
        if ListRecord.of(record.name, record.version, record.trust, listed) != record:
            raise EditError(
                f"{self.served / 'list' / str(record.version)}: it was changed after it was published: bring "
                "it back from a backup"
            )
        return Published(record, listed, proof)

    def counts_anew(self, document: TrustDocument) -> bool:
        """Returns whether versions begin anew under a trust document: the newest list that is published
        stands under one with another `lists-from`."""
        published = self.published()
        if published is None:
            return False
        former, _ = documents.parse(self.trust_documents()[published.record.trust - 1])
        return former.lists_from != document.lists_from

    def published_text(self, version: int) -> str | None:
        """Returns a published list without its signatures; None where there is none of this version."""
        data = self.published_list(version)
        return None if data is None else Note.parse(data).text

    def published_list(self, version: int) -> bytes | None:
        """Returns a published list; None where there is none of this version."""
        return self.served_file(list_path(version))

    def lists(self, newest: int) -> Iterator[tuple[bytes, Cluster]]:
        """Yields the published lists from a version down, as bytes and read, for as long as clients may hold
        them. Not every version needs to have come out."""
        for version in range(newest, max(0, newest - LOOKED_AT_MAX), -1):
            data = self.published_list(version)
            if data is not None:
                yield data, clusters.parse(data.decode(), list_path(version))

    def steps(self) -> tuple[int, ...]:
        """Returns the sizes of the log from which a way to the newest is published."""
        folder = self.served / "from"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return tuple(int(name) for name in names if name.isascii() and name.isdigit())

    def served_file(self, path: str) -> bytes | None:
        """Returns a file of the folder for the web server; None where there is none of this path."""
        try:
            return read_file(self.served / path)
        except FileNotFoundError:
            return None


def read_file(path: Path) -> bytes:
    """Reads a file of the workplace. Raises OSError, and EditError where it is too long to be one."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise EditError(f"{path}: longer than {FILE_BYTES_MAX} bytes: it is no list")
    return data


def read_note(path: Path) -> Note:
    """Reads a work file: a text, with the signatures that it has by now, perhaps none.

    Raises OSError, and EditError where it is no such file.
    """
    data = read_file(path).removeprefix(BOM_UTF8)  # an editor's; what is signed has none
    try:
        if f"\n{SIGNATURE_MARK}".encode() in data:
            return Note.parse(data)
        return Note(data.decode())
    except NoteError as error:
        raise EditError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise EditError(f"{path}: not UTF-8 text") from None


def write_note(path: Path, note: Note) -> None:
    """Writes a work file, with the signatures that it has."""
    write_whole(path, note.data if note.signatures else note.text.encode())
