"""A chart of shares with characters, at most 80 columns wide. Pure."""

from collections.abc import Iterator, Sequence

from kcast.loadtest.charts.curves import MeasuredPoint, Series
from kcast.loadtest.charts.words import percent_digits

_BAR_CHARS = 48
_SCALE = f"{'0 %':<{_BAR_CHARS // 2 - 1}}{'50 %':<{_BAR_CHARS // 2 - 2}}100 %"

Named = Sequence[tuple[str, Series]]


def text_chart(named: Named, x_name: str, theory: str, *, ascii_only: bool = False) -> str:
    """Draws bars from 0 to 100 %, one for each point; below a bar, theory's value is marked within its range.

    `named` are series with their names, `x_name` is the letter of the x axis, and `theory` explains the mark.
    """
    width = max(len(words) for words in (theory, *(name for name, _ in named)))
    lines = [f"{'':{width + 7}}{_SCALE}"]
    for x in sorted({point.x for _, series in named for point in series.points}):
        label = f"{x_name}={x:g}"
        for name, drawn, share in _rows(named, x, theory, ascii_only):
            lines.append(f"{label:5}{name:{width}}  {drawn:{_BAR_CHARS + 1}} {percent_digits(share):>6} %")
            label = ""
    return "\n".join(lines) + "\n"


def _rows(named: Named, x: float, theory: str, ascii_only: bool) -> Iterator[tuple[str, str, float]]:
    for name, series in named:
        for point in series.points:
            if point.x == x:
                yield name, _bar(point.y, ascii_only), point.y
                if point.expected is not None:
                    yield theory, _range(point, point.expected, ascii_only), point.expected


def _bar(share: float, ascii_only: bool) -> str:
    if ascii_only:
        return "#" * round(share * _BAR_CHARS)
    eighths = round(share * _BAR_CHARS * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _range(point: MeasuredPoint, expected: float, ascii_only: bool) -> str:
    left, middle, right, dash = "[|]-" if ascii_only else "├┼┤─"
    ends = (expected if end is None else end for end in (point.expected_low, point.expected_high))
    low, high, at = (min(_BAR_CHARS - 1, int(share * _BAR_CHARS)) for share in (*ends, expected))
    cells = [" "] * low + [dash] * (high - low + 1)
    cells[low], cells[high] = left, right
    cells[at] = middle
    return "".join(cells)
