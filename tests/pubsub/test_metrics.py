"""pubsub/metrics.py: what a scrape says, and that scraping harms nobody."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kcast.pubsub import metrics, wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import Limits
from kcast.pubsub.metrics import ServerCollector, serve_metrics
from kcast.pubsub.networks import Networks
from kcast.pubsub.server import Server
from kcast.pubsub.tap_parts import FairTap
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.serve_process import WAIT_S

pytestmark = pytest.mark.world

CLIENT = ("192.0.2.77", 5)


@pytest.fixture
def port() -> Iterator[UdpPort]:
    with UdpPort(open_socket("127.0.0.1", 0)) as opened:
        yield opened


def new_server(limits: Limits | None = None) -> Server:
    return Server(secret=bytes(32), limits=limits, work_bits=3, ttl_s=30)


def samples(collector: ServerCollector) -> dict[str, float]:
    """Sample as text, without its value -> value; what a scraper would see."""
    registry = CollectorRegistry()
    registry.register(collector)
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert named(sample) not in found
            found[named(sample)] = sample.value
    return found


def named(sample: Sample) -> str:
    labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
    return sample.name + (f"{{{labels}}}" if labels else "")


# --- What it says ------------------------------------------------------------------------------------


def test_it_says_what_the_core_counts(port: UdpPort) -> None:
    server = Server(secret=bytes(32), limits=Limits(leases=1))

    def say(datagram: bytes) -> list[wire.Reply | None]:
        server.receive(Burst(datagram, len(datagram), CLIENT), 1.0)
        transmits = server.flush(1.0)
        return [wire.parse_reply(line) for each in transmits for line in each.data.split(b"\n")]

    challenge = say(wire.request_datagram(wire.Ask(b"a")))[0]
    assert isinstance(challenge, wire.Challenge)
    vouch = wire.Vouch(b"b", challenge.cookie, None)
    say(wire.request_datagram(vouch, [b"one\n", b"two\n", b"one rain\n", b"three rain\n"]))
    say(b"%+ x\n")
    server.start_drain(2.0)
    port.send_errors["EPERM"] += 7
    port.receive_errors["ENETDOWN"] += 2
    found = samples(ServerCollector(server, (port,)))
    expected = {
        "kcast_received_datagrams_total": 3,
        "kcast_received_bytes_total": 192 + 192 + 5,
        "kcast_messages_total": 2,
        "kcast_copies_total": 1,
        "kcast_leases": 1,
        "kcast_topics": 1,
        "kcast_publish_leases": 1,
        "kcast_leases_limit": 1,
        "kcast_leases_opened_total": 1,
        "kcast_cookies_issued_total": 1,
        "kcast_answers_total": 2,
        "kcast_refusals_total{reason=full}": 1,
        "kcast_drops_total{reason=full}": 1,
        "kcast_drops_total{reason=reply-verb}": 1,
        "kcast_drops_total{reason=no-subscriber}": 1,
        "kcast_unproven_received_bytes_total": 192,
        "kcast_unproven_sent_bytes_total": len(wire.format_line(challenge)),
        "kcast_draining": 1,
        "kcast_send_errors_total{errno=EPERM}": 7,
        "kcast_receive_errors_total{errno=ENETDOWN}": 2,
    }
    assert {name: found[name] for name in expected} == expected


def test_a_tap_tells_what_is_missing_from_it(port: UdpPort, tmp_path: Path) -> None:
    with FairTap(tmp_path / "tap", boot_id=bytes(8), addresses=[port.address], networks=Networks()) as tap:
        found = samples(ServerCollector(new_server(), (port,), tap))
    assert found["kcast_tap_records_dropped_total"] == 0


def test_no_label_has_values_that_clients_choose(port: UdpPort) -> None:
    server = Server(secret=bytes(32), open_to=lambda _: True)
    for number in range(100):
        for data in (b"topic%d\n" % number, b"topic%d hello\n" % number, b"%%x%d y\n" % number):
            server.receive(Burst(data, len(data), ("192.0.2.1", 1000 + number)), 1.0)
    server.flush(1.0)
    collector = ServerCollector(server, (port,))
    found = samples(collector)
    assert found["kcast_leases"] == 100
    assert len(found) == len(samples(ServerCollector(new_server(), (port,))))
    assert not any("topic1" in name or "192" in name for name in found)


# --- Over HTTP ---------------------------------------------------------------------------------------


@pytest.fixture
def address(port: UdpPort) -> Address:
    return serve_metrics(ServerCollector(new_server(), (port,)), ("127.0.0.1", 0))


def scrape(address: Address, **headers: str) -> str:
    connection = HTTPConnection(*address, timeout=WAIT_S)
    try:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        return response.read().decode()
    finally:
        connection.close()


def test_a_scrape_has_the_servers_metrics_and_the_processs(address: Address) -> None:
    found = parsed(scrape(address))
    assert found["kcast_leases_limit"] == 100_000
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_resident_memory_bytes"] > 1_000_000


@pytest.mark.parametrize(
    "said", [b"", b"GET", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"\xff\xfe\r\n\r\n", b"\n\n"]
)
def test_a_scraper_that_goes_away_is_no_complaint(
    address: Address, said: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(address, WAIT_S) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes with a reset
        connection.sendall(said)
    assert "kcast_leases 0.0" in scrape(address)
    assert capfd.readouterr().err == ""


def test_slow_scrapers_do_not_stop_others_and_are_bounded(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take its time, up to a number of them, and not for ever."""
    monkeypatch.setattr(metrics._Handler, "timeout", 0.5)
    threads_before = threading.active_count()
    slow = [socket.create_connection(address, WAIT_S) for _ in range(metrics.REQUESTS_MAX - 1)]
    try:
        for connection in slow:
            connection.sendall(b"GET /met")
        assert "kcast_leases 0.0" in scrape(address)
        slow += [socket.create_connection(address, WAIT_S) for _ in range(50)]
        for connection in slow:
            connection.settimeout(WAIT_S)
            with suppress(ConnectionResetError):
                assert connection.recv(100) == b""  # pushed out, or timed out
    finally:
        for connection in slow:
            connection.close()
    deadline = time.monotonic() + WAIT_S
    while threading.active_count() > threads_before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "kcast_leases 0.0" in scrape(address)


