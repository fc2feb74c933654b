"""Golden vectors of signed lists: what `client/vectors/trust.json` says, and why.

Written from PROTOCOL §10 and the specifications that it names, by hand; imports nothing of the code that it
judges, but signs with PyNaCl. `python -m tests.support.trust_vectors` writes the file.
"""

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from nacl.signing import SigningKey

from tests.support.checkout import ROOT
from tests.support.rfc9162 import LiteralTree

FILE = ROOT / "client" / "vectors" / "trust.json"

ABOUT = [
    "Golden vectors of signed lists of servers: PROTOCOL.md, section 10.",
    "'data' is text, to be taken as UTF-8; all of it counts, to the last LF.",
    "keys: each is made of its seed; type 1 signs notes, type 4 cosigns checkpoints.",
    "trust_document, list, checkpoint, proof and add_checkpoint are sound, and belong together: the list is",
    "signed under the document, its record is entry 'index' of the log, and 'entries' are all entries.",
    "trust_proof shows the trust document's record in the log. Served as trust/1, trust/1.tlog-proof,",
    "list/42 and latest.tlog-proof, all this is taken by a client that trusts the document, at",
    "'taken_at_unix_s'; with a mutant of checkpoint or proof in its place it is refused, with that fault.",
    "'text' and 'pin' of the trust document are what its owners signed, and what people give to each other.",
    "mutants: in the data of 'of' (for add_checkpoint: of its last), the first 'old' becomes 'new'. Then it",
    "must be refused; 'fault' is the name of section 10.7 that fits, as far as this file alone can show it.",
    "Signatures are looked at before the hash of the list, which every mutant changes.",
    "vkeys_refused: none of these is a key.",
]

Vector = dict[str, Any]

NAME = "example.org/lab"
DASH = "\N{EM DASH}"
COSIGNED_AT_UNIX_S = 1_790_000_000


class Key:
    """A key as the specification has it."""

    def __init__(self, name: str, seed_byte: int, kind: int = 1) -> None:
        self.name, self.kind, self.seed = name, kind, bytes([seed_byte]) * 32
        self._secret = SigningKey(self.seed)
        self.public = bytes(self._secret.verify_key)
        self.id = sha256(name.encode() + b"\n" + bytes([kind]) + self.public).digest()[:4]
        self.vkey = f"{name}+{self.id.hex()}+{base64(bytes([kind]) + self.public)}"

    def line(self, text: str) -> str:
        """The signature line under a note's text."""
        return f"{DASH} {self.name} {base64(self.id + self._secret.sign(text.encode()).signature)}\n"

    def cosignature(self, text: str, at_unix_s: int) -> str:
        """The cosignature line under a checkpoint."""
        message = f"cosignature/v1\ntime {at_unix_s}\n{text}".encode()
        signed = self._secret.sign(message).signature
        return f"{DASH} {self.name} {base64(self.id + at_unix_s.to_bytes(8, 'big') + signed)}\n"

    def vector(self) -> Vector:
        """What the file says of it."""
        return {
            "name": self.name,
            "type": self.kind,
            "seed_hex": self.seed.hex(),
            "public_hex": self.public.hex(),
            "key_id": self.id.hex(),
            "vkey": self.vkey,
        }


def base64(data: bytes) -> str:
    """RFC 4648 section 4."""
    return b64encode(data).decode()


OWNERS = [Key(f"{NAME}/owner-{i}", 0x01 + i) for i in range(5)]
SIGNERS = [Key(f"{NAME}/signer-{i}", 0x10 + i) for i in range(3)]
LOG = Key(f"{NAME}/log", 0x20)
WITNESSES = [Key(f"w{i}.example.net", 0x30 + i, 4) for i in range(7)]

DOCUMENT_TEXT = "".join(
    f"{line}\n"
    for line in (
        *("kcast-trust 1", f"name {NAME}", "version 1"),
        *("owners 3 of 5", *(f"owner {key.vkey}" for key in OWNERS)),
        *("lists 2 of 3", *(f"signer {key.vkey}" for key in SIGNERS)),
        *("churn 25%", "hosts 1 per-prefix", "floor 5", "admission now", "expiry warn", "lists-from 1"),
        *("from https://lists.example.org/lab", "policy", f"log {LOG.vkey}"),
        *(f"witness w{i} {key.vkey}" for i, key in enumerate(WITNESSES)),
        *("group q 5 w0 w1 w2 w3 w4 w5 w6", "quorum q"),
    )
)
DOCUMENT = DOCUMENT_TEXT + "\n" + "".join(OWNERS[i].line(DOCUMENT_TEXT) for i in (0, 2, 4))

