"""Heads: what servers say of a log, as `43.wC6t8T2LVJ9KBV5PVNJGOQ`. Sans-IO. PROTOCOL §10.8.

A head is the size of the log's tree, a point, and the first 16 bytes of its root in base64url. Any server can
lie, so a head is a hint: it may lead to a look at the log, and never says anything of a list by itself.
"""

import re
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping

from kcast.client.trust.forms.checkpoint import Checkpoint

_ROOT_BYTES = 16
_HEAD = re.compile("(0|[1-9][0-9]{0,8})\\.([A-Za-z0-9_-]{22})")  # 32 characters at most (§5.1)


def head_of(checkpoint: Checkpoint) -> str:
    """Returns the head of a tree."""
    root = urlsafe_b64encode(checkpoint.root[:_ROOT_BYTES]).decode().rstrip("=")
    return f"{checkpoint.size}.{root}"


def newer_heads(heads: Mapping[str, str], held: Checkpoint) -> dict[str, int]:
    """Returns which servers tell of a larger tree, or of another one of this size, with the size told.

    What is no head, or that of an older tree, says nothing.
    """
    ours = head_of(held)
    found = {server: _HEAD.fullmatch(head) for server, head in heads.items() if head != ours}
    sizes = {server: int(head[1]) for server, head in found.items() if head is not None}
    return {server: size for server, size in sizes.items() if size >= held.size}


def told(newer: Mapping[str, int], heads: Mapping[str, str], held: Checkpoint) -> str:
    """Returns `held 42, 3 of 5 servers say 43`."""
    ((size, count),) = Counter(newer.values()).most_common(1)
    another = "another " if size == held.size else ""
    say = "says" if count == 1 and len(heads) == 1 else "say"
    return f"held {held.size}, {count} of {len(heads)} servers {say} {another}{size}"
