"""client/sealed/keys.py: which key is meant, what follows from it, and members' words."""

import hmac
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from kcast.client.messages import base64url
from kcast.client.sealed import key_names
from kcast.client.sealed.keys import Identity, Member, MemberError, parse_member
from kcast.client.sealed.signing import Signer
from kcast.client.trust.forms.note import VerifierKey
from kcast.client.trust.state.keys import KeyFileError, NoKeyInFile

SEED = bytes(range(32))
IDENTITY = Identity.from_seed("station", SEED)
# Points of X25519 whose order divides 8, in all encodings, after RFC 7748 6.1 and Curve25519's page.
SMALL_X = (
    *(0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18),
    int.from_bytes(
        bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"), "little"
    ),
    int.from_bytes(
        bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"), "little"
    ),
)
SMALL = tuple((x | high << 255).to_bytes(32, "little") for x in SMALL_X for high in (0, 1))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of keys, which is not there yet; the working folder is another."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KCAST_KEY", raising=False)
    monkeypatch.delenv("KCAST_KEY_PASSPHRASE", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "config" / "kcast" / "keys"


# --- What follows from a seed ------------------------------------------------------------------------


def test_the_key_that_opens_group_files_is_derived_by_hkdf() -> None:
    """RFC 5869 written down: without salt, and one block long."""
    extracted = hmac.digest(bytes(32), SEED, sha256)
    private = hmac.digest(extracted, b"kcast-hpke 1" + b"\x01", sha256)
    assert IDENTITY.hpke_private == private
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    assert IDENTITY.hpke_public == public
    assert private != SEED


def test_forms_of_the_public_key() -> None:
    signer = Signer(SEED)
    assert IDENTITY.signer.key == signer.key
    assert IDENTITY.key_text == signer.key_text == base64url.encode(signer.key)
    assert IDENTITY.name == "station"
    assert VerifierKey.parse(str(IDENTITY.note_key.verifier)).public == signer.key
    kind, data, name = IDENTITY.ssh_line.split(" ")
    assert (kind, name) == ("ssh-ed25519", "station")
    assert data == b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + signer.key).decode()
    assert IDENTITY.note_key_as("ops").verifier == VerifierKey("ops", 1, signer.key)


