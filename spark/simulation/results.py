"""The tables "simulation" and "note", from added counts.

Verdicts on theory are at a level that holds for all scenes together: if theory were right everywhere, all
would agree with a chance of at least `1 - FALSE_ALARMS` (Bonferroni). Verdicts on the note come from the
simulated figures alone; `claims` says by which rule.
"""

from collections.abc import Mapping, Sequence

from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import AGREES, DISAGREES
from kcast.spark.simulation.claims import Simulated, claims
from kcast.spark.simulation.counts import Counts, effective_trials
from kcast.spark.simulation.scenes import NoteSettings, Scene
from kcast.spark.simulation.theory import theory

FALSE_ALARMS = 0.01

_OF_SCENE = ("group", "ring", "scheme", "k", "publish", "subscribe", "servers", "down", "loss", "condition")


def rows(scenes: Sequence[Scene], counts: Mapping[str, Counts]) -> list[Row]:
    """Returns a row for each scene, in order. `counts` are by the scenes' names."""
    predicted = {scene.name: theory(scene) for scene in scenes}
    confidence = 1 - FALSE_ALARMS / len(scenes)
    return [_row(scene, counts[scene.name], predicted[scene.name], confidence) for scene in scenes]


def judge(settings: NoteSettings, simulated: Sequence[Row], counts: Mapping[str, Counts]) -> list[Row]:
    """Returns the table "note": every claim of the note on S, R, CH and RCH with its verdict.

    `simulated` and `counts` are of all of `scenes.scenes(settings)`.
    """
    return list(claims(Simulated(settings, {row["scene"]: row for row in simulated}, counts)))


def _row(scene: Scene, counts: Counts, predicted: float, confidence: float) -> Row:
    share = counts["delivered"] / counts["outcomes"]
    effective = effective_trials(counts)
    low, high = effective.interval(share)
    least, most = effective.interval(share, confidence)
    # By the score test: theory is within Wilson's interval. The tolerance is for rounding at 0 and 1.
    agrees = least - 1e-12 <= predicted <= most + 1e-12
    return {
        "scene": scene.name,
        **{name: getattr(scene, name) for name in _OF_SCENE},
        "outcomes": counts["outcomes"],
        "trials": effective.interval_trials(),
        **{"share": share, "low": low, "high": high},
        "theory": predicted,
        "verdict": AGREES if agrees else DISAGREES,
        "copies": counts["copies"] / counts["outcomes"],
    }
