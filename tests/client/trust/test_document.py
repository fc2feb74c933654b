"""Trust documents: what is read, what is refused, and which one may follow."""

from dataclasses import replace

import pytest

pytest.importorskip("nacl")

from kcast.client.trust import document as documents
from kcast.client.trust.document import DocumentError, TrustDocument
from kcast.client.trust.note import KIND_COSIGNATURE, NoteError, SigningKey, sign
from kcast.client.trust.quorum import Group, Policy, Witness

OWNERS = [SigningKey.from_seed(f"example.org/lab/owner-{i}", bytes([i + 1]) * 32) for i in range(5)]
SIGNERS = [SigningKey.from_seed(f"example.org/lab/signer-{i}", bytes([i + 16]) * 32) for i in range(3)]
LOG = SigningKey.from_seed("example.org/lab/log", bytes([32]) * 32)
WITNESSES = [
    SigningKey.from_seed(f"w{i}.example.net", bytes([i + 48]) * 32, KIND_COSIGNATURE) for i in range(7)
]
NAMES = tuple(f"w{i}" for i in range(7))
POLICY = Policy(
    LOG.verifier,
    {name: Witness(key.verifier) for name, key in zip(NAMES, WITNESSES, strict=True)},
    {"q": Group(5, NAMES)},
    "q",
)
DOCUMENT = TrustDocument(
    name="example.org/lab",
    version=1,
    signers=tuple(key.verifier for key in SIGNERS),
    signer_threshold=2,
    owner_threshold=3,
    policy=POLICY,
    own_owners=tuple(key.verifier for key in OWNERS),
    floor=5,
    admission="epoch",
    urls=("https://lists.example.org/lab",),
)


def signed(document: TrustDocument, *keys: SigningKey) -> bytes:
    return sign(document.text, keys).data


def test_what_is_written_is_read() -> None:
    data = signed(DOCUMENT, *OWNERS[:3])
    document, note = documents.parse(data)
    assert document == DOCUMENT
    assert note.text == DOCUMENT.text
    assert documents.check_first(data, DOCUMENT.pin) == DOCUMENT
    assert len(DOCUMENT.pin) == 43


def test_a_first_document_needs_its_pin_and_its_owners() -> None:
    with pytest.raises(DocumentError, match="its pin is"):
        documents.check_first(signed(DOCUMENT, *OWNERS[:3]), "x" * 43)
    with pytest.raises(DocumentError, match="2 of the 3 owners of version 1"):
        documents.check_first(signed(DOCUMENT, *OWNERS[:2]), DOCUMENT.pin)


def test_the_next_document_needs_the_owners_of_both() -> None:
    new = [SigningKey.from_seed(f"new-{i}", bytes([i + 100]) * 32) for i in range(3)]
    following = replace(DOCUMENT, version=2, own_owners=tuple(key.verifier for key in new))
    assert documents.check_next(DOCUMENT, signed(following, *OWNERS[2:], *new)) == following
    for keys in ((*OWNERS[3:], *new), (*OWNERS, *new[1:])):
        with pytest.raises(DocumentError, match="2 of the 3 owners"):
            documents.check_next(DOCUMENT, signed(following, *keys))
    with pytest.raises(DocumentError, match="version 3, and not 2"):
        documents.check_next(DOCUMENT, signed(replace(following, version=3), *OWNERS, *new))


def test_a_quorum_counts_witnesses() -> None:
    keys = [key.verifier for key in WITNESSES]
    assert POLICY.needed == 5
    assert POLICY.is_met(keys[:5])
    assert not POLICY.is_met(keys[:4])
    assert POLICY.who(keys[5:]) == ("w5", "w6")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kcast-trust 1", "kcast-trust 2", "line 1: expected 'kcast-trust 1'"),
        ("name example.org/lab\n", "name ../lab\n", "line 2: expected 'name NAME'"),
        ("name example.org/lab\n", "", "expected a line 'name'"),
        ("owners 3 of 5", "owners 6 of 5", "and T from 1 to that"),
        ("owners 3 of 5", "owners 0 of 5", "and T from 1 to that"),
        ("owners 3 of 5", "owners 3 of 6", "as many as there are keys"),
        ("lists 2 of 3", "lists two of 3", "line 10: expected a number, not 'two'"),
        (str(SIGNERS[1].verifier), str(SIGNERS[0].verifier), "signers with different keys"),
        (str(SIGNERS[1].verifier), str(WITNESSES[0].verifier), "key of type 1"),
        ("floor 5\n", "floor 5\nfloor 6\n", "expected 'floor' once"),
        ("churn 25%", "churn 25", "expected 'churn N%'"),
        ("group q 5", "group q 8", "from 1 to 7, not '8'"),
        ("quorum q", "quorum r", "not 'r'"),
        ("quorum q\n", "", "a line 'quorum"),
        ("w6\nquorum", "w5\nquorum", "'w5' in one group only"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, says: str) -> None:
    assert old in DOCUMENT.text
    with pytest.raises(DocumentError) as caught:
        documents.parse_text(DOCUMENT.text.replace(old, new))
    assert says in str(caught.value)


def test_a_note_that_is_too_long_is_refused() -> None:
    with pytest.raises(NoteError):
        documents.parse(b"#" * 70_000)