SALT = bytes(range(16))
LIST_TEXT = "".join(
    f"{line}\n"
    for line in (
        *("kcast-cluster 1", f"name {NAME}", "version 42", "trust 1"),
        *("valid-after 1790000000", "fresh-until 1790604800", "valid-until 1797776000", "min-servers 8"),
        *("policy k=5 publish=3 subscribe=5", f"salt {SALT.hex()}"),
        *(f"server 192.0.{i}.7:7400" for i in range(12)),
        "pending 198.51.100.7:7400",
        f"next-salt {SIGNERS[0].id.hex()} {sha256(SALT).hexdigest()}",
    )
)
LIST = LIST_TEXT + "\n" + "".join(SIGNERS[i].line(LIST_TEXT) for i in (0, 2))


def list_record(version: int, data: str) -> str:
    """The record of a list, signed under the first trust document."""
    encoded = data.encode()
    digest = sha256(encoded).hexdigest()
    return f"kcast-list 1\n{NAME}\nversion {version}\ntrust 1\nbytes {len(encoded)}\nsha256 {digest}\n"


def trust_record(version: int, data: str) -> str:
    """The record of a trust document."""
    encoded = data.encode()
    digest = sha256(encoded).hexdigest()
    return f"kcast-trust-record 1\n{NAME}\nversion {version}\nbytes {len(encoded)}\nsha256 {digest}\n"


INDEX = 42
ENTRIES = [
    trust_record(1, DOCUMENT),
    *(list_record(version, f"list {version}\n") for version in range(1, INDEX)),
    list_record(INDEX, LIST),
]
LEAVES = [entry.encode() for entry in ENTRIES]
TREE = LiteralTree(LEAVES)
CHECKPOINT_TEXT = f"{LOG.name}\n{len(LEAVES)}\n{base64(TREE.mth())}\n"
LOG_LINE = LOG.line(CHECKPOINT_TEXT)
COSIGNATURES = [key.cosignature(CHECKPOINT_TEXT, COSIGNED_AT_UNIX_S + i) for i, key in enumerate(WITNESSES)]
CHECKPOINT = CHECKPOINT_TEXT + "\n" + LOG_LINE + "".join(COSIGNATURES)


def hashes(path: Sequence[bytes]) -> str:
    """One line for each hash."""
    return "".join(f"{base64(each)}\n" for each in path)


def proof_from(old_size: int) -> list[bytes]:
    """The consistency proof from a tree of this size; from the empty one it is empty."""
    return TREE.proof(old_size) if old_size else []


PROOF = (
    f"c2sp.org/tlog-proof@v1\nextra {base64(LEAVES[INDEX])}\nindex {INDEX}\n"
    f"{hashes(TREE.path(INDEX))}\n{CHECKPOINT}"
)
TRUST_PROOF = (
    f"c2sp.org/tlog-proof@v1\nextra {base64(LEAVES[0])}\nindex 0\n{hashes(TREE.path(0))}\n{CHECKPOINT}"
)
OLD_SIZES = (0, 1, 2, 32, 42, 43, 41)
ADDED = {
    old_size: f"old {old_size}\n{hashes(proof_from(old_size))}\n{CHECKPOINT_TEXT}\n{LOG_LINE}"
    for old_size in OLD_SIZES
}

DATA = {
    "trust_document": DOCUMENT,
    "list": LIST,
    "record": ENTRIES[INDEX],
    "checkpoint": CHECKPOINT,
    "proof": PROOF,
    "add_checkpoint": ADDED[OLD_SIZES[-1]],
}


def line_of(key: Key, data: str) -> str:
    """The line in which a key signed."""
    return next(f"{line}\n" for line in data.split("\n") if line.startswith(f"{DASH} {key.name} "))


def flipped(line: str) -> str:
    """The line with its signature's last bytes changed."""
    return f"{line[:-9]}{'AAAA' if line[-9:-5] != 'AAAA' else 'BBBB'}{line[-5:]}"


