"""What to say where the libraries of an extra are not installed."""

import sys
from importlib.util import find_spec

from kcast.client.clusters.cluster import ClusterError


class MissingExtra(ClusterError):
    """A library is not installed. `extra` is the extra of kcast that brings it."""

    def __init__(self, what: str, extra: str = "trust") -> None:
        super().__init__(f"{what} needs the extra {extra!r}: {how_to_install(extra)}")
        self.extra = extra


def how_to_install(extra: str) -> str:
    """Returns what to type for an extra, wherever kcast has come from.

    kcast is on no package index. But pip asks none for it where it is installed, as it is for the Python that
    runs it: there pip adds the libraries of the extra alone.
    """
    import shlex  # seldom needed, and slow to import

    return f"{shlex.quote(sys.executable or 'python3')} -m pip install 'kcast[{extra}]'"


def require_trust(what: str) -> None:
    """Raises MissingExtra where the extra `trust` is not installed, before a module that needs it does.

    `what` is what somebody has asked for; a module knows only what it is for itself.
    """
    if any(find_spec(library) is None for library in ("nacl", "cryptography")):
        raise MissingExtra(what)
