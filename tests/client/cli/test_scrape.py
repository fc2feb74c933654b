"""Reading metrics, of servers and of whoever else may listen at that port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kcast.client.cli.scrape import ANSWER_BYTES_MAX, Metrics, parse, scrape, urls
from kcast.pubsub.drops import Drop

GOOD = """# HELP kcast_messages_total Published lines that were admitted.
# TYPE kcast_messages_total counter
kcast_messages_total 120.0
kcast_messages_created 1.7e+09
kcast_copies_total 1.25e+06
kcast_leases 17.0
kcast_drops_total{reason="short"} 3.0
kcast_drops_total{reason="of-a-later-version"} 4.0
kcast_drops_total{reason="no-subscriber"} 900.0
kcast_drops_total{reason="work"} 50.0
kcast_refusals_total{reason="full"} 5.0
kcast_receive_overflows_total 2.0
process_start_time_seconds 1.76386e+09
"""
METRICS = Metrics(1.76386e9, 120.0, 1.25e6, 9.0, 17)


def answer(body: str = GOOD, head: str = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n") -> bytes:
    return (head + body).encode()


def test_metrics_are_read() -> None:
    assert parse(GOOD) == METRICS
    assert parse(GOOD.replace("process_start", "other")) == METRICS._replace(started_at_s=0)
    lines = "".join(f'kcast_drops_total{{reason="{reason}"}} 1.0\n' for reason in Drop)
    found = parse(GOOD + lines)
    assert found is not None
    assert found.drops == 9 + len(Drop) - 5  # three are harmless, two are steps of a conversation


def test_what_is_no_servers_metrics_is_none() -> None:
    for text in (
        *("", "kcast_messages_total 1\n", "<html>\n" * 1000),
        *(GOOD.replace("kcast_leases 17.0", f"kcast_leases {what}") for what in ("NaN", "-1", "1e99", "x")),
        GOOD.replace("kcast_copies_total 1.25e+06", "kcast_copies_total +Inf"),
        GOOD.replace('reason="short"', "reason=short"),
    ):
        assert parse(text) is None, text


# --- Where metrics are --------------------------------------------------------------------------------


def test_a_port_is_that_of_each_hosts_first_server() -> None:
    addresses = [("192.0.2.7", 7402), ("192.0.2.7", 7400), ("2001:db8::1", 7500)]
    assert urls(addresses, "9400") == [
        "http://192.0.2.7:9402/metrics",
        "http://192.0.2.7:9400/metrics",
        "http://[2001:db8::1]:9400/metrics",
    ]


def test_a_url_has_host_and_port_filled_in() -> None:
    where = "https://proxy.example/{host}/{port}"
    assert urls([("192.0.2.7", 7402)], where) == ["https://proxy.example/192.0.2.7/7402"]
    assert urls([("2001:db8::1", 7402)], "http://{host}:9400/") == ["http://[2001:db8::1]:9400/"]


def test_what_is_neither_is_told() -> None:
    for where in (
        *("", "0", "65536", "99999999999999999999", "-1", "9400x", "localhost:9400", "ftp://{host}/x"),
        *("http://", "http:///x", "http://{name}/", "http://{}/", "http://{host", "http://{host}:x/"),
        *("http://{host.x}/", "http://{host}:70000/", "http://{host}/a b", "http://{host}/\r\nX: y", "٣"),
    ):
        with pytest.raises(ValueError, match="give "):
            urls([("192.0.2.7", 7400)], where)


# --- Over HTTP ----------------------------------------------------------------------------------------


@asynccontextmanager
async def endpoint(data: bytes, *, stays: bool = False, floods: bool = False) -> AsyncIterator[str]:
    """An HTTP server that answers so; it may then keep the connection open, or never stop sending."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            while floods:
                writer.write(b"kcast_leases 1\n" * 4096)
                await writer.drain()
            await writer.drain()
            if stays:
                await reader.read()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    finally:
        server.close()


def scraped(
    data: bytes, timeout_s: float = 10.0, *, stays: bool = False, floods: bool = False
) -> Metrics | None:
    async def run() -> Metrics | None:
        async with endpoint(data, stays=stays, floods=floods) as url:
            ((found, _),) = await scrape([url], timeout_s)
            return found

    return asyncio.run(run())


def test_a_good_answer() -> None:
    assert scraped(answer()) == METRICS
    assert scraped(answer(head=f"HTTP/1.1 200\r\ncontent-length: {len(GOOD)}\r\n\r\n")) == METRICS


def test_a_wrong_answer_is_none() -> None:
    for data in (
        b"",
        GOOD.encode(),
        answer(head="HTTP/1.0 404 Not Found\r\n\r\n"),
        answer(head="HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n"),
        answer(head="HTTP/1.0 200 OK\r\n"),
        answer(head=f"HTTP/1.0 200 OK\r\nContent-Length: {len(GOOD) + 1}\r\n\r\n"),
        answer(body="\xff" + GOOD),
        answer(body="x" * ANSWER_BYTES_MAX + GOOD),
    ):
        assert scraped(data) is None, data[:60]


def test_who_never_stops_sending_is_cut_off() -> None:
    assert scraped(answer(), floods=True) is None


def test_who_never_ends_is_not_awaited_longer_than_the_deadline() -> None:
    assert scraped(b"HTTP/1.0 200 OK\r\n", timeout_s=0.05, stays=True) is None


def test_one_that_is_silent_holds_up_nobody_else() -> None:
    async def run() -> list[Metrics | None]:
        async with endpoint(b"", stays=True) as silent, endpoint(answer()) as good:
            nobody = "http://127.0.0.1:1/metrics"
            return [found for found, _ in await scrape([silent, good, nobody], 0.5)]

    assert asyncio.run(run()) == [None, METRICS, None]
