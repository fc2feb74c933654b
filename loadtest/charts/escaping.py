"""HTML and SVG as a type: any other string is text, and is escaped where it joins markup. Pure.

Only templates that are written out in the source, and files of the package, become markup as they are; a test
holds the callers of `markup` and `trusted` to that. So no name from a capture reaches a page unescaped.
"""

from collections.abc import Iterable
from functools import lru_cache
from html import escape
from typing import Self

from kcast.client.cli.text import escaped


class Html(str):
    """Markup. `Html(words)` escapes text, and returns markup as it is."""

    __slots__ = ()

    def __new__(cls, words: str = "") -> Self:
        """Returns `words` as markup; of text `&`, `<`, `>`, quotes and control characters are escaped."""
        return super().__new__(cls, words if isinstance(words, Html) else _as_text(words))


@lru_cache(maxsize=4096)  # a page has most of its words, such as names of classes, hundreds of times
def _as_text(words: str) -> str:
    # People look at pages with `less`, too; and what reverses text would mislead in a browser as well.
    return escape("\n".join(map(escaped, words.split("\n"))))


def trusted(source: str) -> Html:
    """Returns a file of the package, such as a style sheet, as markup."""
    return str.__new__(Html, source)


def markup(template: str, /, *pieces: str, **named: str) -> Html:
    """Fills the braces of a template as `str.format` does, with text escaped. `template` is a literal."""
    filled = {name: Html(piece) for name, piece in named.items()}
    return str.__new__(Html, template.format(*map(Html, pieces), **filled))


def joined(pieces: Iterable[str], separator: str = "") -> Html:
    """Returns all pieces as one, with `separator` between them; text is escaped."""
    return str.__new__(Html, Html(separator).join(map(Html, pieces)))
