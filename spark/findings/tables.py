"""The tables that an analysis ends in: names, columns, types, and what each means.

Plain data: report.json, CSV and Parquet files have just these, and docs/analysis.md describes the same for
people. Shares and probabilities are 0 .. 1. A value that theory, or the capture, does not give is null.
`low` .. `high` are 95 % intervals.
"""

from typing import Literal, NamedTuple

FINDINGS_VERSION = 2

Type = Literal["int", "float", "str", "bool"]


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: Type
    meaning: str


AGREES, DISAGREES, NO_THEORY = "agrees", "disagrees", "no theory"
"""Verdicts on what was measured beside theory."""

THEORIES = {
    "given_events": "given what happened",
    "for_servers": "for this many servers",
    "beforehand": "beforehand",
}
"""The three theories by their columns in `reliability`, in words."""

HOLDS, HOLDS_IF, FAILS = "holds", "holds if", "does not hold"
"""Verdicts on what the 2004 note claims."""

_CELL = Column("cell", "int", "number of the scenario in this analysis, from 0")

TABLES: dict[str, tuple[Column, ...]] = {
    "scenarios": (
        _CELL,
        Column("run", "str", "the run's id"),
        Column("scenario", "str", "its name"),
        Column("scheme", "str", "S, R, CH, RCH"),
        Column("side", "str", "of RCH: publish or subscribe, who uses only K'; else empty"),
        Column("k", "int", "servers of a topic"),
        Column("publish", "int", "to how many of them a message goes"),
        Column("subscribe", "int", "at how many of them a subscriber is"),
        Column("servers", "int", "in the cluster"),
        Column("backend", "str", "processes, lab, containers, file"),
        Column("down", "float", "share of servers down at a time, as planned"),
        Column("outages", "str", "none, independent, exact, zones, rolling"),
        Column("by", "str", "isolation, kill, stall"),
        Column("loss_in", "float", "of datagrams from clients to servers"),
        Column("loss_out", "float", "back"),
        Column("repeat", "int", "times that each message was sent"),
        Column("known", "float", "share of the servers that each client knew"),
        Column("messages", "int", "published"),
        Column("publishers", "int", ""),
        Column("subscribers", "int", ""),
        Column("duration_s", "float", "of the load"),
        Column("seed", "int", ""),
        Column("delivery_valid", "bool", "whether shares and causes can be trusted"),
        Column("latency_valid", "bool", "whether latencies can"),
    ),
    "health": (
        _CELL,
        Column("what", "str", "delivery or latency"),
        Column("reason", "str", "a sentence: why it cannot be trusted"),
    ),
    "reliability": (
        _CELL,
        Column("pairs", "int", "messages times subscribers that should have received them"),
        Column("delivered", "int", "of these, in time"),
        Column("share", "float", "delivered / pairs"),
        Column("low", "float", "of share, on the effective sample size"),
        Column("high", "float", ""),
        Column("trials", "float", "effective sample size: independent trials that tell as much"),
        Column(
            "clusters", "str", "in what losses repeat most: message, topic and epoch, ...; pair: in nothing"
        ),
        Column("design_effect", "float", "pairs / trials"),
        Column("beforehand", "float", "theory: independent outages, endless many servers, equal views"),
        Column("for_servers", "float", "theory: of this many servers, outages and views as planned"),
        Column("given_events", "float", "theory: outages, views, draws and leases as captured"),
        Column("given_events_low", "float", "95 % of such runs fall between"),
        Column("given_events_high", "float", ""),
        Column("z", "float", "standard deviations between share and theory given what happened"),
        Column("verdict", "str", "agrees, disagrees, no theory: on theory given what happened"),
        Column("note", "str", "why there is no theory, or what it leaves out"),
    ),
    "joint": (
        Column("theory", "str", "given_events, for_servers, beforehand"),
        Column("scenarios", "int", "with this theory"),
        Column("statistic", "float", "sum of squared z"),
        Column("degrees", "int", "of freedom"),
        Column("p_value", "float", "chance of so much or more if theory is right"),
        Column("verdict", "str", "agrees, disagrees, no theory"),
    ),
    "latency": (
        _CELL,
        Column("since", "str", "intended: from when it was to be published; sent: from when it was"),
        Column("count", "int", "first copies in time"),
        Column("mean_ms", "float", "to three significant figures, as all that follow"),
        Column("p50_ms", "float", ""),
        Column("p90_ms", "float", ""),
        Column("p99_ms", "float", ""),
        Column("p999_ms", "float", ""),
        Column("max_ms", "float", ""),
    ),
    "latency_buckets": (
        _CELL,
        Column("since", "str", "intended, sent"),
        Column("value_ns", "int", "to three significant figures"),
        Column("count", "int", ""),
    ),
    "balance": (
        _CELL,
        Column("what", "str", "received lines, forwarded copies, leases"),
        Column("servers", "int", "that were alive, those without any too"),
        Column("total", "int", ""),
        Column("mean", "float", "of a server"),
        Column("cv", "float", "standard deviation / mean"),
        Column(
            "predicted_cv", "float", "as random placement of the captured topics would give; null: not known"
        ),
        Column("peak", "float", "most / mean"),
        Column("gini", "float", "0 all alike .. 1 one has all"),
    ),
    "servers": (
        _CELL,
        Column("server_id", "int", ""),
        Column("received", "int", "lines of messages taken in"),
        Column("forwarded", "int", "copies sent that arrived or were lost on their way"),
        Column("leases", "int", "opened or standing"),
    ),
    "cost": (
        _CELL,
        Column("messages", "int", "published"),
        Column("sendings", "int", "of messages to servers"),
        Column("renewals", "int", "lines that ask for a lease or renew it, during the load"),
        Column("copies", "int", "that came to subscribers"),
        Column("duplicates", "int", "of these, after a pair's first"),
        Column("copies_per_pair", "float", ""),
        Column("copies_theory", "float", "the same, by the model; null where it has none"),
        Column("sendings_per_message", "float", ""),
        Column("lines_per_delivery", "float", "sendings, renewals and copies for each pair delivered"),
        Column("bytes_per_delivery", "float", "bytes of lines sent and copied for each pair delivered"),
        Column("renewal_share", "float", "renewals of all lines that servers are sent"),
        Column("cheaper_side", "str", "publish or subscribe: which side using K' takes fewer lines here"),
        Column("crossover_rate", "float", "messages/s of a topic at which that changes"),
    ),
    "attribution": (
        _CELL,
        Column("cause", "str", "label of kcast.loadtest.results.causes.Cause"),
        Column("meaning", "str", "in words"),
        Column("misses", "int", "pairs missed for this cause"),
        Column("share", "float", "of all misses of the cell"),
        Column("paths", "int", "ways through a server that ended so, of delivered pairs too"),
    ),
    "audience": (
        _CELL,
        Column("messages", "int", "with at least one subscriber"),
        Column("subscribers", "float", "of a message, on average"),
        Column("all_reached", "int", "messages that reached all of them"),
        Column("share", "float", "all_reached / messages"),
        Column("low", "float", "on the effective sample size; null where nothing tells of outages"),
        Column("high", "float", ""),
        Column("theory", "float", "the model's; null where it has none"),
        Column("none_reached", "int", "messages that reached nobody"),
        Column("longest_deaf_messages", "int", "messages of one topic in a row that one subscriber missed"),
        Column("longest_deaf_s", "float", "from the first of them to the last"),
        Column("deaf_subscriber", "int", "who that was; null where nothing was missed"),
        Column("deaf_topic", "int", ""),
    ),
    "attack": (
        _CELL,
        Column("blocked", "int", "servers of a topic that an attacker blocks, at random, of its k"),
        Column("blocked_share", "float", "of its k"),
        Column("delivered", "float", "share of pairs that would still be, by the copies captured"),
        Column("theory", "float", "the model's; null where it has none"),
    ),
    "capacity": (
        _CELL,
        Column("audience", "float", "subscribers of a message, on average"),
        Column("lines_in", "float", "that servers take in for a message"),
        Column("lines_out", "float", "that they forward for it"),
        Column("factor", "float", "messages/s of all servers, in units of one server doing the same alone"),
        Column("theory", "float", "the model's"),
        Column("hottest", "float", "the same, where the busiest server of this run is the limit"),
    ),
    # Of the simulation
    "simulation": (
        Column("scene", "str", "what was simulated, as in: rch-few-subscribe"),
        Column("group", "str", "schemes, draws, loss, views, outages, attack"),
        Column("ring", "str", "real, ideal"),
        Column("scheme", "str", "S, R, CH, RCH"),
        Column("k", "int", ""),
        Column("publish", "int", ""),
        Column("subscribe", "int", ""),
        Column("servers", "int", ""),
        Column("down", "float", ""),
        Column("loss", "float", "a leg"),
        Column("condition", "str", "in words: what differs from the note's example"),
        Column("outcomes", "int", "messages times subscribers"),
        Column("trials", "float", "effective sample size"),
        Column("share", "float", "delivered"),
        Column("low", "float", ""),
        Column("high", "float", ""),
        Column("theory", "float", "null where there is no formula"),
        Column("verdict", "str", "agrees, disagrees, no theory"),
        Column("copies", "float", "that come to a subscriber for a message"),
    ),
    "note": (
        Column("claim", "str", "the note's, in its words"),
        Column("figure", "str", "its number"),
        Column("scenario", "str", "to which form of RCH, or scheme, it belongs"),
        Column("measured", "str", "what the simulation gave, with its interval"),
        Column("verdict", "str", "holds, holds if, does not hold"),
        Column("because", "str", "a sentence: under which conditions, or why not"),
    ),
}
