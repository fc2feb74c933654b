"""The names that somebody may have meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns the end of a complaint that there is no `name`: the names that resemble it, if any do.

    >>> did_you_mean("bub", ["serve", "sub", "pub"]), did_you_mean("x", ["sub"])
    ('; did you mean sub or pub?', '')
    """
    names = list(names)
    close = [each for each in names if name.startswith(each) or (len(name) > 1 and each.startswith(name))]
    if not close:
        bare = name.strip("-")  # the dashes of options resemble each other always
        likeness = {each: SequenceMatcher(None, bare, each.strip("-")).ratio() for each in names}
        least = max(0.6, max(likeness.values(), default=0.0) - 0.05)
        close = [each for each, ratio in likeness.items() if ratio >= least]
    return f"; did you mean {' or '.join(close)}?" if close else ""
