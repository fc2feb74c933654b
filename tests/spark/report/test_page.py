"""spark/report.py: the page says what the findings say, of any findings, and is never surer than they are."""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from html import escape
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from kcast.loadtest.charts.words import percent
from kcast.loadtest.results.causes import UNEXPLAINED
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import DISAGREES, NO_THEORY, NOT_REFUTED, TABLES, THEORIES
from kcast.spark.report.page import STYLE, page
from tests.support.report_findings import RUN, findings, make_findings, row, scenarios, sixty

GRID = scenarios("grid")
VOID = {"meta", "br", "link", "img", "hr", "input"}
CAPTURED = (
    *("delivery", "over-time", "latency", "balance", "cost", "attribution", "audience", "attack", "capacity"),
    "reading",
)


class Tree(HTMLParser):
    """Elements of a page in order, with all that is wrong with it."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.words: list[tuple[tuple[str, ...], str]] = []
        self.feed(source)
        self.close()
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, tuple(self.open)))

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
        found = [tag for tag, _, _ in self.elements if tag in tags]
        return found + [name for _, attrs, _ in self.elements for name in attrs if name.startswith("on")]

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] for _, attrs, _ in self.elements if name in attrs]

    def text(self, *within: str) -> str:
        """Words, of elements inside all of these."""
        return "".join(
            words
            for path, words in self.words
            if "style" not in path and (not within or set(within) <= set(path))
        )


SECTION = re.compile(r'<section id="([\w-]+)".*?</section>', re.S)


@lru_cache(maxsize=256)
def tree_of(piece: str) -> Tree:
    """A piece of a page. Pages that differ in one table have most pieces in common."""
    return Tree(piece)


def trees(source: str) -> list[Tree]:
    """A page in pieces: its sections, and what is left without them. If each is sound the page is."""
    return [tree_of(piece[0]) for piece in SECTION.finditer(source)] + [tree_of(SECTION.sub("", source))]


def part(source: str, anchor: str) -> str:
    """A section of the page."""
    found = re.search(rf'<section id="{anchor}".*?</section>', source, re.S)
    assert found, anchor
    return found[0]


def says(source: str, anchor: str) -> str:
    """A section's sentence with its verdict, as plain words."""
    found = re.search(r'<p class="says">.*?</p>', part(source, anchor), re.S)
    assert found
    return Tree(found[0]).text().replace("\N{NO-BREAK SPACE}", " ")


def changed(found: Findings, table: str, change: Callable[[Row], Row]) -> Findings:
    """The same with other rows in a table."""
    tables = {**found.tables, table: [change(dict(one)) for one in found.tables[table]]}
    return Findings(found.about, found.problems, tables)


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
    "nothing": lambda: Findings({}),
    "no rows": lambda: Findings({}, (), {name: [] for name in TABLES}),
}


@pytest.fixture(scope="module")
def grid() -> str:
    return page(findings(GRID, simulated=True))


@pytest.fixture(scope="module")
def captured() -> str:
    """The page of captures alone, in which all is sound."""
    return page(findings(GRID))


@lru_cache(maxsize=len(MANY))
def page_of(name: str) -> str:
    """The page of one of `MANY`."""
    return page(MANY[name]())


# A page of its own.


@pytest.mark.parametrize("name", MANY)
def test_any_findings_make_a_page_that_stands_alone(name: str) -> None:
    source = page_of(name)
    tree = Tree(source)
    assert tree.wrong == []
    ids = tree.attributes("id")
    assert len(ids) == len(set(ids))
    assert tree.active() == []
    assert {link[1:] for link in tree.attributes("href")} <= set(ids)
    assert all(link.startswith("#") for link in tree.attributes("href"))
    assert re.findall(r"https?:|//\w|url\(|@import|\bsrc=", source) == []
    assert "default-src 'none'" in tree.attributes("content")[1]
    assert re.findall(r"\b(nan|inf|None|Traceback)\b", tree.text()) == []
    assert "<title>" in source and tree.text("h1")


@pytest.mark.parametrize("name", MANY)
def test_the_page_is_the_same_from_its_json(name: str) -> None:
    found = MANY[name]()
    assert page(Findings.from_json(found.to_json())) == page_of(name)


def test_delivery_comes_first(grid: str) -> None:
    anchors = re.findall(r'<section id="([\w-]+)"', grid)
    assert anchors == [*CAPTURED[:-1], "what-if", "note", "simulation", "reading"]
    assert grid.index("<svg") > grid.index('id="delivery"'), "no drawing before it"


