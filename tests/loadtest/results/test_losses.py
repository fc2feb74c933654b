"""What a network lost though nobody asked for it: which lines count, shares, intervals, bunches."""

from pathlib import Path
from typing import Any

import pytest

from kcast.hashring.effective_size import ClusterSums, cluster_sums
from kcast.loadtest.capture.schema import LOST
from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.leg_lines import BOTH, IN, OUT
from kcast.loadtest.results.loss_estimates import AFTER, LINES, OTHERS, Losses, estimated, with_losses
from kcast.loadtest.results.loss_words import said
from kcast.loadtest.results.losses import losses_of
from kcast.loadtest.scenario import Scenario
from tests.support.handmade_capture import MS, T0, S, World
from tests.support.lossy_captures import Network, lossy_capture

TAPS = ("server_life", "server_rx", "lease")
LOAD: dict[str, Any] = {"servers": 12, "publishers": 4, "subscribers": 10, "rate": 25.0}


def found(world: World) -> Losses:
    return losses_of(attribute(world.folder()), T0, world.scenario)


def world_of(path: Path, messages: int = 20, **fields: Any) -> World:
    """Each message goes to servers 0 and 1, and two subscribers are at both."""
    world = World(path, **fields)
    for number in range(messages):
        world.message(0, 1, at_s=number / 4)
    return world


def counts(losses: Losses, leg: int) -> tuple[int, int]:
    rate = losses.legs[leg].rate
    return (0, 0) if rate is None else (rate.lines, rate.lost)


@pytest.mark.parametrize("has_taps", [True, False])
def test_lines_that_came_or_not_are_counted_by_leg(tmp_path: Path, has_taps: bool) -> None:
    world = world_of(tmp_path)
    world.lose_in(3, 0)
    world.lose_out(5, 1, 0)
    if not has_taps:
        for table in TAPS:
            world.rows[table] = []
    losses = found(world)
    assert counts(losses, IN) == (40, 1)
    # Without taps the copy that came when the other did not tells nothing of the way out.
    assert counts(losses, OUT) == ((78, 1) if has_taps else (77, 1))
    assert counts(losses, BOTH) == (80, 3)


def test_lines_behind_and_beside_lost_ones_are_counted(tmp_path: Path) -> None:
    """Subscriber 0 does not get messages 3 and 4 by server 1, and 4 by server 0 neither."""
    world = world_of(tmp_path)
    for message, server in ((3, 1), (4, 1), (4, 0)):
        world.lose_out(message, server, 0)
    leg = found(world).legs[OUT]
    assert leg.after is not None and leg.together is not None
    assert (leg.after.lines, leg.after.lost) == (3, 1)  # 4 and 5 by server 1, and 5 by server 0
    assert (leg.together.lines, leg.together.lost) == (3, 2)  # of each lost line the one by the other server


