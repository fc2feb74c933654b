"""The tables "simulation" and "note", from added counts.

Verdicts on theory are at a level that holds for all scenes together: if theory were right everywhere, all
would agree with a chance of at least `1 - FALSE_ALARMS` (Bonferroni). Verdicts on the note come from the
simulated figures alone; `claims_others` and `claims_rch` say by which rule.
"""

from collections.abc import Mapping, Sequence

from kcast.hashring.effective_size import EffectiveSize
from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import AGREES, DISAGREES, NO_THEORY
from kcast.spark.simulation import claims_others, claims_rch
from kcast.spark.simulation.counts import Counts, effective_trials
from kcast.spark.simulation.scene import Scene
from kcast.spark.simulation.scenes import NoteSettings
from kcast.spark.simulation.simulated import Simulated
from kcast.spark.simulation.theory import theory

FALSE_ALARMS = 0.01


def rows(scenes: Sequence[Scene], counts: Mapping[str, Counts]) -> list[Row]:
    """Returns a row for each scene, in order. `counts` are by the scenes' names."""
    predicted = {scene.name: theory(scene) for scene in scenes}
    with_theory = sum(share is not None for share in predicted.values())
    confidence = 1 - FALSE_ALARMS / max(1, with_theory)
    return [_row(scene, counts[scene.name], predicted[scene.name], confidence) for scene in scenes]


def judge(settings: NoteSettings, simulated: Sequence[Row], counts: Mapping[str, Counts]) -> list[Row]:
    """Returns the table "note": every claim of the note on S, R, CH and RCH with its verdict.

    `simulated` and `counts` are of all of `scenes.scenes(settings)`.
    """
    found = Simulated(settings, {row["scene"]: row for row in simulated}, counts)
    return [*claims_others.claims(found), *claims_rch.claims(found)]


def _row(scene: Scene, counts: Counts, predicted: float | None, confidence: float) -> Row:
    share = counts["delivered"] / counts["outcomes"]
    effective = effective_trials(counts)
    low, high = effective.interval(share)
    return {
        "scene": scene.name,
        "group": scene.group,
        "ring": scene.ring,
        "scheme": scene.scheme,
        "k": scene.k,
        "publish": scene.publish,
        "subscribe": scene.subscribe,
        "servers": scene.servers,
        "down": scene.down,
        "loss": scene.loss,
        "condition": scene.condition,
        "outcomes": counts["outcomes"],
        "trials": effective.interval_trials(),
        "share": share,
        "low": low,
        "high": high,
        "theory": predicted,
        "verdict": _verdict(share, effective, predicted, confidence),
        "copies": counts["copies"] / counts["outcomes"],
    }


def _verdict(share: float, effective: EffectiveSize, predicted: float | None, confidence: float) -> str:
    """The verdict of the score test: whether theory is within Wilson's interval of this confidence."""
    if predicted is None:
        return NO_THEORY
    low, high = effective.interval(share, confidence)
    # The tolerance covers rounding where theory is 0 or 1.
    return AGREES if low - 1e-12 <= predicted <= high + 1e-12 else DISAGREES
