"""client/trust/forms/checkpoint.py: the specifications' examples, and strict forms."""

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof, cosign, cosignatures
from kcast.client.trust.forms.merkle import SIZE_MAX
from kcast.client.trust.forms.note import (
    KIND_COSIGNATURE,
    BadSignature,
    Note,
    NoteError,
    Signature,
    SigningKey,
    encode_base64,
    sign,
    verify,
)
from kcast.client.trust.forms.quorum import read_policy

DASH = "\N{EM DASH}"

# C2SP tlog-cosignature's example; the specification does not give the keys.
COSIGNED = f"""example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

{DASH} example.com/behind-the-sofa \
Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
{DASH} witness.example.com/w1 \
jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""

# C2SP tlog-witness's example.
ADDED = f"""old 20852014
PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=
jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=
5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=
/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=

example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

{DASH} example.com/behind-the-sofa \
Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
{DASH} example.com/behind-the-sofa \
opLqBQsREYCgu6xQkYQwJr9fo45a62DN9EdmHXnZdXNqlcVGlCum2Wks+49/V6267UEjw6QUXTS5Rovnzv++qbSzm9Q=
"""

LOG = SigningKey.from_seed("a/log", bytes(range(32)))
WITNESSES = [SigningKey.from_seed(f"w{i}", bytes([i]) * 32, KIND_COSIGNATURE) for i in range(3)]
CHECKPOINT = Checkpoint("a/log", 43, bytes(32))
NOTE = sign(CHECKPOINT.text, [LOG])
PROOF = LogProof(b"extra", 41, (bytes(32), b"\1" * 32), NOTE)
ADD = AddCheckpoint(42, (bytes(32), b"\2" * 32), NOTE)


def test_the_example_of_a_cosignature() -> None:
    note = Note.parse(COSIGNED.encode())
    assert note.data == COSIGNED.encode()
    assert Checkpoint.parse(note.text).text == note.text
    assert Checkpoint.parse(note.text).size == 20852163
    assert note.signatures[1].key_id.hex() == "8d66cf3f"
    assert int.from_bytes(note.signatures[1].body[:8], "big") == 1679315147


def test_the_example_of_an_add_checkpoint_body() -> None:
    added = AddCheckpoint.parse(ADDED.encode())
    assert added.data == ADDED.encode()
    assert (added.old_size, len(added.path), len(added.checkpoint.signatures)) == (20852014, 4, 2)


def test_cosignatures_tell_who_and_when() -> None:
    note = NOTE.with_signatures(
        [
            cosign(NOTE, WITNESSES[0], 1_000),
            cosign(NOTE, WITNESSES[0], 3_000),
            cosign(NOTE, WITNESSES[2], 2_000),
        ]
    )
    keys = [key.verifier for key in WITNESSES]
    assert cosignatures(Note.parse(note.data), keys) == {keys[0]: 3_000, keys[2]: 2_000}
    assert cosignatures(note, [LOG.verifier, keys[1]]) == {}


@pytest.mark.parametrize(
    "body",
    [
        cosign(sign("other\n", [LOG]), WITNESSES[0], 1_000).body,
        cosign(NOTE, WITNESSES[0], 1_000).body[:-1],
        bytes(7) + b"\1" + cosign(NOTE, WITNESSES[0], 2).body[8:],
        cosign(NOTE, WITNESSES[0], 2**63).body,  # later than the specification lets it be
        bytes(3),
    ],
    ids=["text", "length", "time", "future", "short"],
)
def test_a_cosignature_that_fails_rejects_the_checkpoint(body: bytes) -> None:
    key = WITNESSES[0].verifier
    note = NOTE.with_signatures([Signature(key.name, key.key_id, body), cosign(NOTE, WITNESSES[1], 1_000)])
    with pytest.raises(BadSignature, match="the cosignature of w0"):
        cosignatures(note, [witness.verifier for witness in WITNESSES])
    assert list(cosignatures(note, [WITNESSES[1].verifier])) == [WITNESSES[1].verifier]


def test_keys_do_what_they_are_for() -> None:
    with pytest.raises(NoteError, match="a/log is a key for notes"):
        cosign(NOTE, LOG, 1_000)
    with pytest.raises(NoteError, match="w0 is a key for cosignatures"):
        sign("text\n", [WITNESSES[0]])


NO_CHECKPOINTS = (
    *("", "\n", "a\n43\n", "\n43\nROOT\n", "a\n43\nROOT", "a\n43\nROOT\nmore\n", "a\n43\nROOT\n\n"),
    *("a\n043\nROOT\n", "a\n+43\nROOT\n", "a\n-1\nROOT\n", "a\n4 3\nROOT\n", "a\n1_0\nROOT\n", "a\n\nROOT\n"),
    *("a\n\N{FULLWIDTH DIGIT FOUR}\nROOT\n", f"a\n{SIZE_MAX + 1}\nROOT\n"),
    *("a\n43\nAAAA\n", "a\n43\nROOT \n", "a\n43\n ROOT\n", "a\n43\n\n"),
)


@pytest.mark.parametrize("text", NO_CHECKPOINTS)
def test_what_is_no_checkpoint(text: str) -> None:
    root = encode_base64(bytes(32))
    assert Checkpoint.parse(f"a\n43\n{root}\n") == Checkpoint("a", 43, bytes(32))
    with pytest.raises(NoteError):
        Checkpoint.parse(text.replace("ROOT", root))


def test_base64_has_one_form() -> None:
    """The last character before the padding has bits that say nothing, and must be zero."""
    root = encode_base64(bytes(32))
    assert root.endswith("AA=")
    for other in (
        root[:-2] + "B=",
        root[:-1],
        root + "=",
        root.replace("A", "-", 1),
        root[:20] + "\n" + root[20:],
    ):
        with pytest.raises(NoteError):
            Checkpoint.parse(f"a\n43\n{other}\n")


def test_proofs_are_read_as_they_are_written() -> None:
    assert LogProof.parse(PROOF.data) == PROOF
    assert AddCheckpoint.parse(ADD.data) == ADD
    bare = LogProof(b"", 0, (), NOTE)
    assert LogProof.parse(bare.data) == bare
    first = AddCheckpoint(0, (), NOTE)
    assert AddCheckpoint.parse(first.data) == first


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("proof@v1", "proof@v2", "'c2sp.org/tlog-proof@v1' as the first line"),
        ("extra ZXh0cmE=\n", "extra \n", "no line 'extra' without data"),
        ("extra ZXh0cmE=\n", "extra ZXh0cmE\n", "expected base64"),
        ("extra ZXh0cmE=\n", "extra ZXh0cmE=\nextra ZXh0cmE=\n", "a line 'index N'"),
        ("index 41", "index 041", "without leading zeros"),
        ("index 41\n", "", "a line 'index N'"),
        ("index 41", "Index 41", "a line 'index N'"),
        ("index 41", f"index {SIZE_MAX + 1}", "at most 2^63 - 1"),
        ("AAAA=\n", "AAAA=\n" * 63, "at most 63 hashes"),
        ("AAAA=\n", "AAAA\n", "expected base64"),
        ("AAAA=\n", "AAAA=\r\n", "expected base64"),
        ("\n\n", "\n", "some lines, an empty line, and a checkpoint"),
        ("index", "\N{GREEK SMALL LETTER IOTA}ndex", "which is ASCII text"),
    ],
)
def test_what_is_no_log_proof(old: str, new: str, says: str) -> None:
    text = PROOF.data.decode()
    assert old in text
    with pytest.raises(NoteError) as caught:
        LogProof.parse(text.replace(old, new, 1 if old != "\n\n" else 2).encode())
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("old 42", "new 42", "a line 'old N'"),
        ("old 42", "old 042", "without leading zeros"),
        ("old 42", "old", "a line 'old N'"),
        ("old 42\n", "", "a line 'old N'"),
        ("AAAA=\n", "AAAA=\n" * 63, "at most 63 hashes"),
        ("AAAA=\n", "AAAB=\n", "canonical base64"),
        ("AAAA=\n", "\n", "expected hashes of 32 bytes|expected base64"),
    ],
)
def test_what_is_no_add_checkpoint_body(old: str, new: str, says: str) -> None:
    text = ADD.data.decode()
    assert old in text
    with pytest.raises(NoteError) as caught:
        AddCheckpoint.parse(text.replace(old, new, 1).encode())
    assert any(each in str(caught.value) for each in says.split("|"))


def test_a_quorum_of_many_witnesses_is_among_the_signatures_that_are_looked_at() -> None:
    many = [SigningKey.from_seed(f"w{i}", bytes([i, 1]) * 16, KIND_COSIGNATURE) for i in range(20)]
    names = [key.verifier.name for key in many]
    policy = read_policy(
        [
            f"log {LOG.verifier}",
            *(f"witness {key.verifier.name} {key.verifier}" for key in many),
            f"group here 4 {' '.join(names[:16])}",
            f"group there all {' '.join(names[16:])}",
            "group both all here there",
            "quorum both",
        ]
    )
    note = NOTE.with_signatures(cosign(NOTE, key, at_unix_s) for key in many for at_unix_s in (1_000, 2_000))
    quorum = policy.fewest(cosignatures(note, policy.keys))
    assert quorum is not None and len(quorum) == 8
    assert not policy.is_met(cosignatures(Note.parse(note.data), policy.keys))
    shown = Note.parse(note.as_looked_at((policy.log, *quorum)).data)
    assert len(shown.signatures) == 16
    assert policy.is_met(cosignatures(shown, policy.keys))
    assert verify(shown, [policy.log]) == (policy.log,)
