"""The table of a server's states, in worlds where servers crash, drain and cannot be reached."""

from tests.simulation.options import options_of_seed
from tests.simulation.scenario import run_seed
from tests.support.liveness_table import TOLD, Watched


def test_every_change_that_the_table_tells_happens(watched: Watched) -> None:
    for seed in range(3):
        run_seed(seed, options_of_seed(seed))
    assert watched.taken == {(row[0], row[2]) for row in TOLD}
