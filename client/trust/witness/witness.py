"""A witness as an HTTP server, with its state on disk. PROTOCOL §10.6, C2SP tlog-witness.

Nothing that clients do ends it or fills its disk: requests are short, are cut off at a deadline, and are
answered by a bounded number of threads. A checkpoint is on the disk before its cosignature is sent.
"""

import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from io import BufferedReader, RawIOBase
from pathlib import Path
from socket import socket
from threading import Lock
from time import monotonic, time
from typing import Any

from kcast.client.clusters import durable
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.note import KIND_COSIGNATURE, NoteError, SigningKey
from kcast.client.trust.state import keys
from kcast.client.trust.witness.witnessing import (
    BODY_BYTES_MAX,
    TEXT_TYPE,
    Answer,
    Status,
    WitnessCore,
    origin_hash,
)
from kcast.pubsub.endpoint import Address
from kcast.pubsub.errors import KcastError
from kcast.pubsub.http import BoundedHttpServer

REQUEST_S = 10.0  # for a whole request to come in, and for its answer to be taken
CONNECTIONS_MAX = 32
_HEADER_BYTES_MAX = 16_384
_CHECKPOINT, _FORK, _LOCK = "checkpoint", "fork", "lock"


class WitnessError(KcastError):
    """The state of a witness cannot be used. The message says why, and what to do."""


class Witness:
    """A witness with its state, a folder that no other process uses at the same time (`opened`).

    The folder has a folder for each log, named as in URLs: `checkpoint` is the latest that was cosigned, and
    `fork`, where there is one, what the same log signed against it. Any thread may call it.
    """

    def __init__(self, core: WitnessCore, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        """Reads the state. Raises WitnessError if a checkpoint in it is damaged, and OSError."""
        self.counts: Counter[Status | str] = Counter()
        self._folder = folder
        self._say = say
        self._trouble = ""
        self._locks: dict[str, Lock] = {}
        self._stored: dict[str, bytes] = {}  # by the hash of the log's name
        self._held: dict[str, Checkpoint] = {}
        self.serve(core)

    def serve(self, core: WitnessCore) -> None:
        """Goes by these logs from now on, and reads the state of those that are new.

        Raises as the constructor does; then the logs are those of before.
        """
        for origin in core.origins:
            if origin not in self._locks:
                self._read(origin, core)
                self._locks[origin] = Lock()
        self._core = core

    def _read(self, origin: str, core: WitnessCore) -> None:
        file = self._path(origin, _CHECKPOINT)
        for leftover in file.parent.glob(".*"):  # of an earlier process that did not end its write
            leftover.unlink()
        with suppress(FileNotFoundError):
            data = file.read_bytes()
            try:
                self._held[origin] = core.held(origin, data)
            except NoteError as error:
                raise WitnessError(
                    f"{file}: {error}; so this witness cannot know what it has cosigned, and must not "
                    "go on: make a new one, with another --state"
                ) from None
            self._stored[origin_hash(origin)] = data

    def _path(self, origin: str, name: str) -> Path:
        return self._folder / origin_hash(origin) / name

    @property
    def held(self) -> dict[str, Checkpoint]:
        """The latest checkpoint cosigned, by log."""
        return dict(self._held)

    def add_checkpoint(self, body: bytes, now_unix_s: int) -> Answer:
        """Answers an add-checkpoint request. Raises OSError where the checkpoint could not be stored; then it
        was not cosigned."""
        core = self._core
        request = core.read(body)
        if isinstance(request, Answer):
            answer = request
        else:
            origin = request.checkpoint.origin
            with self._locks[origin]:
                answer = core.decide(request, self._held.get(origin), now_unix_s)
                if answer.cosigned is not None:
                    if request.checkpoint != self._held.get(origin):  # anybody may show it the one it has
                        self._store(origin, _CHECKPOINT, answer.cosigned.data)
                    self._stored[origin_hash(origin)] = answer.cosigned.data
                    self._held[origin] = request.checkpoint
                if answer.fork is not None:
                    self._keep_fork(origin, answer.fork.data)
        self.counts[answer.status] += 1
        return answer

    def checkpoint(self, log_hash: str) -> bytes | None:
        """Returns the latest checkpoint of a log, cosigned; None where there is none."""
        return self._stored.get(log_hash)

    def failed(self, error: OSError) -> None:
        """Counts, and tells, that something could not be stored; the same trouble is told once."""
        self.counts["not-stored"] += 1
        trouble = error.strerror or str(error)
        if trouble != self._trouble:
            self._trouble = trouble
            self._say(f"cannot store a checkpoint, so it was not cosigned: {self._folder}: {trouble}")

    def _store(self, origin: str, name: str, data: bytes) -> None:
        path = self._path(origin, name)
        durable.make_folder(path.parent, mode=0o700)
        durable.write_whole(path, data)

    def _keep_fork(self, origin: str, data: bytes) -> None:
        self.counts["forks"] += 1
        path = self._path(origin, _FORK)
        if path.exists():
            return  # one proves it
        with suppress(OSError):
            self._store(origin, _FORK, data)
        self._say(f"{origin} has signed two histories: {path} and {_CHECKPOINT} beside it prove it")


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Makes the state folder if it is missing, and keeps other processes out.

    Raises WitnessError and OSError.
    """
    durable.make_folder(folder, mode=0o700)
    if folder.stat().st_uid != os.geteuid():
        raise WitnessError(f"{folder}: belongs to another user; give another --state")
    if any(folder.iterdir()) and not (folder / _LOCK).exists():
        raise WitnessError(f"{folder}: has other files in it; give another --state")
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WitnessError(f"{folder}: another witness uses it; give another --state") from None
        yield
    finally:
        os.close(descriptor)


def key_of(name: str, folder: Path) -> SigningKey:
    """Returns the key of a witness, which is made where its state folder is new.

    Key and state lie together: a witness that has lost its state must not cosign with its old key. Raises
    WitnessError and KeyFileError.
    """
    path = folder / keys.file_name(name)
    others = sorted(each.name for each in folder.glob("*.pem") if each != path)
    if others:
        raise WitnessError(f"{folder}: belongs to another witness ({others[0]}); give another --state")
    with suppress(FileNotFoundError):
        return keys.load(path, name, KIND_COSIGNATURE)
    if any(each.is_dir() for each in folder.iterdir()):
        raise WitnessError(f"{path}: is missing, and there are checkpoints beside it; give another --state")
    return keys.make(path, name, KIND_COSIGNATURE)


# --- Over HTTP ---------------------------------------------------------------------------------------


def http_server(witness: Witness, address: Address) -> BoundedHttpServer:
    """Returns the server; call its `serve_forever`. Raises KcastError if the address cannot be served on."""
    handler = type("_BoundHandler", (_Handler,), {"witness": witness})
    return BoundedHttpServer(address, handler, connections_max=CONNECTIONS_MAX, option="--listen")


class _Incoming(RawIOBase):
    """What a connection brings, with a deadline and a limit for each request. A drip does not extend them."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self.begin()

    def begin(self) -> None:
        """Begins a request."""
        self._until = monotonic() + REQUEST_S
        self._bytes_left = _HEADER_BYTES_MAX + BODY_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: self._bytes_left]
        left_s = self._until - monotonic()
        if left_s <= 0:
            raise TimeoutError
        if not view:
            return 0
        self._connection.settimeout(left_s)
        received = self._connection.recv_into(view)
        self._bytes_left -= received
        return received


