"""client/trust/publisher/audit.py: each thing that can be wrong with a published log is found, and named."""

from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("nacl")
pytest.importorskip("pymerkle")

from kcast.client.trust.forms.document import pin_of
from kcast.client.trust.forms.note import Note
from kcast.client.trust.forms.record import ListRecord
from kcast.client.trust.publisher.audit import AuditError, audit
from tests.support.lists import LOG, NAME, OWNERS, SIGNERS, WITNESSES, Lists, document, key

LISTS = 6
TREE_AT = "tile/0/000.p/8"
ENTRIES_AT = "tile/entries/000.p/8"


class Files:
    """A source that has these files."""

    name = "these files"

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def get(self, path: str, bytes_max: int) -> bytes | None:
        data = self.files.get(path)
        return None if data is None else data[: bytes_max + 1]


def published(count: int = LISTS) -> Lists:
    """Returns a log with two trust documents and some lists: entries 0, 1 and 4 to 2, 3, 5, 6, 7 in order."""
    lab = Lists()
    for number in range(count):
        if number == 2:
            lab.publish_document(document(version=2), OWNERS[:3])
        lab.publish()
    return lab


def findings(lab: Lists, pins: dict[int, str] | None = None) -> list[str]:
    return [f"{each.where}: {each.text}" for each in audit(Files(lab.files), pins).findings]


# --- As it should be --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 6])
def test_nothing_is_found_in_a_log_as_it_should_be(count: int) -> None:
    lab = published(count)
    pins = {1: lab.document.pin if count < 3 else document().pin}
    found = audit(Files(lab.files), pins)
    assert found.findings == ()
    assert (found.lists, found.documents, found.pin) == (count, 1 if count < 3 else 2, pins[1])
    assert found.checkpoint.size == count + found.documents


# --- Records ----------------------------------------------------------------------------------------------


def test_two_lists_of_one_version() -> None:
    lab = published()
    lab.version -= 1
    lab.publish(lab.cluster(13))
    assert findings(lab) == [
        "list/6: it is not what entry 7 shows",
        "entry 8: it is another list/6, after entry 7",
    ]


def test_a_version_that_goes_back_or_far_ahead() -> None:
    lab = published()
    lab.version = 2
    lab.publish()
    assert "entry 8: it is another list/3, after entry 4" in findings(lab)
    lab.version = 20_000
    lab.publish()
    text = "it is version 20001, after version 6: one from 7 on should come there"
    assert f"entry 9: {text}" in findings(lab)
    lab = published()
    lab.publish(lab.cluster(version=9))
    lab.publish(lab.cluster(version=8))
    assert "entry 9: it is version 8, after version 9: one from 10 on should come there" in findings(lab)


def test_a_list_under_an_older_trust_document_or_one_that_is_not_logged() -> None:
    lab = published()
    lab.publish(lab.cluster(trust=1))
    assert "entry 8: it is under trust/1, and one before it under trust/2" in findings(lab)
    lab = published()
    lab.publish_document(document(version=3), OWNERS[:3], is_logged=False)
    lab.publish()
    found = findings(lab)
    assert "entry 8: no entry before it is trust/3, which it names" in found
    assert "trust/3: it is not in the log" in found


def test_entries_that_are_no_records_of_this_list() -> None:
    lab = published()
    lab.entries += [b"anything", ListRecord.of("example.org/other", 1, 1, b"").data]
    lab.publish()
    assert findings(lab) == [
        "entry 8: expected a record of a list or of a trust document",
        "entry 9: it is of 'example.org/other', and not of example.org/lab",
    ]


# --- Files ------------------------------------------------------------------------------------------------


def _changed(path: str, change: Callable[[bytes], bytes]) -> Callable[[Lists], None]:
    def apply(lab: Lists) -> None:
        lab.files[path] = change(lab.files[path])

    return apply


def _without(path: str) -> Callable[[Lists], object]:
    return lambda lab: lab.files.pop(path)


