"""Random captures, that contradict themselves freely, are judged as by a slow, plain oracle."""

import random
from pathlib import Path

import pytest

from kcast.loadtest.results.attribution import attribute
from kcast.loadtest.results.causes import Cause
from tests.support.random_captures import Oracle, random_world

SEEDS = range(30)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_captures_are_judged_as_row_by_row(tmp_path: Path, seed: int) -> None:
    world = random_world(tmp_path, random.Random(seed))
    folder = world.folder()
    result = attribute(folder)
    pairs = zip(result.msg_ids.tolist(), result.sub_ids.tolist(), result.causes.tolist(), strict=True)
    judged = {(msg, sub): Cause(cause) for msg, sub, cause in pairs}
    assert judged == Oracle(world).causes()
    assert sum(result.misses.values()) == len(result) - int(result.delivered.sum())
    # However it is cut into chunks.
    again = attribute(folder, chunk_paths=1 + seed)
    assert again.causes.tolist() == result.causes.tolist()
    assert again.paths == result.paths


def test_random_captures_have_all_causes(tmp_path: Path) -> None:
    met: set[Cause] = set()
    for seed in SEEDS:
        met |= set(Oracle(random_world(tmp_path, random.Random(seed))).causes().values())
    assert set(Cause) - met <= {Cause.HALTED, Cause.SEND_ERROR}
