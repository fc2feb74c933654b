"""What clients counted agrees with `deliver` in a sound capture, and not in one that was tampered with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, LOST
from kcast.loadtest.results.copy_counts import Miscounts
from kcast.loadtest.results.health import examine
from kcast.loadtest.results.summary import summarise
from tests.loadtest.results.test_health import sound_world
from tests.support.handmade_capture import MS, T0, S, World

Change = Callable[[World], None]
WARM_UPS = 5
FIRST, SECOND = 100, 101  # the clients of the two subscribers


def counting_world(path: Path, **fields: Any) -> World:
    """A sound run, in which the first subscriber got copies of warm-ups beforehand."""
    world = sound_world(path, **fields)
    for _ in range(WARM_UPS):
        world.add("server_rx", server_id=0, boot_id=100, msg_id=-1, t_rx_ns=T0 - 4 * S)
    for row in readings(world, FIRST):
        row["copies"] += WARM_UPS
    return world


def readings(world: World, client: int) -> list[dict[str, Any]]:
    return world.where("client_stat", client_id=client)


def found(world: World) -> Miscounts:
    health = examine(world.folder())
    return Miscounts(*(getattr(health, name) for name in Miscounts._fields))


# --- Sound captures ----------------------------------------------------------------------------------


def unchanged(world: World) -> None:
    pass


def copies_that_did_not_come(world: World) -> None:
    """The load test lost them, or cut them off: they are in `deliver`, and no client counts them."""
    for fate in (LOST, CUT_OFF):
        row = world.rows["deliver"][0]
        world.rows["deliver"] += [row | {"injected": fate}] * 3


def extra_copies(world: World) -> None:
    row = world.where("deliver", sub_id=1)[-1]
    world.rows["deliver"] += [row | {"injected": DUPLICATE}] * 3
    for row in readings(world, SECOND)[9:]:
        row["copies"] += 3


def copies_after_the_last_reading(world: World) -> None:
    world.deliver(0, 0, 0, T0 + 13 * S + 1)


def copies_that_the_last_reading_may_lack(world: World) -> None:
    """The process stood still for 20 ms at most, once a second."""
    world.deliver(0, 0, 0, T0 + 13 * S - 520 * MS + 1)
    world.deliver(0, 0, 1, T0 + 13 * S - 1)
    readings(world, SECOND)[-1]["copies"] += 1


def late_copies_of_warm_ups(world: World) -> None:
    """The first subscriber got the last of them shortly before the load, so others may come after it."""
    for row in readings(world, FIRST)[:3]:
        row["copies"] = 0
    readings(world, FIRST)[3]["copies"] = 2


def late_copies_that_came_twice(world: World) -> None:
    late_copies_of_warm_ups(world)
    world.scenario = world.scenario.with_(duplicate=0.5)
    for row in readings(world, FIRST)[4:]:
        row["copies"] += WARM_UPS


def no_reading_before_the_load(world: World) -> None:
    rows_lost(world)
    world.rows["client_stat"] = [row for row in world.rows["client_stat"] if row["t_ns"] > T0]


def no_window(world: World) -> None:
    rows_lost(world)
    world.rows["window"].clear()


def nobody_knows_of_warm_ups(world: World) -> None:
    rows_lost(world)
    world.drop("server_rx", msg_id=-1)


def the_recorder_lost_rows(world: World) -> None:
    rows_lost(world)
    world.rows["process_stat"][-1]["rows_lost"] = 10


def the_tap_lost_lines(world: World) -> None:
    rows_lost(world)
    world.rows["server_life"][0]["lost_lines"] = 1


def no_readings(world: World) -> None:
    rows_twice(world)
    world.rows["client_stat"].clear()


def numbers_that_were_used_again(world: World) -> None:
    for client, sub in ((FIRST, 0), (SECOND, 1)):
        world.add("member", client_id=client, pub_id=-1, sub_id=sub, t_ns=T0 + 5 * S)
        for row in readings(world, client)[8:]:
            row.update(copies=0, deliveries=0, duplicates=0)


def servers_of_someone_else(world: World) -> None:
    rows_twice(world)
    world.scenario = world.scenario.with_(backend="file")


def test_no_objection(tmp_path: Path) -> None:
    changes: list[Change] = [
        *(unchanged, copies_that_did_not_come, extra_copies),
        *(copies_after_the_last_reading, copies_that_the_last_reading_may_lack),
        *(late_copies_of_warm_ups, late_copies_that_came_twice, no_reading_before_the_load, no_window),
        *(nobody_knows_of_warm_ups, the_recorder_lost_rows, the_tap_lost_lines, no_readings),
        *(numbers_that_were_used_again, servers_of_someone_else),
    ]
    for change in changes:
        world = counting_world(tmp_path / change.__name__)
        change(world)
        assert found(world) == Miscounts(), change.__name__
    assert summarise(counting_world(tmp_path / "sound").folder()).delivery_verdict.reasons == ()


# --- Captures that were tampered with ----------------------------------------------------------------


def rows_lost(world: World) -> None:
    for row in world.where("deliver", sub_id=1)[200:207]:
        world.rows["deliver"].remove(row)


def all_rows_of_a_subscriber_lost(world: World) -> None:
    world.drop("deliver", sub_id=0)


def rows_twice(world: World) -> None:
    world.rows["deliver"] += world.where("deliver", sub_id=0)[50:53]


def rows_of_both_moved(world: World) -> None:
    for row in world.where("deliver", sub_id=0)[50:53]:
        row["sub_id"] = 1


def counted_less(world: World) -> None:
    """No less than the reading before, since all has come by then."""
    for row in readings(world, SECOND)[9:]:
        row["copies"] -= 4
        row["duplicates"] -= 4


def counted_more(world: World) -> None:
    readings(world, SECOND)[-1]["copies"] += 1


def counted_more_before_the_load(world: World) -> None:
    for row in readings(world, FIRST)[:4]:
        row["copies"] += 1


def a_reading_less_than_the_one_before(world: World) -> None:
    readings(world, FIRST)[6]["copies"] = 3
    readings(world, FIRST)[6].update(deliveries=0, duplicates=0)


def more_deliveries_than_copies(world: World) -> None:
    readings(world, SECOND)[6]["deliveries"] += 1


def more_than_late_warm_ups(world: World) -> None:
    late_copies_of_warm_ups(world)
    readings(world, FIRST)[-1]["copies"] += 4  # three of the five warm-ups came late; all five might have


TAMPERED: dict[Change, Miscounts] = {
    rows_lost: Miscounts(7, 0, 0, (SECOND,)),
    all_rows_of_a_subscriber_lost: Miscounts(1200, 0, 0, (FIRST,)),
    rows_twice: Miscounts(0, 3, 0, (FIRST,)),
    rows_of_both_moved: Miscounts(3, 3, 0, (FIRST, SECOND)),
    counted_less: Miscounts(0, 4, 0, (SECOND,)),
    counted_more: Miscounts(1, 0, 0, (SECOND,)),
    counted_more_before_the_load: Miscounts(0, 1, 0, (FIRST,)),
    a_reading_less_than_the_one_before: Miscounts(0, 0, 1, (FIRST,)),
    more_deliveries_than_copies: Miscounts(0, 0, 1, (SECOND,)),
    more_than_late_warm_ups: Miscounts(2, 0, 0, (FIRST,)),
}


def test_what_was_tampered_with_is_found_and_is_not_valid(tmp_path: Path) -> None:
    for change, miscounts in TAMPERED.items():
        world = counting_world(tmp_path / change.__name__)
        change(world)
        summary = summarise(world.folder())
        health = (getattr(summary.health, name) for name in Miscounts._fields)
        assert Miscounts(*health) == miscounts, change.__name__
        reasons = summary.delivery_verdict.reasons
        told = [reason for reason in reasons if "client_stat and deliver do not agree" in reason]
        assert len(told) == 1, change.__name__
        for client in miscounts.miscounted:
            assert str(client) in told[0]


def test_few_of_many_clients_are_named(tmp_path: Path) -> None:
    world = counting_world(tmp_path, subscribers=6)
    for client in range(100, 106):
        for at_s in (13, 14):
            copies = 1200 if at_s == 14 else 1201
            world.add("client_stat", client_id=client, t_ns=T0 + at_s * S + 1, copies=copies)
    (reason,) = summarise(world.folder()).delivery_verdict.reasons
    assert "do not agree about clients 100, 101, 102 and others (" in reason


def test_a_capture_that_ends_early_is_not_held_against_it(tmp_path: Path) -> None:
    world = counting_world(tmp_path)
    rows_lost(world)
    world.status = "partial"
    (reason,) = summarise(world.folder()).delivery_verdict.reasons
    assert "the capture is partial" in reason
