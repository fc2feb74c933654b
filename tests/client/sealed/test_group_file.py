"""sealed/group_file.py: one owner, secrets that each member alone can open, and nothing said of who they
are."""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from time import process_time

import pytest

pytest.importorskip("nacl")


from kcast.client.messages import base64url
from kcast.client.sealed.group_file import (
    FILE_BYTES_MAX,
    MEMBERS_MAX,
    WRAPPED_BYTES,
    GroupFile,
    GroupFileError,
    Head,
    Opened,
    Recipient,
    Role,
    Secrets,
    Term,
    make,
    parse,
)
from kcast.client.sealed.keys import Identity
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

TERM = Term(1, 0, NOW_UNIX_S, NOW_UNIX_S + 100, NOW_UNIX_S + 10)
MIXED = (recipient(OWNER), recipient(BOB, Role.WRITER, is_sender=True), recipient(ALICE, is_sender=True))


def opened(file: GroupFile, who: Identity) -> Opened | None:
    return file.open(who)


def keys(*whose: Identity) -> frozenset[bytes]:
    return frozenset(each.signer.key for each in whose)


def test_a_file_is_read_as_it_was_made_and_each_member_opens_what_its_role_gives() -> None:
    file, data = made(3, 2, members=MIXED)
    assert parse(data) == file
    assert (file.name, file.epoch, file.term.after, file.owner) == (NAME, 3, 2, OWNER.note_key.verifier)
    assert [role for role, _ in file.members] == [Role.READER, Role.READER, Role.WRITER]
    for who in (OWNER, ALICE):
        assert opened(file, who) == (secrets(3), keys(ALICE, BOB))
    assert opened(file, BOB) == (secrets(3)._replace(private=None), keys(ALICE, BOB))
    assert opened(file, MALLORY) is None


def test_where_nobody_is_marked_all_who_read_or_write_are_senders() -> None:
    file, _ = made(members=(OWNER, recipient(BOB, Role.WRITER)))
    found = opened(file, BOB)
    assert found is not None and found.senders == keys(OWNER, BOB)


def test_a_file_tells_strangers_how_many_members_there_are_and_not_who() -> None:
    before, data = made(1, members=MIXED)
    for who in EVERYBODY:  # but for the owner's vkey, which has standard base64, by which it is verified
        for key in (who.signer.key, who.hpke_public):
            assert base64url.encode(key).encode() not in data and key not in data
            assert not any(
                key in line for line in (before.sealed_senders, *(each for _, each in before.members))
            )
    again, _ = made(2, members=MIXED)
    assert not {line for _, line in before.members} & {line for _, line in again.members}


def test_a_member_who_was_removed_opens_nothing_of_the_next_epoch() -> None:
    before, after = made(1)[0], made(2, members=(OWNER, ALICE))[0]
    found = opened(before, BOB)
    assert found is not None and found.secrets == secrets(1)
    assert opened(after, BOB) is None
    for role, line in after.members:  # nor by what is there for others
        assert opened(replace(after, members=((role, line),)), BOB) is None


@pytest.mark.parametrize("moved", ["owner", "group", "epoch", "role", "member"])
def test_a_wrapped_line_counts_where_it_was_made_for_alone(moved: str) -> None:
    file, _ = made(2, members=(ALICE,))
    ((role, line),) = file.members
    head, who, owner = file.head, ALICE, file.owner
    if moved == "owner":  # who has signed a copy of it
        owner = MALLORY.note_key.verifier
    elif moved == "group":
        head = replace(head, name="opsy")
    elif moved == "epoch":
        head = replace(head, term=head.term._replace(epoch=3))
    elif moved == "role":
        role = Role.WRITER
    else:
        who = replace(ALICE, signer=MALLORY.signer)
    other = replace(file, head=head, owner=owner, members=((role, line),))
    assert opened(other, who) is None


