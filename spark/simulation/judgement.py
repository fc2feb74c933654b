"""The table "note": every claim of the note on S, R, CH and RCH, beside what the simulation gave.

Verdicts come from the simulated figures alone; `claims_others` and `claims_rch` say by which rule.
"""

from collections.abc import Mapping, Sequence

from kcast.spark.findings.findings import Row
from kcast.spark.simulation import claims_others, claims_rch
from kcast.spark.simulation.counts import Counts
from kcast.spark.simulation.evidence import Evidence
from kcast.spark.simulation.scenes import Settings


def judge(settings: Settings, simulated: Sequence[Row], counts: Mapping[str, Counts]) -> list[Row]:
    """Rows of the table "note". `simulated` and `counts` are of all of `scenes.scenes(settings)`."""
    evidence = Evidence(settings, {row["scene"]: row for row in simulated}, counts)
    return [*claims_others.claims(evidence), *claims_rch.claims(evidence)]
