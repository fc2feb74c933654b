"""The parts on the note of 2004: its claims, and a simulation at its own scale. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from kcast.loadtest.charts import curves
from kcast.loadtest.charts.escaping import Html, joined, markup
from kcast.loadtest.charts.scales import nines_words, shares, whole_numbers
from kcast.loadtest.charts.svg import DASH, THEORY, swatch
from kcast.loadtest.charts.words import brief_percent, count, interval, listed, number, percent
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, HOLDS, HOLDS_IF, NO_THEORY
from kcast.spark.report import rows
from kcast.spark.report.cells import NamedCells
from kcast.spark.report.markup import Badge, Section, figure
from kcast.spark.report.numbers import folded

_SCHEMES, _DRAWS = "schemes", "draws"
_GROUPS = {
    _SCHEMES: "The note’s schemes",
    "loss": "With packet loss",
    "views": "Where clients know different servers",
    "outages": "With other outages",
    "attack": "Under attack",
}
_STYLES = {"RCH, few publish": 0, "CH": 1, "RCH, few subscribe": 2, "R": 3, "S": 4}


def judgement(findings: Findings, _: NamedCells) -> Section | None:
    """Returns each claim with its verdict; None without the table."""
    claims = findings.table("note")
    if not claims:
        return None
    counts = Counter(claim["verdict"] for claim in claims)
    told = [
        words
        for verdict, words in (
            (
                HOLDS,
                f"{counts[HOLDS]} {'holds as it stands' if counts[HOLDS] == 1 else 'hold as they stand'}",
            ),
            (HOLDS_IF, f"{counts[HOLDS_IF]} only under conditions"),
            (FAILS, f"{counts[FAILS]} not"),
        )
        if counts[verdict]
    ]
    servers = max((row["servers"] for row in findings.table("simulation")), default=0)
    scale = f", simulated with {servers:,} servers," if servers else ""
    says = f"Of {count(len(claims), 'claim')} of the note of 2004{scale} {listed(told)}."
    if counts[FAILS]:
        badge = Badge(f"{counts[HOLDS] + counts[HOLDS_IF]} of {len(claims)} hold", "warn")
    else:
        badge = Badge("all hold, some if" if counts[HOLDS_IF] else "all hold", "good")
    items = markup('<ol class="claims">{}</ol>', joined(map(_claim, claims)))
    return Section("note", "The note, judged", says, badge, [items])


def _claim(claim: Row) -> Html:
    return markup(
        "<li>{}{}<p>{}</p><p>Measured: <b>{}</b></p></li>",
        claim["claim"],
        Badge.of(claim["verdict"]).html(),
        claim["formula"],
        claim["measured"],
    )


def simulation(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns every scene that was simulated: K' on curves, the others in rows; None without the table."""
    found = [row for row in findings.table("simulation") if row["share"] is not None]
    if not found:
        return None
    judged = [row for row in found if row["verdict"] in (AGREES, DISAGREES)]
    disagreeing = [_told(row) for row in judged if row["verdict"] == DISAGREES]
    verdict = Badge.of(DISAGREES if disagreeing else AGREES if judged else NO_THEORY)
    groups: Mapping[str, list[Row]] = defaultdict(list)
    for row in found:
        groups[row["group"]].append(row)
    parts = [_curve(groups)]
    parts += [_rows(group, own) for group, own in groups.items() if group != _DRAWS]
    return Section(
        "simulation",
        "The simulation behind it",
        _says(found, judged, disagreeing),
        verdict,
        [*parts, folded("simulation", found, cells, summary="All scenes, with all numbers")],
    )


def _says(found: Sequence[Row], judged: Sequence[Row], disagreeing: Sequence[str]) -> str:
    outcomes = sum(row["outcomes"] for row in found)
    words = f"{number(outcomes / 1e6)} million outcomes in {count(len(found), 'scene')}"
    examples = [row for row in found if row["group"] == _SCHEMES and row["scheme"] == "RCH"]
    if examples:
        example = max(examples, key=lambda row: (row["ring"] == "real", row["outcomes"]))
        words += (
            f"; the note’s example, RCH with K = {example['k']:,} and K′ = {_k_prime(example)}, delivers "
            f"{percent(example['share'])} ({interval(example['low'], example['high'])})"
        )
    words += "."
    if judged:
        fine = len(judged) - len(disagreeing)
        words += f" Theory agrees with {fine} of the {count(len(judged), 'scene')} for which it has a formula"
        words += f"; not with {listed(disagreeing)}." if disagreeing else "."
    return words


# --- Figures -------------------------------------------------------------------------------------------


