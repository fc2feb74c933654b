"""AES-256-GCM-SIV as cryptography has it, against RFC 8452, appendix C."""

import pytest

pytest.importorskip("cryptography")

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

ONE = f"01{'00' * 31}"
THREE = f"03{'00' * 11}"
# key, nonce, additional data, plaintext, result
VECTORS = (  # C.2
    (ONE, THREE, "", "0100000000000000", "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28"),
    (ONE, THREE, "", f"01{'00' * 11}", "9aab2aeb3faa0a34aea8e2b18ca50da9ae6559e48fd10f6e5c9ca17e"),
    (
        *(ONE, THREE, "", f"01{'00' * 15}"),
        "85a01b63025ba19b7fd3ddfc033b3e76c9eac6fa700942702e90862383c6c366",
    ),
    (
        *(ONE, THREE, "", f"01{'00' * 15}02{'00' * 15}"),
        "4a6a9db4c8c6549201b9edb53006cba821ec9cf850948a7c86c68ac7539d027fe819e63abcd020b006a976397632eb5d",
    ),
    (ONE, THREE, "01", "0200000000000000", "1de22967237a813291213f267e3b452f02d01ae33e4ec854"),
)
WRAPS = (  # C.3, where the counter wraps
    "00" * 32,
    "00" * 12,
    "",
    "000000000000000000000000000000004db923dc793ee6497c76dcc03a98e108",
    "f3f80f2cf0cb2dd9c5984fcda908456cc537703b5ba70324a6793a7bf218d3eaffffffff000000000000000000000000",
)


@pytest.mark.parametrize("vector", (*VECTORS, WRAPS), ids=lambda vector: vector[-1][:8])
def test_the_examples_of_the_rfc(vector: tuple[str, ...]) -> None:
    key, nonce, additional, plaintext, result = map(bytes.fromhex, vector)
    cipher = AESGCMSIV(key)
    assert cipher.encrypt(nonce, plaintext, additional) == result
    assert cipher.decrypt(nonce, result, additional) == plaintext
    for bit in range(0, 8 * len(result), 5):
        changed = bytearray(result)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidTag):
            cipher.decrypt(nonce, bytes(changed), additional)
