"""sealed/group_file.py: one form, one owner, and secrets that each member alone can open."""

from base64 import urlsafe_b64encode
from hashlib import sha256

import pytest

pytest.importorskip("nacl")

from hypothesis import given
from hypothesis import strategies as st

from kcast.client.messages import base64url
from kcast.client.sealed import group_file
from kcast.client.sealed.group_file import (
    FILE_BYTES_MAX,
    MEMBERS_MAX,
    WRAPPED_BYTES,
    GroupFile,
    GroupFileError,
    Recipient,
    Role,
    Secrets,
    Term,
    Wrapped,
    make,
    parse,
    parse_text,
)
from kcast.client.trust.forms.note import Note, sign
from tests.support.groups import (
    ALICE,
    BOB,
    EVERYBODY,
    MALLORY,
    NAME,
    NOW_UNIX_S,
    OWNER,
    made,
    recipient,
    secrets,
)

MIXED = (recipient(OWNER), recipient(BOB, Role.WRITER, is_sender=True), recipient(ALICE, is_sender=True))


def opened(file: GroupFile, who: object) -> Secrets | None:
    return file.open(who.signer.key, who.hpke_private)  # type: ignore[attr-defined]


def test_a_file_is_read_as_it_was_made() -> None:
    file, data = made(3, 2, members=MIXED)
    assert parse(data) == file
    assert (file.name, file.epoch, file.term.after, file.owner) == (NAME, 3, 2, OWNER.note_key.verifier)
    assert set(file.senders) == {ALICE.signer.key, BOB.signer.key}
    assert [each.role for each in file.members] == [Role.READER, Role.READER, Role.WRITER]
    assert file.public_hash == sha256(secrets(3).public).digest()


def test_each_member_opens_what_its_role_gives_and_nobody_else_does() -> None:
    file, _ = made(3, members=MIXED)
    assert opened(file, OWNER) == opened(file, ALICE) == secrets(3)
    assert opened(file, BOB) == secrets(3)._replace(private=None)
    assert opened(file, MALLORY) is None
    assert file.role_of(BOB.signer.key) is Role.WRITER and file.role_of(MALLORY.signer.key) is None


def test_a_member_who_was_removed_cannot_open_the_next_epoch() -> None:
    before, _ = made(1)
    after, _ = made(2, members=(OWNER, ALICE))
    assert opened(before, BOB) == secrets(1)
    assert opened(after, BOB) is None
    for line in after.members:  # nor by what is there for others
        stolen = GroupFile(
            NAME,
            after.owner,
            after.term,
            after.public_hash,
            (),
            (Wrapped(BOB.signer.key, line.role, line.data),),
        )
        with pytest.raises(GroupFileError, match="is not for the key that belongs to it"):
            opened(stolen, BOB)


@pytest.mark.parametrize("moved", ["group", "epoch", "role", "member"])
def test_a_wrapped_line_counts_where_it_was_made_for_alone(moved: str) -> None:
    file, _ = made(2, members=(ALICE,))
    (line,) = file.members
    name, term, key = file.name, file.term, ALICE.signer.key
    if moved == "group":
        name = "opsy"
    elif moved == "epoch":
        term = Term(3, 2, NOW_UNIX_S, NOW_UNIX_S + 1)
    elif moved == "role":
        line = Wrapped(key, Role.WRITER, line.data)
    else:
        key = MALLORY.signer.key
        line = Wrapped(key, line.role, line.data)
    other = GroupFile(name, file.owner, term, file.public_hash, (), (line,))
    with pytest.raises(GroupFileError, match="is not for the key"):
        other.open(key, ALICE.hpke_private)


def test_secrets_that_are_not_those_of_the_epoch_are_refused() -> None:
    (line,) = made(2, members=(ALICE,))[0].members
    other = GroupFile(NAME, OWNER.note_key.verifier, Term(2, 1, 1, 2), bytes(32), (), (line,))
    with pytest.raises(GroupFileError, match="holds no secrets of this epoch"):
        opened(other, ALICE)


