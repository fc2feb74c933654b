"""`kcast servers sign`: signs a list or a trust document with the keys at hand."""

from pathlib import Path
from time import time

import click

from kcast.client.cli.common import FILE, errors_as_lines, value_option
from kcast.client.cli.servers.edits import file_argument
from kcast.client.cli.servers.keyring import Keyring
from kcast.client.cli.text import escaped, tell
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters.cluster import facts_of
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.document import HEADER, TrustDocument, parse_text
from kcast.client.trust.forms.note import Note, VerifierKey
from kcast.client.trust.publisher.drafts import at_hand, next_list
from kcast.client.trust.publisher.editing import EditError
from kcast.client.trust.publisher.signing import signed, signers_of
from kcast.client.trust.publisher.workplace import Workplace, read_note, write_note
from kcast.client.trust.state.store import Store


@click.command("sign")
@file_argument
@value_option(
    "--trust trust_file",
    FILE,
    "The trust document that says who signs this list.  [default: the one beside it, else the one that "
    "this user trusts]",
    unit="FILE",
)
def command(file: Path, trust_file: Path | None) -> None:
    """Sign FILE, a list or a trust document, with those of your keys that may sign it.

    So several people sign in turn: each is given the file, looks at it ('kcast servers show', 'kcast servers
    diff'), signs it, and passes it on. Signatures that stand there stay.

    \b
    Examples:
      kcast servers sign lab.cluster
      kcast servers sign lab.trust
    """
    with errors_as_lines("servers sign"):
        note = read_note(file)
        is_document = note.text.startswith(f"{HEADER}\n")
        if is_document:
            new, missing = _of_document(file, note)
        else:
            new, missing = _of_list(file, note, _document_of(file, note, trust_file))
        write_note(file, new)
        tell(f"{escaped(str(file))}: {_told(note, new)}; {missing}")


def _of_document(file: Path, note: Note) -> tuple[Note, str]:
    document = documents.parse_text(note.text)
    former = _known_document(file, document.name, document.version - 1)
    whose = (document,) if former is None else (former, document)
    new = _signed(file, note, tuple(key for each in whose for key in each.owners))
    counts = [
        f"{len(each.owners_of(new))} of {each.owner_threshold} owners of version {each.version}"
        for each in whose
    ]
    return new, f"version {document.version} has the signatures of {' and '.join(counts)} that it needs"


def _document_of(file: Path, note: Note, trust_file: Path | None) -> TrustDocument:
    cluster = clusters.parse(note.text, str(file))
    facts = facts_of(cluster)
    place = Workplace(file)
    if trust_file is None and place.trust_file.exists():
        trust_file = place.trust_file
    document = (
        parse_text(read_note(trust_file).text)
        if trust_file
        else _known_document(file, cluster.name, facts.trust)
    )
    if document is None or document.version != facts.trust:
        raise EditError(
            f"{file}: version {facts.trust} of the trust document of {cluster.name} is not at hand: give it "
            "with --trust FILE"
        )
    return document


def _of_list(file: Path, note: Note, document: TrustDocument) -> tuple[Note, str]:
    place = Workplace(file)
    cluster = clusters.parse(note.text, str(file))
    if not note.signatures:  # who signs first says when it holds
        if facts_of(cluster).version > document.lists_from and place.published() is None:
            # When this one may hold follows from what it changes.
            raise EditError(
                f"{file}: nobody has signed it yet, and the list before is not in {place.served.name}/: "
                "whoever publishes it runs 'kcast servers publish' first"
            )
        draft = next_list(place, note, document, lambda _: None, int(time()))
        note, cluster = draft.note, draft.cluster
    version = facts_of(cluster).version
    new = _signed(file, note, document.signers, place.published_text(version))
    count, needed = len(document.signers_of(new)), document.signer_threshold
    return new, f"version {version} has {count} of the {needed} signatures that it needs"


def _signed(
    file: Path, note: Note, allowed: tuple[VerifierKey, ...], published_text: str | None = None
) -> Note:
    """Returns the note with the signatures of the keys at hand. Raises EditError where there is none."""
    signers_of(note, allowed, str(file), published_text)
    secrets = at_hand(allowed, Keyring())
    if not secrets:
        names = ", ".join(dict.fromkeys(key.name for key in allowed))
        raise EditError(f"{file}: none of your keys may sign it; those of {names} may")
    return signed(note, secrets)


def _known_document(file: Path, name: str, version: int) -> TrustDocument | None:
    """Returns a trust document that is published beside the file, or that this user trusts."""
    held = Store(name).load()
    for data in (*Workplace(file).trust_documents(), *([held.trust] if held else [])):
        found = documents.parse(data)[0]
        if (found.name, found.version) == (name, version):
            return found
    return None


def _told(before: Note, after: Note) -> str:
    new = [each.name for each in after.signatures if each not in before.signatures]
    if new:
        return f"signed by {escaped(', '.join(new))}"
    return "signed by your keys already"
