"""Publishes a list: it is judged, signed, logged and witnessed, and only then are files written.

PROTOCOL §10.6. The files of the folder are put there in an order in which a reader finds at any moment either
what was published before or what is published now, whole: first what is new under names of its own, then what
replaces older files, and the checkpoint last of all.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster, ListFacts, facts_of
from kcast.client.clusters.durable import write_into
from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.judge import judge
from kcast.client.trust.checks.list_checks import kept_former
from kcast.client.trust.checks.rehearsal import rehearse
from kcast.client.trust.checks.verdicts import FORMER_MAX, Held, Refused, answered
from kcast.client.trust.forms import bundle
from kcast.client.trust.forms.checkpoint import AddCheckpoint, LogProof, cosignatures
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note, SigningKey, VerifierKey
from kcast.client.trust.forms.paths import (
    BUNDLE,
    CHECKPOINT,
    LATEST,
    list_path,
    proof_path,
    step_path,
    trust_path,
)
from kcast.client.trust.forms.record import ListRecord, TrustRecord
from kcast.client.trust.publisher import cosigning
from kcast.client.trust.publisher.drafts import (
    Incomplete,
    Keys,
    NextDocument,
    NextList,
    next_document,
    next_list,
)
from kcast.client.trust.publisher.editing import EditError, Lifetime
from kcast.client.trust.publisher.log import Log
from kcast.client.trust.publisher.workplace import Published, Workplace, read_note, write_note

STEPS_KEPT = 64  # files from/N


class NotPublished(EditError):
    """Nothing was written for people to fetch; the message says why."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What was published. `missing` says of each witness that has not cosigned why."""

    list: NextList
    document: TrustDocument
    has_new_document: bool
    is_renewal: bool
    cosigned: tuple[str, ...]
    missing: Mapping[str, str]


Collect = Callable[..., Mapping[VerifierKey, cosigning.Asked]]


def publish(
    place: Workplace,
    keys: Keys,
    state_of_log: Callable[[str], Path],
    now_unix_s: int,
    *,
    is_at_once: bool = False,
    life: Lifetime | None = None,
    collect: Collect = cosigning.collect,
) -> Publication:
    """Publishes the list of a work file, with the trust document that lies beside it if there is one.

    `state_of_log` says for a log's name where its last signed checkpoint is kept. Raises Incomplete where
    others must sign first, NotPublished where clients would refuse the list or too few witnesses cosign, and
    other KcastErrors and OSError.
    """
    with _alone(place):
        next_ = next_document(place, keys)
        document = next_.document
        list_ = next_list(
            place, read_note(place.file), document, keys, now_unix_s, is_at_once=is_at_once, life=life
        )
        facts = facts_of(list_.cluster)
        record = ListRecord.of(document.name, facts.version, facts.trust, list_.note.data)
        held = _held(place, document, now_unix_s)
        try:
            _require_taken(document, _with_excepted(place, held, document), record, list_, now_unix_s)
            next_.require_owners(place.trust_file)
            list_.require_signers(place.file, document)
        except Incomplete:
            _keep_signatures(place, next_, list_)
            raise
        trust = [*place.trust_documents(), *([next_.note.data] if next_.note else [])]
        records = [TrustRecord.of(document.name, version, data) for version, data in enumerate(trust, 1)]
        with Log(
            place.database, place.served, _log_key(document, keys), state_of_log(document.policy.log.name)
        ) as log:
            for each in records:
                _require_once(log, each, place.trust_file)
            _require_once(log, record, place.file)
            _keep_signatures(place, next_, list_)
            # Where people look for what an entry shows, before it is in the log. Where too few witnesses
            # cosign, the entry stays all the same: then nobody is told of this list as the newest, but
            # everybody can see it, and no other list gets its version.
            write_into(place.served, {list_path(facts.version): list_.note.data})
            *trusted, index = log.append([*(each.data for each in records), record.data])
            signed = log.sign({*trusted[len(place.trust_documents()) :], index})
            checkpoint, missing = _witnessed(signed, document, log, collect)
            folder = _Folder(place, log, checkpoint, document, place.published())
            groups = folder.in_order(trust, zip(records, trusted, strict=True), list_.cluster, now_unix_s)
            _require_shown(place, groups, trust[0], now_unix_s)
            write(place.served, *groups)
        place.trust_file.unlink(missing_ok=True)
        cosigned = document.policy.who(cosignatures(checkpoint, document.policy.keys))
        is_renewal = list_.difference is not None and list_.difference.is_none
        return Publication(list_, document, next_.note is not None, is_renewal, cosigned, missing)


