"""What befalls servers: killed, stopped, without disk, without a reader of their log, without descriptors."""

import asyncio
import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

from kcast.client.aio import Client
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.tap import read_all
from kcast.pubsub.tap_format import TapBurst
from tests.attacks.figures import Figure, at_least, at_most
from tests.attacks.lab import Lab, Served, Skipped
from tests.attacks.row import Row
from tests.attacks.wire_peer import WirePeer

_SYN_SENT = 2
POLICY = Policy(5, 3, 5)
RATE = 100
WAITING_LINES = 20
HONEST_LINES = 50
SCRAPERS = 832
FORGING_S = 6.0  # longer than a server waits from line to line of its log


def killed_servers(lab: Lab) -> Iterator[Figure]:
    """Of five servers, two are killed, one drains, and one stands still; with the default policy."""
    still_s = 30.0 if lab.is_full else 5.0
    servers = [lab.serve("--ttl", "10", has_metrics=False) for _ in range(5)]
    file = lab.cluster_file(*(server.address for server in servers), policy=POLICY)

    async def fail() -> None:
        await asyncio.sleep(1)
        for server in servers[:2]:
            server.process.send_signal(signal.SIGKILL)
        await asyncio.sleep(2)
        servers[2].process.send_signal(signal.SIGTERM)
        await asyncio.sleep(1)
        servers[3].process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(still_s)
        servers[3].process.send_signal(signal.SIGCONT)
        await asyncio.sleep(1)

    sent, came = asyncio.run(_published(file, fail()))
    yield at_least("published", sent, 0.5 * RATE * (5 + still_s))
    yield at_least("servers that are gone", sum(server.process.poll() is not None for server in servers), 2)
    yield at_most("lost", sent - came, 0)


async def _published(file: str, faults: Coroutine[Any, Any, None]) -> tuple[int, int]:
    """Publishes while faults happen; returns how many messages were published, and how many came."""
    came: set[bytes] = set()
    async with Client(file) as subscriber, Client(file) as publisher:
        subscription = subscriber.subscribe("t", on_delivery=lambda delivery: came.add(delivery.payload))
        leased, wanted = await subscription.ready(20)
        assert leased == wanted
        failing = asyncio.create_task(faults)
        sent = 0
        while not failing.done():
            publisher.publish_nowait("t", b"%d" % sent)
            sent += 1
            await asyncio.sleep(1 / RATE)
        await failing
        await asyncio.sleep(3)
    return sent, len(came)


def stopped_server(lab: Lab) -> Iterator[Figure]:
    """A server stands still for longer than a ttl, while publishes to its subscriber wait in its socket."""
    ttl_s = 4
    server = lab.serve("--ttl", str(ttl_s))
    with WirePeer(server.address, "127.5.5.5") as subscriber, WirePeer(server.address, "127.6.6.6") as peer:
        subscriber.lease(b"t")
        vouch = wire.Vouch(b"pub", peer.cookie(), None)
        peer.request(wire.request_datagram(vouch, [b"t before\n"]), b"pub")
        time.sleep(0.2)
        before = b"".join(subscriber.take()).count(b"t before\n")
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(ttl_s + 1.5)
        for number in range(WAITING_LINES):
            peer.say(wire.request_datagram(vouch, [b"t after %d\n" % number]))
        server.process.send_signal(signal.SIGCONT)
        time.sleep(1)
        after = b"".join(subscriber.take()).count(b"t after")
        taken = server.metrics()["kcast_messages_total"]
        reply = peer.request(wire.request_datagram(wire.Vouch(b"late", vouch.cookie, None)), b"late")
    yield at_least("copies before", before, 1)
    yield at_least("messages that waited", taken - 1, WAITING_LINES)
    yield at_most("copies to a lease that has ended", after, 0)
    yield at_least("and it serves", float(isinstance(reply, wire.Receipt)), 1)


def mute_server(lab: Lab) -> Iterator[Figure]:
    """Of a topic's three servers one takes leases and messages, and forwards nothing."""
    servers = [lab.serve("--ttl", "10", has_metrics=False) for _ in range(2)]
    mute = lab.start(sys.executable, "-m", "tests.attacks.mute")
    assert mute.stdout is not None
    addresses = [server.address for server in servers] + [("127.0.0.1", int(mute.stdout.readline()))]
    file = lab.cluster_file(*addresses, policy=Policy(3, 2, 3))
    sent, came = asyncio.run(_published(file, asyncio.sleep(4)))
    mute.terminate()
    yield at_least("published", sent, 2 * RATE)
    yield at_least("taken by the mute one", int(mute.stdout.readline()), 0.4 * sent)
    yield at_most("lost", sent - came, 0)


