"""Asks web servers, which may be slow, endless or lost: each wait and each answer ends."""

import http.client
import io
import os
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from kcast.pubsub.errors import KcastError
from kcast.pubsub.networks import ip_of

_HEADERS = {"User-Agent": "kcast", "Accept-Encoding": "identity"}
_CHUNK_BYTES = 65536
_REASON_CHARS_MAX = 120
_REFUSAL_BYTES_MAX = 1024
# IPv4 in IPv6 of old, site-local, and NAT64 within a site: not all versions of Python know them.
_NOT_PUBLIC = tuple(map(ip_network, ("::/96", "fec0::/10", "64:ff9b:1::/48")))


class WebError(KcastError, RuntimeError):
    """A web server has not answered; one line that names the URL and says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a web server has answered; `data` are the body's first bytes, `reason` is one short line.

    `is_public` tells whether it is one of the public Internet.
    """

    status: int
    reason: str
    headers: Message
    data: bytes
    is_public: bool

    @property
    def is_success(self) -> bool:
        """Whether the server did what was asked."""
        return 200 <= self.status < 300


@dataclass(slots=True)
class _Way:
    """How one question goes: until when, and whether to the public Internet only; and whether it went there.

    `place` is a host with its port. Through a proxy it is public unless it is an address that is not: names
    are looked up by the proxy.
    """

    deadline: float
    silence_s: float
    place: str
    stays_public: bool
    is_public: bool = False

    def look_at(self, address: str) -> None:
        """Raises OSError where an address to connect to leads out of the public Internet, and must not."""
        self.is_public = is_public(address)
        if self.stays_public and not self.is_public:
            raise OSError("a place on the public Internet leads to this one, which is not there")


def is_public(host: str) -> bool:
    """Returns whether an address is one of the public Internet; a name counts as that, but for localhost."""
    try:
        return (ip := ip_address(ip_of(host))).is_global and not any(ip in each for each in _NOT_PUBLIC)
    except ValueError:
        return host != "localhost" and not host.endswith(".localhost")


def ask(
    url: str,
    bytes_max: int,
    *,
    deadline: float,
    silence_s: float,
    body: bytes | None = None,
    stays_public: bool = False,
) -> Answer:
    """Gets a URL of http or https, or posts a `body` to it. Returns whatever is answered, redirects too.

    Of what comes with it, at most `bytes_max` + 1 bytes are read, and of a refusal less. Each wait ends after
    `silence_s`, and all at `deadline`, a time of `monotonic`. With `stays_public` it connects to addresses of
    the public Internet alone, whatever names say. Raises WebError.
    """
    began = monotonic()
    direct, request = "", None
    headers = _HEADERS if body is None else {**_HEADERS, "Content-Type": "text/plain; charset=utf-8"}
    try:
        request = urllib.request.Request(url, data=body, headers=headers)
        direct = request.host
        wait_s = min(silence_s, max(deadline - began, 0.001))
        way = _Way(deadline, silence_s, direct, stays_public)
        with _opener(way).open(request, timeout=wait_s) as response:
            most = bytes_max if response.status < 300 else min(bytes_max, _REFUSAL_BYTES_MAX)
            data = _first_bytes(response, most + 1)
            reason = short(response.reason)
            if response.status >= 400 and (proxy := _proxy(request, direct)):
                reason += f" ({proxy})"
            return Answer(response.status, reason, response.headers, data, way.is_public)
    except (OSError, http.client.HTTPException, ValueError) as error:
        late_s = max(deadline - began, 0) if monotonic() >= deadline else None
        where = ": ".join(filter(None, (url, _proxy(request, direct))))
        raise WebError(f"{where}: {_why(error, late_s, silence_s)}") from None


def _proxy(request: urllib.request.Request | None, host: str) -> str:
    """Returns which proxy was asked in place of a host, since it may be the one that fails; "" for none."""
    return "" if request is None or request.host == host else f"through the proxy {request.host}"


def _why(error: Exception, late_s: float | None, silence_s: float) -> str:
    reason: object = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case _ if late_s is not None:
            return f"not all of it came in {round(late_s, 1):g} s"
        case TimeoutError():
            return f"nothing came for {silence_s:g} s"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid: {short(reason.verify_message)}{_trusted()}"
        case socket.gaierror():
            return f"its name leads to no address: {reason.strerror}"
        case http.client.IncompleteRead():
            return "it ended in the middle of the file"
        case http.client.HTTPException():
            return f"it does not speak HTTP ({type(reason).__name__})"
        case OSError():
            return short(reason.strerror or str(reason))
    return short(str(reason))


def _trusted() -> str:
    """Returns whose certificates are trusted, where the environment says so: Python does not tell that
    nothing could be read there."""
    given = [(name, os.environ[name]) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
    told = (f"{name}={path}{'' if Path(path).exists() else ', which is not there'}" for name, path in given)
    return "; trusted is what stands in " + " and ".join(told) if given else ""


def short(text: str) -> str:
    """Returns the beginning of a text as one line."""
    return " ".join(text.split())[:_REASON_CHARS_MAX]


def _first_bytes(response: http.client.HTTPResponse, count: int) -> bytes:
    """Reads `count` bytes, or all that there are."""
    data = bytearray()
    while len(data) < count and (chunk := response.read(min(_CHUNK_BYTES, count - len(data)))):
        data += chunk
    if len(data) < count and response.length:  # as its head says, there should be more
        raise http.client.IncompleteRead(bytes(data))
    return bytes(data)


def _opener(way: _Way) -> urllib.request.OpenerDirector:
    """Returns what opens URLs of http and https alone, through the proxies that the environment names.

    It follows no redirect, and gives back every answer: urllib would read all of some, however much that is.
    """
    opener = urllib.request.OpenerDirector()
    opener.addheaders = []
    for handler in (urllib.request.ProxyHandler(), _Web(way), urllib.request.UnknownHandler()):
        opener.add_handler(handler)
    return opener


class _Web(urllib.request.AbstractHTTPHandler):
    """Opens http and https, and reads no longer than until the deadline."""

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def __init__(self, way: _Way) -> None:
        super().__init__()
        self._way = way

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPConnection, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        # Made for each connection, so that a file of certificates that was mended is read again.
        context = ssl.create_default_context()
        return self._open(partial(http.client.HTTPSConnection, context=context), request)

    def _open(self, kind: Any, request: urllib.request.Request) -> http.client.HTTPResponse:
        way, is_direct = self._way, request.host == self._way.place

        def connection(host: str, **options: Any) -> Any:
            made = kind(host, **options)  # Any: there is no public way to replace how it connects and answers
            made.response_class = partial(_Answer, way.deadline, way.silence_s)
            made._create_connection = partial(_connected, way, is_direct)
            return made

        return self.do_open(connection, request)


def _connected(
    way: _Way, is_direct: bool, address: tuple[str, int], *_: object, **__: object
) -> socket.socket:
    """Connects to the first address of a name that answers, and may be asked. Raises OSError.

    `socket.create_connection` waits for each address anew, and a name may have as many as its owner likes.
    """
    last: OSError = TimeoutError()
    for family, kind, protocol, _name, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        left_s = way.deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError
        connecting = socket.socket(family, kind, protocol)
        try:
            way.look_at(str(where[0]) if is_direct else urlsplit(f"//{way.place}").hostname or "")
            connecting.settimeout(min(left_s, way.silence_s))
            connecting.connect(where)
        except OSError as error:
            connecting.close()
            last = error
        else:
            return connecting
    raise last


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
