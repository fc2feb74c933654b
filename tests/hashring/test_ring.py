"""Placement (PROTOCOL §8): the ring that is never built against the ring that is."""

import json
import pickle
import random
import re
import subprocess
import sys
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.hashring import compare
from kcast.hashring.arrays import CHUNK_HOSTS
from kcast.hashring.hashing import GOLDEN, hashed_bytes, host_base, mix64, point, rendezvous, topic_hash
from kcast.hashring.ring import CACHE_ENTRIES_MAX, CACHE_KEYS_MAX, PLAIN_HOSTS_MAX, HashRing
from tests.support import ring_oracle
from tests.support.checkout import ROOT
from tests.support.forms import few_of
from tests.support.ring_oracle import BuiltRing, bytes_with_hash, key_with_point, topic_at

VECTORS_FILE = ROOT / "hashring" / "vectors" / "placement.json"
VECTORS = json.loads(VECTORS_FILE.read_text("utf-8"))

VIEW_SIZES = (*range(1, 61), *range(70, 300, 23), 300)
CASES = 100_000


def raw(field: dict[str, str]) -> bytes:
    return bytes.fromhex(field["hex"])


def hosts(count: int) -> list[bytes]:
    return [b"10.%d.%d.%d" % (i >> 16, i >> 8 & 255, i & 255) for i in range(count)]


def random_key(rng: random.Random) -> bytes:
    return rng.choice(
        (
            b"10.%d.%d.%d" % (rng.randrange(256), rng.randrange(256), rng.randrange(256)),
            b"2001:db8:%x::/64" % rng.randrange(1 << 16),
            rng.randbytes(rng.randint(1, 40)),
            f"köln-{rng.randrange(10**6)}".encode(),
        )
    )


def random_topic(rng: random.Random) -> str | bytes:
    return rng.choice(
        (
            f"sensor/{rng.randrange(10**9)}",
            f"{{game{rng.randrange(10**4)}}}score",
            f"Größe/温度/{rng.randrange(10**4)}",
            rng.randbytes(rng.randint(0, 30)),
            bytes(rng.choices(b"{}ab", k=rng.randint(0, 9))),
        )
    )


