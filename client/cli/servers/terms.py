"""The options of `init` and `rotate` that say what a trust document says."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from kcast.client.trust.publisher.founding import Terms

_Command = TypeVar("_Command", bound=Callable[..., Any])
_COUNT = click.IntRange(1, 16)


def terms_options(command: _Command) -> _Command:
    """Adds the options; `read_terms` makes terms of their values."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option(
        "--signer",
        "signers",
        multiple=True,
        metavar="VKEY",
        help="A public key that signs lists, beside your own. May be given several times.",
    ),
    click.option("--signers-needed", type=_COUNT, metavar="N", help="How many signers a list needs."),
    click.option(
        "--owner",
        "owners",
        multiple=True,
        metavar="VKEY",
        help="A public key that signs trust documents. Without any, the signers do.",
    ),
    click.option("--owners-needed", type=_COUNT, metavar="N", help="How many owners a trust document needs."),
    click.option(
        "--witness",
        "witnesses",
        multiple=True,
        metavar="'NAME VKEY URL'",
        help="A witness, as 'kcast servers witness' prints it when it starts. May be given several times.",
    ),
    click.option(
        "--quorum",
        type=click.IntRange(0, 16),
        metavar="N",
        help="How many witnesses must have seen a list; 0 for none. By default two thirds, or as before.",
    ),
    click.option(
        "--url",
        "urls",
        multiple=True,
        metavar="URL",
        help="Where people fetch the list. May be given several times.",
    ),
    click.option(
        "--churn",
        "churn_percent",
        type=click.IntRange(0, 10_000),
        metavar="PERCENT",
        help="The most hosts that a list may change at once. A new list has 25, and more where it is small.",
    ),
    click.option(
        "--hosts-per-prefix",
        type=click.IntRange(0),
        metavar="N",
        help="The most hosts of one IPv4 /24 or IPv6 /48; 0 for any number.",
    ),
    click.option("--floor", type=click.IntRange(1), metavar="N", help="The fewest hosts a list may have."),
    click.option(
        "--admission",
        type=click.Choice(("now", "epoch")),
        help="Whether servers are taken at once, or after an epoch in which they were announced.",
    ),
    click.option(
        "--expiry",
        type=click.Choice(("warn", "refuse")),
        help="What clients do with a list that has expired. A new list has 'warn'.",
    ),
)


def read_terms(options: dict[str, Any]) -> "Terms":
    """Returns what the options say; keys of signers and owners are those that were typed, and no others.

    Raises NoteError.
    """
    from kcast.client.trust.publisher.founding import Terms

    return Terms(
        signers=_keys("--signer", options["signers"]),
        signer_threshold=options["signers_needed"],
        owners=_keys("--owner", options["owners"]),
        owner_threshold=options["owners_needed"],
        witnesses=tuple(map(_witness, options["witnesses"])) or None,
        quorum=options["quorum"],
        churn_percent=options["churn_percent"],
        hosts_per_prefix=options["hosts_per_prefix"],
        floor=options["floor"],
        admission=options["admission"],
        expiry=options["expiry"],
        urls=tuple(map(_url, options["urls"])) or None,
    )


def _url(text: str) -> str:
    """Returns a URL that people can fetch from. Raises EditError."""
    from kcast.client.trust.publisher.editing import EditError

    with suppress(ValueError):  # of brackets, or of a port that is none
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if (is_web or parts.scheme == "file") and text.isprintable() and " " not in text:
            return text
    raise EditError(f"--url {text}: give a URL such as https://lists.example.org/lab")


def _keys(option: str, vkeys: tuple[str, ...]) -> Any:
    from kcast.client.trust.forms.note import KIND_ED25519, VerifierKey
    from kcast.client.trust.publisher.editing import EditError

    keys = tuple(map(VerifierKey.parse, vkeys))
    if any(key.kind != KIND_ED25519 for key in keys):
        raise EditError(f"{option}: it is a witness's key: signers and owners have keys of type 1")
    return keys or None


def _witness(text: str) -> Any:
    from kcast.client.trust.forms.note import KIND_COSIGNATURE, VerifierKey
    from kcast.client.trust.forms.quorum import Witness
    from kcast.client.trust.publisher.editing import EditError

    words = text.removeprefix("witness ").split()  # as its line stands in a trust document
    if len(words) not in (2, 3):
        raise EditError(f"--witness: expected 'NAME VKEY URL', not {text!r}")
    key = VerifierKey.parse(words[1])
    if key.kind != KIND_COSIGNATURE:
        raise EditError(f"--witness: {key.name} is no witness's key: those have type 4")
    return words[0], Witness(key, "".join(words[2:]))
