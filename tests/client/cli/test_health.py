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

import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.stamp import Mint
from tests.support.scripted_server import fake_server, receipt, refusal, scripted
from tests.support.serve_process import (
    NEEDS_IPV6,
    WAIT_S,
    Peer,
    Serve,
    next_complaint,
    served_address,
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


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=NEEDS_IPV6)])
def test_a_server_that_serves_is_healthy(serve: Serve, host: str) -> None:
    address = served_address(serve("--host", host))
    code, told, complaints = health(address)
    assert (code, complaints) == (0, "")
    where = re.escape(format_address(address))
    assert re.fullmatch(rf"{where} is healthy \(lease and copy in \d+\.\d ms\)\n", told)


def test_as_json(serve: Serve) -> None:
    address = served_address(serve())
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


def test_one_check_after_another(serve: Serve) -> None:
    """Copies also go to where the earlier ones were: they must not be taken for one's own."""
    address = served_address(serve())
    assert [health(address)[0] for _ in range(3)] == [0, 0, 0]


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


def test_it_pays_for_its_lease(serve: Serve) -> None:
    address = served_address(serve("--work-bits", "12"))
    code, told, _ = health(address, "--json")
    assert (code, json.loads(told)["copy"]) == (0, True)


def test_a_server_that_asks_too_much_for_a_check_is_healthy_with_a_remark(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even 24 bits are found in 0.3 s once in thirty times; here, never."""
    address = served_address(serve("--work-bits", "24"))
    monkeypatch.setattr(Mint, "work", lambda mint, tries: setattr(mint, "tries", mint.tries + tries))
    run = CliRunner().invoke(main, ["health", format_address(address), "--timeout", "0.3"])
    assert run.exit_code == 0
    assert run.stdout.endswith(" is healthy, but a new lease costs more than 0.3 s of work\n")


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


@pytest.mark.parametrize(
    ("publish", "elsewhere", "complaint"),
    [
        (lambda nonce, line: [line, receipt(nonce)], True, "no answer in 0.7 s"),
        (lambda nonce, line: [receipt(nonce)], False, "no copy of a message that it forwarded in 0.7 s"),
        (lambda nonce, line: [], False, "no receipt in 0.7 s"),
        (lambda nonce, line: [refusal("maintenance")(nonce)], False, "refuses to forward: maintenance"),
    ],
    ids=["elsewhere", "no copy", "no receipt", "refusal"],
)
def test_a_server_that_does_not_do_its_part(
    publish: Callable[[bytes, bytes], list[bytes]], elsewhere: bool, complaint: str
) -> None:
    with fake_server(scripted(lease=receipt, publish=publish), elsewhere=elsewhere) as address:
        code, _, complaints = health(address, "--timeout", "0.7")
    assert code == 1
    assert complaint in complaints


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


@pytest.mark.parametrize("reason", ["address", "prefix", "topics"])
def test_a_limit_is_a_remark(reason: str) -> None:
    with fake_server(
        scripted(lease=refusal(reason), publish=lambda nonce, line: [receipt(nonce)])
    ) as address:
        remark = f"refuses a new lease: {reason}"
        assert health(address) == (0, f"{format_address(address)} is healthy, but {remark}\n", "")


@pytest.mark.parametrize("reason", ["topic", "size", "maintenance"])
def test_any_other_refusal_is_none_of_a_healthy_server(reason: str) -> None:
    with fake_server(
        scripted(lease=refusal(reason), publish=lambda nonce, line: [receipt(nonce)])
    ) as address:
        complaint = f"{format_address(address)} is not healthy: refuses a new lease: {reason}"
        assert health(address) == (1, "", f"kcast health: {complaint}\n")


def test_a_rate_is_a_remark() -> None:
    with fake_server(
        scripted(lease=receipt, publish=lambda nonce, line: [refusal("rate")(nonce)])
    ) as address:
        code, told, _ = health(address)
    assert code == 0
    assert told.endswith(" is healthy, but refuses to forward more from here\n")


# --- The command line --------------------------------------------------------------------------------


def test_help_has_an_example() -> None:
    run = subprocess.run((*KCAST, "health", "--help"), capture_output=True, text=True, check=True)
    assert "kcast health 192.0.2.7:7400 --timeout 1" in run.stdout
