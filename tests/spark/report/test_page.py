"""spark/report: the page says what the findings say, of any findings, and is never surer than they are."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html import escape
from html.parser import HTMLParser

from kcast.loadtest.charts.svg import STYLE_FILE
from kcast.loadtest.charts.words import percent
from kcast.loadtest.results.causes import UNEXPLAINED
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, NO_THEORY, NOT_REFUTED, TABLES
from kcast.spark.report import page as pages
from kcast.spark.report.over_time import DRAWN_MAX
from kcast.spark.report.page import page
from kcast.spark.report.parts import gravest
from tests.support.checkout import ROOT
from tests.support.report_findings import findings, row, scenarios, sixty

GRID = scenarios("grid")
VOID = {"meta", "br", "link", "img", "hr", "input"}
PARTS = ("delivery", "attribution", "over-time", "latency", "reach", "balance", "cost", "trust")


class Tree(HTMLParser):
    """Elements of a page in order, with all that is wrong with it."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[tuple[tuple[str, ...], str]] = []
        self.feed(source)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"{tag} closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append((tuple(self.open), data))

    def active(self) -> list[str]:
        """What a page must not have: elements and attributes that load or run something."""
        tags = {"script", "iframe", "object", "embed", "link", "img", "form"}
        found = [tag for tag, _ in self.elements if tag in tags]
        return found + [name for _, attrs in self.elements for name in attrs if name.startswith("on")]

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs in self.elements if name in attrs]

    def text(self, *within: str) -> str:
        """Words, of elements inside all of these."""
        told = "".join(
            words
            for path, words in self.words
            if "style" not in path and (not within or set(within) <= set(path))
        )
        return told.replace("\N{NO-BREAK SPACE}", " ")


def part(source: str, anchor: str) -> str:
    """A section of the page."""
    found = re.search(rf'<section id="{anchor}".*?</section>', source, re.S)
    assert found, anchor
    return found[0]


def says(found: Findings, anchor: str) -> str:
    """A section's sentences with their verdict, as plain words."""
    told = re.search(r'<p class="says">.*?</p>', part(page(found), anchor), re.S)
    assert told
    return " ".join(Tree(told[0]).text().split())


def changed(found: Findings, table: str, change: Callable[[Row], Row]) -> Findings:
    """The same with other rows in a table."""
    tables = {**found.tables, table: [change(dict(one)) for one in found.tables[table]]}
    return Findings(found.about, found.problems, tables)


def of_cell(number: int, **values: object) -> Callable[[Row], Row]:
    return lambda one: one | values if one["cell"] == number else one


MANY: dict[str, Callable[[], Findings]] = {
    "grid": lambda: findings(GRID, simulated=True),
    "one cell": lambda: findings(scenarios("network")),
    "a simulation only": lambda: findings(simulated=True),
    "views": lambda: findings(scenarios("views"), latency_invalid=[0]),
    "kills and stalls": lambda: findings(scenarios("kills") + scenarios("stalls"), runs=("a", "b")),
    "repeats": lambda: findings(scenarios("repeats")),
    "all invalid": lambda: findings(GRID, invalid=range(9)),
    "some invalid": lambda: findings(GRID, invalid=[1, 4], disagreeing=[2], problems=["zones was left out"]),
    "S and R": lambda: findings(scenarios("smoke", scheme=("S", "R", "CH"), servers=(30,))),
    "sixty": lambda: findings(sixty()),
    "nothing": lambda: Findings({}),
    "no rows": lambda: Findings({}, (), {name: [] for name in TABLES}),
}


# A page of its own.


def test_any_findings_make_a_page_that_stands_alone_the_same_from_its_json() -> None:
    for name, make in MANY.items():
        found = make()
        source = page(found)
        tree = Tree(source)
        assert (tree.wrong, tree.active()) == ([], []), name
        ids = tree.attributes("id")
        assert len(ids) == len(set(ids)), name
        links = tree.attributes("href")
        assert all(link[0] == "#" and link[1:] in ids for link in links), name
        assert re.findall(r"https?:|//\w|url\(|@import|\bsrc=", source) == [], name
        assert "default-src 'none'" in tree.attributes("content")[1]
        assert re.findall(r"\b(nan|inf|None|Traceback)\b", tree.text()) == [], name
        assert tree.text("h1") and len(source) < 700_000, name
        assert page(Findings.from_json(found.to_json())) == source, name


