"""The last part of the page: what the words mean, and what was run. Pure."""

from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.words import seconds
from kcast.spark.findings.findings import Findings
from kcast.spark.findings.tables import TABLES
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.markup import bullets, details, paragraph, terms
from kcast.spark.report.numbers import rows_table

TITLE = "How to read this"

_TERMS = (
    ("scenario", "One load test with fixed settings. All its messages had the same parameters."),
    ("pair", "A message and a subscriber that should get it."),
    ("copy, delivery", "What one server brought; the first copy in time, which the application gets."),
    ("K, K′", "A topic has K servers, found by hashing. A side that draws uses only K′ of them, at random."),
    (
        "policy 5/3/5",
        "k/publish/subscribe: the servers of a topic, how many of them a message goes to, and how many a "
        "subscriber is at. 5/K′/5 stands for policies that differ only in K′.",
    ),
    (
        "95 % interval",
        "The range that has the true share in 95 of 100 such runs. Pairs of one message, draw or outage are "
        "lost together, so the interval counts fewer independent trials than pairs.",
    ),
    (
        "theory beforehand",
        "Computed before it is known which servers are down: outages and views as planned, for the number of "
        "servers there were.",
    ),
    (
        "theory given what happened",
        "The outages, views, draws and leases as captured, and loss that nobody asked for as measured; which "
        "packets are lost is random. Verdicts are on "
        "this theory, the strictest. Of a hundred sound analyses, at most two disagree with it, or with the "
        "plan, in any part of this page. Theory agrees if a difference that matters would have been seen; "
        "else it is not refuted.",
    ),
    (
        "not valid",
        "The machine, or the recording, may have changed the figures. They are drawn hollow, and not judged.",
    ),
)
_NOTE_TERMS = (
    (
        "RCH, CH, R, S",
        "The note’s schemes. RCH: one side uses K′ servers of K, drawn at random, the other all. CH: both "
        "use all K. R: each side draws from all servers there are. S: one server by the topic’s hash.",
    ),
)


def html(findings: Findings, cells: NamedCells) -> Html:
    """Returns the last part of the page."""
    simulated = findings.table("simulation") or findings.table("note")
    parts = [terms((*_TERMS, *_NOTE_TERMS) if simulated else _TERMS)]
    if cells.all:
        rows = [cell.row for cell in cells.all]
        left_out = ("scenario", "scheme", "side", "delivery_valid", "latency_valid")
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
    """Returns the captures, the command and the time of the analysis."""
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
