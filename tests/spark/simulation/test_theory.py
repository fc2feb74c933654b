"""Theory beside the note's scenes, against figures that were worked out by hand or published before."""

import pytest

from kcast.spark.simulation.scenes import NoteSettings, scenes
from kcast.spark.simulation.theory import theory

EVERY = {scene.name: scene for scene in scenes(NoteSettings())}


def test_theory_is_the_known_figure() -> None:
    for name, share in (
        *((f"rch-few-{form}{ring}", 0.999) for form in ("publish", "subscribe") for ring in ("", "-ideal")),
        ("ch", 0.999),
        ("s", 0.9),
        ("r-316", 0.5939),
        ("r-632", 0.973),
        ("r-876", 0.99905),
        *((f"rch-few-publish-{k_prime}", 1 - 0.1**k_prime) for k_prime in (1, 2, 4, 5)),
        # (1 - .9 .99 .99)^3 and (1 - .9 .95 .95)^3
        ("rch-few-publish-loss-1", 1 - 0.11791**3),
        ("rch-few-subscribe-loss-5", 1 - 0.18775**3),
        ("ch-loss-5", 1 - 0.18775**3),
        ("rch-few-publish-known-90", 0.99265),
        ("ch-known-50", 0.7526),
        ("r-876-known-50", 0.99905),
        ("s-one-unknown", 9e-6),
        ("rch-few-publish-k-500", 1 - 0.55**3),
        ("rch-few-subscribe-k-500", 0.999),
        ("ch-k-2", 0.99),
        ("rch-few-publish-all-up", 1.0),
        ("rch-few-publish-zones-10", 0.99558),
        ("rch-few-subscribe-zones-3", 0.982),
        ("rch-few-publish-correlated-5", 0.9973),
        ("rch-few-publish-correlated-10", 0.9950),
        ("rch-few-publish-exact", 0.999),
        # 10 9 8 / (100 99 98); and 2 of 20 cannot be all of 3
        ("rch-few-publish-exact-of-100", 1 - 720 / 970_200),
        ("rch-few-publish-exact-of-20", 1.0),
        ("rch-few-publish-blocked-405", 0.900),
        ("rch-few-subscribe-blocked-771", 0.5),
        # One of 3 draws hits the one server that is left with 3 / 1000.
        ("rch-few-subscribe-blocked-999", 0.9 * 3 / 1000),
        ("rch-few-publish-blocked-1000", 0.0),
        ("rch-few-subscribe-draw-known", 0.0),
        ("ch-blocked-1", 0.99),
        ("ch-blocked-3", 0.0),
        ("s-blocked-1", 0.0),
    ):
        found = theory(EVERY[name])
        near = pytest.approx(min(share, 1 - share), rel=4e-3, abs=1e-12)
        assert min(found, 1 - found) == near, name
        assert (found > 0.5) is (share > 0.5) or share == 0.5, name


def test_every_scene_has_a_name_of_its_own() -> None:
    assert len(EVERY) == len(scenes(NoteSettings())) > 60


def test_the_example_is_large_enough_for_its_claim() -> None:
    # 10**8 outcomes, and millions of draws where 400,000 would give 0.01 percentage points.
    for form in ("publish", "subscribe"):
        size = EVERY[f"rch-few-{form}"].size
        assert size.outcomes >= 10**8
        assert size.outcomes // size.partners >= 4_000_000
    assert min(scene.size.blocks for scene in EVERY.values()) >= 150
