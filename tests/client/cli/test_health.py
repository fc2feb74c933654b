"""`kcast health`, against real servers and against ones that do not do their part."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from kcast.client.cli import health as health_command
from kcast.client.cli import main
from kcast.client.clusters.cluster import parse_address
from kcast.pubsub.endpoint import Address, format_address
from tests.support.scripted_server import fake_server, receipt, refusal, scripted
from tests.support.serve_process import (
    NEEDS_IPV6,
    WAIT_S,
    Peer,
    Serve,
    next_complaint,
    served_address,
    stop,
)

KCAST = (sys.executable, "-m", "kcast.client.cli")


def health(address: Address, *options: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    run = subprocess.run(
        (*KCAST, "health", format_address(address), *options),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return run.returncode, run.stdout, run.stderr


# --- Real servers ------------------------------------------------------------------------------------


def test_a_server_that_serves_is_healthy(serve: Serve) -> None:
    """Copies also go to where earlier checks were: they must not be taken for one's own."""
    address = served_address(serve("--work-bits", "8"))
    for _ in range(2):
        code, told, complaints = health(address)
        assert (code, complaints) == (0, "")
        where = re.escape(format_address(address))
        assert re.fullmatch(rf"{where} is healthy \(lease and copy in \d+\.\d ms\)\n", told)


@NEEDS_IPV6
def test_as_json(serve: Serve) -> None:
    address = served_address(serve("--host", "::1"))
    code, told, complaints = health(address, "--json")
    assert (code, complaints) == (0, "")
    fields = json.loads(told)
    assert 0 < fields.pop("seconds") < WAIT_S
    assert datetime.fromisoformat(fields.pop("time")).utcoffset() == timedelta(0)
    assert fields == {
        "address": format_address(address),
        "healthy": True,
        "why": "",
        "leased": True,
        "receipt": True,
        "copy": True,
    }


def test_a_server_that_is_full_is_healthy_with_a_remark(serve: Serve) -> None:
    address = served_address(serve("--capacity", "1"))
    with Peer(address) as holder:
        holder.vouch(b"weather")
        assert health(address) == (
            0,
            f"{format_address(address)} is healthy, but refuses a new lease: full\n",
            "",
        )


def test_a_server_that_is_draining_is_not_healthy(serve: Serve) -> None:
    process = serve()
    address = served_address(process)
    with Peer(address) as holder:
        holder.vouch(b"weather")
        process.send_signal(signal.SIGTERM)
        assert "draining" in next_complaint(process)
        where = format_address(address)
        assert health(address) == (1, "", f"kcast health: {where} is not healthy: it is draining\n")
        code, told, _ = health(address, "--json")
    assert (code, json.loads(told)["healthy"]) == (1, False)


