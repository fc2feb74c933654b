"""What a first program needs of kcast, publish/subscribe over UDP.

`Client` is for asyncio, `BlockingClient` for programs without a loop. `kcast.client` has all else that
programs use. Nothing is imported before it is asked for: `kcast.pubsub` alone needs no client.

PYTEST_DONT_REWRITE, or pytest warns of programs that have imported kcast before they call it.
"""

from collections.abc import Iterator
from pkgutil import extend_path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcast.client.aio import AllServersLost, Client, Delivery, Gap, KcastError, NoReceipt
    from kcast.client.blocking import Client as BlockingClient
    from kcast.client.clusters.cluster import lab
    from kcast.client.driving.mailboxes import Request
    from kcast.client.errors import NoWorker, RemoteError, RequestTimeout
    from kcast.client.events import LogTrouble
    from kcast.client.history.entries import Entry, NotKept, StoreError, Synced
    from kcast.client.layers.calls import Reply
    from kcast.client.layers.limit import FixedWindow
    from kcast.client.layers.members import MemberJoined, MemberLeft
    from kcast.hashring.policy import Policy

    __version__: str

__all__ = [
    "AllServersLost", "BlockingClient", "Client", "Delivery", "Entry", "FixedWindow", "Gap", "KcastError",
    "LogTrouble", "MemberJoined", "MemberLeft", "NoReceipt", "NoWorker", "NotKept", "Policy", "RemoteError",
    "Reply", "Request", "RequestTimeout", "StoreError", "Synced", "lab",
]  # fmt: skip


class _Folders(list[str]):
    """Where modules of kcast are: other distributions may have some, too, also on a later sys.path."""

    def __iter__(self) -> Iterator[str]:
        return iter(extend_path(self[:], __name__))


__path__ = _Folders(__path__)

if not TYPE_CHECKING:  # which would take any name for one of kcast's
    _PLACES = {"BlockingClient": "client.blocking", "Policy": "hashring.policy", "lab": "client.cluster"}
    _PLACES |= dict.fromkeys(("MemberJoined", "MemberLeft"), "client.layers.members")
    _PLACES |= {"Reply": "client.layers.calls", "Request": "client.driving.mailboxes"}
    _PLACES |= dict.fromkeys(("Entry", "NotKept", "StoreError", "Synced"), "client.history.entries")

    def __getattr__(name: str) -> object:
        if name not in __all__ and name != "__version__":
            raise AttributeError(f"module 'kcast' has no attribute {name!r}")
        from importlib import import_module, metadata

        if name == "__version__":
            return metadata.version("kcast")
        module = import_module(f"kcast.{_PLACES.get(name, 'client.aio')}")
        return getattr(module, name.removeprefix("Blocking"))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "__version__"})