def erased_tap(lab: Lab) -> Iterator[Figure]:
    """Somebody publishes more than a tap has room for; what others have published is to be read in it."""
    file = lab.scratch / "tap"
    size_bytes = 4 * 1024 * 1024
    server = lab.serve("--tap", str(file), "--tap-size", "4M")
    with WirePeer(server.address, "127.8.1.1") as honest, WirePeer(server.address, "127.9.9.9") as junk:
        honest.open_publish_lease()
        junk.open_publish_lease()
        for number in range(HONEST_LINES):
            honest.say(b"weather %d\n" % number)
        time.sleep(0.5)
        junk_lines = 0
        while junk_lines * 33 < 3 * size_bytes:  # bytes that a line takes in a tap, at least
            for number in range(5):
                junk.say(b"".join(b"%d-%d x\n" % (junk_lines, number * 60 + each) for each in range(60)))
            junk_lines += 300
            time.sleep(0.01)
    server.process.terminate()
    server.process.wait(30)
    left = Counter[str]()  # lines, whose publisher's bursts may have been taken as one
    for record in read_all(file):
        if isinstance(record, TapBurst):
            left[record.source[0]] += len(record.digests)
    yield at_least("lines of junk", junk_lines, size_bytes / 33)
    yield at_least("lines of junk that are left", left["127.9.9.9"], 1000)
    yield at_least("lines of others that are left", left["127.8.1.1"], HONEST_LINES)


def full_disk(lab: Lab) -> Iterator[Figure]:
    """The disk of the tap is full."""
    folder = lab.scratch / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=16k", "none", str(folder)), capture_output=True, check=False
    )
    if mount.returncode:
        raise Skipped("a small disk takes the right to mount one")
    lab.stack.callback(subprocess.run, ("umount", "-l", str(folder)), check=False)
    server = lab.serve("--tap", str(folder / "tap"))
    result = lab.honest(server.address, 5.0).result()
    yield at_least("records missing", server.metrics().get("kcast_tap_records_dropped_total", 0), 100)
    yield at_least("delivered", result.delivered_percent, 100, "%")


def blocked_stderr(lab: Lab) -> Iterator[Figure]:
    """Nobody reads the server's standard error, whose pipe is full."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"." * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write, True)
    server = lab.serve("--log", "json", stderr=write)
    os.close(write)
    flood = lab.flood(server.address, "forged-cookies", rate=5_000, seconds=FORGING_S)
    result = lab.honest(server.address, FORGING_S + 1).result()
    yield at_least("flood", flood.result()["sent"] / FORGING_S, 2_000, "datagrams/s")
    yield at_least("of them to be told of", server.dropped("cookie-foreign"), 100)
    yield at_least("bytes in the pipe", _waiting_bytes(read), 60_000, "B")
    os.close(read)
    yield at_least("delivered", result.delivered_percent, 99.9, "%")


def _waiting_bytes(descriptor: int) -> int:
    """Returns how many bytes wait in a pipe; see ioctl_tty(2), FIONREAD."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


def slow_scrapers(lab: Lab) -> Iterator[Figure]:
    """832 connections to the metrics say nothing, or one byte at a time."""
    server = lab.serve()
    sockets = _connections(server, SCRAPERS)
    result = lab.honest(server.address, 3.0).result()
    yield at_least("connections", sum(map(_was_taken, sockets)), 0.8 * SCRAPERS)
    for sock in sockets:
        sock.close()
    yield at_least("delivered", result.delivered_percent, 100, "%")


def no_descriptors(lab: Lab) -> Iterator[Figure]:
    """The server may open 20 files, and 200 connections to its metrics wait."""
    seconds = 3.0
    server = lab.serve(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)))
    sockets = _connections(server, 200)
    yield at_least("connections", sum(map(_was_taken, sockets)), 40)
    spent_s, began = server.cpu_s, time.monotonic()
    time.sleep(seconds)
    share = 100 * (server.cpu_s - spent_s) / (time.monotonic() - began)
    result = lab.honest(server.address, 1.0).result()
    for sock in sockets:
        sock.close()
    yield at_most("CPU in quiet", share, 5, "% of a core")
    yield at_least("delivered", result.delivered_percent, 100, "%")


def _connections(server: Served, count: int) -> list[socket.socket]:
    """Opens connections to the metrics, as many as are taken."""
    sockets = []
    for number in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", server.metrics_port))
        sockets.append(sock)
        if number % 50 == 49:
            time.sleep(0.05)
    for sock in sockets:
        try:
            sock.send(b"G")
        except OSError:
            continue
    return sockets


def _was_taken(sock: socket.socket) -> bool:
    """Whether the kernel has connected it, though the server may have ended it since; see tcp(7)."""
    state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return state != _SYN_SENT and error != errno.ECONNREFUSED


ROWS = (
    Row("killed-servers", "0 lost", killed_servers, is_light=True),
    Row("stopped-server", "no copy to a lease that has ended", stopped_server, is_light=True),
    Row("mute-server", "0 lost", mute_server, is_light=True),
    Row("erased-tap", "50 of 50 lines of others left", erased_tap, in_short=False),
    Row("full-disk", "100 %", full_disk, is_light=True),
    Row("blocked-stderr", "99.9 %", blocked_stderr, is_light=True),
    Row("slow-scrapers", "100 %", slow_scrapers, is_light=True),
    Row("no-descriptors", "5 % of a core; 100 %", no_descriptors, is_light=True),
)
