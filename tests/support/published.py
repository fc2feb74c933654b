"""Signed lists as files on disk, and clients' states of them, for tests of what is stored and fetched."""

from dataclasses import replace
from pathlib import Path

from kcast.client.trust.document import TrustDocument
from kcast.client.trust.verdicts import Held
from tests.support.lists import OWNERS, Lists, document


def write_files(lists: Lists, folder: Path) -> Path:
    """Writes what is published into a folder, as a web server would serve it; returns the folder."""
    for path, data in lists.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def document_of(*urls: str, **changes: object) -> TrustDocument:
    """Returns a trust document that names these places."""
    return replace(document(**changes), urls=urls)


def lists_at(now_unix_s: int, *urls: str, **changes: object) -> Lists:
    """Returns lists whose trust document names these places."""
    return Lists(now_unix_s=now_unix_s, document=document_of(*urls, **changes), owners=tuple(OWNERS))


def drop(lists: Lists, folder: Path) -> Path:
    """Drops the first trust document into a folder, as an administrator does; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lab.trust"
    path.write_bytes(lists.trust[0])
    return path


def first_contact(lists: Lists) -> Held:
    """Returns the state of a client that knows the trust document and nothing else."""
    return Held(lists.trust[0])