def test_without_an_address_it_asks_where_the_first_process_serves(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in the image, whatever that is told; or where the variable says."""
    for options in (("--host", "0.0.0.0"), ("--host", "127.0.0.2", "--no-native"), ("--count", "2")):
        port = served_address(first := serve())[1]  # is free once that has ended
        stop(first)
        program = (*KCAST, "serve", "--metrics", "0", *options, f"--port={port}")
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None and process.stdout.readline()
            try:
                monkeypatch.setattr(health_command, "_FIRST_PROCESS", Path(f"/proc/{process.pid}/cmdline"))
                ended = CliRunner().invoke(main, ["health"])
            finally:
                process.kill()
        assert (ended.exit_code, f":{port} is healthy" in ended.output) == (0, True), ended.output
    first_process = tmp_path / "cmdline"
    monkeypatch.setattr(health_command, "_FIRST_PROCESS", first_process)
    for words, asked in (
        ("/sbin/init", "127.0.0.1:7400"),
        ("kcast sub serve --port 7401", "127.0.0.1:7400"),
        ("/sbin/docker-init -- /opt/kcast/bin/kcast serve --host :: --port 7401", "[::1]:7401"),
        ("kcast serve --host 192.0.2.7 --host 2001:db8::7 --workers 4", "192.0.2.7:7400"),
    ):
        first_process.write_bytes(words.replace(" ", "\0").encode() + b"\0")
        context = health_command.command.make_context("health", [])
        assert context.params["address"] == parse_address(asked)
    monkeypatch.setenv("KCAST_HEALTH", "192.0.2.8:7402")
    assert health_command.command.make_context("health", []).params["address"] == ("192.0.2.8", 7402)


def test_it_imports_no_more_than_it_needs(serve: Serve) -> None:
    """Health checks run every few seconds on every machine."""
    address = served_address(serve())
    program = (
        "import sys\n"
        "from kcast.client.cli import main\n"
        f"sys.argv = ['kcast', 'health', {format_address(address)!r}]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(*sys.modules, sep='\\n', file=sys.stderr)\n"
    )
    run = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert run.returncode == 0
    assert not {"numpy", "asyncio", "uvloop", "rich", "prometheus_client", "kcast.pubsub.server"} & set(
        run.stderr.split()
    )


# --- Servers that do not do their part ---------------------------------------------------------------


def test_a_server_that_is_not_there(serve: Serve) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    began = time.monotonic()
    where = format_address(address)
    assert health(address) == (1, "", f"kcast health: {where} is not healthy: nobody listens there\n")
    assert time.monotonic() - began < 2.5  # it does not wait for the timeout


def test_a_server_that_is_silent() -> None:
    with fake_server(lambda lines: []) as address:
        where = format_address(address)
        assert health(address, "--timeout", "0.5") == (
            1,
            "",
            f"kcast health: {where} is not healthy: no answer in 0.5 s\n",
        )


def in_process(address: Address, *options: str) -> tuple[int, str]:
    """Exit code, and the one line that it prints."""
    run = CliRunner().invoke(main, ["health", format_address(address), *options])
    assert run.output.count("\n") == 1
    return run.exit_code, run.output.strip().replace(format_address(address), "IT")


def test_a_server_that_does_not_do_its_part() -> None:
    cases: list[tuple[Callable[[bytes, bytes], list[bytes]], bool, str]] = [
        (lambda nonce, line: [line, receipt(nonce)], True, "no answer in 0.5 s"),
        (lambda nonce, line: [receipt(nonce)], False, "no copy of a message that it forwarded in 0.5 s"),
        (lambda nonce, line: [], False, "no receipt in 0.5 s"),
        (lambda nonce, line: [refusal("maintenance")(nonce)], False, "refuses to forward: maintenance"),
    ]
    for publish, elsewhere, complaint in cases:
        with fake_server(scripted(lease=receipt, publish=publish), elsewhere=elsewhere) as address:
            told = in_process(address, "--timeout", "0.5")
        assert told == (1, f"kcast health: IT is not healthy: {complaint}")


def test_a_copy_that_gets_lost_is_asked_for_again() -> None:
    copies: list[bytes] = []

    def publish(nonce: bytes, line: bytes) -> list[bytes]:
        copies.append(line)
        return [receipt(nonce), line][: len(copies)]

    with fake_server(scripted(lease=receipt, publish=publish)) as address:
        code, told, _ = health(address, "--json")
    assert code == 0
    assert len(copies) == 2
    assert json.loads(told)["seconds"] >= 0.5


def test_a_limit_is_a_remark_and_any_other_refusal_a_fault() -> None:
    for reason in ("address", "prefix", "topics", "topic", "size", "maintenance"):
        forwards = scripted(lease=refusal(reason), publish=lambda nonce, line: [receipt(nonce)])
        with fake_server(forwards) as address:
            told = in_process(address)
        if reason in ("address", "prefix", "topics"):
            assert told == (0, f"IT is healthy, but refuses a new lease: {reason}")
        else:
            assert told == (1, f"kcast health: IT is not healthy: refuses a new lease: {reason}")
    limited = scripted(lease=receipt, publish=lambda nonce, line: [refusal("rate")(nonce)])
    with fake_server(limited) as address:
        assert in_process(address) == (0, "IT is healthy, but refuses to forward more from here")
