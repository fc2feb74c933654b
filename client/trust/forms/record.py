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
class ListRecord:
    """The record of a list's file: all its bytes, signatures included. `trust` is the version of the trust
    document that it is signed under."""

    HEADER: ClassVar[str] = "kcast-list 1"

    name: str
    version: int
    trust: int
    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, name: str, version: int, trust: int, data: bytes) -> "ListRecord":
        """Returns the record of a list."""
        return cls(name, version, trust, len(data), sha256(data).hexdigest())

    @property
    def head(self) -> bytes:
        """What no other entry of a log begins with."""
        return f"{self.HEADER}\n{self.name}\nversion {self.version}\n".encode()

    @property
    def data(self) -> bytes:
        """The entry in the log."""
        rest = f"trust {self.trust}\nbytes {self.size_bytes}\nsha256 {self.sha256}\n"
        return self.head + rest.encode()


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """The record of a trust document's file: all its bytes, signatures included."""

    HEADER: ClassVar[str] = "kcast-trust-record 1"

    name: str
    version: int
    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, name: str, version: int, data: bytes) -> "TrustRecord":
        """Returns the record of a trust document."""
        return cls(name, version, len(data), sha256(data).hexdigest())

    @property
    def head(self) -> bytes:
        """What no other entry of a log begins with."""
        return f"{self.HEADER}\n{self.name}\nversion {self.version}\n".encode()

    @property
    def data(self) -> bytes:
        """The entry in the log."""
        return self.head + f"bytes {self.size_bytes}\nsha256 {self.sha256}\n".encode()


def is_file_of(record: ListRecord | TrustRecord, data: bytes) -> bool:
    """Returns whether these are exactly the bytes that a record is of."""
    return len(data) == record.size_bytes and sha256(data).hexdigest() == record.sha256


def read_record(data: bytes) -> ListRecord | TrustRecord:
    """Reads an entry of a log. Raises NoteError."""
    try:
        header, name, *lines = data.decode().removesuffix("\n").split("\n")
    except ValueError:
        raise NoteError("expected a record of a list or of a trust document") from None
    if header == ListRecord.HEADER:
        version, trust, size_bytes, digest = _values(lines, "version", "trust", "bytes", "sha256")
        record: ListRecord | TrustRecord = ListRecord(
            name, read_size(version), read_size(trust), read_size(size_bytes), digest
        )
    elif header == TrustRecord.HEADER:
        version, size_bytes, digest = _values(lines, "version", "bytes", "sha256")
        record = TrustRecord(name, read_size(version), read_size(size_bytes), digest)
    else:
        raise NoteError(f"expected a record of a list or of a trust document, not {shown(header)}")
    if record.data != data or not is_list_name(name):
        raise NoteError("expected a record in its one right form")
    return record


def _values(lines: list[str], *words: str) -> list[str]:
    found = [line.partition(" ") for line in lines]
    if [word for word, _, _ in found] != list(words) or not _SHA256.fullmatch(found[-1][2]):
        raise NoteError(f"expected a record with the lines {', '.join(words)}")
    return [value for _, _, value in found]
