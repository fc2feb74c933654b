"""Real `kcast servers witness` processes on loopback."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from kcast.client.trust.forms.note import VerifierKey

WAIT_S = 20.0
PROGRAM = (sys.executable, "-c", "from kcast.client.cli import main; main()", "servers", "witness")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class WitnessProcess:
    """A witness of the logs that options name. It keeps port, key and state when it is started again.

    Leave its block to end it.
    """

    def __init__(self, name: str, logs: tuple[str, ...], folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.url = ""
        self._arguments = (name, *logs, "--state", str(folder))
        self._port = free_port()
        self.start()

    def start(self) -> None:
        """Starts it, for the first time or again."""
        where = ("--listen", f"127.0.0.1:{self._port}")
        self.process = subprocess.Popen(
            (*PROGRAM, *self._arguments, *where), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"witness (\S+) (\S+) (\S+)\n", line)
        assert found, self.process.communicate(timeout=WAIT_S)
        self.key = VerifierKey.parse(found[2])
        self.url = found[3]

    def stop(self, number: int = signal.SIGTERM) -> str:
        """Ends it; returns what it said on standard error."""
        os.kill(self.process.pid, number)
        return self.process.communicate(timeout=WAIT_S)[1]

    def __enter__(self) -> "WitnessProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)
