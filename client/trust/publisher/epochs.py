"""What signers do for placement that nobody can grind: they promise parts of a salt, and show them.

Sans-IO. PROTOCOL §10.9; `kcast.client.trust.checks.salts` checks it. Signers may sit at different machines:
the work file goes round, and each adds what it waits for from him.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kcast.client.clusters.cluster import Cluster, facts_of
from kcast.client.trust.checks.salts import basis_version, commitment_to, last_salt, part_of, salt_of
from kcast.client.trust.forms.note import SigningKey
from kcast.client.trust.publisher.editing import EditError


def is_between_epochs(cluster: Cluster) -> bool:
    """Tells whether a work file waits for parts of a new salt: those that it shows have not made one yet."""
    parts = _parts(cluster)
    return bool(parts) and salt_of(parts) != last_salt(cluster)


def with_dues(cluster: Cluster, signers: Iterable[SigningKey]) -> Cluster:
    """Returns the list with what it waits for from these signers: their parts of a new salt where others show
    theirs, else their promises for the next epoch."""
    version = basis_version(cluster)
    if version is not None and is_between_epochs(cluster):
        return _with_parts(cluster, version, dict(facts_of(cluster).commitments), signers)
    return with_promises(cluster, signers)


def with_promises(cluster: Cluster, signers: Iterable[SigningKey]) -> Cluster:
    """Returns the list with what these signers promise for the next epoch; a promise that stands, stays."""
    facts = facts_of(cluster)
    promised = dict(facts.commitments)
    for key in signers:
        part = part_of(key.seed, cluster.name, last_salt(cluster))
        promised.setdefault(key.verifier.key_id.hex(), commitment_to(part))
    return replace(cluster, signed=replace(facts, commitments=tuple(promised.items())))


def with_parts(cluster: Cluster, basis: Cluster, signers: Iterable[SigningKey], needed: int) -> Cluster:
    """Returns the list with the parts that these signers promised in `basis`, the last list of its epoch;
    parts that others show there, stay.

    Raises EditError where a new epoch cannot come of it.
    """
    facts = facts_of(basis)
    if len(facts.commitments) < needed:
        raise EditError(
            f"a new epoch takes {needed} signers who have promised a part of its salt, and version "
            f"{facts.version} has the promises of {len(facts.commitments)}: the others run 'kcast servers "
            "sign --part', and that list is published before"
        )
    cluster = _with_parts(cluster, facts.version, dict(facts.commitments), signers)
    if not facts_of(cluster).reveals:
        raise EditError(
            f"none of the keys at hand has promised a part of the next salt in version {facts.version}: a "
            "signer whose key has begins the epoch"
        )
    return cluster


def _with_parts(
    cluster: Cluster, version: int, promised: Mapping[str, str], signers: Iterable[SigningKey]
) -> Cluster:
    facts = facts_of(cluster)
    shown = {
        key_id: part for key_id, part, made_in in facts.reveals if made_in == version and key_id in promised
    }
    for key in signers:
        key_id, part = key.verifier.key_id.hex(), part_of(key.seed, cluster.name, last_salt(cluster))
        if promised.get(key_id) == commitment_to(part):
            shown[key_id] = part.hex()
    reveals = tuple((key_id, part, version) for key_id, part in sorted(shown.items()))
    return replace(cluster, signed=replace(facts, reveals=reveals))


def next_epoch(cluster: Cluster, basis: Cluster, now_unix_s: int, from_s: int) -> Cluster:
    """Returns the list as the first one of the epoch after that of `basis`, which is published: the salt that
    the parts make holds `from_s` on, and what was pending there enters."""
    facts, before = facts_of(cluster), facts_of(basis)
    past = [salt for salt, at_s in cluster.next_salts if at_s <= now_unix_s]
    there = {server.name for server in cluster.servers}
    entering = tuple(server for server in before.pending if server.name not in there)
    gone = {server.name for server in entering}
    return replace(
        cluster,
        servers=(*cluster.servers, *entering),
        salt=past[-1] if past else cluster.salt,
        next_salts=(
            *((salt, at_s) for salt, at_s in cluster.next_salts if at_s > now_unix_s),
            (salt_of(_parts(cluster)), from_s),
        ),
        signed=replace(
            facts,
            pending=tuple(server for server in facts.pending if server.name not in gone),
            commitments=(),
        ),
    )


def _parts(cluster: Cluster) -> dict[str, bytes]:
    return {key_id: bytes.fromhex(part) for key_id, part, _ in facts_of(cluster).reveals}
