"""client/cli/format.py: the formats of `kcast sub --format`."""

import json
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


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", b""),
        ("plain \u00e6", "plain \u00e6".encode()),
        ("%I %t %p", b"2016-08-10T09:49:03+0100 weather/oslo rain"),
        ("%U", b"1470818943.786368"),
        ("%l|%m|%i|%s", b"4|7|alice|127.0.0.1:7401"),
        ("%x %X", b"7261696e 7261696E"),
        ("%.2x", b"72 61 69 6e"),
        ("%.2:X", b"72:61:69:6E"),
        ("100%%", b"100%"),
        ("%15t|", b"   weather/oslo|"),
        ("%-15t|", b"weather/oslo   |"),
        ("%.4t|%6.4t", b"weat|  weat"),
        ("%05l|%-5l|%05t", b"00004|4    |weather/oslo"),
        ("@H:@M:@S.@N @@ @Y-@m-@d", b"09:49:03.786368000 @ 2016-08-10"),
        (r"%t\t%p\n\\\0\e[0m", b"weather/oslo\train\n\\\0\x1b[0m"),
    ],
)
def test_what_a_format_prints(text: str, printed: bytes) -> None:
    assert Format(text).apply(MESSAGE) == printed


def test_a_raw_message_has_no_publisher_and_no_number() -> None:
    assert Format("<%i%m%3m>").apply(RAW) == b"<   >"


def test_a_message_that_is_proven_has_a_sender_and_a_group() -> None:
    assert Format("<%k|%g>").apply(MESSAGE._replace(sender="6kps", group="ops")) == b"<6kps|ops>"
    assert Format("<%k|%g>").apply(MESSAGE) == b"<|>"


def test_what_others_sent_is_escaped_and_what_the_format_says_is_not() -> None:
    assert Format(r"\e[1m%p %x").apply(RAW) == b"\x1b[1m\\x18\\x83\\n\\x1b[2J 18830a1b5b324a"
    evil = Delivery(b"a\x1b]0;b\x07", "\u202e\x9b".encode(), "127.0.0.1:7401")
    assert Format("%t|%p").apply(evil) == b"a\\x1b]0;b\\x07|\\u202e\\x9b"


@pytest.mark.parametrize(
    ("most", "printed"),
    [
        (0, b""),
        (1, b"a"),
        (2, b"a"),
        (3, "a\u00e6".encode()),
        (6, "a\u00e6".encode()),
        (7, b"a\xc3\xa6\\x1b"),
    ],
)
def test_no_character_and_no_escape_is_cut(most: int, printed: bytes) -> None:
    message = Delivery("a\u00e6\x1b\xff".encode(), "a\u00e6\x1bz".encode(), "127.0.0.1:7401")
    assert Format(f"%.{most}p").apply(message) == printed
    assert Format(f"%.{most}t").apply(message) == printed


def test_json_is_of_one_line_and_in_ascii() -> None:
    printed = Format("%j").apply(RAW)
    assert printed.isascii() and b"\x1b" not in printed and b"\n" not in printed
    assert json.loads(printed)["tst"] == "2016-08-10T08:49:03.786Z"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("%", r"'%' ends too early: write %% for a percent sign"),
        ("50 %", r"'%' ends too early"),
        ("%5", r"'%5' ends too early"),
        ("%z", r"%z is none of %t %p "),
        ("%q", r"%q: there is no QoS, and nothing is retained"),
        ("%C", r"%C: a property of MQTT 5"),
        ("%d", r"%d: payloads are not read as numbers"),
        ("%J", r"%J: %j quotes the payload"),
        ("%9999t", r"%9999t: at most 999 characters"),
        ("%.2:t", r"%.2:t: : may stand only in %.2:x"),
        ("@", r"@ is no part of a time"),
        ("@Q", r"@Q is no part of a time"),
        ("\\", r"\\ is none of \\\\ \\0"),
        ("\\q", r"\\q is none of \\\\ \\0"),
    ],
)
def test_what_no_format_says(text: str, complaint: str) -> None:
    with pytest.raises(FormatError, match="^" + complaint):
        Format(text)
