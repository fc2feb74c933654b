"""What evil servers and forgers do to clients."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kcast.client.aio import Client
from kcast.client.events import Gap
from tests.attacks.figures import Figure, at_least, at_most, told
from tests.attacks.lab import Lab, Skipped, cpu_seconds
from tests.attacks.row import Row
from tests.attacks.wire_peer import WirePeer
from tests.support.trees import HERE

TWO_PERCENT_OF_TEN_MINUTES_S = 12.0
ALLOWANCE_AND_START_S = 7.0  # of which the allowance for one server is 5 s in ten minutes
STDERR_BYTES_PER_MINUTE_MAX = 4096
WORK_S_MIN = 1.5  # with a second for the start of Python
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def evil_server(lab: Lab) -> Iterator[Figure]:
    """A server asks 22 bits for a lease of a second, and refuses its renewal, for ever. Another gives a
    subscriber everything to complain of.

    The short form lasts 20 s, and can only tell that no more than the allowance of ten minutes is spent.
    tests/client/session/test_allowance.py runs ten minutes, and more, in virtual time.
    """
    seconds = 600.0 if lab.is_full else 20.0
    seller, seller_file = _victim(lab, "sells")
    _, nuisance_file = _victim(lab, "all")
    time.sleep(seconds)
    spent_s = cpu_seconds(seller.pid)
    yield told("share of a core meanwhile", 100 * spent_s / seconds, "%")
    yield at_least("CPU that it made the client use", spent_s, WORK_S_MIN, "s")
    yield at_most("CPU", spent_s, TWO_PERCENT_OF_TEN_MINUTES_S if lab.is_full else ALLOWANCE_AND_START_S, "s")
    most = STDERR_BYTES_PER_MINUTE_MAX * max(1.0, seconds / 60)
    yield at_most("standard error", seller_file.stat().st_size, most, "B")
    yield at_most("standard error, all complaints at once", nuisance_file.stat().st_size, most, "B")


def _victim(lab: Lab, kind: str) -> "tuple[subprocess.Popen[bytes], Path]":
    """Starts an evil server of a kind and a subscriber there. Returns the latter, and its standard error."""
    evil = lab.start(sys.executable, "-m", "tests.attacks.evil", kind)
    assert evil.stdout is not None
    port = int(evil.stdout.readline())
    command = lab.tree.kcast("sub", "t", "--cluster", lab.cluster_file(("127.0.0.1", port)))
    file = lab.scratch / f"stderr-{kind}"
    with file.open("wb") as stderr:
        return lab.start(*command, tree=lab.tree, stderr=stderr), file


def forged_numbers(lab: Lab) -> Iterator[Figure]:
    """Somebody forges a jump of a live publisher's numbers each second, and numbers of 200 made-up ones."""
    if lab.tree is not HERE:
        raise Skipped("it is measured with this version's client alone")
    server = lab.serve()
    real, forged = asyncio.run(_gaps(lab.cluster_file(server.address), 30 if lab.is_full else 12))
    yield at_most("real gaps hidden", real[0] - real[1], 0)
    yield at_least("real gaps reported", real[1], 5)
    yield at_most("false gaps reported", forged, 0)


async def _gaps(file: str, seconds: int) -> tuple[tuple[int, int], int]:
    """Returns how many real gaps there were and were reported, and how many others were reported."""
    async with Client(file) as client:
        events = client.events()
        await client.subscribe("t", on_delivery=lambda _: None).ready(10)
        with WirePeer(client.cluster.servers[0].addresses[0]) as peer:
            await asyncio.to_thread(peer.open_publish_lease)
            missing = set()
            for tenth in range(10 * seconds):
                seq = tenth + 1
                if tenth % 10 == 5 and tenth < 10 * (seconds - 6):
                    missing.add(seq)
                else:
                    peer.say(b"t %%@AAAAAAAAAAA.%d x\n" % seq)
                if tenth % 10 == 0:
                    peer.say(b"t %%@AAAAAAAAAAA.%d forged\n" % (seq + (500 if tenth % 20 else 100_000)))
                    lines = [b"t %%@%011d.%d x\n" % (number, 1 + tenth) for number in range(20)]
                    peer.say(b"".join(lines))
                await asyncio.sleep(0.1)
        await asyncio.sleep(3)
        reported: set[int] = set()
        false = 0
        while True:
            try:
                event = await events.get(0)
            except TimeoutError:
                break
            if isinstance(event, Gap):
                numbers = set(range(event.first_seq, event.last_seq + 1))
                is_real = event.publisher == "A" * 11 and numbers <= missing
                reported |= numbers if is_real else set()
                false += not is_real
        return (len(missing), len(reported & missing)), false


def control_characters(lab: Lab) -> Iterator[Figure]:
    """Somebody publishes what could act on a terminal, encoded and raw, to `kcast sub` with a format."""
    server = lab.serve()
    command = lab.tree.kcast(
        "sub", "t", "--cluster", lab.cluster_file(server.address), "--count", "40", "--format", "{payload}"
    )
    sub = lab.start(*command, tree=lab.tree, stderr=subprocess.PIPE)
    _await_lease(sub)
    with WirePeer(server.address) as peer:
        peer.open_publish_lease()
        for number in range(20):
            peer.say(b"t %d %%1B]0;title%%07%%1B[2J\xc2\x9b2J\n" % number)
            peer.say(b"t %d \x1b[31m\x07\x08\n" % number)
            peer.say(b"t %%@BBBBBBBBBBB.%d %%1B[2J\n" % (number + 1))
            time.sleep(0.02)
    until = time.monotonic() + 5
    while sub.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    sub.terminate()
    out, errors = sub.communicate(timeout=10)
    yield at_least("bytes shown", len(out), 400)
    yield at_most(
        "control characters shown", len(_CONTROL.findall((out + errors).decode(errors="replace"))), 0
    )
    opened = lab.serve("--open", exempts_loopback=True)
    with WirePeer(opened.address) as listener, WirePeer(opened.address) as peer:
        listener.say(b"t\n")
        time.sleep(0.1)
        peer.say(b"t \x1b[31m\n")
        peer.say(b"t plain\n")
        time.sleep(0.2)
        copies = b"".join(listener.take())
    yield at_most("sent on raw by an open server", copies.count(b"\x1b"), 0)
    yield at_least("and what is plain", copies.count(b"plain"), 1)


def _await_lease(sub: "subprocess.Popen[bytes]") -> None:
    assert sub.stderr is not None
    said = b""
    while b"leased on 1 of 1" not in said:
        more = os.read(sub.stderr.fileno(), 4096)
        if not more:
            raise RuntimeError(f"kcast sub ended: {said!r}")
        said += more


ROWS = (
    Row(
        "evil-server", "7 s in 20 s (--full: 12 s in 10 minutes); 4 KiB a minute", evil_server, is_light=True
    ),
    Row("forged-numbers", "0 hidden, 0 false", forged_numbers, is_light=True),
    Row("control-characters", "0 shown, 0 sent on raw", control_characters, is_light=True),
)
