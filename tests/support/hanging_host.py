"""A host of processes whose servers never become ready; they write their process ids to the file `pids`."""

import os
import signal
import time
from pathlib import Path

from kcast.loadtest.clusters import process_host
from kcast.pubsub.process import ServeSettings


def hang(settings: ServeSettings, *_: object, **__: object) -> int:
    """Hangs, in place of a server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert settings.tap is not None
    with (Path(settings.tap).parent / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(60)


if __name__ == "__main__":
    process_host.__dict__["serve"] = hang
    process_host.main()
