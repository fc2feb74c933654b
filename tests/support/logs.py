"""Lines of `kcast serve`'s log."""

import re

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


def untimed(text: str) -> str:
    """Returns the lines without the time at which each begins. Fails if one has none."""
    lines = text.splitlines(keepends=True)
    for line in lines:
        assert _TIME.match(line), f"no time in {line!r}"
    return "".join(_TIME.sub("", line, count=1) for line in lines)
