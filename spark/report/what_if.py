"""The part on what would be: delivery by K' at other losses, given what was measured of outages. Pure."""

from collections.abc import Mapping, Sequence

from kcast.hashring import model
from kcast.loadtest.charts import curves
from kcast.loadtest.charts.escaping import Html
from kcast.loadtest.charts.scales import nines_words, shares, whole_numbers
from kcast.loadtest.charts.svg import swatch
from kcast.loadtest.charts.words import brief_percent, interval, listed, percent
from kcast.spark.findings.findings import Findings
from kcast.spark.report.cells import NamedCell, NamedCells, groups
from kcast.spark.report.delivery_curves import CellRow
from kcast.spark.report.markup import Badge, Head, Section, details, figure, table
from kcast.spark.report.met import Met, met

_LOSSES = (0.0, 0.05, 0.1, 0.2)
"""The losses each way, beside the measured one, for which delivery is drawn."""

_GOAL = 0.999
_K_MAX = 32


def section(findings: Findings, cells: NamedCells) -> Section | None:
    """Returns curves for the policies of the first condition; None where one side does not draw of K."""
    found = [
        (cell, row)
        for cell, row in cells.rows(findings, "reliability")
        if cell.is_valid and row["share"] is not None and cell.family.startswith("RCH")
    ]
    if not found:
        return None
    heading, members = groups([cell for cell, _ in found])[0]
    first = members[0]
    kind = (first.k, first.family)
    own = [(cell, row) for cell, row in found if cell in members and (cell.k, cell.family) == kind]
    known = met(findings, {cell.number for cell, _ in own})
    if known is None or first.k > _K_MAX or first.row["repeat"] != 1 or first.row["known"] != 1:
        return None
    losses: list[tuple[str, tuple[float, float]]] = [("as measured", (known.loss_in, known.loss_out))]
    losses += [(f"{brief_percent(loss)} each way", (loss, loss)) for loss in _LOSSES]
    losses.sort(key=lambda each: sum(each[1]))
    by_loss = {name: _delivery(first, known.down, *loss) for name, loss in losses}
    return Section(
        "what-if",
        "What if",
        _says(own, known, by_loss),
        Badge("computed"),
        [
            _figure(own, by_loss, first, heading),
            details("All numbers", _table(by_loss)),
        ],
    )


def _delivery(cell: NamedCell, down: float, loss_in: float, loss_out: float) -> list[float]:
    """The share delivered with K' = 1 .. K, where servers are down independently of each other."""
    path = model.path(down, loss_in, loss_out)
    k = cell.k
    sizes = ((one, k) if cell.family == "RCH publish" else (k, one) for one in range(1, k + 1))
    return [model.delivery(k, publish, subscribe, path) for publish, subscribe in sizes]


def _says(own: Sequence[CellRow], known: Met, by_loss: Mapping[str, Sequence[float]]) -> str:
    lost = listed([f"{percent(share, 1)} {what}" for share, what in known.lost])
    words = f"In this test {percent(known.down, 1)} of the copies met a server that was down; {lost}."
    worse = f"{brief_percent(0.1)} each way"
    cell = own[len(own) // 2][0]
    words += (
        f" With these outages and {brief_percent(0.1)} of packets lost each way, {cell.name} would deliver "
        f"{percent(by_loss[worse][cell.k_prime - 1])}"
    )
    enough = next((k for k, share in enumerate(by_loss[worse], 1) if share >= _GOAL), None)
    if enough is None:
        return f"{words}; no K′ would be enough for {percent(_GOAL, 1)}."
    return f"{words}; K′ = {enough} would be enough for {percent(_GOAL, 1)}."


def _figure(
    own: Sequence[CellRow], by_loss: Mapping[str, Sequence[float]], first: NamedCell, heading: str
) -> Html:
    series, legend = [], []
    for shape, (name, values) in enumerate(by_loss.items()):
        points = [
            curves.MeasuredPoint(k_prime, value, title=f"K′ = {k_prime}, loss {name}: {percent(value)}")
            for k_prime, value in enumerate(values, 1)
        ]
        line = curves.TheoryLine(list(enumerate(values, 1)), "expected")
        colour = f"s5 t{shape}"
        series.append(curves.Series(shape, points, [line], colour))
        legend.append((swatch(shape, f"dot {colour}"), f"loss {name}"))
    came = [
        curves.MeasuredPoint(
            cell.k_prime,
            row["share"],
            row["low"],
            row["high"],
            title=f"{cell.name}: {percent(row['share'])}, {interval(row['low'], row['high'])}",
        )
        for cell, row in own
    ]
    series.append(curves.Series(0, came, (), "s0"))
    legend.append((swatch(0, "dot s0"), "measured"))
    pairs = max(row["pairs"] for _, row in own)
    scale = shares(
        [*(value for values in by_loss.values() for value in values), *(point.y for point in came)],
        max(pairs, 100_000),
    )
    axes = curves.Axes(
        whole_numbers(range(1, first.k + 1)), scale, f"K′, of K = {first.k}", "pairs delivered"
    )
    label = "Delivery by K′ at other losses: " + "; ".join(
        f"loss {name}: " + ", ".join(percent(value) for value in values) for name, values in by_loss.items()
    )
    how = (
        f"{nines_words(scale, 'above')} Theory beforehand, with the share of servers down that was measured, "
        "taken as independent of each other."
    )
    if curves.clipped(series, scale):
        how += " What is closer to 100 % than the axis tells is drawn below the gap."
    return figure(curves.chart(series, axes, label, height=360, small=True), how.strip(), legend, heading)


def _table(by_loss: Mapping[str, Sequence[float]]) -> Html:
    heads = [Head("K′"), *(Head(f"loss {name}") for name in by_loss)]
    body = [
        [str(number), *(percent(value) for value in of_k)]
        for number, of_k in enumerate(zip(*by_loss.values(), strict=True), 1)
    ]
    return table(heads, body, "Delivery by K′ and loss, computed")
