"""pubsub/log.py: lines for people and programs, and what of the counters is worth one."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Burst, Transmit
from kcast.pubsub.log import Log, Losses, Report
from kcast.pubsub.server import Server
from kcast.pubsub.udp import UdpPort, open_socket
from tests.support.logs import untimed

pytestmark = pytest.mark.world

NOTHING = Losses(Counter(), Counter(), 0, Counter(), Counter())


# --- Lines -------------------------------------------------------------------------------------------


def test_text_is_for_people_and_says_when(capsys: pytest.CaptureFixture[str]) -> None:
    Log().info("end", "forwarded 0 copies", copies=0)
    Log(label="127.0.0.1:7401").warning("open", "open to any address")
    output, errors = capsys.readouterr()
    assert output == ""
    assert untimed(errors) == (
        "kcast serve: forwarded 0 copies\nkcast serve 127.0.0.1:7401: open to any address\n"
    )


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(as_json=True).labelled("127.0.0.1:7401")
    log.error("start", "taken\x1b[31m\x7f\n\udcff", port=7400)
    line = capsys.readouterr().err
    assert line.isascii()
    assert line.endswith("}\n")
    assert line[:-1].isprintable()
    fields = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("time"))
    assert fields == {
        "level": "error",
        "event": "start",
        "text": "taken\x1b[31m\x7f\n\udcff",
        "server": "127.0.0.1:7401",
        "port": 7400,
    }


def test_no_terminal_acts_on_text(capsys: pytest.CaptureFixture[str]) -> None:
    Log().error("start", "no file 'é\x1b[2J\nkcast serve: all is well\u202e\udcff'")
    assert untimed(capsys.readouterr().err) == (
        "kcast serve: no file 'é\\x1b[2J\\nkcast serve: all is well\\u202e\\udcff'\n"
    )


WRITER = """
from kcast.pubsub.log import Log
for number in range(3000):
    Log().info("x", "y" * 100)
import os
os.write(1, b"done")
"""


@pytest.mark.parametrize("close_reader", [True, False])
def test_nobody_has_to_read_it(close_reader: bool) -> None:
    reading, writing = os.pipe()
    if close_reader:
        os.close(reading)
    try:
        run = subprocess.run(
            (sys.executable, "-c", WRITER), stdout=subprocess.PIPE, stderr=writing, timeout=10, check=True
        )
    finally:
        os.close(writing)
    assert run.stdout == b"done"
    if not close_reader:
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
        assert set(untimed(text).splitlines()) == {"kcast serve: " + "y" * 100}  # whole lines alone


@pytest.mark.skipif(sys.platform != "linux", reason="pipes are opened anew by Linux's /proc")
@pytest.mark.parametrize("is_pipe", [True, False])
def test_what_seems_to_have_room_may_be_full_when_it_is_written(is_pipe: bool) -> None:
    """Others write there too, and faster. Their descriptor still waits, as it did."""
    if is_pipe:
        reading, writing = os.pipe()
    else:
        reading, writing = (end.detach() for end in socket.socketpair())
    deceived = "import select; select.select = lambda *given: given[:3]" + WRITER
    try:
        run = subprocess.run(
            (sys.executable, "-c", deceived), stdout=subprocess.PIPE, stderr=writing, timeout=10, check=True
        )
        assert run.stdout == b"done"
        assert os.get_blocking(writing)
    finally:
        os.close(reading)
        os.close(writing)


def test_several_writers_do_not_stop_each_other() -> None:
    """On one pipe, as workers, with a reader that is slower than they are; in whole lines."""
    reading, writing = os.pipe()
    writers = [
        subprocess.Popen((sys.executable, "-c", WRITER), stdout=subprocess.PIPE, stderr=writing)
        for _ in range(3)
    ]
    os.close(writing)
    text = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while data := pipe.read(1000):
            text += data
            time.sleep(0.0005)
    for writer in writers:
        assert writer.communicate(timeout=10)[0] == b"done"
    assert set(untimed(text.decode()).splitlines()) == {"kcast serve: " + "y" * 100}


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("wb") as opened:
        subprocess.run(
            (sys.executable, "-c", WRITER), stdout=subprocess.DEVNULL, stderr=opened, timeout=10, check=True
        )
    assert len(file.read_bytes().splitlines()) == 3000


def test_a_closed_standard_error_is_no_error() -> None:
    subprocess.run(
        ("sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", WRITER),
        stdout=subprocess.DEVNULL,
        timeout=10,
        check=True,
    )


# --- Losses ------------------------------------------------------------------------------------------


def test_losses_come_from_the_core_and_all_sockets() -> None:
    server = Server(secret=bytes(32))
    server.drops[Drop.SHORT] += 2
    server.refusals["full"] += 1
    with UdpPort(open_socket("127.0.0.1", 0)) as one, UdpPort(open_socket("127.0.0.1", 0)) as other:
        for port, count in ((one, 1), (other, 2)):
            port._inlet.link_local_count += count
            port.receive_errors["ENETDOWN"] += count
            port.send([Transmit(b"x", 1, [("::1", 7400)] * count)])
        losses = Losses.of(server, (one, other))
    assert losses == Losses(
        drops=Counter({"short": 2, "link-local": 3}),
        refusals=Counter(full=1),
        overflows=0,
        send_errors=Counter(EAFNOSUPPORT=3),
        receive_errors=Counter(ENETDOWN=3),
    )
    assert {type(reason) for reason in losses.drops} == {str}


class Told:
    """A report, and the lines that it gave."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> None:
        self.losses = NOTHING
        self._capsys = capsys
        self._as_json = as_json
        self._report = Report(Log(as_json=as_json), lambda: self.losses)

    def __call__(self, **changes: object) -> list[str]:
        self.losses = self.losses._replace(**changes)  # type: ignore[arg-type]  # as the test wrote them
        self._report()
        told = self._capsys.readouterr().err
        return [
            each.removeprefix("kcast serve: ")
            for each in (told if self._as_json else untimed(told)).splitlines()
        ]


