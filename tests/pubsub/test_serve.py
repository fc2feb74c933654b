"""pubsub/serve.py: `kcast serve` as a command, and as a process on loopback."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kcast.pubsub import serve as serve_module
from kcast.pubsub import sockets, tap
from kcast.pubsub.limits import Limits
from kcast.pubsub.native import NATIVE
from kcast.pubsub.process import ServeSettings, router_of
from kcast.pubsub.router import PYTHON
from kcast.pubsub.serve import command
from kcast.pubsub.sockets import BUFFER_BYTES_DEFAULT
from kcast.pubsub.udp import UdpPort
from tests.support.logs import untimed
from tests.support.serve_process import (
    NEEDS_IPV6,
    PROGRAM,
    WAIT_S,
    Peer,
    Serve,
    next_line,
    served_address,
    stop,
)

pytestmark = pytest.mark.world


def invoke(*options: str) -> Result:
    return CliRunner().invoke(command, list(options))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """What would have been served; nothing is."""
    served: list[ServeSettings] = []

    def note(settings: ServeSettings, ports: Any, log: Any, **_: Any) -> int:
        served.append(settings)
        return 0

    monkeypatch.setattr(serve_module, "serve", note)
    return served


# --- The command -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "is_native"), [((), True), (("--no-native",), False)])
def test_no_native_holds_for_routing_and_for_both_ways_through_the_socket(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], is_native: bool
) -> None:
    found: list[bool] = []

    def note(settings: ServeSettings, ports: Sequence[UdpPort], log: Any, **_: Any) -> int:
        (port,) = ports
        port.open_outlets()
        assert port._outlets is not None
        native = port._inlet._native, port._outlets._copies._native
        found.extend([router_of(settings) is not PYTHON, *(each is not None for each in native)])
        return 0

    monkeypatch.setattr(serve_module, "serve", note)
    assert invoke("--port", "0", *options).exit_code == 0
    assert found == [is_native and NATIVE is not None] * 3


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=NEEDS_IPV6)])
def test_an_open_server_forwards_the_bare_note(serve: Serve, host: str) -> None:
    process = serve("--open", "--host", host)
    server = served_address(process)
    with Peer(server) as subscriber, Peer(server) as publisher:
        subscriber.say(b"weather\n")
        subscriber.ping()
        publisher.say(b"weather rain\nnews none\n")
        assert subscriber.hear() == b"\nweather rain\n"
        publisher.say(b"weather sun\n")
        assert subscriber.hear() == b"\nweather sun\n"
    warning, summary = untimed(stop(process, signal.SIGINT)).splitlines()
    assert warning == (
        "kcast serve: open to loopback and private addresses: anyone there can subscribe others"
    )
    assert summary == "kcast serve: messages: 3, copies sent: 2, nobody subscribed: 1; drops: none"


def test_without_open_the_bare_note_does_nothing(serve: Serve) -> None:
    process = serve()
    with Peer(served_address(process)) as peer:
        peer.say(b"weather\n")
        peer.say(b"weather rain\n")
        peer.ping()
    assert untimed(stop(process)) == (
        "kcast serve: messages: 0, copies sent: 0; drops: unvouched-publish=1 unvouched-subscribe=1\n"
    )


def test_the_ready_line_tells_ttl_and_port(serve: Serve) -> None:
    process = serve("--ttl", "7")
    assert re.fullmatch(
        r"kcast: serving on 127\.0\.0\.1:\d+ \(ttl 7 s, routing in native code\)\n", next_line(process)
    )
    assert untimed(stop(process)) == "kcast serve: messages: 0, copies sent: 0; drops: none\n"


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
            ended = not subscriber.has_heard()
            copies += not ended and subscriber.hear() == b"\nweather rain\n"
    assert ended
    assert f"messages: {copies + 1}, copies sent: {copies}, nobody subscribed: 1; drops: none" in stop(
        process
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_end_it_cleanly(serve: Serve, number: int) -> None:
    process = serve()
    next_line(process)
    stop(process, number)


def test_a_taken_port_is_one_line(serve: Serve) -> None:
    host, port = served_address(serve())
    second = serve("--port", str(port))
    output, errors = second.communicate(timeout=WAIT_S)
    assert output == ""
    assert untimed(errors) == (
        f"kcast serve: {host}:{port} is in use; stop the other server, which may drain for half a minute, "
        "or give --port\n"
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
    assert (run.returncode, untimed(run.stderr)) == (1, f"kcast serve: {complaint}\n")


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_machine_is_one_line(host: str) -> None:
    result = invoke("--host", host, "--port", "7400")
    where = f"[{host}]:7400" if ":" in host else f"{host}:7400"
    assert (
        untimed(result.stderr)
        == f"kcast serve: {where} is not an address of this machine; give another --host\n"
    )
    assert result.exit_code == 1


WRONG = """
--ttl 0|--ttl -1|--ttl 10000000|--port 65536|--port -1|--capacity 0|--leases-per-address 0|--publish-rate -1
--lines 1|--lines 65|--table lru|--work-bits 25|--head two\u00a0words|--log xml|--receive-buffer 4X
--receive-buffer 1|--receive-buffer 2G|--tap-size 1K|--metrics localhost:9400|--metrics ::1:9400
--metrics [127.0.0.1]:9400|--metrics 65536|--workers 0|--workers 2 --count 2|--workers 2 --port 65535
--workers 2 --metrics 65535|--count 2 --host 0.0.0.0|--host localhost|--host 127.0.0.1 --host 127.0.0.2
--host fe80::1%eth0|--host fe80::1|unexpected
"""


def test_usage_errors() -> None:
    for line in WRONG.strip().replace("\n", "|").split("|"):
        result = invoke("--port", "0", *line.split(" "))  # the default port may be in use
        assert result.exit_code == 2, line
        assert "Error: " in result.stderr
        assert "Traceback" not in result.stderr


# --- A head that stands in a file -----------------------------------------------------------------------


@pytest.mark.parametrize("several", [(), ("--workers", "2"), ("--count", "2")], ids=["one", "host", "lab"])
def test_answers_carry_what_the_file_of_head_says(
    serve: Serve, tmp_path: Path, several: tuple[str, ...]
) -> None:
    file = tmp_path / "head"
    file.write_text("43.wC6t8T2LVJ9KBV5PVNJGOQ\n")
    process = serve("--head", f"@{file}", *several)
    told = next_line(process)
    while several and "server " not in told:
        told = next_line(process)
    port = int(re.findall(r":(\d+)", told)[0])
    with Peer(("127.0.0.1", port)) as peer:
        assert peer.ask().attributes["head"] == "43.wC6t8T2LVJ9KBV5PVNJGOQ"


def test_a_head_that_stands_in_a_file_is_read_at_the_start(
    settings: list[ServeSettings], tmp_path: Path
) -> None:
    file = tmp_path / "head"
    file.write_text("v1")
    assert invoke("--port", "0", "--head", f"@{file}").exit_code == 0
    assert [(each.head, each.head_file) for each in settings] == [("v1", str(file))]


# --- From the command line to the settings ------------------------------------------------------------


def test_defaults(settings: list[ServeSettings]) -> None:
    assert invoke("--port", "0").exit_code == 0
    assert settings == [
        ServeSettings(
            ttl_s=60,
            table="ttl",
            limits=Limits(),
            work_bits=0,
            head="",
            head_file=None,
            tells_audience=True,
            exempts_loopback=True,
            is_native=True,
            open_to="",
            receive_buffer_bytes=BUFFER_BYTES_DEFAULT,
            metrics=None,
            tap=None,
            tap_bytes=tap.SIZE_BYTES_MAX_DEFAULT,
        )
    ]


def test_every_option_is_heard(settings: list[ServeSettings]) -> None:
    options = (
        *("--ttl", "7", "--table", "fifo", "--capacity", "11", "--leases-per-address", "12"),
        *("--leases-per-prefix", "13", "--topics", "14", "--topics-per-prefix", "10"),
        *("--publishers", "15", "--lines", "16"),
        *("--publish-rate", "17", "--copy-rate", "18", "--challenge-rate", "0", "--work-bits", "9"),
        *("--head", "v1", "--receive-buffer", "512k", "--metrics", "[::1]:9400", "--open"),
        *("--tap", "/some/file", "--tap-size", "2M", "--log", "json", "--hide-audience"),
        "--no-loopback-exemption",
        "--no-native",
    )
    assert invoke("--port", "0", *options).exit_code == 0
    limits = Limits(
        leases=11,
        leases_per_address=12,
        leases_per_prefix=13,
        topics_per_prefix=10,
        topics=14,
        publishers=15,
        lines_per_datagram=16,
        publishes_per_s=17,
        copies_per_s=18,
        challenges_per_s=0,
    )
    assert settings == [
        ServeSettings(
            ttl_s=7,
            table="fifo",
            limits=limits,
            work_bits=9,
            head="v1",
            head_file=None,
            tells_audience=False,
            exempts_loopback=False,
            is_native=False,
            open_to="local",
            receive_buffer_bytes=512 * 1024,
            metrics=("::1", 9400),
            tap="/some/file",
            tap_bytes=2 * 1024 * 1024,
        )
    ]


@pytest.mark.parametrize(
    ("option", "expected"),
    [("9400", ("127.0.0.1", 9400)), ("0.0.0.0:9400", ("0.0.0.0", 9400)), ("[::]:0", ("::", 0))],
)
def test_metrics_are_on_loopback_unless_told(
    settings: list[ServeSettings], option: str, expected: tuple[str, int]
) -> None:
    invoke("--port", "0", "--metrics", option)
    assert [each.metrics for each in settings] == [expected]


@pytest.mark.parametrize(
    ("options", "expected"),
    [(("--open",), "local"), (("--open-to-anyone",), "anyone"), (("--open", "--open-to-anyone"), "anyone")],
)
def test_who_needs_no_handshake(
    settings: list[ServeSettings], options: tuple[str, ...], expected: str
) -> None:
    result = invoke("--port", "0", *options)
    assert [each.open_to for each in settings] == [expected]
    assert "kcast serve: open to " in result.stderr


# --- What is said at the start ------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [("0.0.0.0",), pytest.param(("::",), marks=NEEDS_IPV6)])
@pytest.mark.parametrize("is_told", [False, True])
def test_a_wildcard_address_comes_with_a_warning_where_there_are_several(
    settings: list[ServeSettings], hosts: tuple[str, ...], is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers leave from the address that the system picks, and clients drop what is from another."""
    monkeypatch.setattr("kcast.pubsub.process.is_one_of_several", lambda address: is_told)
    result = invoke("--port", "0", *(word for host in hosts for word in ("--host", host)))
    assert result.exit_code == 0
    assert ("serving on several addresses" in result.stderr) is is_told
    assert ("give --host the one that clients are told" in result.stderr) is is_told


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's limit on buffers")
def test_a_setting_of_the_kernel_that_matters_comes_with_a_warning(
    settings: list[ServeSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "SO_RCVBUFFORCE", 0xFFFF)  # as for users without CAP_NET_ADMIN
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    told = invoke("--port", "0", "--receive-buffer", "1G").stderr
    assert untimed(told) == (
        f"kcast serve: the receive buffer has {limit} bytes, less than the 1073741824 wanted, so datagrams "
        "are lost sooner while the server is busy; raise the limit with: "
        "sysctl -w net.core.rmem_max=1073741824\n"
    )
    assert invoke("--port", "0", "--receive-buffer", "8K").stderr == ""


@pytest.mark.parametrize("host", ["fe80::1%eth0", "fe80::1"])
def test_a_link_local_address_is_refused_with_the_reason(host: str) -> None:
    result = invoke("--host", host)
    assert result.exit_code == 2
    assert "link-local" in result.stderr


# --- Both families -----------------------------------------------------------------------------------


@NEEDS_IPV6
def test_a_server_on_all_addresses_serves_both_families(serve: Serve) -> None:
    _, port = served_address(serve("--open", "--host", "::"))
    with Peer(("127.0.0.1", port)) as old, Peer(("::1", port)) as new:
        for peer in (old, new):
            peer.say(b"weather\n")
            peer.ping()
        new.say(b"weather rain\n")
        assert (old.hear(), new.hear()) == (b"\nweather rain\n",) * 2
