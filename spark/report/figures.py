"""The page's drawings as documents that stand alone, for notebooks. Pure."""

from collections.abc import Callable, Mapping, Sequence

from kcast.loadtest.charts.svg import Figure, Svg, document
from kcast.spark.findings.findings import Findings
from kcast.spark.report import causes, delivery, latency, over_time, reach
from kcast.spark.report.cells import NamedCells

FIGURES: Mapping[str, tuple[str, Callable[[Findings, NamedCells], Sequence[Figure]]]] = {
    "delivery": ("What arrived", delivery.figures),
    "latency": ("Latency", latency.figures),
    "causes": ("Why the rest did not arrive", causes.figures),
    "over_time": ("Over time", over_time.figures),
    "reach": (reach.TITLE, reach.figures),
}
"""The title of each figure, and what draws it."""


def figure(findings: Findings, name: str) -> Svg:
    """Returns one of the `FIGURES` as SVG, which notebooks show.

    Raises KeyError, with the names that there are; and ValueError where there is nothing to draw.
    """
    if name not in FIGURES:
        raise KeyError(f"there is no figure {name}, only {', '.join(FIGURES)}")
    title, draw = FIGURES[name]
    found = draw(findings, NamedCells.of(findings))
    if not found:
        raise ValueError(f"there is nothing to draw: no scenario has what {name} shows")
    drawings = [drawing for one in found for drawing in one.drawings]
    legend = list(dict.fromkeys(entry for one in found for entry in one.legend))
    return document(title, "", Figure(drawings, legend))
