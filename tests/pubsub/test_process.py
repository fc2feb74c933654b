"""pubsub/process.py: a server from its first line to its last, mostly as a real process."""

import gc
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from kcast.pubsub import process, wire
from kcast.pubsub.driver import Ending
from kcast.pubsub.endpoint import Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.log import Log
from kcast.pubsub.process import ServeSettings, rare_collections
from kcast.pubsub.server import Server
from kcast.pubsub.tap import read
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.logs import untimed
from tests.support.serve_process import WAIT_S, Peer, Serve, next_complaint, next_line, served_address, stop
from tests.support.server_core import START, lease, new_server

pytestmark = pytest.mark.world

SETTINGS = ServeSettings(
    ttl_s=60,
    table="ttl",
    limits=Limits(),
    work_bits=0,
    head="",
    head_file=None,
    tells_audience=True,
    open_to="",
    exempts_loopback=True,
    is_native=True,
    receive_buffer_bytes=4096,
    metrics=None,
    tap=None,
    tap_bytes=2**20,
)


def fields(line: str) -> dict[str, Any]:
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


# --- Draining ----------------------------------------------------------------------------------------


def test_a_drain_lasts_until_the_last_lease_has_ended(serve: Serve) -> None:
    process = serve("--ttl", "2")
    with Peer(served_address(process)) as subscriber, Peer(subscriber.server) as newcomer:
        (receipt,) = subscriber.vouch(b"weather")
        assert isinstance(receipt, wire.Receipt)
        process.send_signal(signal.SIGTERM)
        assert untimed(next_complaint(process)) == (
            "kcast serve: draining for 6 s at most, 1 lease left; a second signal ends it at once\n"
        )
        # It tells everyone, takes nothing new, and forwards.
        assert newcomer.ask().attributes["drain"] == "1"
        (refusal,) = newcomer.vouch(b"weather")
        assert isinstance(refusal, wire.Refusal)
        assert refusal.reason == "drain"
        (receipt,) = newcomer.vouch(b"weather rain")
        assert isinstance(receipt, wire.Receipt)
        assert receipt.attributes["drain"] == "1"
        assert subscriber.hear() == b"weather rain\n"
        rest, complaints = process.communicate(timeout=WAIT_S)
    assert (rest, process.returncode) == ("", 0)
    assert untimed(complaints) == (
        "kcast serve: messages: 1, copies sent: 1; drops: none; sent elsewhere for new leases: 1\n"
    )


def test_ctrl_c_does_not_wait_for_leases(serve: Serve) -> None:
    process = serve("--log", "json")
    with Peer(served_address(process)) as subscriber:
        subscriber.vouch(b"weather")
        summary = fields(stop(process, signal.SIGINT))
    assert (summary["ending"], summary["leases"]) == ("signal", 1)


def test_log_json_prints_nothing_else(serve: Serve) -> None:
    process = serve("--log", "json", "--metrics", "0", "--open")
    serving = json.loads(next_line(process))
    assert (serving["event"], serving["level"], serving["ttl_s"]) == ("serving", "info", 60)
    (address,) = serving["addresses"]
    assert f"serving on {address} (" in serving["text"]
    process.send_signal(signal.SIGINT)
    rest, complaints = process.communicate(timeout=WAIT_S)
    assert rest == ""
    assert [json.loads(line)["event"] for line in complaints.splitlines()] == ["open", "metrics", "end"]


# --- Metrics and tap -----------------------------------------------------------------------------------


def scrape(url: str) -> str:
    host, port = url.removeprefix("http://").removesuffix("/metrics").split(":")
    connection = HTTPConnection(host, int(port), timeout=WAIT_S)
    connection.request("GET", "/metrics")
    with connection.getresponse() as response:
        text = response.read().decode()
    connection.close()
    return text


def test_metrics_of_a_running_server(serve: Serve) -> None:
    server = serve("--metrics", "0", "--log", "json", "--work-bits", "0")
    where = fields(next_complaint(server))
    assert where["event"] == "metrics"
    with Peer(served_address(server)) as peer:
        peer.vouch(b"weather")
        peer.vouch(b"weather rain")
        text = scrape(where["url"])
        assert "\nkcast_leases 1.0\n" in text
        assert "\nkcast_copies_total 1.0\n" in text
        assert "\nkcast_draining 0.0\n" in text
        assert "\nprocess_cpu_seconds_total " in text
        server.send_signal(signal.SIGTERM)
        assert fields(next_complaint(server))["event"] == "drain"
        assert "\nkcast_draining 1.0\n" in scrape(where["url"])
    stop(server, signal.SIGINT)


