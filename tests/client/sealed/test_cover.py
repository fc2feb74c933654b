from concurrent.futures import Future
from random import Random
from typing import Any

import pytest

pytest.importorskip("nacl")

from kcast.client.driving.arguments import WriteOptions
from kcast.client.driving.protection import Protection
from kcast.client.errors import Backlog, ClientClosed
from kcast.client.events import Delivery, Drop, Gap, Outcome, Published
from kcast.client.messages.guard_and_writer import Guarded
from kcast.client.publishing.waiters import Waiters
from kcast.client.sealed.cover import Cover, Schedule
from kcast.client.sealed.membership import Group, GroupError
from kcast.client.sealed.topics import hidden
from tests.support.client_lab import ALL, PUB, START, SUB, Lab
from tests.support.groups import ALICE, BOB, OWNER
from tests.support.sealed_lines import epoch

UNIX_S = 1_800_000_000.0
T_S = UNIX_S + 20.5  # when the second epoch begins
TOPIC = b"weather/oslo"


def group(*, changes: bool = False, until_s: float = UNIX_S + 86_400) -> Group:
    """A group with one epoch, or with another one from T on."""
    first = epoch()
    if not changes:
        return Group("ops", OWNER.note_key.verifier, (first,), int(until_s))
    object.__setattr__(first, "next_from_unix_s", T_S)
    second = epoch(number=2, private=bytes(range(7, 39)))
    object.__setattr__(second, "topic_secret", bytes(range(64, 96)))
    object.__setattr__(second, "from_unix_s", T_S)
    return Group("ops", OWNER.note_key.verifier, (first, second), int(until_s))


class CoverLab:
    """A client with cover traffic, one that subscribes, and servers; a clock moved by hand."""

    def __init__(self, of: Group | None = None) -> None:
        self.lab = Lab(ALL)
        self.group = of or group()
        self.publisher = self.lab.client(PUB)
        self.subscriber = self.lab.client(SUB, seed=2)
        for client in (self.publisher, self.subscriber):
            client.clock_offset_s = UNIX_S - START
        self.waiters = Waiters()
        self.protection = Protection(self.publisher, ALICE, self.group, START, Random(3).randbytes)
        reading = Protection(self.subscriber, BOB, self.group, START)
        guard = reading.guard([TOPIC], {}, START)
        self.subscriber.subscribe(TOPIC, START, guard=guard)
        self.told: list[Any] = []
        self.run(1.0)

    @property
    def now(self) -> float:
        return self.lab.now

    def cover(self, **options: Any) -> Cover:
        given: Any = {"rate": 1.0, "size": 100, **options}
        return self.protection.cover(TOPIC, given, self.now, self.waiters.put)

    def put(self, cover: Cover, payload: bytes = b"rain") -> "Future[Published]":
        outcome: Future[Published] = Future()
        cover.put(payload, outcome)
        return outcome

    def run(self, for_s: float) -> None:
        """Lets time pass, in turns as an engine makes them."""
        end = self.now + for_s
        while True:
            if self.protection.covers.next_at <= self.now:
                self.protection.covers.look(self.now)
            self.lab.run(0.0)
            for event in self.publisher.events():
                if isinstance(event, Published):
                    self.waiters.tell(event)
            self.told += [
                each.event if isinstance(each, Guarded) else each for each in self.subscriber.events()
            ]
            if self.now >= end:
                return
            times = [
                self.protection.covers.next_at,
                self.publisher.next_timeout(),
                self.subscriber.next_timeout(),
            ]
            self.lab.now = max(self.now, min([end, *(time for time in times if time is not None)]))

    def lines(self) -> list[bytes]:
        """The sealed lines that have left since the last call, each once."""
        return list(dict.fromkeys(line for _, line in self.lab.lines() if b";S=" in line))

    def deliveries(self) -> list[tuple[int | None, bytes]]:
        return [(each.seq, each.payload) for each in self.told if isinstance(each, Delivery)]


# --- Ticks ----------------------------------------------------------------------------------------------


