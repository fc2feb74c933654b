"""client/messages/base64url.py: bytes have one form, and nothing else is read."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcast.client.messages import base64url


@given(st.binary(max_size=100))
def test_what_is_written_is_read(data: bytes) -> None:
    text = base64url.encode(data)
    assert text == urlsafe_b64encode(data).decode().rstrip("=")
    assert base64url.decode(text) == data
    assert base64url.decode_ascii(base64url.encode_ascii(data)) == data


@given(st.binary(max_size=12) | st.text("AQgwEIB-_+/=~ \n", max_size=12).map(str.encode))
def test_what_is_read_is_what_is_written(text: bytes) -> None:
    data = base64url.decode_ascii(text)
    assert data is None or base64url.encode_ascii(data) == text


@pytest.mark.parametrize(
    "text", ["A", "AA==", "AB", "AAB", "AA A", "AA\n", "A+/A", "AAAA=", "\xe9AAA", "AAAAA", "="]
)
def test_what_is_none(text: str) -> None:
    assert base64url.decode(text) is None


def test_surrogates_are_none() -> None:
    assert base64url.decode("AA\udc80A") is None
