"""Where the files of a published log come from: a folder, a web server, a bundle. PROTOCOL §10.8.

All are equal: nothing is believed because of the way by which it came. A source answers with what it has, at
most one byte more than what was asked for, which then says that there is too much; with None where it has no
such file; and with a SourceError where it cannot say. What the bytes are worth is for others to judge.
"""

import http.client
import io
import os
import socket
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Protocol
from urllib.parse import unquote, urljoin, urlsplit

from kcast.client.trust import bundle
from kcast.pubsub.errors import KcastError

SILENCE_S = 10.0  # a server that says nothing for so long is given up
TRANSFER_S = 60.0  # and so is one that has not sent a whole file by then
REDIRECTS_MAX = 3

_HEADERS = {"User-Agent": "kcast", "Accept-Encoding": "identity"}
_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK_BYTES = 65536
_REASON_CHARS_MAX = 120


class SourceError(KcastError, RuntimeError):
    """A source that cannot be used, or not now; one line that names it and says why."""


class Source(Protocol):
    """Answers with the files of a published log."""

    name: str  # as users wrote it, for messages

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Returns the file's first `bytes_max` + 1 bytes; None where there is no such file.

        Raises SourceError.
        """


def source_of(text: str, *, silence_s: float = SILENCE_S, transfer_s: float = TRANSFER_S) -> Source:
    """Returns the source that an http, https or file URL means, or the path of a folder or of a bundle.

    Raises SourceError where there is none.
    """
    scheme = urlsplit(text).scheme if "://" in text or text.startswith("file:") else ""
    if scheme in ("http", "https"):
        return HttpSource(text, silence_s=silence_s, transfer_s=transfer_s)
    if scheme not in ("", "file"):
        raise SourceError(f"{text}: give a URL of http, https or file, or the path of a folder or a bundle")
    path = Path(unquote(urlsplit(text).path) if scheme else text)
    if path.is_dir():
        return FolderSource(path, text)
    data = _read(path, text, bundle.BUNDLE_BYTES_MAX)
    if data is None:
        raise SourceError(f"{text}: there is no such folder, and no such bundle")
    return BundleSource(data, text)


class BundleSource:
    """The files of a bundle. Raises SourceError where it is none."""

    def __init__(self, data: bytes, name: str = "bundle") -> None:
        self.name = name
        try:
            self._files = bundle.parse(data)
        except bundle.BundleError as error:
            raise SourceError(f"{name}: {error}") from None

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Returns what stands in the bundle. It never raises."""
        data = self._files.get(path)
        return None if data is None else data[: bytes_max + 1]