def test_a_simulation_alone_begins_with_the_judgement() -> None:
    anchors = re.findall(r'<section id="([\w-]+)"', page(findings(simulated=True)))
    assert anchors == ["note", "simulation", "reading"]


def test_every_part_has_a_sentence_with_figures_and_a_verdict(grid: str) -> None:
    for anchor in (*CAPTURED[:-1], "note", "simulation"):
        words = says(grid, anchor)
        assert re.search(r"\d", words), words
        assert 'class="badge' in part(grid, anchor).split("</p>")[0]


def test_each_drawing_has_a_wide_and_a_narrow_form_and_says_what_it_shows(grid: str) -> None:
    drawn = [attrs for tag, attrs, _ in Tree(grid).elements if tag == "svg" and "role" in attrs]
    kinds = [attrs["class"] for attrs in drawn]
    assert kinds.count("wide") == kinds.count("narrow") >= 12
    assert all(len(attrs["aria-label"]) > 20 for attrs in drawn)
    assert all(attrs["width"] == "358" for attrs in drawn if attrs["class"] == "narrow")


@pytest.mark.parametrize("name", ["grid", "k-prime", "repeats"])
def test_no_words_leave_their_drawing(name: str) -> None:
    source = page(findings(scenarios(name), simulated=name == "grid"))
    for width, body in re.findall(
        r'<svg class="(?:wide|narrow)"[^>]*?width="(\d+)".*?>(.*?)</svg>', source, re.S
    ):
        for attrs, words in re.findall(r"<text([^>]*)>([^<]*)</text>", body):
            x = float(re.findall(r' x="([-\d.]+)"', attrs)[0])
            room = len(words) * 6.0
            begin = x - room if '"end"' in attrs else x - room / 2 if '"middle"' in attrs else x
            assert begin > -14 and begin + room < int(width) + 14, (words, x, width)


def test_sixty_cells_make_a_page_of_bearable_size() -> None:
    source = page(findings(sixty()))
    assert len(source) < 2_000_000
    assert Tree(source).wrong == []


# What it says.


def test_every_cell_is_told_with_its_figures(grid: str) -> None:
    table = Tree(part(grid, "delivery")).text("table").replace("\N{NO-BREAK SPACE}", " ")
    for cell, one in zip(GRID, findings(GRID, simulated=True).tables["reliability"], strict=True):
        assert cell.name in table
        assert f"{one['pairs']:,} pairs" in table


def having_met(found: Findings, *, down: int) -> Findings:
    """The same, where `down` of 10,000 copies of each scenario met a server that was down."""
    ends = {"down": down, "loss-in": 180, "loss-out": 170, "delivered": 9650 - down}
    rows = [
        row("attribution", cell["cell"], cause, "", 0, 0.0, paths)
        for cell in found.tables["scenarios"]
        for cause, paths in ends.items()
    ]
    return Findings(found.about, found.problems, {**found.tables, "attribution": rows})


def test_what_copies_met_in_fact_is_told() -> None:
    lead = Tree(page(having_met(findings(GRID), down=400))).text("p").replace("\N{NO-BREAK SPACE}", " ")
    told = (
        "In fact, 4.0 % of the copies met a server that was down, 1.9 % were lost on the way to servers and"
    )
    assert told in lead


def test_what_would_be_at_other_losses_is_computed_from_what_was_met() -> None:
    source = page(having_met(findings(scenarios("k-prime")), down=1000))
    words = says(source, "what-if")
    assert "10.0 % of the copies met a server that was down" in words
    path = 0.9 * 0.9 * 0.9
    assert f"5-3-5 would deliver {percent(1 - (1 - path) ** 3)}".replace("\N{NO-BREAK SPACE}", " ") in words
    assert "no K′ would be enough for 99.9 %" in words, "1 - 0.271^5 is 99.85 %"
    assert 'id="what-if"' not in page(findings(scenarios("repeats")[1:]))
    assert 'id="what-if"' not in page(findings(scenarios("smoke", scheme=("S", "R"), servers=(30,))))


