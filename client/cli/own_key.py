"""The option that names a key of this user's own, and the key itself, whose passphrase is asked for."""

from typing import TYPE_CHECKING

from kcast.client.cli import passphrase
from kcast.client.cli.common import complete_keys, value_option

if TYPE_CHECKING:
    from kcast.client.sealed.keys import Identity

key_option = value_option(
    "--key key_name",
    str,
    "Your key. [default: what the variable KCAST_KEY names, else 'key']",
    unit="NAME|FILE",
    shell_complete=complete_keys,
)


def identity_of(key_name: str | None) -> "Identity":
    """Returns the user's key; asks for its passphrase. Raises KcastError."""
    from kcast.client.sealed.keys import Identity

    return Identity.load(key_name, ask=passphrase.ask)