def test_what_is_not_of_the_epoch_is_refused() -> None:
    file, _ = made(2, members=(ALICE,))
    with pytest.raises(GroupFileError, match="holds no secrets of this epoch"):
        opened(replace(file, secrets_hash=bytes(32)), ALICE)
    one, two = secrets(2), secrets(3)  # under one hash an owner could give each member another topic secret
    mixed, _ = make(
        OWNER.note_key, NAME, TERM, one._replace(topic_secret=two.topic_secret), [recipient(ALICE)]
    )
    with pytest.raises(GroupFileError, match="holds no secrets of this epoch"):
        opened(replace(mixed, secrets_hash=made(2, members=(ALICE,))[0].secrets_hash), ALICE)
    with pytest.raises(GroupFileError, match="its list of senders is not of this epoch"):
        opened(replace(file, sealed_senders=made(3)[0].sealed_senders), ALICE)
    for weak in (bytes(32), b"\1" + bytes(31)):  # of small order: anybody could open what is sealed for it
        weakened, _ = make(
            OWNER.note_key, NAME, TERM, Secrets(weak, bytes(32)), [recipient(BOB, Role.WRITER)]
        )
        with pytest.raises(GroupFileError, match="holds no secrets of this epoch"):
            opened(weakened, BOB)
    with pytest.raises(GroupFileError, match=f"{BOB.key_text} has a key that seals nothing"):
        make(OWNER.note_key, NAME, TERM, secrets(), [Recipient(BOB.signer.key, bytes(32))])


def test_no_secret_is_in_a_text_of_it() -> None:
    file, data = made()
    for secret in (secrets().private, secrets().topic_secret):
        assert secret is not None
        for text in (repr(secrets()), repr(file), data.decode()):
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
    for cut in (*(data[:at] for at in range(len(data))), data + b"\n", data + data, data[1:]):
        with pytest.raises(GroupFileError):
            parse(cut)


VKEY = str(OWNER.note_key.verifier)
HASH = base64url.encode(bytes(32))
LINES = sorted(base64url.encode(bytes([number]) * WRAPPED_BYTES) for number in range(3))
SENDERS = base64url.encode(bytes(2 * 32 + 16))
HEAD = [
    *("kcast-group 2", "name ops", "epoch 3", "after 2"),
    *("from 1790000000", "fresh-until 1790604800", "until 1797776000"),
]
REST = [
    *(f"owner {VKEY}", f"secrets {HASH}", f"senders {SENDERS}"),
    *(f"reader {LINES[0]}", f"reader {LINES[1]}", f"writer {LINES[2]}"),
]
GOOD = [*HEAD, "rest", "", "—", *REST]  # by their numbers; what lacks is made


def data_of(lines: Sequence[str] = GOOD, signers: Sequence[Identity] = (OWNER,)) -> bytes:
    """Returns a file with these lines, of which some may be more, signed as its owner would."""
    at = lines.index("—")
    rest = "".join(f"{line}\n" for line in lines[at + 1 :]).encode()
    found = f"rest {base64url.encode(sha256(rest).digest())}"
    head = "".join(f"{found if line == 'rest' else line}\n" for line in lines[: at - 1])
    return sign(head, [each.note_key for each in signers]).data + rest


def changed(line: int, *instead: str) -> list[str]:
    return [*GOOD[:line], *instead, *GOOD[line + 1 :]]


def refused(data: bytes) -> str:
    with pytest.raises(GroupFileError) as raised:
        parse(data)
    assert str(raised.value).isprintable()
    return str(raised.value)


def test_it_is_signed_by_its_owner_alone() -> None:
    assert parse(data_of()).epoch == 3
    assert "has not signed it" in refused(data_of(signers=[MALLORY]))
    refused(data_of(signers=[OWNER, MALLORY]))
    head = parse(data_of()).head
    for signatures in (head.note.signatures * 2, ()):
        with pytest.raises(GroupFileError, match=r"expected one signature|has not signed it"):
            replace(head, note=Note(head.note.text, signatures)).verify(OWNER.note_key.verifier)


def test_a_file_of_an_older_format_says_what_to_do() -> None:
    says = refused(b"kcast-group 1\nname ops\n")
    assert says == "an older kcast made it: its owner has to update kcast, and to run 'kcast group renew'"


