"""How users name a key of theirs, and a group: by its name in their folder of such, or by a file.

What contains `/` or `.` is a file. All else is a name, whatever lies in the folder where one stands:
others may have put it there. Nothing here needs an extra.
"""

import os
from contextlib import suppress

from kcast.client.clusters.contexts import config_folder
from kcast.client.trust.state.places import StateError, state_root

KEY_VARIABLE = (
    "KCAST_KEY"  # the environment variable that names the key, where neither option nor program does
)
DEFAULT_NAME = "key"

_SUFFIX = ".pem"


def is_file(text: str) -> bool:
    """Returns whether a text names a file, and not a key or group by its name."""
    return "/" in text or "." in text


def default_name() -> str:
    """Returns what names the key where nobody names one: KCAST_KEY, else `key`."""
    return os.environ.get(KEY_VARIABLE) or DEFAULT_NAME


def known() -> list[str]:
    """Returns the names of the keys in this user's folder, for the shell to complete; none where it cannot be
    read."""
    folder = config_folder()
    try:
        found = [] if folder is None else [path.name for path in (folder / "keys").iterdir()]
    except OSError:
        return []
    return sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX) and name[0] != ".")


def joined() -> list[str]:
    """Returns the names of the groups that this user has joined, sorted; none where they cannot be read."""
    with suppress(OSError, StateError):
        return sorted(path.parent.name for path in state_root("groups").glob("[a-z0-9_-]*/owner"))
    return []
