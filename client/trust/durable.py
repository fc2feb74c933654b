"""Files that are there whole or not at all, also after a loss of power."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Writes a file under another name, and renames it: whoever reads `path` sees the old file or the new.

    When this returns, the file is on the disk. Raises OSError; then `path` is as it was.
    """
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
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


def sync_folder(folder: Path) -> None:
    """Puts a folder's names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
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
