"""Logs on the simulated network: seeds, the checkers with their saboteurs, random partitions, and figures."""

from dataclasses import replace
from random import Random

import pytest

from kcast.hashring.policy import Policy
from tests.simulation.logs import Logs, Talk
from tests.simulation.options import Options
from tests.support.forms import Seeds

CALM = Options(seed=1, servers=5, clients=0, policy=Policy(5, 3, 5), delay_s=0.01, ttl_s=60, fault_s=15.0)
ROUGH = replace(CALM, loss=0.3, duplicate=0.1, reorder=0.3)


def settings(seed: int) -> tuple[Options, Talk]:
    """What a seed stands for."""
    rng = Random(f"logs {seed}")
    options = replace(
        CALM,
        seed=seed,
        servers=rng.randint(3, 6),
        policy=Policy(5, rng.choice((1, 3, 5)), 5),
        ttl_s=rng.choice((15, 60)),
        loss=rng.choice((0.0, 0.02, 0.3)),
        duplicate=rng.choice((0.0, 0.1)),
        reorder=rng.choice((0.0, 0.3)),
        delay_s=rng.choice((0.0005, 0.01, 0.06)),
        faults=rng.randint(0, 6),
        fault_s=rng.uniform(15, 30),
    )
    talk = Talk(
        holders=rng.randint(2, 5),
        interval_s=rng.choice((0.3, 1.0)),
        entries_max=rng.choice(((1000,), (1000,), (1000, 15))),
        crashes=rng.choice((0, 2, 4)),
        partitions=rng.choice((0, 0, 3)),
    )
    return options, talk


@pytest.mark.parametrize("remainder", range(4))
def test_seeds(seeds: Seeds, remainder: int) -> None:
    """In four parts, which several processes can run."""
    for seed in seeds(2, 200):
        if seed % 4 == remainder:
            Logs(*settings(seed)).run()
