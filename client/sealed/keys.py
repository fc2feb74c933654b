"""A secret key of this user: it signs messages, and opens what groups send to their members. PROTOCOL §9.8.

The file is one as `kcast.client.trust.state.keys` has it. The X25519 key, which opens group files, is derived
from its seed by HKDF, and is not the Ed25519 key in another form: so neither says anything of the other, and
there is one thing to keep.
"""

import os
import shlex
from base64 import b32encode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from kcast.client.clusters.contexts import NAME_FORM, is_name
from kcast.client.clusters.facts import shown
from kcast.client.errors import did_you_mean
from kcast.client.messages import base64url
from kcast.client.sealed import key_names
from kcast.client.sealed.dhkem import KEY_BYTES, derive, is_weak, public_key
from kcast.client.sealed.key_names import KEY_VARIABLE
from kcast.client.sealed.signing import Signer, key_text
from kcast.client.sealed.topics import topic_start
from kcast.client.trust.forms import ed25519
from kcast.client.trust.forms.note import NAME_CHARS_MAX, SigningKey, is_key_name
from kcast.client.trust.state import keys
from kcast.client.trust.state.keys import KeyFileError, NoKeyInFile
from kcast.pubsub.errors import KcastError

_HPKE_INFO = b"kcast-hpke 1"
_MEMBER_PREFIX = b"kcast-member 1\n"
_MEMBER_PARTS = (ed25519.PUBLIC_BYTES, KEY_BYTES, ed25519.SIGNATURE_BYTES)
_SHORT_PREFIX = b"kcast-key-short 1\n"
_SHORT_BYTES = 10
_SSH_KIND = b"ssh-ed25519"

Ask = Callable[[], bytes]  # returns the passphrase of a key file


class MemberError(KcastError, ValueError):
    """A text that is no member's word. The message says what to do."""


class Member(NamedTuple):
    """A member of groups: the key that signs, and the X25519 key for which their secrets are sealed."""

    key: bytes
    hpke_public: bytes

    @property
    def key_text(self) -> str:
        """The key that signs, as text."""
        return key_text(self.key)


@dataclass(frozen=True)
class Identity:
    """A secret key of this user, with what follows from it. No secret is in a text of it.

    `note_key` is the key as one that signs notes, and `path` its file, where it has one.
    """

    note_key: SigningKey
    signer: Signer = field(compare=False)
    hpke_private: bytes = field(repr=False)
    path: Path | None = None

    @classmethod
    def from_seed(cls, name: str, seed: bytes, path: Path | None = None) -> "Identity":
        """Returns the identity of a secret seed of 32 bytes."""
        return cls(SigningKey.from_seed(name, seed), Signer(seed), derive(seed, _HPKE_INFO), path)

    @classmethod
    def load(cls, name: str | Path | None = None, *, ask: Ask | None = None) -> "Identity":
        """Reads a key's file: the one named, by its path or its name in the folder of keys; else the one that
        the variable KCAST_KEY names, else `key` of that folder.

        `ask` returns the passphrase of an encrypted one; without it the variable KCAST_KEY_PASSPHRASE does.
        Raises KeyFileError, whose message says what to do.
        """
        text, led = _named(name)
        path, key_name = _place_of(text, led)
        try:
            found = keys.load(path, key_name, ask=ask)
        except FileNotFoundError:
            raise KeyFileError(f"{led}{_how_to_make(text, path)}") from None
        except NoKeyInFile as error:
            raise NoKeyInFile(f"{led}{error}: give another file; 'kcast key new' makes one") from None
        except KeyFileError as error:
            raise KeyFileError(f"{led}{error}") from None
        return cls.from_seed(key_name, found.seed, path)

    @classmethod
    def make(cls, name: str | Path | None = None, *, ask: Ask | None = None) -> "Identity":
        """Makes a key and its file, which is named as for `load`; encrypted, where `ask` is given, with the
        passphrase that it returns. Raises KeyFileError, also where there is such a file."""
        text, led = _named(name)
        path, key_name = _place_of(text, led)
        if path.exists() or path.is_symlink():
            raise KeyFileError(
                f"{led}{path}: it is there already, and keys are never overwritten: give another name, or "
                f"use it: 'kcast key show {shlex.quote(str(text))}' shows it"
            )
        made = keys.make(path, key_name, passphrase=_given(ask, path) if ask else b"")
        return cls.from_seed(key_name, made.seed, path)

    def rewrap(self, ask: Ask) -> None:
        """Writes the key's file anew, under the passphrase that `ask` returns. Raises KeyFileError."""
        assert self.path is not None  # it was loaded
        keys.rewrap(self.path, self.note_key, _given(ask, self.path))

    @property
    def name(self) -> str:
        """The name of the key, which its vkey has too."""
        return self.note_key.verifier.name

    @property
    def key_text(self) -> str:
        """The public key: 43 characters."""
        return self.signer.key_text

    @property
    def hpke_public(self) -> bytes:
        """The public half of the X25519 key, 32 bytes."""
        return public_key(self.hpke_private)

    @property
    def ssh_line(self) -> str:
        """The public key as OpenSSH has it (RFC 8709 4)."""
        data = b"".join(len(each).to_bytes(4, "big") + each for each in (_SSH_KIND, self.signer.key))
        return f"{_SSH_KIND.decode()} {b64encode(data).decode()} {self.name}"

    @property
    def topic_start(self) -> str:
        """What the topics begin with on which this key alone may publish."""
        return topic_start([self.signer.key])

    @property
    def member_word(self) -> str:
        """Both public keys in one word, the second signed by the first: what a group's owner is given."""
        public = self.hpke_public
        signature = self.signer.sign_bytes(_MEMBER_PREFIX + public)
        return ".".join(map(base64url.encode, (self.signer.key, public, signature)))

    def note_key_as(self, name: str) -> SigningKey:
        """Returns the key under another name: a vkey has its name for good, and files may be renamed."""
        return SigningKey.from_seed(name, self.note_key.seed)


