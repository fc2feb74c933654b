"""What was run, and what the words mean. Pure."""

from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.words import seconds
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import TABLES
from kcast.spark.report.cells import Cells
from kcast.spark.report.markup import bullets, details, paragraph, terms
from kcast.spark.report.numbers import rows_table

TITLE = "How to read this"

_TERMS = (
    ("K, K′", "A topic has K servers, found by hashing. K′ of them are used by the side that uses few."),
    (
        "RCH, CH, R, S",
        "The note’s schemes. RCH: one side uses K′ servers of K, drawn at random, the other all. CH: both "
        "use all K. R: each side draws from all servers there are. S: one server by the topic’s hash.",
    ),
    ("k/publish/subscribe", "Servers of a topic, how many a message goes to, at how many a subscriber is."),
    ("cell", "One scenario of one run: all its messages had the same parameters."),
    (
        "95 % interval",
        "On the effective sample size: losses repeat within a topic, a draw and an outage, so many pairs "
        "tell less than as many independent ones.",
    ),
    (
        "theory, three ways",
        "Endlessly many servers that fail independently, as the note has it; this many servers, with outages "
        "and views as planned; and given the outages, views, draws and leases that the capture tells of. "
        "Verdicts are on the last, the strictest, and such that of a hundred sound analyses one has a cell "
        "that disagrees.",
    ),
    (
        "not valid",
        "The machine, or the recording, may have changed the figures. They are drawn hollow, and not judged.",
    ),
)


def html(findings: Findings, cells: Cells) -> Html:
    """The last part of the page."""
    parts = [terms(_TERMS)]
    if cells.all:
        rows = [cell.row for cell in cells.all]
        left_out = ("scenario", "delivery_valid", "latency_valid")
        parts.append(details("What was run", rows_table("scenarios", rows, cells, leave_out=left_out)))
    names = [name for name in TABLES if name in findings.tables]
    if names:
        files = bullets(
            markup("<code>{}</code>, <code>.parquet</code>", f"tables/{name}.csv") for name in names
        )
        where = markup(
            "Beside this page, with all that it shows and more; <code>report.json</code> has them in one."
        )
        parts.append(details("All tables as files", joined((paragraph(where), files))))
    return markup(
        '<section id="reading" aria-labelledby="reading-title"><h2 id="reading-title">{}</h2>{}</section>',
        TITLE,
        joined(parts),
    )


def footer(findings: Findings) -> Html:
    """How the page came to be."""
    about = findings.about
    lines: list[str] = []
    for capture in about.get("captures") or ():
        told = [capture.get(name) for name in ("run", "status", "started", "host") if capture.get(name)]
        words = " · ".join(str(one) for one in told)
        lines.append(markup("{}<br><code>{}</code>", words, str(capture.get("path", ""))))
    made = [
        f"kcast {about['kcast']}" if about.get("kcast") else "kcast",
        f"analysed {about['made']}" if about.get("made") else "",
        f"in {seconds(float(about['seconds']))}" if about.get("seconds") else "",
    ]
    lines.append(", ".join(filter(None, made)))
    if about.get("command"):
        command = about["command"]
        words = command if isinstance(command, str) else " ".join(str(word) for word in command)
        lines.append(markup("<code>{}</code>", words))
    return markup("<footer>{}</footer>", joined(markup("<p>{}</p>", line) for line in lines))