@pytest.mark.parametrize("public", [bytes(32), b"\1" + bytes(31)])
def test_an_epoch_whose_public_key_is_of_small_order_is_refused(public: bytes) -> None:
    weak = Secrets(public, bytes(32))
    term = Term(1, 0, NOW_UNIX_S, NOW_UNIX_S + 1)
    file, _ = make(OWNER.note_key, NAME, term, weak, [recipient(BOB, Role.WRITER)])
    with pytest.raises(GroupFileError, match="holds no secrets of this epoch"):
        opened(file, BOB)


def test_a_member_whose_key_is_of_small_order_gets_no_line() -> None:
    weak = Recipient(BOB.signer.key, bytes(32))
    with pytest.raises(GroupFileError, match=f"{BOB.key_text} has a key that seals nothing"):
        make(OWNER.note_key, NAME, Term(1, 0, 1, 2), secrets(), [weak])


def test_no_secret_is_in_a_text_of_it() -> None:
    file, data = made()
    for secret in (secrets().private, secrets().topic_secret):
        assert secret is not None
        for text in (repr(secrets()), repr(file), file.text):
            assert repr(secret)[2:-1] not in text and base64url.encode(secret) not in text
        assert secret not in data


def test_every_byte_counts() -> None:
    """Whatever one byte is changed to, the file is refused in one line: its owner has signed another one."""
    _, data = made(members=(ALICE,))
    for at in range(len(data)):
        for flipped in (1, 0x20, 0x80):
            changed = data[:at] + bytes((data[at] ^ flipped,)) + data[at + 1 :]
            with pytest.raises(GroupFileError) as raised:
                parse(changed)
            assert str(raised.value).isprintable()
    for cut in (data[:-1], data + b"\n", data + data, b"", data[1:]):
        with pytest.raises(GroupFileError):
            parse(cut)


def test_a_file_has_one_signature_that_of_its_owner() -> None:
    file, data = made()
    for signers in ([MALLORY.note_key], [OWNER.note_key, MALLORY.note_key_as("other")]):
        with pytest.raises(GroupFileError, match=r"has not signed it|expected one signature"):
            parse(sign(file.text, signers).data)
    assert sign(file.text, [OWNER.note_key]).data == data
    doubled = Note(file.text, Note.parse(data).signatures * 2)
    with pytest.raises(GroupFileError, match="expected one signature"):
        parse(doubled.data)


KEYS = sorted(base64url.encode(each.signer.key) for each in EVERYBODY)
VKEY = str(OWNER.note_key.verifier)
HASH = base64url.encode(bytes(32))
SEALED = base64url.encode(bytes(WRAPPED_BYTES))
GOOD = [
    "kcast-group 1",
    "name ops",
    f"owner {VKEY}",
    "epoch 3",
    "after 2",
    "from 1790000000",
    "until 1797776000",
    f"public {HASH}",
    f"sender {KEYS[0]}",
    f"reader {KEYS[0]} {SEALED}",
    f"reader {KEYS[1]} {SEALED}",
    f"writer {KEYS[2]} {SEALED}",
]


def text_with(line: int, *instead: str) -> str:
    return "".join(f"{each}\n" for each in (*GOOD[:line], *instead, *GOOD[line + 1 :]))


