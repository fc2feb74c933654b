"""What a review found: each test states a rule that the product broke when the test was written."""

import asyncio
import os
import socket
import tracemalloc
from collections import Counter
from random import Random

import pytest

from kcast.client.aio import Client
from kcast.client.cluster import lab
from kcast.client.core import ClientCore
from kcast.client.events import Delivery, LeasesChanged, Outcome
from kcast.client.session.leases import Leases
from kcast.client.session.liveness import Change
from kcast.client.session.outbox import WAIT_S
from kcast.hashring.policy import Policy
from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, Transmit, datagrams
from kcast.pubsub.limits import Limits
from kcast.pubsub.server import Server
from tests.support.client_lab import ALL, FEW_PUBLISH, PUB, SUB, Lab, of_kind
from tests.support.server_core import sent
from tests.support.session_and_server import SessionAndServer, vouched_at_last

pytestmark = pytest.mark.world


def cookie_of(server: Server, source: Address, now: float) -> bytes:
    ask = wire.request_datagram(wire.Ask(b"n"))
    server.receive(Burst(ask, len(ask), source), now)
    (reply,) = [wire.parse_reply(data[:-1]) for to, data in sent(server.flush(now)) if to == source]
    assert isinstance(reply, wire.Challenge)
    return reply.cookie


def vouch(server: Server, source: Address, lines: list[bytes], now: float) -> None:
    data = wire.request_datagram(wire.Vouch(b"n", cookie_of(server, source, now), None), lines)
    server.receive(Burst(data, len(data), source), now)
    server.flush(now)


# --- Server ------------------------------------------------------------------------------------------


def test_memory_of_one_flush_is_bounded_by_what_arrived() -> None:
    """One client with many ports: all on one hot topic, each on one of its own: no two share a packing."""
    server, now = Server(secret=bytes(32)), 1000.0
    ports = 600
    for port in range(1, ports + 1):
        vouch(server, ("198.51.100.9", port), [b"hot\n", b"own%d\n" % port], now)
    publisher = ("198.51.100.10", 1)
    vouch(server, publisher, [], now)
    arrived = 0
    for start in range(1, ports + 1, 50):
        data = b"".join(b"own%d x\n" % port for port in range(start, start + 50))
        server.receive(Burst(data, len(data), publisher), now)
        arrived += len(data)
    hot = (b"hot " + b"x" * 1100 + b"\nz y\n").ljust(1200, b"\n") * 50  # not forwarded whole: two topics
    for _ in range(8):
        server.receive(Burst(hot, 1200, publisher), now)
        arrived += len(hot)
    tracemalloc.start()
    transmits = server.flush(now)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(transmits)
    assert peak < 32 * 1024 * 1024, f"{arrived:,} bytes arrived, {peak:,} in one flush, {ports} ports"


# --- Raw lines ---------------------------------------------------------------------------------------


def test_raw_readings_that_repeat_are_delivered_under_the_default_policy() -> None:
    """A sensor says the same every 5 s; all servers up, no loss, default policy 5/3/5."""
    lab_ = Lab(FEW_PUBLISH)
    publisher, subscriber = lab_.client(PUB, 1), lab_.client(SUB, 2)
    subscriber.subscribe(b"t", lab_.now)
    lab_.turn()
    for _ in range(200):
        publisher.publish(b"t", b"21.5", lab_.now, raw=True)
        lab_.run(5.0)
    delivered = len(of_kind(subscriber.events(), Delivery))
    assert delivered == 200, f"{delivered} of 200 delivered"


# --- Leases ------------------------------------------------------------------------------------------


def test_heap_of_expiries_does_not_grow_with_renewals() -> None:
    """`kcast serve --ttl 86400`, a topic renewed every 25 s: one entry a renewal, for a day."""
    leases, now = Leases(), 0.0
    leases.want(b"t", now)
    for _ in range(1000):
        leases.take_due(now, 63, 1000)
        leases.grant(b"t", now, now + 86_400.0, now + 25.0)
        leases.expire(now)
        now += 25.0
    assert len(leases._expiring) < 10, f"{len(leases._expiring)} entries for one lease"


