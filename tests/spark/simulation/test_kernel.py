"""One epoch, counted again pair by pair from the same draws; and scenes that must come out exactly."""

from dataclasses import replace

import numpy as np
import pytest

from kcast.hashring.model import hypergeometric
from kcast.hashring.ring import HashRing
from kcast.spark.simulation import kernel
from kcast.spark.simulation.counts import Counts, no_counts
from kcast.spark.simulation.kernel import simulate_block, states
from kcast.spark.simulation.placement import known, places, positions, server_keys, walked, without_one
from kcast.spark.simulation.random_draws import Flags, Indices, Rng, block_rng, distinct
from kcast.spark.simulation.scenes import Scene, Size

SIZE = Size(blocks=1, epochs=1, topics=3, draws=7, partners=4)
FEW_PUBLISH = Scene("few-publish", "schemes", "ideal", "RCH", 10, 3, 10, 50, 0.3, SIZE)
FEW_SUBSCRIBE = replace(FEW_PUBLISH, name="few-subscribe", publish=10, subscribe=3)
CH = replace(FEW_PUBLISH, name="ch", scheme="CH", k=3, publish=3, subscribe=3)
R = Scene("r", "schemes", "ideal", "R", 50, 9, 9, 50, 0.3, Size(1, 1, 1, 70, 90))
RING = HashRing(server_keys(50))


def pair_by_pair(
    scene: Scene, alive: Flags, slots: Indices, partners: Flags, blocked: Indices | None
) -> Counts:
    """All that an epoch without loss counts, from sets."""
    size, length = scene.size, alive.shape[1]
    up = alive.copy()
    if blocked is not None:
        for topic, gone in enumerate(blocked.tolist()):
            up[topic, gone] = False
    counts = no_counts()
    for topic in range(size.topics):
        working = {slot for slot in range(length) if up[topic, slot]}
        users = []
        for partner in range(size.partners):
            row = partners[partner if len(partners) > 1 else 0]
            users.append({slot for slot in range(length) if row[topic * length + slot]})
        drawers = []
        for draw in range(size.draws):
            drawn = {int(slot) - topic * length for slot in slots[:, topic * size.draws + draw]}
            assert len(drawn) == len(slots)
            drawers.append(drawn)
        publishers, subscribers = (drawers, users) if scene.publishers_draw else (users, drawers)
        for servers in publishers:
            counts["messages"] += 1
            counts["sendings"] += len(servers)
            counts["taken"] += len(servers & working)
            for held in subscribers:
                copies = len(servers & working & held)
                counts["outcomes"] += 1
                counts["delivered"] += copies > 0
                counts["copies"] += copies
                counts["forwarded"] += copies
        for held in subscribers:
            counts["subscribers"] += 1
            counts["leases"] += len(held)
    return counts


def test_an_epoch_is_what_its_pairs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for scene in (
        FEW_PUBLISH,
        FEW_SUBSCRIBE,
        CH,
        replace(FEW_PUBLISH, known=0.7),
        replace(FEW_SUBSCRIBE, known=0.7),
        replace(CH, known=0.5),
        replace(FEW_PUBLISH, subscriber_k=5, subscribe=5),
        replace(FEW_SUBSCRIBE, subscriber_k=5),
        replace(CH, subscriber_k=2, subscribe=2),
        replace(FEW_PUBLISH, blocked=6),
        replace(FEW_SUBSCRIBE, blocked=6),
    ):
        with monkeypatch.context() as patched:
            compare_with_pairs(scene, patched)


def compare_with_pairs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Indices] = {}
    drawn_by_kernel = kernel._slots_drawn

    def drawn(*args: object) -> Indices:
        seen["slots"] = drawn_by_kernel(*args)  # type: ignore[arg-type]  # a wrapper passes on what it gets
        return seen["slots"]

    def blocked(rng: Rng, population: int, count: int, rows: int) -> Indices:
        found = distinct(rng, population, count, rows)
        if rows == scene.size.topics:  # else it is the draws
            seen["blocked"] = found
        return found

    monkeypatch.setattr(kernel, "_slots_drawn", drawn)
    monkeypatch.setattr(kernel, "distinct", blocked)
    for seed in range(5):
        rng = block_rng(seed, scene.name, 0)
        alive = rng.random((scene.size.topics, walked(scene))) < 0.6
        partners, counts = kernel._partners(scene, rng), no_counts()
        kernel._epoch(scene, alive.copy(), partners, rng, counts)
        expected = pair_by_pair(scene, alive, seen["slots"], partners, seen.get("blocked"))
        for name, value in expected.items():
            if value:
                assert counts[name] == value, f"{scene}: {name}, seed {seed}"


def test_views_differ_and_are_the_first_known_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = replace(FEW_PUBLISH, known=0.7)
    rng = block_rng(1, "views", 0)
    uses = kernel._partners(scene, rng)
    assert (uses.reshape(-1, scene.size.topics, walked(scene)).sum(axis=2) == scene.k).all()
    assert len({row.tobytes() for row in uses}) == scene.size.partners
    # Someone knows the last of a topic's first ten, and someone does not.
    assert 0 < uses[:, scene.k - 1].sum() < len(uses) or 0 < uses[:, 0].sum() < len(uses)