class _Handler(BaseHTTPRequestHandler):
    witness: Witness
    protocol_version = "HTTP/1.1"  # C2SP: witnesses should keep connections open
    timeout = REQUEST_S
    disable_nagle_algorithm = True  # else the body of an answer waits 40 ms for its head to be acknowledged

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._incoming = _Incoming(self.connection)
        self.rfile = BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        self._incoming.begin()
        super().handle_one_request()

    def version_string(self) -> str:
        return "kcast-witness"

    def log_message(self, *_: object) -> None:
        """Says nothing: requests are counted."""

    def do_GET(self) -> None:
        """Serves monitors: `/ORIGIN_HASH/checkpoint`."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._answer(400, "a GET has no body\n", closes=True)
            return
        head, _, name = self.path.removeprefix("/").partition("/")
        data = self.witness.checkpoint(head) if name == _CHECKPOINT else None
        if data is None:
            self._answer(404, "there is no such checkpoint\n")
        else:
            self._answer(200, data.decode())

    def do_POST(self) -> None:
        """Serves logs: `/add-checkpoint`."""
        if self.path != "/add-checkpoint":
            self._answer(404, "POST /add-checkpoint is what a witness takes\n", closes=True)
            return
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or len(lengths) != 1 or not _is_number(lengths[0]):
            self._answer(411, "give Content-Length\n", closes=True)
            return
        if int(lengths[0]) > BODY_BYTES_MAX:
            self._answer(413, f"at most {BODY_BYTES_MAX} bytes\n", closes=True)
            return
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            self._answer(400, "the body ends too early\n", closes=True)
            return
        try:
            answer = self.witness.add_checkpoint(body, int(time()))
        except OSError as error:
            self.witness.failed(error)
            self._answer(500, "the checkpoint could not be stored, so it was not cosigned\n")
            return
        self._answer(answer.status, answer.body, answer.content_type)

    def _answer(self, status: int, body: str, content_type: str = TEXT_TYPE, *, closes: bool = False) -> None:
        data = body.encode()
        self.connection.settimeout(REQUEST_S)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        if closes:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
