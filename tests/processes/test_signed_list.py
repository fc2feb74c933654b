"""A signed list as its users meet it: dropped on a machine, used by name, replaced while programs run."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("nacl")

from kcast.client.cluster import ServerEntry
from kcast.hashring.policy import Policy
from tests.support.machine import has_loopback_network
from tests.support.published import AT_NAME, KnownList
from tests.support.serve_process import Serve, next_complaint, next_line, served_address

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(not has_loopback_network(), reason="this machine has one address on its loopback"),
]

KCAST = (sys.executable, "-m", "kcast.client.cli")


@pytest.fixture
def servers(serve: Serve) -> tuple[ServerEntry, ...]:
    """Four servers on hosts of their own."""
    running = [serve("--host", f"127.0.0.{number}", "--ttl", "60") for number in range(1, 5)]
    return tuple(ServerEntry((served_address(process),), "") for process in running)


@pytest.fixture
def known(tmp_path: Path) -> KnownList:
    return KnownList(tmp_path, Policy(3, 2, 3))


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(known: KnownList) -> Iterator[Start]:
    started = []

    def run(*arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            (*KCAST, *arguments),
            env={**os.environ, **known.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def complaints_until(process: "subprocess.Popen[str]", word: str) -> list[str]:
    """What it says on standard error, up to the first line with this word."""
    lines = [next_complaint(process)]
    while word not in lines[-1]:
        assert lines[-1], f"it ended after {lines}"
        lines.append(next_complaint(process))
    return lines


def test_a_list_is_used_by_its_name_and_replaced_meanwhile(
    servers: tuple[ServerEntry, ...], known: KnownList, start: Start
) -> None:
    # It is due to be replaced in 2 to 3 s.
    known.publish(servers[:3], fresh_s=12, age_s=4)
    subscriber = start("sub", "--cluster", AT_NAME, "weather/oslo")
    assert complaints_until(subscriber, "leased") == ["kcast sub: leased on 3 of 3\n"]
    publisher = start("pub", "--cluster", AT_NAME, "weather/oslo", "rain")
    assert publisher.wait(20) == 0
    assert next_line(subscriber) == "rain\n"

    known.publish(servers[1:])
    added, removed = servers[3].name, servers[0].name
    (said,) = [line for line in complaints_until(subscriber, "version 2") if "version" in line]
    assert said == f"kcast sub: example.org/lab: version 2 of the server list: +{added}, -{removed}\n"
    # The other program still has version 1 on disk, or version 2: they meet.
    publisher = start("pub", "--cluster", AT_NAME, "weather/oslo", "snow")
    assert publisher.wait(20) == 0
    assert next_line(subscriber) == "snow\n"
    subscriber.send_signal(signal.SIGINT)
    assert subscriber.wait(20) == 130


def test_a_refused_list_is_said_in_one_line(
    servers: tuple[ServerEntry, ...], known: KnownList, start: Start
) -> None:
    known.publish(servers[:3], fresh_s=12, age_s=4)
    subscriber = start("sub", "--cluster", AT_NAME, "weather/oslo")
    complaints_until(subscriber, "leased")
    list_1 = known.folder / "published" / "latest.tlog-proof"
    data = list_1.read_bytes()
    known.publish(servers[1:])
    list_1.write_bytes(data[:-8])
    (said,) = [line for line in complaints_until(subscriber, "refused") if "refused" in line]
    assert said.startswith("kcast sub: example.org/lab: a server list was refused: ")
    assert said.endswith("; version 1 stays in use\n")


def test_a_publisher_that_soon_ends_says_what_is_wrong_too(
    servers: tuple[ServerEntry, ...], known: KnownList, start: Start
) -> None:
    known.publish(servers[:3])
    publish = "pub", "--cluster", AT_NAME, "weather/oslo", "rain"
    done = start(*publish).communicate(timeout=20)[1]
    assert done == "kcast pub: published 1 message: receipts from 2 servers each; nobody is subscribed\n"
    (state,) = (known.folder / "state/kcast/trust").iterdir()
    # A second generation, of the same list, which is damaged.
    shutil.copytree((state / "current").resolve(), state / "1.9")
    (state / "1.9" / "list").write_bytes(b"damaged")
    (state / "current").unlink()
    (state / "current").symlink_to("1.9")
    said, outcome = start(*publish).communicate(timeout=20)[1].splitlines()
    assert said.startswith("kcast pub: example.org/lab: what is stored in ") and "(malformed)" in said
    assert outcome in done


def test_doctor_examines_a_list_by_its_name(
    servers: tuple[ServerEntry, ...], known: KnownList, start: Start
) -> None:
    known.publish(servers[:3])
    examining = start("doctor", "--cluster", AT_NAME, "--json")
    told, complaints = examining.communicate(timeout=60)
    found = [json.loads(line) for line in told.splitlines()]
    assert (examining.returncode, complaints) == (0, ""), told
    assert [each["id"] for each in found if each["server"]] == ["answers", "leases", "copies", "version"] * 3
    assert "a clock that fits the signed list" in [each["text"] for each in found]
