"""Base64url (RFC 4648 §5) without `=`, in the one form that some bytes have. Sans-IO. PROTOCOL §9.2."""

from binascii import Error, a2b_base64, b2a_base64

_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")  # what base64url has not becomes what base64 has not
_PADDING = (b"", b"", b"==", b"=")  # by the number of characters modulo 4; a remainder of 1 is an error
_LAST = (b"", b"", b"AQgw", b"AEIMQUYcgkosw048")  # the last characters whose unused bits are zero


def encode(data: bytes) -> str:
    """Returns the characters that stand for some bytes."""
    return encode_ascii(data).decode("ascii")


def decode(text: str) -> bytes | None:
    """Reads the characters; None where they are not the ones that stand for some bytes."""
    return decode_ascii(text.encode("utf-8", "replace"))


def encode_ascii(data: bytes) -> bytes:
    """Returns the characters that stand for some bytes, as ASCII."""
    return b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=")


def decode_ascii(text: bytes) -> bytes | None:
    """Reads the characters, as ASCII; None where they are not the ones that stand for some bytes."""
    over = len(text) & 3
    try:
        data = a2b_base64(text.translate(_FROM_URL) + _PADDING[over], strict_mode=True)
    except Error:
        return None
    return None if over and text[-1] not in _LAST[over] else data  # Python passes over unused bits
