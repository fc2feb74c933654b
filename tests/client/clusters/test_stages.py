"""client/clusters/stages.py: several salts, each from a time on. PROTOCOL §10.3."""

from dataclasses import replace
from math import inf

from kcast.client.cluster import Cluster, lab
from kcast.client.clusters.stages import Stage, in_force, stages


def cluster(*next_salts: tuple[bytes, int]) -> Cluster:
    return replace(lab([("192.0.2.1", 7400)]), salt=b"\0", next_salts=next_salts)


def salts(of: list[Stage]) -> list[tuple[float, bytes]]:
    assert not any(stage.cluster.next_salts for stage in of)
    return [(stage.from_unix_s, stage.cluster.salt) for stage in of]


def test_one_salt_is_one_stage() -> None:
    file = lab([("192.0.2.1", 7400)])
    (stage,) = stages(file)
    assert (stage.from_unix_s, stage.cluster) == (-inf, file)
    assert in_force(file, 0.0) is file


def test_salts_follow_one_another_in_the_order_of_their_times() -> None:
    file = cluster((b"c", 300), (b"a", 100), (b"b", 200))
    assert salts(stages(file)) == [(-inf, b"\0"), (100, b"a"), (200, b"b"), (300, b"c")]
    at = (99.9, 100.0, 250.0, 1e12)
    assert [in_force(file, unix_s).salt for unix_s in at] == [b"\0", b"a", b"b", b"c"]


def test_file_that_holds_from_a_time_on_begins_with_the_salt_of_that_time() -> None:
    file = cluster((b"a", 100), (b"b", 200), (b"c", 300))
    assert salts(stages(file, 250)) == [(250, b"b"), (300, b"c")]
    assert salts(stages(file, 200)) == [(200, b"b"), (300, b"c")]
    assert salts(stages(file, 50)) == [(50, b"\0"), (100, b"a"), (200, b"b"), (300, b"c")]


def test_last_of_two_salts_from_one_moment_on_counts() -> None:
    assert salts(stages(cluster((b"a", 100), (b"b", 100)))) == [(-inf, b"\0"), (100, b"b")]
