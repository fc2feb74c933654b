"""Group files: any bytes give a value, or an error of one line; and one file has one owner.

The first byte says whether the rest is a file, or what one says before it is signed: no mutant of a file is.
"""

from hashlib import sha256

from kcast.client.messages import base64url
from kcast.client.sealed import group_file
from kcast.client.sealed.group_file import GroupFileError
from kcast.client.trust.forms.note import NoteError, sign
from tests.fuzz.signed_forms import MESSAGE_CHARS_MAX
from tests.support.groups import ALICE, OWNER

_HEAD_LINES = 7


def check(data: bytes) -> None:
    """Reads a file, or what becomes one once it is signed."""
    try:
        found = _signed(data[1:]) if data[:1] == b"t" else data[1:]
        file = group_file.parse(found)
        assert found.startswith(file.head.data) and file.owner == OWNER.note_key.verifier
        _check_opened(file)
    except (GroupFileError, NoteError) as error:
        assert str(error).isprintable() and len(str(error)) <= MESSAGE_CHARS_MAX, str(error)


def _signed(data: bytes) -> bytes:
    lines = data.split(b"\n", _HEAD_LINES + 1)
    rest = lines[-1]
    head = b"\n".join(lines[:_HEAD_LINES]).decode(errors="replace")
    return sign(f"{head}\nrest {base64url.encode(sha256(rest).digest())}\n", [OWNER.note_key]).data + rest


def _check_opened(file: group_file.GroupFile) -> None:
    """A member gets the epoch's secrets, or a GroupFileError."""
    opened = file.open(ALICE)
    assert opened is None or opened.secrets.public
