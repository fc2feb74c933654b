"""The few pieces of HTML that the page is made of. Pure; what is given as text is escaped, as HTML is not."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, HOLDS, HOLDS_IF, NO_THEORY

Tone = Literal["good", "bad", "warn", "plain"]

_SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✕", "warn": "!", "plain": "–"}

_NAME_CHARS = 22
"""Of a name that is not broken."""

NOT_VALID = "not valid"

_TONES: dict[str, Tone] = {
    **{AGREES: "good", DISAGREES: "bad", NO_THEORY: "plain"},
    **{HOLDS: "good", HOLDS_IF: "warn", FAILS: "bad", NOT_VALID: "warn"},
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comes of a comparison, in two or three words."""

    words: str
    tone: Tone = "plain"

    @classmethod
    def of(cls, verdict: str) -> "Verdict":
        """A verdict of the tables."""
        return cls(verdict, _TONES.get(verdict, "plain"))


def text(words: str) -> str:
    """As HTML."""
    return escape(words, quote=True)


def badge(verdict: Verdict, more: str = "") -> str:
    """A verdict with its sign, so that colour alone tells nothing; `more` makes it another kind of badge."""
    sign = f'<span class="sign" aria-hidden="true">{_SIGNS[verdict.tone]}</span>'
    return f'<span class="badge {verdict.tone}{more and " " + more}">{sign}{text(verdict.words)}</span>'


@dataclass(frozen=True, slots=True)
class Head:
    """A column's head: its words, what it means, and whether it is of words or of numbers."""

    words: str
    meaning: str = ""
    is_words: bool = False


def table(heads: Sequence[Head], rows: Iterable[Sequence[str]], caption: str, more: str = "") -> str:
    """A table of HTML cells in a box that scrolls on its own where it is too wide; the first column stays."""
    head = "".join(
        f'<th scope="col"{_class("words" if one.is_words else "")}'
        f"{_title(one.meaning)}>{text(one.words)}</th>"
        for one in heads
    )
    body = "".join(
        "<tr>"
        + "".join(
            _cell(cell, one.is_words, is_first=not index)
            for index, (cell, one) in enumerate(zip(row, heads, strict=True))
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}">'
        f'<table{_class(more)}><caption class="unseen">{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: str, is_words: bool, *, is_first: bool) -> str:
    named = _class("words" if is_words else "")
    return f'<th scope="row"{named}>{cell}</th>' if is_first else f"<td{named}>{cell}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _title(words: str) -> str:
    return f' title="{text(words)}"' if words else ""


def name_cell(name: str, below: str = "") -> str:
    """A name as a table's first cell, which breaks if it is long; `below` is text."""
    long = " class='long'" if len(name) > _NAME_CHARS else ""
    sub = f"<span class='sub'>{text(below)}</span>" if below else ""
    return f"<b{long}>{text(name)}</b>{sub}"


def details(summary: str, body: str) -> str:
    """What opens when it is asked for. `summary` is text, `body` HTML."""
    return f"<details><summary>{text(summary)}</summary>{body}</details>"


def bullets(items: Iterable[str]) -> str:
    """HTML items as a list."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


@dataclass(frozen=True, slots=True)
class Section:
    """A figure with its sentence and verdict. `says` is text; `body` is HTML: drawings, keys, tables."""

    anchor: str
    title: str
    says: str
    verdict: Verdict
    body: str

    def html(self, names: Sequence[str] = ()) -> str:
        """As it stands on the page. `names` are not broken at their hyphens."""
        says = text(self.says).replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
        for name in sorted((text(name) for name in names if "-" in name), key=len, reverse=True):
            says = re.sub(
                rf"(?<![\w-]){re.escape(name)}(?![\w-])", rf'<span class="name">{name}</span>', says
            )
        return (
            f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-title">'
            f'<h2 id="{self.anchor}-title">{text(self.title)}</h2>'
            f'<p class="says">{says} {badge(self.verdict)}</p>'
            f"{self.body}</section>"
        )


def figure(drawing: str, how_to_read: str, legend: Sequence[tuple[str, str]] = (), heading: str = "") -> str:
    """A drawing with the legend before and a line on how to read it after. Legends are (swatch, words)."""
    entries = "".join(f"<li>{swatch}{text(words)}</li>" for swatch, words in legend)
    above = f"<h3>{text(heading)}</h3>" if heading else ""
    above += f'<ul class="legend">{entries}</ul>' if entries else ""
    below = f"<figcaption>{text(how_to_read)}</figcaption>" if how_to_read else ""
    return f"<figure>{above}{drawing}{below}</figure>"