def test_late_receipt_does_not_shorten_a_newer_lease() -> None:
    """A receipt that comes after its request was asked anew: the newer promise stands."""
    line = SessionAndServer(ttl_s=3)
    line.session.want(b"t", line.now)
    line.exchange()
    renew_at = line.session.next_timeout()
    assert renew_at is not None
    line.now = renew_at
    ((first, size),) = line.session.datagrams_to_send(line.now)
    line.server.receive(Burst(first, size, line.source), line.now)
    ((_, late),) = sent(line.server.flush(line.now))  # on its way, and slow
    line.run(2.5)  # asked again, and granted
    line.changes()
    reply = wire.parse_reply(late[:-1])
    assert reply is not None
    newest = line.session._leases._leases[b"t"].expires_at
    assert line.session.handle_replies([reply], line.now) == 0
    assert line.session._leases._leases[b"t"].expires_at >= newest
    line.now += 0.5
    line.is_up = False
    line.exchange()
    assert line.server.leases.subscribers(b"t", line.now)
    assert line.session.is_leased(b"t"), f"the server holds it, and we report {line.changes()}"


def test_few_subscribe_leaves_a_lost_server_when_another_is_trusted_again() -> None:
    """One is lost while the other is only suspected; when that one answers again nobody tells the core."""
    lab_ = Lab(Policy(2, 2, 1), hosts=2)
    client = lab_.client(SUB, seed=1)
    client.subscribe(b"t", lab_.now)
    client.publish(b"t", b"x", lab_.now)  # so it has dealings with the other one too
    lab_.turn()
    (mine,) = [a for a, s in lab_.servers.items() if s.leases.subscribers(b"t", lab_.now)]
    (other,) = set(lab_.servers) - {mine}

    def state(address: Address) -> str:
        return client.server_states()[f"{address[0]}:{address[1]}"]

    lab_.down = {mine}
    while state(mine) != "lost":
        if state(mine) == "suspected" and client.sessions.at[mine]._misses == 2 and other not in lab_.down:
            lab_.down = {mine, other}
            client.publish(b"t", b"y", lab_.now)  # unanswered: so the other is suspected
        lab_.run(0.1)
    assert state(other) == "suspected"
    lab_.down = {mine}
    lab_.run(300.0)
    assert state(other) == "alive"
    assert client.lease_counts(b"t") == (1, 1), "five minutes without a lease, a live server at hand"


# --- Publishing --------------------------------------------------------------------------------------


def test_bare_lines_are_not_lost_for_ever_where_the_publish_table_is_full() -> None:
    """The server's cache is full, says so in every pong; 20 s of confirm=False at 50 messages a second."""
    line = SessionAndServer(limits=Limits(publishers=1))
    vouch(line.server, ("198.51.100.77", 1), [], line.now)
    keep = line.now
    sent_lines = 1000
    line.session.publish(b"t first\n", 0, False)
    line.exchange()
    for number in range(1, sent_lines + 1):
        if line.now - keep > 10:
            vouch(line.server, ("198.51.100.77", 1), [], line.now)
            keep = line.now
        line.session.publish(b"t %d\n" % number, number, False)
        line.exchange()
        line.now += 0.02
    outcomes = Counter(outcome for _, outcome in line.outcomes())
    lost = line.server.drops[Drop.UNVOUCHED_PUBLISH]
    assert lost < sent_lines / 10, f"{lost} of {sent_lines} dropped by a live server; told: {outcomes}"


def test_restart_is_noticed_by_a_publisher_that_publishes_every_three_minutes() -> None:
    """A cookie serves an hour to publish (§6.2): refused at three minutes, it tells of a restart."""
    line = vouched_at_last()
    line.changes()
    line.now += 180
    line.restart()
    line.session.publish(b"t second\n", 1, True)
    line.exchange()
    assert line.outcomes() == [(1, Outcome.RECEIPT)]
    assert (Change.FORGOT, b"") in line.changes()
    assert not line.session.is_warm(line.now), "it counts as warm, and nobody has leased there yet"


