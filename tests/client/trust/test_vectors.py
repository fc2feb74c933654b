"""The code against `client/vectors/trust.json`, written by hand from PROTOCOL §10: forms that stay."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client import cluster as clusters
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.verdicts import Accepted, Held, Refused, Verdict, answered
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms import merkle
from kcast.client.trust.forms.checkpoint import AddCheckpoint, Checkpoint, LogProof, cosign, cosignatures
from kcast.client.trust.forms.note import BadSignature, Note, NoteError, SigningKey, VerifierKey, sign, verify
from kcast.client.trust.forms.record import ListRecord, read_record
from tests.support.checkout import ROOT

VECTORS: dict[str, Any] = json.loads((ROOT / "client/vectors/trust.json").read_text(encoding="ascii"))
KEYS = {
    vector["name"]: SigningKey.from_seed(vector["name"], bytes.fromhex(vector["seed_hex"]), vector["type"])
    for vector in VECTORS["keys"]
}
DOCUMENT = documents.check_first(VECTORS["trust_document"]["data"].encode(), VECTORS["trust_document"]["pin"])
ENTRIES = [entry.encode() for entry in VECTORS["log"]["entries"]]
INDEX = VECTORS["log"]["index"]
ROOTS = {each["old_size"]: bytes.fromhex(each["old_root_hex"]) for each in VECTORS["add_checkpoint"]}


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: vector["name"])
def test_keys(vector: dict[str, Any]) -> None:
    key = KEYS[vector["name"]].verifier
    assert (key.public.hex(), key.key_id.hex()) == (vector["public_hex"], vector["key_id"])
    assert str(key) == vector["vkey"]
    assert VerifierKey.parse(vector["vkey"]) == key


def test_the_trust_document() -> None:
    vector = VECTORS["trust_document"]
    _, note = documents.parse(vector["data"].encode())
    assert note.text == DOCUMENT.text == vector["text"]
    assert DOCUMENT.pin == vector["pin"]
    assert note.data == sign(DOCUMENT.text, [KEYS[name] for name in vector["signed_by"]]).data
    assert [key.name for key in DOCUMENT.owners_of(note)] == vector["signed_by"]


def test_the_list_and_its_record() -> None:
    vector = VECTORS["list"]
    data = vector["data"].encode()
    note = Note.parse(data)
    assert sign(note.text, [KEYS[name] for name in vector["signed_by"]]).data == note.data == data
    cluster = clusters.parse(vector["data"])
    assert cluster.signed is not None
    record = ListRecord.of(cluster.name, cluster.signed.version, cluster.signed.trust, data)
    assert record.data.decode() == VECTORS["record"]["data"] == VECTORS["log"]["entries"][INDEX]
    assert (record.size_bytes, record.sha256) == (vector["bytes"], vector["sha256"])
    assert merkle.leaf_hash(record.data).hex() == VECTORS["record"]["leaf_hash_hex"]


def test_the_checkpoint() -> None:
    data = VECTORS["checkpoint"]["data"].encode()
    checkpoint = Checkpoint(
        DOCUMENT.policy.log.name, len(ENTRIES), merkle.root_of(list(map(merkle.leaf_hash, ENTRIES)))
    )
    assert checkpoint.root.hex() == VECTORS["log"]["root_hex"]
    note = sign(checkpoint.text, [KEYS[checkpoint.origin]])
    times = VECTORS["checkpoint"]["cosigned_at_unix_s"]
    note = note.with_signatures(cosign(note, KEYS[name], at_unix_s) for name, at_unix_s in times.items())
    assert note.data == data
    found = cosignatures(Note.parse(data), DOCUMENT.policy.keys)
    assert {key.name: at_unix_s for key, at_unix_s in found.items()} == times


def test_the_proof() -> None:
    data = VECTORS["proof"]["data"].encode()
    proof = LogProof.parse(data)
    assert proof.data == data
    assert (proof.extra, proof.index) == (ENTRIES[INDEX], INDEX)
    assert proof.checkpoint.data == VECTORS["checkpoint"]["data"].encode()


@pytest.mark.parametrize("vector", VECTORS["add_checkpoint"], ids=lambda vector: str(vector["old_size"]))
def test_add_checkpoint_bodies(vector: dict[str, Any]) -> None:
    data = vector["data"].encode()
    added = AddCheckpoint.parse(data)
    assert added.data == data
    assert added.old_size == vector["old_size"]
    assert fault_of_add_checkpoint(data) is None


def verdict_on(latest: str, trust_proof: str) -> Verdict:
    """What a client makes of the vectors, served as files, that has only the trust document."""
    files = {
        "latest.tlog-proof": latest,
        "list/42": VECTORS["list"]["data"],
        "trust/1.tlog-proof": trust_proof,
    }
    judging = judge(Held(VECTORS["trust_document"]["data"].encode()), VECTORS["taken_at_unix_s"])
    return answered(judging, lambda path, bytes_max: files[path].encode() if path in files else None)


def test_a_client_takes_them_all_together() -> None:
    verdict = verdict_on(VECTORS["proof"]["data"], VECTORS["trust_proof"]["data"])
    assert isinstance(verdict, Accepted) and not verdict.warnings
    assert verdict.cluster == clusters.parse(VECTORS["list"]["data"])


IN_PROOFS = [mutant for mutant in VECTORS["mutants"] if mutant["of"] in ("checkpoint", "proof")]
IN_FORMS = [mutant for mutant in VECTORS["mutants"] if mutant not in IN_PROOFS]


@pytest.mark.parametrize("mutant", IN_PROOFS, ids=lambda mutant: f"{mutant['of']}: {mutant['description']}")
def test_a_client_tells_the_same_fault(mutant: dict[str, str]) -> None:
    sound = VECTORS[mutant["of"]]["data"]
    mutated = sound.replace(mutant["old"], mutant["new"], 1)
    latest, trust_proof = (VECTORS[kind]["data"].replace(sound, mutated) for kind in ("proof", "trust_proof"))
    verdict = verdict_on(latest, trust_proof)
    assert isinstance(verdict, Refused)
    assert verdict.fault == mutant["fault"]


def fault_of_document(data: bytes) -> str | None:
    try:
        documents.check_first(data, documents.pin_of(Note.parse(data).text))
    except NoteError:
        return ListFault.TRUST
    return None


def fault_of_list(data: bytes) -> str | None:
    try:
        signers = verify(Note.parse(data), DOCUMENT.signers)
    except BadSignature:
        return ListFault.BAD_SIGNATURE
    except NoteError:
        return ListFault.MALFORMED
    return None if len(signers) >= DOCUMENT.signer_threshold else ListFault.TOO_FEW_SIGNERS


def fault_of_record(data: bytes) -> str | None:
    try:
        read_record(data)
    except NoteError:
        return ListFault.MALFORMED
    return None


def fault_of_add_checkpoint(data: bytes) -> str | None:
    """What a client makes of it that holds the checkpoint of its old size."""
    try:
        added = AddCheckpoint.parse(data)
        checkpoint = Checkpoint.parse(added.checkpoint.text)
    except NoteError:
        return ListFault.MALFORMED
    old_root = ROOTS.get(added.old_size, ROOTS[41])
    extends = merkle.extends(added.old_size, checkpoint.size, added.path, old_root, checkpoint.root)
    return None if extends else ListFault.FORK


FAULT_OF: dict[str, Callable[[bytes], str | None]] = {
    "trust_document": fault_of_document,
    "list": fault_of_list,
    "record": fault_of_record,
    "add_checkpoint": fault_of_add_checkpoint,
}


def data_of(kind: str) -> str:
    vector = VECTORS[kind]
    data: str = (vector[-1] if isinstance(vector, list) else vector)["data"]
    return data


@pytest.mark.parametrize("mutant", IN_FORMS, ids=lambda mutant: f"{mutant['of']}: {mutant['description']}")
def test_mutants_are_refused(mutant: dict[str, str]) -> None:
    data = data_of(mutant["of"])
    assert mutant["old"] in data and mutant["old"] != mutant["new"]
    assert FAULT_OF[mutant["of"]](data.replace(mutant["old"], mutant["new"], 1).encode()) == mutant["fault"]


@pytest.mark.parametrize("vector", VECTORS["vkeys_refused"], ids=lambda vector: vector["description"])
def test_what_is_no_key(vector: dict[str, str]) -> None:
    with pytest.raises(NoteError):
        VerifierKey.parse(vector["vkey"])
