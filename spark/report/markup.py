"""The pieces of HTML that the page is made of. Pure; text is escaped, `Html` is not."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.svg import Drawings
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, HOLDS, HOLDS_IF, NO_THEORY, NOT_REFUTED

Tone = Literal["good", "bad", "warn", "plain"]

_SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✕", "warn": "!", "plain": "–"}

_NAME_CHARS = 22
"""Length of the longest name that is not broken."""

NOT_VALID = "not valid"

_TONES: dict[str, Tone] = {
    **{AGREES: "good", NOT_REFUTED: "plain", DISAGREES: "bad", NO_THEORY: "plain"},
    **{HOLDS: "good", HOLDS_IF: "warn", FAILS: "bad", NOT_VALID: "warn"},
}


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict in two or three words, with a sign and a colour."""

    words: str
    tone: Tone = "plain"

    @classmethod
    def of(cls, verdict: str) -> "Badge":
        """Returns the badge of a verdict in the tables."""
        return cls(verdict, _TONES.get(verdict, "plain"))

    @classmethod
    def of_all(cls, verdicts: Collection[str], *, any_valid: bool) -> "Badge":
        """Returns the badge of several verdicts: the one that weighs most."""
        if not any_valid:
            return cls.of(NOT_VALID)
        return cls.of(
            next((each for each in (DISAGREES, AGREES, NOT_REFUTED) if each in verdicts), NO_THEORY)
        )

    def html(self) -> Html:
        """The words with a sign, so that nothing depends on colour alone."""
        return markup(
            '<span class="badge {0}"><span class="sign" aria-hidden="true">{1}</span>{2}</span>',
            self.tone,
            _SIGNS[self.tone],
            self.words,
        )


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column: its words, their meaning, and whether the column holds words or numbers."""

    words: str
    meaning: str = ""
    is_words: bool = False


def table(heads: Sequence[Head], rows: Iterable[Sequence[str]], caption: str) -> Html:
    """Returns a table that scrolls by itself where it is too wide; its first column stays in place."""
    head = joined(
        markup(
            '<th scope="col"{}{}>{}</th>',
            _class_words(one),
            markup(' title="{}"', one.meaning) if one.meaning else "",
            one.words,
        )
        for one in heads
    )
    body = joined(
        markup("<tr>{}</tr>", joined(_cell(index, cell, heads[index]) for index, cell in enumerate(row)))
        for row in rows
    )
    return markup(
        '<div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        '<table><caption class="unseen">{caption}</caption>'
        "<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>",
        caption=caption,
        head=head,
        body=body,
    )


def _cell(index: int, cell: str, head: Head) -> Html:
    if index == 0:
        return markup('<th scope="row"{}>{}</th>', _class_words(head), cell)
    return markup("<td{}>{}</td>", _class_words(head), cell)


def _class_words(head: Head) -> Html:
    return markup(' class="words"') if head.is_words else Html()


def name_cell(name: str, below: str = "") -> Html:
    """Returns a name, which breaks if it is long, as the first cell of a row, with `below` under it."""
    long = markup(" class='long'") if len(name) > _NAME_CHARS else ""
    return markup("<b{}>{}</b>{}", long, name, under(below))


def under(words: str) -> Html:
    """Returns words in small letters for the line below a figure; nothing without words."""
    return markup("<span class='sub'>{}</span>", words) if words else Html()


def details(summary: str, body: Html) -> Html:
    """Returns a part that is closed until the reader opens it."""
    return markup("<details><summary>{}</summary>{}</details>", summary, body)


def bullets(items: Iterable[str]) -> Html:
    """Returns a list of items."""
    return markup("<ul>{}</ul>", joined(markup("<li>{}</li>", item) for item in items))


def paragraph(words: str) -> Html:
    """Returns a remark in a paragraph of its own."""
    return markup('<p class="quiet">{}</p>', words)


def terms(meanings: Iterable[tuple[str, str]]) -> Html:
    """Returns a list of terms and what they mean."""
    entries = joined(markup("<dt>{}</dt><dd>{}</dd>", term, meaning) for term, meaning in meanings)
    return markup('<dl class="terms">{}</dl>', entries)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: a sentence with its badge, then drawings with legends, and tables."""

    anchor: str
    title: str
    says: str
    badge: Badge
    body: Sequence[Html]

    def html(self, names: Sequence[str] = ()) -> Html:
        """The part as it stands on the page. `names` are not broken at their hyphens."""
        return markup(
            '<section id="{anchor}" aria-labelledby="{anchor}-title"><h2 id="{anchor}-title">{title}</h2>'
            '<p class="says">{says} {badge}</p>{body}</section>',
            anchor=self.anchor,
            title=self.title,
            says=_unbroken(self.says.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), names),
            badge=self.badge.html(),
            body=joined(self.body),
        )


def _unbroken(words: str, names: Sequence[str]) -> Html:
    """Returns words with the names that have hyphens marked, so that no line ends within one."""
    hyphened = sorted((name for name in names if "-" in name), key=len, reverse=True)
    if not hyphened:
        return Html(words)
    pieces = re.split(rf"(?<![\w-])({'|'.join(map(re.escape, hyphened))})(?![\w-])", words)
    return joined(
        markup('<span class="name">{}</span>', piece) if index % 2 else piece
        for index, piece in enumerate(pieces)
    )


class Figure(Html):
    """A drawing with its legend, as the page has it; and what a document of its own needs."""

    alone: tuple[Html, ...]
    legend: tuple[tuple[Html, str], ...]
    heading: str


def figure(
    drawing: Drawings, how_to_read: str, legend: Sequence[tuple[Html, str]] = (), heading: str = ""
) -> Figure:
    """Returns a drawing between its legend, of swatches and words, and a line on how to read it."""
    entries = joined(markup("<li>{}{}</li>", swatch, words) for swatch, words in legend)
    above = markup("<h3>{}</h3>", heading) if heading else ""
    key = markup('<ul class="legend">{}</ul>', entries) if entries else ""
    below = markup("<figcaption>{}</figcaption>", how_to_read) if how_to_read else ""
    made = Figure(markup("<figure>{}{}{}{}</figure>", above, key, drawing, below))
    made.alone, made.legend, made.heading = drawing.alone, tuple(legend), heading
    return made