def test_the_head_is_the_outcome() -> None:
    def head(found: Findings) -> str:
        return Tree(page(found)).text("h1").replace("\N{NO-BREAK SPACE}", " ")

    under = "while a tenth of the servers were down and 2 % of packets were lost each way"
    shares = {one["cell"]: one["share"] for one in findings(GRID).tables["reliability"]}
    assert head(having_met(findings(GRID), down=1000)) == (
        f"{percent(min(shares.values()))} arrived with 1 copy, "
        f"{percent(max(shares.values()))} with all 8 copies, {under}"
    ).replace("\N{NO-BREAK SPACE}", " ")
    alone = having_met(findings(GRID[2:3]), down=900)
    share = percent(alone.tables["reliability"][0]["share"]).replace("\N{NO-BREAK SPACE}", " ")
    assert head(alone) == f"3 copies of 8: {share} arrived {under}"
    assert head(having_met(alone, down=300)) == f"3 copies of 8: {share} arrived {under}, by plan"
    least = "least with 1 copy of 5 while each client knew only 75 % of the servers"
    assert head(findings(scenarios("views"))).endswith(f"arrived in 6 scenarios, {least}")
    assert head(findings(GRID, invalid=range(9))) == "These figures cannot be trusted"
    assert head(findings(simulated=True)) == "Of the note’s 5 claims 1 does not hold"


def test_what_theory_says_stands_below_it() -> None:
    def lead(found: Findings) -> str:
        words = re.findall(r'<p class="lead"><b>(.*?)</b> .*?</span>(.*?)</span>', page(found))
        return " ".join(words[0]).replace("\N{NO-BREAK SPACE}", " ") if words else ""

    assert lead(findings(GRID)) == "That is what theory says, given what happened. agrees"
    assert lead(findings(GRID, invalid=[0])).startswith(
        "That is what theory says, given what happened, where the figures can be trusted."
    )
    told = "That is not what theory says, in 2 of 9 scenarios: 8-5-8 and 1-1-1. disagrees"
    assert lead(findings(GRID, disagreeing=[3, 4])) == told
    assert lead(findings(GRID, invalid=range(9))) == ""
    jointly = changed(findings(GRID), "joint", lambda one: one | {"verdict": DISAGREES, "p_value": 1e-9})
    assert lead(jointly) == "Each scenario agrees with theory, but not all of them together. disagrees"


def test_the_first_drawing_has_the_theory_that_the_verdict_rests_on() -> None:
    def theories(found: Findings) -> list[str]:
        legend = re.findall(r'<ul class="legend">.*?</ul>', part(page(found), "delivery"), re.S)[0]
        return re.findall(r"theory [\w ]+", Tree(legend).text())

    found = findings(GRID)
    assert theories(found) == ["theory given what happened"]
    without = changed(found, "reliability", lambda one: one | {"given_events": None})
    assert theories(without) == ["theory beforehand"]


def test_the_caption_is_true_of_the_axis() -> None:
    def caption(found: Findings) -> str:
        told = re.search(r"<figcaption>(.*?)</figcaption>", part(page(found), "delivery"))
        return told[1] if told else ""

    told = re.findall(
        r"([\d.]+) % is as far above ([\d.]+) % as that is above ([\d.]+) %", caption(findings(GRID))
    )
    far, middle, near = (round(1 - float(share) / 100, 9) for share in told[0])
    assert middle / far == pytest.approx(10) and near / middle == pytest.approx(10)
    low = changed(findings(GRID), "reliability", lambda one: one | {"share": 0.4, "low": 0.3, "high": 0.5})
    low = changed(low, "reliability", lambda one: one | dict.fromkeys(THEORIES) | {"given_events_low": None})
    low = changed(low, "reliability", lambda one: one | {"given_events_high": None})
    assert caption(low) == "Whiskers are 95 % intervals."


def test_a_cell_that_disagrees_is_named_and_ringed(captured: str) -> None:
    source = page(findings(GRID, disagreeing=[3]))
    assert "agrees in 8 of 9 scenarios; not in 8-5-8" in says(source, "delivery")
    assert says(source, "delivery").endswith("disagrees")
    assert part(source, "delivery").count('class="off"') == 3, "the legend's, and one in each width"
    assert part(captured, "delivery").count('class="off"') == 0


