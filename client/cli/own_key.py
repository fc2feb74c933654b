"""The option that names a key of this user's own, and the key itself, whose passphrase is asked for."""

from typing import TYPE_CHECKING

from kcast.client.cli import passphrase
from kcast.client.cli.common import complete_keys, say, value_option
from kcast.client.cli.text import escaped
from kcast.client.sealed import key_names

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


def identity_or_new(command: str, key_name: str | None) -> "Identity":
    """Returns the user's key. Where none is named, and there is no default one, makes that, and says so.
    Raises KcastError."""
    from kcast.client.sealed.keys import Identity
    from kcast.client.trust.state.keys import path_of

    if key_name is None and key_names.default_name() == key_names.DEFAULT_NAME:
        path = path_of(key_names.DEFAULT_NAME)
        if not (path.exists() or path.is_symlink()):
            made = Identity.make()
            say(command, f"made {escaped(str(path))}, which only you can read: back it up")
            return made
    return identity_of(key_name)
