"""The tables of an analysis: names, columns, types, and what each column means.

report.json, CSV and Parquet files have exactly these, and docs/analysis.md describes what names do not tell.
Shares and probabilities are 0 .. 1. A value that neither theory nor the capture gives is null. `low` and
`high` are the ends of a 95 % interval.
"""

from typing import Literal, NamedTuple

FINDINGS_VERSION = 5

Type = Literal["int", "float", "str", "bool"]


class Column(NamedTuple):
    """A column of a table. `meaning` states the unit where there is one, and what null stands for."""

    name: str
    type: Type
    meaning: str


AGREES, NOT_REFUTED, DISAGREES, NO_THEORY = "agrees", "not refuted", "disagrees", "no theory"
"""Verdicts on a measured figure beside theory. It is not refuted where the test could not have seen a
difference that matters."""

THEORIES = {"given_events": "given what happened", "beforehand": "beforehand"}
"""The two theories by their columns in `reliability`, in words."""

PERCENTS = (10, 25, 50, 75, 90, 100)
"""The parts of an audience whose times are told."""

HOLDS, HOLDS_IF, FAILS = "holds", "holds if", "does not hold"
"""Verdicts on the claims of the note of 2004."""

_VERDICT = "agrees, not refuted (no difference that matters could have been seen), disagrees, no theory"

_CELL = Column("cell", "int", "number of the scenario in this analysis, from 0")


def _misses_by(what: str, number: str, pairs: str) -> tuple[Column, ...]:
    return (
        _CELL,
        Column(what, "int", f"number of the {what}, `{number}` in the capture"),
        Column("pairs", "int", pairs),
        Column("misses", "int", "those that were missed"),
        Column("share", "float", "misses / pairs"),
        Column("cause", "str", "the cause of most of these misses"),
        Column("cause_misses", "int", "misses for that cause"),
    )