def test_ticks_never_move() -> None:
    schedule = Schedule(100.0, 3.0)
    times = []
    for number in range(30_000):
        at = schedule.next_at
        assert at == 100.0 + number / 3.0
        times.append(at)
        assert schedule.take(at + 0.1)  # each a little late
        assert not schedule.take(at + 0.1)
    assert schedule.skipped == 0


def test_a_late_tick_is_skipped_and_never_made_up() -> None:
    schedule = Schedule(100.0, 2.0)
    assert not schedule.take(99.9)
    assert schedule.take(100.0)
    assert schedule.take(103.2)  # those of 100.5 to 102.5 are lost, and that of 103.0 is late
    assert schedule.skipped == 5
    assert not schedule.take(103.4)
    assert schedule.next_at == 103.5


@pytest.mark.parametrize("rate", [0.1, 1 / 3, 0.7, 7.0, 99.9, 1000.0])
def test_whatever_the_rate_and_however_late_no_tick_comes_twice_or_early(rate: float) -> None:
    rng, start = Random(1), 123_456.789
    schedule, now, taken = Schedule(start, rate), start, 0
    for _ in range(2_000):
        due = schedule.next_at
        assert schedule.take(now) == (due <= now)
        taken += due <= now
        assert now < schedule.next_at <= now + 1.000001 / rate
        now = rng.choice((schedule.next_at, now + rng.random() * 5 / rate))
    assert round((schedule.next_at - start) * rate) == taken + schedule.skipped


# --- Lines ----------------------------------------------------------------------------------------------


def test_one_line_leaves_each_tick_of_one_size_and_a_message_where_one_waits() -> None:
    lab = CoverLab()
    cover = lab.cover()
    first = lab.put(cover, b"")
    lab.run(2.5)
    second, third = lab.put(cover, b"x" * 100), lab.put(cover)
    lab.run(3.0)
    lines = lab.lines()
    assert len(lines) == 6  # at 0, 1, ... 5 s
    assert len({len(line) for line in lines}) == 1
    assert [line.split(b";")[0].rpartition(b".")[2] for line in lines] == [b"%d" % n for n in range(1, 7)]
    assert lab.deliveries() == [(1, b""), (2, b"x" * 100), (3, b"rain")]
    assert not any(isinstance(each, Gap) for each in lab.told)
    assert lab.subscriber.drops[Drop.COVER] == 3
    assert {each.result(0).seq for each in (first, second, third)} == {1, 4, 5}
    assert set(first.result().servers.values()) == {Outcome.RECEIPT}
    assert cover.waiting == 0


def test_a_lost_dummy_is_nothing_and_a_lost_message_is_a_gap() -> None:
    lab = CoverLab()
    cover = lab.cover(confirm=False)

    def lose(payload: bytes | None) -> None:
        lab.lab.down = set(lab.lab.servers)
        if payload is not None:
            lab.put(cover, payload)
        lab.run(10.0)
        lab.lab.down = set()
        lab.run(20.0)

    for number in range(1, 5):
        lab.put(cover, b"%d" % number)
        lab.run(5.0)
        if number == 2:
            lose(None)
    assert lab.deliveries() == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]
    assert not any(isinstance(each, Gap) for each in lab.told)
    lose(b"5")
    for payload in (b"6", b"7", b"8"):
        lab.put(cover, payload)
    lab.run(120.0)
    assert lab.deliveries()[4:] == [(6, b"6"), (7, b"7"), (8, b"8")]
    (gap,) = [each for each in lab.told if isinstance(each, Gap)]
    assert (gap.first_seq, gap.last_seq) == (5, 5)


def test_numbers_go_on_when_cover_traffic_begins_and_ends() -> None:
    lab = CoverLab()

    def publish(payload: bytes) -> None:
        writer = lab.protection.writer(WriteOptions(sign=None), lab.now)
        lab.publisher.publish(TOPIC, payload, lab.now, writer=writer)
        lab.run(0.25)

    publish(b"before")
    cover = lab.cover()
    lab.run(3.0)
    lab.put(cover, b"covered")
    lab.run(1.0)
    cover.close()
    publish(b"after")
    cover = lab.cover()
    lab.put(cover, b"again")
    lab.run(30.0)
    assert lab.deliveries() == [(1, b"before"), (2, b"covered"), (3, b"after"), (4, b"again")]
    assert not any(isinstance(each, Gap) for each in lab.told)


