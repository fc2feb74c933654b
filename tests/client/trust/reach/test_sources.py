"""trust/reach/sources.py: folders, web servers and bundles that answer, lie, drip, hang or are not there."""

import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kcast.client.trust.forms.bundle import format_bundle
from kcast.client.trust.reach.sources import (
    BundleSource,
    FolderSource,
    HttpSource,
    Source,
    SourceError,
    source_of,
)

FILES = {"checkpoint": b"signed\n", "list/42": b"kcast-cluster 1\n" * 100}
Talk = Callable[[socket.socket, str], None]


@contextmanager
def web_server(talk: Talk) -> Iterator[str]:
    """A server on loopback that talks with each client in turn, after the head of its request has come."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.settimeout(10)
                    head = b""
                    while b"\r\n\r\n" not in head and (more := connection.recv(4096)):
                        head += more
                    # What a client sends must be read: else its answer may be lost with the connection.
                    if length := re.search(rb"\r\nContent-Length: (\d+)", head):
                        _, _, body = head.partition(b"\r\n\r\n")
                        while len(body) < int(length[1]) and (more := connection.recv(4096)):
                            body += more
                    line = head.decode("latin-1").split(" ")  # what a TLS client says is no request
                    talk(connection, line[1] if len(line) > 1 else "")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join((*lines, "", "")).encode() + body


def files_below(prefix: str) -> Talk:
    def talk(connection: socket.socket, path: str) -> None:
        body = FILES.get(path.removeprefix(prefix + "/"))
        connection.sendall(answer("404 Not Found") if body is None else answer("200 OK", body))

    return talk


def saying(data: bytes) -> Talk:
    return lambda connection, path: connection.sendall(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, data in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


def test_folder_file_url_bundle_and_http_answer_alike(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bundled = tmp_path_factory.mktemp("stick") / "bundle"
    bundled.write_bytes(format_bundle(FILES))
    with web_server(files_below("/lab")) as url:
        for name in (
            str(folder),
            f"file://{folder}",
            f"file:{folder}",
            str(bundled),
            f"{url}/lab",
            f"{url}/lab/",
        ):
            source: Source = source_of(name)
            assert source.name == name
            assert source.get("checkpoint", 100) == FILES["checkpoint"]
            assert source.get("list/42", len(FILES["list/42"])) == FILES["list/42"]
            assert source.get("list/42", 99) == FILES["list/42"][:100], (
                "one byte more than asked for, at most"
            )
            assert source.get("trust/2", 100) is None


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ftp://lists.example.org/lab", "give a URL of http, https or file"),
        ("http://", "give a URL such as https://"),
        ("https:///lab", "give a URL such as https://"),
        ("https://lists.example.org/lab?x=1", "give a URL such as https://"),
        ("https://lists.example.org/a b", "give a URL such as https://"),
        ("nowhere", "nowhere: there is no such folder, and no such bundle"),
        ("file:/nowhere", "file:/nowhere: there is no such folder, and no such bundle"),
    ],
)
def test_what_is_no_source_is_refused_by_its_name(name: str, complaint: str) -> None:
    with pytest.raises(SourceError) as caught:
        source_of(name)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_no_bundle_is_refused(folder: Path) -> None:
    with pytest.raises(SourceError, match="checkpoint: expected 'kcast-bundle 1' as the first line"):
        source_of(str(folder / "checkpoint"))
    with pytest.raises(SourceError, match="bundle: expected"):
        BundleSource(b"")


def test_a_folder_that_goes_says_so(folder: Path) -> None:
    source = FolderSource(folder / "list")
    (folder / "list/42").unlink()
    assert source.get("42", 10) is None
    (folder / "list").rmdir()
    with pytest.raises(SourceError, match="there is no such folder any more"):
        source.get("42", 10)


def test_a_file_that_nobody_may_read_or_that_never_ends_is_no_answer(folder: Path) -> None:
    source = FolderSource(folder)
    os.mkfifo(folder / "pipe")
    with pytest.raises(SourceError, match="pipe: it is no plain file"):
        source.get("pipe", 10)
    with pytest.raises(SourceError, match="list: it is no plain file"):
        source.get("list", 10)
    (folder / "endless").symlink_to("/dev/zero")
    with pytest.raises(SourceError, match="endless: it is no plain file"):
        source.get("endless", 10)
    (folder / "sparse").touch()
    os.truncate(folder / "sparse", 1 << 40)
    assert source.get("sparse", 10) == bytes(11)


def complaint_of(source: Source, path: str = "checkpoint") -> str:
    with pytest.raises(SourceError) as caught:
        source.get(path, 1000)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("talk", "complaint"),
    [
        (saying(answer("500 Internal Server Error")), "/checkpoint: HTTP 500 Internal Server Error"),
        (saying(answer("403 Forbidden", b"x" * 10)), "/checkpoint: HTTP 403 Forbidden"),
        (saying(b"SSH-2.0-OpenSSH_9.2\r\n"), "it does not speak HTTP (BadStatusLine)"),
        (saying(b""), "it does not speak HTTP (RemoteDisconnected)"),
        (saying(answer("200 OK", b"abc").replace(b": 3", b": 9")), "it ended in the middle of the file"),
        (saying(answer("302 Found", b"", "Location: file:///etc/passwd")), "no URL of http or https"),
        (saying(answer("302 Found", b"", "Location: ftp://127.0.0.1/x")), "no URL of http or https"),
        (saying(answer("302 Found")), "leads on to '', which is no URL"),
        (saying(answer("302 Found", b"", "Location: /checkpoint")), "it leads on more than 3 times"),
        (saying(answer("200 OK", b"", *(f"X-{n}: 1" for n in range(200)))), "it does not speak HTTP"),
    ],
)
def test_what_a_web_server_says_wrong_is_one_line(talk: Talk, complaint: str) -> None:
    with web_server(talk) as url:
        assert complaint in complaint_of(HttpSource(url))


def test_a_redirect_is_followed_to_another_place() -> None:
    def talk(connection: socket.socket, path: str) -> None:
        known = {"/lab/checkpoint": "/there/checkpoint", "/there/checkpoint": "/last/checkpoint"}
        if path in known:
            # The body of a redirect never ends: it must not be read.
            connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: {known[path]}\r\n\r\n".encode())
            with suppress(OSError):
                for _ in range(64):
                    connection.sendall(bytes(1 << 16))
        else:
            files_below("/last")(connection, path)

    with web_server(talk) as url:
        assert HttpSource(f"{url}/lab").get("checkpoint", 100) == FILES["checkpoint"]


def test_an_endless_file_is_read_no_further_than_asked() -> None:
    sent = []

    def talk(connection: socket.socket, path: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:  # until the other side has gone, which raises
            sent.append(connection.send(bytes(1 << 16)))

    with web_server(talk) as url:
        assert HttpSource(url).get("checkpoint", 1000) == bytes(1001)
    assert sum(sent) < 1 << 26


def test_a_name_that_leads_nowhere_and_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert complaint_of(HttpSource(f"http://127.0.0.1:{port}")).endswith("/checkpoint: Connection refused")
    assert "its name leads to no address" in complaint_of(HttpSource("http://nowhere.invalid"))


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_drips_is_given_up_in_time(head: bytes) -> None:
    """Every byte comes soon after the one before, in the status line, in the head and in the body."""
    gone = threading.Event()

    def talk(connection: socket.socket, path: str) -> None:
        connection.sendall(head)
        while not gone.wait(0.02):
            connection.sendall(b"H")

    with web_server(talk) as url:
        source = HttpSource(url, silence_s=5, transfer_s=0.3)
        assert "not all of it came in 0.3 s" in complaint_of(source)
        gone.set()


def test_a_silent_server_is_given_up() -> None:
    gone = threading.Event()

    def talk(connection: socket.socket, path: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nab")
        gone.wait(10)

    with web_server(talk) as url:
        assert "nothing came for 0.2 s" in complaint_of(HttpSource(url, silence_s=0.2))
        gone.set()


def test_a_web_server_without_tls_and_a_certificate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server(saying(answer("200 OK"))) as url:
        secure = url.replace("http:", "https:")
        said = complaint_of(HttpSource(secure, silence_s=2))
        assert said.startswith(f"{secure}/checkpoint: ")

    def refuse(*_: object, **__: object) -> None:
        error = ssl.SSLCertVerificationError(1, "certificate verify failed")
        error.verify_message = "self-signed certificate"
        raise error

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", refuse)
    with web_server(saying(b"")) as url:
        said = complaint_of(HttpSource(url.replace("http:", "https:")))
    assert said.endswith("/checkpoint: its certificate is not valid: self-signed certificate")


def test_a_url_with_a_path_that_leads_out_is_no_concern_of_a_bundle() -> None:
    assert BundleSource(format_bundle(FILES)).get("../etc/passwd", 10) is None
