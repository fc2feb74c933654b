"""`kcast doctor` with real servers, with servers that do not do their part, and on broken paths."""

import errno
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.client.cli.doctor import examine, machine
from kcast.client.cli.probe import Probe
from kcast.client.clusters.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.stamp import Mint
from tests.support.checkout import ROOT
from tests.support.forgetful_nat import forgetful_nat
from tests.support.namespaces import Namespace, need_namespaces
from tests.support.scripted_server import COOKIE, fake_server, receipt, refusal, scripted
from tests.support.serve_process import (
    NEEDS_IPV6,
    WAIT_S,
    Peer,
    Serve,
    next_complaint,
    next_line,
    served_address,
    serving,
)

KCAST = (sys.executable, "-m", "kcast.client.cli")
Answer = Callable[[list[bytes]], list[bytes]]


def doctor(*arguments: str) -> tuple[int, str]:
    """Exit code and standard output; nothing else is said."""
    run = CliRunner().invoke(main, ["doctor", *arguments], env={"KCAST_CLUSTER": None})
    assert run.stderr == ""
    return run.exit_code, run.stdout


def rows_of(*arguments: str) -> list[dict[str, Any]]:
    """All findings, in the order in which they are told. The exit code fits them."""
    code, told = doctor(*arguments, "--json")
    rows = [json.loads(line) for line in told.splitlines()]
    assert code == any(row["level"] == "fault" for row in rows)
    return rows


def found(address: Address, *options: str) -> list[str]:
    """The findings at one address, without those about this machine."""
    return _ids(rows_of(format_address(address), *options))


