"""Tap files: any bytes give records up to where they make no sense. docs/tap.md."""

import io
import json

from kcast.pubsub.tap import as_json
from kcast.pubsub.tap_format import MAGIC, Continued, Cut, End, FileHead, Record, TapError, decode


def check(data: bytes) -> None:
    """Takes the first byte as the place to cut the rest at, which is a file."""
    if not data:
        return
    cut_at, file = data[0], data[1:]
    records = _read(file)
    if records is None:
        return
    *before, last = records
    assert isinstance(last, Continued | End | Cut)
    assert not any(isinstance(record, Cut) for record in before)
    assert [isinstance(record, FileHead) for record in before][:1] in ([], [True])
    for record in records:
        line = as_json(record)
        assert line.isprintable() and json.loads(line)["record"] == type(record).__name__
    if isinstance(last, Cut):
        assert last.offset <= len(file)
        _check_beginning(file[: last.offset], before)
    _check_beginning(file[:cut_at], records)


def _check_beginning(file: bytes, of: list[Record]) -> None:
    """The records of a file that was cut are the first ones of the whole file, and then the cut."""
    records = _read(file)
    if records is None:
        return
    *before, last = records
    assert before == of[: len(before)]
    assert isinstance(last, Cut) or records == of[: len(records)]


def _read(file: bytes) -> list[Record] | None:
    try:
        return list(decode(io.BytesIO(file)))
    except TapError as error:
        assert str(error).isprintable()
        assert not file.startswith(MAGIC) or file[8:12] != b"\0\0\0\1" or "damaged" in str(error)
        return None
