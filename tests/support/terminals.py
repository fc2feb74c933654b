"""Terminals in which the blocks of a page are typed: shells side by side in a copy of the checkout.

They have a network and processes of their own where the system allows that: ports and `pkill` then meet
nothing of anybody else's, and all that was started ends with them.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.pages import Block, Notes, Output
from tests.support.shape import has_shape

WAIT_S = 60.0
_GOES_FIRST = -10  # as a niceness: nine times the part of the processor that others have
SETTLE_S = 10.0  # for what processes in the background print after a block's end
SILENT_S = 2.0  # for what goes on to say something; it need not
LAST_WORDS_S = 0.3  # from what a program says to its end, if it says why it ends
POLL_S, POLL_MAX_S = 0.02, 0.5  # the longer it takes, the more seldom it is looked

LAB = """
kcast serve --count 3 --port 7401 >lab.txt &
until [ -s lab.txt ]; do sleep 0.1; done
"""

LAB_VARIABLES = {"KCAST_CLUSTER": "lab.txt"}

_ISOLATE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")

# $1 is this script's folder; each of its folders is a terminal's. What is started in the background ignores
# Ctrl-C, unless told otherwise.
_ALL_TERMINALS = """
if [ "$2" = isolated ]; then
    ip link set lo up
    for address in 192.0.2.7/32 10.0.0.7/32; do ip address add $address dev lo; done
    ip -6 address add 2001:db8::7/128 dev lo nodad
