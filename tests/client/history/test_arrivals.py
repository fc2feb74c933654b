"""client/history/arrivals.py: what counts, and when, beside a model."""

from collections.abc import Sequence
from random import Random

from kcast.client.history import arrivals
from kcast.client.history.arrivals import Arrivals
from kcast.client.history.entries import Row
from kcast.client.history.ids import id_of

BASE = 1_790_000_000_000_000


def row(number: int, parents: Sequence[bytes] = (), size: int = 10) -> Row:
    return Row(id_of(BASE + number, b"t", b""), "p", number + 1, b"m" * size, parents=parents)


class Log:
    """What has come to count, in order."""

    def __init__(self) -> None:
        self.counted: list[Row] = []
        self.ids: set[bytes] = set()
        self.lost: list[Row] = []
        self.arrivals = Arrivals(self.ids.__contains__, self.take, self.lost.append)

    def take(self, each: Row) -> None:
        assert each.entry_id not in self.ids, "once"
        self.ids.add(each.entry_id)
        self.counted.append(each)


def some(rng: Random, count: int) -> list[Row]:
    made: list[Row] = []
    for number in range(count):
        near = [each.entry_id for each in made[-8:]]
        made.append(row(number, rng.sample(near, min(len(near), rng.randrange(4)))))
    return made


def test_in_any_order_all_count_after_their_parents() -> None:
    rng = Random(1)
    for _ in range(30):
        log, made = Log(), some(rng, 60)
        for each in rng.sample(made, len(made)):
            log.arrivals.come(each, 0.0)
        assert log.ids == {each.entry_id for each in made} and not len(log.arrivals)
        place = {each.entry_id: at for at, each in enumerate(log.counted)}
        for each in made:
            assert all(place[parent] < place[each.entry_id] for parent in each.parents)
        assert not any(each.is_orphan for each in log.counted) and log.arrivals.next_at == float("inf")


def test_what_never_comes_is_asked_for_and_then_done_without() -> None:
    log, made = Log(), [row(number) for number in range(5)]
    ids = [each.entry_id for each in made]
    log.arrivals.come(row(4, ids[2:4]), 0.0)
    log.arrivals.come(row(3, ids[:3]), 1.0)
    assert log.arrivals.next_at == 0.5 and log.arrivals.handle_timeout(0.4) == []
    assert log.arrivals.handle_timeout(0.5) == [(ids[2], ids[2])] and log.arrivals.handle_timeout(0.6) == []
    log.arrivals.come(made[1], 1.2)
    assert log.arrivals.next_at <= 1.5 and log.arrivals.handle_timeout(1.5) == [(ids[0], ids[2])]
    assert log.arrivals.handle_timeout(9.9) == []
    assert [each.entry_id for each in log.counted] == [ids[1]]
    log.arrivals.handle_timeout(10.0)
    assert [each.entry_id for each in log.counted[1:]] == [ids[4]] and log.counted[1].is_orphan
    log.arrivals.come(made[2], 10.5)
    log.arrivals.handle_timeout(11.0)
    assert [(each.entry_id, each.is_orphan) for each in log.counted[2:]] == [(ids[2], False), (ids[3], True)]


def test_those_that_are_done_waiting_at_once_count_after_their_parents() -> None:
    log, ids = Log(), [row(number).entry_id for number in range(5)]
    log.arrivals.come(row(4, [ids[3], ids[1]]), 0.0)
    log.arrivals.come(row(3, [ids[2]]), 0.0)
    log.arrivals.come(row(2, [ids[0]]), 0.0)
    log.arrivals.handle_timeout(10.0)
    assert [(each.entry_id, each.is_orphan) for each in log.counted] == [
        (ids[2], True),
        (ids[3], False),
        (ids[4], True),
    ]


def test_what_nobody_has_is_done_without_once_others_have_had_time_to_speak() -> None:
    log, made = Log(), [row(number) for number in range(8)]
    ids = [each.entry_id for each in made]
    log.arrivals.come(row(4, [ids[0], ids[3]]), 0.0)
    log.arrivals.come(row(3, [ids[1]]), 0.0)
    log.arrivals.come(row(5, [ids[2], ids[4]]), 0.0)
    assert log.arrivals.handle_timeout(0.4, ids[2]) == [] and not log.counted
    assert log.arrivals.handle_timeout(0.5, ids[2]) == [(ids[2], ids[2])]
    assert [each.entry_id for each in log.counted] == [ids[3], ids[4]]
    assert not any(each.is_orphan for each in log.counted)
    log.arrivals.handle_timeout(log.arrivals.next_at, ids[3])
    assert log.counted[2:] == [row(5, [ids[2], ids[4]])], "others have told of a floor later"
    log.arrivals.come(made[0], 2.0)
    assert log.counted[3] == made[0], "below that bound, but there it is"


def test_what_was_refused_is_waited_for_by_none_whichever_comes_first() -> None:
    log, made = Log(), [row(number) for number in range(4)]
    ids = [each.entry_id for each in made]
    log.arrivals.come(row(2, ids[:2]), 0.0)
    log.arrivals.refuse(ids[0])
    assert not log.counted
    log.arrivals.refuse(ids[1])
    log.arrivals.come(row(3, ids[:1]), 0.0)
    assert [(each.entry_id, each.is_orphan) for each in log.counted] == [(ids[2], False), (ids[3], False)]
    for number in range(4, arrivals.REFUSED_MAX + 4):
        log.arrivals.refuse(row(number).entry_id)
    log.arrivals.come(row(2000, ids[:1]), 0.0)
    assert len(log.arrivals) == 1, "not for ever: another one may have it, and be right"


def test_of_a_chain_only_what_has_not_come_is_asked_for() -> None:
    log, made = Log(), [row(0)]
    for number in range(1, 100):
        made.append(row(number, [made[-1].entry_id]))
    for number, each in enumerate(made):
        if number not in (3, 50):
            log.arrivals.come(each, 0.0)
    assert log.arrivals.handle_timeout(0.5) == [(made[at].entry_id, made[at].entry_id) for at in (3, 50)]


def test_bounds_hold_and_the_largest_ids_leave_first() -> None:
    log, unknown = Log(), row(0).entry_id
    for number in range(1, 3000):
        log.arrivals.come(row(number, [unknown]), 0.0)
    assert len(log.arrivals) == arrivals.WAITING_MAX
    assert row(1).entry_id in log.arrivals and row(2999).entry_id not in log.arrivals
    assert {each.seq for each in log.lost} == set(range(arrivals.WAITING_MAX + 2, 3001))
    for number in range(5000, 5100):
        log.arrivals.come(row(number, [unknown], 100_000), 0.0)
    assert len(log.arrivals) <= arrivals.WAITING_MAX
    log.arrivals.come(row(0), 0.0)
    assert [each.seq for each in log.counted] == list(range(1, len(log.counted) + 1))


def test_a_floor_that_rises_makes_parents_needless_and_entries_unwanted() -> None:
    log, made = Log(), [row(number) for number in range(6)]
    ids = [each.entry_id for each in made]
    log.arrivals.come(row(5, [ids[1]]), 0.0)
    log.arrivals.come(row(4, [ids[0], ids[3]]), 0.0)
    log.arrivals.come(row(2, [ids[0]]), 0.0)
    log.arrivals.rise(ids[3])
    assert [each.entry_id for each in log.counted] == [ids[5]] and made[2].entry_id not in log.arrivals
    log.arrivals.come(row(3, [ids[0]]), 0.0)
    assert [each.entry_id for each in log.counted[1:]] == [ids[3], ids[4]]
    log.arrivals.rise(ids[0])
    assert not len(log.arrivals)
