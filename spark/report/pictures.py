"""The drawings of the page as SVG documents that stand alone, for light and dark. Pure."""

import re
from collections.abc import Sequence
from math import ceil

from kcast.loadtest.charts.curves import ALONE
from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.svg import STYLE, n, text_px
from kcast.spark.findings.findings import Findings
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.markup import Figure
from kcast.spark.report.page import sections

_SIZE = re.compile(r' width="([\d.]+)" height="([\d.]+)">')
_MARGIN_PX, _GAP_PX, _LEGEND_PX, _SWATCH_PX, _TITLE_PX = 24, 28, 24, 36, 50


def pictures(findings: Findings) -> dict[str, Html]:
    """Returns a document for each drawing of the page, by names of files: `delivery`, `delivery-2`, ..."""
    found: dict[str, Html] = {}
    for section in sections(findings, NamedCells.of(findings)):
        figures = [part for part in section.body if isinstance(part, Figure)]
        for number, figure in enumerate(figures, 1):
            name = section.anchor if number == 1 else f"{section.anchor}-{number}"
            title = f"{section.title}: {figure.heading}" if figure.heading else section.title
            found[name] = _document(title, figure)
    return found


def _document(title: str, figure: Figure) -> Html:
    drawings = [(drawn, *_size(drawn)) for drawn in figure.alone]
    across = 2 if len(drawings) > 1 else 1
    each = max(width for _, width, _ in drawings)
    width = across * each + (across - 1) * _GAP_PX
    legend, below = _legend(figure.legend, width)
    top = _TITLE_PX + below
    placed, row_top = [], top
    for start in range(0, len(drawings), across):
        row = drawings[start : start + across]
        for column, (drawing, _, _) in enumerate(row):
            placed.append(_moved(column * (each + _GAP_PX), row_top, drawing))
        row_top += max(height for _, _, height in row) + _GAP_PX
    whole_px, height_px = n(width + 2 * _MARGIN_PX), n(row_top)
    return markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'height="{height}"><style>{alone}{style}</style><rect class="back" width="100%" height="100%"/>'
        '<g transform="translate({margin},0)"><text class="headline" y="34">{title}</text>{legend}{drawn}'
        "</g></svg>\n",
        width=whole_px,
        height=height_px,
        alone=ALONE,
        style=STYLE,
        margin=str(_MARGIN_PX),
        title=title,
        legend=legend,
        drawn=joined(placed),
    )


def _size(drawn: Html) -> tuple[float, float]:
    found = _SIZE.search(drawn)
    if found is None:
        raise AssertionError("a drawing has no size")
    return float(found[1]), float(found[2])


def _legend(entries: Sequence[tuple[Html, str]], width: float) -> tuple[Html, float]:
    """The legend in columns that are as wide as its longest words, and its height."""
    if not entries:
        return Html(), 0
    each = max(_SWATCH_PX + text_px(words) + 12 for _, words in entries)
    columns = max(1, int(width // each))
    drawn = [
        _moved(
            index % columns * each,
            _TITLE_PX + index // columns * _LEGEND_PX,
            joined((swatch, markup('<text x="{}" y="12.5">{}</text>', str(_SWATCH_PX), words))),
        )
        for index, (swatch, words) in enumerate(entries)
    ]
    return joined(drawn), ceil(len(entries) / columns) * _LEGEND_PX + 6


def _moved(x: float, y: float, drawn: Html) -> Html:
    return markup('<g transform="translate({},{})">{}</g>', n(x), n(y), drawn)
