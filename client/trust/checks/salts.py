"""Placement that nobody can grind: where the salt comes from, and when a server may enter. Sans-IO.

PROTOCOL §10.9. Whoever knows the salt can try addresses until they lie beside a topic of his choice. So the
order of events is fixed: the signers commit to their parts of the next salt; addresses are made public, as
`pending`; then the parts are revealed, and make the salt by which the pending servers enter. Nobody who chose
an address knew the salt, and nobody who chose a part knew the addresses, if one signer of those who reveal is
honest.

An *epoch* is the time of one salt. All its lists show the parts, and the version of the list that promised
them: the last one of the epoch before. What was neither a server nor pending there may not be a server.

A signer's part is an HMAC, by his key's seed, of the list's name and the salt in force: there is nothing to
store, and nothing to choose once that salt is known.
"""

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256

from kcast.client.clusters.cluster import Cluster, ServerEntry, facts_of
from kcast.client.trust.forms.document import TrustDocument

SALT_BYTES = 16


def last_salt(cluster: Cluster) -> bytes:
    """Returns the salt that holds last of those in a list: that of its epoch."""
    return cluster.next_salts[-1][0] if cluster.next_salts else cluster.salt


def part_of(seed: bytes, name: str, salt: bytes) -> bytes:
    """Returns a signer's part, 32 bytes, of the salt that follows this one."""
    return hmac.digest(seed, f"kcast-salt 1\n{name}\n{salt.hex()}\n".encode(), "sha256")


def commitment_to(part: bytes) -> str:
    """Returns what a signer shows of his part beforehand: its SHA-256 in hex."""
    return sha256(part).hexdigest()


def salt_of(parts: Mapping[str, bytes]) -> bytes:
    """Returns the salt, 16 bytes, that these parts make; they are given by key ID in hex."""
    return sha256(b"".join(parts[key_id] for key_id in sorted(parts))).digest()[:SALT_BYTES]


def basis_version(cluster: Cluster) -> int | None:
    """Returns the version of the list of the epoch before that this one builds on; None in a first epoch."""
    versions = {version for _, _, version in facts_of(cluster).reveals}
    return min(versions, default=None)


def fault_in(cluster: Cluster, basis: Cluster | None, document: TrustDocument) -> str | None:
    """Returns what is wrong with a list's salt or servers against the last list of the epoch before.

    `basis` is None in a first epoch, where nothing can be checked.
    """
    facts = facts_of(cluster)
    if basis is None:
        return None if not facts.reveals else "it shows parts of a salt that no list had promised"
    before = facts_of(basis)
    promised = dict(before.commitments)
    parts: dict[str, bytes] = {}
    for key_id, part, version in facts.reveals:
        if version != before.version:
            return f"it shows parts that versions {version} and {before.version} promised: one is expected"
        if key_id not in promised:
            return f"key {key_id} shows a part of the salt that version {version} had not promised"
        if commitment_to(bytes.fromhex(part)) != promised[key_id]:
            return f"key {key_id} shows another part of the salt than version {version} had promised"
        parts[key_id] = bytes.fromhex(part)
    if len(parts) < document.signer_threshold:
        return (
            f"{len(parts)} signers show their part of the salt, and it takes {document.signer_threshold}; "
            "the epoch goes on until they do"
        )
    if last_salt(cluster) != salt_of(parts):
        return "its salt is not the one that its parts make"
    unknown = _entering(cluster, basis)
    if unknown:
        return f"{unknown[0]} was not pending in version {before.version}" + (
            f", nor were {len(unknown) - 1} more" if len(unknown) > 1 else ""
        )
    return None


def fault_against(cluster: Cluster, former: Cluster) -> str | None:
    """Returns what is wrong with a list's salt or servers against one before it, which a client holds: epochs
    do not go back, and within one the salt stays. In a first epoch no server enters, either."""
    version = facts_of(former).version
    basis, before = basis_version(cluster) or 0, basis_version(former) or 0
    if basis < before:
        rests = f"version {basis}" if basis else "no version"
        return f"its salt rests on {rests}, and that of version {version} on version {before}"
    if basis > before:
        return None
    if last_salt(cluster) != last_salt(former):
        return f"its salt is another one than that of version {version}, in the same epoch"
    entering = sorted(_names(cluster.servers) - _names(former.servers))
    if entering and not basis:
        return f"{entering[0]} entered within an epoch; version {version} did not have it"
    return None


def _entering(cluster: Cluster, basis: Cluster) -> list[str]:
    return sorted(_names(cluster.servers) - _names(basis.servers) - _names(facts_of(basis).pending))


def _names(servers: Iterable[ServerEntry]) -> set[str]:
    return {server.name for server in servers}
