"""client/cli/format.py: the formats of `kcast sub --format`."""

import time
from collections.abc import Iterator

import pytest

from kcast.client.cli.format import Format, FormatError
from kcast.client.events import Delivery

AT_S = 1470818943.786368  # the example in mosquitto_sub's manual
MESSAGE = Delivery(b"weather/oslo", b"rain", "127.0.0.1:7401", "alice", 7, received_at_s=AT_S)
RAW = Delivery(b"t", b"\x18\x83\n\x1b[2J", "127.0.0.1:7401", received_at_s=AT_S)


@pytest.fixture(autouse=True)
def _local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "XYZ-1")  # an hour east of Greenwich
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_what_a_format_prints() -> None:
    for text, printed in {
        "": b"",
        "plain \u00e6 @ @@": "plain \u00e6 @ @@".encode(),
        "%I %t %p": b"2016-08-10T09:49:03+0100 weather/oslo rain",
        "%l|%m|%s|%x|100%%": b"4|7|127.0.0.1:7401|7261696e|100%",
        r"%t\t%p\n\\\0\e[0m": b"weather/oslo\train\n\\\0\x1b[0m",
    }.items():
        assert Format(text).apply(MESSAGE) == printed
    assert Format("<%m>").apply(RAW) == b"<>", "a raw message has no number"


def test_what_others_sent_is_escaped_and_what_the_format_says_is_not() -> None:
    assert Format(r"\e[1m%p %x").apply(RAW) == b"\x1b[1m\\x18\\x83\\n\\x1b[2J 18830a1b5b324a"
    evil = Delivery(b"a\x1b]0;b\x07", "\u202e\x9b".encode(), "127.0.0.1:7401")
    assert Format("%t|%p").apply(evil) == b"a\\x1b]0;b\\x07|\\u202e\\x9b"


def test_what_is_no_format_is_told() -> None:
    for text, complaint in {
        "%": "% is none of %t %p ",
        "50 %": "% is none of",
        "%z": "%z is none of",
        "%5t": "%5 is none of",
        "@H:@M": "parts of a time, such as @H, were withdrawn: %I is the time",
        "\\q": r"\\q is none of \\\\ \\0",
        "\\": r"\\ is none of",
    }.items():
        with pytest.raises(FormatError, match="^" + complaint):
            Format(text)
