"""The option that names a key of this user's own, and the key itself, whose passphrase is asked for."""

from typing import TYPE_CHECKING

import click

from kcast.client.cli import passphrase
from kcast.client.cli.common import complete_keys

if TYPE_CHECKING:
    from kcast.client.sealed.keys import Identity

key_option = click.option(
    "--key",
    "key_name",
    metavar="NAME|FILE",
    shell_complete=complete_keys,
    help="Your key. [default: what the variable KCAST_KEY names, else 'key']",
)


def identity_of(key_name: str | None) -> "Identity":
    """Returns the user's key; asks for its passphrase. Raises KcastError."""
    from kcast.client.sealed.keys import Identity

    return Identity.load(key_name, ask=passphrase.ask)
