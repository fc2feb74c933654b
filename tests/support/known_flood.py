"""A client that is known and floods its server, beside an honest publisher and an honest subscriber.

    python -m tests.support.known_flood [--seconds 3]

Real processes on loopback, which is not exempt here. Prints how many of the honest messages arrived, how long
they took, and how much was sent, for each kind of flood. The flood is what one core can send.
"""

import argparse
import socket
import statistics
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.sockets import UDP_SEGMENT
from tests.support.serve_process import WAIT_S, Peer, served_address, serving

FLOODS = {
    "none": b"",
    "random bytes": b"\x01" * 300,
    "forged cookies": b"%! N " + b"A" * 32 + b" -\nt\n" + b"\n" * 180,
    "bare lines": b"t m\n" * 60,
    "pings": b"%~ a\n" * 64,
    "pings and lines": b"%~ a\nt m\n" * 32,
}
RUN_BYTES_MAX = 60_000
RUN_MAX = 64
MESSAGES_PER_S = 300
PROGRAM = (sys.executable, "-m", "tests.support.known_flood", "--flood")
_FLOOD_STARTS_S = 1.0
_LATE_S = 1.0


class Outcome(NamedTuple):
    """What came of one flood."""

    sent: int
    arrived: int
    p50_ms: float
    flood_per_s: float


def measure(datagram: bytes, seconds: float, *, in_runs: bool = False) -> Outcome:
    """Floods a server for so long, with single datagrams, or with runs that take one call of each side."""
    with serving() as serve:
        server = served_address(serve("--no-loopback-exemption", "--ttl", "60"))
        with (
            Peer(server, ("127.0.0.2", 0)) as subscriber,
            Peer(server, ("127.0.0.3", 0)) as publisher,
            subprocess.Popen(
                (*PROGRAM, str(server[1]), datagram.hex(), str(seconds), "runs" if in_runs else "single"),
                stdout=subprocess.PIPE,
                text=True,
            ) as flooding,
        ):
            _lease(subscriber, b"good")
            _lease(publisher)
            arrived_at: dict[int, float] = {}
            reader = threading.Thread(target=_read, args=(subscriber, arrived_at), daemon=True)
            reader.start()
            time.sleep(_FLOOD_STARTS_S)
            sent_at = []
            for number in range(int(seconds * MESSAGES_PER_S)):
                sent_at.append(time.perf_counter())
                publisher.say(b"good %d\n" % number)
                time.sleep(1 / MESSAGES_PER_S)
            flood_per_s = float(flooding.communicate(timeout=WAIT_S + seconds)[0])
            time.sleep(_LATE_S)
            times_ms = [1000 * (at - sent_at[number]) for number, at in arrived_at.items()]
    p50_ms = statistics.median(times_ms) if times_ms else float("inf")
    return Outcome(len(sent_at), len(times_ms), p50_ms, flood_per_s)


def _lease(peer: Peer, *topics: bytes) -> None:
    peer.say(wire.request_datagram(wire.Ask(b"N")))
    challenge = wire.parse_reply(peer.hear().split(b"\n")[0])
    assert isinstance(challenge, wire.Challenge)
    vouch = wire.Vouch(b"M", challenge.cookie, None)
    peer.say(wire.request_datagram(vouch, [topic + b"\n" for topic in topics]))
    assert isinstance(wire.parse_reply(peer.hear().split(b"\n")[0]), wire.Receipt)


def _read(subscriber: Peer, arrived_at: dict[int, float]) -> None:
    while True:
        try:
            datagram = subscriber.hear()
        except OSError:  # the test is over
            return
        for line in datagram.split(b"\n"):
            if line.startswith(b"good "):
                arrived_at[int(line.split()[1])] = time.perf_counter()


def flood(server: Address, datagram: bytes, seconds: float, run: int = 1) -> float:
    """Leases, also to publish, and then sends as fast as one core can; returns the rate."""
    with Peer(server, ("127.0.0.9", 0)) as peer:
        _lease(peer, b"mine")
        _lease(peer)
        with socket.socket(fileno=socket.dup(peer.fileno())) as sock:
            sock.setblocking(False)
            if run > 1:
                sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(datagram))
            time.sleep(_FLOOD_STARTS_S / 2)
            count, until = 0, time.monotonic() + seconds + _FLOOD_STARTS_S / 2
            while time.monotonic() < until:
                if not datagram:
                    time.sleep(0.1)
                    continue
                try:
                    for _ in range(100):
                        sock.send(datagram * run)
                        count += run
                except OSError:
                    pass
    return count / (seconds + _FLOOD_STARTS_S / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--flood", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        port, text, seconds, how = options.flood
        datagram = bytes.fromhex(text)
        run = min(RUN_MAX, RUN_BYTES_MAX // len(datagram)) if how == "runs" and datagram else 1
        print(flood(("127.0.0.1", int(port)), datagram, float(seconds), run))
        return
    print(f"{'flood':24} {'datagrams/s':>12} {'arrived':>9} {'p50 ms':>8}")
    for in_runs in (False, True):
        for name, datagram in FLOODS.items():
            found = measure(datagram, options.seconds, in_runs=in_runs)
            told = f"{name}{' in runs' if in_runs else ''}"
            print(
                f"{told:24} {found.flood_per_s:12,.0f} {found.arrived / found.sent:9.1%} {found.p50_ms:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
