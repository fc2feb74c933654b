"""A run of simulated scenarios and of captures made by hand."""

from collections.abc import Sequence
from pathlib import Path

from kcast.loadtest.capture.folder import ScenarioFolder, create_run
from kcast.loadtest.capture.schema import TABLES
from kcast.loadtest.scenario import Scenario
from tests.support.big_capture import write_scenario
from tests.support.handmade_capture import World


def write_run_of(path: Path, simulated: Sequence[Scenario], worlds: Sequence[World]) -> Path:
    """Writes a complete run of all these into a new folder; returns it."""
    run = create_run(path, [*simulated, *(world.scenario for world in worlds)], seed=1)
    for scenario in simulated:
        folder = run.begin(scenario.name)
        write_scenario(folder)
        folder.finish("complete")
    for world in worlds:
        folder = run.begin(world.scenario.name)
        begun = folder.info
        world.path = folder.path
        world.folder()  # which writes a scenario.json of its own
        kept = {name: begun[name] for name in ("run_id", "name", "owner", "started")}
        folder.finish("complete", **kept, tables=written(folder))
    run.finish("complete")
    return run.path


def written(folder: ScenarioFolder) -> dict[str, dict[str, int]]:
    """The files and rows that there are, as scenario.json says it."""
    return {
        table: {"files": len(folder.parts(table)), "rows": folder.read(table).num_rows} for table in TABLES
    }