fi
for terminal in "$1"/*/; do
    env --default-signal=INT bash --norc "$1/terminal" "$terminal" </dev/null &
done
cat # until whoever opened the terminals closes them, or is gone
kill -KILL 0
"""

_TERMINAL = """
here=$1
exec 3<>"$here/typed" >>"$here/output" 2>&1
docker() { # docker-compose 1.29 where there is no `docker compose`
    if [ "$1" != compose ] || command docker compose version >/dev/null 2>&1; then
        command docker "$@"
    else
        shift && docker-compose "$@"
    fi
}
echo $$ >"$here/pid"
while read -r block <&3; do
    . "$block" </dev/null
    echo "$block" >>"$here/ended"
done
"""


class Failed(AssertionError):
    """What a page says is not what happens."""


@cache
def can_isolate() -> bool:
    """Whether this system gives an ordinary user a network and processes of his own."""
    if not all(shutil.which(program) for program in ("unshare", "ip")):
        return False
    return subprocess.run((*_ISOLATE, "true"), capture_output=True, check=False).returncode == 0


def copy_checkout(folder: Path) -> None:
    """Copies what is under version control, and links `.venv` to the environment that runs the tests."""
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)


class Terminals:
    """A page's terminals. Use `open_terminals`."""

    def __init__(self, folder: Path, count: int, wait_s: float) -> None:
        self._folder = folder
        self._wait_s = wait_s
        self._seen = [0] * (count + 1)  # bytes of output that are already judged, by terminal
        self._going_on: dict[int, tuple[Block, str]] = {}  # by terminal: what goes on there
        self._typed_count = 0

    def start_lab(self) -> None:
        """Starts the README's lab of three servers, behind the scenes. LAB_VARIABLES name its file."""
        self.type(Block(0, LAB, Notes(terminal=0)))

    def type(self, block: Block) -> None:
        """Types a block, waits for its end or until it goes on, and compares what is then to be seen.

        Raises Failed, with the page's line, when that is something else.
        """
        terminal = block.notes.terminal
        self._interrupt(terminal)
        self._seen[terminal] = len(self._output(terminal))
        name = self._type(terminal, block.text)
        if block.notes.goes_on:
            self._going_on[terminal] = block, name
        else:
            self._wait_for_end(block, terminal, name)
        for output in block.outputs:
            self._compare(output)
        if block.notes.goes_on:
            if not block.outputs:
                self._comes(lambda: self._new(terminal) or self._has_ended(terminal, name), SILENT_S)
            self._comes(lambda: self._has_ended(terminal, name), LAST_WORDS_S)
            self._must_go_on(terminal)

    def _type(self, terminal: int, text: str) -> str:
        self._typed_count += 1
        name = str(self._folder / f"block{self._typed_count}")
        told = self._path(terminal, "failed")
        trap = f"""trap 'echo "$? $BASH_COMMAND" >>{told}' ERR"""
        Path(name).write_text(f"{trap}\n{text}trap - ERR\n")
        if not self._comes(lambda: self._path(terminal, "pid").exists(), self._wait_s):
            raise Failed("no terminal opens")
        self._path(terminal, "typed").write_text(name + "\n")
        return name

    def _wait_for_end(self, block: Block, terminal: int, name: str) -> None:
        if not self._comes(lambda: self._has_ended(terminal, name), self._wait_s):
            raise Failed(f"line {block.line}: does not end; so far: {self._new(terminal)}")
        told = self._path(terminal, "failed")
        failures = told.read_text().splitlines() if told.exists() else []
        told.unlink(missing_ok=True)
        expected = [block.notes.exit_code] if block.notes.exit_code else []
        if [int(failure.split(" ")[0]) for failure in failures] != expected:
            what = "; ".join("exit code " + failure.replace(" ", " of: ", 1) for failure in failures)
            raise Failed(f"line {block.line}: {what or 'no exit code but 0'}\n{self._new(terminal)}")

    def finish(self) -> None:
        """Raises Failed where what should go on did not."""
        for terminal in list(self._going_on):
            self._must_go_on(terminal)

    def _must_go_on(self, terminal: int) -> None:
        block, name = self._going_on[terminal]
        if self._has_ended(terminal, name):
            raise Failed(f"line {block.line}: should go on, but ended: {self._new(terminal)}")

    def _compare(self, output: Output) -> None:
        if output.is_interrupted:
            self._interrupt(output.terminal)
        goes_on = output.terminal in self._going_on
        wait_s = WAIT_S if goes_on else SETTLE_S
        if not self._comes(lambda: has_shape(self._new(output.terminal), output.text), wait_s):
            raise Failed(
                f"line {output.line}: the page shows\n{output.text}\nand terminal {output.terminal}\n"
                f"{self._new(output.terminal)}"
            )
        self._seen[output.terminal] = len(self._output(output.terminal))

    def _interrupt(self, terminal: int) -> None:
        """Does what Ctrl-C would, where something goes on."""
        if terminal not in self._going_on:
            return
        self._must_go_on(terminal)
        _, name = self._going_on.pop(terminal)
        shell = self._path(terminal, "pid").read_text().strip()
        self._type(0, f"pkill -INT -P {shell}\n")
        if not self._comes(lambda: self._has_ended(terminal, name), self._wait_s):
            raise Failed(f"terminal {terminal}: Ctrl-C does not end what goes on there")
        self._path(terminal, "failed").unlink(missing_ok=True)

    @staticmethod
    def _comes(holds: Callable[[], object], wait_s: float) -> bool:
        began = time.monotonic()
        while not holds():
            waited_s = time.monotonic() - began
            if waited_s > wait_s:
                return False
            time.sleep(min(POLL_S + waited_s / 50, POLL_MAX_S))
        return True

    def _has_ended(self, terminal: int, name: str) -> bool:
        ended = self._path(terminal, "ended")
        return ended.exists() and name in ended.read_text().splitlines()

    def _new(self, terminal: int) -> str:
        return self._output(terminal)[self._seen[terminal] :].decode(errors="replace")

    def _output(self, terminal: int) -> bytes:
        output = self._path(terminal, "output")
        return output.read_bytes() if output.exists() else b""

    def _path(self, terminal: int, name: str) -> Path:
        return self._folder / str(terminal) / name


@contextmanager
def open_terminals(
    folder: Path,
    count: int,
    *,
    isolated: bool,
    activated: bool,
    variables: Mapping[str, str],
    wait_s: float = WAIT_S,
    goes_first: bool = False,
) -> Iterator[Terminals]:
    """Opens terminals 1 to `count` in a copy of the checkout, and ends all that was started in them.

    `activated` puts the environment's programs on the PATH, as `. .venv/bin/activate` does. `variables` are
    further ones of the environment. With `goes_first`, others wait for the processor, where the system can do
    that.
    """
    checkout, told, home = folder / "kcast", folder / "told", folder / "home"
    for path in (checkout, told, home):
        path.mkdir()
    copy_checkout(checkout)
    for terminal in range(count + 1):  # in terminal 0 we interrupt what goes on in the others
        (told / str(terminal)).mkdir()
        os.mkfifo(told / str(terminal) / "typed")
    (told / "terminal").write_text(_TERMINAL)
    command = ("bash", "--norc", "-c", _ALL_TERMINALS, "terminals", str(told))
    process = subprocess.Popen(
        (*_ISOLATE, *command, "isolated") if isolated else command,
        cwd=checkout,
        env={**_environment(home, activated=activated), **variables},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    if goes_first:
        # Linux may share the processor among sessions before it looks at processes (sched(7), autogroup).
        with suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(_GOES_FIRST))
    try:
        terminals = Terminals(told, count, wait_s)
        yield terminals
        terminals.finish()
    finally:
        process.communicate()


def _environment(home: Path, *, activated: bool) -> dict[str, str]:
    """What a new user's shell has; `make` need not set `.venv` up, since it is the tests' own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("LANG", "JAVA_HOME", "TMPDIR") or name.startswith("DOCKER_")
    }
    programs = f"{sys.prefix}/bin"
    path = [part for part in os.environ["PATH"].split(":") if part != programs]
    if not shutil.which("nc"):
        path.append(str(ROOT / "tests/support/programs"))
    if activated:
        path.insert(0, programs)
    return {**kept, "PATH": ":".join(path), "HOME": str(home), "TERM": "dumb", "MAKEFLAGS": "-- SETUP=:"}
