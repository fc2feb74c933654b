"""client/trust/forms/record.py: an entry has one right form, so that each list has one leaf."""

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.forms.record import ListRecord, TrustRecord, read_record

LIST = ListRecord.of("example.org/lab", 2, 1, b"list").data
TRUST = TrustRecord.of("example.org/lab", 2, b"document").data


@pytest.mark.parametrize("data", [LIST, TRUST])
def test_a_record_has_one_form(data: bytes) -> None:
    assert read_record(data).data == data
    for other in (data + b"\n", data[:-1], b"\n" + data, data.replace(b"\n", b"\r\n")):
        with pytest.raises(NoteError):
            read_record(other)


@pytest.mark.parametrize("name", ["", "../lab", "Lab", "lab ", "a" * 65])
def test_the_name_of_a_record_is_one_of_a_list(name: str) -> None:
    for data in (LIST, TRUST):
        with pytest.raises(NoteError, match="expected a record in its one right form"):
            read_record(data.replace(b"example.org/lab", name.encode()))
