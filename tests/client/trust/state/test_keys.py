"""trust/state/keys.py: key files that openssl reads, that others cannot read, and that nobody overwrites."""

import errno
import os
import stat
import subprocess
from base64 import b64decode
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from shutil import which
from typing import Any

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from kcast.client.clusters import durable
from kcast.client.trust.forms.note import KIND_COSIGNATURE, KIND_ED25519
from kcast.client.trust.state import keys
from kcast.client.trust.state.keys import KeyFileError
from kcast.client.trust.state.places import StateError
from tests.support.killed import killed_at

RSA = b"""-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VuBCIEIHcHbQpzGKV9PBbBclGyZkXfTC+H68CZKrF3+6UduSwq
-----END PRIVATE KEY-----
"""  # an X25519 key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "keys" / "a.pem"


@pytest.mark.parametrize("kind", [KIND_ED25519, KIND_COSIGNATURE])
def test_a_key_is_made_and_read(path: Path, kind: int) -> None:
    made = keys.make(path, "example.org/lab/log", kind)
    assert keys.load(path, "example.org/lab/log", kind) == made
    assert made.verifier.kind == kind
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["a.pem"]
    assert made != keys.make(path.with_name("b.pem"), "example.org/lab/log", kind)


OLD = b"""-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGjMF8GCSqGSIb3DQEFDTBSMDEGCSqGSIb3DQEFDDAkBBCkZJF46cjxkeY/g8vm
SlZnAgIIADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQf7wPPbccO7G7/G38
Joc3IQRAfYL7EuXvdmwVcXkOmSORP4g/h+cVYe63UmMNd6IwheitJOz7AA8ftOYv
ojt7hj1izS6ngEbILI7rHqjFjxHHcg==
-----END ENCRYPTED PRIVATE KEY-----
"""  # of the passphrase horse, as 0.4 wrote it


def rounds_of(pem: bytes) -> int:
    """Of PBKDF2: the first INTEGER of two bytes or more, behind the salt of 16."""
    der = b64decode(b"".join(pem.splitlines()[1:-1]))
    at = der.index(b"\x04\x10") + 18
    assert der[at] == 2
    return int.from_bytes(der[at + 2 : at + 2 + der[at + 1]], "big")


def public_by_openssl(path: Path, passphrase: str = "") -> bytes:
    """What openssl reads as the public key."""
    words = ("openssl", "pkey", "-in", path, "-passin", f"pass:{passphrase}", "-pubout", "-outform", "DER")
    return subprocess.run(words, capture_output=True, check=True).stdout


def test_a_passphrase_costs_a_guesser_300_times_what_it_did(path: Path) -> None:
    """And is asked for. A file of before is read, and written anew."""
    made = keys.make(path, "a", passphrase=b"horse")
    assert rounds_of(OLD) == 2048 and rounds_of(path.read_bytes()) >= 300 * 2048
    assert keys.load(path, "a", ask=lambda: b"horse") == made
    if which("openssl"):
        assert public_by_openssl(path, "horse").endswith(made.verifier.public)
    for ask in (lambda: b"cow", lambda: b""):
        with pytest.raises(KeyFileError, match=r"a\.pem: this is not its passphrase, or it is damaged: type"):
            keys.load(path, "a", ask=ask)
    with pytest.raises(KeyFileError, match=r"a\.pem: it has a passphrase: set KCAST_KEY_PASSPHRASE to it\Z"):
        keys.load(path, "a")

    path.write_bytes(OLD)
    old = keys.load(path, "a", ask=lambda: b"horse")
    (link := path.with_name("b.pem")).symlink_to(path)
    keys.rewrap(link, old, b"cow")
    assert link.is_symlink() and rounds_of(path.read_bytes()) >= 300 * 2048
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.load(link, "a", ask=lambda: b"cow") == old
    for passphrase in (b"x" * 1024, b"x" * 1023):
        path.write_bytes(before := path.read_bytes())
        with suppress(KeyFileError):
            keys.rewrap(path, old, passphrase)
        assert (path.read_bytes() == before) == (len(passphrase) > 1023)


@pytest.mark.skipif(which("openssl") is None, reason="there is no openssl here")
def test_openssl_reads_it(path: Path) -> None:
    made = keys.make(path, "a")
    assert public_by_openssl(path).endswith(made.verifier.public)


@pytest.mark.world
def test_killed_at_each_write_no_second_copy_of_a_secret_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is done next with any key of the folder removes it; but no copy that a person has made."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    held, new = keys.path_of("held"), keys.path_of("new")
    key, left = keys.make(held, "held"), set()
    for copy in (copies := {".held.pem.original", ".held.pem.20261129"}):
        held.with_name(copy).write_bytes(held.read_bytes())
    for act in (partial(keys.make, new, "new"), partial(keys.rewrap, held, key, b"")):
        for count in range(1, 20):
            new.unlink(missing_ok=True)
            status = killed_at(count, act)
            left |= {each.name.partition("kcast-")[0] for each in held.parent.iterdir()}
            assert keys.load(held, "held") == key
            assert {each.name for each in held.parent.iterdir()} - {"new.pem"} == {"held.pem", *copies}
            if status == 0:
                break
        assert status == 0
    assert left >= {".held.pem.", ".new.pem."}


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_folder_of_keys_that_others_write_is_refused(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.make(path := keys.path_of("a"), "a")
    path.parent.chmod(mode)
    for act in (keys.load, keys.make):
        with pytest.raises(StateError, match=f"{path.parent}: others may write there: chmod go-w it"):
            act(path, "a")


def test_a_key_is_never_overwritten(path: Path) -> None:
    made = keys.make(path, "a")
    with pytest.raises(KeyFileError, match=r"there is a key already, and keys are never overwritten\Z"):
        keys.make(path, "a")
    assert keys.load(path, "a") == made
    path.unlink()
    path.symlink_to("elsewhere")
    with pytest.raises(KeyFileError, match="there is a key already"):
        keys.make(path, "a")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a private key in PEM"),
        (b"x" * 1_000_000, "not a private key in PEM"),
        (RSA, "not an Ed25519 key"),
    ],
)
def test_what_is_no_key_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "a.pem"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=rf"a\.pem: {why}\Z"):
        keys.load(path, "a")


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o644])
def test_a_key_that_others_may_read_is_refused(path: Path, mode: int) -> None:
    keys.make(path, "a")
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=rf"others may read or write it: chmod 600 {path}\Z"):
        keys.load(path, "a")


def test_a_full_disk_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(durable, "sync_folder", lambda _: None)
    with pytest.raises(KeyFileError, match=r"a\.pem: No space left on device; no key was made\Z"):
        keys.make(path, "a")
    assert list(path.parent.iterdir()) == []


def test_a_key_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.make(path, "a")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(KeyFileError, match="it is another user's file"):
        keys.load(path, "a")


def test_damaged_files_are_refused_in_one_line(path: Path) -> None:
    """The library knows several ways to refuse a file, among them errors of its own."""
    keys.make(path, "a")
    data, rng, refused = path.read_bytes(), Random(13), 0
    for _ in range(500):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] = rng.choice(b"ABCxyz019+/=\n\0\xff")
        path.write_bytes(damaged)
        try:
            keys.load(path, "a")
        except KeyFileError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 100


def test_the_secret_is_in_no_text_of_a_key(path: Path) -> None:
    made = keys.make(path, "a")
    assert made.seed.hex() not in repr(made)
    assert repr(made.seed) not in repr(made)
