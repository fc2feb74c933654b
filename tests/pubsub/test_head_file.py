"""pubsub/head_file.py: a head that stands in a file, and may change while the server runs."""

import threading
from pathlib import Path

import pytest

from kcast.pubsub import head_file, wire
from kcast.pubsub.endpoint import Burst
from kcast.pubsub.head_file import HeadFile, HeadFileError, read_head
from kcast.pubsub.log import Log
from kcast.pubsub.server import Server
from tests.support.logs import untimed
from tests.support.waiting import wait_until

SOURCE = ("192.0.2.9", 4711)


def head_of(server: Server) -> str | None:
    """What a client finds in an answer."""
    datagram = wire.request_datagram(wire.Ask(b"n"))
    server.receive(Burst(datagram, len(datagram), SOURCE), 0.0)
    (answer,) = server.flush(0.0)
    reply = wire.parse_reply(answer.data.split(b"\n")[0])
    assert isinstance(reply, wire.Challenge)
    return reply.attributes.get("head")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "head"
    path.write_text("v1\n")
    return path


@pytest.fixture
def server() -> Server:
    return Server(secret=bytes(32), head="v1")


@pytest.fixture
def looker(file: Path, server: Server) -> HeadFile:
    return HeadFile(str(file), "v1", server.set_head, Log())


@pytest.mark.parametrize("text", ["v1", "v1\n", " v1\t\r\n\n", "x" * 32 + "\n", "v1" + 1022 * " "])
def test_a_head_stands_alone_in_its_file(file: Path, text: str) -> None:
    file.write_text(text)
    assert read_head(str(file)) == text.strip()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"v1\nv2\n", "not one line of 32 printable ASCII, no spaces, at most"),
        (b"two words", "not one line of 32 printable ASCII, no spaces, at most"),
        (b"x" * 33, "not one line of 32 printable ASCII, no spaces, at most"),
        (b"v\x00", "not one line of 32 printable ASCII, no spaces, at most"),
        (b"\xc2\xa0v1", "not one line of 32 printable ASCII, no spaces, at most"),
        (b"v1" + 1023 * b" ", "not one line of 32 printable ASCII, no spaces, at most"),
        (b"v1" + 10_000_000 * b" ", "not one line of 32 printable ASCII, no spaces, at most"),
    ],
)
def test_what_is_no_head_is_refused(file: Path, data: bytes, why: str) -> None:
    file.write_bytes(data)
    with pytest.raises(HeadFileError, match=rf"/head: {why}\Z"):
        read_head(str(file))


def test_a_head_that_changes_is_in_the_next_answer(
    file: Path, server: Server, looker: HeadFile, capsys: pytest.CaptureFixture[str]
) -> None:
    looker.look()
    assert (head_of(server), capsys.readouterr().err) == ("v1", "")
    file.write_text("v2\n")
    looker.look()
    looker.look()
    assert head_of(server) == "v2"
    assert untimed(capsys.readouterr().err) == "kcast serve: --head: answers carry v2\n"


def test_while_the_file_is_wrong_the_last_good_head_stays_and_each_change_is_told_once(
    file: Path, server: Server, looker: HeadFile, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("v2", "two words", None, "", "v2"):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        for _ in range(3):
            looker.look()
        assert head_of(server) == "v2"
    assert untimed(capsys.readouterr().err).replace(str(file), "FILE").splitlines() == [
        "kcast serve: --head: answers carry v2",
        "kcast serve: --head: FILE: not one line of 32 printable ASCII, no spaces, at most; "
        "answers go on carrying v2",
        "kcast serve: --head: FILE: No such file or directory; answers go on carrying v2",
        "kcast serve: --head: FILE: empty; answers go on carrying v2",
        "kcast serve: --head: answers carry v2",
    ]
    assert looker.failed_looks == 9


def test_the_thread_looks_now_and_then_again(
    file: Path, server: Server, looker: HeadFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_file, "LOOK_INTERVAL_S", 0.001)
    file.write_text("v2")
    try:
        looker.watch()
        wait_until(lambda: head_of(server) == "v2", "the first look")
        file.write_text("v3")
        wait_until(lambda: head_of(server) == "v3", "a look later")
    finally:
        looker.close()
    wait_until(lambda: "head" not in {thread.name for thread in threading.enumerate()}, "the thread's end")
