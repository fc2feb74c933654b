"""The passphrase of key files: from the variable KCAST_KEY_PASSPHRASE, or typed."""

from getpass import GetPassWarning
from warnings import catch_warnings, simplefilter

import click

from kcast.client.trust.state.passphrase import PASSPHRASE_VARIABLE, from_environment
from kcast.pubsub.errors import KcastError


def ask(question: str = "Passphrase of your key", *, is_new: bool = False) -> bytes:
    """Returns the passphrase; one that is new is typed twice. Raises KcastError where there is none, and
    nobody to type it."""
    return from_environment() or _typed(question, is_new=is_new)


def _typed(question: str, *, is_new: bool) -> bytes:
    try:
        with catch_warnings():
            simplefilter("error", GetPassWarning)  # without a terminal it could be seen, or not be typed
            text = click.prompt(question, hide_input=True, err=True, confirmation_prompt=is_new)
    except (click.Abort, GetPassWarning):
        raise KcastError(f"no passphrase was given: type it, or set {PASSPHRASE_VARIABLE}") from None
    return str(text).encode()