FORM, TIMES, COUNTS = (
    "expected the head of a group file",
    "which begins before it ends",
    "expected 1 to 1,000 senders",
)
REST_FORM, ORDER = (
    "expected owner, secrets, senders, readers",
    "expected each line of a member once, and sorted",
)


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        (0, ("kcast-group 3",), FORM),
        *(
            (1, (name,), FORM)
            for name in ("name Ops", "name a/b", f"name {'a' * 65}", "name", "name  a", "name a ")
        ),
        *((2, (f"epoch {each}",), FORM) for each in ("03", "٣", "1234567890123", "10000000000000000000")),
        *((line, ("x 1",), FORM) for line in range(7)),
        *((2, ("epoch 0",), TIMES), (3, ("after 3",), TIMES), (5, ("fresh-until 1790000000",), TIMES)),
        *((6, ("until 1790000000",), TIMES), (6, ("until 1790604799",), TIMES)),
        *((7, (f"rest {HASH}=",), FORM), (7, (f"rest {HASH}",), "it was cut or changed on its way")),
        *(
            (10, ("owner x",), "expected NAME"),
            (11, (f"secrets {HASH[:-1]}B",), "expected 32 bytes in base64url"),
        ),
        *((12, (f"senders {each}",), COUNTS) for each in ("AA", SENDERS[:-4], base64url.encode(bytes(16)))),
        *((line, (), REST_FORM) for line in (10, 11, 12)),
        *((13, (f"reader {LINES[2]}",), ORDER), (13, (f"reader {LINES[1]}",), ORDER)),
        *((13, (f"reader {LINES[0]}{each}",), REST_FORM) for each in (" x", "A")),
        *((13, (f"writer {LINES[0]}",), REST_FORM), (15, ("", "x"), REST_FORM), (15, ("x",), REST_FORM)),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(line: int, instead: tuple[str, ...], says: str) -> None:
    assert says in refused(data_of(changed(line, *instead)))


def test_sizes_have_limits() -> None:
    assert f"at most {FILE_BYTES_MAX} bytes" in refused(b"x" * (FILE_BYTES_MAX + 1))
    longest = Term(10**12 - 1, 10**12 - 2, 10**12 - 3, 10**12 - 1, 10**12 - 2)
    make(OWNER.note_key_as("k" * 168), "g" * 64, longest, secrets(), [recipient(BOB)])
    with pytest.raises(GroupFileError, match="expected a head of at most 500 bytes"):
        make(OWNER.note_key_as("k" * 169), "g" * 64, longest, secrets(), [recipient(BOB)])
    lines = sorted(
        base64url.encode(number.to_bytes(WRAPPED_BYTES, "big")) for number in range(MEMBERS_MAX + 1)
    )
    many = [*GOOD[:12], f"senders {base64url.encode(bytes(MEMBERS_MAX * 32 + 16))}"]
    assert COUNTS in refused(data_of(GOOD[:13]))  # nobody is no group
    assert COUNTS in refused(data_of([*many, *(f"reader {line}" for line in lines)]))
    whole = data_of([*many, *(f"reader {line}" for line in lines[1:])])
    assert len(parse(whole).members) == MEMBERS_MAX and len(whole) < FILE_BYTES_MAX


def test_of_a_thousand_members_the_last_one_finds_its_line_in_a_moment_and_then_at_once() -> None:
    """A tenth of a second; the bound is ten times as much, for machines that are busy."""
    members = [Recipient(bytes([number % 256] * 32), BOB.hpke_public) for number in range(MEMBERS_MAX - 1)]
    file, _ = make(OWNER.note_key, NAME, TERM, secrets(), [*members, recipient(ALICE)])
    own = [line for line in file.members if opened(replace(file, members=(line,)), ALICE)]
    large = replace(file, members=(*(line for line in file.members if line not in own), *own))
    spent = []
    for _ in range(2):
        begin = process_time()
        assert opened(large, ALICE) is not None
        spent.append(process_time() - begin)
    assert spent[0] < 1 and spent[1] < spent[0] / 10


def test_base64url_is_canonical() -> None:
    """A second form of the same bytes would be a second text of the same epoch."""
    tail = urlsafe_b64encode(bytes(31) + b"\1").decode().rstrip("=")
    assert parse(data_of(changed(11, f"secrets {tail}"))).secrets_hash[-1] == 1
    assert "expected 32 bytes" in refused(data_of(changed(11, f"secrets {tail[:-1]}F")))


def test_a_head_alone_is_what_members_tell_each_other() -> None:
    file, data = made()
    head = Head.parse(file.head.data)
    head.verify(OWNER.note_key.verifier)
    assert head == file.head and data.startswith(head.data)
    with pytest.raises(GroupFileError, match="has not signed it"):
        head.verify(MALLORY.note_key.verifier)
