"""Fetches and reads the metrics of `kcast serve --metrics`, as `kcast top` needs them.

Whoever answers at a metrics port may be anyone: an answer has a deadline and a greatest size, and what is not
understood is taken for no answer.
"""

import asyncio
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from kcast.pubsub.drops import HARMLESS, STEPS
from kcast.pubsub.endpoint import Address

ANSWER_BYTES_MAX = 256 * 1024  # a server's own are about 15 kB
_AT_A_TIME = 256  # so many that silent ones leave room for the others; each takes a descriptor
_HEAD_END = b"\r\n\r\n"
_OK = re.compile(rb"HTTP/1\.[01] 200(?: [^\r\n]*)?\r\n")
_LINE = re.compile(
    r'^(kcast_[a-z_]{1,60}|process_start_time_seconds)(?:\{reason="([a-z-]{1,40})"\})? '
    r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:e\+?[0-9]{1,2})?)$",
    re.ASCII | re.MULTILINE,
)
_NO_LOSSES = frozenset((*HARMLESS, *STEPS))


class Metrics(NamedTuple):
    """What a server says of itself: sums since it was started, and its leases at the moment."""

    started_at_s: float
    messages: float
    copies: float
    drops: float  # by which something may have been lost
    leases: int

    @property
    def counters(self) -> tuple[float, float, float]:
        """Returns the sums: messages, copies, drops."""
        return self.messages, self.copies, self.drops


def parse(text: str) -> Metrics | None:
    """Returns what a server's metrics say; None if they lack something, so are not a server's."""
    drops = 0.0
    values: dict[str, float] = {}
    for name, reason, number in _LINE.findall(text):
        value = float(number)
        if name == "kcast_drops_total":
            drops += value if reason not in _NO_LOSSES else 0
        elif not reason:
            values[name] = value
    try:
        found = Metrics(
            started_at_s=values.get("process_start_time_seconds", 0.0),
            messages=values["kcast_messages_total"],
            copies=values["kcast_copies_total"],
            drops=drops + values["kcast_receive_overflows_total"],
            leases=int(values["kcast_leases"]),
        )
    except (KeyError, OverflowError):
        return None
    return found if all(math.isfinite(value) and value < 1e18 for value in found) else None


def urls(addresses: Sequence[Address], where: str) -> list[str]:
    """Returns where the metrics of servers at these addresses are.

    `where` is the port of `kcast serve --metrics`: that of the server with the lowest port on an IP address,
    whose others follow as their own ports do. Or it is a URL, in which `{host}` and `{port}` are a server's.
    Raises ValueError, which says what to give.
    """
    if where.isascii() and where.isdigit():
        return _by_port(addresses, int(where))
    try:
        made = [where.format(host=_bracketed(ip), port=port) for ip, port in addresses]
        for url in made:
            split = urlsplit(url)
            if split.scheme not in ("http", "https") or not split.hostname or split.port == 0:
                raise ValueError
            if not url.isprintable() or " " in url:
                raise ValueError
    except (ValueError, KeyError, IndexError, AttributeError):
        raise ValueError(
            f"{where!r}: give the port of kcast serve --metrics, or a URL like http://{{host}}:9400/metrics"
        ) from None
    return made


def _by_port(addresses: Sequence[Address], metrics_port: int) -> list[str]:
    lowest: dict[str, int] = {}
    for ip, port in addresses:
        lowest[ip] = min(port, lowest.get(ip, port))
    highest = 65535 - max(port - lowest[ip] for ip, port in addresses)
    if not 1 <= metrics_port <= highest:
        raise ValueError(f"{metrics_port}: give 1 to {highest}")
    return [f"http://{_bracketed(ip)}:{metrics_port + port - lowest[ip]}/metrics" for ip, port in addresses]


def _bracketed(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip


async def scrape(where: Sequence[str], timeout_s: float) -> list[tuple[Metrics | None, float]]:
    """Returns what the metrics at each URL say, and the event loop's time at which they did.

    None stands for those that give no good answer in time.
    """
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def one(url: str) -> tuple[Metrics | None, float]:
        found = None
        with suppress(OSError, ValueError):  # TimeoutError is an OSError
            async with asyncio.timeout(timeout_s), turns:
                found = parse(await _get(url))
        return found, asyncio.get_running_loop().time()

    return await asyncio.gather(*(one(url) for url in where))


async def _get(url: str) -> str:
    """Returns the body of an answer. Raises OSError, and ValueError where it is none or too long.

    In HTTP/1.0, in which an answer ends with its connection. Nothing is sent by way of a proxy.
    """
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=is_tls or None)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        request = f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\n\r\n"
        writer.write(request.encode("ascii"))
        answer = bytearray()
        while data := await reader.read(65536):
            answer += data
            if len(answer) > ANSWER_BYTES_MAX:
                raise ValueError("longer than any server's metrics")
    finally:
        writer.transport.abort()
    head, end, body = bytes(answer).partition(_HEAD_END)
    if not end or not _OK.match(head + end):
        raise ValueError("not an answer of HTTP")
    return body.decode("ascii")
