"""Each reason of both verdicts, from a sound run in which one thing is changed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcast.loadtest.capture.schema import CUT_OFF, LOST
from kcast.loadtest.results.health import examine
from kcast.loadtest.results.percentiles import Percentiles
from kcast.loadtest.results.summary import Summary, summarise
from kcast.loadtest.results.verdicts import Health, Verdict, judge_latency
from kcast.loadtest.scenario import By
from tests.support.handmade_capture import MS, T0, S, World

MESSAGES = 600
Change = Callable[[World], None]


def sound_world(path: Path, **fields: Any) -> World:
    world = World(path, **fields)
    for number in range(MESSAGES):
        world.message(0, 1, at_s=number / 100)
        world.rows["publish"][-1]["t_send_ns"] -= MS
    for second in range(-3, 14):
        at_ns = T0 + second * S
        world.add("process_stat", process="a", t_ns=at_ns, lag_max_ns=20 * MS)
        messages = sum(row["t_intended_ns"] + 3 * MS <= at_ns for row in world.rows["publish"])
        for client in (0, 100, 101):
            came = messages if client else 0
            copies = {"copies": 2 * came, "deliveries": came, "duplicates": came}
            world.add("client_stat", client_id=client, t_ns=at_ns, **copies)
        for server in range(3):
            world.add("server_stat", server_id=server, t_ns=at_ns)
    world.add("clock", process="a", t_ns=T0)
    return world


def verdicts(world: World) -> Summary:
    return summarise(world.folder())


def test_a_sound_run_is_valid(tmp_path: Path) -> None:
    summary = verdicts(sound_world(tmp_path))
    assert summary.delivery_verdict == summary.latency_verdict == Verdict()
    assert summary.delivery_verdict.valid
    assert summary.health == Health(MESSAGES, MESSAGES, 0, 0, 20.0, 0.0, 0, 0, 0, 0)


def partial(world: World) -> None:
    world.status = "partial"


def nothing_intended(world: World) -> None:
    world.rows["intent"].clear()


def not_published(world: World) -> None:
    world.rows["window"][0]["scheduled"] += 2


def published_outside_of_its_window(world: World) -> None:
    world.rows["window"][0]["t_to_ns"] = T0 + S  # of 600 messages, 100 are in it


def rows_lost(world: World) -> None:
    world.rows["process_stat"][-2]["rows_lost"] = 3
    world.rows["process_stat"][-1]["rows_lost"] = 3


def tap_lines_lost(world: World) -> None:
    world.rows["server_life"][1]["lost_lines"] = 1


def server_ended_by_itself(world: World) -> None:
    killed_and_back(world)
    world.where("server_life", boot_id=201)[0]["ended"] = 0


def sent_twice(world: World) -> None:
    for row in list(world.rows["pub_tx"]):
        world.add("pub_tx", **row | {"t_tx_ns": row["t_tx_ns"] + MS // 2})


def unexplained(world: World) -> None:
    sent_twice(world)  # how much was lost cannot be told
    for server in (0, 1):
        world.lose_out(7, server, 1)


def unexplained_on_paths_that_others_made_up_for(world: World) -> None:
    sent_twice(world)
    for msg in range(20):
        world.lose_out(msg, 0, 1)


def overflow(world: World) -> None:
    for msg in range(100, 110):
        for server in (0, 1):
            world.lose_out(msg, server, 1)
    for row in world.where("client_stat", client_id=101):
        row["kernel_drops"] = 20 * (row["t_ns"] >= T0 + 2 * S)


def some_overflow(world: World) -> None:
    overflow(world)
    for msg in range(102, 110):
        world.deliver(msg, 0, 1, T0 + msg * 10 * MS + 3 * MS)


def too_late(world: World) -> None:
    for row in world.where("deliver", sub_id=1)[:30]:
        row["t_user_ns"] += 3 * S


def unsent(world: World) -> None:
    for msg in range(10):
        for server in (0, 1):
            world.lose_in(msg, server)
        world.drop("pub_tx", msg_id=msg)


def nobody_took_it(world: World) -> None:
    world.where("client_stat", client_id=101)[-1]["slow_consumer"] = 5


def limited(world: World) -> None:
    for name in ("SPAMMER", world.rows["member"][0]["publisher"]):
        world.add("sighting", sub_id=0, t_ns=T0 + S, what="limited", name=name)


def lag_against_the_ttl(world: World) -> None:
    world.rows["process_stat"][8]["lag_max_ns"] = 1001 * MS


def lag_against_the_deadline(world: World) -> None:
    world.scenario = world.scenario.with_(ttl_s=60)
    lag_against_the_ttl(world)


def test_each_reason_against_delivery(tmp_path: Path) -> None:
    told: list[tuple[Change, str]] = [
        (partial, "partial"),
        (nothing_intended, "nothing was to be delivered"),
        (not_published, "2 messages of 602"),
        (published_outside_of_its_window, "500 messages of 600"),
        (rows_lost, "lost 3 rows"),
        (tap_lines_lost, "lost 1 line:"),
        (server_ended_by_itself, "^server-2 ended, and the scenario did not end it"),
        (unexplained, r"1 missed pair of 1,200 was lost for no reason .*network-out 1"),
        (unexplained_on_paths_that_others_made_up_for, "20 paths of 3,600 were"),
        (overflow, r"10 pairs of 1,200 were missed .*overflow-out 10"),
        (some_overflow, r"2 pairs of 1,200 .*; up to 1 would"),
        (too_late, r"15 pairs of 1,200 .*late 15"),
        (unsent, r"20 pairs of 1,200 .*unsent 20"),
        (nobody_took_it, r"5 pairs of 1,200 .*slow-consumer 5"),
        (limited, "subscribers limited 1 publisher: "),
        (lag_against_the_ttl, "up to 1 s.*tenth of the ttl"),
        (lag_against_the_deadline, "up to 1 s.*half the deadline"),
    ]
    for change, words in told:
        world = sound_world(tmp_path / change.__name__, deadline_s=2.0)
        change(world)
        verdict = verdicts(world).delivery_verdict
        assert not verdict.valid
        reasons = [each for each in verdict.reasons if "half the deadline" not in each or "half" in words]
        assert [bool(re.search(words, reason)) for reason in reasons] == [True], (change, verdict.reasons)


def test_loss_on_the_network_is_measured_and_is_no_reason_against_delivery(tmp_path: Path) -> None:
    world = sound_world(tmp_path, deadline_s=2.0)
    for server in (0, 1):
        world.lose_out(7, server, 1)
    for msg in range(20, 40):
        world.lose_out(msg, 0, 1)
    found = verdicts(world)
    assert found.delivery_verdict.valid
    assert found.causes == {"network-out": 1}
    assert (found.loss["out"]["lost"], found.loss["in"]["lost"]) == (22, 0)
    assert found.loss["said"].startswith("loss nobody asked for: 0 % in (")


def few_overflow(world: World) -> None:
    for server in (0, 1):
        world.lose_out(100, server, 1)
    for row in world.where("client_stat", client_id=101):
        row["kernel_drops"] = 2 * (row["t_ns"] >= T0 + 2 * S)


def lag_before_and_after(world: World) -> None:
    for row in (world.rows["process_stat"][0], world.rows["process_stat"][-1]):
        row["lag_max_ns"] = 5 * S


def killed_and_back(world: World) -> None:
    first = world.where("server_life", server_id=1)[0]
    first |= {"ended": 0, "t_to_ns": T0 + 9 * S}
    world.add("outage", server_id=1, t_down_ns=T0 + 9 * S - 1, t_up_ns=T0 + 10 * S, kind="kill", plan="exact")
    world.life(1, 201, T0 + 10 * S, T0 + 20 * S)


def lost_by_plan(world: World) -> None:
    world.scenario = world.scenario.with_(outages="independent", outage=0.1, loss_out=0.1)
    for row in world.where("deliver", sub_id=1)[:400]:
        row["injected"] = LOST
    for row in world.where("pub_tx")[-40:]:
        row["injected"] = CUT_OFF
    for server in (0, 1):
        times = {"t_down_ns": T0 + 5750 * MS, "t_up_ns": T0 + 6 * S}
        world.add("outage", server_id=server, kind="isolation", **times)


# --- What a capture tells in two ways ----------------------------------------------------------------


def part_of_publish_lost(world: World) -> None:
    del world.rows["publish"][10:20]
    world.rows["window"][0]["scheduled"] -= 10


def part_of_publish_twice(world: World) -> None:
    world.rows["publish"] += world.rows["publish"][:3]


def clock_of_a_server_behind(world: World) -> None:
    for row in world.where("server_rx", server_id=1):
        row["t_rx_ns"] -= 100 * MS


def clock_of_a_server_ahead(world: World) -> None:
    for row in world.where("server_rx", server_id=1):
        row["t_rx_ns"] += 100 * MS


def clock_of_publishers_ahead(world: World) -> None:
    for row in world.where("pub_tx"):
        row["t_tx_ns"] += 100 * MS


def clocks_that_are_known_to_differ(world: World) -> None:
    clock_of_a_server_behind(world)
    world.add("clock", process="b", t_ns=T0, error_ns=60 * MS)


def outage_that_was_not(world: World, kind: By = "isolation") -> None:
    world.scenario = world.scenario.with_(outages="independent", outage=0.1, by=kind)
    world.add("outage", server_id=1, kind=kind, t_down_ns=T0 + S, t_up_ns=T0 + 3 * S)


def kill_that_was_not(world: World) -> None:
    outage_that_was_not(world, "kill")


def outage_that_is_not_told(world: World) -> None:
    lost_by_plan(world)
    world.rows["outage"].clear()


def outage_that_the_settings_deny(world: World) -> None:
    """As it came, and told as it came, so that only the settings are wrong."""
    lost_by_plan(world)
    world.scenario = world.scenario.with_(outages="none", outage=0.0, down=0)


def outage_of_another_kind(world: World) -> None:
    lost_by_plan(world)
    world.scenario = world.scenario.with_(by="stall")


def losses_that_the_settings_deny(world: World) -> None:
    lost_by_plan(world)
    world.scenario = world.scenario.with_(loss_in=0.0, loss_out=0.0)


def what_servers_took_in_is_gone(world: World) -> None:
    world.rows["server_rx"].clear()


CONTRADICTIONS: dict[Change, tuple[int, str]] = {
    part_of_publish_lost: (60, "messages that it has not published"),  # each was sent twice, and came 4 times
    part_of_publish_twice: (3, "or has twice"),
    clock_of_a_server_behind: (600, "something before its cause"),
    clock_of_a_server_ahead: (1200, "clocks differ"),
    what_servers_took_in_is_gone: (2400, "or without it: files were lost"),
    outage_that_the_settings_deny: (50, "outages or losses that its settings do not have"),
    outage_of_another_kind: (50, "outages or losses that its settings do not have"),
    losses_that_the_settings_deny: (400, "outages or losses that its settings do not have"),
    clock_of_publishers_ahead: (1200, "something before its cause"),
    outage_that_was_not: (180, "outages or losses that its settings do not have, or not then"),
    kill_that_was_not: (180, "outages or losses that its settings do not have, or not then"),
    outage_that_is_not_told: (40, "outages or losses that its settings do not have, or not then"),
}


def test_a_capture_that_contradicts_itself_is_not_valid(tmp_path: Path) -> None:
    for change, (rows, why) in CONTRADICTIONS.items():
        world = sound_world(tmp_path / change.__name__)
        change(world)
        reasons = verdicts(world).delivery_verdict.reasons
        told = [reason for reason in reasons if "contradicts itself" in reason]
        assert len(told) == 1, (change, told)
        assert told[0].startswith(f"the capture contradicts itself: {rows:,} rows tell of "), change
        assert why in told[0]


def killed_together_and_up_one_after_the_other(world: World) -> None:
    """All that were killed together have the end of the last one."""
    world.scenario = world.scenario.with_(outages="exact", down=2, by="kill")
    for server, back_s in ((0, 2.2), (1, 3.9)):
        first = world.where("server_life", server_id=server)[0]
        first |= {"ended": 0, "t_to_ns": T0 + 2 * S}
        times = {"t_down_ns": T0 + 2 * S, "t_up_ns": T0 + 4 * S}
        world.add("outage", server_id=server, kind="kill", **times)
        world.life(server, 300 + server, T0 + round(back_s * S), T0 + 20 * S)
        for row in world.where("server_rx", server_id=server):
            if row["t_rx_ns"] >= T0 + 2 * S:
                row["boot_id"] = 300 + server
    world.rows["server_rx"] = [
        row
        for row in world.rows["server_rx"]
        if row["t_rx_ns"] < T0 + 2 * S or row["server_id"] == 0 or row["t_rx_ns"] >= T0 + 4 * S
    ]


def sent_again_to_a_server_that_was_killed(world: World) -> None:
    """Its tap lacks the first taking-in, of which copies came; the next life's has the repetition."""
    world.scenario = world.scenario.with_(outages="exact", down=1, by="kill")
    first = world.where("server_life", server_id=1)[0]
    first |= {"ended": 0, "t_to_ns": T0 + S}
    world.add("outage", server_id=1, kind="kill", t_down_ns=T0 + 2 * S, t_up_ns=T0 + 3 * S)
    world.life(1, 301, T0 + 3 * S, T0 + 20 * S)
    for row in world.where("server_rx", server_id=1):
        if T0 + S <= row["t_rx_ns"] < T0 + 3 * S:
            row.update(t_rx_ns=T0 + 4 * S, boot_id=301)