def test_a_tap_has_what_happened(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "tap"
    process = serve("--tap", str(file))
    with Peer(served_address(process)) as peer:
        peer.vouch(b"weather")
        peer.vouch(b"weather rain")
        stop(process, signal.SIGINT)
    assert file.exists()
    assert {type(record).__name__ for record in read(file)} >= {"TapLease", "TapBurst"}


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ("missing/tap", "--tap: {path}: No such file or directory"),
        (".", "--tap: {path} is no regular file"),
        ("text", "--tap: {path} is no tap file, and would be moved or deleted; give another name"),
    ],
)
def test_a_tap_that_cannot_be_written_is_one_line(
    serve: Serve, tmp_path: Path, file: str, complaint: str
) -> None:
    (tmp_path / "text").write_text("precious")
    path = tmp_path / file
    process = serve("--tap", str(path))
    output, errors = process.communicate(timeout=WAIT_S)
    assert (output, untimed(errors)) == ("", f"kcast serve: {complaint.format(path=path)}\n")
    assert process.returncode == 1
    assert (tmp_path / "text").read_text() == "precious"


# --- What it costs to do nothing ---------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="CPU time is read from /proc")
def test_an_idle_server_does_nothing(serve: Serve, tmp_path: Path) -> None:
    """With metrics, a tap, and leases standing. What was measured is nothing at all in 10 s."""
    plain = serve()
    full = serve("--metrics", "0", "--tap", str(tmp_path / "tap"), "--log", "json")
    with Peer(served_address(plain)) as one, Peer(served_address(full)) as other:
        for peer in (one, other):
            peer.vouch(*(b"topic%d" % number for number in range(60)))
            peer.vouch(b"topic1 hello")
        time.sleep(1.5)  # the tap writes a second later
        before = [cpu_s(process.pid) for process in (plain, full)]
        time.sleep(2.0)
        after = [cpu_s(process.pid) for process in (plain, full)]
    assert min(before) > 0.01  # it is CPU time that is read
    assert max(late - early for early, late in zip(before, after, strict=True)) < 0.01


def cpu_s(process_id: int) -> float:
    """CPU time of all threads of a process, in seconds."""
    tasks = Path(f"/proc/{process_id}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


# --- What the core and the driver are given ----------------------------------------------------------


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Server, dict[str, Any]]]:
    """What the driver was given; it returns at once."""
    given: list[tuple[Server, dict[str, Any]]] = []

    def run(core: Server, ports: Sequence[UdpPort], **options: Any) -> Ending:
        given.append((core, options))
        return Ending.SIGNAL

    monkeypatch.setattr(process, "run", run)
    return given


def run_with(settings: ServeSettings, label: str = "") -> tuple[int, tuple[str, int]]:
    with UdpPort(open_socket("127.0.0.1", 0)) as port:
        code = process.serve(settings, [port], Log(label=label), on_ready=lambda: None)
        return code, port.address


def test_the_secret_is_new_each_time(driven: list[tuple[Server, dict[str, Any]]]) -> None:
    run_with(SETTINGS)
    run_with(SETTINGS)
    ask = wire.request_datagram(wire.Ask(b"x"))
    answers = []
    for server, _ in driven:
        server.receive(Burst(ask, len(ask), ("192.0.2.1", 1)), 1.0)
        answers.append(server.flush(1.0)[0].data)
    assert answers[0] != answers[1]


@pytest.mark.parametrize(
    ("open_to", "source", "leases"),
    [("", "127.0.0.1", 0), ("local", "127.0.0.1", 1), ("local", "192.0.2.1", 0), ("anyone", "192.0.2.1", 1)],
)
def test_whom_it_is_open_to(
    driven: list[tuple[Server, dict[str, Any]]], open_to: str, source: str, leases: int
) -> None:
    run_with(replace(SETTINGS, open_to=open_to))
    ((server, _),) = driven
    server.receive(Burst(b"weather\n", 8, (source, 1)), 1.0)
    assert len(server.leases) == leases


def test_an_orphan_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "run", lambda *_, **__: Ending.ORPHANED)
    code, _ = run_with(SETTINGS)
    assert code == 1
    assert untimed(capsys.readouterr().err).startswith(
        "kcast serve: the process that started this server is gone\n"
    )


@pytest.mark.parametrize(("leases", "told"), [(1, "1 lease"), (2, "2 leases"), (0, "0 leases")])
def test_a_suspension_is_told_with_the_leases_that_it_has_ended(
    capsys: pytest.CaptureFixture[str], leases: int, told: str
) -> None:
    server = new_server(ttl_s=60)
    for number in range(leases):
        lease(server, ("198.51.100.1", number + 1), b"t")
    say = process._say_suspended(server, Log(), 3600.2)
    server.handle_timeout(START + 3600)
    say()
    assert untimed(capsys.readouterr().err) == (
        f"kcast serve: the machine was suspended for 3600 s; {told} ended meanwhile\n"
    )


def test_a_server_looks_at_all_its_objects_for_garbage_hardly_ever() -> None:
    """Of 100,000 leases that would take up to 80 ms each time."""
    before = gc.get_threshold()
    full = gc.get_stats()[2]["collections"]
    with rare_collections():
        assert gc.get_freeze_count() > 0
        kept = [[number] for number in range(300_000)]
        assert gc.get_stats()[2]["collections"] == full + 1, "the one at the start"
    assert gc.get_threshold() == before and len(kept) == 300_000