def test_the_stream_goes_on_in_the_next_epoch_at_the_next_tick() -> None:
    lab = CoverLab(group(changes=True))
    cover = lab.cover()
    lab.run(UNIX_S + 20 - (lab.now + lab.publisher.clock_offset_s))
    before = {line.split(b" ")[0] for line in lab.lines()}
    lab.put(cover, b"in the next epoch")
    lab.run(2.0)
    after = lab.lines()
    assert before == {hidden(lab.group.epochs[0].topic_secret, TOPIC)}
    assert {line.split(b" ")[0] for line in after} == {hidden(lab.group.epochs[1].topic_secret, TOPIC)}
    assert [line.split(b";")[0].rpartition(b".")[2] for line in after] == [b"1", b"2"]
    assert lab.deliveries() == [(1, b"in the next epoch")]
    assert cover.skipped == 0


# --- What cannot be ---------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_takes_again_after_a_tick() -> None:
    lab = CoverLab()
    cover = lab.cover(queue_max=2)
    lab.put(cover)
    lab.put(cover)
    with pytest.raises(Backlog, match="2 messages wait for their tick"):
        lab.put(cover)
    lab.run(0.1)
    lab.put(cover)
    assert cover.waiting == 2


def test_who_waits_when_it_ends_is_told() -> None:
    lab = CoverLab()
    cover = lab.cover()
    lab.run(0.5)
    outcome = lab.put(cover)
    cover.close()
    with pytest.raises(ClientClosed, match="ended before the message's tick"):
        outcome.result(0)
    with pytest.raises(ClientClosed, match="has ended"):
        lab.put(cover)
    lab.lines()
    lab.run(5.0)
    assert lab.lines() == []
    assert lab.protection.covers.next_at == float("inf")


def test_where_the_group_has_ended_nothing_leaves_and_who_waits_is_told() -> None:
    lab = CoverLab(group(until_s=UNIX_S + 5))
    cover = lab.cover()
    lab.run(4.5)
    outcome = lab.put(cover)
    lab.lines()
    lab.run(2.0)
    with pytest.raises(GroupError, match="nothing was sent"):
        outcome.result(0)
    assert lab.lines() == []
    assert cover.skipped == 3
    cover.close()
    with pytest.raises(GroupError):
        lab.cover()


def test_all_else_on_its_topic_is_refused_in_its_group() -> None:
    lab = CoverLab()
    cover = lab.cover()
    writer = lab.protection.writer(WriteOptions(), lab.now)
    with pytest.raises(ValueError, match="stand out"):
        lab.protection.covers.refuse(TOPIC, writer)
    lab.protection.covers.refuse(b"another", writer)
    with pytest.raises(ValueError, match="stand out"):
        lab.cover()
    for clear in (WriteOptions(seal=False), WriteOptions(seal=False, sign=False)):
        lab.protection.covers.refuse(TOPIC, lab.protection.writer(clear, lab.now))
    cover.close()
    lab.protection.covers.refuse(TOPIC, writer)
    lab.cover(plain_topic=True)
    with pytest.raises(ValueError, match="stand out"):
        lab.protection.covers.refuse(TOPIC, None)


def test_the_largest_size_fits_with_the_largest_number() -> None:
    lab = CoverLab()
    with pytest.raises(ValueError, match="at most") as caught:
        lab.cover(size=10_000)
    fits = int(str(caught.value).split("at most ")[1].split()[0])
    cover = lab.cover(size=fits)
    (process,) = cover.writer._processes.values()
    process.numbering.use(hidden(lab.group.epochs[0].topic_secret, TOPIC), 10**18 - 2)
    lab.put(cover, b"x" * fits)
    lab.run(0.5)
    ((_, payload),) = lab.deliveries()
    assert payload == b"x" * fits
