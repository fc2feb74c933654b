"""Trust documents: what is read, what is refused, and which one may follow."""

from dataclasses import replace

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.document import DocumentError, TrustDocument
from kcast.client.trust.forms.note import KIND_COSIGNATURE, SigningKey, sign
from kcast.client.trust.forms.quorum import Group, Policy, Witness

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
    other = replace(following, name="example.org/other")
    with pytest.raises(DocumentError, match=r"it is named example\.org/other, and"):
        documents.check_next(DOCUMENT, signed(other, *OWNERS, *new))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kcast-trust 1", "kcast-trust 2", "line 1: expected 'kcast-trust 1'"),
        ("kcast-trust 1\n", "", "line 1: expected 'kcast-trust 1', not 'name example.org/lab'"),
        ("name example.org/lab\n", "name ../lab\n", "line 2: expected 'name NAME', of 1 to 64"),
        ("name example.org/lab\n", "", "line 2: expected 'name NAME', not 'version 1'"),
        ("name example.org/lab\n", "# a comment\n", "line 2: expected 'name NAME', not '# a comment'"),
        ("version 1", "version 0", "line 3: expected a number from 1, of at most 18 digits, not '0'"),
        ("version 1", "version 01", "line 3: expected a number from 1, of at most 18 digits, not '01'"),
        ("version 1", "version  1", "line 3: expected 'version NUMBER', with one space between words"),
        ("version 1", "version 1 ", "line 3: expected 'version NUMBER', with one space between words"),
        ("version 1", "version\N{NO-BREAK SPACE}1", "line 3: expected 'version NUMBER', not"),
        ("version 1", "version \N{ARABIC-INDIC DIGIT ONE}", "line 3: expected a number"),
        ("owners 3 of 5", "owners 6 of 5", "line 4: expected 'owners T of N' with T from 1 to 5"),
        ("owners 3 of 5", "owners 0 of 5", "line 4: expected 'owners T of N' with T from 1 to 5"),
        ("owners 3 of 5", "owners 3 of 6", "line 4: expected 'owners T of N' with N = 5"),
        ("lists 2 of 3", "lists 4 of 3", "line 10: expected 'lists T of N' with T from 1 to 3"),
        ("lists 2 of 3", "lists 2 of 2", "line 10: expected 'lists T of N' with N = 3"),
        (
            "lists 2 of 3",
            "lists two of 3",
            "line 10: expected a number from 0, of at most 18 digits, not 'two'",
        ),
        (
            f"owner {OWNERS[1].verifier}",
            f"owner {OWNERS[0].verifier}",
            "line 6: expected 'owner VKEY', another",
        ),
        (str(SIGNERS[1].verifier), str(SIGNERS[0].verifier), "line 12: expected 'signer VKEY', another key"),
        (str(SIGNERS[1].verifier), str(WITNESSES[0].verifier), "line 12: expected 'signer VKEY', of type 1"),
        ("churn 25%\n", "", "line 14: expected 'churn N%', not 'hosts 1 per-prefix'"),
        ("churn 25%", "churn 25", "line 14: expected 'churn N%' or 'churn N% except VERSION'"),
        ("churn 25%", "churn 25% except 0", "line 14: expected a number from 1"),
        ("hosts 1 per-prefix", "hosts 1 per-host", "line 15: expected 'hosts N per-prefix'"),
        ("floor 5", "floor 0", "line 16: expected a number from 1"),
        ("floor 5\n", "floor 5\nfloor 6\n", "line 17: expected 'admission epoch|now', not 'floor 6'"),
        ("admission epoch", "admission never", "line 17: expected 'admission epoch|now'"),
        ("from https", "from a https", "line 20: expected 'from URL'"),
        ("policy\n", "policy tlog\n", "line 21: expected 'policy' alone on its line"),
        ("log example.org", "log x example.org", "line 22: expected NAME+KEYID+BASE64, not 'x'"),
        (str(LOG.verifier), str(WITNESSES[0].verifier), "line 22: expected a log's key of type 1"),
        (str(WITNESSES[0].verifier), str(LOG.verifier), "line 23: expected a witness's key of type 4"),
        ("group q 5", "group q 8", "line 30: expected all, any or a number from 1 to 7, not '8'"),
        ("quorum q", "quorum r", "line 31: expected the name of a witness or group above, not 'r'"),
        ("quorum q\n", "", "line 30: expected a line 'log VKEY' and a line 'quorum NAME|none'"),
        ("w6\nquorum", "w5\nquorum", "line 30: expected 'w5' in one group only"),
        ("quorum q\n", "quorum q\nfloor 7\n", "line 32: expected 'log VKEY [URL]', 'witness NAME VKEY"),
        ("quorum q\n", "quorum q", "expected a text that ends with LF"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, says: str) -> None:
    assert old in DOCUMENT.text
    with pytest.raises(DocumentError) as caught:
        documents.parse_text(DOCUMENT.text.replace(old, new, 1))
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_owners_are_the_signers_where_none_is_named() -> None:
    document = replace(DOCUMENT, own_owners=(), owner_threshold=2)
    assert "owner " not in document.text
    assert documents.parse_text(document.text) == document
    assert document.owners == document.signers
    assert documents.check_first(signed(document, *SIGNERS[:2]), document.pin) == document


def test_the_signatures_of_two_versions_owners_fit_into_one_note() -> None:
    """Sixteen are looked at. Were nine owners needed, no nine others could ever follow them."""
    crowd, others = (
        [SigningKey.from_seed(f"{of}-{i}", bytes([i, of]) * 16) for i in range(16)] for of in (1, 2)
    )
    first, following = (
        replace(DOCUMENT, version=of, own_owners=tuple(key.verifier for key in keys), owner_threshold=8)
        for of, keys in ((1, crowd), (2, others))
    )
    assert documents.check_next(first, signed(following, *crowd[:8], *others[:8])) == following
    with pytest.raises(DocumentError, match="line 4: expected 'owners T of N' with T from 1 to 8"):
        documents.parse_text(replace(first, owner_threshold=9).text)


def test_a_document_may_exempt_one_version_from_churn() -> None:
    document = replace(DOCUMENT, except_version=17)
    assert "churn 25% except 17\n" in document.text
    assert documents.parse_text(document.text) == document


def test_the_pin_is_that_of_the_text_as_it_stands() -> None:
    """What says nothing, as a comment in the policy, still counts: two texts never have one pin."""
    text = DOCUMENT.text.replace("quorum q\n", "# whoever we trust\n\n  quorum\t q \n")
    assert documents.parse_text(text) == DOCUMENT
    data = sign(text.replace("\t", ""), OWNERS[:3]).data
    pin = documents.pin_of(text.replace("\t", ""))
    assert pin != DOCUMENT.pin
    assert documents.check_first(data, pin) == DOCUMENT
    with pytest.raises(DocumentError, match="its pin is"):
        documents.check_first(data, DOCUMENT.pin)