def test_what_the_test_or_a_socket_did_does_not_count(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.lose_in(3, 0, injected=LOST)
    for row in world.where("deliver", msg_id=4, server_id=0, sub_id=0):
        row["injected"] = LOST
    world.add("outage", server_id=1, t_down_ns=T0 + 2 * S, t_up_ns=T0 + 3 * S, kind="kill", plan="exact")
    for second in range(4):
        dropped = {"client_id": 101, "t_ns": T0 + second * S, "kernel_drops": 2 * (second > 1)}
        world.add("client_stat", **dropped)
    losses = found(world)
    assert not losses.is_there
    assert counts(losses, IN)[0] < 39 and counts(losses, OUT)[0] < 77
    assert said(losses) == ""


def test_a_message_that_was_sent_twice_to_a_server_does_not_count_there(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for row in world.where("pub_tx", server_id=0):
        world.add("pub_tx", **row | {"t_tx_ns": row["t_tx_ns"] + MS})
    assert counts(found(world), IN) == (20, 0)
    for row in world.where("pub_tx", server_id=1):
        world.add("pub_tx", **row | {"t_tx_ns": row["t_tx_ns"] + MS})
    assert not found(world).is_known


def test_with_one_subscriber_a_server_only_both_legs_together_are_known(tmp_path: Path) -> None:
    world = world_of(tmp_path, subscribers=1)
    world.lose_out(5, 1, 0)
    for table in TAPS:
        world.rows[table] = []
    losses = found(world)
    assert losses.by_leg is None
    assert counts(losses, BOTH) == (40, 1)
    assert "on both legs together" in said(losses)
    assert with_losses(world.scenario, losses).loss_in == pytest.approx(1 / 40)


def test_messages_of_which_all_copies_were_lost_are_not_taken_for_lost_on_the_way_in() -> None:
    # Of 1,000 messages, each for two subscribers at a server, 100 came to none of them.
    silent, out = ClusterSums(1, 1000, 100, 0, 0, 0), ClusterSums(1, 2000, 400, 0, 0, 0)
    losses = estimated({(IN, LINES): silent, (OUT, LINES): out}, 1, [(2, 1000, 100)])
    assert losses.by_leg is not None
    into, _ = losses.by_leg
    assert into.share == pytest.approx((0.1 - 0.2**2) / (1 - 0.2**2))
    assert into.low < into.share < into.high


def test_nothing_that_ever_came_tells_no_leg() -> None:
    losses = estimated({(IN, LINES): ClusterSums(1, 10, 10, 0, 0, 0)}, 1, [(2, 10, 10)])
    assert losses.by_leg is None


def test_bursts_widen_the_interval() -> None:
    lines = cluster_sums([(100, 1)] * 10)
    alone = estimated({(IN, LINES): lines, (IN, AFTER): cluster_sums([(1, 0)] * 10)}, 1)
    rows = estimated({(IN, LINES): lines, (IN, AFTER): cluster_sums([(4, 3)] * 10)}, 1)
    of_alone, of_rows = alone.legs[IN].rate, rows.legs[IN].rate
    assert of_alone is not None and of_rows is not None
    assert of_rows.trials < of_alone.trials / 4
    assert rows.legs[IN].is_in_rows and not alone.legs[IN].is_in_rows


def test_rows_seen_through_one_of_several_publishers_are_taken_for_longer() -> None:
    sums = {(leg, LINES): cluster_sums([(100, 4)] * 10) for leg in (IN, OUT)}
    sums |= {(leg, AFTER): cluster_sums([(8, 3)] * 10) for leg in (IN, OUT)}
    into, out = (estimated(sums, 4).legs[leg] for leg in (IN, OUT))
    assert into.is_in_rows and out.is_in_rows
    seen = (3 / 8 - 0.04) / (1 - 0.04)  # the correlation of two lines of one publisher
    between = 4 * seen / (1 + 3 * seen)  # that of two lines, of which three of four have another between
    assert into.chain_effect == pytest.approx((1 + seen) / (1 - seen))
    assert out.chain_effect == pytest.approx((1 + between) / (1 - between))
    few = {(OUT, LINES): cluster_sums([(100, 4)] * 10), (OUT, AFTER): cluster_sums([(1, 0)] * 9 + [(1, 1)])}
    assert estimated(few, 4).legs[OUT].chain_effect == estimated(few, 1).legs[OUT].chain_effect


def test_users_that_publish_and_subscribe_count_as_publishers() -> None:
    scenario = Scenario(**LOAD, k=5, k_prime=3)
    found = attribute(lossy_capture(scenario, Network(0.02, 0.05, in_a_row=4.0), 1))
    mixed = scenario.with_(publishers=0, mixed=scenario.publishers, subscribers=0)
    alone, both = (losses_of(found, T0, each).legs[OUT] for each in (scenario, mixed))
    assert alone.is_in_rows and both.chain_effect == alone.chain_effect > 4


def test_rows_stay_certain_though_the_interval_is_wider_for_several_publishers() -> None:
    sums = {(OUT, LINES): cluster_sums([(100, 11)] * 10), (OUT, AFTER): cluster_sums([(10, 3)] * 10)}
    one, four = (estimated(sums, publishers).legs[OUT] for publishers in (1, 4))
    assert four.after is not None and four.rate is not None
    assert four.after.surely_above < four.rate.high  # beside the wider interval they would not be
    assert one.is_in_rows and four.is_in_rows
    assert four.chain_effect > 2 * one.chain_effect


def test_lines_of_a_message_that_are_lost_together_are_told() -> None:
    sums = {(OUT, LINES): cluster_sums([(500, 10)] * 10), (OUT, OTHERS): cluster_sums([(10, 8)] * 10)}
    leg = estimated(sums, 1).legs[OUT]
    assert leg.is_together


@pytest.mark.parametrize(
    ("network", "has_taps"), [(Network(0.02, 0.05), True), (Network(0.02, 0.05, in_a_row=4.0), False)]
)
def test_intervals_have_the_known_loss_of_simulated_captures(network: Network, has_taps: bool) -> None:
    scenario = Scenario(**LOAD, k=5, k_prime=3)
    covered = 0
    for seed in range(6):
        capture = lossy_capture(scenario, network, seed, has_taps=has_taps)
        losses = losses_of(attribute(capture), T0, scenario)
        assert losses.by_leg is not None
        into, out = losses.by_leg
        covered += (into.low <= network.loss_in <= into.high) + (out.low <= network.loss_out <= out.high)
        assert losses.legs[OUT].is_in_rows == (network.in_a_row > 1)
    assert covered >= 9
