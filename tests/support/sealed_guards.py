"""Guards that judge the lines of `client/vectors/sealed.json`, as its lines say who takes them."""

import json
from typing import Any

from kcast.client.events import Drop
from kcast.client.messages.guard_and_writer import Proven
from kcast.client.sealed.guards import Allows, SealedGuard, SignedGuard
from kcast.client.sealed.membership import Group
from kcast.client.sealed.sealing import Epoch
from kcast.client.sealed.signing import parse_key
from kcast.client.sealed.topics import hash_of, parse_certified
from kcast.client.trust.forms.note import SigningKey
from tests.support.sealed_by_hand import SENDERS
from tests.support.sealed_vectors import FILE

VECTORS: dict[str, Any] = json.loads(FILE.read_text(encoding="ascii"))
READ_AT_S: float = VECTORS["read_at_ms"] / 1000
BEGUN_S = READ_AT_S - 1000  # no line of the file is older than that
EPOCHS = [
    Epoch(
        *(vector["group"], vector["number"], 0),
        public=bytes.fromhex(vector["public_hex"]),
        topic_secret=bytes.fromhex(vector["topic_secret_hex"]),
        private=bytes.fromhex(vector["private_hex"]),
        owner=parse_key(vector["owner"]) or b"",
        senders=frozenset(key for text in SENDERS if (key := parse_key(text)) is not None),
    )
    for vector in VECTORS["epochs"]
]
_OWNER = SigningKey.from_seed("owner", bytes(32)).verifier


def group(*epochs: Epoch) -> Group:
    """A group that has these epochs, and does not end."""
    return Group(epochs[0].group, _OWNER, epochs, 1 << 40, max(epoch.number for epoch in epochs))


def allows(keys: frozenset[bytes]) -> Allows:
    """What allows these keys: on a topic that names its senders, if it names all of them and no others."""
    return lambda name, key: key in keys and parse_certified(name) in (None, hash_of(keys))


def guard_of(vector: dict[str, Any]) -> SignedGuard | SealedGuard:
    """A guard, as new, of the subscription that takes a line of the file."""
    keys = frozenset(key for text in vector["senders"] if (key := parse_key(text)) is not None)
    if not vector["epochs"]:
        return SignedGuard(allows(keys), BEGUN_S)
    held = group(*(EPOCHS[at] for at in vector["epochs"]))
    return SealedGuard(held, BEGUN_S, has_plain_topics="/" in vector["topic"])


def judged(
    guard: SignedGuard | SealedGuard, name: bytes, line: bytes, unix_s: float = READ_AT_S
) -> Proven | Drop:
    """What a guard makes of a line without LF, as if it came on a topic of its own."""
    wire_topic, _, message = line.partition(b" ")
    claim: Any = guard.glance(wire_topic, message, unix_s)
    return claim if isinstance(claim, Drop) else guard.judge(name, claim, unix_s)
