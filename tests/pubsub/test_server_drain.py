"""pubsub/server.py: draining, and the operator's head. PROTOCOL §5.1, §7.6."""

import pytest

from kcast.pubsub import wire
from kcast.pubsub.drops import Drop
from kcast.pubsub.limits import DRAIN_MARGIN_S, Limits
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    THIRD,
    answer,
    ask,
    handshake,
    lease,
    new_server,
    publish,
    publish_lease,
    send,
    vouched,
)

PING = b"%~ P".ljust(40, b"\n")
DRAIN = {"drain": "1"}


def attributes(replies: list[wire.Reply | None]) -> list[dict[str, str]]:
    return [dict(reply.attributes) for reply in replies if reply is not None]


# --- Draining -----------------------------------------------------------------------------------------


def test_every_answer_says_that_the_end_is_near() -> None:
    """§5.1: with `%+` and `%-` together, `%+` alone does."""
    server = new_server(limits=Limits(publishes_per_s=10, lines_per_datagram=20), tells_audience=False)
    lease(server, CLIENT, b"t")
    publish_lease(server)
    cookie = handshake(server)
    requests = {
        "challenge": ask(),
        "foreign": vouched(b"A" * 32),
        "receipt": vouched(cookie, b"t"),
        "receipt of publishes": vouched(cookie, *[b"t m"] * 10),
        "size": vouched(cookie, *[b"t"] * 20),
        "rate": vouched(cookie, b"t m"),
        "new": vouched(cookie, b"new"),
        "pong": PING,
        "both": vouched(cookie, b"new", b"t"),
    }
    before = {name: attributes(answer(server, request)) for name, request in requests.items()}
    assert all("drain" not in each for found in before.values() for each in found)
    server = new_server(limits=server.limits, tells_audience=False)
    lease(server, CLIENT, b"t")
    publish_lease(server)
    server.start_drain(START)
    after = {name: attributes(answer(server, request)) for name, request in requests.items()}
    assert after.pop("receipt") == [{"credit": "65536"} | DRAIN]
    assert after["both"][0].pop("credit") == "65496"
    assert after.pop("both") == [DRAIN, {}]
    assert after.pop("size") == [{"lines": "20", "drain": "1"}]
    assert set(after) == set(requests) - {"both", "size", "receipt"}
    assert all(found == [DRAIN] for found in after.values())


def test_new_leases_are_refused_and_all_else_goes_on() -> None:
    """§7.6: renewals, publish leases, bare lines, copies."""
    server = new_server()
    lease(server, OTHER, b"t")
    publish_lease(server)
    server.start_drain(START + 10)
    assert server.is_draining
    now = START + 20
    (refusal,) = answer(server, vouched(handshake(server, THIRD, now), b"t", b"u"), THIRD, now)
    assert refusal == wire.Refusal(b"V", "drain", 0b11, DRAIN)
    replies = answer(server, vouched(handshake(server, OTHER, now), b"new", b"t"), OTHER, now)
    assert isinstance(replies[0], wire.Receipt)
    assert replies[1] == wire.Refusal(b"V", "drain", 0b01, {})
    assert server.drops == {Drop.DRAIN: 3}
    assert server.refusals == {"drain": 2}
    assert send(server, b"t bare\n", now=now) == [(OTHER, b"t bare\n")]
    publish(server, b"t m", source=THIRD, now=now)
    assert server.publish_leases.left_s(THIRD, now) == 60
    assert send(server, b"t late\n", THIRD, START + 79) == [(OTHER, b"t late\n")]


@pytest.mark.parametrize(
    ("ttl_s", "lasts_s"),
    [(60, 25.0), (30, 15.0), (75, 30.0), (76, 30.0), (3600, 30.0), (1, 1 / 3 + 5), (6, 7.0)],
)
def test_draining_ends_when_everyone_has_renewed_once(ttl_s: float, lasts_s: float) -> None:
    """§7.6: min(N / M, 25 s) + 5 s, to the moment."""
    server = new_server(ttl_s=ttl_s)
    now = START
    lease(server, CLIENT, b"t", now=now)
    server.start_drain(now)
    end = now + lasts_s
    while now + ttl_s / 2 < end:
        assert not server.is_drained(now)
        now += ttl_s / 2
        lease_again = answer(server, vouched(handshake(server, now=now), b"t"), now=now)
        assert isinstance(lease_again[0], wire.Receipt)
    server.handle_timeout(end - 0.001)
    assert not server.is_drained(end - 0.001)
    assert server.is_drained(end)
    assert server.is_drained(end + 100)


def test_draining_is_over_at_once_where_nobody_must_hear_of_it() -> None:
    server = new_server()
    assert not server.is_drained(START)
    publish_lease(server)
    server.start_drain(START)
    assert server.is_drained(START)


def test_next_timeout_tells_when_to_look() -> None:
    server = new_server(ttl_s=600)
    assert server.next_timeout() is None
    lease(server, CLIENT, b"t")
    assert server.next_timeout() == START + 600
    server.start_drain(START + 1)
    assert server.next_timeout() == START + 1 + 25 + DRAIN_MARGIN_S
    server.handle_timeout(START + 31)
    assert server.is_drained(START + 31)


def test_open_server_takes_no_new_lease_by_hand_and_keeps_the_old() -> None:
    server = new_server(open_to=lambda source: True)
    send(server, b"t\n")
    server.start_drain(START + 20)
    assert send(server, b"t\nnew\n", now=START + 30) == []
    assert server.drops == {Drop.DRAIN: 1}
    assert server.refusals == {}, "nobody was told"
    assert send(server, b"t m\n", OTHER, START + 89) == [(CLIENT, b"\nt m\n")]


# --- The head -----------------------------------------------------------------------------------------


def test_head_stands_on_challenges_and_receipts() -> None:
    """§5.1"""
    server = new_server(head="sha256:0a-Z_/+~!", limits=Limits(leases=1), tells_audience=False)
    head = {"head": "sha256:0a-Z_/+~!"}
    cookie = handshake(server)
    publish_lease(server)
    for request, expected in (
        (ask(), [head]),
        (vouched(b"A" * 32), [head]),
        (vouched(cookie, b"t m"), [head]),
        (vouched(cookie, b"t", b"u"), [{"credit": "65536"} | head, {}]),
        (vouched(cookie, b"u"), [{}]),
        (PING, [{}]),
    ):
        assert attributes(answer(server, request)) == expected


@pytest.mark.parametrize("head", ["a b", "x" * 33, "ø", "a\n", "\x7f"])
def test_head_that_no_answer_can_carry_is_the_callers_fault(head: str) -> None:
    with pytest.raises(ValueError, match=r"head is '.*': give at most 32 printable ASCII, no spaces"):
        new_server(head=head)