def test_what_is_new_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys)
    assert told() == []
    assert told(drops=Counter(short=2, empty=1)) == ["dropped empty=1 short=2"]
    assert told() == []
    assert told(drops=Counter(short=7, empty=1), refusals=Counter(full=3)) == [
        "dropped short=5; refused full=3"
    ]
    assert told(refusals=Counter(full=4)) == ["refused full=1"]


def test_what_loses_nothing_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys)
    harmless = {"no-subscriber": 440, "cookie-foreign": 2, "cookie-old": 1}
    assert told(drops=Counter(harmless)) == []
    assert told(drops=Counter(harmless | {"short": 1})) == ["dropped short=1"]
    assert told(refusals=Counter(rate=1)) == ["refused rate=1"]
    drops, unwanted = told.losses.drops_and_harmless()
    assert (drops, unwanted) == ({"short": 1}, {"nobody subscribed": 440, "stale cookies": 3})


def test_overflows_and_errors_are_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys)
    assert told(overflows=3) == [
        "the receive buffer was full: the kernel dropped 3 or more (--receive-buffer)"
    ]
    assert told(overflows=4, send_errors=Counter(EPERM=2)) == [
        "the receive buffer was full: the kernel dropped 1 or more (--receive-buffer)",
        "not sent EPERM=2",
    ]
    assert told(receive_errors=Counter(ENETDOWN=1)) == ["failed receives ENETDOWN=1"]


def test_a_report_as_json_has_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(capsys, as_json=True)
    lines = told(drops=Counter(short=2), refusals=Counter(full=1), overflows=3, send_errors=Counter(EPERM=1))
    drops, overflow, errors = (json.loads(line) for line in lines)
    assert (drops["level"], drops["event"]) == ("info", "drops")
    assert (drops["drops"], drops["refusals"]) == ({"short": 2}, {"full": 1})
    assert (overflow["level"], overflow["event"], overflow["overflows"]) == ("warning", "overflow", 3)
    assert (errors["level"], errors["event"]) == ("warning", "errors")
    assert (errors["send_errors"], errors["receive_errors"]) == ({"EPERM": 1}, {})


def test_no_line_holds_what_clients_send(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(secret=bytes(32), open_to=lambda _: True)
    with UdpPort(open_socket("127.0.0.1", 0)) as port:
        report = Report(Log(as_json=True), lambda: Losses.of(server, (port,)))
        for data in (
            b"SECRET\n",
            b"SECRET\x1b SECRET\n",
            b"%! SECRET\n",
            b"%+ SECRET\n",
            b"\xffSECRET \n",
            b"%SE\n",
        ):
            server.receive(Burst(data, len(data), ("192.0.2.77", 5)), 1.0)
        server.flush(1.0)
        report()
    told = capsys.readouterr().err
    assert "reply-verb" in told
    assert "SECRET" not in told
    assert "192.0.2.77" not in told
