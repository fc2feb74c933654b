"""client/trust/publisher/publishing.py and drafts.py: what is published, what is not, and in which order."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from shutil import copytree, rmtree
from typing import Any

import pytest

pytest.importorskip("nacl")
pytest.importorskip("pymerkle")

from kcast.client.cluster import facts_of
from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.meeting import hosts_changed
from kcast.client.trust.checks.verdicts import Accepted, Held, Verdict, answered
from kcast.client.trust.forms.checkpoint import cosign
from kcast.client.trust.forms.note import KIND_COSIGNATURE, Note, SigningKey, sign
from kcast.client.trust.forms.quorum import Witness
from kcast.client.trust.publisher.audit import audit
from kcast.client.trust.publisher.cosigning import Asked
from kcast.client.trust.publisher.drafts import Incomplete, Waiting
from kcast.client.trust.publisher.editing import EditError, with_servers, without_servers
from kcast.client.trust.publisher.founding import Terms, changed
from kcast.client.trust.publisher.publishing import NotPublished
from kcast.client.trust.publisher.signing import signed
from kcast.client.trust.publisher.workplace import read_note, write_note
from kcast.client.trust.reach.sources import FolderSource
from tests.support.forms import Seeds
from tests.support.killed import forked, killed_at
from tests.support.list_publisher import HOSTS, NAME, NOW_S, ListPublisher, key

DAY_S = 86_400
MANY = [f"192.0.2.{20 + number}:7400" for number in range(5)]


def first_contact(publisher: ListPublisher) -> Held:
    return Held(publisher.place.trust_documents()[0])


def verdict_on(files: Mapping[str, bytes], held: Held, now_s: int) -> Verdict:
    return answered(judge(held, now_s), lambda path, bytes_max: files.get(path))


def accepted(files: Mapping[str, bytes], held: Held, now_s: int) -> Accepted:
    verdict = verdict_on(files, held, now_s)
    assert isinstance(verdict, Accepted), verdict
    return verdict


@pytest.fixture
def publisher(tmp_path: Path) -> ListPublisher:
    return ListPublisher(tmp_path)


def test_the_first_list_is_taken_by_who_has_the_pin(publisher: ListPublisher) -> None:
    published = publisher.publish()
    assert not published.is_renewal
    verdict = accepted(publisher.files(), first_contact(publisher), NOW_S)
    assert [server.name for server in verdict.cluster.servers] == list(HOSTS)
    assert not publisher.place.trust_file.exists()
    assert publisher.place.file.read_bytes() == publisher.files()["list/1"]


def test_clients_that_look_in_time_take_each_version_and_always_meet(tmp_path: Path, seeds: Seeds) -> None:
    for seed in seeds(1, 3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        publisher = ListPublisher(folder, churn_percent=1000)
        chance = Random(seed)
        publisher.publish()
        held = {publisher.now_s: accepted(publisher.files(), first_contact(publisher), NOW_S).held}
        lists = {publisher.now_s: publisher.work()}
        at_once = waiting = 0
        for number in range(30):
            publisher.now_s += DAY_S
            change = [f"192.0.2.{20 + number}:7400", f"192.0.2.{60 + number}:7400"][: chance.randint(0, 2)]
            work = publisher.work()
            gone = [chance.choice(work.servers).name] if len(work.servers) > 6 else []
            publisher.edit(with_servers(without_servers(work, gone), change))
            before = publisher.place.file.read_bytes()
            try:
                new = publisher.publish().list.cluster
            except EditError as error:  # a change that must wait for the one before
                assert "publish this change after that" in str(error)
                assert publisher.place.file.read_bytes() == before
                publisher.edit(work)
                continue
            for at_s, state in held.items():
                verdict = accepted(publisher.files(), state, publisher.now_s)
                if publisher.now_s - at_s < 7 * DAY_S:
                    assert not verdict.warnings
            if facts_of(new).valid_after_s == publisher.now_s:
                at_once += 1
                replaced = sorted(lists)[1:]
                for at_s, until_s in zip(sorted(lists), [*replaced, publisher.now_s], strict=True):
                    if publisher.now_s - until_s < 7 * DAY_S:
                        assert hosts_changed(lists[at_s], new).always_meet
            else:
                waiting += 1
            lists[publisher.now_s] = new
            held[publisher.now_s] = accepted(
                publisher.files(), first_contact(publisher), publisher.now_s
            ).held
        assert at_once > 1 and waiting


def test_a_list_that_has_not_changed_is_renewed(publisher: ListPublisher) -> None:
    publisher.publish()
    publisher.now_s += 3 * DAY_S
    published = publisher.publish()
    facts = facts_of(published.list.cluster)
    assert published.is_renewal
    assert (facts.version, facts.valid_after_s) == (2, NOW_S + 3 * DAY_S)
    assert (facts.fresh_until_s, facts.valid_until_s) == (NOW_S + 10 * DAY_S, NOW_S + 93 * DAY_S)


def test_a_change_that_could_part_clients_waits_until_all_have_it(tmp_path: Path) -> None:
    publisher = ListPublisher(tmp_path, churn_percent=1000)
    publisher.publish()
    work = publisher.work()
    assert work.policy.margin == 3
    publisher.edit(with_servers(work, [f"192.0.2.{20 + number}:7400" for number in range(3)]))
    assert facts_of(publisher.publish().list.cluster).valid_after_s == NOW_S + 7 * DAY_S
    publisher.now_s += 3 * DAY_S
    with pytest.raises(
        Waiting, match="version 2 is published, and holds in 4 days; there is nothing to renew"
    ):
        publisher.publish()
    verdict = accepted(publisher.files(), first_contact(publisher), publisher.now_s)
    assert facts_of(verdict.cluster).version == 1
    assert verdict.upcoming and facts_of(verdict.upcoming).version == 2
    # Another large change must wait until then.
    publisher.edit(with_servers(publisher.work(), [f"192.0.2.{30 + number}:7400" for number in range(3)]))
    with pytest.raises(EditError, match="holds only in 4 days: publish this change after that"):
        publisher.publish()
    now = publisher.publish(is_at_once=True)
    assert facts_of(now.list.cluster).valid_after_s == publisher.now_s


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda work: with_servers(work, MANY),
            r"\+5 of 8 hosts .* \(churn\); 'kcast servers rotate --except 2'",
        ),
        (lambda work: replace(work, signed=replace(work.signed, min_servers=9)), None),
        (lambda work: without_servers(work, HOSTS[:-1]), r"1 of the 4 hosts that it needs \(small\)"),
    ],
)
def test_what_clients_would_refuse_is_not_published_and_nothing_is_written(
    publisher: ListPublisher, change: Any, words: str | None
) -> None:
    publisher.publish()
    publisher.edit(change(publisher.work()))
    if words is None:  # the number of servers needed follows from the list itself
        publisher.publish()
        return
    files, database = publisher.files(), publisher.place.database.read_bytes()
    work, state = (
        publisher.place.file.read_bytes(),
        (publisher.place.file.parent / "log.checkpoint").read_bytes(),
    )
    with pytest.raises(NotPublished, match=words):
        publisher.publish()
    assert publisher.files() == files
    assert publisher.place.database.read_bytes() == database
    assert publisher.place.file.read_bytes() == work
    assert (publisher.place.file.parent / "log.checkpoint").read_bytes() == state


# --- Files that were changed by hand -------------------------------------------------------------------


def test_an_older_file_is_refused_and_the_newest_one_is_named(publisher: ListPublisher) -> None:
    publisher.publish()
    old = publisher.place.file.read_bytes()
    publisher.publish()
    publisher.place.file.write_bytes(old)
    with pytest.raises(
        EditError, match=r"it is version 1, and 2 is published: begin with that again: cp .*list/2"
    ):
        publisher.publish()


def test_a_list_of_another_name_is_refused(publisher: ListPublisher) -> None:
    publisher.publish()
    other = replace(publisher.work(), name="example.org/other")
    publisher.edit(other)
    with pytest.raises(
        EditError, match=r"it is named example.org/other, and the trust document example.org/lab"
    ):
        publisher.publish()


# --- Several signers ------------------------------------------------------------------------------------


def test_a_list_waits_for_its_signers(tmp_path: Path) -> None:
    publisher = ListPublisher(tmp_path, signers=3)
    all_keys = publisher.ring
    publisher.ring = [publisher.signers[0], publisher.log]
    with pytest.raises(Incomplete, match=r"lab.trust: version 1 has 1 of the 2 signatures of owners"):
        publisher.publish()
    assert publisher.files() == {}
    publisher.ring = [publisher.signers[2], publisher.log]
    publisher.publish()
    assert len(read_note(publisher.place.file).signatures) == 2
    publisher.edit(with_servers(publisher.work(), ["192.0.2.20:7400"]))
    with pytest.raises(Incomplete, match=r"version 2 has 1 of the 2 signatures that it needs"):
        publisher.publish()
    kept = read_note(publisher.place.file)
    publisher.ring = all_keys
    publisher.now_s += DAY_S
    assert publisher.publish().list.note.text == kept.text, "who signed first has said when it holds"


# --- Witnesses -----------------------------------------------------------------------------------------

WITNESSES = [
    SigningKey.from_seed(f"w{number}.example.net", bytes([number]) * 32, KIND_COSIGNATURE)
    for number in range(3)
]


class Collect:
    """Witnesses that answer, or do not."""

    def __init__(self, at_unix_s: int = NOW_S) -> None:
        self.up = set(range(3))
        self.at_unix_s = at_unix_s

    def __call__(self, checkpoint: Note, urls: Any, path_between: Any, **_: Any) -> dict[Any, Asked]:
        assert set(urls) <= {each.verifier for each in WITNESSES}
        return {
            each.verifier: Asked((cosign(checkpoint, each, self.at_unix_s),))
            if number in self.up
            else Asked(why_not="no answer in 20 s")
            for number, each in enumerate(WITNESSES)
            if each.verifier in urls
        }


NAMED = tuple((f"w{number}", Witness(each.verifier, "http://w")) for number, each in enumerate(WITNESSES))


@pytest.fixture
def witnessed(tmp_path: Path) -> ListPublisher:
    publisher = ListPublisher(tmp_path, witnesses=NAMED)
    publisher.collect = Collect()
    return publisher


def test_without_a_quorum_nothing_is_published_and_the_next_try_asks_again(witnessed: ListPublisher) -> None:
    witnessed.publish()
    files = witnessed.files()
    witnessed.edit(with_servers(witnessed.work(), ["192.0.2.20:7400"]))
    witnessed.collect.up = {1}
    with pytest.raises(
        NotPublished, match=r"1 of 3 witnesses have cosigned, and it takes 2.*w0: no answer in 20 s"
    ):
        witnessed.publish()
    signed = read_note(witnessed.place.file)
    left = {"list/2": signed.data} | tiles_of(witnessed)
    assert witnessed.files() == files | left, "what is in the log can be seen"
    assert signed.signatures
    witnessed.collect.up = {0, 1}
    witnessed.now_s += 3600
    assert witnessed.publish().list.note == signed, "what is in the log already is what is published"
    assert (
        facts_of(accepted(witnessed.files(), first_contact(witnessed), witnessed.now_s).cluster).version == 2
    )


def test_what_clients_would_refuse_by_the_time_that_witnesses_prove_is_not_shown(tmp_path: Path) -> None:
    publisher = ListPublisher(tmp_path, witnesses=NAMED)
    publisher.collect = Collect(at_unix_s=NOW_S + 91 * DAY_S)  # the clock of the publisher is far behind
    document = replace(publisher.document, expiry="refuse")
    write_note(publisher.place.trust_file, Note(document.text))
    with pytest.raises(NotPublished, match=r"version 1 was valid .* \(expired\); nothing was published"):
        publisher.publish()
    assert "checkpoint" not in publisher.files()


def change(publisher: ListPublisher) -> None:
    publisher.edit(with_servers(publisher.work(), ["192.0.2.21:7400"]))


def remove_signatures(publisher: ListPublisher) -> None:
    text = read_note(publisher.place.file).text
    write_note(publisher.place.file, Note(text.replace("192.0.2.20:", "192.0.2.22:")))


def throw_a_witness_out(publisher: ListPublisher) -> None:
    former = publisher.document
    gone = Terms(witnesses=tuple(former.policy.witnesses.items())[:2], quorum=2)
    publisher.rotate(replace(changed(former, gone), version=2))


@pytest.mark.parametrize("go_on", [change, remove_signatures, throw_a_witness_out])
def test_after_an_attempt_without_a_quorum_no_second_list_gets_its_version(
    witnessed: ListPublisher, go_on: Callable[[ListPublisher], None]
) -> None:
    witnessed.publish()
    witnessed.edit(with_servers(witnessed.work(), ["192.0.2.20:7400"]))
    witnessed.collect.up = {1}
    with pytest.raises(NotPublished):
        witnessed.publish()
    go_on(witnessed)
    witnessed.collect.up = {0, 1}
    witnessed.now_s += 3600
    assert facts_of(witnessed.publish().list.cluster).version == 3
    assert audit(FolderSource(witnessed.place.served), {1: witnessed.pin}).findings == ()
    accepted(witnessed.files(), first_contact(witnessed), witnessed.now_s)


def tiles_of(publisher: ListPublisher) -> dict[str, bytes]:
    return {path: data for path, data in publisher.files().items() if path.startswith("tile/")}


@pytest.fixture
def attempted(witnessed: ListPublisher) -> ListPublisher:
    """A publisher whose version 2 is in the log, and too few witnesses have cosigned it."""
    witnessed.publish()
    witnessed.edit(with_servers(witnessed.work(), ["192.0.2.20:7400"]))
    witnessed.collect.up = {1}
    with pytest.raises(NotPublished):
        witnessed.publish()
    witnessed.collect.up = {0, 1}
    return witnessed


def test_a_version_that_only_the_log_knows_is_not_used_again(attempted: ListPublisher) -> None:
    remove_signatures(attempted)
    (attempted.place.served / "list/2").unlink()
    files = attempted.files()
    with pytest.raises(NotPublished, match=r"lab.cluster: the log has another version 2 already"):
        attempted.publish()
    assert attempted.files() == files
    text = read_note(attempted.place.file).text
    write_note(attempted.place.file, Note(text.replace("version 2\n", "version 3\n")))
    assert facts_of(attempted.publish().list.cluster).version == 3


def test_another_signature_does_not_make_a_second_list_of_a_version(tmp_path: Path) -> None:
    publisher = ListPublisher(tmp_path, signers=3, witnesses=NAMED)
    publisher.collect = Collect()
    third = publisher.ring.pop(2)
    publisher.collect.up = {1}
    with pytest.raises(NotPublished):
        publisher.publish()
    publisher.collect.up = {0, 1}
    for file in (publisher.place.file, publisher.place.trust_file):
        note = read_note(file)
        write_note(file, signed(note, [third]))
        with pytest.raises(NotPublished, match=rf"{file.name}: the log has another version 1 already"):
            publisher.publish()
        write_note(file, note)
    assert facts_of(publisher.publish().list.cluster).version == 1
    assert audit(FolderSource(publisher.place.served), {1: publisher.pin}).findings == ()


# --- The folder ----------------------------------------------------------------------------------------


def deaths_of(publisher: ListPublisher) -> Iterator[int]:
    """Publishes in a process that is killed before its first change to the disk, then before the second and
    so on; yields after each death with its number, and at last after a life."""
    work = publisher.place.file.parent
    copytree(work, copy := work.parent / f"{work.name}.copy")
    for number in count(1):
        rmtree(work)
        copytree(copy, work)
        status = killed_at(number, publisher.publish)
        assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
        yield number
        if status == 0:
            return


def test_a_reader_finds_the_old_state_or_the_new_one_whole_whenever_the_publisher_dies(
    publisher: ListPublisher,
) -> None:
    publisher.publish()
    old = accepted(publisher.files(), first_contact(publisher), NOW_S)
    publisher.publish()
    publisher.edit(with_servers(publisher.work(), ["192.0.2.20:7400"]))
    publisher.now_s += 60
    seen: set[int] = set()
    for deaths in deaths_of(publisher):  # noqa: B007
        for held in (first_contact(publisher), old.held):
            verdict = accepted(publisher.files(), held, publisher.now_s)
            seen.add(facts_of(verdict.cluster).version)
    assert seen == {2, 3}
    assert deaths > 20


def test_after_any_death_the_next_publish_goes_on(publisher: ListPublisher) -> None:
    publisher.publish()
    publisher.edit(with_servers(publisher.work(), ["192.0.2.20:7400"]))
    publisher.now_s += 60
    for _ in deaths_of(publisher):
        publisher.now_s += 60
        publisher.publish()
        found = audit(FolderSource(publisher.place.served), {1: publisher.pin})
        assert found.findings == ()
        served = publisher.place.served
        assert not [path for path in served.rglob(".*") if path.parent.name == "from"]
        accepted(publisher.files(), first_contact(publisher), publisher.now_s)


def test_publishers_in_many_processes_leave_one_history(publisher: ListPublisher) -> None:
    publisher.publish()

    def try_to_publish() -> None:
        try:
            publisher.publish()
        except NotPublished as error:
            assert "another kcast is publishing here" in str(error)
            os._exit(2)

    for _ in range(4):
        children = [forked(try_to_publish) for _ in range(4)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        assert set(codes) <= {0, 2} and 0 in codes
    publisher.publish()
    assert audit(FolderSource(publisher.place.served), {1: publisher.pin}).findings == ()
    accepted(publisher.files(), first_contact(publisher), publisher.now_s)


def test_a_disk_that_is_full_leaves_what_was_published(
    publisher: ListPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish()
    before = publisher.files()
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == ".bundle.new":
            raise OSError(28, "No space left on device", str(path))
        return write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            publisher.publish()
    left = {"list/2": publisher.place.file.read_bytes()} | tiles_of(publisher)
    assert publisher.files() == before | left
    assert publisher.publish().list.cluster.signed


# --- The next trust document -----------------------------------------------------------------------------


def test_a_stolen_key_is_thrown_out_and_clients_follow(publisher: ListPublisher) -> None:
    publisher.publish()
    held = accepted(publisher.files(), first_contact(publisher), NOW_S).held
    new = key("signer-1")
    publisher.ring.append(new)
    document = replace(publisher.document, version=2, signers=(new.verifier,))
    publisher.rotate(document)
    publisher.now_s += 60
    published = publisher.publish()
    assert facts_of(published.list.cluster).trust == 2
    assert [each.name for each in published.list.note.signatures] == [f"{NAME}/signer-1"]
    for each in (held, first_contact(publisher)):
        verdict = accepted(publisher.files(), each, publisher.now_s)
        assert facts_of(verdict.cluster).version == 2
    thief = ListPublisher.__new__(ListPublisher)
    thief.__dict__.update(publisher.__dict__)
    thief.ring = [*publisher.signers, publisher.log]
    with pytest.raises(Incomplete, match="version 3 has 0 of the 1 signatures"):
        thief.publish()


def test_a_trust_document_that_somebody_put_there_is_not_signed(publisher: ListPublisher) -> None:
    publisher.publish()
    thief = key("signer-1")
    document = replace(publisher.document, version=2, signers=(*publisher.document.signers, thief.verifier))
    note = sign(document.text, [thief])
    write_note(publisher.place.trust_file, note)
    files = publisher.files()
    with pytest.raises(
        Incomplete,
        match=r"has 0 of the 1 signatures of owners of version 1 .* run 'kcast servers sign .*trust'",
    ):
        publisher.publish()
    assert publisher.files() == files
    assert read_note(publisher.place.trust_file) == note
