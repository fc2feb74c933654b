"""pubsub/tap_parts.py: what one party publishes does not erase what the others did. docs/tap.md."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import active_count
from typing import Any

import pytest

from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.networks import Networks
from kcast.pubsub.tap import bulk_path, read_all
from kcast.pubsub.tap_files import FILES_MAX, numbered
from kcast.pubsub.tap_format import TapBurst, TapError, TapLease
from kcast.pubsub.tap_parts import FILL_PERIODS, PERIOD_S, SHARES_MAX, FairTap
from tests.support.forms import few_of
from tests.support.server_core import START, flushed, handshake, lease, new_server, send, vouched
from tests.support.tap_records import BOOT_ID
from tests.support.waiting import wait_until

pytestmark = pytest.mark.world

SIZE_BYTES = 8 * 1024 * 1024
HONEST: Address = ("198.51.100.1", 1000)
LISTENER: Address = ("198.51.100.2", 1000)
JUNK_BYTES = 8_600_000
IP_PART_BYTES = SIZE_BYTES // 2 // FILL_PERIODS // 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tap"


def fair_tap(path: Path, **options: Any) -> FairTap:
    given = {"addresses": (), "networks": Networks(), "size_bytes_max": SIZE_BYTES, **options}
    return FairTap(path, boot_id=BOOT_ID, **given)


def bursts_in(path: Path) -> list[TapBurst]:
    return [record for record in read_all(path) if isinstance(record, TapBurst)]


def files(path: Path) -> Iterator[Path]:
    for each in (path, bulk_path(path)):
        yield from (file for number in range(FILES_MAX) if (file := numbered(each, number)).exists())


def keep_up(tap: FairTap) -> None:
    """Waits until the tap's threads have written."""
    wait_until(lambda: not any(each._full for each in (tap._main, tap._bulk)))


def junk_against(tap: FairTap, count: int = 50, per_s: int = 10) -> None:
    """A publisher whose messages somebody wants, and then one that publishes junk on topics of its own."""
    server = new_server(tap=tap)
    lease(server, LISTENER, b"weather")
    cookie = handshake(server, HONEST)
    for number in range(count):
        send(server, vouched(cookie, b"weather %d" % number), HONEST, START + number / per_s)
    sent_bytes, now = 0, START + count / per_s
    junk_cookies = {number: handshake(server, (f"203.0.113.{number}", 7), now) for number in range(1, 11)}
    while sent_bytes < JUNK_BYTES:
        for number, junk_cookie in junk_cookies.items():
            lines = [b"%d-%d-%d " % (sent_bytes, number, line) for line in range(45)]
            datagram = vouched(junk_cookie, *[line[:-1].ljust(20, b"j") + b" " for line in lines])
            send(server, datagram, (f"203.0.113.{number}", 7), now)
            sent_bytes += len(datagram)
        now += 0.002
        keep_up(tap)
    flushed(server, now)
    tap.close()
    assert not server.drops[Drop.PUBLISH_RATE]


@pytest.mark.rest
def test_junk_publishes_do_not_erase_what_others_published(path: Path) -> None:
    """8.6 MB, by all the addresses of a network."""
    tap = fair_tap(path)
    junk_against(tap)
    kept = [burst for burst in bursts_in(path) if burst.source == HONEST]
    assert [burst.topic for burst in kept] == [b"weather"] * 50
    assert [record.topic for record in read_all(path) if isinstance(record, TapLease)] == [b"weather"]
    assert tap.records_dropped == 0
    assert tap.bytes_written > SIZE_BYTES, "enough to erase a tap without parts"
    assert sum(file.stat().st_size for file in files(path)) <= SIZE_BYTES


@pytest.mark.parametrize(("per_s", "kept"), few_of([(1, 59), (4, 239), (50, 281)], 0))
def test_of_a_minute_that_much_is_kept(path: Path, per_s: int, kept: int) -> None:
    """What is within a part: at 8 MB 281 messages a minute that come alone (docs/tap.md)."""
    junk_against(fair_tap(path), count=59 * per_s, per_s=per_s)
    mine = [burst for burst in bursts_in(path) if burst.source == HONEST]
    assert kept - 4 <= len(mine) <= kept + 1


def test_what_is_beyond_a_part_is_in_the_bulk_and_a_new_period_brings_a_new_part(path: Path) -> None:
    lines = [b"t %d" % number for number in range(1000)]
    burst_bytes = 16 + 1 + 8 * len(lines)
    within = IP_PART_BYTES // burst_bytes
    assert within > 0
    with fair_tap(path) as tap:
        for now in (START, START + PERIOD_S / 2, START + PERIOD_S):
            for number in range(within + 2):
                tap.burst(now + number / 1000, HONEST, b"t", lines)
    found = [round(burst.time_ns / 1e9, 3) for burst in bursts_in(path)]
    first, second, third = (
        [round(now + number / 1000, 3) for number in range(within + 2)]
        for now in (START, START + PERIOD_S / 2, START + PERIOD_S)
    )
    assert found == [*first[:within], *third[:within], *first[within:], *second, *third[within:]]


@pytest.mark.parametrize(
    ("host", "factor"), [("203.0.113.{}", 8), ("2001:db8:1:1::{}", 1), ("2001:db8:1:{}::1", 4)]
)
def test_a_network_has_a_part_too(path: Path, host: str, factor: int) -> None:
    """Of an IPv4 /24, an IPv6 /64 and a /56."""
    lines = [b"t x"] * 100
    with fair_tap(path) as tap:
        for number in range(1, 99):
            for _ in range(IP_PART_BYTES // 817):
                tap.burst(START, (host.format(number), 7), b"t", lines)
        within_bytes = tap._main.bytes_written + len(tap._main._encoder.buffer)
    assert 0.9 * factor * IP_PART_BYTES < within_bytes < 1.1 * factor * IP_PART_BYTES


def test_memory_is_bounded_however_many_publish(path: Path) -> None:
    """Whoever comes too late in a period is recorded all the same."""
    with fair_tap(path) as tap:
        for number in range(SHARES_MAX):
            tap.burst(START, (f"10.{number >> 8}.{number & 255}.1", 7), b"t", [b"t x"])
        assert len(tap._used_bytes) < SHARES_MAX + 3
        tap.burst(START, HONEST, b"t", [b"t x"])
        tap.burst(START + PERIOD_S, HONEST, b"t", [b"t y"])
    mine = [burst.time_ns // 10**9 for burst in bursts_in(path) if burst.source == HONEST]
    assert mine == [int(START + PERIOD_S), int(START)], "first those in FILE, then those in the bulk"
    assert len(bursts_in(path)) == SHARES_MAX + 2


def test_a_stranger_s_file_in_the_place_of_the_bulk_is_refused(path: Path) -> None:
    bulk_path(path).write_text("precious")
    threads = active_count()
    with pytest.raises(TapError, match=r"tap\.bulk is no tap file"):
        fair_tap(path)
    assert active_count() == threads
    assert bulk_path(path).read_text() == "precious"


def test_a_failure_names_the_file_and_the_other_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[tuple[Path, str]] = []
    tap = fair_tap(path, on_failure=lambda file, reason: failures.append((file, reason)))
    os.close(tap._bulk._files._descriptor)
    tap._bulk._files._descriptor = os.open("/dev/full", os.O_WRONLY)
    tap._bulk.burst(START, HONEST, b"t", [b"t x"])
    wait_until(lambda: failures)
    tap.burst(START, HONEST, b"t", [b"t x"])
    tap.close()
    assert failures == [(bulk_path(path), "No space left on device")]
    assert tap.records_dropped == 1
    assert len(bursts_in(path)) == 1
