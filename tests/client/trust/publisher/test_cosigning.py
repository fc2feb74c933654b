"""trust/publisher/cosigning.py: asking witnesses of which some are down, slow, endless, wrong or lying."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from kcast.client.trust.forms.checkpoint import cosign, cosignatures
from kcast.client.trust.forms.note import SigningKey, VerifierKey
from kcast.client.trust.publisher.cosigning import Asked, collect
from kcast.client.trust.witness.witness import Witness, http_server
from kcast.client.trust.witness.witnessing import WitnessCore
from tests.client.trust.reach.test_sources import answer, web_server
from tests.support.handmade_log import HandmadeLog
from tests.support.lists import LOG as LOG_KEY
from tests.support.lists import WITNESSES

pytestmark = pytest.mark.world

LOG = HandmadeLog(60)
NOW = 1_790_000_000
WAIT_S = 20.0
KEY = WITNESSES[0]
SIZE_HELD = "Content-Type: text/x.tlog.size"

Serving = Callable[[SigningKey], tuple[Witness, str]]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """Starts honest witnesses; returns each with its URL."""
    with ExitStack() as stack:

        def start(key: SigningKey) -> tuple[Witness, str]:
            witness = Witness(WitnessCore(key, [LOG_KEY.verifier]), tmp_path / key.verifier.name)
            server = stack.enter_context(http_server(witness, ("127.0.0.1", 0)))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join, WAIT_S)
            stack.callback(server.shutdown)
            return witness, f"http://127.0.0.1:{server.address[1]}/"

        yield start


def ask(witnesses: dict[VerifierKey, str], size: int = 10, deadline_s: float = WAIT_S) -> list[Asked]:
    return list(collect(LOG.signed(size), witnesses, LOG.path, deadline_s=deadline_s).values())


def ask_one(said: bytes, size: int = 10) -> Asked:
    """Asks a witness that answers every question with this."""
    with web_server(lambda connection, _: connection.sendall(said)) as url:
        (asked,) = ask({KEY.verifier: url}, size)
    return asked


def test_all_are_asked_and_each_cosignature_verifies(serving: Serving) -> None:
    keys = WITNESSES[:4]
    served = {key: serving(key) for key in keys}
    urls = {key.verifier: url for key, (_, url) in served.items()}
    for size in (10, 25, 25, 60):
        found = collect(LOG.signed(size), urls, LOG.path)
        assert list(found) == [key.verifier for key in keys]
        note = LOG.signed(size).with_signatures(
            each for asked in found.values() for each in asked.cosignatures
        )
        assert cosignatures(note, urls).keys() == set(urls)
        assert {asked.held_size for asked in found.values()} == {size}


def test_where_the_old_size_is_known_one_question_is_enough(serving: Serving) -> None:
    witness, url = serving(KEY)
    held: dict[VerifierKey, int] = {}
    for size in (10, 25, 60):
        asked = collect(LOG.signed(size), {KEY.verifier: url}, LOG.path, old_sizes=held)
        held = {key: each.held_size for key, each in asked.items() if each.held_size is not None}
    assert witness.counts == {200: 3}
    # A wrong one costs one more.
    for wrong in (3, 40, 1_000_000):
        (asked_one,) = collect(
            LOG.signed(60), {KEY.verifier: url}, LOG.path, old_sizes={KEY.verifier: wrong}
        ).values()
        assert asked_one.cosignatures
    assert witness.counts == {200: 6, 409: 2}  # the last was cut to the size itself


def test_those_who_are_down_or_slow_cost_nobody_elses_cosignature(serving: Serving) -> None:
    hangs = threading.Event()

    def drip(connection: socket.socket, _: str) -> None:
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not hangs.wait(0.02):
                connection.sendall(b"x")

    def say_nothing(connection: socket.socket, _: str) -> None:
        hangs.wait()

    with web_server(drip) as drips, web_server(say_nothing) as silent:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            down = f"http://127.0.0.1:{closed.getsockname()[1]}"
        witnesses = {
            WITNESSES[0].verifier: serving(WITNESSES[0])[1],
            WITNESSES[1].verifier: drips,
            WITNESSES[2].verifier: silent,
            WITNESSES[3].verifier: down,
            WITNESSES[4].verifier: "",
            WITNESSES[5].verifier: "ftp://127.0.0.1",
            WITNESSES[6].verifier: serving(WITNESSES[6])[1],
        }
        # Those who are slow go on until `collect` has returned, so it has not waited for them.
        asked = ask(witnesses, deadline_s=1.0)
        hangs.set()
    assert [bool(each.cosignatures) for each in asked] == [True, False, False, False, False, False, True]
    for each in asked[1:3]:
        assert each.why_not == "no answer in 1 s" or " in 1 s" in each.why_not
    assert asked[3].why_not == f"{down}/add-checkpoint: Connection refused"
    assert asked[4].why_not == "the trust document has no URL for it"
    assert "ftp" in asked[5].why_not


def line_of(key: SigningKey, size: int = 10) -> bytes:
    return f"{cosign(LOG.signed(size), key, NOW).line}\n".encode()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer("200 OK"), "expected a signature line"),
        (answer("200 OK", b"thanks\n"), "expected a signature line"),
        (answer("200 OK", line_of(WITNESSES[1])), "it gave no cosignature of w0.example.net"),
        (
            answer("200 OK", line_of(KEY, 9)),
            "the cosignature of w0.example.net is not one of this checkpoint",
        ),
        (answer("200 OK", line_of(SigningKey(KEY.verifier, bytes(32)))), "is not one of this checkpoint"),
        (answer("200 OK", b"\xff" * 50), "expected a signature line"),
        (answer("200 OK", line_of(WITNESSES[1]) * 16 + line_of(KEY)), "it gave no cosignature"),
        (answer("200 OK", b"x" * 100_000), "expected a signature line"),
        (answer("403 Forbidden", b"no\nsuch log"), "/add-checkpoint: HTTP 403: no such log"),
        (answer("404 Not Found"), "/add-checkpoint: HTTP 404: Not Found"),
        (answer("422 No", b"x" * 5000), "HTTP 422: " + "x" * 120),
        (answer("302 Found", b"", "Location: http://127.0.0.1:1/"), "HTTP 302: Found"),
        (answer("409 Conflict", b"3\n"), "HTTP 409: 3"),
        (answer("409 Conflict", b"03\n", SIZE_HELD), "expected a number"),
        (answer("409 Conflict", b"-3\n", SIZE_HELD), "expected a number"),
        (answer("409 Conflict", b"\xd9\xa3\n", SIZE_HELD), "expected a number"),
        (answer("409 Conflict", b"3" * 500 + b"\n", SIZE_HELD), "expected a number"),
        (answer("409 Conflict", b"3\n", SIZE_HELD), "it now says that it holds 3 entries"),
        (answer("409 Conflict", b"99\n", SIZE_HELD), "it has cosigned 99 entries already"),
        (b"SSH-2.0-OpenSSH\r\n", "it does not speak HTTP"),
        (b"", "it does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", "it ended in the middle"),
    ],
)
def test_what_a_wrong_witness_says_is_told_and_believed_for_nothing(said: bytes, why: str) -> None:
    asked = ask_one(said)
    assert asked.cosignatures == ()
    assert why in asked.why_not
    assert asked.why_not.isprintable()
    assert len(asked.why_not) < 300


def test_a_witness_is_asked_twice_at_most() -> None:
    asked_for: list[str] = []

    def talk(connection: socket.socket, path: str) -> None:
        asked_for.append(path)
        connection.sendall(answer("409 Conflict", b"%d\n" % len(asked_for), SIZE_HELD))

    with web_server(talk) as url:
        (asked,) = ask({KEY.verifier: f"{url}/prefix/"})
    assert asked_for == ["/prefix/add-checkpoint"] * 2
    assert asked == Asked(why_not="it now says that it holds 2 entries", held_size=2)