def test_what_is_not_known_is_left_out() -> None:
    whole = findings(scenarios("k-prime")[:1], simulated=True)
    for table, columns in TABLES.items():
        for column in columns:
            if column.type == "float" and column.name not in ("from_s", "to_s"):
                source = page(changed(whole, table, partial(_say, column.name, None)))
                assert Tree(source).wrong == [] and "None" not in source, column
        if table != "scenarios":
            rest = {name: rows for name, rows in whole.tables.items() if name != table}
            assert Tree(page(Findings(whole.about, (), rest))).wrong == [], table


def test_the_parts_come_in_their_order_each_with_a_sentence_and_a_verdict() -> None:
    source = page(findings(GRID, simulated=True))
    assert re.findall(r'<section id="([\w-]+)"', source) == [*PARTS, "note", "reading"]
    for anchor in (*PARTS, "note"):
        words = says(findings(GRID, simulated=True), anchor)
        assert re.search(r"\d", words) and 'class="badge' in part(source, anchor).split("</p>")[0], words
    overview = source[source.index("<nav") : source.index("</nav>")]
    assert overview.count('class="badge') == len(PARTS) + 1, "the verdicts at one glance"


def test_drawings_say_what_they_show_and_suit_any_width() -> None:
    found = [attrs for tag, attrs in Tree(page(findings(GRID))).elements if attrs.get("class") == "drawing"]
    assert len(found) == 5 + 1 + len(GRID)
    assert all(len(attrs["aria-label"]) > 20 and attrs["width"] == "100%" for attrs in found)
    drawn = part(page(findings(sixty())), "over-time")
    assert (
        drawn.count('class="drawing"') == DRAWN_MAX
        and f"over_time.csv has {len(sixty()) - DRAWN_MAX}\N{NO-BREAK SPACE}more scenarios" in drawn
    )


# What it says.


def with_down(found: Findings, servers: float) -> Findings:
    return changed(found, "over_time", lambda one: one | {"servers_down": servers})


def test_the_title_is_what_arrived_with_the_share_of_servers_that_was_down() -> None:
    def head(found: Findings) -> str:
        return Tree(page(found)).text("h1")

    rows = findings(GRID).tables["reliability"]
    least, most = (
        percent(pick(one["share"] for one in rows)).replace("\N{NO-BREAK SPACE}", " ") for pick in (min, max)
    )
    servers = GRID[0].servers
    told = f"{least} arrived with 1 copy, {most} with all 8 copies"
    assert head(with_down(findings(GRID), 0.42 * servers / 10)) == f"{told}, with 4.2 % of the servers down"
    assert head(with_down(findings(GRID), 0.0)) == told
    lead = Tree(page(with_down(findings(GRID), servers / 20))).text("p")
    assert "On average 5.0 % of the servers were down; the plan was 10 %." in lead
    assert re.match(r"From [\d.]+ % to 100 % arrived in 6 scenarios", head(findings(scenarios("views"))))
    assert re.match(r"[\d.]+ % arrived with 3 copies of 8", head(findings(GRID[2:3])))
    assert head(findings(GRID, invalid=range(9))) == "These figures cannot be trusted"
    assert head(findings(simulated=True)) == "Of the note’s 5 claims 1 does not hold"
    assert head(Findings({})) == "Nothing was analysed"


def test_what_theory_says_stands_below_it() -> None:
    def lead(found: Findings) -> str:
        words = re.search(r'<p class="lead">(<b>.*?</b>.*?)</p>', page(found), re.S)
        return " ".join(Tree(words[1]).text().split()) if words else ""

    def joint(verdict: str) -> Findings:
        return changed(findings(GRID), "joint", lambda one: one | {"verdict": verdict})

    agrees = "That is what theory says, given the outages, views, draws and leases as they came"
    assert lead(findings(GRID)).startswith(f"{agrees}. ✓ agrees")
    assert lead(findings(GRID, invalid=[0])).startswith(f"{agrees}, where the figures can be trusted.")
    told = "That is not what theory says, in 2 of 9 scenarios: 8-5-8 and 1-1-1. ✕ disagrees"
    assert lead(findings(GRID, disagreeing=[3, 4])).startswith(told)
    assert lead(findings(GRID, invalid=range(9))) == ""
    apart = "Each scenario agrees with theory, but not all of them together. ✕ disagrees"
    assert lead(joint(DISAGREES)).startswith(apart)
    assert lead(joint(NOT_REFUTED)).startswith(
        "That does not refute theory, and is too little to confirm it. –"
    )
    weak = changed(findings(GRID), "reliability", of_cell(2, verdict=NOT_REFUTED))
    assert lead(weak).startswith(
        "That does not refute theory, and is too little to confirm it in 8-3-8. – not refuted"
    )
    none = changed(findings(GRID), "reliability", lambda one: one | {"verdict": NO_THEORY})
    assert lead(none).startswith("There is no theory for it. – no theory")


