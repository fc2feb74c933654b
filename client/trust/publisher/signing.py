"""What signs a list or a trust document, and what is wrong with signatures that stand there. Sans-IO."""

import re
from collections.abc import Iterable
from itertools import zip_longest

from kcast.client.trust.forms.note import (
    SIGNATURES_MAX,
    BadSignature,
    Note,
    SigningKey,
    VerifierKey,
    signature_of,
    verify,
)
from kcast.client.trust.publisher.editing import EditError

_WAY_OUT = "take the edit back, or remove the lines of signatures to have it published as a new version"
_OF_0_4 = re.compile(r"pending\b|next-salt\b|salt-reveal\b|salt .*from=")


def signers_of(
    note: Note, keys: Iterable[VerifierKey], file: str, published_text: str | None = None
) -> tuple[VerifierKey, ...]:
    """Returns which of the keys have signed a work file.

    Raises EditError where a signature is not of this text. `published_text` is that of the same version as it
    was published, where that is at hand: the first line that differs is named then.
    """
    refuse_edit(note, published_text, file)
    try:
        return verify(note, keys)
    except BadSignature as error:
        raise EditError(f"{file}: it was edited after it was signed ({error}): {_WAY_OUT}") from None


def refuse_edit(note: Note, published_text: str | None, file: str) -> None:
    """Raises EditError, which names the line, where a signed work file is not what was published as the same
    version; None stands for a version that is not published. And where one that is not signed has what kcast
    0.4 alone knew: it would vanish from the next version."""
    if not note.signatures:
        for number, line in enumerate(note.text.split("\n"), 1):
            if _OF_0_4.match(line):
                raise EditError(f"{file}:{number}: kcast 0.4 alone knew {_quoted(line)}: remove that line")
        return
    if published_text is None:
        return
    if where := first_difference(note.text, published_text):
        number, ours, published = where
        raise EditError(
            f"{file}:{number}: it was edited after it was signed: {_quoted(ours)} stands where the published "
            f"version has {_quoted(published)}: {_WAY_OUT}"
        )


def first_difference(text: str, other: str) -> tuple[int, str | None, str | None] | None:
    """Returns the number of the first line that differs, and both lines; None for one that is not there."""
    pairs = zip_longest(text.split("\n"), other.split("\n"))
    return next(((number, *pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]), None)


def _quoted(line: str | None) -> str:
    return "nothing" if not line else repr(line[:60])


def signed(note: Note, keys: Iterable[SigningKey]) -> Note:
    """Returns the note with a signature of each of the keys; of those that have signed it already, no second.

    Raises EditError where that would be more signatures than anybody looks at.
    """
    there = {(signature.name, signature.key_id) for signature in note.signatures}
    new = [
        signature_of(note.text, key) for key in keys if (key.verifier.name, key.verifier.key_id) not in there
    ]
    if len(note.signatures) + len(new) > SIGNATURES_MAX:
        raise EditError(
            f"a file has {SIGNATURES_MAX} signatures at most: remove lines of those that do not count"
        )
    return note.with_signatures(new)
