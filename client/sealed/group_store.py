"""What a member keeps of a group between runs. PROTOCOL §9.8.

    $XDG_STATE_HOME/kcast/groups/NAME/      for the user alone
        owner                               the vkey that was pinned by `join`
        source                              the file or URL to look at
        3.group  4.group                    group files, as they came, of the epochs held
        4.two-texts                         two heads of an epoch that its owner has signed, as evidence
        beacons                             where members tell each other of newer epochs than these, and
                                            than those before: of what was forgotten no key is kept

No secret is here that the member's own key does not open: whoever takes the folder alone has nothing. A file
is written whole before those go that it ends, and which of them count follows from the newest one. So after a
crash at any moment the old state is there, or the new one.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

from kcast.client.clusters import durable
from kcast.client.errors import did_you_mean
from kcast.client.sealed import group_file
from kcast.client.sealed.group_file import FILE_BYTES_MAX, GroupFile, Head
from kcast.client.sealed.key_names import joined
from kcast.client.sealed.membership import GroupError, chain, require_owner
from kcast.client.trust.forms.note import NoteError, VerifierKey
from kcast.client.trust.state.locking import LOCK_WAIT_S, locked, require_ours
from kcast.client.trust.state.places import state_root

BEACONS_MAX = 16

_SUFFIX = ".group"
_READ_TRIES = 5
_OWNER, _SOURCE, _LOOKED, _BEACONS = "owner", "source", "looked", "beacons"
_NEW = ".new-"  # what a writer that was killed has left begins so

_parsed = lru_cache(maxsize=16)(group_file.parse)


class GroupStore:
    """The state of one group, by the name that it has here. `root` is the folder that holds those of all."""

    def __init__(self, name: str, root: Path | None = None) -> None:
        self.name = name
        self.root = root or state_root("groups")
        self.folder = self.root / name
        self._unstored: dict[int, bytes] = {}  # by epoch: what the disk has not taken

    def is_joined(self) -> bool:
        """Returns whether an owner was pinned. Raises StateError where the folder cannot be used."""
        for folder in (self.root, self.folder):
            require_ours(folder)
        return (self.folder / _OWNER).is_file()

    def is_of(self, file: GroupFile) -> bool:
        """Returns whether it is the state of a file's group. Raises KcastError."""
        return self.is_joined() and self.owner() == file.owner and self.files()[-1].name == file.name

    def owner(self) -> VerifierKey:
        """Returns the key that was pinned. Raises GroupError where none was, or it cannot be read."""
        if not self.is_joined():
            meant = did_you_mean(self.name, joined())
            raise GroupError(
                f"there is no group {self.name} here{meant}: get its file from its owner, and type 'kcast "
                "group join FILE --owner VKEY'"
            )
        try:
            return VerifierKey.parse((self.folder / _OWNER).read_text("utf-8").removesuffix("\n"))
        except (OSError, ValueError) as error:
            raise self._damaged(_OWNER, error) from None

    @property
    def source(self) -> str:
        """The file or URL to look at; empty where none is known."""
        with suppress(OSError, ValueError):
            return (self.folder / _SOURCE).read_text("utf-8").removesuffix("\n")
        return ""

    def files(self) -> tuple[GroupFile, ...]:
        """Returns the files that count, in the order of their epochs; at least one. Raises GroupError."""
        owner = self.owner()
        for _ in range(_READ_TRIES):  # while it is read, a writer may remove one: then there is a newer one
            found = self._data_by_epoch()
            if None not in found.values():
                break
        files: list[GroupFile] = []
        for epoch, data in sorted((found | self._unstored).items()):
            try:
                file = _parsed(data or b"")
                require_owner(file, owner)
                if (file.name, file.epoch) != (files[0].name if files else file.name, epoch):
                    raise GroupError(f"it is epoch {file.epoch} of {file.name}")
            except (NoteError, GroupError) as error:
                raise self._damaged(f"{epoch}{_SUFFIX}", error) from None
            files.append(file)
        if not files:
            raise self._damaged("", GroupError("there is no group file in it"))
        return chain(files)

    @contextmanager
    def locked(self, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Keeps other writers out meanwhile. Raises Busy and StateError."""
        require_ours(self.folder)
        with locked(self.folder, wait_s):
            yield

    def begin(self, file: GroupFile, data: bytes, source: str) -> None:
        """Pins the owner of a group with its first file: all of it is there afterwards, or nothing.

        Raises OSError, also where the group has been joined meanwhile.
        """
        durable.make_folder(self.root, mode=0o700)
        with locked(self.root):
            self._clear(self.root)
            new = Path(mkdtemp(prefix=_NEW, dir=self.root))  # for us alone
            try:
                contents = {
                    f"{file.epoch}{_SUFFIX}": data,
                    _SOURCE: f"{source}\n".encode(),
                    _OWNER: f"{file.owner}\n".encode(),
                }
                for name, content in contents.items():
                    durable.write_whole(new / name, content, mode=0o600)
                new.rename(self.folder)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise
            durable.sync_folder(self.root)

    def keep(self, file: GroupFile, data: bytes) -> None:
        """Writes another file. The lock must be held. Raises OSError; then this store holds it as long as it
        lives."""
        self._unstored[file.epoch] = data
        durable.write_whole(self.folder / f"{file.epoch}{_SUFFIX}", data, mode=0o600)
        del self._unstored[file.epoch]

    def keep_evidence(self, other: Head) -> Path:
        """Writes the heads of two texts of an epoch that is held, if the disk takes them; returns where the
        first two are. The lock must be held."""
        path = self.folder / f"{other.term.epoch}.two-texts"
        heads = *(file.head.data for file in self.files() if file.epoch == other.term.epoch), other.data
        if not path.exists():
            with suppress(OSError):
                durable.write_whole(path, b"\n".join(heads), mode=0o600)
        return path

    def is_unstored(self, file: GroupFile) -> bool:
        """Returns whether a file is held here alone, since the disk has not taken it."""
        return file.epoch in self._unstored

    def keep_only(self, files: Sequence[GroupFile]) -> None:
        """Removes all other files. The lock must be held. Raises OSError."""
        kept = {file.epoch for file in files}
        for epoch in self._unstored.keys() - kept:
            del self._unstored[epoch]
        gone = [epoch for epoch in self._epochs() if epoch not in kept]
        for epoch in gone:
            (self.folder / f"{epoch}{_SUFFIX}").unlink(missing_ok=True)
        self._clear(self.folder)
        if gone:
            durable.sync_folder(self.folder)

    def beacons(
        self, held: Sequence[GroupFile], topics: Mapping[int, bytes], unix_s: float
    ) -> tuple[bytes, ...]:
        """Returns on which topics to tell, and hear, of newer epochs, and keeps them: those given, of the
        epochs held that this member can open, and of those before, as long as they are fresh, 16 at most."""
        path = self.folder / _BEACONS
        known: dict[int, tuple[int, str]] = {}
        with suppress(OSError, ValueError, TypeError):
            known = {
                int(epoch): (int(until), str(topic)) for epoch, until, topic in json.loads(path.read_bytes())
            }
        terms = {file.epoch: file.term for file in held}
        given = {epoch: (terms[epoch].fresh_until_unix_s, topic.decode()) for epoch, topic in topics.items()}
        found = dict(sorted((known | given).items())[-BEACONS_MAX:])
        if found != known:
            with suppress(OSError):
                data = json.dumps([(epoch, *each) for epoch, each in found.items()]).encode()
                durable.write_whole(path, data, mode=0o600)
        return tuple(
            topic.encode() for epoch, (until, topic) in found.items() if epoch in topics or unix_s < until
        )

    def look_at(self, source: str) -> None:
        """Keeps where to look. Raises OSError."""
        if source != self.source:
            durable.write_whole(self.folder / _SOURCE, f"{source}\n".encode(), mode=0o600)

    def begin_look(self, unix_s: float, interval_s: float) -> bool:
        """Returns whether it is time to look, and remembers that it was done now. Where that cannot be
        remembered, it always is. The lock must be held."""
        path = self.folder / _LOOKED
        with suppress(OSError, ValueError):
            if 0 <= unix_s - int(path.read_bytes()[:18]) < interval_s:
                return False
        with suppress(OSError):
            durable.write_whole(path, f"{int(unix_s)}\n".encode(), mode=0o600)
        return True

    def _epochs(self) -> list[int]:
        with suppress(OSError):
            stems = (path.stem for path in self.folder.iterdir() if path.suffix == _SUFFIX)
            return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())
        return []

    def _data_by_epoch(self) -> dict[int, bytes | None]:
        """Returns what the files hold; None for one that is gone already."""
        found: dict[int, bytes | None] = {}
        for epoch in self._epochs():
            try:
                with (self.folder / f"{epoch}{_SUFFIX}").open("rb") as file:
                    found[epoch] = file.read(FILE_BYTES_MAX + 1)
            except FileNotFoundError:
                found[epoch] = None
            except OSError as error:
                raise self._damaged(f"{epoch}{_SUFFIX}", error) from None
        return found

    def _damaged(self, name: str, error: Exception) -> GroupError:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return GroupError(
            f"{self.folder / name}: it is damaged ({why}): move {self.folder} away, and type 'kcast group "
            "join' with the owner's newest file"
        )

    @staticmethod
    def _clear(folder: Path) -> None:
        """Removes what writers have left that were killed."""
        for path in folder.iterdir():
            if path.name.startswith(_NEW):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(".") and path.is_file():
                path.unlink(missing_ok=True)
