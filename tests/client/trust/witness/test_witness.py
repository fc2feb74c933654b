"""trust/witness/witness.py: a witness over HTTP, its state on disk, and what strangers and disks do to it."""

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from kcast.client.clusters import durable
from kcast.client.trust.forms.checkpoint import Checkpoint, cosignatures
from kcast.client.trust.forms.note import Note, Signature
from kcast.client.trust.witness import witness as witness_module
from kcast.client.trust.witness.witness import Witness, WitnessError, http_server, key_of, opened
from kcast.client.trust.witness.witnessing import BODY_BYTES_MAX, Status, WitnessCore
from kcast.pubsub.endpoint import Address
from tests.support.handmade_log import ORIGIN, HandmadeLog
from tests.support.lists import LOG as LOG_KEY
from tests.support.lists import WITNESSES

pytestmark = pytest.mark.world

NOW = 1_790_000_000
KEY = WITNESSES[0]
WAIT_S = 20.0
LOG = HandmadeLog(40)
MONITORED = f"/{sha256(ORIGIN.encode()).hexdigest()}/checkpoint"


def new_witness(folder: Path, say: Callable[[str], None] = lambda _: None) -> Witness:
    return Witness(WitnessCore(KEY, [LOG_KEY.verifier]), folder, say)


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return new_witness(tmp_path)


