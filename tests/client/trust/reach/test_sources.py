"""trust/reach/sources.py: folders, web servers and bundles that answer, lie, drip, hang or are not there."""

import datetime
import ipaddress
import itertools
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("nacl")
pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kcast.client.trust.forms.bundle import format_bundle
from kcast.client.trust.reach import sources, web
from kcast.client.trust.reach.sources import (
    BundleSource,
    FolderSource,
    HttpSource,
    Source,
    SourceError,
    source_of,
)
from kcast.client.trust.reach.update import run_round
from kcast.client.trust.state.store import Store
from tests.support.lists import NAME, NOW_UNIX_S
from tests.support.published import first_contact, lists_at

FILES = {"checkpoint": b"signed\n", "list/42": b"kcast-cluster 1\n" * 100}
Talk = Callable[[socket.socket, str], None]


@contextmanager
def web_server(talk: Talk, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    """A server on loopback that talks with each client in turn, after the head of its request has come."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            with suppress(OSError):
                connection, _ = listening.accept()
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
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

    with socket.create_server((host, 0)) as listening:
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
        ("https://lists.example.org/lab#x", "give a URL such as https://"),
        (
            "https://lists.example.org/l\N{LATIN SMALL LETTER A WITH DIAERESIS}b",
            "give a URL such as https://",
        ),
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


def test_a_redirect_stays_on_the_public_internet_and_on_https(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its name: the address counts that is connected to. Here 127.0.0.1 alone is taken as public."""
    monkeypatch.setattr(web, "is_public", lambda host: host == "127.0.0.1")
    looked_up = socket.getaddrinfo

    def addresses(host: str, *rest: Any, **options: Any) -> Any:
        return looked_up("127.0.0.2" if host == "innocent.example.org" else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    asked: list[str] = []

    def talk(connection: socket.socket, path: str) -> None:
        asked.append(path)
        where, _, rest = path.removeprefix("/").partition("/")
        if rest == "checkpoint":
            connection.sendall(answer("302 Found", b"", f"Location: http://{where}:{port}/there"))
        else:
            connection.sendall(answer("200 OK", b"signed\n"))

    with web_server(talk, host="0.0.0.0") as url:
        port = url.rpartition(":")[2]
        for begun, leads_to, is_followed in (
            ("127.0.0.1", "127.0.0.1", True),
            ("127.0.0.1", "127.0.0.2", False),
            ("127.0.0.1", "127%2e0.0.2", False),
            ("127.0.0.1", "innocent.example.org", False),
            ("127.0.0.2", "127.0.0.2", True),
            ("127.0.0.2", "127.0.0.1", True),
        ):
            asked.clear()
            source = HttpSource(f"http://{begun}:{port}/{leads_to}")
            if is_followed:
                assert source.get("checkpoint", 100) == b"signed\n"
            else:
                assert "leads to this one" in complaint_of(source)
                assert len(asked) == 1, "nobody is asked there"
    assert sources._led_to("https://a.example/x", "https://b.example/") == "https://b.example/"
    with pytest.raises(SourceError, match=r"which is no URL of https$"):
        sources._led_to("https://a.example/x", "http://a.example/x")


def test_what_is_public() -> None:
    for host in (
        "192.0.2.1",
        "10.0.0.1",
        "169.254.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "::1",
        "fe80::1%lo",
        "fd00::1",
        *("::127.0.0.1", "fec0::1", "64:ff9b:1::a00:1"),
    ):
        assert not web.is_public(host), host
    for host in ("::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::", "localhost", "a.localhost"):
        assert not web.is_public(host), host
    assert all(map(web.is_public, ("8.8.8.8", "2600::1", "lists.example.org")))


def test_an_endless_file_is_read_no_further_than_asked() -> None:
    sent = []

    def talk(connection: socket.socket, path: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:  # until the other side has gone, which raises
            sent.append(connection.send(bytes(1 << 16)))

    with web_server(talk) as url:
        assert HttpSource(url).get("checkpoint", 1000) == bytes(1001)
    assert sum(sent) < 1 << 26


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


def test_a_name_with_endless_addresses_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0.0)
    monkeypatch.setattr(web, "monotonic", lambda: next(ticks))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = listening.getsockname()
    asked: list[str] = []

    def addresses(host: str, *_: object, **__: object) -> Iterator[object]:
        while True:
            asked.append(host)
            yield socket.AF_INET, socket.SOCK_STREAM, 0, "", closed

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    with pytest.raises(web.WebError, match="not all of it came in 20 s"):
        web.ask("http://many.example.org/checkpoint", 100, deadline=20.0, silence_s=5)
    assert 10 < len(asked) <= 20


@pytest.mark.parametrize(
    ("names", "days", "why"),
    [
        (["127.0.0.1"], 1, None),
        (["lists.example.org"], 1, "its certificate is not valid: IP address mismatch"),
        (["127.0.0.1"], -1, "its certificate is not valid: certificate has expired"),
        ([], 1, "its certificate is not valid: self-signed certificate"),
    ],
)
def test_real_tls(
    names: list[str], days: int, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound certificate; a wrong host name; one that has expired; and one that nobody has vouched for."""
    authority = certificate(tmp_path / "authority.pem", [])
    mine = tmp_path / "mine.pem"
    certificate(mine, names or ["127.0.0.1"], days, authority if names else None)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(mine)
    with web_server(saying(answer("200 OK", b"signed\n")), context) as url:
        source = HttpSource(url.replace("http:", "https:"))
        if why is None:
            assert source.get("checkpoint", 100) == b"signed\n"
        else:
            said = complaint_of(source)
            assert why in said and said.startswith(f"{source.name}/checkpoint: ")


Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def certificate(path: Path, names: list[str], days: int = 1, authority: Authority | None = None) -> Authority:
    """Writes a certificate and its key; without names, and without `authority`, it vouches for itself."""
    secret = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, path.stem)])
    issuer, signer = (authority[0].subject, authority[1]) if authority else (subject, secret)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, secret.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=10))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
    )
    if names:
        found = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
            for name in names
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
    made = builder.sign(signer, hashes.SHA256())
    key = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(made.public_bytes(Encoding.PEM) + key)
    return made, secret


def test_a_captive_portal_is_no_list(tmp_path: Path) -> None:
    """It answers everything with a page, and its log-in page is elsewhere."""
    page = answer("200 OK", b"<html>Log in</html>", "Content-Type: text/html", "Content-Encoding: gzip")
    for said in (page, answer("206 Partial Content", b"sign", "Content-Range: bytes 0-3/7")):
        with web_server(saying(said)) as url:
            lists = lists_at(NOW_UNIX_S, url)
            store = Store(NAME, tmp_path / url.rpartition(":")[2])
            store.begin(first_contact(lists))
            found = run_round(store, NOW_UNIX_S, Random(1))
            assert found.accepted is None
            assert [each.fault for each in found.refused] == ["trust"], found


@pytest.mark.parametrize("left_s", [0.0, -1.0])
def test_nothing_is_read_once_the_deadline_is_there(left_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be read by then comes too late."""
    monkeypatch.setattr(web, "monotonic", lambda: 100.0)
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"late")
        for deadline, found in ((100.0 + left_s, None), (101.0, b"late")):
            patient = web._Patient(here, here.makefile("rb", 0), deadline, 5.0)
            if found is None:
                with pytest.raises(TimeoutError):
                    patient.read(4)
            else:
                assert patient.read(4) == found
            patient.close()
