"""What a client keeps of a signed list between its runs. PROTOCOL §10.8.

    $XDG_STATE_HOME/kcast/trust/NAME/       NAME with `/` as %2F
        42.7/                               a generation: of list version 42, the 7th that was written
            trust  list  list.tlog-proof  list.trust  checkpoint  former-0 ...
        41.6/                               the one before
        current -> 42.7                     a symbolic link, renamed over
        source                              where it was first fetched from
        evidence/                           of forks, for people; nothing here is ever deleted by us

A generation is written under another name, put on the disk, and renamed; only then is `current` renamed
over. So a reader at any moment sees the old state or the new one, whole, also after a crash. Writers take
turns by a lock on the folder, and what they write is never older than what is there.

A disk may be read-only, or full. Then what could not be stored is kept in memory by the Store; who calls is
told by `Unstored`, since after a restart an older list would not be noticed.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

from kcast.client.clusters.cluster import FILE_BYTES_MAX
from kcast.client.clusters.durable import make_folder, sync_folder, write_whole
from kcast.client.trust.checks.verdicts import FORMER_MAX, Held
from kcast.client.trust.forms import document
from kcast.client.trust.forms.checkpoint import Checkpoint, LogProof
from kcast.client.trust.forms.record import ListRecord, read_record
from kcast.client.trust.state import standing
from kcast.client.trust.state.locking import LOCK_WAIT_S, locked, require_ours
from kcast.client.trust.state.locking import Busy as Busy  # for those who call a Store
from kcast.client.trust.state.places import StateError, folder_of

EVIDENCE_MAX = 64  # folders of it; a log that forks more often is not worth the disk

_READ_TRIES = 5
_FILES = {"trust": "trust", "checkpoint": "checkpoint", "list": "list", "proof": "list.tlog-proof"}
_FILES |= {"list_trust": "list.trust"}  # fields of Held -> names of files
_FORMER = "former-"
_SOURCE = "source"
_TRIED = "tried"
_NEW = ".new-"  # what a writer that was killed has left begins so


class Unstored(StateError):
    """The disk takes nothing more: it is full, read-only, or not for us to write on."""


class Store:
    """The state of one name. `root` is the folder that holds those of all names; `is_sound` says whether
    what was read is undamaged."""

    def __init__(
        self, name: str, root: Path | None = None, is_sound: Callable[[Held], bool] | None = None
    ) -> None:
        self.name = name
        self._is_sound = is_sound or partial(standing.is_sound, name=name)
        self.folder = folder_of(name, root)
        self._unstored: Held | None = None

    # --- Reading --------------------------------------------------------------------------------------

    def load(self) -> Held | None:
        """Returns the present generation, or where that is damaged an older one; None where there is none.

        Where no list can be read any more, its trust document may be left. Raises StateError where the folder
        cannot be used.
        """
        if self._unstored is not None:
            return self._unstored
        require_ours(self.folder)
        sound = (held for held in self._generations() if self._is_sound(held))
        return next(sound, None) or self._trust_alone()

    def is_damaged(self) -> bool:
        """Returns whether there is a state, and the present generation of it is damaged, or missing."""
        names, (_, held) = self._names(), self._read_present()
        return bool(names) and (held is None or not self._is_sound(held))

    def _generations(self) -> Iterator[Held]:
        """Yields what is held, the present generation first, then older ones, without unreadable ones."""
        present, held = self._read_present()
        older = (self._read(name) for name in self._names() if name != present)
        yield from (each for each in (held, *older) if each is not None)

    def _read_present(self) -> tuple[str | None, Held | None]:
        """Returns the present generation by name, and what it holds. While it is read, a writer may remove
        it: then there is a newer one."""
        for _ in range(_READ_TRIES):
            present = self._present()
            held = None if present is None else self._read(present)
            if held is not None or present == self._present():
                break
        return present, held

    def _trust_alone(self) -> Held | None:
        for name in self._names():
            data = _bytes_of(self.folder / name / _FILES["trust"])
            if data is not None and self._is_sound(Held(data)):
                return Held(data)
        return None

    def _present(self) -> str | None:
        try:
            name = os.readlink(self.folder / "current")  # noqa: PTH115 - as text, for the name alone
        except OSError:
            return None
        return name if _number_of(name) is not None else None

    def _names(self) -> list[str]:
        """Returns the names of all generations, the newest first."""
        with suppress(OSError):
            numbers = {path.name: _number_of(path.name) for path in self.folder.iterdir()}
            found = {name: number for name, number in numbers.items() if number is not None}
            return sorted(found, key=found.__getitem__, reverse=True)
        return []

    def _read(self, generation: str) -> Held | None:
        folder = self.folder / generation
        fields = {field: _bytes_of(folder / name) for field, name in _FILES.items()}
        trust = fields.pop("trust")
        if trust is None or not _is_whole(fields):
            return None
        found = (_bytes_of(folder / f"{_FORMER}{number}") for number in range(FORMER_MAX))
        former = tuple(data for data in found if data is not None)
        # One that is to go loses its name before its first file: so all that was found belongs together.
        return Held(trust, former=former, **fields) if folder.is_dir() else None

    # --- Writing --------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Keeps other writers out meanwhile, in this process and in others.

        Raises Busy where one does not end in this time, and StateError. Without a folder, and without a way
        to make one, there is nothing to lock: then it does nothing.
        """
        require_ours(self.folder)
        with suppress(OSError):
            make_folder(self.folder, mode=0o700)
        with locked(self.folder, wait_s):
            yield

    def keep(self, held: Held) -> None:
        """Writes another generation. The lock must be held.

        Raises StateError where it is older than what is there, and Unstored where it cannot be written; then
        this Store holds it as long as it lives.
        """
        before = self.load()
        if before is not None:
            if held == before and not self.is_damaged():
                return
            _require_not_older(held, before, self.name)
        try:
            self._write(held)
        except OSError as error:
            self._unstored = held
            raise Unstored(f"{error.filename or self.folder}: {error.strerror or error}") from None
        self._unstored = None

    def keep_trust(self, data: bytes) -> None:
        """Writes a generation with another trust document, and all else as it is. The lock must be held.

        Raises as `keep` does.
        """
        before = self.load()
        self.keep(Held(data) if before is None else replace(before, trust=data))

    def begin(self, held: Held) -> None:
        """Writes the first generation, under the lock; that of a name that is known goes on as it is.

        Raises StateError where the name is known with another trust document of that version, and Unstored.
        """
        with self.locked():
            before = self.load()
            if before is None or before.list is None:
                self.keep(held)
            elif before.trust != held.trust and _trust_version(before) == _trust_version(held):
                what = f"{self.name} is known here by another trust document"
                raise StateError(f"{what}: remove {self.folder}, if you are sure")

    def begin_try(self, now_unix_s: int, interval_s: int) -> bool:
        """Returns whether it is time to try to update, and remembers that it was tried now.

        It is not where that was tried less than `interval_s` ago, or cannot be remembered.
        """
        tried = (_bytes_of(self.folder / _TRIED) or b"").decode(errors="replace").strip()
        if tried.isascii() and tried.isdigit() and 0 <= now_unix_s - int(tried[:18]) < interval_s:
            return False
        try:
            write_whole(self.folder / _TRIED, f"{now_unix_s}\n".encode(), mode=0o600)
        except OSError:
            return False
        return True

    def remember_source(self, text: str) -> None:
        """Keeps where the list was first fetched from: its trust document need not say where it lies.

        Nothing is believed for that. What cannot be kept is given up.
        """
        if urlsplit(text).scheme not in ("http", "https", "file"):
            text = str(Path(text).absolute())
        with suppress(OSError):
            write_whole(self.folder / _SOURCE, f"{text}\n".encode(), mode=0o600)

    @property
    def source(self) -> str:
        """Where the list was first fetched from; empty where that is not known."""
        return (_bytes_of(self.folder / _SOURCE) or b"").decode(errors="replace").strip()

    def evidence(self, files: Mapping[str, bytes]) -> Path | None:
        """Keeps files for people to look at, and returns their folder; None where they cannot be kept.

        The same files are kept once.
        """
        digest = sha256()
        for name, data in sorted(files.items()):
            digest.update(f"{name} {len(data)} ".encode() + data)
        folder = self.folder / "evidence"
        kept = folder / digest.hexdigest()[:16]
        try:
            if kept.is_dir():
                return kept
            make_folder(folder, mode=0o700)
            if sum(1 for _ in folder.iterdir()) >= EVIDENCE_MAX:
                return None
            self._put_folder(kept, files)
        except OSError:
            return None
        return kept

    def _write(self, held: Held) -> None:
        make_folder(self.folder, mode=0o700)
        self._clear()
        present = self._present()
        names = self._names()
        number = 1 + max((_number_of(name) or 0 for name in names), default=0)
        generation = f"{_list_version(held)}.{number}"
        files = {name: getattr(held, field) for field, name in _FILES.items()}
        files |= {f"{_FORMER}{index}": data for index, data in enumerate(held.former[:FORMER_MAX])}
        contents = {name: data for name, data in files.items() if data is not None}
        self._put_folder(self.folder / generation, contents)
        link = self.folder / f"{_NEW}current"
        link.symlink_to(generation)
        link.replace(self.folder / "current")
        sync_folder(self.folder)
        # The one before stays. What a writer has left that was killed before it renamed `current` does not.
        one_before = next(filter(self._can_be_read, (present or "", *names)), None)
        for name in names:
            if name != one_before:
                self._remove(name)

    def _remove(self, generation: str) -> None:
        """Removes a generation. A reader meanwhile finds all of its files, or that it is gone."""
        gone = self.folder / f"{_NEW}gone-{generation}"
        with suppress(OSError):  # what stays is removed the next time
            (self.folder / generation).rename(gone)
            shutil.rmtree(gone)

    def _can_be_read(self, generation: str) -> bool:
        held = self._read(generation)
        return held is not None and self._is_sound(held)

    def _put_folder(self, folder: Path, contents: Mapping[str, bytes]) -> None:
        """Writes a folder of files, whole or not at all."""
        new = Path(mkdtemp(prefix=_NEW, dir=self.folder))  # for us alone
        try:
            for name, data in contents.items():
                write_whole(new / name, data, mode=0o600)
            sync_folder(new)
            new.rename(folder)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        sync_folder(folder.parent)

    def _clear(self) -> None:
        """Removes what writers have left that were killed."""
        for path in self.folder.iterdir():
            if path.name.startswith((_NEW, f".{_TRIED}.", f".{_SOURCE}.")):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _number_of(generation: str) -> int | None:
    """Returns the number of a generation, which rises; None for what is no name of one."""
    version, _, number = generation.partition(".")
    is_one = version.isascii() and version.isdigit() and number.isascii() and number.isdigit()
    return int(number) if is_one and len(generation) < 40 else None


def _is_whole(fields: Mapping[str, bytes | None]) -> bool:
    """Whether all of a list is there, or nothing of one."""
    of_list = [fields[name] is None for name in ("list", "proof", "list_trust", "checkpoint")]
    return all(of_list[:3]) or not any(of_list)


def _bytes_of(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return None
    return data if len(data) <= FILE_BYTES_MAX else None


# --- What must not become older -----------------------------------------------------------------------


def _require_not_older(held: Held, before: Held, name: str) -> None:
    if _trust_version(held) < _trust_version(before):
        raise StateError(f"{name}: a newer trust document is stored already")
    if held.checkpoint and before.checkpoint:
        new, old = Checkpoint.read(held.checkpoint), Checkpoint.read(before.checkpoint)
        if new.origin == old.origin and new.size < old.size:
            raise StateError(f"{name}: a newer state of the log is stored already")


def _trust_version(held: Held) -> int:
    return document.parse(held.trust)[0].version


def _list_version(held: Held) -> int:
    record = read_record(LogProof.parse(held.proof).extra) if held.proof else None
    return record.version if isinstance(record, ListRecord) else 0