def bad_line(key: Key, data: str) -> tuple[str, str]:
    """What to replace so that a key's signature fails."""
    line = line_of(key, data)
    return line, flipped(line)


def later(line: str) -> str:
    """The cosignature line with another time, and the same signature."""
    head, _, encoded = line.rstrip("\n").rpartition(" ")
    data = b64decode(encoded)
    return f"{head} {base64(data[:11] + bytes([data[11] ^ 1]) + data[12:])}\n"


def uncanonical(line: str) -> str:
    """The signature line with a bit set in its base64 that says nothing."""
    return f"{line[:-3]}{chr(ord(line[-3]) + 1)}=\n"


OTHER_LINE = LOG.line("another text\n")
FIRST_HASH = hashes(TREE.path(INDEX)[:1])
LAST_HASH = hashes(TREE.path(INDEX)[-1:])
ADDED_FIRST = hashes(proof_from(OLD_SIZES[-1])[:1])

# (of, why, old, new, fault)
MUTANTS: tuple[tuple[str, str, str, str, str], ...] = (
    ("trust_document", "another header", "kcast-trust 1", "kcast-trust 2", "trust"),
    ("trust_document", "another name", f"name {NAME}", f"name {NAME}2", "trust"),
    ("trust_document", "a name that leads out of a folder", f"name {NAME}", "name ../lab", "trust"),
    ("trust_document", "another version", "version 1", "version 2", "trust"),
    ("trust_document", "a lower threshold", "owners 3 of 5", "owners 1 of 5", "trust"),
    ("trust_document", "a threshold of none", "lists 2 of 3", "lists 0 of 3", "trust"),
    ("trust_document", "a threshold above the keys", "lists 2 of 3", "lists 4 of 3", "trust"),
    ("trust_document", "a wrong number of keys", "owners 3 of 5", "owners 3 of 4", "trust"),
    ("trust_document", "an owner twice", OWNERS[1].vkey, OWNERS[0].vkey, "trust"),
    ("trust_document", "an owner less", f"owner {OWNERS[1].vkey}\n", "", "trust"),
    ("trust_document", "a witness as signer", SIGNERS[0].vkey, WITNESSES[0].vkey, "trust"),
    ("trust_document", "a log's key as witness", WITNESSES[0].vkey, LOG.vkey, "trust"),
    ("trust_document", "a line less", "churn 25%\n", "", "trust"),
    (
        "trust_document",
        "lines in another order",
        "floor 5\nadmission now\n",
        "admission now\nfloor 5\n",
        "trust",
    ),
    ("trust_document", "two spaces", "floor 5", "floor  5", "trust"),
    ("trust_document", "a leading zero", "floor 5", "floor 05", "trust"),
    ("trust_document", "a comment before the policy", "floor 5\n", "# floor\nfloor 5\n", "trust"),
    ("trust_document", "a witness in two groups", "quorum q", "group r any w0\nquorum q", "trust"),
    ("trust_document", "a quorum that is not there", "quorum q", "quorum r", "trust"),
    ("trust_document", "no quorum", "quorum q\n", "", "trust"),
    ("trust_document", "an owner's signature that fails", *bad_line(OWNERS[0], DOCUMENT), "trust"),
    ("trust_document", "a signature short", line_of(OWNERS[0], DOCUMENT), "", "trust"),
    (
        *("trust_document", "one owner's signature in another's place"),
        *(line_of(OWNERS[2], DOCUMENT), line_of(OWNERS[0], DOCUMENT), "trust"),
    ),
    ("trust_document", "no signatures", DOCUMENT[len(DOCUMENT_TEXT) :], "", "trust"),
    ("list", "another server", "192.0.3.7", "203.0.113.3", "bad-signature"),
    ("list", "another time", "valid-until 1797776000", "valid-until 1897776000", "bad-signature"),
    ("list", "a tab", "version 42", "version\t42", "malformed"),
    ("list", "a carriage return", "version 42\n", "version 42\r\n", "malformed"),
    (
        "list",
        "an end of its text in the middle",
        "server 192.0.3.7",
        f"\n{DASH} a AAAAAAA=\nserver 192.0.3.7",
        "bad-signature",
    ),
    ("list", "a space at a signature's end", SIGNERS[0].name + " ", SIGNERS[0].name + "  ", "malformed"),
    ("list", "a signer's signature that fails", *bad_line(SIGNERS[0], LIST), "bad-signature"),
    ("list", "a signature short", line_of(SIGNERS[0], LIST), "", "too-few-signers"),
    ("list", "one signature twice", line_of(SIGNERS[2], LIST), line_of(SIGNERS[0], LIST), "too-few-signers"),
    (
        "list",
        "an owner in a signer's place",
        line_of(SIGNERS[2], LIST),
        OWNERS[0].line(LIST_TEXT),
        "too-few-signers",
    ),
    ("list", "a signer by another name", SIGNERS[2].name, "example.org/x/signer-2", "too-few-signers"),
    ("list", "no signatures", LIST[len(LIST_TEXT) :], "", "malformed"),
    ("record", "another header", "kcast-list 1", "kcast-list 2", "malformed"),
    ("record", "a leading zero", "version 42", "version 042", "malformed"),
    ("record", "a line less", "trust 1\n", "", "malformed"),
    ("record", "a line more", "trust 1\n", "trust 1\ntrust 1\n", "malformed"),
    ("record", "lines in another order", "version 42\ntrust 1\n", "trust 1\nversion 42\n", "malformed"),
    (
        "record",
        "a hash in upper case",
        sha256(LIST.encode()).hexdigest(),
        sha256(LIST.encode()).hexdigest().upper(),
        "malformed",
    ),
    (
        "record",
        "a hash that is too short",
        "sha256 " + sha256(LIST.encode()).hexdigest()[0],
        "sha256 ",
        "malformed",
    ),
    ("record", "two spaces", "bytes ", "bytes  ", "malformed"),
    ("checkpoint", "another log", f"{LOG.name}\n", "example.org/log\n", "bad-signature"),
    ("checkpoint", "another size", "\n43\n", "\n44\n", "bad-signature"),
    ("checkpoint", "a leading zero", "\n43\n", "\n043\n", "malformed"),
    ("checkpoint", "an extension line", f"\n\n{DASH}", f"\nmore\n\n{DASH}", "malformed"),
    ("checkpoint", "the log's signature on another text", LOG_LINE, OTHER_LINE, "bad-signature"),
    ("checkpoint", "no signature of the log", LOG_LINE, "", "bad-signature"),
    ("checkpoint", "a cosignature that fails", *bad_line(WITNESSES[3], CHECKPOINT), "bad-signature"),
    (
        "checkpoint",
        "a cosignature without its time",
        COSIGNATURES[0],
        WITNESSES[0].line(CHECKPOINT_TEXT),
        "bad-signature",
    ),
    (
        "checkpoint",
        "a cosignature with another time",
        COSIGNATURES[0],
        later(COSIGNATURES[0]),
        "bad-signature",
    ),
    ("checkpoint", "four witnesses", "".join(COSIGNATURES[:3]), "", "no-quorum"),
    (
        "checkpoint",
        "one witness in three others' places",
        "".join(COSIGNATURES[:4]),
        COSIGNATURES[3] * 4,
        "no-quorum",
    ),
    (
        "checkpoint",
        "base64 that is not canonical",
        LOG_LINE,
        uncanonical(LOG_LINE),
        "malformed",
    ),
    ("proof", "another header", "tlog-proof@v1", "tlog-proof@v2", "malformed"),
    ("proof", "another entry", base64(LEAVES[INDEX]), base64(LEAVES[INDEX - 1]), "unlogged"),
    ("proof", "another index", f"index {INDEX}", f"index {INDEX - 1}", "unlogged"),
    ("proof", "an index beyond the tree", f"index {INDEX}", "index 43", "unlogged"),
    ("proof", "an index with a leading zero", f"index {INDEX}", f"index 0{INDEX}", "malformed"),
    ("proof", "a hash less", LAST_HASH, "", "unlogged"),
    ("proof", "a hash twice", FIRST_HASH, FIRST_HASH * 2, "unlogged"),
    ("proof", "another hash", FIRST_HASH, hashes([bytes(32)]), "unlogged"),
    ("proof", "a hash of 31 bytes", FIRST_HASH, hashes([bytes(31)]), "malformed"),
    ("proof", "64 hashes", FIRST_HASH, FIRST_HASH * 64, "malformed"),
    ("proof", "no extra, which is the entry", f"extra {base64(LEAVES[INDEX])}\n", "", "malformed"),
    ("proof", "an empty extra", base64(LEAVES[INDEX]), "", "malformed"),
    ("add_checkpoint", "another old size", "old 41", "old 40", "fork"),
    ("add_checkpoint", "an old size beyond the tree", "old 41", "old 44", "fork"),
    ("add_checkpoint", "a leading zero", "old 41", "old 041", "malformed"),
    ("add_checkpoint", "no old size", "old 41\n", "", "malformed"),
    ("add_checkpoint", "a hash less", ADDED_FIRST, "", "fork"),
    ("add_checkpoint", "a hash twice", ADDED_FIRST, ADDED_FIRST * 2, "fork"),
    ("add_checkpoint", "another hash", ADDED_FIRST, hashes([bytes(32)]), "fork"),
    ("add_checkpoint", "64 hashes", ADDED_FIRST, ADDED_FIRST * 64, "malformed"),
)