def test_what_killed_servers_leave_is_no_contradiction(tmp_path: Path) -> None:
    for change in (killed_together_and_up_one_after_the_other, sent_again_to_a_server_that_was_killed):
        world = sound_world(tmp_path / change.__name__)
        change(world)
        health = examine(world.folder())
        assert (health.orphans, health.too_early, health.through_outages) == (0, 0, 0), change


def test_times_may_differ_by_as_much_as_clocks_do(tmp_path: Path) -> None:
    world = sound_world(tmp_path)
    clocks_that_are_known_to_differ(world)
    assert verdicts(world).delivery_verdict.valid


def test_what_is_no_reason(tmp_path: Path) -> None:
    for change in (few_overflow, lag_before_and_after, lost_by_plan, killed_and_back):
        world = sound_world(tmp_path / change.__name__)
        change(world)
        assert verdicts(world).delivery_verdict.reasons == (), change


def test_counters_are_sums_of_rises(tmp_path: Path) -> None:
    world = World(tmp_path)
    for second, drops in enumerate((3, 3, 5, 1, 4)):  # a restart before the fourth
        world.add("server_stat", server_id=0, t_ns=T0 + second * S, kernel_drops=drops)
        world.add("client_stat", client_id=second, t_ns=T0, send_errors=drops, kernel_drops=1)
    health = examine(world.folder())
    assert (health.server_overflows, health.client_overflows, health.send_errors) == (5 + 4, 5, 16)


def times(p50_ms: float, p99_ms: float, count: int = 1000) -> Percentiles:
    return Percentiles(count=count, p50_ms=p50_ms, p99_ms=p99_ms)


def health_with(clock_error_ms: float) -> Health:
    return Health(0, 0, 0, 0, 0.0, clock_error_ms, 0, 0, 0, 0)


def test_each_reason_against_latency() -> None:
    told: list[tuple[Percentiles, Percentiles, float, str | None]] = [
        (times(1, 10), times(0.1, 0.99), 0.1, None),
        (times(1, 10), times(0.1, 1.0), 0.0, "1 ms late .* 10% of the latency's"),
        (times(1, 10), times(0.1, 0.5), 0.11, "clocks may differ by 0.11 ms"),
        (times(1, 10, count=999), times(0.1, 0.5), 0.0, "999 deliveries were measured, fewer than 1,000"),
        (Percentiles(), times(0.1, 0.5), 3.0, "0 deliveries"),
    ]
    for latency, delay, clock_error_ms, words in told:
        verdict = judge_latency(health_with(clock_error_ms), latency, delay)
        assert len(verdict.reasons) == (words is not None), words
        assert words is None or re.search(words, verdict.reasons[0])
