"""pubsub.serve: the driver, and `kcast serve` as a process on loopback."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pubsub.endpoint import Address, Burst, Transmit
from pubsub.limits import REQUEST_BYTES_MIN
from pubsub.serve import command, is_local, own_addresses, run
from pubsub.udp import UdpPort, open_socket

WAIT_S = 10.0
PROGRAM = (sys.executable, "-c", "from pubsub.serve import command; command()")

Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers, on any free port unless told; all are ended, whatever happens."""
    with ExitStack() as stack:

        def start(*options: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                (*PROGRAM, *(() if "--port" in options else ("--port", "0")), *options),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(end, process)
            return process

        yield start


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=WAIT_S)


def ready_line(process: subprocess.Popen[str]) -> str:
    """The first line on standard output, or what went wrong."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], WAIT_S)
    assert readable, "the server did not say that it is ready"
    line = process.stdout.readline()
    if not line:
        pytest.fail(f"the server ended: {process.communicate(timeout=WAIT_S)[1]}")
    return line


def served_address(process: subprocess.Popen[str]) -> Address:
    match = re.fullmatch(r"kcast: serving on (.+):(\d+) \(ttl \d+ s\)\n", ready_line(process))
    assert match
    return match[1].strip("[]"), int(match[2])


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Ends a server as its user would; what it said on standard error."""
    process.send_signal(number)
    rest, complaints = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, complaints
    assert rest == ""
    return complaints