VKEYS_REFUSED = (
    ("another key ID", SIGNERS[0].vkey.replace(SIGNERS[0].id.hex(), SIGNERS[1].id.hex())),
    ("a key ID in upper case", SIGNERS[1].vkey.replace(SIGNERS[1].id.hex(), SIGNERS[1].id.hex().upper())),
    ("another name", f"x{SIGNERS[0].vkey}"),
    ("no name", SIGNERS[0].vkey.removeprefix(SIGNERS[0].name)),
    (
        "a space in its name",
        "a b+" + sha256(b"a b\n\1" + bytes(32)).hexdigest()[:8] + "+" + base64(b"\1" + bytes(32)),
    ),
    (
        "an unknown type",
        "a+" + sha256(b"a\n\2" + bytes(32)).hexdigest()[:8] + "+" + base64(b"\2" + bytes(32)),
    ),
    ("31 bytes", "a+" + sha256(b"a\n\1" + bytes(31)).hexdigest()[:8] + "+" + base64(b"\1" + bytes(31))),
    ("no key", "a+" + sha256(b"a\n").hexdigest()[:8] + "+"),
    ("two parts", "a+" + base64(b"\1" + bytes(32))),
    ("base64 without padding", SIGNERS[0].vkey.replace("+", " ", 1).partition("+")[0] + "+AQ"),
)


