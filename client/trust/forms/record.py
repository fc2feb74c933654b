"""Records: what a log has of a list, and of a trust document. Sans-IO. PROTOCOL §10.6.

A list may have megabytes, and an entry of a log 65,535 bytes (C2SP tlog-tiles). So the entry is a record of
it, with its size and its hash: a client verifies the record before it downloads the list, and then knows
exactly how much to read.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from kcast.client.clusters.facts import is_list_name, shown
from kcast.client.trust.forms.checkpoint import read_size
from kcast.client.trust.forms.note import NoteError

_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Record:
    """The record of a file: all its bytes, signatures included."""

    HEADER: ClassVar[str]

    name: str
    version: int
    size_bytes: int
    sha256: str

    @property
    def head(self) -> bytes:
        """What no other entry of a log begins with."""
        return f"{self.HEADER}\n{self.name}\nversion {self.version}\n".encode()

    @property
    def data(self) -> bytes:
        """The entry in the log."""
        return self.head + f"bytes {self.size_bytes}\nsha256 {self.sha256}\n".encode()


@dataclass(frozen=True, slots=True)
class TrustRecord(_Record):
    """The record of a trust document."""

    HEADER: ClassVar[str] = "kcast-trust-record 1"

    @classmethod
    def of(cls, name: str, version: int, data: bytes) -> "TrustRecord":
        """Returns the record of a trust document."""
        return cls(name, version, len(data), sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class ListRecord(_Record):
    """The record of a list. `trust` is the version of the trust document that it is signed under."""

    HEADER: ClassVar[str] = "kcast-list 1"

    trust: int

    @classmethod
    def of(cls, name: str, version: int, trust: int, data: bytes) -> "ListRecord":
        """Returns the record of a list."""
        return cls(name, version, len(data), sha256(data).hexdigest(), trust)

    @property
    def data(self) -> bytes:
        """The entry in the log."""
        rest = f"trust {self.trust}\nbytes {self.size_bytes}\nsha256 {self.sha256}\n"
        return self.head + rest.encode()


def is_file_of(record: ListRecord | TrustRecord, data: bytes) -> bool:
    """Returns whether these are exactly the bytes that a record is of."""
    return len(data) == record.size_bytes and sha256(data).hexdigest() == record.sha256


def read_record(data: bytes) -> ListRecord | TrustRecord:
    """Reads an entry of a log. Raises NoteError."""
    try:
        header, name, *lines = data.decode().removesuffix("\n").split("\n")
    except ValueError:
        raise NoteError("expected a record of a list or of a trust document") from None
    if header not in _WORDS:
        raise NoteError(f"expected a record of a list or of a trust document, not {shown(header)}")
    found = [line.partition(" ") for line in lines]
    if [word for word, _, _ in found] != _WORDS[header] or not _SHA256.fullmatch(found[-1][2]):
        raise NoteError(f"expected a record with the lines {', '.join(_WORDS[header])}")
    version, *trust, size_bytes = (read_size(value) for _, _, value in found[:-1])
    is_list, rest = header == ListRecord.HEADER, (name, version, size_bytes, found[-1][2])
    record = ListRecord(*rest, *trust) if is_list else TrustRecord(*rest)
    if record.data != data or not is_list_name(name):
        raise NoteError("expected a record in its one right form")
    return record


_WORDS = {
    ListRecord.HEADER: ["version", "trust", "bytes", "sha256"],
    TrustRecord.HEADER: ["version", "bytes", "sha256"],
}
