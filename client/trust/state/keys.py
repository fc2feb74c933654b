"""Secret keys as files: PKCS#8 in PEM, as openssl reads it, for their owner alone. PROTOCOL §10.5.

A file is made once, and only its passphrase changes: a key that is lost or overwritten cannot be had back.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from glob import escape
from pathlib import Path
from secrets import token_bytes
from tempfile import NamedTemporaryFile
from urllib.parse import quote

from kcast.client.clusters import durable
from kcast.client.clusters.contexts import config_folder
from kcast.client.trust.extras import MissingExtra
from kcast.client.trust.forms.ed25519 import SEED_BYTES
from kcast.client.trust.forms.note import KIND_ED25519, SigningKey
from kcast.client.trust.state import pkcs8
from kcast.client.trust.state.locking import Busy, locked, require_ours
from kcast.client.trust.state.passphrase import PASSPHRASE_VARIABLE, from_environment
from kcast.pubsub.errors import KcastError

try:
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
except ImportError:
    raise MissingExtra("a key file") from None

_FILE_BYTES_MAX = 16_384
_PASSPHRASE_BYTES_MAX = 1023  # OpenSSL's
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyFileError(KcastError):
    """A key file cannot be used. The message names it, and says what to do."""


class NoKeyInFile(KeyFileError):
    """A file is there, and can be read, but holds no key of the kind that is meant."""


def keys_folder() -> Path:
    """Returns the folder of this user's keys: `$XDG_CONFIG_HOME/kcast/keys`. Raises KeyFileError."""
    folder = config_folder()
    if folder is None:
        raise KeyFileError("there is no place for keys: set HOME or XDG_CONFIG_HOME to a folder")
    return folder / "keys"


def path_of(name: str) -> Path:
    """Returns where the key of this name is kept."""
    return keys_folder() / file_name(name)


def file_name(name: str) -> str:
    """Returns the name of the file of a key."""
    return f"{quote(name, safe='')}.pem"


def make(path: Path, name: str, kind: int = KIND_ED25519, *, passphrase: bytes = b"") -> SigningKey:
    """Makes a key and its file, encrypted where there is a passphrase. Raises KeyFileError, also where there
    is such a file already."""
    seed = token_bytes(SEED_BYTES)
    data = _encoded(path, seed, passphrase)
    try:
        durable.make_folder(path.parent, mode=0o700)
        _look_over(path)
        with locked(path.parent):
            _write_once(path, data)
    except FileExistsError:
        raise KeyFileError(f"{path}: there is a key already, and keys are never overwritten") from None
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror or error}; no key was made") from None
    return SigningKey.from_seed(name, seed, kind)


def rewrap(path: Path, key: SigningKey, passphrase: bytes) -> None:
    """Writes a key's file anew, under another passphrase; it is the old file or the new one at any time.
    Raises KeyFileError."""
    data = _encoded(path, key.seed, passphrase)
    if not path.is_file():
        raise KeyFileError(f"{path}: not a file: its passphrase is changed where the key is kept")
    try:
        with locked(path.parent):
            durable.write_whole(path.resolve(), data, mode=0o600)
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror or error}; its passphrase is the old one") from None


def _encoded(path: Path, seed: bytes, passphrase: bytes) -> bytes:
    if len(passphrase) > _PASSPHRASE_BYTES_MAX:
        raise KeyFileError(f"{path}: a passphrase has {_PASSPHRASE_BYTES_MAX} bytes at most: give another")
    secret = Ed25519PrivateKey.from_private_bytes(seed)
    if passphrase:
        plain = secret.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        return pkcs8.encrypted(plain, passphrase)
    return secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _look_over(path: Path) -> None:
    """Removes what writers that were killed have left beside a key, and sees that nobody else writes to the
    folder of keys. Raises StateError."""
    folder, names = path.parent, escape(path.name)
    if folder.name == "keys" and folder.parent == config_folder():
        require_ours(folder)
        names = "*"
    if drafts := durable.drafts(folder, names):
        with suppress(OSError, Busy), locked(folder, 0.0):  # whoever has the lock writes now
            for draft in drafts:
                draft.unlink()


def _write_once(path: Path, data: bytes) -> None:
    """Writes a file that only its owner can read, whole or not at all. Raises FileExistsError."""
    prefix = f".{path.name}{durable.MARK}"
    with NamedTemporaryFile(dir=path.parent, prefix=prefix, delete=False) as file:  # 0600
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            path.hardlink_to(file.name)  # unlike a rename, it does not replace what is there
        finally:
            with suppress(OSError):
                Path(file.name).unlink()
    durable.sync_folder(path.parent)


def load(
    path: Path, name: str, kind: int = KIND_ED25519, *, ask: Callable[[], bytes] | None = None
) -> SigningKey:
    """Reads a key's file; `ask` returns the passphrase of an encrypted one, and without it the variable does.

    Raises FileNotFoundError where there is none, and KeyFileError.
    """
    _look_over(path)
    data = _read(path)
    passphrase = None
    if _ENCRYPTED in data:
        passphrase = ask() if ask else from_environment()
        if ask is None and not passphrase:
            raise KeyFileError(f"{path}: it has a passphrase: set {PASSPHRASE_VARIABLE} to it")
    try:
        secret = load_pem_private_key(data, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        if passphrase is not None:
            raise KeyFileError(f"{path}: {_wrong(passphrase)}") from None
        raise NoKeyInFile(f"{path}: not a private key in PEM") from None
    if not isinstance(secret, Ed25519PrivateKey):
        raise NoKeyInFile(f"{path}: not an Ed25519 key")
    return SigningKey.from_seed(name, secret.private_bytes_raw(), kind)


def _wrong(passphrase: bytes) -> str:
    if passphrase and passphrase == from_environment():
        return (
            f"what {PASSPHRASE_VARIABLE} holds is not its passphrase, or it is damaged: set the variable to "
            "the right one"
        )
    return "this is not its passphrase, or it is damaged: type it again"


def _read(path: Path) -> bytes:
    try:
        if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISFIFO(mode)):  # such as <(age -d KEY)
            raise NoKeyInFile(f"{path}: not a file")
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid():
                raise KeyFileError(
                    f"{path}: it is another user's file, who may change it: make a copy of your own"
                )
            data = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror or error}") from None
    if len(data) > _FILE_BYTES_MAX or b"PRIVATE KEY-----" not in data:
        raise NoKeyInFile(f"{path}: not a private key in PEM")
    if status.st_mode & _OTHERS:
        raise KeyFileError(f"{path}: others may read or write it: chmod 600 {path}")
    return data
