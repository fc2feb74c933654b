"""The secret keys of this user: found by their public keys, and made where there are none."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from kcast.client.cli import passphrase
from kcast.client.trust.forms.note import SigningKey, VerifierKey
from kcast.client.trust.state import keys


class Keyring:
    """Finds and makes keys in one run of a command. A passphrase is asked for once."""

    def __init__(self, *, is_encrypted: bool = False) -> None:
        self._is_encrypted = is_encrypted  # whether keys that are made get a passphrase
        self._passphrase: bytes | None = None
        self.made: list[Path] = []

    def __call__(self, key: VerifierKey) -> SigningKey | None:
        """Returns the secret key of a public one; None where it is not at hand. Raises KcastError."""
        for path in _there(key.name):
            found = keys.load(path, key.name, key.kind, ask=self._ask)
            if found.verifier.public == key.public:
                return found
        return None

    def own(self, name: str) -> SigningKey:
        """Returns the key of this name; makes it where there is none. Raises KcastError."""
        path = keys.path_of(name)
        try:
            return keys.load(path, name, ask=self._ask)
        except FileNotFoundError:
            return self.make(path, name)

    def new(self, name: str) -> SigningKey:
        """Makes another key of this name. Raises KcastError."""
        path = next(path for path in _paths(name) if not path.exists())
        return self.make(path, name)

    @property
    def has_passphrase(self) -> bool:
        """Whether a key was used that is kept under a passphrase."""
        return self._passphrase is not None

    def remove_made(self) -> None:
        """Removes the keys that were made, where that for which they were made has failed."""
        for path in self.made:
            path.unlink(missing_ok=True)
        self.made.clear()

    def make(self, path: Path, name: str) -> SigningKey:
        """Makes a key in this file. Raises KcastError, also where there is one already."""
        key = keys.make(path, name, passphrase=self._ask(is_new=True) if self._is_encrypted else b"")
        self.made.append(path)
        return key

    def _ask(self, *, is_new: bool = False) -> bytes:
        if self._passphrase is None:
            self._passphrase = passphrase.ask("Passphrase of your keys", is_new=is_new)
        return self._passphrase


def _there(name: str) -> list[Path]:
    """Returns the files there are of the keys of a name. Any may be missing: one that was replaced is of no
    more use, and may have been removed."""
    first = keys.path_of(name)
    stem = f"{first.stem}."
    numbers = (
        path.stem.removeprefix(stem) for path in first.parent.glob("*.pem") if path.stem.startswith(stem)
    )
    later = sorted(int(number) for number in numbers if number.isascii() and number.isdecimal())
    paths = (first, *(keys.path_of(f"{name}.{number}") for number in later))
    return [path for path in paths if path.exists()]


def _paths(name: str) -> Iterator[Path]:
    """Returns where the keys of a name may be: a log keeps its name when its key is replaced."""
    return map(keys.path_of, (name if number == 1 else f"{name}.{number}" for number in count(1)))