def test_who_drips_keeps_nobody_out(address: Address) -> None:
    """A byte a second is in time for every read, for ever. The newest has the place of the oldest."""
    with ExitStack() as stack:
        dripping = [
            stack.enter_context(socket.create_connection(address, WAIT_S))
            for _ in range(metrics.REQUESTS_MAX)
        ]
        for connection in dripping:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n")
        for number in range(metrics.REQUESTS_MAX + 3):
            began = time.monotonic()
            assert "kcast_leases 0.0" in scrape(address)
            assert time.monotonic() - began < metrics.REQUEST_TIMEOUT_S / 2
            with suppress(OSError):
                dripping[number % len(dripping)].sendall(b"X")
        assert dripping[0].recv(100) == b""
        # Those who go on have lost nothing by the scrapes, but for the first.
        with suppress(OSError):
            dripping[-1].sendall(b": y\r\n\r\n")
        assert dripping[-1].recv(9) == b"HTTP/1.0 "


def test_scrapes_while_the_counters_grow_new_names(port: UdpPort) -> None:
    """The core is not locked: a scrape must not trip over a reason that appears while it reads."""
    server = new_server()
    address = serve_metrics(ServerCollector(server, (port,)), ("127.0.0.1", 0))
    is_over = threading.Event()

    def count() -> None:
        while not is_over.is_set():
            server.drops.clear()
            port.send_errors.clear()
            for reason in Drop:
                server.drops[reason] += 1
                server.refusals[reason] += 1
                port.send_errors[str(reason)] += 1

    counter = threading.Thread(target=count)
    counter.start()
    try:
        for _ in range(50):
            assert parsed(scrape(address))["kcast_leases"] == 0
    finally:
        is_over.set()
        counter.join(WAIT_S)
