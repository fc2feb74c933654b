"""Budgets of those who ask for more than their part: credit, rates by IP, answers to strangers, the table."""

import asyncio
import time
from collections.abc import Iterator

from kcast.client.aio import Client
from tests.attacks.figures import Figure, at_least, at_most, told
from tests.attacks.lab import Lab, Served
from tests.attacks.row import Row
from tests.attacks.wire_peer import WirePeer

KIB = 1024
BUDGET_PER_S = 500  # of answers to strangers, in the row about newcomers
NEWCOMERS = 20
JOIN_S = 30.0
RATE_PER_S = 1000
PORTS = 40
CAPACITY = 400
STREAM_PER_S = 10_000  # messages of 1000 bytes
BURST_LINES = 1000

# An attack that does less than this shows nothing.
UNWANTED_BYTES_MIN = 32 * KIB
PUBLISH_LEASES_MIN = 32


# --- Credit -----------------------------------------------------------------------------------------------


def _leave(lab: Lab, *, replays: bool) -> Iterator[Figure]:
    """A subscriber leaves, and somebody else has its address from then on."""
    seconds = 60.0 if lab.is_full else 6.0
    server = lab.serve("--ttl", "60")
    with WirePeer(server.address, "127.5.5.5") as victim, WirePeer(server.address, "127.6.6.6") as publisher:
        renewal = victim.lease(b"t")
        publisher.open_publish_lease()
        line = b"t ".ljust(999, b".") + b"\n"
        sent_bytes = got_bytes = 0
        began = time.monotonic()
        for number in range(int(50 * seconds)):
            time.sleep(max(0.0, began + number / 50 - time.monotonic()))
            publisher.say(line)
            if number % 500 == 499:
                publisher.open_publish_lease()
            if replays and number % 25 == 0:
                victim.say(renewal)
                sent_bytes += len(renewal)
            got_bytes += victim.take_bytes()
        time.sleep(0.2)
        got_bytes += victim.take_bytes()
    yield at_least("sent by the attacker", sent_bytes, 5 * len(renewal) if replays else 0, "B")
    yield at_least("copies that nobody wanted", got_bytes, UNWANTED_BYTES_MIN, "B")
    yield at_most("beyond what it sent", got_bytes - sent_bytes, 64 * KIB, "B")


def leaving_subscriber(lab: Lab) -> Iterator[Figure]:
    """A subscriber takes a lease, and is gone."""
    return _leave(lab, replays=False)


def replayed_renewal(lab: Lab) -> Iterator[Figure]:
    """The last renewal of a subscriber who left is sent again and again, from its address."""
    return _leave(lab, replays=True)


def steady_subscriber(lab: Lab) -> Iterator[Figure]:
    """An honest subscriber takes 500 short messages a second, for several ttls."""
    seconds = 60.0 if lab.is_full else 10.0
    server = lab.serve("--ttl", "3")
    result = lab.honest(server.address, seconds).result()
    yield at_most("lost for want of credit", server.dropped("credit"), 0)
    yield at_least("delivered", result.delivered_percent, 99.9, "%")


def _stream(lab: Lab, rtt_ms: float) -> Iterator[Figure]:
    """10 MB/s go to one subscriber who is that far away. What counts is from the third second on."""
    seconds = 8.0 if lab.is_full else 4.0
    # A machine that does other work makes a client late now and then, so there is a second try.
    for _ in range(2):
        server = lab.serve("--publish-rate", "0", "--egress-rate", "512M")
        address = server.address
        if rtt_ms > 1:
            address = lab.relayed(address, delay_ms=rtt_ms / 2)
        early, late, copies = asyncio.run(_streamed(server, lab.cluster_file(address), seconds))
        server.end()
        if not late:
            break
    yield at_least(f"copies at {rtt_ms:g} ms", copies, 0.6 * STREAM_PER_S * seconds)
    yield told("without credit in the first 2 s", early)
    yield at_most("without credit after 2 s", late, 0)