def test_drawn_slots_are_known_and_among_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, seed = replace(FEW_PUBLISH, known=0.7), 1
    seen: list[Flags] = []
    drawn = known

    def recorded(*args: object) -> Flags:
        seen.append(drawn(*args))  # type: ignore[arg-type]  # a wrapper passes on what it gets
        return seen[-1]

    monkeypatch.setattr(kernel, "known", recorded)
    monkeypatch.setattr(kernel, "_CLIENTS_AT_ONCE", 8)  # of 21 clients
    ranks: set[int] = set()
    slots = kernel._slots_drawn(scene, block_rng(seed, "drawn", 0))
    length = walked(scene)
    for client, (row, of_client) in enumerate(zip(np.concatenate(seen), slots.T.tolist(), strict=True)):
        first = np.flatnonzero(row)[: scene.k].tolist()
        own = [slot - client // SIZE.draws * length for slot in of_client]
        assert len(set(own)) == scene.publish and set(own) <= set(first), f"client {client}, seed {seed}"
        ranks |= {first.index(slot) for slot in own}
    assert [len(rows) for rows in seen] == [8, 8, 5]
    assert ranks == set(range(scene.k)), f"seed {seed}"


def test_nothing_is_lost_where_all_servers_are_up() -> None:
    for scene in (FEW_PUBLISH, FEW_SUBSCRIBE, CH):
        counts = simulate_block(replace(scene, down=0.0, outages="exact"), 0, 1, None)
        assert counts["delivered"] == counts["outcomes"] == 84
        assert counts["up"] == counts["states"] == 3 * scene.k
        assert counts["copies"] == 3 * counts["outcomes"]


def test_nothing_comes_where_all_is_blocked_or_the_draw_is_known() -> None:
    alone = SIZE._replace(draws=1)
    for scene in (FEW_PUBLISH, FEW_SUBSCRIBE, CH):
        assert simulate_block(replace(scene, blocked=scene.k), 0, 1, None)["delivered"] == 0
        assert simulate_block(replace(scene, down=0.01), 0, 1, None)["delivered"] > 0
        known = replace(scene, down=0.01, draws_known=True, size=alone)
        assert simulate_block(known, 0, 1, None)["copies"] == 0


def test_fewer_than_drawn_down_lose_nothing() -> None:
    for scene in (FEW_PUBLISH, FEW_SUBSCRIBE, CH):
        exact = replace(scene, servers=20, down=0.1, outages="exact", size=SIZE._replace(epochs=50))
        counts = simulate_block(exact, 0, 1, None)
        assert counts["delivered"] == counts["outcomes"]
        assert counts["copies"] < 3 * counts["outcomes"], "no server was ever down"
        assert counts["states"] == 50 * 3 * scene.k
        assert counts["up"] / counts["states"] == pytest.approx(0.9, abs=0.05)


def both(total: Counts, clustering: str, size: int) -> float:
    """The share of pairs of one cluster's outcomes, `size` in each, of which both came."""
    clusters = total[f"{clustering}_clusters"]
    pairs = total[f"{clustering}_xx"] - total["delivered"]
    return pairs / (clusters * size * (size - 1))


@pytest.mark.parametrize("scene", [FEW_PUBLISH, FEW_SUBSCRIBE], ids=lambda scene: scene.name)
def test_losses_are_shared_just_where_a_packet_is(scene: Scene) -> None:
    # All servers up, K = 5. Only copies of one message through one server share a packet, that to the server.
    q, k, w, seed = 0.3, 5, 3, 3
    size = Size(blocks=1, epochs=20, topics=20, draws=100, partners=10)
    publish, subscribe = (w, k) if scene is FEW_PUBLISH else (k, w)
    lossy = replace(
        scene, k=k, publish=publish, subscribe=subscribe, down=0.0, outages="exact", loss=q, size=size
    )
    total = simulate_block(lossy, 0, seed, None)
    passes = (1 - q) ** 2
    share = 1 - (1 - passes) ** w
    least, pmf = hypergeometric(k, w, w) if scene is FEW_SUBSCRIBE else (w, [1.0])
    # Two subscribers of one message with h servers in common: neither gets it.
    shared = q + (1 - q) * q * q
    neither = sum(p * shared**h * (1 - passes) ** (2 * (w - h)) for h, p in enumerate(pmf, least))
    together = 1 - 2 * (1 - share) + neither
    of_one_message = ("draw", size.partners) if scene is FEW_PUBLISH else ("partner", size.draws)
    of_one_subscriber = ("partner", size.draws) if scene is FEW_PUBLISH else ("draw", size.partners)
    assert total["delivered"] / total["outcomes"] == pytest.approx(share, abs=0.004), f"seed {seed}"
    assert both(total, *of_one_message) == pytest.approx(together, abs=0.006), f"seed {seed}"
    assert both(total, *of_one_subscriber) == pytest.approx(share**2, abs=0.006), f"seed {seed}"
    assert together > share**2 + 0.015


OUTAGES = [
    (replace(FEW_PUBLISH), 0.0),
    (replace(FEW_PUBLISH, outages="exact"), -1 / 49),
    (replace(FEW_PUBLISH, outages="zones", zones=5), 9 / 49),
    (replace(FEW_PUBLISH, outages="shared", correlation=0.2), 0.2),
]
"""Scenes with 50 servers, and the correlation of two servers' states."""


@pytest.mark.parametrize(("scene", "correlation"), OUTAGES, ids=lambda each: getattr(each, "outages", ""))
def test_servers_are_down_as_often_and_as_much_together_as_asked(scene: Scene, correlation: float) -> None:
    rng, epochs, seed = block_rng(3, "states", 0), 4000, 3
    up = np.array([states(scene, np.arange(50), rng) for _ in range(epochs)])
    p, mean = 1 - scene.down, up.mean()
    assert mean == pytest.approx(p, abs=0.015), f"seed {seed}"
    of_epoch = up.sum(axis=1)
    pairs = (of_epoch * (of_epoch - 1)).mean() / (50 * 49)
    together = (pairs - mean * mean) / (mean * (1 - mean))
    assert together == pytest.approx(correlation, abs=0.02), f"seed {seed}"
    assert np.abs(up.mean(axis=0) - p).max() < 4.5 * (p * (1 - p) / epochs) ** 0.5, f"seed {seed}"
    if scene.outages == "exact":
        assert set(of_epoch.tolist()) == {35}
    if scene.outages == "zones":
        assert (up == np.tile(up[:, :5], 10)).all()


def test_a_server_of_several_topics_has_one_state() -> None:
    rng = block_rng(1, "several", 0)
    servers = np.array([[3, 7, 11], [7, 3, 49], [49, 7, 0]])
    for scene, _ in OUTAGES:
        seen = set()
        for _ in range(200):
            (a, b, c), (b2, a2, d), (d2, b3, _e) = states(scene, servers, rng).tolist()
            assert a == a2 and b == b2 == b3 and d == d2, scene.outages
            seen.add((a, b, c, d))
        assert len(seen) > 8, scene.outages


def test_the_real_ring_places_topics_as_clients_do() -> None:
    scene = replace(FEW_PUBLISH, ring="real", name="on-ring")
    rng = block_rng(1, scene.name, 4)
    found = places(scene, positions(scene, 4, rng), RING, rng)
    for topic, servers in enumerate(found.tolist()):
        assert [RING.keys[server] for server in servers] == list(RING.nodes(f"on-ring/4/{topic}", 10))


def test_a_list_that_lacks_one_server_numbers_the_others_anew() -> None:
    scene = replace(CH, name="s", scheme="S", k=1, publish=1, subscribe=1, lacks_one=True, ring="real")
    rng = block_rng(1, "s", 0)
    at = positions(scene, 0, rng)
    for servers in (2, 50):
        small = replace(scene, servers=servers)
        lacking = block_rng(1, "lacking", 0).integers(servers, size=(200, 1))
        found = without_one(small, at, block_rng(1, "lacking", 0), 200)
        for row, gone in zip(found.tolist(), lacking[:, 0].tolist(), strict=True):
            shorter = [n for n in range(servers) if n != gone]
            assert row == [shorter[place % len(shorter)] for place in at.tolist()]


def test_r_is_what_its_pairs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[set[int]] = []
    drawn_by_kernel = kernel._servers_drawn

    def recorded(scene: Scene, count: int, rng: Rng) -> Indices:
        servers = drawn_by_kernel(scene, count, rng)
        drawn.append(set(servers.tolist()))
        return servers

    up = block_rng(9, "up", 0).random(50) < 0.6
    monkeypatch.setattr(kernel, "_servers_drawn", recorded)
    monkeypatch.setattr(kernel, "states", lambda _scene, servers, _rng: up[servers])
    counts = no_counts()
    kernel._simulate_r(R, block_rng(1, "r", 0), counts)
    working = set(np.flatnonzero(up).tolist())
    subscribers, messages = drawn[: R.size.partners], drawn[R.size.partners :]
    assert len(messages) == R.size.draws and all(len(servers) == 9 for servers in drawn)
    common = [len(sent & working & held) for sent in messages for held in subscribers]
    assert counts["outcomes"] == len(common)
    assert counts["delivered"] == sum(1 for servers in common if servers)
    assert counts["copies"] == counts["forwarded"] == sum(common)
    assert counts["taken"] == sum(len(sent & working) for sent in messages)
    assert (counts["sendings"], counts["leases"]) == (9 * 70, 9 * 90)


def test_r_with_views_draws_from_what_is_known() -> None:
    rng = block_rng(1, "r", 0)
    narrow = replace(R, known=0.5, publish=20, subscribe=20)
    with pytest.raises(ValueError, match="knows fewer than 20 servers"):
        for _ in range(1000):
            kernel._servers_drawn(narrow, 20, rng)
    for _ in range(100):
        assert len(set(kernel._servers_drawn(replace(R, known=0.8), 9, rng).tolist())) == 9
