"""loadtest/demo/capture.py: messages are recognised by the demo's number, however their payloads travel."""

from pathlib import Path

import pytest

from kcast.client.envelope import Envelope, format_envelope
from kcast.loadtest.demo.capture import DemoRecorder, _TrafficObserver
from kcast.loadtest.demo.plan import DemoPlan

LEASE = b"demo/3/24\n"


def observer() -> _TrafficObserver:
    return _TrafficObserver(DemoRecorder(DemoPlan(), 5, Path("nowhere")), k_prime=3, sub_id=7)


@pytest.mark.parametrize("text", [b"a line", b"", b"50 % \xff", bytes(100), b"\r\n\0" * 20])
def test_lines_are_counted_by_the_number_in_their_payload(text: bytes) -> None:
    lines = [
        b"demo/3/24 " + format_envelope(Envelope("p", number, b"%d %s" % (number, text))) + b"\n"
        for number in (12, 345)
    ]
    seen = observer()
    seen.sent(1.0, 4, b"".join((LEASE, *lines)), 1200, 0)
    seen.received(2.0, 5, b"".join(lines), 1200, 0, 0)
    recorder = seen.recorder
    assert recorder.asked.values.tolist() == [3, 7, 23, 4, 10**9]
    assert recorder.sent.values.tolist() == [12, 4, 10**9, 345, 4, 10**9]
    assert recorder.copies.values.tolist() == [12, 7, 5, 2 * 10**9, 345, 7, 5, 2 * 10**9]


@pytest.mark.parametrize("message", [b"%@p.1 x", b"%@p.1 ", b"%@p.1;B=1 Cg==", b"%@p.0 1 x", b"%@p.1 -1 x"])
def test_what_the_demo_did_not_write_belongs_to_no_message(message: bytes) -> None:
    seen = observer()
    seen.received(2.0, 5, b"demo/3/24 " + message + b"\n", 1200, 0, 0)
    assert seen.recorder.copies.values[0] == -1