class Peer:
    """A plain UDP socket with one server."""

    def __init__(self, server: Address) -> None:
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in server[0] else socket.AF_INET, socket.SOCK_DGRAM
        )
        self._socket.settimeout(WAIT_S)
        self._socket.connect(server)

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, datagram: bytes) -> None:
        self._socket.send(datagram)

    def hear(self) -> bytes:
        return self._socket.recv(65_536)

    def has_heard(self) -> bool:
        """Whether something waits to be heard."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def ping(self) -> None:
        """Returns when the server has done all that was said before."""
        self.say(b"%~ sync".ljust(REQUEST_BYTES_MIN, b"\n"))
        assert self.hear().startswith(b"%: sync ")


# --- The command -------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_open_server_forwards_the_bare_note(serve: Serve, host: str) -> None:
    process = serve("--open", "--host", host)
    server = served_address(process)
    with Peer(server) as subscriber, Peer(server) as publisher:
        subscriber.say(b"weather\n")
        subscriber.ping()
        publisher.say(b"weather rain\nnews none\n")
        assert subscriber.hear() == b"weather rain\n"
        publisher.say(b"weather sun\n")
        assert subscriber.hear() == b"weather sun\n"
    warning, summary = stop(process).splitlines()
    assert warning == (
        "kcast serve: open to loopback and private addresses: anyone there can subscribe others"
    )
    assert summary == "kcast serve: forwarded 2 copies of 3 messages; drops: no-subscriber=1"


def test_without_open_the_bare_note_does_nothing(serve: Serve) -> None:
    process = serve()
    with Peer(served_address(process)) as peer:
        peer.say(b"weather\n")
        peer.say(b"weather rain\n")
        peer.ping()
    assert stop(process) == (
        "kcast serve: forwarded 0 copies of 0 messages; drops: unvouched-publish=1 unvouched-subscribe=1\n"
    )


def test_the_ready_line_tells_ttl_and_port(serve: Serve) -> None:
    process = serve("--ttl", "7")
    assert re.fullmatch(r"kcast: serving on 127\.0\.0\.1:\d+ \(ttl 7 s\)\n", ready_line(process))
    assert stop(process) == "kcast serve: forwarded 0 copies of 0 messages; drops: none\n"


def test_a_lease_ends_after_its_ttl(serve: Serve) -> None:
    process = serve("--open", "--ttl", "1")
    server = served_address(process)
    with Peer(server) as subscriber, Peer(server) as publisher:
        subscriber.say(b"weather\n")
        subscriber.ping()
        copies, ended = 0, False
        deadline = time.monotonic() + WAIT_S
        while not ended and time.monotonic() < deadline:
            publisher.say(b"weather rain\n")
            publisher.ping()
            publisher.ping()  # answers leave before copies, so the copy is out only in the next turn
            ended = not subscriber.has_heard()
            copies += not ended and subscriber.hear() == b"weather rain\n"
    assert ended
    assert f"forwarded {copies} copies of {copies + 1} messages; drops: no-subscriber=1" in stop(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(serve: Serve, number: int) -> None:
    process = serve()
    ready_line(process)
    stop(process, number)


def test_a_taken_port_is_one_line(serve: Serve) -> None:
    host, port = served_address(serve())
    second = serve("--port", str(port))
    assert second.communicate(timeout=WAIT_S) == (
        "",
        f"kcast serve: {host}:{port} is in use; stop the other server or give --port\n",
    )
    assert second.returncode == 1


@pytest.mark.parametrize(
    ("redirection", "complaint"),
    [
        (">/dev/full", "standard output: No space left on device"),
        (">&0", "standard output: Broken pipe"),
        (">&-", "standard output is closed"),
    ],
)
def test_a_server_that_cannot_say_it_is_ready_says_why_and_ends(redirection: str, complaint: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe_without_reader:
        run = subprocess.run(
            ("sh", "-c", f'exec "$@" {redirection}', "sh", *PROGRAM, "--port", "0"),
            stdin=pipe_without_reader,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    assert (run.returncode, run.stderr) == (1, f"kcast serve: {complaint}\n")


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_machine_is_one_line(host: str) -> None:
    result = CliRunner().invoke(command, ["--host", host, "--port", "7400"])
    where = f"[{host}]:7400" if ":" in host else f"{host}:7400"
    assert result.stderr == f"kcast serve: {where} is not an address of this machine; give another --host\n"
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--ttl", "0"),
        ("--ttl", "-1"),
        ("--ttl", "10000000"),
        ("--port", "65536"),
        ("--port", "-1"),
        ("--capacity", "0"),
        ("--host", "localhost"),
        ("unexpected",),
    ],
)
def test_usage_errors(options: tuple[str, ...]) -> None:
    result = CliRunner().invoke(command, list(options))
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert "kcast serve --open" in result.stdout
    assert "lives for one --ttl" in result.stdout


@pytest.mark.skipif(shutil.which("nc.openbsd") is None, reason="netcat-openbsd is not installed")
def test_the_example_works_typed_in_one_terminal(serve: Serve) -> None:
    _, port = served_address(serve("--open"))
    told = CliRunner().invoke(command, ["--help"]).stdout
    subscribe, publish = (
        line.strip().replace("7400", str(port)).replace(" nc ", " nc.openbsd ")
        for line in told.splitlines()
        if " | nc " in line
    )
    assert " -w60 " in subscribe
    # The first may be too early, for a computer types fast.
    typed = [subscribe.replace(" -w60 ", " -w2 "), publish, publish]
    shell = subprocess.run(
        ("sh", "-c", "\n".join(typed)), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert shell.stdout in ("weather rain\n", "weather rain\nweather rain\n")


def test_no_event_loop_is_imported_before_it_is_needed() -> None:
    listing = "import sys, pubsub.serve; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run((sys.executable, "-c", listing), capture_output=True, text=True, check=True)
    assert not {"asyncio", "uvloop", "numpy", "rich"} & set(loaded.stdout.split())


def test_the_command_is_named_serve() -> None:
    assert isinstance(command, click.Command)
    assert command.name == "serve"


# --- Who is local, and who it is itself --------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("10.1.2.3", True), ("172.31.0.1", True)),
        *(("192.168.0.1", True), ("169.254.1.1", True), ("::1", True), ("fd00::1", True), ("fe80::1", True)),
        *(("172.32.0.1", False), ("192.0.2.1", False), ("100.64.0.1", False), ("8.8.8.8", False)),
        *(("2001:db8::1", False), ("0.0.0.0", False), ("::", False)),
    ],
)
def test_open_is_for_loopback_and_private_addresses(host: str, expected: bool) -> None:
    assert is_local((host, 7400)) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("192.168.0.1", {"192.168.0.1"}),
        ("::1", {"::1"}),
        ("0.0.0.0", {"127.0.0.1"}),
        ("::", {"127.0.0.1", "::1"}),
    ],
)
def test_own_addresses(host: str, expected: set[str]) -> None:
    assert own_addresses((host, 7400)) == {(each, 7400) for each in expected}


# --- The driver --------------------------------------------------------------------------------------


class Echo:
    """An endpoint that sends back what it gets, and asks for a timeout now and then."""

    def __init__(self, timeout_after_s: float | None = None, on_timeout: Callable[[], object] = int) -> None:
        self.turns: list[list[Burst]] = [[]]
        self.timeouts: list[tuple[float, float]] = []
        self._after_s = timeout_after_s
        self._on_timeout = on_timeout
        self._due: float | None = None
        self._now = 0.0

    def receive(self, burst: Burst, now: float) -> None:
        assert now >= self._now
        self._now = now
        self.turns[-1].append(burst)
        if self._after_s is not None and self._due is None:
            self._due = now + self._after_s

    def handle_timeout(self, now: float) -> None:
        assert self._due is not None
        self.timeouts.append((self._due, now))
        self._due = None
        self._on_timeout()

    def next_timeout(self) -> float | None:
        return self._due

    def flush(self, now: float) -> list[Transmit]:
        bursts = self.turns[-1]
        self.turns.append([])
        return [Transmit(data, segment_bytes, (source,)) for data, segment_bytes, source in bursts]


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def port() -> Iterator[UdpPort]:
    watchdog = threading.Timer(2 * WAIT_S, terminate)
    watchdog.start()
    try:
        with UdpPort(open_socket("127.0.0.1", 0), batching=False) as opened:
            yield opened
    finally:
        watchdog.cancel()


@pytest.fixture(params=["uvloop", "asyncio"])
def _either_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)  # makes importing it fail
    else:
        pytest.importorskip("uvloop")


@pytest.mark.usefixtures("_either_loop")
def test_what_waits_is_taken_in_turns_of_at_most_32_calls(port: UdpPort) -> None:
    endpoint: Any = Echo()
    with Peer(port.address) as peer:
        for number in range(80):
            peer.say(b"%d" % number)

        def hear_all() -> None:
            try:
                echoes.extend(peer.hear() for _ in range(80))
            finally:
                terminate()

        echoes: list[bytes] = []
        listener = threading.Thread(target=hear_all)
        run(endpoint, port, on_ready=listener.start)
        listener.join(WAIT_S)
    assert echoes == [b"%d" % number for number in range(80)]
    assert max(len(turn) for turn in endpoint.turns) <= 32
    assert len([turn for turn in endpoint.turns if turn]) <= 4


@pytest.mark.usefixtures("_either_loop")
def test_a_timeout_comes_when_due(port: UdpPort) -> None:
    endpoint = Echo(timeout_after_s=0.05, on_timeout=terminate)
    with Peer(port.address) as peer:
        peer.say(b"start")
        run(endpoint, port)
    ((due, now),) = endpoint.timeouts
    assert due <= now < due + WAIT_S
    # One turn for the datagram and one for the timeout; a timer that fires too early would make it more.
    assert len(endpoint.turns) - 1 <= 3


def test_a_wildcard_address_comes_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers leave from the address that the system picks, and clients drop what is from another."""
    monkeypatch.setattr("pubsub.serve.run", lambda *_, **__: None)
    result = CliRunner().invoke(command, ["--host", "0.0.0.0", "--port", "0"])
    assert result.exit_code == 0
    assert "on a machine with several, give --host the one that clients are told" in result.stderr
