"""The options of `init` and `rotate` that say what a trust document says."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import click

from kcast.client.cli.common import several, value_option
from kcast.client.trust.forms.note import KIND_COSIGNATURE, KIND_ED25519, NoteError, VerifierKey
from kcast.client.trust.forms.quorum import Witness
from kcast.client.trust.publisher.editing import ArgumentError
from kcast.client.trust.publisher.founding import Terms

_COUNT = click.IntRange(1, 16)


terms_options = several(
    value_option(
        "--signer signers", str, "A public key that signs lists, beside your own.", unit="VKEY", multiple=True
    ),
    value_option("--signers-needed", _COUNT, "How many signers a list needs.", unit="N"),
    value_option(
        "--owner owners",
        str,
        "A public key that signs trust documents. Without any, the signers do.",
        unit="VKEY",
        multiple=True,
    ),
    value_option("--owners-needed", _COUNT, "How many owners a trust document needs.", unit="N"),
    value_option(
        "--witness witnesses",
        str,
        "A witness, as 'kcast servers witness' prints it when it starts.",
        unit="'NAME VKEY URL'",
        multiple=True,
    ),
    value_option(
        "--quorum",
        click.IntRange(0, 16),
        "How many witnesses must have seen a list; 0 for none. By default two thirds, or as before.",
        unit="N",
    ),
    value_option("--url urls", str, "Where people fetch the list.", unit="URL", multiple=True),
)
"""Adds these options; `read_terms` makes terms of their values."""


def read_terms(options: dict[str, Any]) -> Terms:
    """Returns what the options say; keys of signers and owners are those that were typed, and no others.

    Raises ArgumentError.
    """
    return Terms(
        signers=read_keys("--signer", options["signers"]) or None,
        signer_threshold=options["signers_needed"],
        owners=read_keys("--owner", options["owners"]) or None,
        owner_threshold=options["owners_needed"],
        witnesses=tuple(map(_witness, options["witnesses"])) or None,
        quorum=options["quorum"],
        urls=tuple(map(_url, options["urls"])) or None,
    )


def _url(text: str) -> str:
    """Returns a URL that people can fetch from. Raises ArgumentError."""
    with suppress(ValueError):  # of brackets, or of a port that is none
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if (is_web or parts.scheme == "file") and text.isprintable() and " " not in text:
            return text
    raise ArgumentError(f"--url {text}: give a URL such as https://lists.example.org/lab")


def read_keys(option: str, vkeys: Iterable[str]) -> tuple[VerifierKey, ...]:
    """Reads the public keys of an option, which are none of witnesses. Raises ArgumentError."""
    keys = tuple(_key(option, vkey) for vkey in vkeys)
    for key in keys:
        if key.kind != KIND_ED25519:
            raise ArgumentError(f"{option}: {key.name} is the key of a witness; here are those of type 1")
    return keys


def _witness(text: str) -> tuple[str, Witness]:
    words = text.removeprefix("witness ").split()  # as its line stands in a trust document
    if len(words) not in (2, 3):
        raise ArgumentError(f"--witness: expected 'NAME VKEY URL', not {text!r}")
    key = _key("--witness", words[1])
    if key.kind != KIND_COSIGNATURE:
        raise ArgumentError(f"--witness: {key.name} is no witness's key: those have type 4")
    return words[0], Witness(key, "".join(words[2:]))


def _key(option: str, vkey: str) -> VerifierKey:
    """Reads a public key. Raises ArgumentError."""
    try:
        return VerifierKey.parse(vkey)
    except NoteError as error:
        raise ArgumentError(f"{option}: {error}") from None