def test_what_is_not_valid_never_looks_sure() -> None:
    source = page(findings(GRID, invalid=[2], disagreeing=[2]))
    delivery = part(source, "delivery")
    table = delivery[delivery.index("<table") : delivery.index("</table>")]
    (line,) = [line for line in table.split("<tr>") if "8-3-8" in line]
    assert "not valid" in line and "agrees" not in line and "z " not in line
    told = [words.replace("\N{NO-BREAK SPACE}", " ") for words in re.findall(r"<td>([^<]*)</td>", line)]
    assert told == ["–", "–"], "no theory beside it"
    assert says(source, "delivery").endswith("agrees"), "the others do"
    assert "1 scenario cannot be trusted and is not judged" in says(source, "delivery")
    for anchor in CAPTURED[:-1]:
        drawn = re.findall(r'<g class="[^"]*invalid[^"]*">.*?</g>', part(source, anchor), re.S)
        assert len(drawn) >= 2, anchor
        assert not any(
            'class="theory"' in one or 'class="band"' in one for one in drawn if anchor != "balance"
        )
    assert '<aside class="notice"><h2>Shares and causes cannot be trusted in 8-3-8</h2>' in source


def test_where_nothing_is_valid_nothing_is_judged() -> None:
    source = page(findings(GRID, invalid=range(9)))
    for anchor in CAPTURED[:-1]:
        assert says(source, anchor).endswith("not valid"), says(source, anchor)
    assert 'class="badge good' not in source
    assert 'class="badge bad' not in source


def test_invalid_cells_do_not_count_in_sentences() -> None:
    base = findings(GRID, invalid=[4])
    broken = changed(base, "reliability", lambda one: one if one["cell"] != 4 else one | {"share": 0.0123})
    source = page(broken)
    for anchor in CAPTURED[:-1]:
        assert "1.23 %" not in says(source, anchor)
    worse = changed(base, "balance", lambda one: one if one["cell"] != 4 else one | {"peak": 77.7, "cv": 9.0})
    assert "77.7" not in says(page(worse), "balance")
    dear = changed(base, "cost", lambda one: one if one["cell"] != 4 else one | {"lines_per_delivery": 555.0})
    assert "555" not in says(page(dear), "cost")


def test_latencies_are_judged_apart() -> None:
    source = page(findings(GRID, latency_invalid=[0, 1]))
    assert says(source, "latency").endswith("2 of 9 not valid")
    assert says(source, "delivery").endswith("agrees")
    assert "7 of 9 scenarios whose latencies can be trusted" in says(source, "latency")
    every = page(findings(GRID, latency_invalid=range(9)))
    assert says(every, "latency").endswith("not valid")
    assert "Latencies cannot be trusted in all 9" in every.replace("\N{NO-BREAK SPACE}", " ")


def test_what_is_unexplained_raises_an_alarm(captured: str) -> None:
    label = UNEXPLAINED[0].label
    found = findings(GRID)
    rows = [*found.tables["attribution"], row("attribution", 0, label, "no reason", 3, 0.001, 3)]
    source = page(Findings(found.about, (), {**found.tables, "attribution": rows}))
    assert says(source, "attribution").endswith("3 unexplained")
    assert "have no cause on record" in says(source, "attribution")
    assert 'class="bar alarm"' in part(source, "attribution")
    assert 'class="bar alarm"' not in part(captured, "attribution")


def test_balance_that_chance_does_not_give_is_told(captured: str) -> None:
    assert "less even than by chance" not in says(captured, "balance")
    found = changed(findings(GRID), "balance", lambda one: one | {"verdict": DISAGREES})
    assert "less even than by chance" in says(page(found), "balance")


@pytest.mark.parametrize("anchor", ["cost", "capacity", "attack", "audience"])
def test_what_disagrees_with_the_plan_is_told(anchor: str, captured: str) -> None:
    assert says(captured, anchor).endswith("agrees")
    for verdict in (DISAGREES, NOT_REFUTED, NO_THEORY):
        base = findings(GRID)
        judged = [one | {"verdict": verdict} for one in base.table(anchor)]
        found = Findings(base.about, (), {**base.tables, anchor: judged})
        assert says(page(found), anchor).endswith(verdict)


def test_problems_stand_above_all_figures() -> None:
    source = page(findings(GRID, problems=["zones of run-2 is partial: run it again"]))
    assert source.index("zones of run-2 is partial: run it again") < source.index("<section")


def test_conditions_are_told_apart_where_cells_differ_in_them() -> None:
    headings = re.findall(r"<h3>(.*?)</h3>", part(page(findings(scenarios("views"))), "delivery"))
    told = [heading.replace("\N{NO-BREAK SPACE}", " ") for heading in headings]
    assert told == ["all servers known", "90 % of servers known", "75 % of servers known"]
    assert "(90 % of servers known)" in says(page(findings(scenarios("views"))), "delivery")