async def _streamed(server: Served, cluster: str, seconds: float) -> tuple[float, float, float]:
    async with Client(cluster) as subscriber:
        count = 0

        def take(_: object) -> None:
            nonlocal count
            count += 1

        subscription = subscriber.subscribe("t", on_delivery=take)
        leased, wanted = await subscription.ready(10)
        assert leased == wanted
        with WirePeer(server.address, "127.6.6.6") as publisher:
            publisher.open_publish_lease()
            data = b"t ".ljust(999, b".") + b"\n"
            began = asyncio.get_running_loop().time()
            early = 0.0
            for number in range(int(seconds * 100)):
                await asyncio.sleep(max(0.0, began + number / 100 - asyncio.get_running_loop().time()))
                if number == 200:
                    early = await asyncio.to_thread(server.dropped, "credit")
                for _ in range(STREAM_PER_S // 100):
                    publisher.say(data)
            await asyncio.sleep(0.3)
        return early, await asyncio.to_thread(server.dropped, "credit") - early, count


def credit_near(lab: Lab) -> Iterator[Figure]:
    """10 MB/s, at the round-trip time of loopback."""
    return _stream(lab, 0.2)


def credit_far(lab: Lab) -> Iterator[Figure]:
    """10 MB/s, at a round-trip time of 50 ms."""
    return _stream(lab, 50)


def credit_burst(lab: Lab) -> Iterator[Figure]:
    """1,000 lines of 60 bytes come at once, a second after leasing."""
    server = lab.serve()
    came = asyncio.run(_burst(server, lab.cluster_file(server.address)))
    yield at_least("delivered", came, BURST_LINES)
    yield at_most("lost for want of credit", server.dropped("credit"), 0)


async def _burst(server: Served, cluster: str) -> int:
    came: set[bytes] = set()
    async with Client(cluster) as subscriber:
        await subscriber.subscribe("t", on_delivery=lambda delivery: came.add(delivery.payload)).ready(10)
        await asyncio.sleep(1)
        with WirePeer(server.address, "127.6.6.6") as publisher:
            publisher.open_publish_lease()
            lines = [(b"t %d " % number).ljust(59, b".") + b"\n" for number in range(BURST_LINES)]
            for start in range(0, BURST_LINES, 20):
                publisher.say(b"".join(lines[start : start + 20]))
        await asyncio.sleep(0.5)
    return len(came)


# --- Rates ------------------------------------------------------------------------------------------------


def ports_of_an_ip(lab: Lab) -> Iterator[Figure]:
    """40 ports of one IP publish as fast as they can, vouched and bare, with `--publish-rate 1000`."""
    # A bucket of bare lines and one of vouched lines are full in the beginning, with a second's worth each.
    seconds = 12.0
    server = lab.serve("--publish-rate", str(RATE_PER_S))
    peers = [lab.stack.enter_context(WirePeer(server.address, "127.9.9.9")) for _ in range(PORTS)]
    for peer in peers:
        peer.open_publish_lease()
    vouched = [peer.vouched(b"t x\n" * 20) for peer in peers]
    before = server.metrics()["kcast_messages_total"]
    began = time.monotonic()
    asked = 0
    while time.monotonic() < began + seconds:
        for peer, showing in zip(peers, vouched, strict=True):
            peer.say(b"t x\n" * 20)
            peer.say(showing)
            asked += 40
        time.sleep(0.01)
    taken = server.metrics()["kcast_messages_total"] - before
    elapsed = time.monotonic() - began
    # A bucket holds a second's worth, which is full in the beginning.
    yield at_least("lines published", asked / (RATE_PER_S * elapsed), 10, "times the rate")
    yield at_least("lines taken", taken, 0.7 * RATE_PER_S * elapsed)
    yield at_most("against the rate", taken / (RATE_PER_S * (elapsed + 1)), 1.1, "times")


def publish_leases_of_an_ip(lab: Lab) -> Iterator[Figure]:
    """One IP opens publish leases of ever more ports, where there are 400."""
    server = lab.serve("--publishers", str(CAPACITY))
    for _ in range(2 * CAPACITY):
        with WirePeer(server.address, "127.9.9.9") as peer:
            peer.open_publish_lease()
    held = server.metrics()["kcast_publish_leases"]
    yield at_least("publish leases of the IP", held, PUBLISH_LEASES_MIN)
    with WirePeer(server.address, "127.10.1.1") as other:
        receipt = other.open_publish_lease()
    yield at_least("left for another IP", float(receipt.attributes.get("bare") != "0"), 1)


def newcomers(lab: Lab) -> Iterator[Figure]:
    """Strangers are 100 times as many as are answered; 20 newcomers of another network want leases."""
    server = lab.serve("--challenge-rate", str(BUDGET_PER_S))
    flood = lab.flood(server.address, "asks", rate=150 * BUDGET_PER_S, seconds=JOIN_S + 10)
    time.sleep(1)
    arrived, began = _arrived(server), time.monotonic()
    joined, joined_s = asyncio.run(_join(lab.cluster_file(server.address), NEWCOMERS, JOIN_S, enough=19))
    elapsed = time.monotonic() - began
    flood.end()
    yield at_least("flood", (_arrived(server) - arrived) / elapsed / BUDGET_PER_S, 100, "times the budget")
    yield at_least("joined", joined, 19)
    yield at_most("within", joined_s, JOIN_S, "s")


def _arrived(server: Served) -> float:
    return server.metrics()["kcast_received_datagrams_total"] + server.kernel_drops


async def _join(cluster: str, count: int, within_s: float, enough: int) -> tuple[int, float]:
    """Lets so many clients lease a topic.

    Returns how many leases stood within that time, or were enough, and after how many seconds.
    """
    began = time.monotonic()

    async def one(number: int) -> bool:
        async with Client(cluster) as client:
            leased, wanted = await client.subscribe(f"t{number}").ready(within_s)
            return leased == wanted

    joining = [asyncio.create_task(one(number)) for number in range(count)]
    joined = 0
    for task in asyncio.as_completed(joining):
        joined += await task
        if joined >= enough:
            break
    joined_s = time.monotonic() - began
    for other in joining:
        other.cancel()
    await asyncio.gather(*joining, return_exceptions=True)
    return joined, joined_s


# --- The table --------------------------------------------------------------------------------------------


def squatters(lab: Lab) -> Iterator[Figure]:
    """Ten times as many leases are wanted as there are, from 50 networks; newcomers come, one beside them."""
    ttl_s = 6
    server = lab.serve("--capacity", str(CAPACITY), "--ttl", str(ttl_s), "--topics", str(CAPACITY))
    honest = lab.honest(server.address, 75.0, rate=50)
    time.sleep(ttl_s / 2 + 1)
    attackers = [
        lab.stack.enter_context(WirePeer(server.address, f"127.66.{number % 50}.{1 + number // 50}"))
        for number in range(100)
    ]
    squatting = _Squatters(attackers)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        squatting.ask()
    yield at_least("leases in the table", server.metrics()["kcast_leases"], 0.9 * CAPACITY)
    beside = lab.relayed(server.address, source="127.66.3.77")
    for name, address in ("elsewhere", server.address), ("in a /24 of theirs", beside):
        joined = asyncio.run(_join_beside(squatting, lab.cluster_file(address), 5))
        yield at_least(f"joined {name} within 30 s, of 5", joined, 5)
    result = honest.result()
    yield at_most("leases lost", result.leases_lost, 0)
    yield at_least("delivered", result.delivered_percent, 99.9, "%")


class _Squatters:
    """Peers that ask for ever more leases, and renew what they have."""

    def __init__(self, peers: list[WirePeer]) -> None:
        self._peers = peers
        self._turn = 0

    def ask(self) -> None:
        """Lets the next peer ask for 40 topics, always the same ones."""
        number = self._turn % len(self._peers)
        self._turn += 1
        peer = self._peers[number]
        peer.ask_for(*(b"squat%d-%d" % (number, topic) for topic in range(40)))
        time.sleep(0.01)


async def _join_beside(squatting: _Squatters, cluster: str, count: int) -> int:
    joining = asyncio.create_task(_join(cluster, count, JOIN_S, enough=count))
    while not joining.done():
        await asyncio.to_thread(squatting.ask)
    joined, _ = joining.result()
    return joined


ROWS = (
    Row("leaving-subscriber", "64 KiB beyond what it sent", leaving_subscriber, is_light=True),
    Row("replayed-renewal", "64 KiB beyond what it sent", replayed_renewal, is_light=True),
    Row("credit-steady", "0 lost for want of credit; 99.9 %", steady_subscriber, is_light=True),
    Row("credit-near", "after 2 s: 0 lost for want of credit", credit_near, in_short=False),
    Row("credit-far", "after 2 s: 0 lost for want of credit", credit_far, in_short=False),
    Row("credit-burst", "0 lost for want of credit", credit_burst),
    Row("ports-of-an-ip", "1.1 times the rate", ports_of_an_ip),
    Row("publish-leases-of-an-ip", "another IP gets one", publish_leases_of_an_ip, is_light=True),
    Row("newcomers", "19 of 20 join", newcomers),
    Row("squatters", "all join within 30 s; leases lost: 0; 99.9 %", squatters, in_short=False),
)
