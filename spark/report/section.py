"""What a part of the page is. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kcast.spark.report.markup import Verdict, badge, text


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
