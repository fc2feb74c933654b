"""Subscribers on the server's own link that vanish: what do the living get from then on?

All are in one namespace, on one cable to the server's: so the server finds each by ARP, or by neighbour
discovery. Packets for a neighbour that does not answer wait in the kernel, and are charged to the socket that
sent them.
"""

import select
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from kcast.pubsub import wire
from tests.support.namespaces import Namespace
from tests.support.serve_process import PROGRAM, Peer, end, served_address, stop

_WARM_UP_S = 5.0  # in which those who vanish show that they take much
_LAST_S = 0.5  # for what is still on its way
_RENEWAL_S = 0.2
_QUICK = {"base_reachable_time_ms": 200, "delay_first_probe_time": 0, "ucast_solicit": 1}


@dataclass(frozen=True)
class Outcome:
    """What became of what was published from the moment the dead vanished on."""

    delivered: int
    expected: int
    receipts: int
    requests: int
    complaints: str

    @property
    def share(self) -> float:
        """The share that arrived."""
        return self.delivered / self.expected


def measure(
    version: int = 4,
    *,
    dead: int = 100,
    living: int = 10,
    rate: int = 100,
    payload_bytes: int = 1000,
    measured_s: float = 10.0,
    is_quick: bool = True,
    options: tuple[str, ...] = (),
    settings: dict[str, int] | None = None,
    program: tuple[str, ...] = PROGRAM,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> Outcome:
    """Measures with a real `kcast serve`, for so long after the dead have vanished.

    `program` is the server, in an environment and a folder of its own if it is another version's. With
    `is_quick` the server's kernel notices within some 2 s instead of 45 that a neighbour is gone; how long
    packets wait, and how many, is as it always is.
    """
    with ExitStack() as stack:
        here, there = stack.enter_context(Namespace()), stack.enter_context(Namespace())
        here.link("to-there", there, "to-here")
        net = "10.9.{}.{}/16" if version == 4 else "fd09::{}:{}/64"
        here.add("to-there", net.format(0, 1))
        mine = [net.format(1, number) for number in range(1, living + 2)]
        gone = [net.format(2, number) for number in range(1, dead + 1)]
        there.add("to-here", *mine, *gone)
        if is_quick:
            for name, value in _QUICK.items():
                here.set(f"net/ipv{version}/neigh/to-there/{name}", value)
        for name, value in (settings or {}).items():
            here.set(name, value)
        host = net.format(0, 1).partition("/")[0]
        command = (*program, "--host", host, "--port", "7400", "--ttl", "600", "--log", "json", *options)
        server = here.call(
            lambda: subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=folder,
            )
        )
        stack.callback(end, server)
        address = served_address(server)

        def peer(ip: str) -> Peer:
            return stack.enter_context(there.call(lambda: Peer(address, (ip.partition("/")[0], 0))))

        alive, vanishing = ([_Subscriber(peer(ip)) for ip in ips] for ips in (mine[1:], gone))
        publisher = peer(mine[0])
        publisher.vouch(b"other hello")
        reader = _Reader([*alive, *vanishing])
        stack.callback(reader.stop)
        started_at = time.monotonic()
        vanish_at, until = started_at + _WARM_UP_S, started_at + _WARM_UP_S + measured_s
        number = expected_from = 0
        requests = receipts = 0
        while (now := time.monotonic()) < until:
            if not expected_from and now >= vanish_at:
                there.remove("to-here", *gone)
                expected_from = number
            if number % rate == 0:
                requests += 1
                publisher.say(b"%~ " + b"ping%d" % number + b"\n" * 100)
            publisher.say(b"t %d " % number + b"." * payload_bytes + b"\n")
            number += 1
            while publisher.has_heard():
                receipts += publisher.hear().startswith(b"%: ping")
            time.sleep(max(0.0, started_at + number / rate - time.monotonic()))
        time.sleep(_LAST_S)
        reader.stop()
        wanted = range(expected_from, number)
        delivered = sum(len(each.heard.intersection(wanted)) for each in alive)
        return Outcome(delivered, len(wanted) * living, receipts, requests, stop(server, 2))


class _Subscriber:
    """One that holds a lease on `t`, and renews it as long as it has its address. `heard` are numbers."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.heard: set[int] = set()
        (receipt,) = peer.vouch(b"t")
        assert isinstance(receipt, wire.Receipt), receipt
        self._cookie = receipt.cookie
        self._renewed_at = time.monotonic()
        self._is_gone = False

    def fileno(self) -> int:
        return self.peer.fileno()

    def read(self) -> None:
        """Takes what has arrived."""
        while not self._is_gone and self.peer.has_heard():
            for line in self.peer.hear().split(b"\n"):
                if line.startswith(b"t "):
                    self.heard.add(int(line.split(b" ")[1]))
                elif isinstance(reply := wire.parse_reply(line), wire.Receipt):
                    self._cookie = reply.cookie

    def renew(self, now: float) -> None:
        """Shows the newest cookie, so that the server has a sign of life, and goes on forwarding."""
        if not self._is_gone and now >= self._renewed_at + _RENEWAL_S:
            self._renewed_at = now
            try:
                self.peer.say(wire.request_datagram(wire.Vouch(b"renew", self._cookie, None), [b"t\n"]))
            except OSError:
                self._is_gone = True


class _Reader:
    """Reads in a thread for all subscribers, and renews their leases."""

    def __init__(self, subscribers: list[_Subscriber]) -> None:
        self._subscribers = subscribers
        self._is_stopped = False
        self._thread = Thread(target=self._read)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._thread.join()

    def _read(self) -> None:
        while not self._is_stopped:
            for ready in select.select(self._subscribers, [], [], 0.05)[0]:
                ready.read()
            now = time.monotonic()
            for each in self._subscribers:
                each.renew(now)


if __name__ == "__main__":
    for version in (4, 6):
        outcome = measure(version)
        print(f"IPv{version}: the living got {100 * outcome.share:.2f} % {outcome}", file=sys.stdout)
