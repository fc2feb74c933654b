"""Keys under a passphrase, as PKCS#8 that openssl and `cryptography` read: PBES2 of RFC 8018.

`cryptography` writes 2,048 rounds of PBKDF2 and knows no option for more, so the bytes are put together here.
It is not scrypt, of which openssl refuses as much memory as would be worth it.
"""

from base64 import b64encode
from hashlib import pbkdf2_hmac
from secrets import token_bytes
from textwrap import wrap

from kcast.client.trust.extras import MissingExtra

try:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7
except ImportError:
    raise MissingExtra("a key file") from None

ROUNDS = 1_000_000  # of PBKDF2, which is about a second

_SALT_BYTES = _BLOCK_BYTES = 16
_INTEGER, _OCTETS, _NULL, _OBJECT, _SEQUENCE = 0x02, 0x04, 0x05, 0x06, 0x30  # X.690 8
_PBES2, _PBKDF2 = bytes.fromhex("2a864886f70d01050d"), bytes.fromhex("2a864886f70d01050c")
_HMAC_SHA256, _AES_256_CBC = bytes.fromhex("2a864886f70d0209"), bytes.fromhex("60864801650304012a")


def encrypted(pkcs8: bytes, passphrase: bytes) -> bytes:
    """Returns a key, which is given as PKCS#8 in DER, under a passphrase, in PEM."""
    salt, start = token_bytes(_SALT_BYTES), token_bytes(_BLOCK_BYTES)
    encryptor = Cipher(AES256(pbkdf2_hmac("sha256", passphrase, salt, ROUNDS)), CBC(start)).encryptor()
    padder = PKCS7(8 * _BLOCK_BYTES).padder()
    data = encryptor.update(padder.update(pkcs8) + padder.finalize()) + encryptor.finalize()
    rounds = _der(_INTEGER, ROUNDS.to_bytes(ROUNDS.bit_length() // 8 + 1, "big"))
    derivation = _scheme(_PBKDF2, _SEQUENCE, _der(_OCTETS, salt), rounds, _scheme(_HMAC_SHA256, _NULL))
    scheme = _scheme(_PBES2, _SEQUENCE, derivation, _scheme(_AES_256_CBC, _OCTETS, start))
    text = wrap(b64encode(_der(_SEQUENCE, scheme, _der(_OCTETS, data))).decode(), 64)
    lines = ("-----BEGIN ENCRYPTED PRIVATE KEY-----", *text, "-----END ENCRYPTED PRIVATE KEY-----", "")
    return "\n".join(lines).encode()


def _scheme(name: bytes, kind: int, *parameters: bytes) -> bytes:
    return _der(_SEQUENCE, _der(_OBJECT, name), _der(kind, *parameters))


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)  # of at most 255 bytes
    size = (len(content),) if len(content) < 128 else (0x81, len(content))
    return bytes((tag, *size)) + content
