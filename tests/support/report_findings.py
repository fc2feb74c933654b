"""Findings as an analysis gives them, from the model and seeded chance: what the report is tried with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import log10, sqrt
from random import Random
from typing import Any

from kcast.hashring import model
from kcast.hashring.intervals import wilson
from kcast.loadtest.load.grid import PRESETS, expand, preset
from kcast.loadtest.results.causes import MEANINGS, Cause
from kcast.loadtest.results.prediction import predict
from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.findings import Findings, Row
from kcast.spark.findings.tables import AGREES, DISAGREES, FAILS, HOLDS, HOLDS_IF, NO_THEORY, PERCENTS, TABLES

ABOUT: Mapping[str, Any] = {
    "kcast": "0.1.0",
    "made": "2026-11-22T02:00:00Z",
    "command": "kcast analyse load-out --out report",
    "seconds": 41.2,
    "captures": [
        {
            **{"path": "load-out", "run": "load-20261122-013800-4c6c1e", "status": "complete"},
            **{"started": "2026-11-22T01:38:00Z", "ended": "2026-11-22T01:51:02Z", "host": "box, 2 cores"},
        }
    ],
}
RUN = "load-20261122-013800-4c6c1e"


def scenarios(name: str, **given: Sequence[Any]) -> tuple[Scenario, ...]:
    """Those of a preset of `kcast load`."""
    return expand(preset(name).parts, given).scenarios


def findings(
    cells: Sequence[Scenario] = (),
    *,
    seed: int = 1,
    invalid: Sequence[int] = (),
    latency_invalid: Sequence[int] = (),
    disagreeing: Sequence[int] = (),
    simulated: bool = False,
    problems: Sequence[str] = (),
    runs: Sequence[str] = (RUN,),
) -> Findings:
    """Findings of cells, and of a simulation. Cells are named by number; they are spread over the runs.

    Who asks for the same again gets the same object, since they take long to make: nobody may change it.
    """
    numbers = tuple(invalid), tuple(latency_invalid), tuple(disagreeing)
    return _made_once(tuple(cells), seed, *numbers, simulated, tuple(problems), tuple(runs))


def make_findings(
    cells: Sequence[Scenario],
    seed: int,
    invalid: Sequence[int],
    latency_invalid: Sequence[int],
    disagreeing: Sequence[int],
    simulated: bool,
    problems: Sequence[str],
    runs: Sequence[str],
) -> Findings:
    """Makes what `findings` returns."""
    chance = Random(seed)
    tables: dict[str, list[Row]] = {name: [] for name in TABLES if name not in ("simulation", "note")}
    if not cells:
        tables = {}
    for number, scenario in enumerate(cells):
        _add_cell(
            tables,
            number,
            runs[number * len(runs) // len(cells)],
            scenario,
            chance,
            is_valid=number not in invalid,
            is_latency_valid=number not in latency_invalid and number not in invalid,
            disagrees=number in disagreeing,
        )
    if cells:
        tables["joint"] = _joint(tables["reliability"], invalid)
    if simulated:
        tables |= {"simulation": _simulation(chance), "note": _note()}
    return Findings({**ABOUT, "captures": ABOUT["captures"] if cells else []}, problems, tables)


_made_once = lru_cache(maxsize=64)(make_findings)


def with_losses(of: Findings, cell: int, legs: Mapping[str, tuple[float, float, float] | None]) -> Findings:
    """Returns findings in which the network of a scenario lost these shares: of each leg share, low, high."""
    unknown = dict.fromkeys(column.name for column in TABLES["losses"])
    rows = [
        {**unknown, "cell": cell, "leg": leg}
        | dict(zip(("share", "low", "high"), shares or (None,) * 3, strict=True))
        for leg, shares in legs.items()
    ]
    return replace(of, tables={**of.tables, "losses": rows})


def row(table: str, *values: object) -> Row:
    """A row of a table, its values in order."""
    return dict(zip((column.name for column in TABLES[table]), values, strict=True))


def _add_cell(
    tables: dict[str, list[Row]],
    number: int,
    run: str,
    scenario: Scenario,
    chance: Random,
    *,
    is_valid: bool,
    is_latency_valid: bool,
    disagrees: bool,
) -> None:
    policy = scenario.policy
    k, m, n = policy.k, policy.publish, policy.subscribe
    down = _down(scenario)
    messages = round(scenario.publishers * scenario.rate * scenario.duration_s * chance.uniform(0.97, 1.03))
    audience = scenario.subscribers * scenario.topics_per_subscriber / scenario.topics
    pairs = round(messages * audience)
    path = model.path(down, scenario.loss_in, scenario.loss_out, sends=scenario.repeat)
    beforehand = predict(scenario).share
    design = 60 if scenario.outages != "none" else 3
    base = beforehand if beforehand is not None else model.delivery(min(k, scenario.servers), m, n, path)
    sd = sqrt(base * (1 - base) * design / pairs) or 1e-9
    given_events = None if beforehand is None else min(1.0, base + sd * chance.gauss(0, 0.8))
    z = chance.gauss(0, 1) if not disagrees else 6.3
    spread = sd * 0.4
    share = min(1.0, max(0.0, (given_events if given_events is not None else base) + z * spread))
    delivered = round(share * pairs)
    share = delivered / pairs
    low, high = wilson(round(share * pairs / design), max(1, round(pairs / design)))
    low, high = min(low, share), max(high, share)
    verdict = NO_THEORY if given_events is None else DISAGREES if disagrees else AGREES
    tables["scenarios"].append(
        row(
            "scenarios",
            *(number, run, scenario.name, policy.scheme, scenario.side if policy.scheme == "RCH" else ""),
            *(k, m, n, scenario.servers, scenario.backend, down, scenario.outages, scenario.by),
            *(scenario.loss_in, scenario.loss_out, scenario.repeat, scenario.known, messages),
            *(scenario.publishers, scenario.subscribers, scenario.duration_s),
            *(scenario.epoch_s, scenario.seed),
            *(is_valid, is_latency_valid),
        )
    )
    tables["reliability"].append(
        row(
            "reliability",
            *(number, pairs, delivered, share, low, high, pairs / design, "topic and epoch", float(design)),
            *(beforehand, given_events),
            None if given_events is None else max(0.0, given_events - 1.96 * spread),
            None if given_events is None else min(1.0, given_events + 1.96 * spread),
            *(None if given_events is None else z, None if given_events is None else 4.1 * spread),
            *(verdict, predict(scenario).note),
        )
    )
    _add_health(tables, number, is_valid=is_valid, is_latency_valid=is_latency_valid)
    _add_causes(tables, number, pairs - delivered, scenario, chance)
    _add_latency(tables, number, delivered, scenario, chance)
    _add_balance(tables, number, scenario, messages, audience, chance)
    copies = round(pairs * model.copies(k, m, n, 1 - down, scenario.loss_in, scenario.loss_out))
    renewals = round(scenario.subscribers * scenario.topics_per_subscriber * n * scenario.duration_s / 20)
    lines = messages * m + renewals + copies
    tables["cost"].append(
        row(
            "cost",
            *(number, messages, messages * m, renewals, copies, max(0, copies - delivered)),
            *(copies / pairs, copies / pairs * chance.uniform(0.98, 1.02), copies / pairs * 0.95),
            *(copies / pairs * 1.05, float(m)),
            *(
                lines / max(1, delivered),
                lines * 148 / max(1, delivered),
                renewals / (messages * m + renewals),
            ),
            *("publish" if m < n else "subscribe" if n < m else "publish", 0.52, AGREES),
        )
    )
    reached = base**audience if m == n else base**1.8
    found = min(1.0, max(0.0, reached + chance.gauss(0, 0.003)))
    tables["audience"].append(
        row(
            "audience",
            *(number, messages, audience, round(found * messages), found, max(0.0, found - 0.006)),
            *(
                min(1.0, found + 0.005),
                None if beforehand is None else reached,
                round(messages * (1 - found) / 9),
            ),
            *(round(40 * (1 - found)) + 1, 0.9, 7, 3, NO_THEORY if beforehand is None else AGREES),
        )
    )
    _add_over_time(tables, number, pairs, scenario)


def _add_over_time(tables: dict[str, list[Row]], number: int, pairs: int, scenario: Scenario) -> None:
    """Sixty slots: fewer pairs are delivered while more servers are down."""
    chance = Random(number)
    length_s, each, down = scenario.duration_s / 60, pairs // 60, 0.0
    for slot in range(60):
        if slot % 6 == 0 and scenario.outages != "none":
            down = float(chance.randint(0, round(2 * _down(scenario) * scenario.servers)))
        share_down = down / scenario.servers
        missed = round(each * min(1.0, share_down**2 + chance.uniform(0, 0.002)))
        median_ms = 2 * scenario.delay_ms + chance.uniform(1.2, 1.8)
        tables["over_time"].append(
            row(
                "over_time",
                *(number, slot * length_s, (slot + 1) * length_s, each, each - missed, 1 - missed / each),
                *(median_ms, median_ms * chance.uniform(2, 5), down),
            )
        )


def _down(scenario: Scenario) -> float:
    match scenario.outages:
        case "none":
            return 0.0
        case "exact":
            return scenario.down / scenario.servers
        case "rolling":
            return 1 / scenario.servers
        case _:
            return scenario.outage


def _add_health(tables: dict[str, list[Row]], number: int, *, is_valid: bool, is_latency_valid: bool) -> None:
    if not is_valid:
        reason = "12 rows were lost by the recorder: free disk space, or give a lower --rate"
        tables["health"].append(row("health", number, "delivery", reason))
    if not is_latency_valid:
        reason = (
            f"messages left {4 + number} ms late at the 99th percentile, which is not less than 10% of the "
            "latency's (12.7 ms): give a lower --rate, use a machine with more cores free, or give legs the "
            "--delay of a real network"
        )
        tables["health"].append(row("health", number, "latency", reason))


def _add_causes(
    tables: dict[str, list[Row]], number: int, misses: int, scenario: Scenario, chance: Random
) -> None:
    weights = {
        Cause.DOWN: 70.0 if scenario.outages != "none" else 0.0,
        Cause.LOSS_IN: 900 * scenario.loss_in,
        Cause.LOSS_OUT: 800 * scenario.loss_out,
        Cause.LEASE_EXPIRED: 4.0 if scenario.outages != "none" else 0.0,
        Cause.VIEW: 60.0 if scenario.known < 1 else 0.0,
        Cause.DOWN_OUT: 0.5 if scenario.outages != "none" else 0.0,
        Cause.LATE: 0.2,
    }
    left, total = misses, sum(weights.values())
    for cause, weight in weights.items():
        count = min(left, round(misses * weight / total))
        left -= count
        if weight:
            tables["attribution"].append(
                row(
                    "attribution",
                    *(number, cause.label, MEANINGS[cause], count, count / misses if misses else 0.0),
                    round(count * chance.uniform(2, 4)) + 10,
                )
            )
    if left:
        first = next(one for one in tables["attribution"] if one["cell"] == number)
        first["misses"] += left
        first["share"] = first["misses"] / misses


def _add_latency(
    tables: dict[str, list[Row]], number: int, count: int, scenario: Scenario, chance: Random
) -> None:
    median_ms = 2 * scenario.delay_ms + scenario.jitter_ms + 1.4 + 0.6 * scenario.policy.subscribe / 3
    for since, factor in (("intended", 1.0), ("sent", 0.8)):
        buckets: dict[int, int] = {}
        for _ in range(1500):
            late = chance.random() < 0.03
            value = factor * (
                median_ms * 10 ** chance.gauss(0, 0.05 if scenario.delay_ms else 0.14)
                + (chance.expovariate(1 / 12) if late else 0)
            )
            value_ns = int(value * 1e6)
            step = 10 ** (int(log10(value_ns)) - 2)
            rounded = value_ns // step * step
            buckets[rounded] = buckets.get(rounded, 0) + max(1, count // 1500)
        values = sorted(buckets)
        total, seen, quantiles = sum(buckets.values()), 0, {}
        for value_ns in values:
            seen += buckets[value_ns]
            for share in (0.5, 0.9, 0.99, 0.999, 1.0):
                if share not in quantiles and seen >= share * total - 1e-9:
                    quantiles[share] = value_ns / 1e6
        if since == "intended":
            for percent, value in zip(PERCENTS, (0.6, 0.8, 0.9, 1.0, 1.2, 1.9), strict=True):
                times = (median_ms * value, median_ms * value * 1.4, median_ms * value * 2)
                tables["reach_times"].append(
                    row("reach_times", number, percent, 1000, 1000 - percent, *times)
                )
        mean = sum(value * often for value, often in buckets.items()) / total / 1e6
        tables["latency"].append(row("latency", number, since, total, mean, *quantiles.values()))
        tables["latency_buckets"] += [
            row("latency_buckets", number, since, value, buckets[value]) for value in values
        ]


def _add_balance(
    tables: dict[str, list[Row]],
    number: int,
    scenario: Scenario,
    messages: int,
    audience: float,
    chance: Random,
) -> None:
    servers, policy = scenario.servers, scenario.policy
    topics = [
        sum(chance.random() < policy.k / servers for _ in range(scenario.topics)) for _ in range(servers)
    ]
    unit = messages * policy.publish / policy.k / scenario.topics
    loads = {
        "received lines": [round(unit * own) for own in topics],
        "forwarded copies": [round(unit * own * audience * policy.subscribe / policy.k) for own in topics],
        "leases": [round(own * audience) for own in topics],
    }
    for what, values in loads.items():
        total = sum(values)
        mean = total / servers
        deviation = sqrt(sum((value - mean) ** 2 for value in values) / servers)
        predicted = 1 / sqrt(max(1e-9, scenario.topics * policy.k / servers))
        tables["balance"].append(
            row(
                "balance",
                *(number, what, servers, total, mean, deviation / mean if mean else None, predicted),
                *(max(values) / mean if mean else None, 0.31, predicted * 1.3, AGREES),
            )
        )
    for server in range(servers):
        tables["servers"].append(
            row("servers", number, server, *(values[server] for values in loads.values()))
        )


def _joint(reliability: Sequence[Row], invalid: Sequence[int]) -> list[Row]:
    judged = [one for one in reliability if one["z"] is not None and one["cell"] not in invalid]
    if not judged:
        return [row("joint", "given_events", 0, 0.0, 0, None, NO_THEORY)]
    disagrees = any(one["verdict"] == DISAGREES for one in judged)
    return [
        row(
            "joint",
            *(theory, len(judged), sum(one["z"] ** 2 for one in judged), len(judged)),
            *(3e-6 if disagrees else p_value, DISAGREES if disagrees else AGREES),
        )
        for theory, p_value in (("given_events", 0.42), ("beforehand", 0.19))
    ]


def _simulation(chance: Random) -> list[Row]:
    few_publish, few_subscribe = ("RCH", 1000, 3, 1000), ("RCH", 1000, 1000, 3)
    rows = [
        _scene(chance, "rch-few-publish", "schemes", few_publish, 0.9, ring="real"),
        _scene(chance, "rch-few-subscribe", "schemes", few_subscribe, 0.9, ring="real"),
        _scene(chance, "ch", "schemes", ("CH", 3, 3, 3), 0.9, ring="real"),
        _scene(chance, "s", "schemes", ("S", 1, 1, 1), 0.9, ring="real"),
    ]
    for count in (316, 632, 876):
        words = f"{count / 316:.2g} times the root of all servers"
        rows.append(_scene(chance, f"r-{count}", "schemes", ("R", 100_000, count, count), 0.9, words))
    for k_prime in (1, 2, 4, 5):
        policy = ("RCH", 1000, k_prime, 1000)
        rows.append(_scene(chance, f"rch-few-publish-{k_prime}", "draws", policy, 0.9, f"K' = {k_prime}"))
    for group, words, path in (
        ("loss", "1% of packets lost on each leg", 0.9 * 0.99**2),
        ("loss", "5% of packets lost on each leg", 0.9 * 0.95**2),
        ("views", "each client knows 90% of the servers, each others", 0.81),
        ("outages", "servers fail by zones, of which there are 10", None),
        ("attack", "405 of a topic's 1000 servers blocked", 0.9 * 0.595),
        ("attack", "1000 of a topic's 1000 servers blocked", 0.0),
    ):
        for name, policy in (("few-publish", few_publish), ("few-subscribe", few_subscribe)):
            rows.append(_scene(chance, f"rch-{name}-{len(rows)}", group, policy, path, words))
    return rows


def _scene(
    chance: Random,
    scene: str,
    group: str,
    policy: tuple[str, int, int, int],
    path: float | None,
    condition: str = "",
    ring: str = "ideal",
) -> Row:
    scheme, k, m, n = policy
    theory = None if path is None else model.delivery(k, m, n, path)
    trials = 500_000.0
    mean = 0.9956 if theory is None else theory
    share = min(1.0, max(0.0, mean + chance.gauss(0, 0.4) * sqrt(mean * (1 - mean) / trials)))
    low, high = wilson(round(share * trials), round(trials))
    return row(
        "simulation",
        *(scene, group, ring, scheme, k, m, n, 100_000, 0.1, 0.0, condition, 50_000_000, trials),
        *(share, low, high, theory, NO_THEORY if theory is None else AGREES, m * n / k * 0.9),
    )


def _note() -> list[Row]:
    with_loss = "99.90 %; 99.84 %"
    return [
        row("note", "RCH: 99.9% reliable delivery", "1 - down^K'; 1 % of packets lost", with_loss, HOLDS_IF),
        row("note", "RCH: 33,000 times the bandwidth of a single server", "33,000", "100", FAILS),
        row("note", "RCH requires 1000 servers’ worth of traffic", "1,000 blocked: 0", "0 %", HOLDS),
        row("note", "CH tolerates inconsistent server lists", "more than 1 - down", "98.83 %", HOLDS),
        row("note", "R: its size squared", "1 - exp(-(1 - down) m² / servers)", "59.4 %; 7.7", HOLDS_IF),
    ]


def sixty() -> tuple[Scenario, ...]:
    """As many cells as a page should bear, of several presets."""
    found = [
        one for name in ("grid", "few-subscribe", "zones", "views", "repeats") for one in scenarios(name)
    ]
    found += scenarios("grid", loss=(0.0, 0.05, 0.1), k_prime=(1, 2, 3, 5, 7))
    return tuple(found)[:60]


assert {"grid", "few-subscribe", "zones", "views", "repeats"} <= set(PRESETS)
