"""Group files: any bytes give a value of one form, or an error of one line; and one text has one owner.

The first byte says whether the rest is a file, or the text of one: no mutant of a file is signed.
"""

from kcast.client.sealed import group_file
from kcast.client.sealed.group_file import GroupFileError
from kcast.client.trust.forms.note import sign
from tests.fuzz.signed_forms import MESSAGE_CHARS_MAX
from tests.support.groups import ALICE, OWNER


def check(data: bytes) -> None:
    """Reads a file or a text, and writes it again."""
    try:
        if data[:1] == b"t":
            text = data[1:].decode("utf-8", "replace")
            file = group_file.parse_text(text)
            assert file.text == text
            _check_signed(file)
        else:
            file = group_file.parse(data[1:])
            assert sign(file.text, [OWNER.note_key]).data == data[1:]
        _check_opened(file)
    except GroupFileError as error:
        assert str(error).isprintable() and len(str(error)) <= MESSAGE_CHARS_MAX, str(error)


def _check_signed(file: group_file.GroupFile) -> None:
    """A sound text is a sound file once its owner has signed it, and only then."""
    data = sign(file.text, [OWNER.note_key]).data
    if file.owner == OWNER.note_key.verifier:
        assert group_file.parse(data) == file
        return
    try:
        group_file.parse(data)
    except GroupFileError:
        return
    raise AssertionError("a file was taken that its owner has not signed")


def _check_opened(file: group_file.GroupFile) -> None:
    """A member gets the epoch's secrets, or a GroupFileError."""
    secrets = file.open(ALICE.signer.key, ALICE.hpke_private)
    assert (secrets is None) == (file.role_of(ALICE.signer.key) is None)