class FolderSource:
    """The files of a folder, such as one that a web server would serve."""

    def __init__(self, folder: str | Path, name: str = "") -> None:
        self.name = name or str(folder)
        self._folder = Path(folder)

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Returns what the file holds now. Raises SourceError, also where the folder itself is gone."""
        data = _read(self._folder / path, f"{self.name}: {path}", bytes_max)
        if data is None and not self._folder.is_dir():
            raise SourceError(f"{self.name}: there is no such folder any more")
        return data


def _read(path: Path, name: str, bytes_max: int) -> bytes | None:
    try:
        # Without O_NONBLOCK a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SourceError(f"{name}: it is no plain file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from None


# --- HTTP --------------------------------------------------------------------------------------------


class HttpSource:
    """The files below an http or https URL.

    A server may be slow, endless or lost: each wait ends after `silence_s`, each file after `transfer_s`, and
    no more is read than was asked for. It may lead on to other places of http and https, three at most.
    """

    def __init__(self, url: str, *, silence_s: float = SILENCE_S, transfer_s: float = TRANSFER_S) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment or not url.isascii() or " " in url:
            raise SourceError(f"{url}: give a URL such as https://lists.example.org/lab")
        self.name = url
        self._url = url.rstrip("/")
        self._silence_s = silence_s
        self._transfer_s = transfer_s

    def get(self, path: str, bytes_max: int) -> bytes | None:
        """Fetches a file. Raises SourceError for all but success, 404 and 410."""
        url = f"{self._url}/{path}"
        deadline = monotonic() + self._transfer_s
        for _ in range(1 + REDIRECTS_MAX):
            request = urllib.request.Request(url, headers=_HEADERS)
            try:
                with _opener(deadline, self._silence_s).open(request, timeout=self._silence_s) as response:
                    return _first_bytes(response, bytes_max + 1)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code in (404, 410):
                    return None
                if error.code not in _REDIRECTS:
                    raise SourceError(f"{url}: HTTP {error.code} {_short(error.reason)}".rstrip()) from None
                url = _led_to(url, error.headers.get("Location", ""))
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise SourceError(f"{url}: {self._why(error, monotonic() >= deadline)}") from None
        raise SourceError(f"{self.name}: it leads on more than {REDIRECTS_MAX} times")

    def _why(self, error: Exception, is_late: bool) -> str:
        reason: object = error.reason if isinstance(error, urllib.error.URLError) else error
        match reason:
            case _ if is_late:
                return f"not all of it came in {self._transfer_s:g} s"
            case TimeoutError():
                return f"nothing came for {self._silence_s:g} s"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not valid: {_short(reason.verify_message)}"
            case socket.gaierror():
                return f"its name leads to no address: {reason.strerror}"
            case http.client.IncompleteRead():
                return "it ended in the middle of the file"
            case http.client.HTTPException():
                return f"it does not speak HTTP ({type(reason).__name__})"
            case OSError():
                return _short(reason.strerror or str(reason))
        return _short(str(reason))


def _led_to(url: str, location: str) -> str:
    """Returns where a redirect leads. Raises SourceError where that is nowhere to be gone to."""
    try:
        there = urljoin(url, location)
        if location and urlsplit(there).scheme in ("http", "https"):
            return there
    except ValueError:
        pass
    raise SourceError(f"{url}: it leads on to {_short(location)!r}, which is no URL of http or https")


def _short(text: str) -> str:
    return " ".join(text.split())[:_REASON_CHARS_MAX]


def _first_bytes(response: http.client.HTTPResponse, count: int) -> bytes:
    """Reads `count` bytes, or all that there are."""
    data = bytearray()
    while len(data) < count and (chunk := response.read(min(_CHUNK_BYTES, count - len(data)))):
        data += chunk
    if len(data) < count and response.length:  # as its head says, there should be more
        raise http.client.IncompleteRead(bytes(data))
    return bytes(data)


def _opener(deadline: float, silence_s: float) -> urllib.request.OpenerDirector:
    """Returns what opens URLs of http and https alone, through the proxies that the environment names.

    It follows no redirect: urllib would read all that stands in one, however much that is.
    """
    opener = urllib.request.OpenerDirector()
    opener.addheaders = []
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(deadline, silence_s),
        _Https(deadline, silence_s),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _Http(urllib.request.HTTPHandler):
    """Opens http, and reads no longer than until the deadline."""

    def __init__(self, deadline: float, silence_s: float) -> None:
        super().__init__()
        self._answer = partial(_Answer, deadline, silence_s)

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            return _reading(http.client.HTTPConnection(host, **options), self._answer)

        return self.do_open(connection, request)


class _Https(urllib.request.HTTPSHandler):
    """Opens https, and reads no longer than until the deadline."""

    def __init__(self, deadline: float, silence_s: float) -> None:
        super().__init__()
        self._answer = partial(_Answer, deadline, silence_s)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        # Made for each connection, so that a file of certificates that was mended is read again.
        context = ssl.create_default_context()

        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            return _reading(http.client.HTTPSConnection(host, context=context, **options), self._answer)

        return self.do_open(connection, request)


def _reading(
    connection: http.client.HTTPConnection, answer: Callable[..., http.client.HTTPResponse]
) -> http.client.HTTPConnection:
    connection.response_class = answer  # type: ignore[assignment]
    return connection


class _Answer(http.client.HTTPResponse):
    """An answer whose head and body together must have come by a deadline.

    A socket's own timeout begins anew with each byte: a server that drips could keep us for ever.
    """

    def __init__(
        self, deadline: float, silence_s: float, sock: socket.socket, *args: Any, **options: Any
    ) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Patient(sock, sock.makefile("rb", 0), deadline, silence_s))


class _Patient(io.RawIOBase):
    """Reads from a socket until a deadline; raises TimeoutError then."""

    def __init__(self, sock: socket.socket, file: Any, deadline: float, silence_s: float) -> None:
        self._sock = sock
        self._file = file  # keeps the socket open, as long as this is
        self._deadline = deadline
        self._silence_s = silence_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(min(left_s, self._silence_s))
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