def test_what_a_server_refused_when_it_had_forgotten_is_sent_again_in_order() -> None:
    """All that was refused is sent again in order, sorted once and not for each refused datagram."""
    line = vouched_at_last()
    line.changes()
    pending = 0
    for _ in range(2):
        for _ in range(4000):
            pending += 1
            assert line.session.publish(b"t %d%b\n" % (pending, b"x" * 700), pending, True)
        while len(line.session.outbox):
            line.now += WAIT_S
            for data, size in line.session.datagrams_to_send(line.now):
                line.out += [(line.now, each) for each in datagrams(data, size)]
    line.restart()
    answers = []
    for _, datagram in line.out:
        line.server.receive(Burst(datagram, len(datagram), line.source), line.now)
        answers += [wire.parse_reply(data[:-1]) for _, data in sent(line.server.flush(line.now))]
    replies = [reply for reply in answers if reply is not None]
    for reply in replies:
        line.session.handle_replies([reply], line.now)
    again: list[int] = []
    while len(line.session.outbox):
        line.now += WAIT_S
        again += [
            int(published.split(b" ")[1].strip(b"x") or 0)
            for data, size in line.session.datagrams_to_send(line.now)
            for each in datagrams(data, size)
            for published in each.splitlines()[1:]
            if published
        ]
    assert len(again) == pending and again == sorted(again)


def test_publishers_name_must_be_one() -> None:
    """§9.1: a name with a space makes every message malformed, silently, at every receiver."""
    lab_ = Lab(ALL)
    with pytest.raises(ValueError, match="publisher"):
        ClientCore(lab_.cluster, Random(1), publisher="my sensor")


def test_reserved_topics_are_refused() -> None:
    """§3.4: names that begin with NUL are kcast's own."""
    lab_ = Lab(ALL)
    client = lab_.client()
    with pytest.raises(wire.TopicError):
        client.publish(b"\x00control", b"x", lab_.now)


def test_lease_counts_never_say_more_than_stands() -> None:
    """A client that slept longer than a ttl reads a receipt from before."""
    lab_ = Lab(ALL, ttl_s=3)
    client = lab_.client(SUB)
    client.subscribe(b"t", lab_.now)
    client.handle_timeout(lab_.now)
    held = []
    for _ in range(2):  # the handshake up to the receipts, which wait in the socket
        for to, data in sent(client.flush(lab_.now)):
            lab_.servers[to].receive(Burst(data, len(data), SUB), lab_.now)
        held = [(a, d) for a, s in lab_.servers.items() for _, d in sent(s.flush(lab_.now))]
        if not held[0][1].startswith(b"%+"):
            for address, data in held:
                client.receive(Burst(data, len(data), address), lab_.now)
    assert all(data.startswith(b"%+") for _, data in held)
    lab_.now += 60.0
    for address, data in held:
        client.receive(Burst(data, len(data), address), lab_.now)
    claims = [event.leased for event in client.events() if isinstance(event, LeasesChanged)]
    assert not any(claims), f"LeasesChanged {claims}, and every lease ended 57 s ago"


# --- asyncio driver, memory --------------------------------------------------------------------------


def test_one_exception_in_a_turn_does_not_end_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is set at the end of a turn; one that raises before leaves a client that never wakes."""
    monkeypatch.setattr("kcast.client.aio.TURN_RETRY_S", 0.01)
    mute = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    mute.bind(("127.0.0.1", 0))

    async def turns() -> int:
        async with Client(lab([mute.getsockname()], Policy(1, 1, 1))) as client:
            client.subscribe("t")
            real, count, went_on = client.core.flush, 0, asyncio.Event()

            def flush(now: float) -> list[Transmit]:
                nonlocal count
                count += 1
                if count == 2:
                    raise RuntimeError("boom")
                if count > 2:
                    went_on.set()
                return real(now)

            client.core.flush = flush  # type: ignore[method-assign]
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            await asyncio.wait_for(went_on.wait(), 20.0)
            return count

    with mute:
        assert asyncio.run(turns()) > 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_forked_before_the_client_is_entered_publish_under_different_names() -> None:
    client = Client(lab([("127.0.0.1", 9)], Policy(1, 1, 1)))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, client.core.publisher.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 99).decode() != client.core.publisher