TABLES: dict[str, tuple[Column, ...]] = {
    "scenarios": (
        _CELL,
        Column("run", "str", "id of the run"),
        Column("scenario", "str", "name of the scenario"),
        Column("scheme", "str", "value of scheme=: S, R, CH or RCH"),
        Column("side", "str", "the side that uses K' servers, with RCH: publish or subscribe; else empty"),
        Column("k", "int", "servers of a topic"),
        Column("publish", "int", "servers that a message goes to, of the k"),
        Column("subscribe", "int", "servers that a subscriber is at, of the k"),
        Column("servers", "int", "servers in the cluster"),
        Column("backend", "str", "processes, lab, containers, file"),
        Column("down", "float", "planned share of servers down at any moment"),
        Column("outages", "str", "none, independent, exact, zones, rolling"),
        Column("by", "str", "what takes servers down: isolation, kill, stall"),
        Column("loss_in", "float", "planned loss of datagrams from clients to servers, as a share"),
        Column("loss_out", "float", "planned loss of datagrams from servers to clients, as a share"),
        Column("repeat", "int", "times that each message was sent"),
        Column("known", "float", "share of the servers that each client knew"),
        Column("messages", "int", "messages published"),
        Column("publishers", "int", "number of publishers"),
        Column("subscribers", "int", "number of subscribers"),
        Column("duration_s", "float", "length of the load, in seconds"),
        Column("epoch_s", "float", "length of an epoch of outages, in seconds"),
        Column("seed", "int", "seed of the random choices"),
        Column("delivery_valid", "bool", "whether shares and causes can be trusted"),
        Column("latency_valid", "bool", "whether latencies can be trusted"),
    ),
    "health": (
        _CELL,
        Column("what", "str", "what cannot be trusted: delivery or latency"),
        Column("reason", "str", "why not, and what to do, in a sentence"),
    ),
    "reliability": (
        _CELL,
        Column("pairs", "int", "pairs of a message and a subscriber that should get it"),
        Column("delivered", "int", "pairs delivered in time"),
        Column("share", "float", "delivered / pairs; null without pairs"),
        Column("low", "float", "lower end of the interval of the share, on the effective sample size"),
        Column("high", "float", "upper end"),
        Column("trials", "float", "effective sample size: independent pairs with as wide an interval"),
        Column("clusters", "str", "clusters whose common losses weigh most: message, epoch, ...; pair: none"),
        Column("design_effect", "float", "pairs / trials"),
        Column("beforehand", "float", "theory beforehand: outages and views as planned; null: none"),
        Column("given_events", "float", "theory given what happened, unplanned loss included; null: none"),
        Column("given_events_low", "float", "lower end of the range that has 95 % of runs by this theory"),
        Column("given_events_high", "float", "upper end"),
        Column("z", "float", "standard deviations of the share from the latter; null: not tested"),
        Column("detectable", "float", "least difference from it that nine of ten such runs would show"),
        Column("verdict", "str", f"on that theory: {_VERDICT}"),
        Column("note", "str", "why there is no theory, or what it leaves out"),
    ),
    "joint": (
        Column("theory", "str", "given_events, beforehand"),
        Column("scenarios", "int", "scenarios that are tested"),
        Column("statistic", "float", "sum of squared z"),
        Column("degrees", "int", "degrees of freedom"),
        Column("p_value", "float", "probability of so great a statistic if theory is right; null: no test"),
        Column("verdict", "str", _VERDICT),
    ),
    "losses": (
        _CELL,
        Column("leg", "str", "in (publisher to server), out (server to subscriber), both (in turn)"),
        Column("known_by", "str", "taps of the servers, or copies alone; null: not known"),
        Column("asked", "float", "loss that the scenario asks for, which is not counted here"),
        Column("lines", "int", "lines that only the network can have lost"),
        Column("lost", "int", "those lost; in by copies: messages that came to no subscriber of a server"),
        Column("share", "float", "share lost; null: not known"),
        Column("low", "float", "lower end of its interval, on the effective sample size"),
        Column("high", "float", "upper end"),
        Column("trials", "float", "effective sample size: independent lines with as wide an interval"),
        Column("after", "int", "lines that follow a lost one on their leg, among messages of one publisher"),
        Column("after_lost", "int", "those of them that were lost"),
        Column("after_share", "float", "after_lost / after: share if losses are independent; null: none"),
        Column("after_low", "float", "lower end of its interval"),
        Column("after_high", "float", "upper end"),
        Column("in_a_row", "float", "mean number lost in a row: 1 / (1 - after_share); null: not known"),
        Column("others", "int", "other lines of a message of which one was lost, by other servers"),
        Column("others_lost", "int", "those of them that were lost"),
        Column("others_share", "float", "others_lost / others: share if losses are independent; null: none"),
        Column("others_low", "float", "lower end of its interval"),
        Column("others_high", "float", "upper end"),
        Column("bunches", "str", "how losses certainly came in bunches: in a row, together; or none seen"),
    ),
    "touched": (
        _CELL,
        Column("figure", "str", "figures that are valid, and are not what the scenario alone would give"),
        Column("by", "str", "what touches them, and how"),
    ),
    "latency": (
        _CELL,
        Column("since", "str", "start of the time: intended (the message was due) or sent (it was sent)"),
        Column("count", "int", "first copies in time"),
        Column("mean_ms", "float", "mean in ms, to three figures as all that follow; null without copies"),
        Column("p50_ms", "float", "median, in ms"),
        Column("p90_ms", "float", "90th percentile, in ms"),
        Column("p99_ms", "float", "99th percentile, in ms"),
        Column("p999_ms", "float", "99.9th percentile, in ms"),
        Column("max_ms", "float", "maximum, in ms"),
    ),
    "latency_buckets": (
        _CELL,
        Column("since", "str", "intended, sent"),
        Column("value_ns", "int", "latency in ns, to three significant figures"),
        Column("count", "int", "first copies with this latency"),
    ),
    "over_time": (
        _CELL,
        Column("from_s", "float", "beginning of the time, in seconds since the load began"),
        Column("to_s", "float", "its end"),
        Column("pairs", "int", "pairs whose message was due in that time"),
        Column("delivered", "int", "those delivered in time"),
        Column("share", "float", "delivered / pairs"),
        Column("p50_ms", "float", "median latency of these; null without a delivery"),
        Column("p99_ms", "float", "99th percentile"),
        Column("servers_down", "float", "mean number of servers that were down, halted or cut off"),
    ),
    "balance": (
        _CELL,
        Column("what", "str", "what is counted: received lines, forwarded copies, leases"),
        Column("servers", "int", "servers that were alive, idle ones included"),
        Column("total", "int", "sum over the servers"),
        Column("mean", "float", "mean over the servers"),
        Column("cv", "float", "coefficient of variation: standard deviation / mean; null without load"),
        Column("predicted_cv", "float", "CV that random placement of these topics gives; null: not known"),
        Column("peak", "float", "greatest load / mean; null without load"),
        Column("gini", "float", "Gini coefficient: 0 all equal .. 1 one server has all; null without load"),
        Column("cv_high", "float", "CV that 95 % of runs stay below by the plan; null: not known"),
        Column("verdict", "str", f"whether the CV is above chance: {_VERDICT}"),
    ),
    "draws": (
        _CELL,
        Column("what", "str", "what is drawn: placement, topic, publisher, next, subscriber"),
        Column("draws", "int", "number of draws; of next, of pairs of a message and the next"),
        Column("others", "int", "draws of another size, which are left out"),
        Column("common", "float", "mean number of servers that two draws have in common; null without two"),
        Column("theory", "float", "the same by random draws; null where draws are not from the same servers"),
        Column("z", "float", "standard deviations from it, on a skewed distribution; null: not tested"),
        Column("verdict", "str", _VERDICT),
    ),
    "servers": (
        _CELL,
        Column("server_id", "int", "number of the server in its cluster, from 0"),
        Column("received", "int", "message lines taken in; null without a tap"),
        Column("forwarded", "int", "copies sent that arrived or were lost on their way"),
        Column("leases", "int", "leases opened or standing; null without a tap"),
    ),
    "cost": (
        _CELL,
        Column("messages", "int", "messages published"),
        Column("sendings", "int", "lines of messages sent to servers"),
        Column("renewals", "int", "lines that ask for a lease or renew it, during the load"),
        Column("copies", "int", "copies that came to subscribers"),
        Column("duplicates", "int", "copies after the first of their pair"),
        Column("copies_per_pair", "float", "copies / pairs; null without pairs"),
        Column("copies_theory", "float", "the same by the model; null where it has none"),
        Column("copies_low", "float", "lower end of the range of 95 % of runs by the plan; null: not known"),
        Column("copies_high", "float", "upper end"),
        Column("sendings_per_message", "float", "sendings / messages"),
        Column(
            "lines_per_delivery", "float", "sendings, renewals and copies for a pair delivered; null: none"
        ),
        Column("bytes_per_delivery", "float", "bytes of these lines for a pair delivered; null: none"),
        Column("renewal_share", "float", "renewals / (renewals + sendings)"),
        Column("cheaper_side", "str", "side on which K' takes fewer lines, publish or subscribe; null: none"),
        Column("crossover_rate", "float", "messages/s of a topic at which that side changes; null: none"),
        Column("verdict", "str", f"on copies_per_pair: {_VERDICT}"),
    ),
    "attribution": (
        _CELL,
        Column("cause", "str", "label of kcast.loadtest.results.causes.Cause"),
        Column("meaning", "str", "the cause in words"),
        Column("misses", "int", "pairs missed for this cause"),
        Column("share", "float", "misses / all misses of the scenario"),
        Column("paths", "int", "paths by a server that ended this way, those of delivered pairs too"),
    ),
    "misses_by_topic": _misses_by("topic", "topic_id", "pairs of messages on that topic"),
    "misses_by_subscriber": _misses_by("subscriber", "sub_id", "pairs of that subscriber"),
    "audience": (
        _CELL,
        Column("messages", "int", "messages with at least one subscriber"),
        Column("subscribers", "float", "mean number of subscribers of a message"),
        Column("all_reached", "int", "messages that reached all their subscribers"),
        Column("share", "float", "all_reached / messages"),
        Column("low", "float", "lower end of the interval, on the effective size; null: outages unknown"),
        Column("high", "float", "upper end"),
        Column("theory", "float", "the share by the model; null where it has none"),
        Column("none_reached", "int", "messages that reached nobody"),
        Column("longest_deaf_messages", "int", "most messages of a topic in a row that a subscriber missed"),
        Column("longest_deaf_s", "float", "seconds from the first message of that run to the last"),
        Column("deaf_subscriber", "int", "number of that subscriber; null if nothing was missed"),
        Column("deaf_topic", "int", "number of that topic; null if nothing was missed"),
        Column("verdict", "str", _VERDICT),
    ),
    "reach": (
        Column("servers", "int", "servers, at all of which each subscriber is"),
        Column("publish", "int", "servers that a message goes to"),
        Column("mute", "int", "servers that send no copies"),
        Column("offline", "float", "share of subscribers that are away for a quarter of the load"),
        Column("spam", "float", "messages that a spammer sends beside, for each second"),
        Column("scenarios", "int", "scenarios of such a kind whose delivery can be trusted"),
        Column("messages", "int", "their messages, the trials; those of one seed and name count once"),
        Column("pairs", "int", "pairs of these"),
        Column("share", "float", "share of the pairs that were delivered in time"),
        Column("low", "float", "lower end of its interval, of 99.9 %"),
        Column("high", "float", "upper end"),
        Column("after_sync", "float", "the share that came in time, late, or by a log; null: without logs"),
        Column("theory", "float", "1 - C(mute, publish) / C(servers, publish)"),
        Column("large_n", "float", "1 - (mute / servers)^publish, the same for very many servers"),
    ),
    "reach_times": (
        _CELL,
        Column("percent", "int", "part of a message's subscribers, in per cent: 10, 25, 50, 75, 90, 100"),
        Column("messages", "int", "messages with at least one subscriber"),
        Column("reached", "int", "messages that reached this part in time"),
        Column("p50_ms", "float", "median of these of the time from when due until then; null: none"),
        Column("p90_ms", "float", "90th percentile"),
        Column("p99_ms", "float", "99th percentile"),
    ),
    "sightings": (
        _CELL,
        Column("what", "str", "joined, left or silent, of members; limited: it sent more than the limit"),
        Column("name", "str", "of whom: subscriber N, publisher N, spammer"),
        Column("subscribers", "int", "number of subscribers that told it"),
        Column("first_s", "float", "when the first of them did, in seconds since the load began"),
        Column("last_s", "float", "when it was told last"),
    ),
    # Of the simulation
    "simulation": (
        Column("scene", "str", "what was simulated, such as rch-few-subscribe"),
        Column("group", "str", "schemes, draws, loss, views, outages, attack"),
        Column("ring", "str", "real or ideal (a random order of servers for each topic)"),
        Column("scheme", "str", "S, R, CH, RCH"),
        Column("k", "int", "servers of a topic"),
        Column("publish", "int", "servers that a message goes to, of the k"),
        Column("subscribe", "int", "servers that a subscriber is at, of the k"),
        Column("servers", "int", "servers in the cluster"),
        Column("down", "float", "share of servers down at any moment"),
        Column("loss", "float", "loss of a leg, as a share"),
        Column("condition", "str", "what differs from the note's example, in words"),
        Column("outcomes", "int", "messages times subscribers"),
        Column("trials", "float", "effective sample size"),
        Column("share", "float", "share of outcomes delivered"),
        Column("low", "float", "lower end of the interval of the share"),
        Column("high", "float", "upper end"),
        Column("theory", "float", "the share by the model; null where there is no formula"),
        Column("verdict", "str", "agrees, disagrees, no theory"),
        Column("copies", "float", "copies of a message that come to a subscriber, on average"),
    ),
    "note": (
        Column("claim", "str", "the claim, in the note's words where it has any"),
        Column("formula", "str", "what is expected, in the order of what was measured"),
        Column("measured", "str", "what the simulation gave"),
        Column("verdict", "str", "holds, holds if, does not hold"),
    ),
}
