"""Numbers in words and digits, as people read them. Pure."""

from collections.abc import Callable, Sequence
from math import floor, isfinite, log10

NOTHING = "–"
"""The sign for a missing value."""

_SPACE = "\N{NO-BREAK SPACE}"
_DECIMALS_MAX = 5
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def percent(share: float | None, decimals: int = 2, most: int = _DECIMALS_MAX) -> str:
    """A share (0 to 1) with decimals, up to `most`, to tell it from 0 % and 100 %: `99.77 %`, `99.9993 %`.

    Only 1 is 100 %, and only 0 is 0 %.
    """
    return NOTHING if share is None else f"{percent_digits(share, decimals, most)}{_SPACE}%"


def percent_digits(share: float, decimals: int = 2, most: int = _DECIMALS_MAX) -> str:
    """The digits of `percent`, without the sign."""
    nearest = min(share, 1 - share)
    if nearest <= 0:
        return f"{share * 100:.0f}"
    places = min(most, max(decimals, -floor(log10(nearest * 100))))
    digits = f"{share * 100:.{places}f}"
    if float(digits) in (0, 100):  # closer than these decimals can tell
        least = 10.0**-places
        return f"< {least:.{places}f}" if share < 0.5 else f"> {100 - least:.{places}f}"
    return digits


def brief_percent(share: float | None) -> str:
    """A share that was set, such as `10 %` or `2.5 %`, to four digits."""
    return NOTHING if share is None else f"{share * 100:.4g}{_SPACE}%"


def interval(low: float | None, high: float | None, most: int = _DECIMALS_MAX) -> str:
    """Both ends of an interval: `99.68 – 99.83 %`."""
    if low is None or high is None:
        return NOTHING
    ends = (percent_digits(end, most=most) for end in (low, high))
    return f"{f'{_SPACE}–{_SPACE}'.join(ends)}{_SPACE}%"


def number(value: float | None, digits: int = 3) -> str:
    """A number with at least `digits` significant digits: `0.41`, `12.3`, `1,240`."""
    if value is None:
        return NOTHING
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, zeros included: `0.410`, `12.3`, `1,240`."""
    if value == 0:
        return "0"
    if not isfinite(value):
        return "∞" if value > 0 else "−∞"
    places = digits - 1 - floor(log10(abs(value)))
    return f"{value:,.{max(0, places)}f}"


def count(value: int, noun: str, nouns: str = "") -> str:
    """A number of things: `1 scenario`, `9 scenarios`."""
    return f"{value:,}{_SPACE}{noun if value == 1 else nouns or noun + 's'}"


def brief(value: float) -> str:
    """A count in a few digits: `7,796`, `653`, `1.27 million`."""
    for unit, words in ((10**9, "billion"), (10**6, "million")):
        if value >= unit:
            return f"{number(value / unit)}{_SPACE}{words}"
    return f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    """A time to three significant figures, in a suitable unit: `85.0 µs`, `2.19 ms`, `1.20 s`."""
    return NOTHING if value is None else _in_unit(value, lambda figure: significant(figure, 3))


def brief_milliseconds(value: float) -> str:
    """A time in a suitable unit, without zeros at the end: `10 ms`."""
    return _in_unit(value, number)


def _in_unit(value_ms: float, form: Callable[[float], str]) -> str:
    if value_ms >= 1000:
        return f"{form(value_ms / 1000)}{_SPACE}s"
    if 0 < value_ms < 0.1:
        return f"{form(value_ms * 1000)}{_SPACE}µs"
    return f"{form(value_ms)}{_SPACE}ms"


def seconds(value: float | None) -> str:
    """A time in seconds or minutes: `0.35 s`, `75 s`, `12 min 15 s`."""
    if value is None:
        return NOTHING
    if value < 100:
        return f"{number(value)}{_SPACE}s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes:,}{_SPACE}min" + (f" {rest}{_SPACE}s" if rest else "")


def duration(value_s: float) -> str:
    """A rough time of seconds, minutes or hours: `42 s`, `12 min 5 s`, `3 h 20 min`."""
    whole = round(value_s)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size(value_bytes: float) -> str:
    """A number of bytes in the unit that suits: `850 B`, `1.2 MB`."""
    for unit in _BYTE_UNITS:
        if value_bytes < 1000 or unit == _BYTE_UNITS[-1]:
            break
        value_bytes /= 1000
    return f"{value_bytes:.0f} {unit}" if unit == "B" or value_bytes >= 100 else f"{value_bytes:.1f} {unit}"


def probability(value: float | None) -> str:
    """A probability with two digits: `0.42`, or `< 0.001`, or `> 0.99`."""
    if value is None:
        return NOTHING
    if value < 0.001:
        return "< 0.001"
    return "> 0.99" if value > 0.99 else f"{value:.2g}"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Words as a list: `a, b and c`. Words beyond `most` are only counted: `a, b and 7 more`."""
    if len(words) > most:
        return f"{', '.join(words[: most - 1])} and {len(words) - most + 1:,} more"
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def span(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The range of some values: `from 1 ms to 5 ms`, or the value if all are equal."""
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"from {low} to {high}"
