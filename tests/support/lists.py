"""Signed lists in memory: owners, signers, a log and witnesses, honest or not, made from fixed seeds.

    lab = Lists()
    lab.publish(servers=12)
    verdict = judged(lab.newcomer(), lab.files, lab.now_unix_s)

`files` is what a web server would serve. Attacks change it, or publish with other keys than they should.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kcast.client.cluster import Cluster, ListFacts, ServerEntry, format_cluster, host_key
from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.verdicts import Accepted, Held, NewTrust, Refused, Verdict, Want
from kcast.client.trust.forms import merkle, tiles
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof, cosign
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import KIND_COSIGNATURE, Note, SigningKey, sign
from kcast.client.trust.forms.quorum import Group, Policy, Witness
from kcast.client.trust.forms.record import ListRecord, TrustRecord
from kcast.client.trust.forms.tiles import ENTRIES_LEVEL, Hashes, tile_at, tiles_between

NAME = "example.org/lab"
NOW_UNIX_S = 1_790_000_000
DAY_S = 86_400
FRESH_S = 7 * DAY_S
VALID_S = 90 * DAY_S


def key(name: str, number: int, kind: int = 1) -> SigningKey:
    """Returns the key of a seed that is made of one byte."""
    return SigningKey.from_seed(name, bytes([number]) * 32, kind)


OWNERS = [key(f"{NAME}/owner-{index}", 0x01 + index) for index in range(5)]
SIGNERS = [key(f"{NAME}/signer-{index}", 0x10 + index) for index in range(3)]
LOG = key(f"{NAME}/log", 0x20)
WITNESSES = [key(f"w{index}.example.net", 0x30 + index, KIND_COSIGNATURE) for index in range(7)]


def policy(needed: int = 5, witnesses: Sequence[SigningKey] = WITNESSES, log: SigningKey = LOG) -> Policy:
    """Returns the policy that demands cosignatures of so many of the witnesses."""
    names = [f"w{index}" for index in range(len(witnesses))]
    members = {name: Witness(each.verifier) for name, each in zip(names, witnesses, strict=True)}
    if not needed:
        return Policy(log.verifier, {}, {}, "none")
    return Policy(log.verifier, members, {"q": Group(needed, tuple(names))}, "q")


def document(**changes: Any) -> TrustDocument:
    """Returns trust document 1 of 5 owners, 3 signers and 7 witnesses, with these changes."""
    usual = TrustDocument(
        name=NAME,
        version=1,
        signers=tuple(each.verifier for each in SIGNERS),
        signer_threshold=2,
        owner_threshold=3,
        policy=policy(),
        own_owners=tuple(each.verifier for each in OWNERS),
        floor=3,
    )
    return replace(usual, **changes)


def hosts(count: int, first: int = 0) -> tuple[ServerEntry, ...]:
    """Returns servers on hosts of as many networks."""
    found = []
    for index in range(first, first + count):
        address = f"{20 + index // 65536}.{index // 256 % 256}.{index % 256}.7", 7400
        found.append(ServerEntry((address,), host_key(address)))
    return tuple(found)


@dataclass
class Lists:
    """A publisher of one name, its log, and what they serve."""

    now_unix_s: int = NOW_UNIX_S
    document: TrustDocument = field(default_factory=document)
    owners: Sequence[SigningKey] = tuple(OWNERS)
    log: SigningKey = LOG
    files: dict[str, bytes] = field(default_factory=dict)
    entries: list[bytes] = field(default_factory=list)
    version: int = 0
    trust: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.publish_document(self.document, self.owners)

    # --- Publishing --------------------------------------------------------------------------------------

    def publish_document(
        self, document: TrustDocument, keys: Collection[SigningKey], *, is_logged: bool = True
    ) -> None:
        """Publishes a trust document, signed by these keys. Its entry is in the tree of the next list."""
        self.document = document
        data = sign(document.text, keys).data
        self.trust.append(data)
        self.files[f"trust/{document.version}"] = data
        if is_logged:
            self.entries.append(TrustRecord.of(document.name, document.version, data).data)

    def cluster(self, servers: int | Sequence[ServerEntry] = 12, **facts: Any) -> Cluster:
        """Returns the next list, with these facts instead of the usual ones."""
        of_cluster = ("salt", "name", "policy")
        cluster_changes = {name: facts.pop(name) for name in of_cluster if name in facts}
        signed = ListFacts(
            version=self.version + 1,
            trust=self.document.version,
            valid_after_s=self.now_unix_s,
            fresh_until_s=self.now_unix_s + FRESH_S,
            valid_until_s=self.now_unix_s + VALID_S,
            min_servers=3,
        )
        entries = hosts(servers) if isinstance(servers, int) else tuple(servers)
        usual = Cluster(entries, name=NAME, salt=b"salt", signed=replace(signed, **facts))
        return replace(usual, **cluster_changes)

    def publish(
        self,
        cluster: Cluster | None = None,
        keys: Collection[SigningKey] = (*SIGNERS[:2],),
        witnesses: Collection[SigningKey] = (*WITNESSES[:5],),
        *,
        is_logged: bool = True,
        data: bytes | None = None,
    ) -> bytes:
        """Signs a list by these keys, logs it, has it cosigned, and serves it; returns its bytes."""
        cluster = self.cluster() if cluster is None else cluster
        assert cluster.signed is not None
        data = sign(format_cluster(cluster), keys).data if data is None else data
        record = ListRecord.of(cluster.name, cluster.signed.version, cluster.signed.trust, data)
        if is_logged:
            self.entries.append(record.data)
        index = len(self.entries) - 1
        self.version = cluster.signed.version
        self.files[f"list/{self.version}"] = data
        note = self.serve_tree(witnesses)
        proof = LogProof(record.data, index, self.inclusion(index), note)
        self.files["latest.tlog-proof"] = self.files[f"list/{self.version}.tlog-proof"] = proof.data
        return data

    def serve_tree(self, witnesses: Collection[SigningKey], log: SigningKey | None = None) -> Note:
        """Serves the tree as it is, and returns its checkpoint, cosigned."""
        log = log or self.log
        size = len(self.entries)
        note = sign(Checkpoint(log.verifier.name, size, self.root()).text, [log])
        note = note.with_signatures(cosign(note, each, self.now_unix_s) for each in witnesses)
        self.files["checkpoint"] = note.data
        for tile in tiles_between(0, size):
            self.files[tile.path] = self._tile(tile.level, tile.number, tile.width)
        for number in range(-(-size // tiles.WIDTH)):
            tile = replace(tile_at(0, number, size), level=ENTRIES_LEVEL)
            begin = number * tiles.WIDTH
            self.files[tile.path] = tiles.write_entries(self.entries[begin : begin + tile.width])
        for old_size in range(max(1, size - 64), size):
            body = AddCheckpoint(old_size, self.consistency(old_size), note)
            self.files[f"from/{old_size}"] = body.data
        for index, entry in enumerate(self.entries):
            if entry.startswith(b"kcast-trust-record"):
                version = entry.split(b"\n")[2].decode().removeprefix("version ")
                proof = LogProof(entry, index, self.inclusion(index), note)
                self.files[f"trust/{version}.tlog-proof"] = proof.data
        return note

    # --- The tree ----------------------------------------------------------------------------------------

    @property
    def leaves(self) -> list[bytes]:
        return [merkle.leaf_hash(entry) for entry in self.entries]

    def root(self) -> bytes:
        """Returns the root of the tree."""
        return merkle.root_of(self.leaves)

    def inclusion(self, index: int) -> tuple[bytes, ...]:
        """Returns the proof that an entry is in the tree."""
        return self._hashes(tiles.inclusion_path(index, len(self.entries)))

    def consistency(self, old_size: int) -> tuple[bytes, ...]:
        """Returns the proof that the tree extends an older one."""
        return self._hashes(tiles.consistency_path(old_size, len(self.entries)))

    def _tile(self, level: int, number: int, width: int) -> bytes:
        span = tiles.WIDTH**level
        first, leaves = number * tiles.WIDTH, self.leaves
        return b"".join(
            merkle.root_of(leaves[at * span : (at + 1) * span]) for at in range(first, first + width)
        )

    def _hashes(self, asking: Hashes) -> tuple[bytes, ...]:
        try:
            tile = next(asking)
            while True:
                tile = asking.send(self._tile(tile.level, tile.number, tile.width))
        except StopIteration as done:
            return tuple(done.value)

    # --- Clients -----------------------------------------------------------------------------------------

    def newcomer(self, version: int = 1) -> Held:
        """Returns what a client holds that knows a trust document, and no list yet."""
        return Held(trust=self.trust[version - 1])

    def accepted(self, held: Held | None = None) -> Held:
        """Returns what a client holds after an update, which must succeed."""
        verdict = judged(held or self.newcomer(), self.files, self.now_unix_s)
        assert isinstance(verdict, Accepted), verdict
        return verdict.held

    def judged(self, held: Held | None = None, now_unix_s: int | None = None) -> Verdict:
        """Returns the verdict of a client; of a newcomer where nothing is held."""
        return judged(held or self.newcomer(), self.files, now_unix_s or self.now_unix_s)


def judged(
    held: Held,
    files: Mapping[str, bytes],
    now_unix_s: int = NOW_UNIX_S,
    stored: list[bytes] | None = None,
    asked: list[str] | None = None,
) -> Verdict:
    """Lets a client judge what these files say. New trust documents go into `stored`, paths into `asked`."""
    judgement = judge(held, now_unix_s)
    try:
        step = next(judgement)
        while True:
            if isinstance(step, NewTrust):
                if stored is not None:
                    stored.append(step.data)
                step = judgement.send(None)
                continue
            assert isinstance(step, Want)
            if asked is not None:
                asked.append(step.path)
            data = files.get(step.path)
            step = judgement.send(None if data is None else data[: step.bytes_max + 1])
    except StopIteration as done:
        verdict: Verdict = done.value
        return verdict


def refusal(verdict: Verdict) -> Refused:
    """Returns a verdict that must be a refusal."""
    assert isinstance(verdict, Refused), verdict
    return verdict
