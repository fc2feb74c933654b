"""Where trust in a name is kept, and where else it may come from. It needs no extra. PROTOCOL §10.8.

A name is looked up in the user's own state, then in /etc/kcast/trust, where an administrator drops trust
documents, then in `client/trust/defaults`, where whoever packages kcast for an organisation puts them. The
latter two hold files `X.trust`; a bundle `X.bundle` beside one is a start without a network.
KCAST_TRUST_PATH, folders with `:` between them, is in place of the latter two.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from kcast.client.clusters.cluster import ClusterError, is_list_name
from kcast.client.clusters.contexts import home

PATH_VARIABLE = "KCAST_TRUST_PATH"
SYSTEM_FOLDER = Path("/etc/kcast/trust")

_DEFAULTS = Path(__file__).parents[1] / "defaults"
_DOCUMENT_BYTES_MAX = 64 * 1024
_NAME_LINE = re.compile("^name (.*)$", re.MULTILINE)


class StateError(ClusterError):
    """A folder of state that cannot be used. The message names it, and says what to do."""


def state_root(what: str = "trust") -> Path:
    """Returns the folder that holds the state of all names; `witness` is that of all witnesses.

    Raises StateError where nobody says where it is.
    """
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():  # the specification has others ignored
        return given / "kcast" / what
    try:
        return home() / ".local" / "state" / "kcast" / what
    except RuntimeError:
        raise StateError(f"there is no place for {what}: set HOME or XDG_STATE_HOME to a folder") from None


def folder_of(name: str, root: Path | None = None) -> Path:
    """Returns the folder of a name's state, whether or not it is there. Raises StateError."""
    # No name leads out of the root: `/` is quoted, and so is a point at the beginning.
    quoted = quote(name, safe="")
    return (root or state_root()) / (f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted)


def is_known(name: str) -> bool:
    """Returns whether a name is one of a signed list here, in any of these places."""
    with suppress(StateError, OSError):
        if os.path.lexists(folder_of(name) / "current"):
            return True
    return dropped(name) is not None


def known_names() -> list[str]:
    """Returns all names that are known here, sorted."""
    names = {name for name, _ in _dropped()}
    with suppress(StateError, OSError):
        names |= {unquote(each.name) for each in state_root().iterdir() if os.path.lexists(each / "current")}
    return sorted(names)


def dropped(name: str) -> Path | None:
    """Returns the trust document of a name that somebody else has put here; None where nobody has."""
    return next((path for found, path in _dropped() if found == name), None)


def bundle_beside(document: Path) -> Path | None:
    """Returns the bundle beside a trust document; None where there is none."""
    path = document.with_suffix(".bundle")
    return path if path.is_file() else None


def _dropped() -> Iterator[tuple[str, Path]]:
    """Yields name and path of each trust document, in the order in which they count."""
    for folder in _folders():
        try:
            paths = sorted(folder.glob("*.trust"))
        except OSError:
            continue
        for path in paths:
            with suppress(OSError):
                if path.is_file():
                    with path.open("rb") as file:
                        found = _NAME_LINE.search(file.read(_DOCUMENT_BYTES_MAX).decode(errors="replace"))
                    if found and is_list_name(found[1]):
                        yield found[1], path


def _folders() -> list[Path]:
    given = os.environ.get(PATH_VARIABLE)
    if given is not None:
        return [Path(each) for each in given.split(":") if each]
    return [SYSTEM_FOLDER, _DEFAULTS]