@pytest.mark.world
@pytest.mark.skipif(which("ssh-keygen") is None, reason="there is no ssh-keygen here")
def test_openssh_reads_the_line(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(f"{IDENTITY.ssh_line}\n")
    shown = subprocess.run(
        ("ssh-keygen", "-l", "-f", tmp_path / "key.pub"), capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("256 SHA256:") and shown.stdout.endswith(" station (ED25519)\n")


# --- Members' words ----------------------------------------------------------------------------------


def test_a_members_word_has_both_keys_the_second_signed_by_the_first() -> None:
    word = IDENTITY.member_word
    assert [len(part) for part in word.split(".")] == [43, 43, 86]
    member = parse_member(word)
    assert member == Member(IDENTITY.signer.key, IDENTITY.hpke_public)
    assert member.key_text == IDENTITY.key_text


@pytest.mark.long
def test_a_word_of_which_one_character_was_changed_is_refused() -> None:
    word = IDENTITY.member_word
    for at, char in enumerate(word):
        for other in "AQgw_.=é \n":
            if other != char:
                with pytest.raises(MemberError) as refused:
                    parse_member(word[:at] + other + word[at + 1 :])
                assert "'kcast key show'" in str(refused.value) and "\n" not in str(refused.value)


def test_a_key_that_its_owner_did_not_sign_is_refused() -> None:
    key, _, signature = IDENTITY.member_word.split(".")
    other = base64url.encode(Identity.from_seed("x", bytes(32)).hpke_public)
    with pytest.raises(MemberError, match=f"the word of {key} was changed on its way"):
        parse_member(f"{key}.{other}.{signature}")


@pytest.mark.parametrize("public", SMALL, ids=bytes.hex)
def test_a_key_with_which_anybody_could_open_it_is_refused_though_it_is_signed(public: bytes) -> None:
    signature = IDENTITY.signer.sign_bytes(b"kcast-member 1\n" + public)
    with pytest.raises(MemberError, match="was changed on its way"):
        parse_member(".".join(map(base64url.encode, (IDENTITY.signer.key, public, signature))))


@pytest.mark.parametrize("word", ["", ".", "..", "a.b.c", IDENTITY.key_text, "x" * 100_000, "." * 1000])
def test_what_is_no_word_is_told_in_one_short_line(word: str) -> None:
    with pytest.raises(MemberError, match="expected a member's word, which") as refused:
        parse_member(word)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


# --- Files -------------------------------------------------------------------------------------------


def test_a_key_is_made_once_and_read(folder: Path) -> None:
    made = Identity.make()
    assert made.path == folder / "key.pem"
    assert made.path.stat().st_mode & 0o777 == 0o600
    assert Identity.load() == Identity.load("key") == Identity.load(folder / "key.pem")
    assert Identity.load().key_text == made.key_text
    with pytest.raises(KeyFileError, match=r"key\.pem: it is there already, and keys are never overwritten"):
        Identity.make(ask=lambda: pytest.fail("nobody need be asked"))
    assert Identity.load().key_text == made.key_text


def test_which_key_is_meant(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        name: Identity.make(name).key_text
        for name in ("key", "lab", "./lab", "lab.pem", str(tmp_path / "sub" / "lab"))
    }
    assert len(set(keys.values())) == 5
    assert {path.name for path in folder.iterdir()} == {"key.pem", "lab.pem"}
    (tmp_path / "work" / "other").mkdir()
    Identity.make("./key")  # others may have put it here
    assert Identity.load().key_text == keys["key"]
    for name, expected in keys.items():
        assert Identity.load(name).key_text == expected
        monkeypatch.setenv("KCAST_KEY", name)
        assert Identity.load().key_text == expected
        assert Identity.load("key").key_text == keys["key"], "what is given goes before the variable"
    monkeypatch.chdir(tmp_path)
    assert Identity.load("lab").key_text == keys["lab"]
    monkeypatch.setenv("KCAST_KEY", "")
    assert Identity.load().key_text == keys["key"], "an empty variable names nothing"
    assert key_names.known() == ["key", "lab"]


def test_a_key_has_the_same_name_by_its_name_and_by_its_file(folder: Path) -> None:
    Identity.make("lab")
    assert Identity.load("lab").name == Identity.load(folder / "lab.pem").name == "lab"
    for file, name in (
        ("example.org%2Flab.pem", "example.org/lab"),
        ("a b.pem", "key"),
        ("a+b.pem", "key"),
        ("x.y.pem", "x.y"),
        (f"{'a' * 201}.pem", "key"),
    ):
        assert Identity.make(f"./{file}").name == Identity.load(f"./{file}").name == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (None, r"there is no key yet \(.*/key\.pem\): 'kcast key new' makes one\Z"),
        ("lbb", r"there is no key lbb \(.*\); did you mean lab\? 'kcast key new lbb' makes one\Z"),
        ("x9", r"there is no key x9 \(.*/x9\.pem\): 'kcast key new x9' makes one\Z"),
        ("./a b.pem", r"a b\.pem: there is no such file: 'kcast key new './a b\.pem'' makes one\Z"),
        ("", r"'' cannot be a key's name: give 1 to 64 of A-Z"),
        ("a b", r"'a b' cannot be a key's name: give 1 to 64 of A-Z.*, or the path of a file\Z"),
        ("-x", r"'-x' cannot be a key's name"),
        ("~EwequGtqZ4k2dENRURj32Q", r"cannot be a key's name"),
        ("x" * 65, r"cannot be a key's name"),
        ("../work", r"work: not a file: give another file; 'kcast key new' makes one\Z"),
        ("./text", r"text: not a private key in PEM: give another file; 'kcast key new' makes one\Z"),
        ("./x25519.pem", r"x25519\.pem: not an Ed25519 key: give another file; 'kcast key new' makes one\Z"),
        ("./open.pem", r"open\.pem: others may read or write it: chmod 600 open\.pem\Z"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_do(
    name: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Identity.make("lab")
    Identity.make("./open.pem")
    Path("open.pem").chmod(0o640)
    for file, text in (("text", "no key\n"), ("x25519.pem", X25519_PEM)):
        Path(file).write_text(text)
        Path(file).chmod(0o600)
    with pytest.raises(KeyFileError, match=says) as refused:
        Identity.load(name)
    assert "\n" not in str(refused.value)
    if name:
        monkeypatch.setenv("KCAST_KEY", name)
        with pytest.raises(type(refused.value), match=r"\AKCAST_KEY: "):
            Identity.load()


X25519_PEM = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VuBCIEIHcHbQpzGKV9PBbBclGyZkXfTC+H68CZKrF3+6UduSwq
-----END PRIVATE KEY-----
"""


def test_a_file_without_a_key_is_told_apart_from_one_that_cannot_be_read() -> None:
    Path("text.pem").write_text("x")
    Path("text.pem").chmod(0o600)
    with pytest.raises(NoKeyInFile):
        Identity.load("text.pem")


def test_the_secret_is_in_no_text_of_an_identity() -> None:
    text = repr(IDENTITY)
    for secret in (SEED, IDENTITY.hpke_private):
        assert secret.hex() not in text and repr(secret)[2:-1] not in text
