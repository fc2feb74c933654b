"""Fetches and reads the metrics of `kcast serve --metrics`, as `kcast top` needs them.

Whoever answers at a metrics port may be anyone: an answer has a deadline and a greatest size, and what is not
understood is taken for no answer.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from kcast.pubsub.drops import HARMLESS, STEPS
from kcast.pubsub.endpoint import Address

ANSWER_BYTES_MAX = 256 * 1024  # a server's own are about 15 kB
_AT_A_TIME = 256  # so many that silent ones leave room for the others; each takes a descriptor
_DROPS = "kcast_drops_total"
_NAMES = (
    *("process_start_time_seconds", "kcast_messages_total", "kcast_copies_total", "kcast_leases"),
    "kcast_receive_overflows_total",
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
    values = {_NAMES[0]: 0.0}  # which not every system tells
    lines = [line for line in text.splitlines() if line.startswith((_DROPS, *_NAMES))]  # the rest takes long
    try:
        for family in text_string_to_metric_families("\n".join((*lines, ""))):
            for name, labels, value, *_ in family.samples:
                if not 0 <= value < 1e18:
                    return None
                if name == _DROPS:
                    drops += value if labels.get("reason") not in _NO_LOSSES else 0
                elif not labels:
                    values[name] = value
        started_at_s, messages, copies, leases, overflows = (values[name] for name in _NAMES)
    except (ValueError, KeyError):
        return None
    return Metrics(started_at_s, messages, copies, drops + overflows, int(leases))


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
        answer = await reader.readexactly(ANSWER_BYTES_MAX)
        raise ValueError(f"{len(answer)} bytes and more")
    except asyncio.IncompleteReadError as error:
        head, end, body = error.partial.partition(b"\r\n\r\n")
    finally:
        writer.transport.abort()
    if not end or not re.match(rb"HTTP/1\.[01] 200\b", head):
        raise ValueError("not an answer of HTTP")
    length = re.search(rb"(?im)^content-length: *([0-9]{1,9})\r?$", head)
    if length and len(body) < int(length[1]):
        raise ValueError("cut off")
    return body.decode("ascii")
