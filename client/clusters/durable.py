"""Files that are there whole or not at all, also after a loss of power."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from kcast.pubsub.errors import named

MARK = ".kcast-"  # in the names of drafts, which may be removed: copies that people make have other names


def write_whole(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Writes a file under another name, and renames it: whoever reads `path` sees the old file or the new.

    When this returns, the file is on the disk. Raises OSError; then `path` is as it was, or new already and
    perhaps not yet on the disk.
    """
    with named(path), NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}{MARK}", delete=False) as file:
        try:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(file.name).unlink()
            raise
    sync_folder(path.parent)


def drafts(folder: Path, names: str) -> list[Path]:
    """Returns what writers that were killed, or write now, have beside files whose names match a pattern."""
    return list(folder.glob(f".{names}{MARK}{'[a-z0-9_]' * 8}"))


def write_together(files: Mapping[Path, bytes], *, mode: int = 0o644) -> None:
    """Writes files under other names, and once all of these are on the disk, renames one after the other, in
    their order. Where the program is killed meanwhile, each file is the old one or the new one.

    It takes a fraction of the time that `write_whole` takes for each, since the disk gets all at once. Only
    one program at a time may do this in a folder, which must be there. Raises OSError.
    """
    drafts = {path: path.with_name(f".{path.name}.new") for path in files}
    try:
        for path, data in files.items():
            with named(path):
                drafts[path].write_bytes(data)
            drafts[path].chmod(mode)
        for draft in drafts.values():
            _sync(draft, os.O_RDONLY)
        for path, draft in drafts.items():
            draft.replace(path)
    except BaseException:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink()
        raise
    for folder in dict.fromkeys(path.parent for path in files):
        sync_folder(folder)


def write_into(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files together, by their paths in a folder; those that are there as they are to be, not again.
    Raises OSError."""
    new = {folder / path: data for path, data in files.items() if not _is_there(folder / path, data)}
    for parent in {path.parent for path in new}:
        make_folder(parent)
    write_together(new)


def _is_there(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Puts a folder's names on the disk."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, mode: int = 0o755) -> None:
    """Makes a folder, and those above it, where they are missing."""
    if not folder.is_dir():
        make_folder(folder.parent, mode=mode)
        with suppress(FileExistsError):
            folder.mkdir(mode=mode)
            sync_folder(folder.parent)