def _curve(groups: Mapping[str, Sequence[Row]]) -> Html:
    """Draws delivery against K', of both forms of RCH."""
    draws = groups.get(_DRAWS, ())
    if not draws:
        return Html()
    example = [
        row for row in groups.get(_SCHEMES, ()) if row["scheme"] == "RCH" and row["k"] == draws[0]["k"]
    ]
    of_form: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in (*example, *draws):
        # The example may have been simulated twice: on the real ring first.
        of_form[_form(row)].setdefault(_k_prime(row), row)
    series = [
        curves.Series(
            _style(form),
            [
                curves.MeasuredPoint(
                    k_prime,
                    row["share"],
                    row["low"],
                    row["high"],
                    title=_title(row),
                    is_off=row["verdict"] == DISAGREES,
                )
                for k_prime, row in sorted(own.items())
            ],
            [
                curves.TheoryLine(
                    [(x, row["theory"]) for x, row in sorted(own.items()) if row["theory"]], "expected"
                )
            ],
        )
        for form, own in of_form.items()
    ]
    every = [row for own in of_form.values() for row in own.values()]
    scale = shares(_values(every), _trials(every))
    axes = curves.Axes(
        whole_numbers(_k_prime(row) for row in every),
        scale,
        f"K′, of K = {draws[0]['k']:,}",
        "delivered",
    )
    legend = [(swatch(_style(form), f"dot s{_style(form)}"), form) for form in of_form]
    legend.append((THEORY, "theory"))
    label = "Delivery by K′ in the simulation: " + "; ".join(_title(row) for row in every)
    how = f"{nines_words(scale, 'above')} Whiskers are 95 % intervals.".strip()
    return figure(curves.chart(series, axes, label, height=340), how, legend, "Delivery against K′")


def _rows(group: str, own: Sequence[Row]) -> Html:
    """Draws the scenes of a group, those of one condition below each other."""
    of_condition: dict[str, list[Row]] = defaultdict(list)
    for row in own:
        of_condition[_condition(row)].append(row)
    drawn = []
    for condition, scenes in of_condition.items():
        for index, row in enumerate(scenes):
            style = _style(_form(row))
            drawn.append(
                rows.ChartRow(
                    condition if index == 0 else "",
                    _marks(row, style),
                    percent(row["share"]),
                    _title(row),
                    "",
                    style,
                    is_lane=True,
                )
            )
    forms = list(dict.fromkeys(_form(row) for row in own))
    legend = [(swatch(_style(form), f"dot s{_style(form)}"), form) for form in forms]
    if any(row["theory"] is not None for row in own):
        legend.append((DASH, "theory"))
    scale = shares(_values(own), _trials(own))
    heading = _GROUPS.get(group, group)
    label = f"{heading}: " + "; ".join(_title(row) for row in own)
    how = "Delivery to one subscriber, with 95 % intervals."
    if group == _SCHEMES:
        how += " R and S draw, or hash, over all servers; K is of a topic."
    return figure(rows.chart(drawn, scale, "delivered", label), how, legend, heading)


def _marks(row: Row, style: int) -> list[rows.Mark]:
    marks: list[rows.Mark] = []
    if row["low"] is not None and row["high"] is not None:
        marks.append(rows.Whisker(min(row["low"], row["share"]), max(row["high"], row["share"])))
    if row["verdict"] == DISAGREES:
        marks.append(rows.Ring(row["share"]))
    marks.append(rows.Dot(row["share"], style))
    if row["theory"] is not None:
        marks.append(rows.Tick(row["theory"]))
    return marks


def _values(of: Sequence[Row]) -> list[float]:
    return [row[name] for row in of for name in ("share", "low", "high", "theory") if row[name] is not None]


def _trials(of: Sequence[Row]) -> float:
    return max(float(row["trials"] or row["outcomes"]) for row in of)


# --- Words ---------------------------------------------------------------------------------------------


def _k_prime(row: Row) -> int:
    return int(min(row["publish"], row["subscribe"]))


def _style(form: str) -> int:
    return _STYLES.get(form, len(_STYLES))


def _form(row: Row) -> str:
    if row["scheme"] != "RCH":
        return str(row["scheme"])
    return f"RCH, few {'publish' if row['publish'] < row['subscribe'] else 'subscribe'}"


def _policy(row: Row) -> str:
    match row["scheme"]:
        case "S":
            return "S"
        case "R":
            return f"R, {row['publish']:,} of {row['servers']:,}"
        case "CH":
            return f"CH, K = {row['k']:,}"
        case _:
            return f"{_form(row)}, K′ = {_k_prime(row)}"


def _condition(row: Row) -> str:
    """The label of a row: its difference from the note's example, with the policy where that differs."""
    condition = str(row["condition"]).replace("K'", "K′").replace("topic's", "topic’s")
    condition = condition.replace("subscriber's", "subscriber’s")
    if row["group"] != _SCHEMES:
        return condition or _policy(row)
    return f"{_policy(row)}{': ' if condition else ''}{condition}"


def _told(row: Row) -> str:
    condition = _condition(row)
    return condition if row["group"] == _SCHEMES else f"{_policy(row)}, {condition}"


def _title(row: Row) -> str:
    theory = "" if row["theory"] is None else f"; theory {percent(row['theory'])}"
    down = f", {brief_percent(row['down'])} down" if row["down"] else ""
    return f"{_told(row)}{down}: {percent(row['share'])}, {interval(row['low'], row['high'])}{theory}"