def document() -> Vector:
    """The file's contents."""
    return {
        "about": ABOUT,
        "taken_at_unix_s": COSIGNED_AT_UNIX_S + 3_600,
        "keys": [key.vector() for key in (*OWNERS, *SIGNERS, LOG, *WITNESSES)],
        "trust_document": {
            "data": DOCUMENT,
            "text": DOCUMENT_TEXT,
            "pin": urlsafe_b64encode(sha256(DOCUMENT_TEXT.encode()).digest()).decode().rstrip("="),
            "signed_by": [OWNERS[i].name for i in (0, 2, 4)],
        },
        "list": {
            "data": LIST,
            "bytes": len(LIST.encode()),
            "sha256": sha256(LIST.encode()).hexdigest(),
            "signed_by": [SIGNERS[i].name for i in (0, 2)],
        },
        "record": {"data": ENTRIES[INDEX], "leaf_hash_hex": sha256(b"\0" + LEAVES[INDEX]).hexdigest()},
        "log": {"index": INDEX, "entries": ENTRIES, "root_hex": TREE.mth().hex()},
        "checkpoint": {
            "data": CHECKPOINT,
            "cosigned_at_unix_s": {key.name: COSIGNED_AT_UNIX_S + i for i, key in enumerate(WITNESSES)},
        },
        "proof": {"data": PROOF},
        "trust_proof": {"data": TRUST_PROOF},
        "add_checkpoint": [
            {
                "old_size": old_size,
                "old_root_hex": TREE.mth(old_size).hex(),
                "data": data,
            }
            for old_size, data in ADDED.items()
        ],
        "mutants": [
            {"of": of, "description": why, "old": old, "new": new, "fault": fault}
            for of, why, old, new, fault in MUTANTS
        ],
        "vkeys_refused": [{"description": why, "vkey": vkey} for why, vkey in VKEYS_REFUSED],
    }


def text() -> str:
    """The file's text."""
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text(), encoding="ascii")