def _ids(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What was found of servers, but for the version, which each one of now tells."""
    return [row["id"] for row in rows if row["server"] and row["id"] != "version"]


def found_at_once(addresses: Sequence[Address], folder: Path, *options: str) -> list[list[str]]:
    """The findings at each of several addresses, of one run."""
    file = folder / "lab.cluster"
    file.write_text(format_cluster(lab(addresses, Policy(3, 2, 3))))
    rows = rows_of("--cluster", str(file), *options)
    names = map(format_address, addresses)
    return [_ids([row for row in rows if row["address"] == name]) for name in names]


FINE = ["answers", "leases", "copies"]


@pytest.fixture(autouse=True)
def _no_drops_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SOCKETS", ())


@pytest.fixture(autouse=True)
def _pings_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between pings take a second of each run. They stay where the command is a process of its own."""
    monkeypatch.setattr(examine, "PING_INTERVAL_S", 0.002)


# --- Real servers ------------------------------------------------------------------------------------


@NEEDS_IPV6
def test_a_server_that_serves(serve: Serve) -> None:
    assert found(served_address(serve("--host", "::1"))) == FINE


def test_a_cluster_of_which_one_is_dead(serve: Serve, tmp_path: Path) -> None:
    processes = [serve(), serve()]
    addresses = [served_address(process) for process in processes]
    file = tmp_path / "lab.cluster"
    file.write_text(format_cluster(lab(addresses, Policy(2, 1, 2))))
    code, told = doctor("--cluster", str(file))
    assert code == 0
    assert " ".join(told.split()).count(f"version {version('kcast')}") == 2
    assert told.endswith("\nnothing to do: 2 addresses examined\n")
    processes[1].kill()
    processes[1].wait(WAIT_S)
    code, told = doctor("--cluster", str(file))
    assert code == 1
    well, ill = map(format_address, addresses)
    assert re.search(
        rf"^ok     {well}  answers 20 pings in .* ms, leases for 60 s, copies", told, re.MULTILINE
    )
    assert re.search(
        rf"^fault  {ill}  nobody listens on UDP port {addresses[1][1]} there: start", told, re.MULTILINE
    )
    assert told.endswith("\n1 thing to do, at 1 of 2 addresses\n")
    assert all(len(line) <= 80 for line in told.splitlines())


def test_names_and_where_they_lead(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        if host == "nobody.kcast":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    _, port = served_address(serve())
    file = tmp_path / "named.cluster"
    lines = ("names", f"server kcast-0.kcast:{port} key=a", "server nobody.kcast:7400 key=b")
    file.write_text("\n".join(("kcast-cluster 1", "policy scheme=CH k=2", *lines, "")))
    code, told = doctor("--cluster", str(file))
    assert code == 1
    assert re.search(rf"^ok     kcast-0.kcast:{port} \(127.0.0.1\)  answers", told, re.MULTILINE)
    assert re.search(r"^fault  nobody.kcast:7400 +its name leads to no address:", told, re.MULTILINE)


def test_as_json(serve: Serve) -> None:
    address = served_address(serve())
    code, told = doctor(format_address(address), "--json")
    rows = [json.loads(line) for line in told.splitlines()]
    keys = {"time", "server", "address", "id", "level", "text", "advice", "figures"}
    assert code == 0
    assert all(set(row) == keys for row in rows)
    answers = rows[0]
    assert (answers["server"], answers["address"], answers["level"]) == (*[format_address(address)] * 2, "ok")
    assert (answers["figures"]["sent"], answers["figures"]["lost"]) == (20, 0)
    assert answers["figures"]["path_bytes"] > 1228 or sys.platform != "linux"
    assert [row["id"] for row in rows if row["server"] is None][::2] == ["families", "clock"]


def test_what_settings_of_a_server_bring(serve: Serve, tmp_path: Path) -> None:
    expected = {
        ("--capacity", "1"): ["answers", "refused"],
        ("--topics", "1"): ["answers", "refused"],
        ("--open",): [*FINE, "open"],
        ("--ttl", "5"): ["answers", "short-ttl", "copies"],
        ("--work-bits", "8"): FINE,
        ("--challenge-rate", "1"): FINE,  # what is lost of strangers' pings is no loss of the path
    }
    with ExitStack() as stack:
        addresses = []
        for options in expected:
            addresses.append(_open(serve) if options == ("--open",) else served_address(serve(*options)))
            if options[0] in ("--capacity", "--topics"):
                stack.enter_context(Peer(addresses[-1])).vouch(b"weather")
        assert found_at_once(addresses, tmp_path, "--timeout", "5") == list(expected.values())


def _open(serve: Serve) -> Address:
    process = serve("--open")
    assert "open" in next_complaint(process)
    return served_address(process)


# --- Servers that do not do their part ---------------------------------------------------------------


def copy(nonce: bytes, line: bytes) -> list[bytes]:
    return [receipt(nonce), line]


def lease_for(ttl_s: int, bits: int = 0) -> Callable[[bytes], bytes]:
    return lambda nonce: wire.format_line(wire.Receipt(nonce, ttl_s, COOKIE, bits))


GOOD = scripted(lease=receipt, publish=copy)


def but(change: Callable[[list[bytes], list[bytes]], list[bytes]]) -> Answer:
    """The good server, whose answers are changed: from what it was asked, and what it would answer."""
    return lambda lines: change(lines, GOOD(lines))


def is_ping(lines: list[bytes]) -> bool:
    return lines[0].startswith(b"%~")


def is_ask(lines: list[bytes]) -> bool:
    return lines[0].startswith(b"%?")


def other_nonces(lines: list[bytes], answers: list[bytes]) -> list[bytes]:
    return [re.sub(rb"^(%.) [^ ]+", rb"\1 AAAAAAAAAAA", answer) for answer in answers]


def dear(bits: int) -> Answer:
    def answer(lines: list[bytes]) -> list[bytes]:
        request = wire.parse_request(lines[0])
        if isinstance(request, wire.Ask):
            return [wire.format_line(wire.Challenge(request.nonce, COOKIE, bits))]
        return GOOD(lines)

    return answer


def forgetting(lines: list[bytes]) -> list[bytes]:
    """Never takes a cookie of its own, as where each datagram comes from another address."""
    request = wire.parse_request(lines[0])
    if isinstance(request, wire.Vouch):
        return [wire.format_line(wire.Challenge(request.nonce, COOKIE, 0))]
    return GOOD(lines)


def some_lost() -> Answer:
    pings = iter(range(1000))
    return but(lambda lines, answers: [] if is_ping(lines) and next(pings) % 4 == 0 else answers)


def drains(lines: list[bytes], answers: list[bytes]) -> list[bytes]:
    return [answer[:-1] + b" drain=1\n" if answer.startswith(b"%") else answer for answer in answers]


def no_leases(lines: list[bytes], answers: list[bytes]) -> list[bytes]:
    return answers if is_ping(lines) or is_ask(lines) else []


def forwards(publish: Callable[[bytes, bytes], list[bytes]]) -> Answer:
    return scripted(lease=receipt, publish=publish)


def refuses(reason: str) -> Answer:
    return scripted(lease=refusal(reason), publish=lambda nonce, line: [receipt(nonce)])


LEASED = ["answers", "leases"]

SERVERS: dict[str, tuple[Answer, list[str]]] = {
    "is good": (GOOD, FINE),
    "is silent": (but(lambda lines, answers: []), ["silent"]),
    "has no pongs": (
        but(lambda lines, answers: [] if is_ping(lines) else answers),
        ["no-answer", "leases", "copies"],
    ),
    "has no cookie": (
        but(lambda lines, answers: answers if is_ping(lines) else []),
        ["answers", "no-answer"],
    ),
    "repeats other nonces": (but(other_nonces), ["silent"]),
    "speaks something else": (but(lambda lines, answers: [b"HTTP/1.0 400 Bad Request\n"]), ["silent"]),
    "answers, and adds something": (but(lambda lines, answers: [*answers, b"junk\n", b"\x00"]), FINE),
    "forwards the checks of others": (
        but(lambda lines, answers: [*answers, wire.HEALTH_TOPIC + b" 0123456789abcdef\n"]),
        FINE,
    ),
    "loses a quarter": (some_lost(), ["loss", "leases", "copies"]),
    "drains": (but(drains), ["answers", "draining"]),
    "forgets its cookies": (forgetting, ["answers", "cookie-forgotten"]),
    "gives no lease": (but(no_leases), ["answers", "no-answer"]),
    "asks too much": (dear(30), ["answers", "work"]),
    "gives short leases": (
        scripted(lease=lease_for(2), publish=lambda nonce, line: [lease_for(2)(nonce), line]),
        ["answers", "short-ttl", "copies"],
    ),
    "gives no receipt": (forwards(lambda nonce, line: []), [*LEASED, "no-answer"]),
    "sells and does not deliver": (forwards(lambda nonce, line: [receipt(nonce)]), [*LEASED, "no-copy"]),
    "refuses to forward": (
        forwards(lambda nonce, line: [refusal("rate")(nonce)]),
        [*LEASED, "refused"],
    ),
    "says address": (refuses("address"), ["answers", "refused"]),
    "says what nobody knows": (refuses("moon"), ["answers", "refused"]),
}


def test_what_is_found_at_a_server_that(tmp_path: Path) -> None:
    """All are examined at the same time: most let it wait."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(fake_server(answer)) for answer, _ in SERVERS.values()]
        found = found_at_once(addresses, tmp_path, "--timeout", "1.5")
    assert dict(zip(SERVERS, found, strict=True)) == {name: ids for name, (_, ids) in SERVERS.items()}


def test_work_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even 24 bits are found in 0.5 s once in fifteen times; here, never."""
    monkeypatch.setattr(Mint, "work", lambda mint, tries: setattr(mint, "tries", mint.tries + tries))
    with fake_server(dear(24)) as address:
        assert found(address, "--timeout", "0.5") == ["answers", "work"]


def test_an_address_to_which_the_system_does_not_send(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: Address) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("kcast.client.cli.doctor.examine._connected", refuse)
    code, told = doctor("127.0.0.1:7400")
    assert code == 1
    assert "the system does not send to it (EACCES)" in " ".join(told.split())


def test_answers_from_another_port() -> None:
    with fake_server(GOOD, elsewhere=True) as address:
        assert found(address, "--timeout", "0.3") == ["elsewhere"]


def test_a_path_that_loses_what_is_long() -> None:
    """Only on the way back."""

    def short_back(lines: list[bytes]) -> list[bytes]:
        return [answer for answer in GOOD(lines) if len(answer) < 1000]

    with fake_server(short_back) as address:
        assert found(address, "--timeout", "0.5") == ["answers", "leases", "full-copies-lost"]


def test_no_ping_waits_for_work_that_another_server_asks(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [served_address(serve("--work-bits", bits)) for bits in ("18", "0", "10")]
    file = tmp_path / "lab.cluster"
    file.write_text(format_cluster(lab(addresses, Policy(3, 1, 3))))
    order = []
    work, ping = Probe.datagrams_to_send, Probe.ping

    def noted_work(probe: Probe, now: float) -> list[bytes]:
        if probe.session.is_minting:
            order.append("work")
        return work(probe, now)

    def noted_ping(*given: Any) -> bytes:
        order.append("ping")
        return ping(*given)

    monkeypatch.setattr(Probe, "datagrams_to_send", noted_work)
    monkeypatch.setattr(Probe, "ping", noted_ping)
    assert doctor("--cluster", str(file))[0] == 0
    assert order == sorted(order, reverse=True)
    assert {*order} == {"work", "ping"}


# --- Paths -------------------------------------------------------------------------------------------


def test_a_nat_that_forgets_sooner_than_clients_renew(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "PAUSES_S", (0.2, 2.5, 3.5))
    monkeypatch.setattr(examine, "COPY_WAIT_S", 0.3)
    address = served_address(serve("--ttl", "12"))  # clients renew every 4 s
    with forgetful_nat(address, memory_s=1.5) as outside:
        code, told = doctor(format_address(outside), "--slow")
    assert code == 1
    text = (
        "copies stop after 2.5 s without traffic, clients renew every 4 s: let NAT and firewall remember UDP"
    )
    assert text in " ".join(told.replace(format_address(outside), "").split())


def test_a_server_that_is_far_away(serve: Serve) -> None:
    server = format_address(served_address(serve()))
    typed = (sys.executable, "-m", "tests.attacks.relay", server, "400", "127.0.0.1")
    with subprocess.Popen(typed, stdout=subprocess.PIPE, text=True, cwd=ROOT) as relay:
        assert relay.stdout is not None
        assert found(("127.0.0.1", int(relay.stdout.readline()))) == FINE
        relay.kill()


SERVER, CLIENT = "192.0.2.2", "192.0.2.1"


@contextmanager
def two_machines(*, client_mtu: int = 1500, server_mtu: int = 1500) -> Iterator[tuple[Namespace, Namespace]]:
    """A client's machine and one with a server, on a link."""
    need_namespaces()
    with Namespace() as client, Namespace() as server, serving() as serve:
        client.link("a", server, "b")
        client.add("a", f"{CLIENT}/24")
        server.add("b", f"{SERVER}/24")
        client.run("ip", "link", "set", "dev", "a", "mtu", str(client_mtu))
        server.run("ip", "link", "set", "dev", "b", "mtu", str(server_mtu))
        process = server.call(lambda: serve("--host", SERVER, "--port", "7400"))
        assert "serving" in next_line(process)
        yield client, server


def found_from(client: Namespace, *arguments: str) -> list[str]:
    typed = (*KCAST, "doctor", *arguments, "--json", "--timeout", "1")
    run = client.call(lambda: subprocess.run(typed, capture_output=True, text=True, check=False))
    assert run.stderr == ""
    return _ids([json.loads(line) for line in run.stdout.splitlines()])


@pytest.mark.parametrize(
    ("mtus", "expected"),
    [
        ({"client_mtu": 1000, "server_mtu": 1000}, ["answers", "fragments", "leases", "copies"]),
        ({"client_mtu": 1000}, ["answers", "fragments", "leases", "full-copies-lost"]),
        ({"server_mtu": 1000}, ["full-lost", "answers", "leases", "copies"]),
    ],
)
def test_links_that_take_short_packets_only(mtus: dict[str, int], expected: list[str]) -> None:
    with two_machines(**mtus) as (client, _):
        assert found_from(client, f"{SERVER}:7400") == expected


def test_a_path_that_is_narrow_further_on() -> None:
    """The kernel learns what it takes from the router, and loses a long ping by that."""
    need_namespaces()
    far = "198.51.100.2"
    with Namespace() as client, Namespace() as router, Namespace() as server, serving() as serve:
        client.link("a", router, "r")
        server.link("b", router, "s")
        client.add("a", f"{CLIENT}/24")
        router.add("r", "192.0.2.254/24")
        router.add("s", "198.51.100.254/24")
        server.add("b", f"{far}/24")
        router.set("net/ipv4/ip_forward", 1)
        client.run("ip", "route", "add", "default", "via", "192.0.2.254")
        server.run("ip", "route", "add", "default", "via", "198.51.100.254")
        for namespace, device in ((router, "s"), (server, "b")):
            namespace.run("ip", "link", "set", "dev", device, "mtu", "1000")
        process = server.call(lambda: serve("--host", far, "--port", "7400"))
        assert "serving" in next_line(process)
        assert found_from(client, f"{far}:7400") == ["answers", "fragments", "leases", "copies"]


def test_a_firewall_that_drops_one_direction() -> None:
    with two_machines() as (client, server):
        server.run("ip", "route", "add", "blackhole", f"{CLIENT}/32")
        assert found_from(client, f"{SERVER}:7400") == ["silent"]


def test_a_machine_that_is_not_there() -> None:
    with two_machines() as (client, _):
        client.set("net/ipv4/neigh/a/retrans_time_ms", 50)
        assert found_from(client, "192.0.2.9:7400") == ["unreachable"]


def test_addresses_to_which_there_is_no_way(tmp_path: Path) -> None:
    file = tmp_path / "two.cluster"
    servers = (f"server {SERVER}:7400,[2001:db8::2]:7400", "server [2001:db8::3]:7400")
    file.write_text("\n".join(("kcast-cluster 1", "policy k=2 publish=1 subscribe=2", *servers, "")))
    with two_machines() as (client, _):
        assert found_from(client, "--cluster", str(file)) == [*FINE, "no-family", "only-other-family"]


# --- This machine, and the terminal ------------------------------------------------------------------


def test_which_socket_has_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    watch = machine.MachineWatch()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as full:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        full.bind(("127.0.0.1", 0))
        for _ in range(100):
            full.sendto(bytes(1200), full.getsockname())
        if sys.platform == "linux":
            seen = watch.seen()
            assert full.getsockname()[1] in seen.dropping_ports and seen.dropped_count > 0


def test_tables_of_sockets_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "udp").write_text("heads\n1: 00000000:1CE8 x\n")
    monkeypatch.setattr(machine, "SOCKETS", (tmp_path / "udp", tmp_path / "none"))
    assert machine.MachineWatch().seen().dropped_count == 0


def test_a_clock_that_jumps() -> None:
    times = iter((1000.0, 3600.0, 3600.0))
    seen = machine.MachineWatch(lambda: next(times)).seen()
    assert 2590 < seen.clock_jump_s <= 2600


def test_a_terminal_is_told_how_far_it_is() -> None:
    master, slave = pty.openpty()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        typed = (*KCAST, "doctor", format_address(silent.getsockname()), "--timeout", "0.3")
        with subprocess.Popen(
            typed, stdout=subprocess.PIPE, stderr=slave, text=True, env={**os.environ, "TERM": "xterm"}
        ) as process:
            told, _ = process.communicate(timeout=WAIT_S)
    os.close(slave)
    shown = b""
    while select.select([master], [], [], 0)[0]:
        try:
            shown += os.read(master, 4096)
        except OSError:
            break
    os.close(master)
    assert process.returncode == 1
    assert "nothing answers 20 pings" in told
    assert b"0 of 1 address examined" in shown
