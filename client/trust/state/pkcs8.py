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
except ImportError:
    raise MissingExtra("a key file") from None

ROUNDS = 1_000_000  # of PBKDF2, which is about a second

# DER (X.690), where all lengths are known. 30 is a SEQUENCE, 06 an OBJECT IDENTIFIER, 05 a NULL, 04 an OCTET
# STRING, 02 an INTEGER.
_TO_SALT = bytes.fromhex("3081a4 3060 0609 2a864886f70d01050d 3053 3032 0609 2a864886f70d01050c 3025 0410")
_TO_START = bytes.fromhex("300c 0608 2a864886f70d0209 0500 301d 0609 60864801650304012a 0410")
_BLOCK_BYTES = 16


def encrypted(pkcs8: bytes, passphrase: bytes) -> bytes:
    """Returns an Ed25519 key, which is given as PKCS#8 in DER, 48 bytes, under a passphrase, in PEM."""
    salt, start = token_bytes(_BLOCK_BYTES), token_bytes(_BLOCK_BYTES)
    cipher = Cipher(AES256(pbkdf2_hmac("sha256", passphrase, salt, ROUNDS)), CBC(start))
    data = cipher.encryptor().update(pkcs8 + bytes([_BLOCK_BYTES]) * _BLOCK_BYTES)  # padded: RFC 8018 6.1.1
    rounds = b"\x02\x03" + ROUNDS.to_bytes(3, "big")
    der = b"".join((_TO_SALT, salt, rounds, _TO_START, start, b"\x04\x40", data))
    text = wrap(b64encode(der).decode(), 64)
    lines = ("-----BEGIN ENCRYPTED PRIVATE KEY-----", *text, "-----END ENCRYPTED PRIVATE KEY-----", "")
    return "\n".join(lines).encode()
