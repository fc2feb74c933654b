"""client/cli/telling.py: what `kcast sub` and `pub` say of peers stays within bounds."""

import asyncio
import heapq
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kcast.client.cli import pub, sub
from kcast.client.cli.protection import Credentials, Writing
from kcast.client.cli.telling import Telling
from kcast.client.cluster import lab
from kcast.client.driving.event_log import BURST, INTERVAL_S
from kcast.client.events import (
    AllServersLost,
    ClockDoubt,
    Event,
    FamilyMissing,
    Forged,
    Gap,
    GapFilled,
    GroupTrouble,
    LeaseRefused,
    LeasesChanged,
    ListTrouble,
    MachineSuspended,
    ServerDraining,
    ServerForgot,
    ServerLost,
    ServerReturned,
)


class Loop:
    """An event loop's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._cancelled: set[int] = set()
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.call_at(self.now + delay_s, function, *arguments)

    def call_at(self, at: float, function: Callable[..., Any], *arguments: Any) -> Any:
        self._count += 1
        number = self._count
        heapq.heappush(self._calls, (at, number, function, arguments))
        return SimpleNamespace(cancel=lambda: self._cancelled.add(number))

    def run_until(self, end: float) -> None:
        while self._calls and self._calls[0][0] <= end:
            self.now, number, function, arguments = heapq.heappop(self._calls)
            if number not in self._cancelled:
                function(*arguments)
        self.now = end


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    fake = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: fake)
    return fake


Lines = Callable[[], list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    return lambda: capsys.readouterr().err.splitlines()


def test_the_last_of_too_many_is_said_a_while_later(loop: Loop, lines: Lines) -> None:
    telling = Telling("sub")
    for number in range(100):
        telling.tell("lost", f"lost {number}\x1b")
    assert lines() == [f"kcast sub: lost {number}\\x1b" for number in range(BURST)]
    loop.run_until(2 * INTERVAL_S)
    assert lines() == [f"kcast sub: lost 99\\x1b (and {99 - BURST} more like this)"]
    loop.run_until(100.0)
    assert lines() == []


def test_the_end_says_what_was_withheld(loop: Loop, lines: Lines) -> None:
    telling = Telling("pub")
    for number in range(BURST + 1):
        telling.tell("lost", f"lost {number}")
    telling.end()
    assert lines()[-1] == f"kcast pub: lost {BURST}"
    loop.run_until(100.0)
    assert lines() == []


SERVER = "127.0.0.1:7401"
PLENTY: list[Event] = [
    LeaseRefused(b"t", SERVER, "work"),
    ServerForgot(SERVER),
    ServerLost(SERVER, "price"),
    ServerReturned(SERVER),
    AllServersLost(1),
    ServerDraining(SERVER),
    Gap(b"t", "p" * 43, 10**15, 10**15 + 3),
    GapFilled(b"t", "p" * 43, 10**15 + 2),
    MachineSuspended(3600.0),
    FamilyMissing(SERVER, 6),
    ListTrouble("example.org/lab", "rollback", "it is older than what this machine has seen", 3),
    GroupTrouble("ops", "stale", "it ends on 2027-01-15 08:00:00 UTC"),
    ClockDoubt(b"t", "k" * 43, -86_400.0),
    Forged(b"t", 100_000.0),
    Forged(b"t", 100_000.0, "k" * 43),
    LeasesChanged(b"t", 1, 1),
    LeasesChanged(b"t", 0, 1),
]


def watcher(*topics: bytes) -> Any:
    client = SimpleNamespace(
        cluster=lab([("127.0.0.1", 7401)]),
        server_states={SERVER: "alive"},
        drops={},
        kernel_drops=0,
        core=SimpleNamespace(sessions=SimpleNamespace(asked_at=lambda: {SERVER: (SERVER,)})),
    )
    subscription = SimpleNamespace(leases=(0, len(topics)))
    stand_ins: tuple[Any, Any] = client, subscription
    return sub._Watcher(stand_ins[0], stand_ins[1], list(topics), Telling("sub"), Credentials())


def test_leases_of_many_topics_are_one_line_also_later(loop: Loop, lines: Lines) -> None:
    topics = [b"s/%d" % number for number in range(300)]
    watching = watcher(*topics)

    def told(leased: int, some: list[bytes]) -> list[str]:
        for topic in some:
            watching._tell(LeasesChanged(topic, leased, 1))
        loop.run_until(loop.now + 100.0)
        return lines()

    assert told(1, topics) == ["kcast sub: leased on 1 of 1 servers for 300 topics"]
    assert told(0, topics[:40]) == [
        "kcast sub: leased on 1 of 1 servers for 260 topics, on 0 of 1 servers for 40 topics"
    ]
    assert told(1, topics[:40]) == ["kcast sub: leased on 1 of 1 servers for 300 topics"]


BYTES_PER_MINUTE_MAX = 4096


def test_an_evil_server_gets_few_lines_onto_a_subscribers_terminal(loop: Loop, lines: Lines) -> None:
    """It was 68 kB in 6 s. Here ten of each kind come a second."""
    watching = watcher(b"t")
    for minute in range(3):
        for number in range(600):
            loop.run_until(60 * minute + number / 10)
            for event in PLENTY:
                watching._tell(event)
        said = lines()
        assert len(said) <= (6 if minute else BURST + 7)
        assert sum(len(line) + 1 for line in said) <= BYTES_PER_MINUTE_MAX
    watching.report_drops()
    assert len(lines()) <= len(PLENTY)


def test_gaps_are_summed_up(loop: Loop, lines: Lines) -> None:
    watching = watcher(b"t")
    for number in range(BURST + 3):
        watching._tell(Gap(b"t", "p", 10 * number, 10 * number + 4))
    loop.run_until(2 * INTERVAL_S)
    told = lines()
    assert told[:BURST] == [
        f"kcast sub: missing messages {10 * number} to {10 * number + 4} of p" for number in range(BURST)
    ]
    assert told[BURST:] == ["kcast sub: missing messages 220 to 224 of p; in all 15 messages in 3 gaps"]


def test_how_leases_stand_in_the_end_is_said(loop: Loop, lines: Lines) -> None:
    watching = watcher(b"t")
    for number in range(200):
        watching._tell(LeasesChanged(b"t", 0, 1))
        loop.run_until(2.0 * number + 1.5)
        watching._tell(LeasesChanged(b"t", 1, 1))
        loop.run_until(2.0 * number + 2)
    watching._tell(LeasesChanged(b"t", 0, 1))
    loop.run_until(1000.0)
    assert lines()[-1].startswith("kcast sub: leased on 0 of 1")


def test_a_suspension_is_told(loop: Loop, lines: Lines) -> None:
    watcher(b"t")._tell(MachineSuspended(3600.4))
    assert lines() == ["kcast sub: this machine was suspended for 3600 s, and heard nothing"]
    written = Writing(Credentials(), {}, b"t")
    publisher = pub._Publisher(lab([("127.0.0.1", 7401)]), b"t", 1, 0.0, False, None, written)
    no_client: Any = None  # this event is told without asking it
    text = publisher._text(no_client, MachineSuspended(3600.4))
    assert text == "this machine was suspended for 3600 s, and published nothing"
