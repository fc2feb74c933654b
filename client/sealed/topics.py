"""Names of topics that say whose messages count. Sans-IO. PROTOCOL §9."""

from collections.abc import Iterable
from hashlib import sha256

from kcast.client.sealed import base64url


def topic_start(keys: Iterable[bytes]) -> str:
    """Returns the beginning of the topics on which only the holders of these keys may publish: `~` and 22
    characters, of the hash of the keys' texts, sorted, each with LF."""
    texts = sorted(f"{base64url.encode(key)}\n" for key in set(keys))
    return f"~{base64url.encode(sha256(''.join(texts).encode()).digest()[:16])}"
