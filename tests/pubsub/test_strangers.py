"""pubsub/server.py: what strangers' datagrams cost, and what they cannot break. PROTOCOL §5.2.

Costs are counted in calls, not measured: so many lines parsed, so many cookies checked.
"""

import gc
import os
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Collection, Iterator
from enum import Enum
from random import Random
from types import FunctionType, ModuleType
from typing import Any

import pytest

from kcast.pubsub import wire
from kcast.pubsub.cookie import Cookies
from kcast.pubsub.drops import Drop, drop_of_control
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, DATAGRAM_BYTES_MAX, Limits
from kcast.pubsub.server import Server
from tests.attacks.junk import KINDS, datagrams_of
from tests.attacks.rows.strangers import mutated
from tests.support.forms import few_of
from tests.support.server_core import (
    CLIENT,
    OTHER,
    START,
    THIRD,
    answer,
    ask,
    flushed,
    handshake,
    lease,
    new_server,
    open_server,
    publish,
    publish_lease,
    send,
    vouched,
)

MANY_LINES = {
    "600 subscribes": b"a\n" * 600,
    "300 publishes": b"a b\n" * 300,
    "300 controls": b"%x\n" * 300,
    "blank lines before a request": b"\n" * 1000 + b"%? A\n",
    "a request behind 63 lines": b"a b\n" * 63 + b"%? A\n".ljust(200, b"\n"),
    "a ping before 290 lines": b"%~ A\n" + b"a b\n" * 290,
    "a foreign cookie before 500 lines": b"%! A " + b"A" * 32 + b" -\n" + b"a\n" * 500,
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls of what costs most."""
    counts = Counter[str]()

    def count(owner: object, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    for name in ("parse_request", "sorted_lines", "split_lines", "format_line"):
        count(wire, name)
    for name in ("mint", "read"):
        count(Cookies, name)
    return counts


@pytest.mark.parametrize("kind", [*KINDS, *MANY_LINES])
def test_of_a_strangers_datagram_one_line_is_parsed_at_most(kind: str, calls: Counter[str]) -> None:
    """Whatever it holds: one request, one cookie, one answer; and lines are split once to be counted."""
    server = new_server(limits=Limits(challenges_per_s=0))
    for number, data in enumerate(datagrams_of(kind) if kind in KINDS else [MANY_LINES[kind]]):
        assert len(data) <= DATAGRAM_BYTES_MAX
        calls.clear()
        assert len(send(server, data, (f"203.0.{number}.1", 1000))) <= 1
        for name, most in {"parse_request": 1, "split_lines": 1, "sorted_lines": 0}.items():
            assert calls[name] <= most, name
        for name in ("read", "mint", "format_line"):
            assert calls[name] <= 1, name


def lines_of_a_stranger(random: Random) -> list[bytes]:
    """Whatever a line can be, each with its LF; never a vouch as the first that is not blank."""
    kinds = (
        b"",
        b"t",
        b"t m",
        b" ",
        b"%c3",
        b"%C3 m ",
        b"\xff\0 ",
        b"%~ N",
        b"%? N a=",
        b"%? ",
        b"%?x",
        b"%% x",
        b"%:",
    )
    return [random.choice(kinds) + b"\n" for _ in range(random.randrange(12))]


def test_each_line_of_a_stranger_counts_once_but_for_the_first_request() -> None:
    """§4.2, §5.2: also where he has asked for something. So it shows who publishes in vain."""
    random, totals = Random(5), Counter[Drop]()
    for number in range(3000):
        lines, cut = lines_of_a_stranger(random), random.choice((b"", b"t", b"%~ N", b"t m"))
        server = new_server()
        send(server, b"".join(lines) + cut)
        lines = [line[:-1] for line in lines if line != b"\n"]
        asks = [line.startswith((b"%? ", b"%~ ")) for line in lines]
        expected = Counter({Drop.EMPTY: not lines, Drop.UNTERMINATED: bool(cut)})
        expected[Drop.EXTRA_REQUEST] = max(0, sum(asks) - 1)
        for index, line in enumerate(lines):
            if index == 0 and wire.is_control(line) and not asks[0]:
                expected[drop_of_control(line)] += 1
            elif not asks[index]:
                expected[Drop.UNVOUCHED_PUBLISH if b" " in line else Drop.UNVOUCHED_SUBSCRIBE] += 1
        for of_the_request in (Drop.SHORT, Drop.MALFORMED):
            del server.drops[of_the_request], expected[of_the_request]
        assert server.drops == +expected, (number, lines, cut)
        totals += server.drops
    reasons = {Drop.EMPTY, Drop.UNTERMINATED, Drop.EXTRA_REQUEST, Drop.UNKNOWN_VERB, Drop.REPLY_VERB}
    assert set(totals) == reasons | {Drop.UNVOUCHED_PUBLISH, Drop.UNVOUCHED_SUBSCRIBE}


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_strangers_burst_one_datagram_is_looked_at(kind: str, calls: Counter[str]) -> None:
    """64 datagrams of one source that come in one burst cost what one does."""
    server = new_server()
    data = datagrams_of(kind)[0]
    server.receive(Burst(data * 64, len(data), CLIENT), START)
    assert len(flushed(server)) <= 1
    assert max(calls.values(), default=0) <= 1
    assert calls["sorted_lines"] == 0


@pytest.mark.parametrize("make", few_of([new_server, open_server]))
@pytest.mark.parametrize("source", few_of([(CLIENT,), (OTHER,), (THIRD,), (("203.0.113.1", 9),)], 2))
def test_odd_datagrams_do_not_end_a_server(make: Any, source: Address) -> None:
    """Of 0 bytes, cut, too long, mutated; alone and in bursts; from those with leases and from strangers."""
    server = make()
    lease(server, CLIENT, b"t")
    publish_lease(server, OTHER)
    whole = vouched(handshake(server, source), b"a", b"a m")
    odd = [b"", b"\n", b"\0", b"%", b"%\n", b"%!", b"x" * 60_000, b"t m\n" * 15_000]
    odd += [whole[:end] for end in range(len(whole))]
    odd += [whole[start:] for start in range(1, 60)]
    odd += list(mutated(7, 1000))
    for number, data in enumerate(odd):
        for segment_bytes in {1, 7, len(data)}:
            if segment_bytes > 1 or len(data) < 200:
                server.receive(Burst(data, segment_bytes, source), START + number / 1000)
        flushed(server, START + number / 1000)
    now = START + len(odd) / 1000 + 2
    publish(server, b"t alive", source=("192.0.2.77", 5), now=now)
    lease(server, ("192.0.2.78", 5), b"t", now=now)
    copies = send(server, vouched(handshake(server, THIRD, now), b"t m"), THIRD, now)
    assert CLIENT in [destination for destination, _ in copies]


def test_who_has_shown_a_good_cookie_is_answered_beside_strangers() -> None:
    """A cookie that is too old for leases is answered by `%=`, which is not of the strangers' budget."""
    server = new_server(limits=Limits(challenges_per_s=5))
    cookie = handshake(server)
    now = START + COOKIE_LEASE_LIFE_S + 1
    for number in range(100):
        send(server, ask(), (f"203.0.{number}.1", 1000), now)
    assert answer(server, ask(), ("203.1.1.1", 1000), now) == [], "strangers have used it up"
    for _ in range(20):
        (challenge,) = answer(server, vouched(cookie, b"t"), now=now)
        assert isinstance(challenge, wire.Challenge)
    assert isinstance(challenge, wire.Challenge)
    (receipt,) = answer(server, vouched(challenge.cookie, b"t"), now=now)
    assert isinstance(receipt, wire.Receipt)


# --- Cookies that are not one's own -------------------------------------------------------------------

MINUTE_S = 60.0
LATER_S = 3700.0
SHOWN_FROM: dict[str, tuple[Address, int, float]] = {
    # where it is shown, at which server (by its secret), and how much later; it was minted for CLIENT
    "another IP": (OTHER, 1, 0.0),
    "another port": ((CLIENT[0], CLIENT[1] + 1), 1, 0.0),
    "an IPv6 address": (THIRD, 1, 0.0),
    "another server, or one that has restarted": (CLIENT, 2, 0.0),
    "an hour later": (CLIENT, 1, LATER_S),
    "another IP a minute later": (OTHER, 1, MINUTE_S),
    "another IP at another server": (OTHER, 2, 0.0),
    "another port an hour later": ((CLIENT[0], 1), 1, LATER_S),
}
PURPOSES = {
    "a lease": [b"t"],
    "a publish": [b"t m"],
    "both": [b"t", b"t m"],
    "a publish lease": [],
}


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("where", SHOWN_FROM)
def test_a_cookie_is_good_for_its_holder_at_its_server_in_its_time_alone(where: str, purpose: str) -> None:
    """§6: whoever shows it elsewhere is a stranger, and gets nothing but a cookie of his own."""
    source, secret, after_s = SHOWN_FROM[where]
    cookie = handshake(new_server())
    server = new_server(secret)
    lease(server, ("192.0.2.9", 1), b"t", now=START + after_s)
    before = server.counts.copy()
    came = send(server, vouched(cookie, *PURPOSES[purpose]), source, START + after_s)
    assert [destination for destination, _ in came] == [source]
    (reply,) = [wire.parse_reply(line) for line in wire.split_lines(came[0][1])[0]]
    assert isinstance(reply, wire.Challenge)
    assert len(server.leases) == 1
    assert not server.publish_leases.left_s(source, START + after_s)
    for name in ("leases_opened", "leases_renewed", "copies_sent", "messages"):
        assert server.counts[name] == before[name], name


def test_nobody_guesses_a_cookie() -> None:
    """Tags at random, and good cookies of which a bit has changed: none of 10,000 is taken."""
    server = new_server(limits=Limits(challenges_per_s=0))
    good = urlsafe_b64decode(handshake(server))
    chance = Random(5)
    for number in range(10_000):
        if number % 2:
            guess = good[:8] + chance.randbytes(16)
        else:
            bit = chance.randrange(8 * len(good))
            guess = (int.from_bytes(good, "big") ^ 1 << bit).to_bytes(len(good), "big")
        (reply,) = answer(server, vouched(urlsafe_b64encode(guess), b"t", b"t m"))
        assert isinstance(reply, wire.Challenge)
    assert len(server.leases) == server.counts["messages"] == 0
    assert server.drops == {Drop.COOKIE_FOREIGN: 10_000}


# --- Names that collide -------------------------------------------------------------------------------


def test_nothing_that_strangers_choose_is_hashed_without_a_secret() -> None:
    """Python hashes numbers as they are, so that anybody could make a table slow; text and bytes it hashes
    with a secret of the process, also within tuples."""
    server = new_server(exempts_loopback=False)
    for address in (CLIENT, OTHER, THIRD, ("127.0.0.1", 5)):
        lease(server, address, b"t", b"u")
        publish(server, b"t m", source=address)
        for data in (ask(), b"%~ P\n", b"t m\n", b"x" * 1300, vouched(b"A" * 32, b"t")):
            send(server, data, address)
    keys = [key for table in _tables_in(server) for key in table]
    assert len(keys) > 50
    for key in keys:
        is_one_of_few = isinstance(key, int) and 0 <= key < 256
        assert is_one_of_few or _has_text(key), f"{key!r} is a key"
    program = "import sys; assert sys.flags.hash_randomization == 1"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    subprocess.run((sys.executable, "-c", program), env=environment, check=True)


def _tables_in(server: Server) -> Iterator[Collection[object]]:
    """Yields all dicts and sets that hang on a server, but those of attributes and of enumerations."""
    seen, waiting = set[int](), list[object]([server])
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (type, ModuleType, FunctionType, Enum)):
            continue
        seen.add(id(each))
        if isinstance(each, (dict, set, frozenset)):
            yield each
        elif hasattr(each, "__dict__"):
            waiting += vars(each).values()
            seen.add(id(vars(each)))
        waiting += [other for other in gc.get_referents(each) if id(other) not in seen]


def _has_text(key: object) -> bool:
    if isinstance(key, tuple):
        return any(map(_has_text, key))
    return isinstance(key, (str, bytes))
