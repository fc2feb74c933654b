"""The `kcast` command as on a system that is neither Linux nor has what only Linux has.

    python -m tests.support.other_system serve --port 7400

What the standard library lacks elsewhere is removed before modules ask whether it is there.
"""

import select
import sys
from importlib import import_module

_LINUX_IN_SOCKET = ("MSG_ERRQUEUE", "SO_REUSEPORT", "SO_BINDTODEVICE", "SO_MARK", "SO_INCOMING_CPU")


def main() -> None:
    """Runs the command with the arguments of this process."""
    for name in [name for name in vars(select) if name.startswith(("epoll", "EPOLL"))]:
        delattr(select, name)

    import selectors
    import socket

    import_module("asyncio")  # its loop waits by `poll` now, and is else this machine's
    assert not hasattr(selectors, "EpollSelector")
    for name in _LINUX_IN_SOCKET:
        if hasattr(socket, name):
            delattr(socket, name)
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # so that importing it fails
    sys.platform = "darwin"

    from kcast.client.cli import main as kcast

    kcast()


if __name__ == "__main__":
    main()
