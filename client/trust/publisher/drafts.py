"""What work files become when they are published: the next trust document, and the next list.

PROTOCOL §10.4.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import Cluster, ListFacts, facts_of
from kcast.client.trust.checks.list_checks import duration
from kcast.client.trust.checks.meeting import Difference, hosts_changed
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note, NoteError, SigningKey, VerifierKey
from kcast.client.trust.publisher.editing import EditError, Lifetime, lifetime, renewed
from kcast.client.trust.publisher.signing import signed, signers_of
from kcast.client.trust.publisher.workplace import Workplace, read_note

Keys = Callable[[VerifierKey], SigningKey | None]
"""Returns the secret key of a public one; None where it is not at hand."""


class Incomplete(EditError):
    """Others must sign first. What was done here is kept in the work file."""


class Waiting(EditError):
    """The newest list is published, and holds only later: a newer one would say nothing else."""


@dataclass(frozen=True, slots=True)
class NextDocument:
    """The trust document under which the next list is published. `note` is None where it is published."""

    document: TrustDocument
    former: TrustDocument | None = None
    note: Note | None = None

    def require_owners(self, file: Path) -> None:
        """Raises Incomplete where more owners must sign it first."""
        if self.note is None:
            return
        for each in (self.former, self.document):
            count = len(each.owners_of(self.note)) if each else 0
            if each is not None and count < each.owner_threshold:
                without = ""
                if self.former is not None:
                    without = f"; without it, version {self.former.version} goes on: move it away"
                raise Incomplete(
                    f"{file}: version {self.document.version} has {count} of the {each.owner_threshold} "
                    f"signatures of owners of version {each.version} that it needs: owners look at it, "
                    f"and run 'kcast servers sign {file}'{without}"
                )


def next_document(place: Workplace, keys: Keys) -> NextDocument:
    """Returns the trust document under which the next list is published.

    Only the first one is signed with the keys at hand. A later one may have been put there by somebody else,
    and lists are often renewed unattended: an owner signs it where he makes it, or where he has looked at it.
    Raises EditError where it may not follow the one that is published.
    """
    published = place.trust_documents()
    former, former_note = documents.parse(published[-1]) if published else (None, None)
    if former is not None and (why := documents.why_not_used(former)) is not None:
        raise EditError(f"{place.served}: {why}")
    if not place.trust_file.exists():
        if former is None:
            if place.database.exists():
                raise EditError(_lost(place))
            raise EditError(
                f"{place.file}: there is no {place.trust_file.name} and no {place.served.name}/ beside it: "
                "'kcast servers init' makes them"
            )
        return NextDocument(former)
    note = read_note(place.trust_file)
    try:
        document = documents.parse_text(note.text)
        if former is not None and former_note is not None:
            if note.text == former_note.text:
                return NextDocument(former)
            if (document.name, document.version) != (former.name, former.version + 1):
                raise EditError(
                    f"{place.trust_file}: it is version {document.version} of {document.name}, and "
                    f"version {former.version} of {former.name} is published: 'kcast servers rotate' makes "
                    "the next one"
                )
        if former is None and document.version != 1:
            raise EditError(_lost(place))
        owners = (*document.owners, *(former.owners if former else ()))
        signers_of(note, owners, str(place.trust_file))
        return NextDocument(document, former, signed(note, () if former else at_hand(owners, keys)))
    except NoteError as error:
        raise EditError(f"{place.trust_file}: {error}") from None


def _lost(place: Workplace) -> str:
    return f"{place.served}: what was published there is gone: bring it back from a backup"


@dataclass(frozen=True, slots=True)
class NextList:
    """The list that is to be published, signed with the keys at hand."""

    cluster: Cluster
    note: Note
    difference: Difference | None  # from the list that is published; None for the first one

    def require_signers(self, file: Path, document: TrustDocument) -> None:
        """Raises Incomplete where more signers must sign it first."""
        count = len(document.signers_of(self.note))
        if count < document.signer_threshold:
            raise Incomplete(
                f"{file}: version {facts_of(self.cluster).version} has {count} of the "
                f"{document.signer_threshold} signatures that it needs: give it to the other signers, who "
                "run 'kcast servers sign'"
            )


def next_list(
    place: Workplace,
    note: Note,
    document: TrustDocument,
    keys: Keys,
    now_unix_s: int,
    *,
    is_at_once: bool = False,
    life: Lifetime | None = None,
) -> NextList:
    """Returns the list of `note`, the work file, as it is to be published: as it stands there if people have
    signed it, else with the version and the times that it gets now. One that is published already is renewed,
    and so is one that was signed under an older trust document. No version is given to a second list.

    Raises EditError, also where it is signed, and is not what is asked for.
    """
    published, file = place.published(), str(place.file)
    cluster = clusters.parse(note.text, file)
    facts, before = facts_of(cluster), clusters.parse(published.text, file) if published else None
    newest = _newest_version(place, document)
    signers_of(note, document.signers, file, place.published_text(facts.version))
    _refuse_wrong(place, cluster, document, newest)
    is_renewal = bool(note.signatures) and facts.version == newest
    if is_renewal and facts.valid_after_s > now_unix_s and not is_at_once:
        wait = duration(facts.valid_after_s - now_unix_s)
        raise Waiting(
            f"{file}: version {newest} is published, and holds in {wait}; there is nothing to renew"
        )
    secrets = at_hand(document.signers, keys)
    if not note.signatures or is_renewal or facts.trust != document.version:
        life = life or lifetime(facts)
        begins_s = now_unix_s if is_at_once else _begin(place, cluster, now_unix_s, life.fresh_s)
        version = _free_version(place, document, facts.version)
        cluster = renewed(cluster, version, document.version, begins_s, life)
        note = Note(clusters.format_cluster(cluster))
    else:
        _refuse_other(place.file, facts, now_unix_s, life, is_at_once)
    difference = hosts_changed(before, cluster) if before else None
    return NextList(cluster, signed(note, secrets), difference)


def _refuse_other(
    file: Path, facts: ListFacts, now_unix_s: int, life: Lifetime | None, is_at_once: bool
) -> None:
    """Raises EditError where a list that people have signed is not as it is wished now: it would be published
    as they signed it. Whoever repeats what was typed before they did has what he wishes."""
    own = lifetime(facts)
    wishes = {
        "--now": is_at_once and facts.valid_after_s > now_unix_s,
        "--fresh-days": life is not None and life.fresh_s != own.fresh_s,
        "--valid-days": life is not None and life.valid_s != own.valid_s,
    }
    wished = " and ".join(option for option, is_wished in wishes.items() if is_wished)
    if wished:
        raise EditError(
            f"{file}: version {facts.version} is signed, and waits to be published as it is: publish it "
            f"without {wished} first, and the next version with that"
        )


def _newest_version(place: Workplace, document: TrustDocument) -> int:
    """Returns the version after which this list comes."""
    published = place.published()
    if published is None or place.counts_anew(document):
        return document.lists_from - 1
    return published.record.version


def _refuse_wrong(place: Workplace, cluster: Cluster, document: TrustDocument, newest: int) -> None:
    """Raises EditError where a work file is that of another list, or older than what is published."""
    version = facts_of(cluster).version
    if cluster.name != document.name:
        raise EditError(f"{place.file}: it is named {cluster.name}, and the trust document {document.name}")
    if version < newest:
        raise EditError(
            f"{place.file}: it is version {version}, and {newest} is published: begin with that again: "
            f"cp {place.served / 'list' / str(newest)} {place.file}"
        )


def _free_version(place: Workplace, document: TrustDocument, least: int) -> int:
    """Returns the next version; at least this one, unless versions count anew. An attempt that is in the log
    keeps its own."""
    version = _newest_version(place, document) + 1
    if not place.counts_anew(document):
        version = max(version, least)
    while place.published_list(version) is not None:
        version += 1
    return version


def _begin(place: Workplace, cluster: Cluster, now_unix_s: int, fresh_s: int) -> int:
    """Returns when the list is to hold: at once if clients that have it always meet those with any list that
    is in use; else when all have learned of it, so that all change over together.

    One that places no topic anew parts nobody who has the newest list: it is as good as that. The first list
    holds when it says.
    """
    in_use = _in_use(place, now_unix_s)
    if not in_use:
        return max(now_unix_s, facts_of(cluster).valid_after_s)
    holds_from_s = facts_of(in_use[0]).valid_after_s
    if holds_from_s > now_unix_s:  # two that wait would be one too many for whoever comes only now
        raise EditError(
            f"version {facts_of(in_use[0]).version} is published, and holds only in "
            f"{duration(holds_from_s - now_unix_s)}: publish this change after that, or at once with --now, "
            "and some messages may be missed"
        )
    if hosts_changed(in_use[0], cluster).is_none:
        return now_unix_s
    meets_all = all(hosts_changed(each, cluster).always_meet for each in in_use)
    return now_unix_s if meets_all else now_unix_s + fresh_s


def _in_use(place: Workplace, now_unix_s: int) -> list[Cluster]:
    """Returns the published lists that clients may still go by, newest first: those that were not replaced
    before the last fresh interval, in which each client looks for a newer one."""
    found: list[Cluster] = []
    published = place.published()
    for _, cluster in place.lists(published.record.version) if published else ():
        found.append(cluster)
        facts = facts_of(cluster)
        if facts.valid_after_s <= now_unix_s - lifetime(facts).fresh_s:
            break
    return found


def at_hand(public: Iterable[VerifierKey], keys: Keys) -> tuple[SigningKey, ...]:
    """Returns those of the keys that are at hand, each once."""
    return tuple(secret for key in dict.fromkeys(public) if (secret := keys(key)) is not None)