@pytest.fixture
def address(witness: Witness) -> Iterator[Address]:
    with http_server(witness, ("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.address
        server.shutdown()
        thread.join(WAIT_S)


@pytest.fixture
def connection(address: Address) -> Iterator[HTTPConnection]:
    with closing(HTTPConnection(*address, timeout=WAIT_S)) as made:
        yield made


def post(connection: HTTPConnection, body: bytes, path: str = "/add-checkpoint") -> HTTPResponse:
    connection.request("POST", path, body)
    return connection.getresponse()


# --- HTTP --------------------------------------------------------------------------------------------


def test_a_log_is_cosigned_over_one_connection(connection: HTTPConnection) -> None:
    for old, new in ((0, 5), (5, 5), (5, 40)):
        answer = post(connection, LOG.body(old, new))
        assert (answer.status, answer.headers.get_content_type()) == (200, "text/plain")
        signature = Signature.parse(answer.read().decode().removesuffix("\n"))
        found = cosignatures(Note(LOG.checkpoint(new).text, (signature,)), [KEY.verifier])
        assert abs(found[KEY.verifier] - time.time()) < 60
    answer = post(connection, LOG.body(0, 40))
    assert (answer.status, answer.headers["Content-Type"]) == (409, "text/x.tlog.size")
    assert answer.read() == b"40\n"


def test_monitors_get_the_latest_checkpoint_with_both_signatures(connection: HTTPConnection) -> None:
    connection.request("GET", MONITORED)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (404, b"there is no such checkpoint\n")
    for old, new in ((0, 5), (5, 7)):
        line = post(connection, LOG.body(old, new)).read()
        connection.request("GET", MONITORED)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, LOG.signed(new).data + line)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"POST /add-checkpoint HTTP/1.1\r\n\r\n", 411),
        (b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nold ", 411),
        (b"POST /add-checkpoint HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
        (b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nold", 400),
        (b"POST /sign-subtree HTTP/1.1\r\nContent-Length: 3\r\n\r\nold", 404),
        (b"PUT /add-checkpoint HTTP/1.1\r\nConnection: close\r\n\r\n", 501),
        (b"GET %s HTTP/1.1\r\nContent-Length: 3\r\n\r\nold" % MONITORED.encode(), 400),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_wrong_requests(address: Address, request_text: bytes, status: int) -> None:
    with socket.create_connection(address, timeout=WAIT_S) as client:
        client.sendall(request_text)
        with client.makefile("rb") as answer:
            told = answer.read()  # until the server closes
    assert f"HTTP/1.1 {status} " in told.decode() or (b"nonsense" in request_text and b" 400" in told)


@pytest.mark.parametrize("start", [b"POST /add-checkpoint HTTP/1.1\r\n", b""])
def test_who_drips_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, address: Address, connection: HTTPConnection, start: bytes
) -> None:
    monkeypatch.setattr(witness_module, "REQUEST_S", 0.3)
    began = time.monotonic()
    with socket.create_connection(address, timeout=WAIT_S) as client:
        client.sendall(start)
        with suppress(OSError):
            while not select_readable(client, 0.02):
                client.sendall(b"X")  # far more often than any timeout for a single read
                assert time.monotonic() < began + WAIT_S
    assert time.monotonic() >= began + 0.2
    assert post(connection, LOG.body(0, 5)).status == 200


def select_readable(client: socket.socket, for_s: float) -> bool:
    import select

    return bool(select.select([client], [], [], for_s)[0])


def test_who_holds_many_connections_does_not_keep_others_out(
    address: Address, connection: HTTPConnection
) -> None:
    idle = [
        socket.create_connection(address, timeout=WAIT_S) for _ in range(witness_module.CONNECTIONS_MAX + 5)
    ]
    assert post(connection, LOG.body(0, 5)).status == 200
    for each in idle:
        each.close()


# --- The state ---------------------------------------------------------------------------------------


def test_it_is_stored_before_it_is_answered(
    connection: HTTPConnection, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(witness, "_say", said.append)
    post(connection, LOG.body(0, 5)).read()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(durable, "write_whole", full)
        for _ in range(3):
            answer = post(connection, LOG.body(5, 7))
            assert (answer.status, answer.read()) == (
                500,
                b"the checkpoint could not be stored, so it was not cosigned\n",
            )
    assert witness.held == {ORIGIN: LOG.checkpoint(5)}
    assert len(said) == 1
    assert said[0].endswith(": No space left on device")
    assert witness.counts == {Status.COSIGNED: 1, "not-stored": 3}
    assert post(connection, LOG.body(5, 7)).status == 200


def test_a_fork_is_kept_once_with_both_notes(tmp_path: Path) -> None:
    said: list[str] = []
    witness, fork = new_witness(tmp_path, said.append), HandmadeLog(40, fork_at=3)
    witness.add_checkpoint(LOG.body(0, 5), NOW)
    for other in (fork, HandmadeLog(40, fork_at=2)):
        assert witness.add_checkpoint(other.body(0, 5), NOW).status == 409
        assert witness.add_checkpoint(other.body(5, 5), NOW).status == 422
    folder = tmp_path / MONITORED.split("/")[1]
    assert (folder / "fork").read_bytes() == fork.signed(5).data
    assert Checkpoint.parse(Note.parse((folder / "checkpoint").read_bytes()).text) == LOG.checkpoint(5)
    assert len(said) == 1
    assert said[0].startswith(f"{ORIGIN} has signed two histories: ")
    assert witness.counts["forks"] == 4


@pytest.mark.parametrize("data", [b"", b"torn", LOG.signed(5).data])
def test_a_damaged_state_ends_it(tmp_path: Path, data: bytes) -> None:
    new_witness(tmp_path).add_checkpoint(LOG.body(0, 5), NOW)
    file = tmp_path / MONITORED.split("/")[1] / "checkpoint"
    file.write_bytes(data)
    with pytest.raises(
        WitnessError, match=r"checkpoint: expected .*; so this witness cannot know what it has"
    ):
        new_witness(tmp_path)
    assert file.read_bytes() == data


def test_killed_at_each_step_of_a_write_it_has_the_old_checkpoint_or_the_new_one(tmp_path: Path) -> None:
    new_witness(tmp_path).add_checkpoint(LOG.body(0, 1), NOW)
    size, deaths, survived = 1, 0, False
    while not survived:
        died_at, survived, was_answered = dying(tmp_path, LOG.body(size, size + 1), deaths)
        deaths += not survived
        held = new_witness(tmp_path).held[ORIGIN]
        assert held in (LOG.checkpoint(size), LOG.checkpoint(size + 1)), died_at
        assert held.size == size + 1 or not was_answered, died_at
        # Whoever has the log's key and the moment of death gets no second history either.
        fork = HandmadeLog(size + 1, fork_at=size)
        if held.size == size + 1:
            assert new_witness(tmp_path).add_checkpoint(fork.body(size, size + 1), NOW).cosigned is None
        size = held.size
        assert [each.name for each in tmp_path.iterdir()] == [MONITORED.split("/")[1]]
        assert {each.name for each in (tmp_path / MONITORED.split("/")[1]).iterdir()} <= {
            "checkpoint",
            "fork",
        }
    assert deaths >= 10  # before and after each step


def dying(folder: Path, body: bytes, after: int) -> tuple[str, bool, bool]:
    """Asks a witness in a process that is killed once `after` halves of system calls are done. Returns where
    that was, whether it was not, and whether it had answered."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            witness = new_witness(folder)
            left = after

            def deadly(module: Any, name: str) -> None:
                real = getattr(module, name)

                def step(*arguments: Any, **options: Any) -> Any:
                    nonlocal left
                    for is_done in (False, True):
                        if is_done:
                            result = real(*arguments, **options)
                        if left == 0:
                            os.write(writing, f"{name} {is_done}\n".encode())
                            os.kill(os.getpid(), signal.SIGKILL)
                        left -= 1
                    return result

                setattr(module, name, step)

            for module, name in (
                *((os, "fchmod"), (os, "fsync"), (os, "open"), (os, "close")),
                *((Path, "replace"), (durable, "NamedTemporaryFile")),
            ):
                deadly(module, name)
            os_write = os.write
            if witness.add_checkpoint(body, NOW).cosigned is not None:
                os_write(writing, b"answered\n")
                os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), told
    return told, code == 0, "answered" in told


# --- The folder and its key --------------------------------------------------------------------------


def test_two_processes_do_not_share_a_state(tmp_path: Path) -> None:
    folder = tmp_path / "w0"
    in_use = pytest.raises(WitnessError, match=r"w0: another witness uses it; give another --state\Z")
    with opened(folder), in_use, opened(folder):
        pass
    with opened(folder):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_the_key_is_made_once_and_lies_with_the_state(tmp_path: Path) -> None:
    with opened(tmp_path):
        made = key_of("w0.example.net", tmp_path)
        assert key_of("w0.example.net", tmp_path) == made
        with pytest.raises(WitnessError, match=r"belongs to another witness \(w0\.example\.net\.pem\)"):
            key_of("w1.example.net", tmp_path)
        witness = Witness(WitnessCore(made, [LOG_KEY.verifier]), tmp_path)
        witness.add_checkpoint(LOG.body(0, 5), NOW)
        (tmp_path / "w0.example.net.pem").unlink()
        with pytest.raises(WitnessError, match="is missing, and there are checkpoints beside it"):
            key_of("w0.example.net", tmp_path)
