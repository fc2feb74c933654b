"""Topics that look like the patterns of other systems. Here they are topics like any other.

MQTT has `#` for all further levels of `a/b/c`, and `+` for one. NATS has `>` and `*` for those of `a.b.c`.
Redis has `*` for any text. Who comes from there and subscribes to such a name would wait in vain.
"""

import re
import warnings
from collections.abc import Iterable

# A whole level at the end; a whole level anywhere, beside others; or any text at the end.
_PATTERN = re.compile(rb"(?:^|[/.])[#>]$|(?:^|[/.:])\*(?:[/.:]|$)|\*$|(?:^|/)\+/|/\+$")


class WildcardWarning(UserWarning):
    """A topic looks like a pattern, but it is one topic: nothing else matches it.

    Where that is meant, `warnings.simplefilter("ignore", WildcardWarning)` silences it.
    """


def looks_like_a_pattern(topic: bytes) -> bool:
    """Returns whether a topic has `#`, `*`, `>` or `+` where MQTT, NATS or Redis have a wildcard.

    >>> [looks_like_a_pattern(topic) for topic in (b"weather/#", b"weather.*", b">", b"c#", b"a>b", b"2*3")]
    [True, True, True, False, False, False]
    """
    return _PATTERN.search(topic) is not None


def explanation(topic: str) -> str:
    """Returns what is wrong with subscribing to a topic that looks like a pattern, and what to do instead."""
    return (
        f"{topic} is one topic, and no pattern: topics are exact here. Name each topic, or publish on a "
        "common one too (docs/wildcards.md)"
    )


def warn_of_patterns(topics: Iterable[bytes], stacklevel: int) -> None:
    """Warns the caller, `stacklevel` calls up, of each topic that looks like a pattern."""
    for topic in filter(looks_like_a_pattern, topics):
        text = explanation(repr(topic.decode(errors="backslashreplace")))
        warnings.warn(text, WildcardWarning, stacklevel=stacklevel + 1)
