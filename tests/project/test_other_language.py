"""docs/other-language.md: its programs in Perl speak with real servers, and with our client."""

import os
import re
import select
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcast.client.blocking import Client
from tests.support.checkout import ROOT
from tests.support.serve_process import Serve, end, served_address, serving

PERL = shutil.which("perl")
PAGE = (ROOT / "docs/other-language.md").read_text()
PROGRAMS = dict(zip(("pub.pl", "sub.pl"), re.findall(r"```perl\n(.*?)```", PAGE, re.DOTALL), strict=True))
TOPIC = "weather/oslo"
WAIT_S = 20.0

pytestmark = pytest.mark.skipif(PERL is None, reason="perl is not installed")


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as start:
        yield start


def program(folder: Path, name: str) -> tuple[str, str]:
    assert PERL is not None
    path = folder / name
    path.write_text(PROGRAMS[name])
    return PERL, str(path)


def text(address: tuple[str, int]) -> str:
    host, port = address
    return f"{host}:{port}"


class Subscriber:
    """The page's subscriber, at some servers."""

    def __init__(self, folder: Path, servers: list[str]) -> None:
        self._process = subprocess.Popen(
            (*program(folder, "sub.pl"), TOPIC, *servers), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def __enter__(self) -> "Subscriber":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def line(self, *, of_errors: bool = False) -> str:
        """The next line that it prints."""
        stream = self._process.stderr if of_errors else self._process.stdout
        assert stream is not None
        assert select.select([stream], [], [], WAIT_S)[0], f"nothing came for {WAIT_S:g} s"
        # Byte by byte, so that nothing is left in a buffer of Python's, where `select` would not see it.
        found = b""
        while not found.endswith(b"\n"):
            byte = os.read(stream.fileno(), 1)
            assert byte, "the subscriber has ended"
            found += byte
        return found.decode(errors="replace").removesuffix("\n")


def publish(folder: Path, payload: str, servers: list[str]) -> str:
    command = (*program(folder, "pub.pl"), TOPIC, payload, *servers)
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout


def test_a_message_comes_once_from_its_publisher_and_from_ours(serve: Serve, tmp_path: Path) -> None:
    servers = [text(served_address(serve())) for _ in range(2)]
    lines = "".join(f"server {server}\n" for server in servers)
    cluster = tmp_path / "lab.txt"
    cluster.write_text(f"kcast-cluster 1\npolicy k=2 publish=2 subscribe=2\nlab\n{lines}")
    with Subscriber(tmp_path, servers) as subscriber, Client(cluster) as client:
        told = {subscriber.line(of_errors=True) for _ in servers}
        assert told == {f"leased at {server} for 60 s" for server in servers}
        ours = client.subscribe(TOPIC)
        assert ours.ready(timeout_s=WAIT_S) == (2, 2)

        assert publish(tmp_path, "rain, 100 %", servers) == "".join(
            f"{server}: receipt\n" for server in servers
        )
        assert subscriber.line() == "rain, 100 %"
        delivery = ours.get(timeout_s=WAIT_S)
        assert delivery is not None
        assert (delivery.payload, delivery.seq) == (b"rain, 100 %", 1)

        client.publish(TOPIC, "snow\tand ice")
        assert subscriber.line() == "snow\tand ice"
        client.publish(TOPIC, bytes(60))  # travels in base64url
        assert subscriber.line() == "\0" * 60
        client.publish(TOPIC, "raw", raw=True)
        assert subscriber.line() == "raw"


def test_it_leases_again_where_a_server_has_restarted(serve: Serve, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--port", str(port), "--ttl", "2")
    first = serve(*options)
    server = text(served_address(first))
    with Subscriber(tmp_path, [server]) as subscriber:
        assert subscriber.line(of_errors=True) == f"leased at {server} for 2 s"
        end(first)
        served_address(serve(*options))
        assert subscriber.line(of_errors=True) == f"leased at {server} for 2 s"
        publish(tmp_path, "here again", [server])
        assert subscriber.line() == "here again"