def test_the_good_text_is_one() -> None:
    text = text_with(0, GOOD[0])
    assert parse_text(text).text == text


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        (0, ("kcast-group 2",), "line 1: expected 'kcast-group 1', not 'kcast-group 2'"),
        (1, ("name Ops",), "line 2: expected a group's name"),
        (1, ("name a/b",), "line 2: expected a group's name"),
        (1, (f"name {'a' * 65}",), "line 2: expected a group's name"),
        (1, ("name",), "line 2: expected 'name' and one value"),
        (1, ("name  ops",), "line 2: expected 'name' and one value"),
        (1, ("name ops ",), "line 2: expected 'name' and one value"),
        (1, (), "line 2: expected 'name' and one value, not 'owner"),
        (2, ("owner x",), "line 3: expected NAME"),
        (3, ("epoch 0",), "line 4: expected epochs to count from 1"),
        (3, ("epoch 03",), "line 4: expected a number"),
        (3, ("epoch ٣",), "line 4: expected a number"),
        (3, ("epoch 1234567890123",), "line 4: expected a number of at most 12 digits"),
        (4, ("after 3",), "line 5: expected an epoch before 3, not 3"),
        (6, ("until 1790000000",), "line 7: expected a time after that of 'from'"),
        (7, (f"public {HASH}=",), "line 8: expected 32 bytes in base64url"),
        (7, (f"public {HASH[:-1]}B",), "line 8: expected 32 bytes in base64url"),
        (8, (f"sender {KEYS[1]}", f"sender {KEYS[0]}"), "line 10: expected each key once, and sorted"),
        (8, (f"sender {KEYS[0]}",) * 2, "line 10: expected each key once, and sorted"),
        (8, (f"sender {KEYS[0]} x",), "line 9: expected 'sender' and 1 values"),
        (9, (f"reader {KEYS[2]} {SEALED}",), "line 11: expected each key once, and sorted"),
        (9, (f"reader {KEYS[0]}",), "line 10: expected 'reader' and 2 values"),
        (9, (f"reader {KEYS[0]} {SEALED[:-4]}",), "line 10: expected 112 bytes in base64url"),
        (
            9,
            (f"writer {KEYS[0]} {SEALED}",),
            "line 11: expected sorted 'sender', 'reader' and 'writer' lines",
        ),
        (11, (f"writer {KEYS[1]} {SEALED}",), "line 12: expected each member in one role"),
        (11, ("", "x"), "line 12: expected sorted 'sender', 'reader' and 'writer' lines, not ''"),
    ],
)
def test_a_text_that_is_none_is_told_by_its_line(line: int, instead: tuple[str, ...], says: str) -> None:
    with pytest.raises(GroupFileError) as raised:
        parse_text(text_with(line, *instead))
    assert str(raised.value).startswith(says) and "\n" not in str(raised.value)


def test_nobody_is_no_group() -> None:
    with pytest.raises(GroupFileError, match="expected a 'reader' or a 'writer'"):
        parse_text("".join(f"{line}\n" for line in GOOD[:8]))
    with pytest.raises(GroupFileError, match="ends with LF"):
        parse_text(text_with(0, GOOD[0])[:-1])


def test_sizes_have_limits() -> None:
    with pytest.raises(GroupFileError, match=f"at most {FILE_BYTES_MAX} bytes"):
        parse(b"x" * (FILE_BYTES_MAX + 1))
    keys = sorted(base64url.encode(number.to_bytes(32, "big")) for number in range(MEMBERS_MAX + 1))
    lines = [*GOOD[:8], *(f"sender {key}" for key in keys[:-1]), *(f"reader {key} {SEALED}" for key in keys)]
    with pytest.raises(GroupFileError, match="at most 1,000 members"):
        parse_text("".join(f"{line}\n" for line in lines))
    whole = "".join(f"{line}\n" for line in lines[:-1])
    assert len(parse_text(whole).members) == MEMBERS_MAX
    assert len(sign(whole, [OWNER.note_key]).data) < FILE_BYTES_MAX


@given(st.binary(max_size=80), st.integers(0, len(GOOD)))
def test_any_line_gives_a_value_of_one_form_or_an_error_of_one_line(line: bytes, at: int) -> None:
    text = text_with(at, line.decode("utf-8", "replace"))
    try:
        file = parse_text(text)
    except GroupFileError as error:
        assert str(error).isprintable()
    else:
        assert file.text == text


def test_base64url_is_canonical() -> None:
    """A second form of the same bytes would be a second text of the same epoch."""
    tail = urlsafe_b64encode(bytes(31) + b"\1").decode().rstrip("=")
    assert group_file.parse_text(text_with(7, f"public {tail}")).public_hash[-1] == 1
    with pytest.raises(GroupFileError):
        group_file.parse_text(text_with(7, f"public {tail[:-1]}F"))
