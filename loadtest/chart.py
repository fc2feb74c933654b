"""Delivery against K', drawn as SVG and with characters. Pure.

Both show what was measured in each phase as points or bars, what the model predicted as a line or a mark,
and the range in which 99.99 % of runs fall if the model is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import floor
from xml.sax.saxutils import escape


class Role(Enum):
    """What a curve shows, hence how it looks."""

    UP = "up"
    DOWN = "down"
    PREDICTED = "predicted"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Point:
    """A share of pairs delivered, 0 .. 1, at one K', and the range around it if it has one."""

    k_prime: int
    share: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Points in ascending K', and the legend's words for them."""

    role: Role
    name: str
    points: tuple[Point, ...]


# --- SVG -----------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 760, 500
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 730, 128, 430  # of the plotting area
_INSET = 100  # of the first and last K' from its sides
_DODGE = 9  # between curves that would lie on each other
_X_OFFSETS = {Role.UP: -_DODGE, Role.DOWN: 0, Role.PREDICTED: 0, Role.RECOVERED: _DODGE}

# Colours that differ for colour-blind readers too (Okabe and Ito, 2008), and shapes besides.
_STYLE = """\
text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}
text{font-size:14px;fill:#24292f}
.title{font-size:18px;font-weight:600}.value{font-size:13px;font-weight:600}
.small{font-size:12px;fill:#57606a}
.back{fill:#fff}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#57606a;stroke-width:1}
.line{fill:none;stroke-width:2}.whisker{stroke-width:1.5}
.up{stroke:#0072b2}.dot.up{fill:#fff;stroke-width:2}
.down{stroke:#d55e00}.dot.down{fill:#d55e00;stroke:none}
.predicted{stroke:#57606a}.line.predicted{stroke-dasharray:5 4}
.recovered{stroke:#009e73}.dot.recovered{fill:#009e73;stroke:none}.line.recovered{stroke-dasharray:2 4}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.small{fill:#9da7b3}.back{fill:#0d1117}.grid{stroke:#262c36}.axis{stroke:#9da7b3}
.up{stroke:#56b4e9}.dot.up{fill:#0d1117}.down{stroke:#f0883e}.dot.down{fill:#f0883e}
.predicted{stroke:#9da7b3}.recovered{stroke:#2ec99a}.dot.recovered{fill:#2ec99a}
}"""


def svg(curves: Sequence[Curve], title: str, subtitle: str) -> str:
    """A self-contained SVG document, readable on light and dark. Needs at least one point."""
    k_primes = sorted({point.k_prime for curve in curves for point in curve.points})
    floor_share = _floor_share(curves)
    gap = (_RIGHT - _LEFT - 2 * _INSET) / max(1, k_primes[-1] - k_primes[0])

    def x(k_prime: int, role: Role) -> float:
        return _LEFT + _INSET + (k_prime - k_primes[0]) * gap + _X_OFFSETS[role]

    def y(share: float) -> float:
        return _BOTTOM - (share - floor_share) / (1 - floor_share) * (_BOTTOM - _TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-labelledby="title subtitle">',
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text id="title" class="title" x="24" y="34">{escape(title)}</text>',
        f'<text id="subtitle" class="small" x="24" y="55">{escape(subtitle)}</text>',
        *_svg_legend(curves),
        *_svg_axes(k_primes, [x(k, Role.DOWN) for k in k_primes], floor_share, y),
    ]
    for curve in sorted(curves, key=lambda curve: curve.role is Role.DOWN):
        places = [(x(point.k_prime, curve.role), y(point.share)) for point in curve.points]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        parts.append(f'<polyline class="line {curve.role.value}" points="{path}"/>')
        for point, (px, py) in zip(curve.points, places, strict=True):
            if point.low is not None and point.high is not None:
                parts += _svg_whisker(curve.role, px, y(point.low), y(point.high))
            parts.append(_svg_dot(curve.role, px, py))
            if curve.role is Role.DOWN:
                parts.append(
                    f'<text class="value" x="{px + 14:.1f}" y="{py + 16:.1f}">{_percent(point.share)}</text>'
                )
    return "\n".join([*parts, "</svg>", ""])


def _svg_axes(
    k_primes: Sequence[int], columns: Sequence[float], floor_share: float, y: Callable[[float], float]
) -> list[str]:
    parts = []
    step = 0.1 if 1 - floor_share > 0.35 else 0.05 if 1 - floor_share > 0.15 else 0.02
    for tick in range(round((1 - floor_share) / step) + 1):
        share = floor_share + tick * step
        parts += [
            f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>',
            f'<text x="{_LEFT - 10}" y="{y(share) + 5:.1f}" text-anchor="end">{share:.0%}</text>',
        ]
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{_BOTTOM}" y2="{_BOTTOM}"/>')
    for k_prime, column in zip(k_primes, columns, strict=True):
        parts += [
            f'<line class="axis" x1="{column:.1f}" x2="{column:.1f}" y1="{_BOTTOM}" y2="{_BOTTOM + 5}"/>',
            f'<text x="{column:.1f}" y="{_BOTTOM + 24}" text-anchor="middle">{k_prime}</text>',
        ]
    middle_x, middle_y = (_LEFT + _RIGHT) / 2, (_TOP + _BOTTOM) / 2
    parts += [
        f'<text x="{middle_x:.0f}" y="{_HEIGHT - 20}" text-anchor="middle">'
        "K′: how many of its topic’s K servers a message is published to</text>",
        f'<text transform="translate(22 {middle_y:.0f}) rotate(-90)" text-anchor="middle">'
        "pairs delivered, % of expected</text>",
    ]
    return parts


def _svg_legend(curves: Sequence[Curve]) -> list[str]:
    parts = []
    for index, curve in enumerate(curves):
        x, y = 24 + index % 2 * 360, 80 + index // 2 * 22
        role = curve.role.value
        parts.append(f'<line class="line {role}" x1="{x}" x2="{x + 32}" y1="{y}" y2="{y}"/>')
        if any(point.low is not None for point in curve.points):
            parts += _svg_whisker(curve.role, x + 16, y - 7, y + 7)
        parts.append(_svg_dot(curve.role, x + 16, y))
        parts.append(f'<text x="{x + 42}" y="{y + 5}">{escape(curve.name)}</text>')
    return parts


def _svg_dot(role: Role, x: float, y: float) -> str:
    if role is Role.PREDICTED:
        return (
            f'<line class="whisker predicted" x1="{x - 9:.1f}" x2="{x + 9:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
    if role is Role.RECOVERED:
        return f'<rect class="dot recovered" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"/>'
    return f'<circle class="dot {role.value}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def _svg_whisker(role: Role, x: float, low_y: float, high_y: float) -> list[str]:
    ends = ((x, x, low_y, high_y), (x - 6, x + 6, low_y, low_y), (x - 6, x + 6, high_y, high_y))
    return [
        f'<line class="whisker {role.value}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'
        for x1, x2, y1, y2 in ends
    ]


def _floor_share(curves: Sequence[Curve]) -> float:
    """Where the axis begins: a tenth, at least 5 % below all that is drawn."""
    least = min(
        min(point.share, 1.0 if point.low is None else point.low) for c in curves for point in c.points
    )
    return max(0, floor((least - 0.05) * 10)) / 10


# --- Characters ----------------------------------------------------------------------------------------

_BAR_CHARS = 50  # one for 2 %


def text(curves: Sequence[Curve], ascii_only: bool = False) -> str:
    """A chart from 0 to 100 %, 80 columns wide: what was measured as bars, the prediction as a mark in its
    range."""
    width = max(len(_short(curve)) for curve in curves)
    k_primes = sorted({point.k_prime for curve in curves for point in curve.points})
    rows = [f"{'':{width + 8}}{_scale()}"]
    for k_prime in k_primes:
        label = f"K'={k_prime}"
        for curve in curves:
            for point in (point for point in curve.points if point.k_prime == k_prime):
                drawn = _bar(point.share, ascii_only) if point.low is None else _range(point, ascii_only)
                row = f"{label:5} {_short(curve):{width}}  {drawn:{_BAR_CHARS + 1}}"
                rows.append(f"{row} {_percent(point.share):>8}")
                label = ""
    return "\n".join(rows) + "\n"


def _short(curve: Curve) -> str:
    return curve.name.split(",")[0] if curve.role is not Role.PREDICTED else "  predicted"


def _scale() -> str:
    return f"{'0 %':<{_BAR_CHARS // 2 - 1}}{'50 %':<{_BAR_CHARS // 2 - 2}}{'100 %'}"


def _column(share: float) -> int:
    return min(_BAR_CHARS - 1, int(share * _BAR_CHARS))


def _bar(share: float, ascii_only: bool) -> str:
    if ascii_only:
        return "#" * round(share * _BAR_CHARS)
    eighths = round(share * _BAR_CHARS * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _range(point: Point, ascii_only: bool) -> str:
    left, middle, right, dash = "[|]-" if ascii_only else "├┼┤─"
    low = _column(point.share if point.low is None else point.low)
    high = _column(point.share if point.high is None else point.high)
    at = _column(point.share)
    cells = [" "] * low + [dash] * (high - low + 1)
    cells[low], cells[high] = left, right
    cells[at] = middle
    return "".join(cells)


def _percent(share: float) -> str:
    return f"{format_share(share)} %"


def format_share(share: float) -> str:
    """A share in percent to two places; 100.00 only if it is all, and 0.00 only if it is nothing."""
    rounded = f"{share * 100:.2f}"
    if rounded == "100.00" and share < 1:
        return "99.99"
    return "0.01" if rounded == "0.00" and share > 0 else rounded