class TestAgainstTheBuiltRing:
    """§8: the hosts of a topic are what a walk down the sorted ring meets first."""

    @pytest.mark.parametrize(
        "size", few_of([*VIEW_SIZES[:20], 60, 300, *VIEW_SIZES[20:59], *VIEW_SIZES[60:-1]], 22)
    )
    def test_same_hosts_in_the_same_order(self, size: int) -> None:
        rng = random.Random(size)
        keys = list({random_key(rng): None for _ in range(3 * size)})[:size]
        salt = rng.choice((b"", b"kcast", rng.randbytes(16)))
        ring, built = HashRing(keys, salt), BuiltRing(keys, salt)
        for _ in range(-(-CASES // len(VIEW_SIZES))):
            topic = random_topic(rng)
            k = rng.randint(1, min(10, size)) if rng.random() < 0.5 else rng.randint(1, size + 3)
            expected = built.nodes(topic.encode() if isinstance(topic, str) else topic, k)
            assert list(ring.nodes(topic, k)) == expected, f"size={size} topic={topic!r} k={k}"

    @pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 150])
    def test_tables_of_many_topics(self, size: int) -> None:
        rng = random.Random(size)
        keys = hosts(size)
        ring, built = HashRing(keys), BuiltRing(keys)
        topics = [b"topic-%d" % i for i in range(1000)] + [topic_at(p) for p in edges(built, rng)]
        walks = [built.nodes(topic, size) for topic in topics]  # of fewer hosts, a walk is how this begins
        for k in {1, 2, 5, size // 2 + 1, size, size + 4}:
            found = ring.nodes_many(topics, k)
            assert found.shape == (len(topics), min(k, size))
            assert found.dtype == np.int32
            for walk, row in zip(walks, found.tolist(), strict=True):
                assert [ring.keys[i] for i in row] == walk[:k]

    @pytest.mark.parametrize("size", [30, PLAIN_HOSTS_MAX, PLAIN_HOSTS_MAX + 1])
    def test_positions_on_and_beside_points(self, size: int) -> None:
        rng = random.Random(5)
        keys = hosts(size)
        ring, built = HashRing(keys, b"s"), BuiltRing(keys, b"s")
        for position in edges(built, rng):
            for k in (1, 4, size):
                assert list(ring.nodes(topic_at(position), k)) == built.nodes_at(position, k)

    @pytest.mark.parametrize("count", [9, PLAIN_HOSTS_MAX])
    def test_equal_points_and_equal_bases(self, count: int) -> None:
        keys = hosts(count)
        shared = point(host_base(keys[4]), 700)
        keys += [key_with_point(shared, low_bits) for low_bits in (0, 7, 512, 1023)]
        keys += [bytes_with_hash(host_base(b"192.0.2.1:7400")), b"192.0.2.1:7400"]
        assert host_base(keys[-1]) == host_base(keys[-2])
        built = BuiltRing(keys)
        rng = random.Random(3)
        for shuffled in (keys, rng.sample(keys, len(keys)), keys[::-1]):
            ring = HashRing(shuffled)
            positions = [shared - 1, shared, shared + 1, *edges(built, rng)]
            topics = [topic_at(position) for position in positions]
            walks = [built.nodes_at(position, len(keys)) for position in positions]
            for k in range(1, len(keys) + 1):
                table = ring.nodes_of_hashes(np.array(positions, np.uint64), k)
                for topic, walk, row in zip(topics, walks, table.tolist(), strict=True):
                    assert list(ring.nodes(topic, k)) == walk[:k]
                    assert [ring.keys[i] for i in row] == walk[:k]

    def test_window_that_is_too_narrow(self) -> None:
        """All points of the arc are crowded at its beginning, far below the topic."""
        rng = random.Random(8)
        keys = [key_with_point(5 << 54 | rng.randrange(1 << 40)) for _ in range(200)]
        ring, built = HashRing(keys), BuiltRing(keys)
        for offset in ((1 << 54) - 1, 1 << 53, 1 << 40, 1 << 39, 0):
            for k in (1, 3, 100, 200):
                position = 5 << 54 | offset
                assert list(ring.nodes(topic_at(position), k)) == built.nodes_at(position, k)

    @pytest.mark.parametrize("size", [9, PLAIN_HOSTS_MAX + 1])
    def test_points_at_the_ends_of_arcs(self, size: int) -> None:
        """An arc's first and last position, and those where the ring ends and begins."""
        starts = [arc << 54 for arc in (0, 5, 6)]
        ends = [(start - 1) % 2**64 for start in starts]
        keys = [*hosts(size), *map(key_with_point, (*starts, *ends))]
        ring, built = HashRing(keys), BuiltRing(keys)
        for edge in (*starts, *ends):
            for position in (edge - 1, edge, edge + 1):
                walk = built.nodes_at(position % 2**64, len(keys))
                for k in range(1, len(keys) + 1):
                    assert list(ring.nodes(topic_at(position % 2**64), k)) == walk[:k]

    def test_views_of_several_chunks(self) -> None:
        """Too large to build: the walk is over the points of three arcs, enough to meet every host."""
        ring = HashRing(hosts(40_000))
        assert len(ring) > 2 * CHUNK_HOSTS
        bases = [host_base(key) for key in ring.keys]
        for topic, k in ((b"a", 1), (b"b", 1000), (topic_at(3), 40), (topic_at((9 << 54) + (1 << 44)), 500)):
            position = topic_hash(topic)
            arcs = [((position >> 54) - back) % 1024 for back in range(3)]
            points = ((point(base, arc), base, i) for arc in arcs for i, base in enumerate(bases))
            walk = sorted(points, key=lambda p: ((position - p[0]) % 2**64, -p[1]))
            expected = list(dict.fromkeys(i for _, _, i in walk))[:k]
            assert [ring.keys[i] for i in expected] == list(ring.nodes(topic, k))
            assert ring.nodes_many([topic], k)[0].tolist() == expected

    def test_explanation_names_the_points_that_count(self) -> None:
        keys = hosts(12)
        ring, built = HashRing(keys, b"x"), BuiltRing(keys, b"x")
        owners = dict(zip(built.positions, built.owners, strict=True))
        for topic in ("{a}b", "c", topic_at(1), topic_at((1 << 64) - 1)):
            why = ring.explain(topic, 20)
            assert why.hashed == hashed_bytes(topic)
            assert why.topic_hash == topic_hash(topic)
            assert tuple(place.key for place in why.hosts) == ring.nodes(topic, 12)
            assert [place.rank for place in why.hosts] == list(range(12))
            for place in why.hosts:
                assert owners[place.point] == place.key
                assert place.arc == place.point >> 54
                assert place.distance == (why.topic_hash - place.point) % 2**64
            assert all(a.distance < b.distance for a, b in pairwise(why.hosts))


def edges(built: BuiltRing, rng: random.Random) -> list[int]:
    """Positions where an off-by-one would show."""
    points = [0, built.positions[0], built.positions[-1], *rng.sample(built.positions, 20)]
    points += [arc << 54 for arc in (1, 2, 512, 1023)]
    return [(p + d) % 2**64 for p in points for d in (-1, 0, 1)]


def test_a_client_of_a_small_cluster_does_without_numpy() -> None:
    """To import it takes longer than all else that `kcast pub` does."""
    program = """
import sys
from kcast.client import aio
from kcast.hashring.ring import PLAIN_HOSTS_MAX, HashRing
for count in (PLAIN_HOSTS_MAX, PLAIN_HOSTS_MAX + 1):
    HashRing([f"10.0.0.{number}" for number in range(count)]).nodes("weather", 3)
    print("numpy" in sys.modules)
"""
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue\n"


class TestVectors:
    def test_file_is_what_the_oracle_writes(self) -> None:
        assert json.loads(json.dumps(ring_oracle.vectors())) == VECTORS

    def test_published_splitmix64(self) -> None:
        """The first outputs from seed 1234567, as published with the generator."""
        assert mix64(1234567 + GOLDEN) == 6457827717110365317
        assert mix64(1234567 + 2 * GOLDEN) == 3203168211198807973

    @pytest.mark.parametrize("case", VECTORS["mix64"], ids=lambda case: case["state"])
    def test_mix64(self, case: dict[str, str]) -> None:
        assert mix64(int(case["state"], 16) + GOLDEN) == int(case["output"], 16)

    def test_points_by_hand(self) -> None:
        """Checked by an implementation that shares nothing with this one."""
        for key, base, points in (
            (b"10.0.0.1:4000", "aa8fa918a92a4d14", "003d5c2bbe577fbe 007f9feb6a68204d ffca50d168c164de"),
            (b"192.0.2.7:7777", "d8d61d1a5f01ccf1", "001530cde9f87c00 0059444ade9ca9a2 ffe76cf97a0bdcae"),
            (b"[2001:db8::1]:4000", "5e091fc78efc5520", "000eec4116b076ab 0056c28c24bcf4dd ffe977815266f429"),
        ):
            assert f"{host_base(key):016x}" == base
            assert " ".join(f"{point(host_base(key), arc):016x}" for arc in (0, 1, 1023)) == points

    @pytest.mark.parametrize("case", VECTORS["hosts"], ids=lambda case: case["base"])
    def test_hosts(self, case: dict[str, Any]) -> None:
        base = host_base(raw(case["key"]), bytes.fromhex(case["salt"]))
        assert base == int(case["base"], 16)
        for arc, position in case["points"].items():
            assert point(base, int(arc)) == int(position, 16)

    @pytest.mark.parametrize("case", VECTORS["topics"], ids=lambda case: case["hash"])
    def test_topics(self, case: dict[str, Any]) -> None:
        assert hashed_bytes(raw(case["topic"])) == raw(case["hashed"])
        assert topic_hash(raw(case["topic"])) == int(case["hash"], 16)

    @pytest.mark.parametrize("case", VECTORS["rings"], ids=lambda case: case["title"])
    def test_rings(self, case: dict[str, Any]) -> None:
        keys = [raw(key) for key in case["keys"]]
        ring = HashRing(keys, bytes.fromhex(case["salt"]))
        for row in case["nodes"]:
            assert ring.nodes(raw(row["topic"]), row["k"]) == tuple(keys[i] for i in row["nodes"])

    @pytest.mark.parametrize("case", VECTORS["rendezvous"])
    def test_rendezvous(self, case: dict[str, Any]) -> None:
        assert rendezvous(raw(case["topic"]), case["ports"]) == case["port"]


class TestHashTags:
    """§8.2: related topics can share their servers."""

    @settings(max_examples=500, derandomize=True, deadline=None)
    @given(st.lists(st.sampled_from([b"{", b"}", b"a", b"\n", b"{}"]), max_size=12).map(b"".join))
    def test_first_pair_with_something_inside(self, topic: bytes) -> None:
        inside = re.search(rb"\{([^}]+)\}", topic)
        assert hashed_bytes(topic) == (inside[1] if inside else topic)

    def test_topics_with_one_tag_share_all_hosts(self) -> None:
        ring = HashRing(hosts(50))
        assert ring.nodes("{game7}score", 5) == ring.nodes(b"chat{game7}", 5) == ring.nodes("game7", 5)
        assert ring.nodes("game7score", 5) != ring.nodes("game7", 5)

    def test_text_is_utf8(self) -> None:
        ring = HashRing(["köln", "東京", "oslo"])
        assert ring.nodes("Größe", 3) == ring.nodes("Größe".encode(), 3)
        assert set(ring.keys) == {"köln".encode(), "東京".encode(), b"oslo"}


class TestChurn:
    """One host more or less changes one member of K/N of the topics, and nothing else."""

    @pytest.mark.parametrize(("size", "k"), [(20, 1), (20, 5), (200, 5), (1000, 20), (3000, 30)])
    def test_one_host_joins_or_leaves(self, size: int, k: int) -> None:
        topics = [b"churn-%d" % i for i in range(20_000 if size <= 1000 else 2000)]
        small, large = (HashRing(hosts(count), b"salt") for count in (size - 1, size))
        newcomer = large.keys.index(hosts(size)[-1])
        index = {key: i for i, key in enumerate(large.keys)}
        renamed = np.array([index[key] for key in small.keys])
        before, after = renamed[small.nodes_many(topics, k)], large.nodes_many(topics, k)
        touched = 0
        for old, new in zip(before.tolist(), after.tolist(), strict=True):
            if newcomer in new:
                touched += 1
                new.remove(newcomer)
                old.pop()
            assert old == new
        share = k / size
        assert abs(touched / len(topics) - share) < 4 * (share * (1 - share) / len(topics)) ** 0.5

    def test_diff_counts_what_moved(self) -> None:
        ring = HashRing(hosts(50))
        other = HashRing([*(key for key in ring.keys if key != b"10.0.0.7"), b"london"])
        seen = compare.diff(ring, other, 5, samples=5000)
        assert (seen.only_here, seen.only_there) == ((b"10.0.0.7",), (b"london",))
        assert seen.topics == 5000
        assert seen.touched == pytest.approx(1 - 0.9 * 0.9, abs=0.025)
        assert seen.swapped == pytest.approx(0.2 - 0.01, abs=0.025)
        assert seen.first_moved == pytest.approx(0.04, abs=0.012)
        back = compare.diff(other, ring, 5, samples=5000)
        assert (back.touched, back.swapped, back.first_moved) == (
            seen.touched,
            seen.swapped,
            seen.first_moved,
        )

    def test_diff_of_given_topics_against_sets(self) -> None:
        ring, other = HashRing(hosts(9), b"old"), HashRing(hosts(9), b"new")
        topics = [f"t{i}" for i in range(300)]
        seen = compare.diff(ring, other, 4, topics)
        swaps = [len(set(ring.nodes(t, 4)) - set(other.nodes(t, 4))) for t in topics]
        assert seen.only_here == seen.only_there == ()
        assert seen.swapped == pytest.approx(sum(swaps) / 300)
        assert seen.touched == pytest.approx(sum(map(bool, swaps)) / 300)
        assert seen.first_moved == pytest.approx(sum(ring.node(t) != other.node(t) for t in topics) / 300)

    def test_diff_at_the_ends(self) -> None:
        ring, empty = HashRing(hosts(3)), HashRing([])
        same = compare.diff(ring, HashRing(hosts(3)[::-1]), 2)
        assert (same.touched, same.swapped, same.first_moved) == (0, 0, 0)
        gone = compare.diff(ring, empty, 2, ["a", "b"])
        assert (gone.touched, gone.swapped, gone.first_moved) == (1, 2, 1)
        assert compare.diff(empty, ring, 2, ["a"]).only_there == tuple(sorted(hosts(3)))
        nothing = compare.diff(empty, empty, 2, [])
        assert (nothing.topics, nothing.touched, nothing.first_moved) == (0, 0, 0)


class TestBalance:
    def test_loads_are_even(self) -> None:
        ring = HashRing(hosts(100), b"salt")
        for k, samples in ((1, 50_000), (10, 20_000)):
            even = compare.balance(ring, k, samples)
            assert (even.hosts, even.k, even.samples, even.mean) == (100, k, samples, samples * k / 100)
            own = 1 / (1024 * k) ** 0.5  # 1024 points a host: the spread of their gaps
            assert even.cv < 1.4 * (even.cv_of_chance**2 + own**2) ** 0.5
            assert even.cv > 0.6 * even.cv_of_chance
            assert 1 < even.peak_to_mean < 1 + 4.5 * even.cv
            assert 1 - 4.5 * even.cv < even.least_to_mean < 1

    def test_every_host_for_every_topic(self) -> None:
        even = compare.balance(HashRing(hosts(5)), 9, 100)
        assert (even.k, even.cv, even.peak_to_mean, even.least_to_mean, even.cv_of_chance) == (5, 0, 1, 1, 0)

    def test_neighbours_of_a_topic_are_spread(self) -> None:
        """Topics that share their first host do not share the second: no host inherits a dead one's load."""
        ring = HashRing(hosts(50))
        rows = ring.nodes_many([b"n-%d" % i for i in range(20_000)], 2)
        heirs = np.bincount(rows[rows[:, 0] == 7][:, 1], minlength=50)
        assert heirs[7] == 0
        assert heirs.max() < 0.08 * heirs.sum()


class TestErrors:
    def test_duplicate_keys(self) -> None:
        twice: list[list[bytes | str]] = [["a", "b", "a"], ["a", b"a"], [*hosts(3000), b"10.0.0.9"]]
        for keys in twice:
            with pytest.raises(ValueError, match=r"b'(a|10\.0\.0\.9)' occurs twice"):
                HashRing(keys)

    def test_empty_ring(self) -> None:
        ring = HashRing([])
        assert len(ring) == 0
        assert ring.keys == ring.nodes("a", 3) == ()
        assert ring.explain("a", 3).hosts == ()
        assert ring.nodes_many(["a", "b"], 3).shape == (2, 0)
        with pytest.raises(LookupError, match="server list"):
            ring.node("a")
        with pytest.raises(LookupError, match="nothing to balance"):
            compare.balance(ring, 3)

    @pytest.mark.parametrize("k", [0, -1])
    def test_no_hosts_wanted(self, k: int) -> None:
        ring = HashRing(["a"])
        for call in (ring.nodes, ring.explain):
            with pytest.raises(ValueError, match="at least 1"):
                call("t", k)
        with pytest.raises(ValueError, match="at least 1"):
            ring.nodes_many(["t"], k)
        with pytest.raises(ValueError, match="at least 1"):
            compare.balance(ring, 1, k)

    def test_ports(self) -> None:
        with pytest.raises(ValueError, match="no ports"):
            rendezvous("t", [])
        for port in (0, 65536, -5):
            with pytest.raises(ValueError, match="is not in 1"):
                rendezvous("t", [7400, port])


class TestIdentity:
    def test_order_of_keys_is_irrelevant(self) -> None:
        rng = random.Random(1)
        ring = HashRing(hosts(100), b"s")
        for _ in range(10):
            other = HashRing(rng.sample(hosts(100), 100), b"s")
            assert other.keys == ring.keys
            assert other.nodes("a", 9) == ring.nodes("a", 9)
        assert ring.sorted_keys == tuple(sorted(hosts(100)))

    def test_survives_pickling(self) -> None:
        ring = HashRing(hosts(20), b"s")
        ring.nodes("a", 3)
        other = pickle.loads(pickle.dumps(ring))
        assert (other.keys, other.salt) == (ring.keys, ring.salt)
        assert other.nodes("b", 5) == ring.nodes("b", 5)

    def test_salt_moves_hosts(self) -> None:
        topics = [b"%d" % i for i in range(200)]
        here, there = HashRing(hosts(50), b"a"), HashRing(hosts(50), b"b")
        assert here.salt == b"a"
        assert sum(here.node(t) == there.node(t) for t in topics) < 20

    def test_rendezvous_moves_only_the_topics_of_the_server_that_left(self) -> None:
        ports = [7400, 7401, 7402, 7403]
        homes = {t: rendezvous(t, ports) for t in (f"t{i}" for i in range(4000))}
        for port in ports:
            mine = [t for t, home in homes.items() if home == port]
            assert abs(len(mine) - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5
            fewer = [p for p in ports if p != port]
            assert all(rendezvous(t, fewer) == home for t, home in homes.items() if home != port)
        assert all(rendezvous(t, ports[::-1]) == home for t, home in homes.items())


class TestCache:
    def test_second_answer_is_the_first(self) -> None:
        ring = HashRing(hosts(50))
        first = ring.nodes("{a}x", 5)
        assert ring.nodes(b"{a}y", 5) is first
        assert ring.nodes("a", 4) == first[:4]

    def test_is_bounded_in_entries_and_in_keys(self) -> None:
        small, large = HashRing(hosts(3)), HashRing(hosts(600))
        for i in range(3 * CACHE_ENTRIES_MAX):
            small.nodes(b"%d" % i, 1)
        assert len(small._cache) + len(small._older) <= 2 * CACHE_ENTRIES_MAX
        for i in range(1000):
            large.nodes(b"%d" % i, 600)
        kept = [*large._cache.values(), *large._older.values()]
        assert sum(map(len, kept)) <= 2 * CACHE_KEYS_MAX

    @pytest.mark.long
    def test_eviction_is_deterministic_and_spares_what_is_in_use(self) -> None:
        def run() -> tuple[list[Any], list[Any], bool]:
            ring = HashRing(hosts(3))
            hot = ring.nodes("hot", 2)
            spared = True
            for i in range(2 * CACHE_ENTRIES_MAX):
                ring.nodes(b"%d" % i, 2)
                if i % 100 == 0:
                    spared &= ring.nodes("hot", 2) is hot
            return list(ring._cache), list(ring._older), spared

        assert run() == run()
        assert run()[2]

    def test_threads_may_share_a_ring(self) -> None:
        ring, alone = HashRing(hosts(2000)), HashRing(hosts(2000))
        topics = [b"%d" % (i % 700) for i in range(1500)]
        expected = {t: alone.nodes(t, 300) for t in topics}
        wrong: list[bytes] = []

        def look_up(seed: int) -> None:
            for topic in random.Random(seed).sample(topics, len(topics)):
                if ring.nodes(topic, 300) != expected[topic]:
                    wrong.append(topic)

        threads = [threading.Thread(target=look_up, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
