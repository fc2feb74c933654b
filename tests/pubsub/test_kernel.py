"""pubsub/kernel.py: of which settings a server warns at its start."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kcast.pubsub import kernel
from kcast.pubsub.kernel import warn_of_kernel
from kcast.pubsub.log import Log
from kcast.pubsub.neighbours import Neighbours
from tests.support.logs import untimed

MIB = 1024 * 1024
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="a setting of Linux")


def warnings_of(capsys: pytest.CaptureFixture[str], *ports: Any, wanted: int = 4 * MIB) -> str:
    warn_of_kernel(wanted, ports, Log())
    return untimed(capsys.readouterr().err)


def port(receive: int = 4 * MIB, send: int = 4 * MIB, host: str = "192.0.2.7") -> Any:
    return SimpleNamespace(receive_buffer_bytes=receive, send_buffer_bytes=send, address=(host, 7400))


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A kernel that is generous and tells all; the file that says how much memory UDP may have."""
    monkeypatch.setattr(kernel, "ask_kernel", lambda: Neighbours(frozenset(), frozenset()))
    file = tmp_path / "udp_mem"
    file.write_text("100000\t200000\t300000\n")
    monkeypatch.setattr(kernel, "UDP_MEM", file)
    room = tmp_path / "optmem_max"
    room.write_text("20480\n")
    monkeypatch.setattr(kernel, "OPTION_MEMORY", room)
    return file


def test_a_small_receive_buffer(capsys: pytest.CaptureFixture[str]) -> None:
    assert warnings_of(capsys, port(), port(receive=212_992)) == (
        "kcast serve: the receive buffer has 212992 bytes, less than the 4194304 wanted, so datagrams are "
        "lost sooner while the server is busy; raise the limit with: sysctl -w net.core.rmem_max=4194304\n"
    )
    assert warnings_of(capsys, port(receive=8192), wanted=8192) == ""


@LINUX_ONLY
def test_buffers_beyond_what_all_sockets_may_have(capsys: pytest.CaptureFixture[str], settings: Path) -> None:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    settings.write_text(f"1\t{6 * 8 * MIB // page_bytes}\t999999\n")
    assert warnings_of(capsys, *[port()] * 6) == ""
    pages = 7 * 8 * MIB // page_bytes
    assert warnings_of(capsys, *[port()] * 7) == (
        "kcast serve: full receive buffers take 58720256 bytes, but the kernel gives all UDP sockets "
        "together 50331648; lower --receive-buffer, or raise the limit with: "
        f"sysctl -w net.ipv4.udp_mem='{pages} {pages} {2 * pages}'\n"
    )


@LINUX_ONLY
@pytest.mark.parametrize("text", ["", "1 2", "a b c"])
def test_a_kernel_that_does_not_tell_its_limit(
    capsys: pytest.CaptureFixture[str], settings: Path, text: str
) -> None:
    settings.write_text(text)
    assert warnings_of(capsys, *[port()] * 1000) == ""
    settings.unlink()
    assert warnings_of(capsys, *[port()] * 1000) == ""


@LINUX_ONLY
def test_too_little_room_for_the_filter_in_a_flood(
    capsys: pytest.CaptureFixture[str], settings: Path
) -> None:
    room = settings.with_name("optmem_max")
    room.write_text("10240\n")
    assert warnings_of(capsys, port(host="127.0.0.1")) == (
        "kcast serve: the kernel gives a socket's filter 10240 bytes, less than the 18000 wanted, so in a "
        "flood more of what strangers send reaches the server; raise the limit with: "
        "sysctl -w net.core.optmem_max=131072\n"
    )
    room.write_text("18000\n")
    assert warnings_of(capsys, port()) == ""
    room.write_text("much\n")
    assert warnings_of(capsys, port()) == ""
    room.unlink()
    assert warnings_of(capsys, port()) == ""


@LINUX_ONLY
def test_a_kernel_that_tells_nothing_of_neighbours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "ask_kernel", lambda: None)
    assert warnings_of(capsys, port(host="127.0.0.1"), port(host="::1")) == "", "there are none on loopback"
    assert warnings_of(capsys, port(host="127.0.0.1"), port(host="::")) == (
        "kcast serve: the kernel does not tell which neighbours answer, so subscribers on a link of this "
        "machine that vanish cost the others copies; let the server open AF_NETLINK sockets, or let less "
        "wait for such neighbours with: sysctl -w net.ipv4.neigh.DEVICE.unres_qlen_bytes=8192 "
        "net.ipv6.neigh.DEVICE.unres_qlen_bytes=8192\n"
    )
    monkeypatch.setenv("KCAST_SOCKETS", "portable")
    assert warnings_of(capsys, port()) == ""


@LINUX_ONLY
@pytest.mark.parametrize("version", [4, 6])
def test_a_table_of_neighbours_that_is_nearly_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int
) -> None:
    for each in (4, 6):
        (tmp_path / str(each)).write_text("10\n" if each == version else "1024\n")
    monkeypatch.setattr(kernel, "NEIGHBOURS_MAX", str(tmp_path / "{}"))
    form = "192.0.2.{}" if version == 4 else "2001:db8::{}"

    def known(count: int) -> None:
        ips = [form.format(number) for number in range(1, count + 1)]
        monkeypatch.setattr(kernel, "ask_kernel", lambda: Neighbours(frozenset(ips[:3]), frozenset(ips[3:])))

    known(8)
    assert warnings_of(capsys, port()) == ""
    known(9)
    assert warnings_of(capsys, port(host="127.0.0.1")) == ""
    assert warnings_of(capsys, port()) == (
        "kcast serve: the kernel knows 9 machines on its own links, and no more than 10 fit; what is meant "
        "for others is lost without a trace; raise the limit with: "
        f"sysctl -w net.ipv{version}.neigh.default.gc_thresh3=40\n"
    )
    (tmp_path / str(version)).unlink()
    assert warnings_of(capsys, port()) == ""
