"""What signers do for placement that nobody can grind: they promise parts of a salt, and show them.

Sans-IO. PROTOCOL §10.9; `kcast.client.trust.checks.salts` checks it.
"""

from collections.abc import Iterable
from dataclasses import replace

from kcast.client.cluster import Cluster
from kcast.client.trust.checks.salts import commitment_to, last_salt, part_of, salt_of
from kcast.client.trust.forms.note import SigningKey
from kcast.client.trust.publisher.editing import EditError, facts_of


def with_promises(cluster: Cluster, signers: Iterable[SigningKey]) -> Cluster:
    """Returns the list with what these signers promise for the next epoch; a promise that stands, stays."""
    facts = facts_of(cluster)
    promised = dict(facts.commitments)
    for key in signers:
        part = part_of(key.seed, cluster.name, last_salt(cluster))
        promised.setdefault(key.verifier.key_id.hex(), commitment_to(part))
    return replace(cluster, signed=replace(facts, commitments=tuple(promised.items())))


def next_epoch(
    cluster: Cluster, basis: Cluster, signers: Iterable[SigningKey], needed: int, now_unix_s: int, from_s: int
) -> Cluster:
    """Returns the list as the first one of the epoch after that of `basis`, which is published: these signers
    show their parts, the salt that these make holds `from_s` on, and what was pending there enters.

    Raises EditError where fewer than `needed` of them have promised a part.
    """
    facts, before = facts_of(cluster), facts_of(basis)
    promised = dict(before.commitments)
    parts = {
        key.verifier.key_id.hex(): part_of(key.seed, basis.name, last_salt(basis))
        for key in signers
        if key.verifier.key_id.hex() in promised
    }
    if len(parts) < needed:
        raise EditError(
            f"a new epoch takes {needed} signers who have promised a part of its salt in version "
            f"{before.version}, and the keys of {len(parts)} are at hand"
        )
    past = [salt for salt, at_s in cluster.next_salts if at_s <= now_unix_s]
    there = {server.name for server in cluster.servers}
    entering = tuple(server for server in before.pending if server.name not in there)
    gone = {server.name for server in entering}
    return replace(
        cluster,
        servers=(*cluster.servers, *entering),
        salt=past[-1] if past else cluster.salt,
        next_salts=(*((s, at) for s, at in cluster.next_salts if at > now_unix_s), (salt_of(parts), from_s)),
        signed=replace(
            facts,
            pending=tuple(server for server in facts.pending if server.name not in gone),
            commitments=(),
            reveals=tuple((key_id, part.hex(), before.version) for key_id, part in sorted(parts.items())),
        ),
    )
