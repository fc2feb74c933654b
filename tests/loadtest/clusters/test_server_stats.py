"""loadtest/clusters/server_stats.py: what Linux counts, of this process and of made-up files."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kcast.loadtest.clusters import server_stats
from kcast.loadtest.clusters.server_stats import Socket, read_sockets, stat_of
from kcast.loadtest.clusters.servers import ServerStat
from kcast.pubsub.udp import open_socket
from tests.support.waiting import wait_until

HEAD = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
UDP = f"""\
{HEAD} ref pointer drops
  437: 0100007F:1CE8 00000000:0000 07 00000000:00000900 00:00000000 00000000  0  0 81237 2 0000000000000000 7
  438: 0100007F:1CE8 0200007F:1CE9 01 00000000:00000100 00:00000000 00000000  0  0 81238 2 0000000000000000 1
  439: 00000000:1CE9 00000000:0000 07 00000000:00000000 00:00000000 00000000  0  0 81239 2 0000000000000000 0
"""
UDP6 = f"""\
{HEAD} ref pointer drops
  439: 00000000000000000000000001000000:1CE8 00000000000000000000000000000000:0000 07 00000000:00000001 \
00:00000000 00000000  0  0 81240 2 0000000000000000 20
  439: 00000000000000000000000000000000:1CEA 00000000000000000000000000000000:0000 07 00000000:00000000 \
00:00000000 00000000  0  0 81241 2 0000000000000000 3
"""
STAT = (
    "77 (a) b (c) S 1 77 77 0 -1 4194560 2093 0 0 0 250 50 9 9 20 0 1 0 1234 25000000 64 18446744073709551615"
)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc in which process 77 is alone."""
    monkeypatch.setattr(server_stats, "_PROC", tmp_path)
    folder = tmp_path / "77"
    (folder / "net").mkdir(parents=True)
    (folder / "stat").write_text(STAT)
    (folder / "net" / "udp").write_text(UDP)
    (folder / "net" / "udp6").write_text(UDP6)
    return folder


@pytest.mark.skipif(sys.byteorder != "little", reason="the files are as a little-endian kernel writes them")
def test_sockets_go_by_their_addresses(proc: Path) -> None:
    assert read_sockets(77) == {
        ("127.0.0.1", 7400): Socket(0xA00, 8),
        ("0.0.0.0", 7401): Socket(0, 0),
        ("::1", 7400): Socket(1, 20),
        ("::", 7402): Socket(0, 3),
    }


@pytest.mark.skipif(sys.byteorder != "little", reason="the files are as a little-endian kernel writes them")
def test_a_server_has_the_sockets_of_its_addresses_and_those_for_all(proc: Path) -> None:
    second_ns = 1_000_000_000
    cpu_ns, rss_bytes = 300 * second_ns // os.sysconf("SC_CLK_TCK"), 64 * os.sysconf("SC_PAGE_SIZE")
    sockets = read_sockets(77)
    assert stat_of(77, [("127.0.0.1", 7400), ("::1", 7400)], sockets) == ServerStat(
        cpu_ns, rss_bytes, kernel_drops=28, queue_bytes=0xA01
    )
    assert stat_of(77, [("127.0.0.1", 7402)], sockets) == ServerStat(cpu_ns, rss_bytes, kernel_drops=3)


def test_what_is_not_there_is_0(proc: Path) -> None:
    assert read_sockets(78) == {}
    assert stat_of(78, [("127.0.0.1", 7400)], {}) == stat_of(None, [], {}) == ServerStat()


def test_this_process_is_found() -> None:
    with open_socket("127.0.0.1", 0) as sock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        address = sock.getsockname()
        assert read_sockets()[address] == Socket(0, 0)
        peer.sendto(b"here", address)
        assert read_sockets()[address].queue_bytes > 0
        before = time.process_time_ns()
        stat = stat_of(os.getpid(), [address], read_sockets(os.getpid()))
        assert stat.queue_bytes > 0 and stat.rss_bytes > 2**20
        # The kernel counts in ticks, of user and system time each.
        assert abs(stat.cpu_ns - before) < 100_000_000


def test_the_figures_of_a_process_that_ends_vanish() -> None:
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        wait_until(lambda: stat_of(process.pid, [], {}).rss_bytes > 0, "it has some memory")
        process.communicate()
    assert stat_of(process.pid, [], {}) == ServerStat()
