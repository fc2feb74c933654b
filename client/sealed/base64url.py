"""Base64url (RFC 4648 §5) without `=`, in the one form that some bytes have. Sans-IO. PROTOCOL §9.2."""

from base64 import urlsafe_b64decode, urlsafe_b64encode


def encode(data: bytes) -> str:
    """Returns the characters that stand for some bytes."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes | None:
    """Reads the characters; None where they are not the ones that stand for some bytes."""
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    # Python's decoder passes over what is not base64, and over unused bits.
    return data if encode(data) == text else None