def _keep_signatures(place: Workplace, next_: NextDocument, list_: NextList) -> None:
    """Writes the work files as they are signed now: what is in the log must not be signed in another form."""
    if next_.note is not None:
        write_note(place.trust_file, next_.note)
    write_note(place.file, list_.note)


def _require_once(log: Log, record: ListRecord | TrustRecord, file: Path) -> None:
    """Raises NotPublished where the log has a version already, in another form: who has seen both would call
    that a fork."""
    if any(entry != record.data for entry in log.beginning_with(record.head)):
        raise NotPublished(
            f"{file}: the log has another version {record.version} already, or one with other signatures: "
            "give this one a higher 'version' there, and remove the lines of signatures"
        )


@contextmanager
def _alone(place: Workplace) -> Iterator[None]:
    """Keeps other publishers of the same list out meanwhile. Raises NotPublished."""
    descriptor = os.open(place.file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise NotPublished(
            f"{place.file}: another kcast is publishing here: try again when it has ended"
        ) from None
    finally:
        os.close(descriptor)


def _held(place: Workplace, document: TrustDocument, now_unix_s: int) -> Held:
    """Returns what a client holds that has all that is published: the newest list, and those before it that
    are still valid. Where versions count anew, the newest one is as good as one before it."""
    published = place.published()
    if published is None:
        return Held(b"")
    former: list[tuple[bytes, ListFacts]] = []
    for data, cluster in place.lists(published.record.version - 1):
        facts = facts_of(cluster)
        if len(former) >= FORMER_MAX and facts.fresh_until_s < now_unix_s:
            break
        former.append((data, facts))
    kept = tuple(kept_former(former, now_unix_s))
    if place.counts_anew(document):
        return Held(b"", former=(published.data, *kept))
    return Held(b"", list=published.data, proof=published.proof.data, former=kept)


def _with_excepted(place: Workplace, held: Held, document: TrustDocument) -> Held:
    """Returns what is held with the older list that a client asks for where it has it not."""
    version = document.except_version
    data = None if version is None else place.published_list(version)
    is_new = data is not None and data not in (held.list, *held.former)
    return replace(held, former=(*held.former, data)) if data is not None and is_new else held


def _require_taken(
    document: TrustDocument, held: Held, record: ListRecord, list_: NextList, now_unix_s: int
) -> None:
    """Raises NotPublished where clients would refuse the list, once it has all signatures."""
    signers = document.signers_of(list_.note)
    if not signers:
        return
    demanded = replace(document, signer_threshold=min(document.signer_threshold, len(signers)))
    verdict = rehearse(demanded, held, record, list_.note.data, now_unix_s)
    if isinstance(verdict, Refused):
        way_out = ""
        if verdict.fault is ListFault.CHURN:
            way_out = f"; 'kcast servers rotate --except {record.version}' lets this one through"
        raise NotPublished(f"clients would refuse it: {verdict.text} ({verdict.fault}){way_out}")


def _log_key(document: TrustDocument, keys: Keys) -> SigningKey:
    key = keys(document.policy.log)
    if key is None:
        raise NotPublished(
            f"the key of the log, {document.policy.log.name}, is not at hand: whoever has it publishes the "
            "list"
        )
    return key


def _witnessed(
    signed: Note, document: TrustDocument, log: Log, collect: Collect
) -> tuple[Note, dict[str, str]]:
    """Returns the checkpoint with the cosignatures of the witnesses that answer; says of the others why not.

    Raises NotPublished where they make no quorum.
    """
    policy = document.policy
    if not policy.witnesses:
        return signed, {}
    urls = {witness.key: witness.url for witness in policy.witnesses.values()}
    asked = collect(
        signed,
        urls,
        lambda old_size, size: log.consistency(old_size),
        old_sizes=dict.fromkeys(urls, log.published_size),
    )
    checkpoint = signed.with_signatures(line for each in asked.values() for line in each.cosignatures)
    missing = {
        name: asked[witness.key].why_not
        for name, witness in policy.witnesses.items()
        if not asked[witness.key].cosignatures
    }
    quorum = policy.fewest(cosignatures(checkpoint, policy.keys))
    if quorum is None:
        why = "; ".join(f"{name}: {text}" for name, text in missing.items())
        raise NotPublished(
            f"{len(urls) - len(missing)} of {len(urls)} witnesses have cosigned, and it takes "
            f"{policy.needed}; nothing was published, and 'kcast servers publish' asks them again ({why})"
        )
    return checkpoint.as_looked_at((policy.log, *quorum)), missing


# --- The folder ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Folder:
    """What a publication puts into the folder, each file where readers look for it.

    `published` is the newest list before this one, None where there is none.
    """

    place: Workplace
    log: Log
    checkpoint: Note
    document: TrustDocument
    published: Published | None

    def in_order(
        self,
        trust: Iterable[bytes],
        logged: Iterable[tuple[TrustRecord, int]],
        list_: Cluster,
        now_unix_s: int,
    ) -> tuple[dict[str, bytes], ...]:
        """Returns groups of files by path, in the order in which they are to be put there.

        A new trust document comes right before the list under it: clients that find one without the other
        take neither, and go on with what they have. Beside the newest list they need the one that is
        excepted, and the one that holds until this one does; the proofs of these are of the newest
        checkpoint, since a bundle has no tiles.
        """
        facts, documents = facts_of(list_), {trust_path(at): data for at, data in enumerate(trust, 1)}
        told = {
            proof_path(trust_path(record.version)): self._proof(record.data, index)
            for record, index in logged
        }
        is_waiting = self.published is not None and facts.valid_after_s > now_unix_s
        before = self.published.record.version if self.published and is_waiting else None
        for version in dict.fromkeys((facts.version, self.document.except_version, before)):
            told |= {} if version is None else self._list(version)
        told |= self._steps()
        latest = {LATEST: told[proof_path(list_path(facts.version))]}
        whole = bundle.format_bundle({**documents, **latest, **told})
        first = {**self._attempts(facts.version), **told, BUNDLE: whole}
        return first, {**documents, **latest}, {CHECKPOINT: self.checkpoint.data}

    def _proof(self, record: bytes, index: int) -> bytes:
        return LogProof(record, index, self.log.inclusion(index), self.checkpoint).data

    def _list(self, version: int) -> dict[str, bytes]:
        """Returns a list that is in the folder, and the proof that it is logged; nothing where it is not."""
        data, path = self.place.published_list(version), list_path(version)
        if data is None:
            return {}
        facts = facts_of(clusters.parse(data.decode(), path))
        record = ListRecord.of(self.document.name, facts.version, facts.trust, data).data
        index = self.log.find(record)
        return {} if index is None else {path: data, proof_path(path): self._proof(record, index)}

    def _attempts(self, version: int) -> dict[str, bytes]:
        """Returns the lists, with proofs, that got into the log right before this one, and were not published
        themselves: whoever reads the log wants to see them, but clients do not."""
        found: dict[str, bytes] = {}
        newest = self.published.record.version if self.published else version
        for before in range(version - 1, newest, -1):
            attempt = self._list(before)
            if not attempt:
                break
            found |= attempt
        return found

    def _steps(self) -> dict[str, bytes]:
        """Returns the ways here from the last sizes that were published."""
        sizes = {size for size in (*self.place.steps(), self.log.published_size) if 0 < size < self.log.size}
        return {
            step_path(size): AddCheckpoint(size, self.log.consistency(size), self.checkpoint).data
            for size in sorted(sizes, reverse=True)[:STEPS_KEPT]
        }


def _require_shown(
    place: Workplace, groups: Iterable[Mapping[str, bytes]], first: bytes, now_unix_s: int
) -> None:
    """Raises NotPublished unless the folder, with these files, shows a list that people with the pin take."""

    def would_be(path: str, bytes_max: int) -> bytes | None:
        data = next((files[path] for files in groups if path in files), None)
        return place.served_file(path) if data is None else data

    verdict = answered(judge(Held(first), now_unix_s), would_be)
    if isinstance(verdict, Refused):
        raise NotPublished(
            f"clients would refuse it: {verdict.text} ({verdict.fault}); nothing was published"
        )


def write(folder: Path, *groups: Mapping[str, bytes]) -> None:
    """Puts files into the folder, group after group, each file whole or not at all. Raises OSError."""
    for files in groups:
        write_into(folder, files)
    kept = {path for files in groups for path in files if path.startswith("from/")}
    if (folder / "from").is_dir():
        for old in (folder / "from").iterdir():
            if f"from/{old.name}" not in kept:
                old.unlink(missing_ok=True)