def test_every_scenario_is_told_with_its_figures_beside_theory() -> None:
    found = changed(
        findings(GRID),
        "reliability",
        of_cell(2, share=0.9, low=0.85, high=0.93, given_events=0.9999999, beforehand=0.88, pairs=7796),
    )
    table = part(page(found), "delivery").partition("<table>")[2]
    (line,) = [Tree(f"<tr>{line}").text() for line in table.split("<tr>") if "8-3-8" in line]
    told = ("7,796 pairs", "90.00 %", "85.00 – 93.00 %", "> 99.99 %", "88.00 %")
    assert all(words in line for words in told), "theory to what so many pairs can tell"
    for name in (scenario.name for scenario in GRID):
        assert name in Tree(table).text()


def test_a_scenario_that_disagrees_is_ringed_where_it_is_and_nowhere_else() -> None:
    assert part(page(findings(GRID)), "delivery").count('class="off"') == 0
    found = findings(GRID, disagreeing=[3])
    assert part(page(found), "delivery").count('class="off"') == 2, "the legend's, and its own"
    assert says(found, "delivery").endswith("disagrees")


def test_what_is_not_valid_never_looks_sure() -> None:
    found = findings(GRID, invalid=[2], disagreeing=[2])
    table = part(page(found), "delivery").partition("<table>")[2]
    (line,) = [line for line in table.split("<tr>") if "8-3-8" in line]
    assert "not valid" in line and "agrees" not in line
    assert [cell.strip() for cell in re.findall(r"<td>([^<]*)</td>", line)] == ["–", "–"], "no theory"
    assert says(found, "delivery").endswith("Not judged, since not valid: 8-3-8. ✓ agrees")
    for anchor in ("delivery", "attribution", "over-time", "balance", "cost"):
        drawn = re.findall(r'<g class="[^"]*invalid[^"]*">.*?</g>', part(page(found), anchor), re.S)
        assert drawn, anchor
        assert not any('class="theory"' in one for one in drawn)
    assert "Shares and causes cannot be trusted in 8-3-8." in Tree(page(found)).text("aside")
    trust = Tree(part(page(found), "trust")).text()
    assert "12 rows were lost by the recorder" in trust and "valid in 8 of 9" in trust
    nothing = findings(GRID, invalid=range(9))
    for anchor in PARTS:
        assert says(nothing, anchor).endswith("! not valid"), anchor
    assert 'class="badge good' not in page(nothing) and 'class="badge bad' not in page(nothing)


def test_scenarios_that_are_not_valid_do_not_count_in_sentences() -> None:
    base = findings(GRID, invalid=[4])
    for table, anchor, values in (
        ("reliability", "delivery", {"share": 0.0777}),
        ("balance", "balance", {"peak": 777.7, "cv": 9.0}),
        ("cost", "cost", {"lines_per_delivery": 777.7}),
        ("over_time", "over-time", {"share": 0.0777}),
        ("attribution", "attribution", {"misses": 777_777}),
    ):
        told = says(changed(base, table, of_cell(4, **values)), anchor)
        assert not re.search(r"\b777|\b7\.77 %", told), anchor


def test_latencies_are_judged_apart_and_drawn_only_where_they_are_valid() -> None:
    some = findings(GRID, latency_invalid=[0, 1])
    assert says(some, "latency").endswith("2 of 9 not valid") and says(some, "delivery").endswith("✓ agrees")
    assert "7 of 9 scenarios whose latencies can be trusted" in says(some, "latency")
    latency = part(page(some), "latency")
    assert latency.count('class="label"') == 7 and latency.count('class="ridge"') == 7
    assert part(page(some), "over-time").count("latency: median") == 7
    assert part(page(some), "reach").count('class="label"') == 7
    none = page(findings(GRID, latency_invalid=range(9)))
    assert "<svg" not in part(none, "latency") + part(none, "reach") and "latency: median" not in part(
        none, "over-time"
    )