def test_cells_of_one_policy_stand_in_rows() -> None:
    delivery = part(page(findings(scenarios("repeats"))), "delivery")
    assert "<polyline" not in delivery
    for cell in scenarios("repeats"):
        assert f">{cell.name}</text>" in delivery


def test_k_has_a_curve_of_its_own_where_it_varies() -> None:
    source = page(findings(scenarios("grid", scheme=("RCH",), k=(4, 6, 8), k_prime=(3,))))
    assert "K: servers of a topic" in part(source, "delivery")
    assert "K/3/K" in part(source, "delivery")


def test_runs_that_have_the_same_scenarios_are_told_apart() -> None:
    source = page(findings(scenarios("k-prime") * 2, runs=("run-a", "run-b")))
    table = Tree(part(source, "delivery")).text("table")
    assert "5-1-5 (run 1)" in table and "5-1-5 (run 2)" in table


def test_the_note_is_judged_with_what_was_measured(grid: str) -> None:
    note = Tree(part(grid, "note")).text()
    for claim in findings(simulated=True).tables["note"]:
        assert all(words in note for words in claim.values())
    assert "2 hold as they stand, 2 only under conditions and 1 not" in says(grid, "note")


def test_the_simulation_has_its_curve_and_each_condition(grid: str) -> None:
    simulation = part(grid, "simulation")
    assert "K′, of K = 1,000" in simulation
    for words in ("1% of packets lost on each leg", "405 of a topic’s 1000 servers blocked"):
        assert words in simulation


@pytest.mark.parametrize("group", ["draws", "loss", "schemes"])
def test_a_simulated_scene_that_disagrees_is_told(group: str) -> None:
    def break_group(one: Row) -> Row:
        return one | {"verdict": DISAGREES} if one["group"] == group else one

    source = page(changed(findings(simulated=True), "simulation", break_group))
    assert says(source, "simulation").endswith("disagrees")
    rings = part(source, "simulation").count('class="off"')
    assert rings >= 2 * sum(one["group"] == group for one in findings(simulated=True).tables["simulation"])


def _say(column: str, words: str, one: Row) -> Row:
    return one | {column: words}


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>&\"'", '"><img src=x onerror=alert(1)>{0}{x}'])
def test_words_of_others_are_text_and_no_markup(evil: str) -> None:
    found = findings(GRID[:1], invalid=[0], problems=[evil], simulated=True)
    for table, columns in TABLES.items():
        for column in columns:
            if column.type == "str" and (table, column.name) not in (
                ("latency", "since"),
                ("health", "what"),
            ):
                found = changed(found, table, partial(_say, column.name, evil))
    found = Findings({"command": [evil], "kcast": evil, "captures": [{"path": evil}]}, [evil], found.tables)
    source = page(found)
    tree = Tree(source)
    assert tree.wrong == []
    assert tree.active() == []
    assert source.count(escape(evil)) > 20
    assert tree.text().count(evil) > 10


@pytest.mark.parametrize("evil", ["<script>x</script>", '"><img onerror=x>', "a-{}-b"])
def test_names_of_scenarios_are_text_everywhere(evil: str) -> None:
    found = findings(GRID, invalid=[0])
    found = changed(found, "scenarios", lambda one: one | {"scenario": f"{evil}{one['cell']}"})
    tree = Tree(page(found))
    assert tree.wrong == tree.active() == []
    name = f"{evil}1"
    told = [(path[-1], words) for path, words in tree.words if path]
    within = {element for element, words in told if name in words}
    assert within >= {"title", "b"}, "tooltips and tables"
    assert any(name in label for label in tree.attributes("aria-label")), "drawings' labels"
    assert any(evil[:4] in words for element, words in told if element == "text"), "words in drawings"
    assert evil in tree.text("p"), "sentences"
    assert all(evil not in names for names in tree.attributes("class"))


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (table, column.name)
        for table, columns in TABLES.items()
        for column in columns
        if column.type == "float" or column.name.startswith("deaf")
    ],
)
def test_what_is_not_known_is_left_out(table: str, column: str) -> None:
    found = changed(NULLABLE, table, lambda one: one | {column: None})
    for tree in trees(page(found)):
        assert tree.wrong == []
        assert "None" not in tree.text()


NULLABLE = findings(scenarios("k-prime"), simulated=True)


