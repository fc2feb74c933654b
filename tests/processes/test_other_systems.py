"""Servers and clients without what only Linux has: by the switch, and where it is not there at all."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kcast.pubsub.sockets import SOCKETS_VARIABLE
from tests.support.forms import few_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

WAIT_S = 20.0
SYSTEMS = {
    "portable": ("kcast.client.cli", {SOCKETS_VARIABLE: "portable"}),
    "other": ("tests.support.other_system", {}),
}


class System:
    """Runs `kcast` as on some system; ends what it started."""

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        module, variables = SYSTEMS[name]
        self._command = (sys.executable, "-m", module)
        self._environment = {**os.environ, **variables, "KCAST_CLUSTER": str(folder / "lab.txt")}
        self._folder = folder
        self._stack = stack

    def run(self, *arguments: str, code: int = 0) -> str:
        """Returns what a command prints, errors included."""
        done = subprocess.run(
            (*self._command, *arguments),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def start(self, name: str, *arguments: str) -> "tuple[Path, subprocess.Popen[bytes]]":
        """Starts a command; returns the file that gets what it prints, a server's log apart."""
        path = self._folder / name
        log = subprocess.DEVNULL if "serve" in arguments else subprocess.STDOUT
        with path.open("wb") as output:
            process = subprocess.Popen(
                (*self._command, *arguments), env=self._environment, stdout=output, stderr=log
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return path, process


@pytest.fixture(params=few_of(SYSTEMS))
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    with ExitStack() as stack:
        yield System(request.param, tmp_path, stack)


@pytest.mark.parametrize("option", few_of(["--workers", "--count"]))
def test_several_servers_of_one_command_serve(option: str, system: System) -> None:
    """Each has a port of its own, so that none needs SO_REUSEPORT."""
    file, serving = system.start("lab.txt", "serve", option, "2", "--port", "0")
    wait_until(lambda: file.read_text().count("server 127.0.0.1:") == 2, "the cluster file", WAIT_S)
    heard, _ = system.start("heard", "sub", "weather", "--count", "3")
    wait_until(lambda: "leased on" in heard.read_text(), "leases", WAIT_S)
    for message in ("rain", "snow", "sun"):
        assert "nobody" not in system.run("pub", "weather", message)
    wait_until(lambda: heard.read_text().count("\n") == 4, "three messages", WAIT_S)
    assert set(heard.read_text().splitlines()[1:]) == {"rain", "snow", "sun"}
    assert "2 of 2 up" in system.run("ping", "--count", "1")
    port = re.findall(r"127\.0\.0\.1:(\d+)", file.read_text())[0]
    assert "is healthy" in system.run("health", f"127.0.0.1:{port}")
    serving.send_signal(signal.SIGINT)  # without draining
    assert serving.wait(WAIT_S) == 0
    assert "is not healthy" in system.run("health", f"127.0.0.1:{port}", "--timeout", "0.5", code=1)


def test_another_word_in_the_switch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab.txt").write_text(
        "kcast-cluster 1\npolicy k=1 publish=1 subscribe=1\nlab\nserver 127.0.0.1:9\n"
    )
    monkeypatch.setitem(SYSTEMS, "wrong", ("kcast.client.cli", {SOCKETS_VARIABLE: "fast"}))
    with ExitStack() as stack:
        said = System("wrong", tmp_path, stack).run("serve", "--port", "0", code=1)
    assert said.endswith("KCAST_SOCKETS is 'fast': set it to `portable`, or unset it\n")
    assert said.count("\n") == 1