def test_p_reach_stands_beside_both_formulas() -> None:
    mute = [scenario for scenario in scenarios("ramble") if not scenario.name.endswith("2000")]
    base = findings(mute)
    rows = [row("reach", 16, 2, 8, 0.2, 0.0, 3, 500, 48_000, 0.77, 0.72, 0.81, 0.99, 1 - 28 / 120, 0.75)]
    seen = [row("sightings", 0, "limited", "spammer", 96, 2.51, 4.0)]
    found = replace(base, tables={**base.tables, "reach": rows, "sightings": seen})
    told = Tree(part(page(found), "reach")).text("table")
    for words in (
        "2 of 16",
        "500 messages",
        "77.00 %",
        "72.00 – 81.00 %",
        "76.67 %",
        "75.00 %",
        "spammer",
        "96 subscribers",
        "2.5 – 4.0 s",
    ):
        assert words in told.replace("\N{NO-BREAK SPACE}", " "), words
    assert "of the servers mute" in page(base)


def test_what_is_unexplained_raises_an_alarm() -> None:
    found = findings(GRID)
    assert says(found, "attribution").endswith("✓ all explained")
    rows = [*found.tables["attribution"], row("attribution", 0, UNEXPLAINED[0].label, "?", 3, 0.001, 3)]
    alarming = Findings(found.about, (), {**found.tables, "attribution": rows})
    assert says(alarming, "attribution").endswith("✕ 3 unexplained")
    assert "3 have no cause on record" in says(alarming, "attribution")
    assert 'class="bar alarm"' in part(page(alarming), "attribution")
    assert 'class="bar alarm"' not in page(found)


def test_the_gravest_verdict_counts_with_how_often_it_is() -> None:
    assert gravest([AGREES, AGREES, NO_THEORY]).words == AGREES
    assert gravest([AGREES, NOT_REFUTED, AGREES]).words == "not refuted in 1 of 3"
    assert gravest([NOT_REFUTED, DISAGREES, AGREES]) == ("disagrees in 1 of 3", "bad")
    assert gravest([NO_THEORY]).words == gravest([]).words == NO_THEORY
    for anchor in ("balance", "cost"):
        assert says(findings(GRID), anchor).endswith("✓ agrees")
        for verdict in (DISAGREES, NOT_REFUTED):
            found = changed(findings(GRID), anchor, of_cell(1, verdict=verdict))
            assert f"{verdict} in " in says(found, anchor)
    found = changed(findings(GRID), "audience", of_cell(1, verdict=DISAGREES))
    assert "disagrees in 1 of 9" in part(page(found), "delivery").replace("\N{NO-BREAK SPACE}", " ")


def test_the_sentence_names_where_least_arrived() -> None:
    found = findings(scenarios("k-prime"))
    begin_s = found.table("over_time")[30]["from_s"]

    def dip(one: Row) -> Row:
        is_it = one["cell"] == 1 and one["from_s"] == begin_s
        return one | {"share": 0.25 if is_it else 0.9, "servers_down": 1.0 if is_it else 0.0}

    told = says(changed(found, "over_time", dip), "over-time")
    assert re.search(
        r"Least arrived in 5-2-5 from [\d.]+ to [\d.]+ s: 25.00 %, while 1 server was down\.", told
    )


def test_what_the_network_lost_has_a_part_of_its_own() -> None:
    found = findings(GRID)
    unknown = dict.fromkeys(column.name for column in TABLES["losses"])
    lost = {**unknown, "cell": 1, "leg": "both", "known_by": "taps", "lines": 1000, "lost": 20, "share": 0.02}
    rows = [{**lost, "low": 0.01, "high": 0.03, "bunches": "in a row"}]
    touched = [row("touched", 1, "delivered", "the network lost some")]
    lossy = Findings(found.about, (), {**found.tables, "losses": rows, "touched": touched})
    assert "lost up to 2.00 % of the lines" in says(lossy, "losses")
    told = Tree(part(page(lossy), "losses")).text()
    for words in ("1.00 – 3.00 %", "in a row", "both ways", "In 8-2-8, delivered: the network lost some."):
        assert words in told, words
    assert 'id="losses"' not in page(found)
    wrong = changed(lossy, "reliability", of_cell(1, verdict=DISAGREES))
    assert says(wrong, "losses").endswith("in the others copies were lost together. ✕ lost together")