def test_a_table_that_is_missing_takes_its_part_with_it() -> None:
    whole = findings(GRID)
    for name in whole.tables:
        if name == "scenarios":
            continue
        rest = {other: rows for other, rows in whole.tables.items() if other != name}
        assert not any(tree.wrong for tree in trees(page(Findings(whole.about, (), rest)))), name


# Words.


@pytest.mark.parametrize("name", ["grid", "S and R", "kills and stalls", "all invalid", "repeats"])
def test_a_page_of_captures_has_scenarios_and_policies_and_neither_cells_nor_schemes(name: str) -> None:
    found = MANY[name]()
    tables = {name: rows for name, rows in found.tables.items() if name not in ("simulation", "note")}
    tree = Tree(page(Findings(found.about, found.problems, tables)))
    words = " ".join([tree.text(), *tree.attributes("title"), *tree.attributes("aria-label")])
    assert re.findall(r"\bcells?\b|\bRCH\b|\bCH\b", words) == []


# Where things are drawn.


def dots(source: str, anchor: str) -> list[tuple[float, float]]:
    """Middles of the round marks of the wide drawings of a section."""
    drawn = re.findall(r'<svg class="wide".*?</svg>', part(source, anchor), re.S)
    found = re.findall(r'<path class="dot" d="M([\d.-]+) ([\d.-]+)a5 ', "".join(drawn))
    return [(float(x) + 5, float(y)) for x, y in found]


def test_points_rise_as_delivery_does() -> None:
    shares = [0.9, 0.99, 0.999, 1.0]
    found = findings(scenarios("k-prime"))

    def set_share(one: Row) -> Row:
        share = shares[one["cell"]]
        return one | {"share": share, "low": share - 1e-4, "high": min(1.0, share + 1e-4)}

    found = changed(found, "reliability", set_share)
    found = changed(found, "scenarios", lambda one: one | {"scheme": "RCH", "side": "publish"})
    places = dots(page(found), "delivery")
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    heights = [-y for _, y in places]
    assert heights == sorted(heights) and len(set(heights)) == 4
    steps = [after - before for before, after in pairwise(heights)]
    assert abs(steps[0] - steps[1]) < 0.3, "each nine is as high as the other"


def test_a_share_of_one_stands_at_the_top() -> None:
    found = changed(
        findings(GRID),
        "reliability",
        lambda one: one | {"share": 1.0, "high": 1.0} if one["cell"] == 8 else one,
    )
    delivery = part(page(found), "delivery")
    drawing = delivery[delivery.index("<svg class") : delivery.index("</figure>")]
    top = min(float(y) for y in re.findall(r'<line class="grid" [^>]*y1="([\d.]+)"', drawing))
    label = re.findall(r'y="([\d.]+)">100 %</text>', drawing)
    assert float(label[0]) == pytest.approx(top + 4.5)


# Looks.


def colours(scheme: str) -> dict[str, str]:
    """The style sheet's colours by name."""
    blocks = re.findall(r":root\{([^}]*)\}", STYLE)
    return dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", blocks[{"light": 0, "dark": 1}[scheme]]))


def luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's ratio."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_marks_stand_out(scheme: str) -> None:
    found = colours(scheme)
    paper = found["paper"]
    for name in ("ink", "soft", "good", "bad", "warn"):
        assert contrast(found[name], paper) >= 4.5, name
    for name in ("good", "bad", "warn"):
        assert contrast(found[name], found[f"{name}-back"]) >= 4.5, name
    assert contrast(found["ink"], found["warn-back"]) >= 4.5
    assert contrast(found["soft"], found["warn-back"]) >= 4.5
    for number in range(6):
        assert contrast(found[f"c{number}"], paper) >= 3, number


def test_every_class_that_is_drawn_has_looks(grid: str) -> None:
    source = grid + page(findings(GRID, invalid=[1], disagreeing=[2], problems=["x"]))
    used = {name for names in Tree(source).attributes("class") for name in names.split()}
    styled = set(re.findall(r"\.([a-z][\w-]*)", STYLE))
    plain = {"label", "point", "plain", "sign"}  # which are as others are
    assert used - styled - plain == set()


def test_the_sample_is_what_an_analysis_gives() -> None:
    found = findings(GRID, simulated=True)
    assert set(found.tables) == set(TABLES)
    given = GRID, 3, (), (), (), True, (), (RUN,)
    assert make_findings(*given).to_json() == make_findings(*given).to_json()