def _flip_last(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _other_history(lab: Lists, path: str) -> None:
    """Puts a file there as another history of the same log has it, of the same size."""
    other = Lists()
    for number in range(LISTS):
        if number == 2:
            other.publish_document(document(version=2), OWNERS[:3])
        other.publish(other.cluster(20))
    lab.files[path] = other.files[path]


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (_without("list/4"), "list/4: it is missing: nobody can see what entry 5 shows"),
        (_changed("list/4", _flip_last), "list/4: it is not what entry 5 shows"),
        (_changed("list/4", lambda data: data + b"\n"), "list/4: it is not what entry 5 shows"),
        (_without("list/4.tlog-proof"), "list/4.tlog-proof: it is missing"),
        (_changed("list/4.tlog-proof", _flip_last), "list/4.tlog-proof: expected"),
        (
            lambda lab: lab.files.update({"list/4.tlog-proof": lab.files["list/5.tlog-proof"]}),
            "list/4.tlog-proof: it is not the proof of entry 5",
        ),
        (
            lambda lab: _other_history(lab, "list/4.tlog-proof"),
            "list/4.tlog-proof: its checkpoint of size 6 has another history than the entries",
        ),
        (lambda lab: _other_history(lab, "checkpoint"), "checkpoint: its root is not that of the entries"),
        (_without("trust/2.tlog-proof"), "trust/2.tlog-proof: it is missing"),
        (_without("latest.tlog-proof"), "latest.tlog-proof: it is missing"),
        (
            lambda lab: lab.files.update({"latest.tlog-proof": lab.files["list/5.tlog-proof"]}),
            "latest.tlog-proof: it is not the proof of entry 7",
        ),
        (_without(TREE_AT), f"{TREE_AT}: it is missing, or not"),
        (_changed(TREE_AT, _flip_last), f"{TREE_AT}: it is missing, or not that of the entries"),
        (_without(ENTRIES_AT), f"entries: {ENTRIES_AT} is missing or too short"),
        (_changed(ENTRIES_AT, lambda data: data[:-1]), f"entries: {ENTRIES_AT}: expected a bundle"),
        (
            _changed(ENTRIES_AT, lambda data: data[:-1] + b" "),
            "checkpoint: its root is not that of the entries",
        ),
    ],
)
def test_a_file_that_is_not_what_the_entries_say(spoil: Callable[[Lists], object], finding: str) -> None:
    lab = published()
    spoil(lab)
    assert any(each.startswith(finding) for each in findings(lab)), findings(lab)


# --- Signatures -------------------------------------------------------------------------------------------


def test_too_few_signers_and_an_edit_after_signing() -> None:
    lab = published()
    lab.publish(keys=SIGNERS[:1])
    assert findings(lab) == ["list/7: it is signed by 1 of the 2 signers that it takes"]
    lab = published()
    note = Note.parse(lab.files["list/6"])
    lab.version = 6
    edited = Note(note.text.replace("version 6", "version 7"), note.signatures)
    lab.publish(data=edited.data)
    assert findings(lab) == [f"list/7: the signature of {NAME}/signer-0 is not one of this text"]


def test_a_checkpoint_of_another_log_or_without_its_quorum() -> None:
    lab = published()
    lab.serve_tree(WITNESSES, key(f"{NAME}/log", 0x99))
    assert f"checkpoint: the checkpoint is not signed by the log {NAME}/log" in findings(lab)
    lab.serve_tree(WITNESSES[:4])
    assert "checkpoint: 4 of the 7 witnesses have cosigned" in "".join(findings(lab))
    note = lab.serve_tree(WITNESSES)
    other = published(5).serve_tree(WITNESSES)
    lab.files["checkpoint"] = Note(note.text, (note.signatures[0], *other.signatures[1:])).data
    assert "the cosignature of w0.example.net is not one of this checkpoint" in "".join(findings(lab))


def test_proofs_by_the_former_key_of_the_log_stay_good() -> None:
    lab = published()
    log = key(LOG.verifier.name, 0x77)
    new = document(version=3)
    new = replace(new, policy=replace(new.policy, log=log.verifier))
    lab.publish_document(new, OWNERS[:3])
    lab.log = log
    lab.publish()
    assert findings(lab) == []


def test_what_was_shown_before_is_in_the_log_still() -> None:
    lab = published()
    before = lab.files["checkpoint"]
    lab.publish()
    assert audit(Files(lab.files), held_checkpoint=before).findings == ()
    after = lab.files["checkpoint"]
    lab = published()
    (found,) = audit(Files(lab.files), held_checkpoint=after).findings
    assert (found.where, found.text) == ("checkpoint", "it has 8 entries, and had 9 before")
    _other_history(lab, "checkpoint")
    (found,) = audit(Files(published().files), held_checkpoint=lab.files["checkpoint"]).findings
    assert found.text == "the log does not begin with the 8 entries that it showed before"


# --- Trust documents --------------------------------------------------------------------------------------


def test_another_trust_document_than_the_one_that_is_known() -> None:
    lab = published()
    assert findings(lab, {2: pin_of(Note.parse(lab.trust[1]).text)}) == []
    pin = "A" * 43
    assert findings(lab, {1: pin})[0] == f"trust/1: its pin is {document().pin}, and should be {pin}"
    assert findings(lab, {3: pin})[0] == "trust/3: it is not there, and was shown before"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("trust/1", "these files: no trust document, trust/1, can be used$"),
        ("checkpoint", "these files: checkpoint: it is missing"),
    ],
)
def test_where_there_is_no_log(path: str, complaint: str) -> None:
    lab = published()
    del lab.files[path]
    with pytest.raises(AuditError, match=complaint):
        audit(Files(lab.files))