def test_problems_and_conditions_stand_above_all_figures() -> None:
    condition = {"condition": "p99 > 1 ms", "scenario": "8-1-8", "answer": "fulfilled", "words": "5 ms"}
    base = findings(GRID, problems=["zones of run-2 is partial: run it again"])
    source = page(Findings({**base.about, "conditions": [condition]}, base.problems, base.tables))
    aside = Tree(source[: source.index("<section")]).text("aside")
    assert "zones of run-2 is partial: run it again" in aside
    assert "p99 > 1 ms in 8-1-8: 5 ms ✕ fulfilled" in " ".join(aside.split())


def test_conditions_and_runs_are_told_where_scenarios_differ_in_them() -> None:
    setting = Tree(page(findings(scenarios("views")))).text("p")
    told = "differing: each client knew 90 % of the servers and each client knew 75 % of the servers"
    assert told in setting
    kinds = page(findings(scenarios("kills") + scenarios("stalls")))
    assert "killed" in kinds and "halted" in kinds
    twice = page(findings(scenarios("k-prime") * 2, runs=("run-a", "run-b")))
    assert "5-1-5 of run 1" in twice and "5-1-5 of run 2" in twice


def test_the_note_s_claims_stand_in_a_table() -> None:
    found = findings(simulated=True)
    note = Tree(part(page(found), "note")).text()
    for claim in found.tables["note"]:
        for name in (column.name for column in TABLES["note"]):
            assert claim[name] in note
    assert f"{FAILS} 1" in says(found, "note") and says(found, "note").endswith("4 of 5 hold")


def _say(column: str, value: object, one: Row) -> Row:
    return one | {column: value}


def test_words_of_others_are_text_and_no_markup() -> None:
    for evil in ("<script>alert(1)</script>&\"'", '"><img src=x onerror=alert(1)>{{ x }}{% x %}', "a\x1b[2J"):
        found = findings(GRID[:1], invalid=[0], problems=[evil], simulated=True)
        for table, columns in TABLES.items():
            for name in (column.name for column in columns if column.type == "str"):
                if (table, name) not in (("latency", "since"), ("health", "what"), ("balance", "what")):
                    found = changed(found, table, partial(_say, name, evil))
        about = {"command": [evil], "kcast": evil, "captures": [{"path": evil}]}
        source = page(Findings(about, [evil], found.tables))
        tree = Tree(source)
        assert (tree.wrong, tree.active()) == ([], [])
        assert "\x1b" not in source
        shown = evil.replace("\x1b", "\\x1b")
        assert tree.text().count(shown) > 5 and source.count(escape(shown)[:6]) > 5


# Looks.


def test_words_and_marks_stand_out_in_light_and_dark() -> None:
    def luminance(colour: str) -> float:
        channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)  # WCAG 2.2
        return (high + 0.05) / (low + 0.05)

    schemes = re.findall(r":root\{([^}]*)\}", STYLE_FILE.read_text())
    assert len(schemes) == 2
    for scheme in schemes:
        found = dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", scheme))
        for name in ("ink", "soft", "good", "bad", "warn"):
            assert contrast(found[name], found["paper"]) >= 4.5, name
        for name, back in (
            ("good", "good"),
            ("bad", "bad"),
            ("warn", "warn"),
            ("ink", "warn"),
            ("soft", "warn"),
        ):
            assert contrast(found[name], found[f"{back}-back"]) >= 4.5, name
        for number in range(6):
            assert contrast(found[f"c{number}"], found["paper"]) >= 3, number


def test_every_class_that_is_drawn_has_looks() -> None:
    source = page(findings(GRID, invalid=[1], disagreeing=[2], problems=["x"], simulated=True))
    used = {name for names in Tree(source).attributes("class") for name in names.split()}
    style = STYLE_FILE.read_text() + (ROOT / "spark/report/page.css").read_text()
    plain = {"label", "plain"}  # which are as others are
    assert used - set(re.findall(r"\.([a-z][\w-]*)", style)) - plain == set()


def test_names_do_not_break_at_their_hyphens() -> None:
    assert pages._unbroken("in 5-1-5 of <x>") == 'in <span class="name">5-1-5</span> of &lt;x&gt;'
    assert "<span" not in pages._unbroken("a-very-long-name-that-must-break-somewhere")
