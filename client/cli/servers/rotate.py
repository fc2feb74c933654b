"""`kcast servers rotate`: makes the next trust document."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click

from kcast.client.cli.common import errors_as_lines, value_option
from kcast.client.cli.servers.edits import file_argument
from kcast.client.cli.servers.keyring import Keyring
from kcast.client.cli.servers.terms import read_terms, terms_options
from kcast.client.cli.text import escaped, tell
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.document import TrustDocument
from kcast.client.trust.forms.note import Note, VerifierKey
from kcast.client.trust.publisher.drafts import at_hand
from kcast.client.trust.publisher.editing import EditError
from kcast.client.trust.publisher.founding import Terms, changed
from kcast.client.trust.publisher.signing import signed
from kcast.client.trust.publisher.workplace import Workplace, write_note
from kcast.client.trust.state.keys import path_of


@click.command("rotate")
@file_argument
@value_option(
    "--new roles",
    click.Choice(("signer", "owner", "log")),
    "Make a new key of yours for this, and put it in.",
    multiple=True,
)
@value_option(
    "--out gone",
    str,
    "Take out a key of a signer, an owner or a witness: its name, or its key ID.",
    unit="KEY",
    multiple=True,
)
@value_option(
    "--except except_version",
    click.IntRange(1),
    "Let this version of the list change more hosts than is allowed otherwise.",
    unit="VERSION",
)
@value_option(
    "--lists-from",
    click.IntRange(1),
    "Have versions of lists count from here: the way out of one that a thief has made too high.",
    unit="VERSION",
)
@click.option(
    "--passphrase", "is_encrypted", is_flag=True, help="Encrypt the keys that are made, with a passphrase."
)
@terms_options
def command(
    file: Path,
    roles: tuple[str, ...],
    gone: tuple[str, ...],
    except_version: int | None,
    lists_from: int | None,
    is_encrypted: bool,
    **options: Any,
) -> None:
    """Make the next version of the trust document of the list in FILE, and sign it with your keys.

    It is put beside FILE, where no other one may wait. Once enough owners of the version before, and of its
    own, have signed it ('kcast servers sign'), 'kcast servers publish' publishes it, and the list anew under
    it. Whoever trusts the list follows by himself: the pin stays that of the first version.

    Without options it is a draft: edit its lines 'churn', 'hosts', 'floor' and 'expiry', then sign it.

    A stolen key is taken out by the owners that are left. Where these are fewer than are needed, nobody can:
    then the list needs a new name.

    \b
    Examples:
      kcast servers rotate lab.cluster --out example.org/lab/signer-1 --new signer
      kcast servers rotate lab.cluster --witness 'w0 w0.example.net+b6fe738f+BKz... https://w0.example.net'
    """
    with errors_as_lines("servers rotate"):
        place = Workplace(file)
        published = place.trust_documents()
        if not published:
            raise EditError(f"{place.served}: no trust document is published there yet")
        if place.trust_file.exists():
            raise EditError(
                f"{place.trust_file}: it waits to be published, and would be lost: 'kcast servers publish "
                f"{file}' publishes it; or move it away"
            )
        former = documents.parse(published[-1])[0]
        if (why := documents.why_not_used(former)) is not None:
            raise EditError(why)
        ring = Keyring(is_encrypted=is_encrypted)
        try:
            terms = replace(
                _with_keys(former, read_terms(options), roles, gone, ring),
                except_version=except_version,
                lists_from=lists_from,
            )
            document = replace(changed(former, terms), version=former.version + 1)
            note = Note(document.text)
            if document != replace(former, version=former.version + 1):
                note = signed(note, at_hand((*former.owners, *document.owners), ring))
            write_note(place.trust_file, note)
        except BaseException:
            ring.remove_made()
            raise
        _tell(place, former, document, note, ring)


def _with_keys(
    former: TrustDocument, terms: Terms, roles: tuple[str, ...], gone: tuple[str, ...], ring: Keyring
) -> Terms:
    """Returns the terms with the keys that stay, those that are given, and those that are made.

    Raises EditError.
    """
    out = {_named(former, name) for name in gone}
    signers = [key for key in former.signers if key not in out] + list(terms.signers or ())
    owners = [key for key in former.own_owners if key not in out] + list(terms.owners or ())
    witnesses = [each for each in former.policy.witnesses.items() if each[1].key not in out] + list(
        terms.witnesses or ()
    )
    for role, before, after in (("signer", former.signers, signers), ("owner", former.own_owners, owners)):
        if role in roles:
            after.append(ring.new(_free_name(f"{former.name}/{role}", before)).verifier)
    if not signers:
        raise EditError("no signer would be left: --new signer makes a key, --signer VKEY gives one")
    if former.own_owners and not owners:
        raise EditError("no owner would be left: --new owner makes a key, --owner VKEY gives one")
    has_new_witnesses = tuple(witnesses) != tuple(former.policy.witnesses.items())
    return replace(
        terms,
        signers=tuple(dict.fromkeys(signers)),
        owners=tuple(dict.fromkeys(owners)),
        witnesses=tuple(witnesses) if has_new_witnesses or terms.quorum is not None else None,
        log=ring.new(former.policy.log.name).verifier if "log" in roles else None,
    )


def _named(document: TrustDocument, text: str) -> VerifierKey:
    """Returns the key of a trust document that is meant. Raises EditError."""
    for name, witness in document.policy.witnesses.items():
        if text == name:
            return witness.key
    keys = dict.fromkeys((*document.signers, *document.own_owners, *document.policy.keys))
    for key in keys:
        if text in (key.name, key.name.removeprefix(f"{document.name}/"), key.key_id.hex(), str(key)):
            return key
    there = ", ".join(f"{key.name} ({key.key_id.hex()})" for key in keys)
    raise EditError(f"--out {text}: there is no such key; there are {there}")


def _free_name(stem: str, keys: tuple[VerifierKey, ...]) -> str:
    """Returns the first name with a number that no key has, neither in the trust document nor here."""
    taken = {key.name for key in keys}
    names = (f"{stem}-{number}" for number in count())
    return next(name for name in names if name not in taken and not path_of(name).exists())


def _tell(
    place: Workplace, former: TrustDocument, document: TrustDocument, note: Note, ring: Keyring
) -> None:
    file, list_file = place.trust_file, place.file
    for path in ring.made:
        tell(f"made a key: {escaped(str(path))}, readable by you alone: back it up")
    tell(f"made {escaped(str(file))}, version {document.version}")
    before, needed = (f"{each.policy.needed} of {len(each.policy.witnesses)}" for each in (former, document))
    if former.policy.witnesses or document.policy.witnesses:
        was = f"; before, {before}" if former.policy.witnesses and needed != before else ""
        tell(f"  a list needs {needed} witnesses{was}")
    if not note.signatures:
        tell(f"edit it, then sign it: 'kcast servers sign {escaped(str(file))}'")
        return
    missing = False
    for each in (former, document):
        count = len(each.owners_of(note))
        missing |= count < each.owner_threshold
        tell(
            f"  {count} of the {each.owner_threshold} owners of version {each.version} that it needs have "
            "signed"
        )
    if missing:
        tell(f"give it to the others, who run 'kcast servers sign {escaped(str(file))}'")
        tell("if they cannot be had any more, the list needs a new name")
    else:
        tell(f"'kcast servers publish {escaped(str(list_file))}' publishes it, and the list anew under it")