def parse_member(word: str) -> Member:
    """Reads a member's word, and verifies it. Raises MemberError."""
    parts = [base64url.decode(part) for part in word.split(".")]
    if tuple(len(part or b"") for part in parts) != _MEMBER_PARTS:
        raise MemberError(
            f"expected a member's word, which 'kcast key show' prints behind 'member', not {shown(word)}"
        )
    key, hpke_public, signature = (part or b"" for part in parts)
    if not ed25519.is_signed(key, _MEMBER_PREFIX + hpke_public, signature) or is_weak(hpke_public):
        raise MemberError(
            f"the word of {key_text(key)} was changed on its way: have the member send it again, as "
            "'kcast key show' shows it"
        )
    return Member(key, hpke_public)


def short_form(key: bytes) -> str:
    """Returns what two people compare of an Ed25519 key by voice: 80 bits of a hash of it, as 16 letters and
    digits. To find another key with the same ones is out of reach."""
    text = b32encode(sha256(_SHORT_PREFIX + key).digest()[:_SHORT_BYTES]).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


# --- Files -------------------------------------------------------------------------------------------


def _named(name: str | Path | None) -> tuple[str | Path, str]:
    """Returns what names the key, and what led to it, for complaints."""
    if name is not None:
        return name, ""
    given = os.environ.get(KEY_VARIABLE)
    return (given, f"{KEY_VARIABLE}: ") if given else (key_names.DEFAULT_NAME, "")


def _place_of(named: str | Path, led: str) -> tuple[Path, str]:
    """Returns the file of a key, and the key's name. Raises KeyFileError where neither can be."""
    if isinstance(named, Path) or key_names.is_file(named):
        path = Path(named)
        name = "" if path.is_fifo() else unquote(path.stem)  # that of a pipe is a number which changes
        return path, name if is_key_name(name) and len(name) <= NAME_CHARS_MAX else key_names.DEFAULT_NAME
    if not is_name(named):
        raise KeyFileError(
            f"{led}{shown(named)} cannot be a key's name: give {NAME_FORM}, or the path of a file"
        )
    return keys.path_of(named), named


def _given(ask: Ask, path: Path) -> bytes:
    passphrase = ask()
    if not passphrase:
        raise KeyFileError(f"{path}: the passphrase is empty: give one; nothing was changed")
    return passphrase


def _how_to_make(named: str | Path, path: Path) -> str:
    """Returns what to say where there is no such file."""
    if isinstance(named, Path) or key_names.is_file(named):
        return f"{path}: there is no such file: 'kcast key new {shlex.quote(str(named))}' makes one"
    if named == key_names.DEFAULT_NAME:
        return f"there is no key yet ({path}): 'kcast key new' makes one"
    meant = did_you_mean(named, key_names.known())
    return f"there is no key {named} ({path}){meant or ':'} 'kcast key new {named}' makes one"
