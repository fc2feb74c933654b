"""Each cause from a capture made by hand; that whole runs come out right; and that sabotage is found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kcast.loadtest.capture.schema import CUT_OFF, DUPLICATE, EVICTED, EXPIRED, LOST, OPENED, PASSED
from kcast.loadtest.results.attribution import Attribution, attribute
from kcast.loadtest.results.causes import (
    EDGE_NS,
    MEANINGS,
    SHORTCOMINGS,
    TAP_UNWRITTEN_NS,
    UNEXPLAINED,
    Cause,
)
from kcast.loadtest.scenario import Scenario
from tests.support.broken_attributions import BROKEN, Breaks
from tests.support.handmade_capture import MS, T0, Handmade, S, World, simulate


def cause_of(attribution: Attribution, msg: int, sub: int = 0) -> Cause:
    (index,) = np.flatnonzero((attribution.msg_ids == msg) & (attribution.sub_ids == sub))
    return Cause(attribution.causes[index])


def test_what_came_is_delivered_with_its_latency(tmp_path: Path) -> None:
    world = World(tmp_path)
    msg = world.message(0, 1)
    world.deliver(msg, 1, 0, T0 + S + 2_500_000, DUPLICATE)
    result = attribute(world.folder())
    assert len(result) == 2
    assert result.misses == {}
    assert result.latencies_ns.tolist() == [2_500_000, 3 * MS]  # from the time intended to the first copy
    assert result.copies == 5
    # Of each pair the two paths that were used, and the server that was not drawn.
    assert result.paths == {Cause.DELIVERED: 4, Cause.DRAW: 2}


def test_pairs_are_what_was_intended_while_the_subscriber_listened(tmp_path: Path) -> None:
    world = World(tmp_path, topics=2, topics_per_subscriber=1)
    world.drop("intent", sub_id=1)
    world.where("intent", sub_id=0, topic_id=0)[0].update(t_from_ns=T0 + S, t_to_ns=T0 + 2 * S)
    world.drop("intent", sub_id=0, topic_id=1)
    due = [world.message(0, at_s=at_s) for at_s in (0.999, 1.0, 1.999, 2.0)][1:3]
    world.message(0, at_s=1.5, topic=1)
    world.message(0, at_s=1.5)
    world.rows["publish"][-1]["msg_id"] = -5  # of a warm-up
    assert attribute(world.folder()).msg_ids.tolist() == due
    # A second window that holds them again makes no second pairs.
    world.add("intent", sub_id=0, topic_id=0, t_from_ns=T0, t_to_ns=T0 + 10 * S)
    assert len(attribute(world.folder())) == 4


def test_nothing_at_all_is_no_pairs(tmp_path: Path) -> None:
    result = attribute(Handmade(tmp_path, Scenario()).folder())
    assert len(result) == 0
    assert (result.misses, result.paths, result.copies, result.unexplained) == ({}, {}, 0, 0)


# --- Each cause ------------------------------------------------------------------------------------------


def breaks(cause: Cause, **fields: Any) -> Callable[[Breaks], Breaks]:
    def enter(function: Breaks) -> Breaks:
        BROKEN[function.__name__] = cause, fields, function
        return function

    return enter


def both(world: World, msg: int, injected: int = PASSED) -> None:
    for server in (0, 1):
        world.lose_in(msg, server, injected)


def missed(world: World, msg: int, injected: int) -> None:
    for row in world.where("deliver", msg_id=msg, sub_id=0):
        row["injected"] = injected


def not_forwarded(world: World, msg: int) -> None:
    for server in (0, 1):
        world.lose_out(msg, server, 0)


def tx_ns(world: World, msg: int) -> int:
    return int(world.where("pub_tx", msg_id=msg)[0]["t_tx_ns"])


@breaks(Cause.UNSENT)
def never_sent(world: World, msg: int) -> None:
    both(world, msg)
    world.drop("pub_tx", msg_id=msg)


@breaks(Cause.UNSENT, scheme="CH")
def sent_nowhere_that_both_use(world: World, msg: int) -> None:
    both(world, msg)
    world.drop("pub_tx", msg_id=msg)
    world.drop("subscribe", sub_id=0, server_id=2)
    world.add("pub_tx", msg_id=msg, server_id=2, t_tx_ns=T0 + S)


@breaks(Cause.VIEW)
def views_without_a_common_server(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    world.where("member", sub_id=0)[0]["servers"] = [2]
    for server in (0, 1):
        world.drop("subscribe", sub_id=0, server_id=server)


@breaks(Cause.DRAW, scheme="R", servers=36)  # 18 and 18 of them
def drawn_apart(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for server in (0, 1):
        world.drop("subscribe", sub_id=0, server_id=server)


@breaks(Cause.VIEW, scheme="R", servers=40)
def drawn_apart_for_want_of_knowing(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for server in range(19):  # all that it has leases of
        world.drop("subscribe", sub_id=0, server_id=server)
    world.where("member", sub_id=0)[0]["servers"] = list(range(19, 40))


@breaks(Cause.DRAW, scheme="R", servers=40)
def views_that_differ_and_yet_a_draw(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for server in range(19):
        world.drop("subscribe", sub_id=0, server_id=server)
    world.where("member", sub_id=0)[0]["servers"] = [1, *range(19, 40)]


@breaks(Cause.UNASKED)
def no_lease_was_asked(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for server in (0, 1):
        world.drop("subscribe", sub_id=0, server_id=server)


@breaks(Cause.UNASKED)
def the_lease_was_asked_too_late(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for row in world.where("subscribe", sub_id=0):
        row["t_tx_ns"] = T0 + S + 3 * MS


@breaks(Cause.NETWORK_OUT)
def the_lease_was_asked_in_time(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for row in world.where("subscribe", sub_id=0):
        row["t_tx_ns"] = T0 + S + 2 * MS


@breaks(Cause.UNASKED)
def sent_to_all_that_it_knew(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    world.lose_in(msg, 1)
    world.drop("pub_tx", msg_id=msg, server_id=1)
    for row in world.rows["member"]:
        row["servers"] = [0]
    world.drop("subscribe", sub_id=0)


@breaks(Cause.DOWN)
def cut_off(world: World, msg: int) -> None:
    both(world, msg, CUT_OFF)


@breaks(Cause.DOWN, by="kill")
def killed(world: World, msg: int) -> None:
    both(world, msg)
    for server in (0, 1):
        at_ns = tx_ns(world, msg) - 10 * MS
        world.add("outage", server_id=server, t_down_ns=at_ns, t_up_ns=at_ns + S, kind="kill")


@breaks(Cause.DOWN, by="kill")
def killed_before_the_tap_was_written(world: World, msg: int) -> None:
    both(world, msg)
    at_ns = tx_ns(world, msg)
    for server in (0, 1):
        world.where("server_life", server_id=server)[0].update(t_to_ns=at_ns - MS, ended=0)
        world.add("outage", server_id=server, t_down_ns=at_ns + S, t_up_ns=at_ns + 2 * S, kind="kill")


@breaks(Cause.DOWN, by="stall")
def halted_and_its_socket_full(world: World, msg: int) -> None:
    both(world, msg)
    for server in (0, 1):
        world.add("outage", server_id=server, t_down_ns=T0 + S, t_up_ns=T0 + 2 * S, kind="stall")
        world.add("server_stat", server_id=server, t_ns=T0 + S, kernel_drops=5)


@breaks(Cause.NETWORK_IN)
def lost_while_only_cut_off_by_plan(world: World, msg: int) -> None:
    both(world, msg)  # passed, though the plan says that nothing did
    for server in (0, 1):
        world.add("outage", server_id=server, t_down_ns=T0, t_up_ns=T0 + 5 * S, kind="isolation")


@breaks(Cause.NETWORK_IN, by="kill")
def lost_long_before_the_kill(world: World, msg: int) -> None:
    both(world, msg)
    at_ns = tx_ns(world, msg)
    for server in (0, 1):
        life = world.where("server_life", server_id=server)[0]
        life.update(t_to_ns=at_ns - MS, ended=0)
        down_ns = at_ns + TAP_UNWRITTEN_NS + EDGE_NS
        world.add("outage", server_id=server, t_down_ns=down_ns, t_up_ns=down_ns + S, kind="kill")


@breaks(Cause.LOSS_IN)
def lost_on_the_way_in(world: World, msg: int) -> None:
    both(world, msg, LOST)


@breaks(Cause.LOSS_IN)
def lost_and_cut_off_on_the_way_in(world: World, msg: int) -> None:
    world.lose_in(msg, 0, LOST)
    world.lose_in(msg, 1, CUT_OFF)


@breaks(Cause.LOSS_IN)
def lost_again_after_a_cut(world: World, msg: int) -> None:
    both(world, msg, CUT_OFF)
    world.add("pub_tx", msg_id=msg, server_id=1, t_tx_ns=T0 + S + 200 * MS, injected=LOST)


def restart(world: World, at_ns: int, first_line_ns: int) -> None:
    for server in (0, 1):
        world.where("server_life", server_id=server)[0].update(t_to_ns=T0, ended=0)
        world.life(server, 200 + server, at_ns, T0 + 20 * S)
        world.receive(-1, server, first_line_ns, 200 + server)
        world.rows["server_rx"][-1]["pub_id"] = 0


@breaks(Cause.UNVOUCHED, by="kill")
def not_admitted_yet_after_a_restart(world: World, msg: int) -> None:
    both(world, msg)
    restart(world, T0 + S - MS, T0 + 2 * S)


@breaks(Cause.NETWORK_IN, by="kill")
def lost_when_admitted_after_a_restart(world: World, msg: int) -> None:
    both(world, msg)
    restart(world, T0 + S - MS, tx_ns(world, msg))


@breaks(Cause.UNTAPPED, backend="file")
def sent_to_servers_without_a_tap(world: World, msg: int) -> None:
    both(world, msg)
    world.rows["server_life"].clear()
    world.rows["server_rx"].clear()


@breaks(Cause.OVERFLOW_OUT, backend="file")
def overflow_behind_servers_without_a_tap(world: World, msg: int) -> None:
    sent_to_servers_without_a_tap(world, msg)
    world.add("client_stat", client_id=100, t_ns=T0 + S, kernel_drops=1)


@breaks(Cause.SEND_ERROR)
def the_publisher_cannot_send(world: World, msg: int) -> None:
    both(world, msg)
    world.add("client_stat", client_id=0, t_ns=T0)
    world.add("client_stat", client_id=0, t_ns=T0 + S, send_errors=2)


@breaks(Cause.OVERFLOW_IN)
def the_server_overflows(world: World, msg: int) -> None:
    both(world, msg)
    for server in (0, 1):
        world.add("server_stat", server_id=server, t_ns=T0)
        world.add("server_stat", server_id=server, t_ns=T0 + S, kernel_drops=3)
        world.add("server_stat", server_id=server, t_ns=T0 + 2 * S, kernel_drops=3)


@breaks(Cause.OVERFLOW_IN)
def the_server_overflows_with_a_new_socket(world: World, msg: int) -> None:
    both(world, msg)
    for server in (0, 1):
        for at_s, drops in ((-9, 5), (0, 5), (1, 2)):
            world.add("server_stat", server_id=server, t_ns=T0 + at_s * S, kernel_drops=drops)


@breaks(Cause.NETWORK_IN)
def another_server_overflows(world: World, msg: int) -> None:
    both(world, msg)
    world.add("server_stat", server_id=2, t_ns=T0 + S, kernel_drops=3)


@breaks(Cause.NETWORK_IN)
def the_server_overflowed_before(world: World, msg: int) -> None:
    world.rows["publish"][0]["t_intended_ns"] += 4 * S
    for row in world.where("pub_tx", msg_id=msg):
        row["t_tx_ns"] += 4 * S
    the_server_overflows(world, msg)
    world.add("server_stat", server_id=0, t_ns=T0 + 6 * S, kernel_drops=3)


@breaks(Cause.LEASE_NEVER)
def no_lease_was_opened(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    world.drop("lease", sub_id=0)


@breaks(Cause.LEASE_NEVER)
def the_lease_was_opened_in_the_turn_that_took_the_message(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for row in world.where("lease", sub_id=0):
        row["t_ns"] = T0 + S + 2 * MS


@breaks(Cause.NETWORK_OUT)
def the_lease_was_opened_just_before(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for row in world.where("lease", sub_id=0):
        row["t_ns"] = T0 + S + 2 * MS - 1


@breaks(Cause.LEASE_EXPIRED)
def the_lease_ran_out(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for row in world.where("lease", sub_id=0):
        world.add("lease", **row | {"t_ns": T0 + S, "change": EXPIRED})


@breaks(Cause.LEASE_EXPIRED)
def the_lease_was_evicted(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for row in world.where("lease", sub_id=0):
        world.add("lease", **row | {"t_ns": T0 + S, "change": EVICTED})


@breaks(Cause.NETWORK_OUT)
def the_lease_ran_out_and_was_opened_again_at_once(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for row in world.where("lease", sub_id=0):
        world.rows["lease"].insert(0, row | {"t_ns": T0 + S})
        world.add("lease", **row | {"t_ns": T0 + S, "change": EXPIRED})


@breaks(Cause.LEASE_RESTART, by="kill")
def the_lease_was_gone_with_a_restart(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    restart(world, T0, T0 + 1)
    for row in world.where("server_rx", msg_id=msg):
        row["boot_id"] += 100
    world.add("lease", server_id=0, boot_id=200, sub_id=0, t_ns=T0 + 3 * S, change=OPENED)


@breaks(Cause.DRAW, side="subscribe", avoid_dead=True)
def the_subscriber_had_left_the_server(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    world.rows["publish"][0]["t_intended_ns"] += 10 * S - S - S
    world.rows["intent"][0]["t_to_ns"] += 10 * S
    for row in world.where("server_rx", msg_id=msg):
        row["t_rx_ns"] += 10 * S
    for row in world.where("lease", sub_id=0):
        world.add("lease", **row | {"t_ns": T0 + 9 * S, "change": EXPIRED})


@breaks(Cause.LEASE_EXPIRED, side="subscribe", avoid_dead=True)
def the_subscriber_that_could_have_left_went_on_asking(world: World, msg: int) -> None:
    the_subscriber_had_left_the_server(world, msg)
    world.add("subscribe", sub_id=0, server_id=0, t_tx_ns=T0 + S + 2 * MS, injected=LOST)  # a ttl before


@breaks(Cause.DOWN_OUT)
def cut_off_on_the_way_out(world: World, msg: int) -> None:
    missed(world, msg, CUT_OFF)


@breaks(Cause.BY_HISTORY, by="mute", outages="exact", down=2, offline=0.5)
def told_by_a_log(world: World, msg: int) -> None:
    missed(world, msg, CUT_OFF)
    world.add("entry", sub_id=0, msg_id=msg, t_ns=T0 + 60 * S)


@breaks(Cause.LATE, offline=0.5)
def late_and_told_by_a_log(world: World, msg: int) -> None:
    for row in world.where("deliver", msg_id=msg, sub_id=0):
        row["t_user_ns"] = T0 + 30 * S
    world.add("entry", sub_id=0, msg_id=msg, t_ns=T0 + 60 * S)


@breaks(Cause.MUTE, by="mute", outages="exact", down=2)
def mute(world: World, msg: int) -> None:
    missed(world, msg, CUT_OFF)
    for server in (0, 1):
        world.add("outage", server_id=server, t_down_ns=T0, t_up_ns=T0 + 9 * S, kind="mute")


@breaks(Cause.DOWN_OUT, by="mute", outages="exact", down=1, offline=0.5)
def away_where_one_of_two_servers_was_mute(world: World, msg: int) -> None:
    mute(world, msg)
    world.drop("outage", server_id=1)


@breaks(Cause.DOWN_OUT, by="kill")
def killed_before_it_forwarded(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for server in (0, 1):
        at_ns = T0 + S + 3 * MS
        world.add("outage", server_id=server, t_down_ns=at_ns, t_up_ns=at_ns + S, kind="kill")


@breaks(Cause.LOSS_OUT)
def lost_on_the_way_out(world: World, msg: int) -> None:
    missed(world, msg, LOST)


@breaks(Cause.LOSS_OUT)
def lost_behind_one_server_and_sent_to_a_dead_one(world: World, msg: int) -> None:
    world.lose_in(msg, 0, CUT_OFF)
    missed(world, msg, LOST)


@breaks(Cause.OVERFLOW_OUT)
def the_client_overflows(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    world.add("client_stat", client_id=100, t_ns=T0, kernel_drops=7)
    world.add("client_stat", client_id=100, t_ns=T0 + S, kernel_drops=8)


@breaks(Cause.NETWORK_OUT)
def another_client_overflows(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    world.add("client_stat", client_id=101, t_ns=T0 + S, kernel_drops=8)


@breaks(Cause.NETWORK_OUT)
def the_client_overflowed_long_ago(world: World, msg: int) -> None:
    not_forwarded(world, msg)
    for at_s in (-4, -3, 0, 1, 2):
        world.add("client_stat", client_id=100, t_ns=T0 + at_s * S, kernel_drops=7)


@breaks(Cause.LATE)
def late(world: World, msg: int) -> None:
    for row in world.where("deliver", msg_id=msg, sub_id=0):
        row["t_user_ns"] = T0 + S + 2 * S + 1


@breaks(Cause.LATE)
def late_and_lost(world: World, msg: int) -> None:
    late(world, msg)
    world.where("deliver", msg_id=msg, sub_id=0, server_id=1)[0]["injected"] = LOST


@breaks(Cause.HALTED, by="stall")
def late_from_a_halted_server(world: World, msg: int) -> None:
    late(world, msg)
    for server in (0, 1):
        world.add("outage", server_id=server, t_down_ns=T0, t_up_ns=T0 + 3 * S - MS, kind="stall")


@breaks(Cause.DELIVERED)
def just_in_time(world: World, msg: int) -> None:
    missed(world, msg, LOST)
    row = world.where("deliver", msg_id=msg, sub_id=0, server_id=1)[0]
    row.update(t_user_ns=T0 + S + 2 * S, injected=PASSED)


@breaks(Cause.DELIVERED)
def delivered_although_its_server_says_nothing(world: World, msg: int) -> None:
    world.lose_in(msg, 0, CUT_OFF)
    world.drop("server_rx", msg_id=msg)
    world.rows["subscribe"].clear()
    world.rows["lease"].clear()


def test_each_cause(tmp_path: Path) -> None:
    for name, (cause, fields, function) in BROKEN.items():
        world = World(tmp_path / name, **fields)
        msg = world.message(0, 1)
        sound = attribute(world.folder())
        assert cause_of(sound, msg) is Cause.DELIVERED, f"{name}: before it is broken"
        function(world, msg)
        result = attribute(world.folder())
        assert cause_of(result, msg) is cause, name
        assert (result.misses.get(cause, 0) > 0) == (cause is not Cause.DELIVERED), name


def test_all_causes_are_tested_and_told() -> None:
    assert {cause for cause, _, _ in BROKEN.values()} == set(Cause)
    assert set(MEANINGS) == set(Cause)
    assert not set(UNEXPLAINED) & set(SHORTCOMINGS)
    assert Cause.LOSS_IN.label == "loss-in"


def test_paths_apart_tell_why(tmp_path: Path) -> None:
    world = World(tmp_path, subscribers=1)
    world.message(0, 1)
    world.where("member", sub_id=0)[0]["servers"] = [0, 1]
    world.drop("subscribe", server_id=1)
    world.drop("deliver", server_id=1)
    # All use all that they know: that one was not asked is because of what they know.
    assert attribute(world.folder()).paths == {Cause.DELIVERED: 1, Cause.VIEW: 1, Cause.DRAW: 1}
    world.where("member", sub_id=0)[0]["servers"] = [0, 1, 2]
    assert attribute(world.folder()).paths == {Cause.DELIVERED: 1, Cause.UNASKED: 1, Cause.DRAW: 1}


def test_a_server_that_was_killed_had_what_it_forwarded_to_others(tmp_path: Path) -> None:
    """A tap that was cut short lacks the last second, but copies show that the server was running."""
    world = World(tmp_path, outages="exact", down=1, by="kill")
    world.where("server_life", server_id=0)[0].update(t_to_ns=T0 + 5 * S, ended=0)
    world.life(0, 200, T0 + 6 * S, T0 + 7 * S, ended=0)
    for down_s, up_s in ((5, 6), (8, 9)):
        times = {"t_down_ns": T0 + down_s * S, "t_up_ns": T0 + up_s * S}
        world.add("outage", server_id=0, **times, kind="kill", plan="exact")
    msg = world.message(0, at_s=7.5)  # when its second life was written to no tap any more
    world.drop("server_rx", msg_id=msg)
    world.lose_out(msg, 0, 1)
    result = attribute(world.folder())
    assert result.misses == {Cause.LEASE_RESTART: 1}
    world.drop("deliver", msg_id=msg)
    assert attribute(world.folder()).misses == {Cause.DOWN: 2}  # of which nobody can tell more


def test_what_is_unexplained_is_not_hidden_by_what_is_explained_before_it(tmp_path: Path) -> None:
    world = World(tmp_path, subscribers=1)
    first, second = world.message(0, 1), world.message(0, 1)
    world.lose_in(first, 0, LOST)
    world.lose_in(first, 1)
    world.where("deliver", msg_id=second, server_id=0)[0]["injected"] = LOST
    world.lose_out(second, 1, 0)
    result = attribute(world.folder())
    assert result.unexplained == 2
    assert result.misses == {Cause.NETWORK_IN: 1, Cause.NETWORK_OUT: 1}


# --- Whole runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"side": "subscribe"}, {"scheme": "CH"}])
def test_a_sound_run_has_nothing_unexplained(tmp_path: Path, policy: dict[str, Any]) -> None:
    losses: dict[str, Any] = {"loss_in": 0.05, "loss_out": 0.05, "outages": "independent", "outage": 0.3}
    load = {"subscribers": 30, "rate": 100.0, "duration_s": 5.0, "epoch_s": 0.5}
    folder = simulate(tmp_path, Scenario(**(losses | load | policy)), seed=7)
    result = attribute(folder)
    explained = {Cause.DOWN, Cause.LOSS_IN, Cause.LOSS_OUT, Cause.DOWN_OUT}
    assert len(result) > 10_000
    assert set(result.misses) == explained
    assert set(result.paths) <= explained | {Cause.DELIVERED, Cause.DRAW}


def test_sabotage_of_a_sound_run_is_found(tmp_path: Path) -> None:
    world = World(tmp_path, subscribers=1)
    for at_s in range(1, 9):
        world.message(0, 1, at_s=at_s)
    assert attribute(world.folder()).unexplained == 0
    world.rows["deliver"] = world.rows["deliver"][2:]  # a recorder that loses rows
    assert attribute(world.folder()).misses == {Cause.NETWORK_OUT: 1}
    world.drop("server_rx", msg_id=0)
    assert attribute(world.folder()).misses == {Cause.NETWORK_IN: 1}
