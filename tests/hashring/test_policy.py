"""Policies (PROTOCOL §8.3): the schemes S, R, CH and RCH, whose hosts they take, and the random draw."""

import json
import random
from collections import Counter
from itertools import combinations
from math import ceil, sqrt
from typing import Any

import pytest

from kcast.hashring import model
from kcast.hashring.hashing import topic_hash
from kcast.hashring.policy import Policy, draw
from kcast.hashring.ring import HashRing
from tests.support.checkout import ROOT

VECTORS_FILE = ROOT / "hashring" / "vectors" / "placement.json"
KEYS = [f"192.0.2.{i}" for i in range(20)]


def works(k: int, publish: int, subscribe: int) -> bool:
    """Whether both sides of such a policy always meet."""
    return max(publish, subscribe) <= k < publish + subscribe


SIZES = range(1, 6)
WORKING = [Policy(k, m, n) for k in SIZES for m in SIZES for n in SIZES if works(k, m, n)]


class TestSchemes:
    def test_default_is_few_publish_5_3_5(self) -> None:
        assert Policy() == Policy(5, 3, 5, "ring") == Policy.from_scheme("RCH")
        assert str(Policy()) == "5/3/5"

    @pytest.mark.parametrize(
        ("scheme", "numbers", "policy", "name"),
        [
            ("S", {}, (1, 1, 1, "modulo"), "1/1/1 (scheme S)"),
            ("R", {"servers": 100}, (100, 30, 30, "all"), "100/30/30 (scheme R)"),
            ("R", {"servers": 4}, (4, 4, 4, "all"), "4/4/4 (scheme R)"),
            ("R", {"servers": 50, "publish": 7, "subscribe": 20}, (50, 7, 20, "all"), None),
            ("CH", {}, (3, 3, 3, "ring"), "3/3/3"),
            ("CH", {"k": 8}, (8, 8, 8, "ring"), "8/8/8"),
            ("RCH", {"k": 1000}, (1000, 3, 1000, "ring"), "1000/3/1000"),
            ("RCH", {"k_prime": 2, "side": "subscribe"}, (5, 5, 2, "ring"), "5/5/2"),
            ("RCH", {"k": 2}, (2, 2, 2, "ring"), "2/2/2"),
        ],
    )
    def test_each_is_a_policy(
        self, scheme: str, numbers: dict[str, Any], policy: tuple[Any, ...], name: str | None
    ) -> None:
        made = Policy.from_scheme(scheme, **numbers)
        assert made == Policy(*policy)
        assert name is None or str(made) == name
        assert made.scheme == ("CH" if numbers == {"k": 2} else scheme)

    def test_random_by_default_misses_one_in_ten_thousand(self) -> None:
        for servers in (1, 9, 10, 100, 1000, 100_000):
            policy = Policy.from_scheme("R", servers=servers)
            assert policy.publish == min(servers, ceil(3 * sqrt(servers)))
            assert model.hyp_miss(policy.k, policy.publish, policy.subscribe, 1.0) <= 1.3e-4

    @pytest.mark.parametrize(
        ("scheme", "numbers", "message"),
        [
            ("rch", {}, "use one of S, R, CH, RCH"),
            ("S", {"k": 3}, "S takes no k"),
            ("CH", {"k_prime": 3}, "CH takes no k_prime"),
            ("RCH", {"servers": 3}, "RCH takes no servers"),
            ("R", {}, "needs servers"),
            ("R", {"servers": 0}, "needs servers"),
            ("R", {"servers": 5, "publish": 6}, "publish=6 is more than k=5"),
            ("RCH", {"k": 3, "k_prime": 4}, "publish=4 is more than k=3"),
            ("RCH", {"side": "both"}, "use publish or subscribe"),
        ],
    )
    def test_what_a_scheme_does_not_take(self, scheme: str, numbers: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Policy.from_scheme(scheme, **numbers)


class TestValidation:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ((0, 1, 1), "k is 0: give a whole number"),
            ((5, 0, 5), "publish is 0"),
            ((5, 5, -1), "subscribe is -1"),
            ((5, 3.0, 5), "publish is 3.0: give a whole"),
            ((5, True, 5), "publish is True"),
            ((5, 6, 5), "raise k, or lower publish"),
            ((5, 5, 6), "raise k, or lower subscribe"),
            ((5, 3, 5, "rendezvous"), "use one of ring, modulo, all"),
            ((2, 1, 2, "modulo"), "set k to 1"),
            ((5, 2, 3), "no host in common: set one of them to 5"),
        ],
    )
    def test_errors_say_what_to_do(self, fields: tuple[Any, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Policy(*fields)

    def test_both_sides_may_draw_if_they_must_meet(self) -> None:
        assert model.hyp_miss(5, 3, 3, 1.0) == 0
        assert Policy(5, 3, 3).scheme == "RCH"

    def test_frozen_and_hashable(self) -> None:
        assert len({Policy(), Policy(5, 3, 5), Policy(5, 5, 3)}) == 2
        with pytest.raises(AttributeError):
            Policy().k = 7  # type: ignore[misc]  # that it is frozen is the test


class TestCandidates:
    def test_ring(self) -> None:
        ring = HashRing(KEYS)
        for policy in (Policy(), Policy(5, 5, 3), Policy.from_scheme("CH", k=5)):
            assert policy.candidates(ring, "a{b}") == ring.nodes("b", 5)

    def test_all(self) -> None:
        ring = HashRing(KEYS[::-1])
        everyone = tuple(sorted(key.encode() for key in KEYS))
        assert Policy.from_scheme("R", servers=7).candidates(ring, "x") == everyone

    def test_modulo(self) -> None:
        ring = HashRing(KEYS[::-1])
        chosen = Policy.from_scheme("S").candidates(ring, "x{y}")
        assert chosen == (sorted(key.encode() for key in KEYS)[topic_hash("y") % 20],)

    def test_modulo_vectors(self) -> None:
        for case in json.loads(VECTORS_FILE.read_text("utf-8"))["rings"]:
            keys = [bytes.fromhex(key["hex"]) for key in case["keys"]]
            ring = HashRing(keys, bytes.fromhex(case["salt"]))
            for row in case["modulo"]:
                found = Policy.from_scheme("S").candidates(ring, bytes.fromhex(row["topic"]["hex"]))
                assert found == (keys[row["node"]],)

    def test_modulo_falls_apart_with_views_and_the_ring_does_not(self) -> None:
        """The note's reason against S."""
        here, there = HashRing(KEYS), HashRing(KEYS[1:])
        topics = [f"t{i}" for i in range(2000)]
        moved = {
            scheme: sum(policy.candidates(here, t) != policy.candidates(there, t) for t in topics) / 2000
            for scheme, policy in (("S", Policy.from_scheme("S")), ("CH", Policy.from_scheme("CH", k=1)))
        }
        assert moved["S"] == pytest.approx(0.95, abs=0.02)
        assert moved["CH"] == pytest.approx(0.05, abs=0.02)

    def test_empty_ring_has_none(self) -> None:
        for scheme in ("S", "R", "CH", "RCH"):
            policy = Policy.from_scheme(scheme, servers=3 if scheme == "R" else None)
            assert policy.candidates(HashRing([]), "t") == ()

    def test_sizes_in_a_view(self) -> None:
        assert Policy().sizes(100) == (5, 3, 5)
        assert Policy().sizes(4) == (4, 3, 4)
        assert Policy().sizes(2) == (2, 2, 2)
        assert Policy().sizes(0) == (0, 0, 0)
        assert Policy.from_scheme("R", servers=100).sizes(200) == (200, 30, 30)
        assert Policy.from_scheme("S").sizes(9) == (1, 1, 1)
        for hosts in (1, 3, 50):
            ring = HashRing([str(i) for i in range(hosts)])
            for policy in (Policy(), Policy.from_scheme("S"), Policy.from_scheme("R", servers=9)):
                assert policy.sizes(hosts)[0] == len(policy.candidates(ring, "t"))

    @pytest.mark.parametrize("policy", WORKING)
    def test_margin_is_what_the_two_sides_have_in_common_at_least(self, policy: Policy) -> None:
        hosts = range(policy.k)
        common = [
            len({*published} & {*subscribed})
            for published in combinations(hosts, policy.publish)
            for subscribed in combinations(hosts, policy.subscribe)
        ]
        assert policy.margin == min(common) > 0

    def test_margin_without_the_ring(self) -> None:
        assert Policy.from_scheme("S").margin == 1, "no host may be replaced"
        assert Policy.from_scheme("R", servers=100).margin == 30 + 30 - 100, "they meet by chance"
        assert Policy.from_scheme("R", servers=4).margin == 4


class TestDraw:
    def test_every_subset_is_equally_likely(self) -> None:
        rng = random.Random(2004)
        trials = 30_000
        seen = Counter(frozenset(draw("abcde", 3, rng)) for _ in range(trials))
        assert set(seen) == {frozenset(c) for c in combinations("abcde", 3)}
        for count in seen.values():
            assert abs(count - trials / 10) < 4.5 * sqrt(trials * 0.1 * 0.9)

    def test_all_keep_their_order_and_take_no_chance(self) -> None:
        rng = random.Random(1)
        before = rng.getstate()
        assert draw([3, 1, 2], 3, rng) == draw([3, 1, 2], 9, rng) == (3, 1, 2)
        assert draw([], 2, rng) == draw([], 0, rng) == ()
        assert rng.getstate() == before
        assert draw([3, 1, 2], 0, rng) == ()

    def test_same_seed_same_draw(self) -> None:
        assert draw(KEYS, 5, random.Random(7)) == draw(KEYS, 5, random.Random(7))

    def test_negative(self) -> None:
        with pytest.raises(ValueError, match="negative"):
            draw([1], -1, random.Random(1))
