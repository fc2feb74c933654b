"""The note's claims about S, R and CH, judged by the simulation."""

from collections.abc import Iterator
from math import log10

from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import FAILS, HOLDS, HOLDS_IF
from kcast.spark.simulation.claims_rch import WIDE_AUDIENCE, row
from kcast.spark.simulation.scenes import R_ROOTS, roots
from kcast.spark.simulation.simulated import Simulated, is_about, round_figure, told, told_with_interval

_POWER_TOLERANCE = 0.05
_MISSES_ONE_ANOTHER = 0.01  # below this share, clients miss one another


def claims(simulated: Simulated) -> Iterator[Row]:
    """Yields rows of the table "note", in the order of the note."""
    yield _one_server(simulated)
    yield _other_lists(simulated)
    yield _bottleneck(simulated)
    yield _squared(simulated)
    yield _entire_network(simulated)
    yield _root(simulated)
    yield _orders(simulated)
    yield _robust(simulated)
    yield _effort(simulated)
    yield _inconsistent(simulated)
    yield _no_single_point(simulated)
    yield _linear(simulated)


def _one_server(simulated: Simulated) -> Row:
    blocked, base = simulated.s("blocked-1"), simulated.s()
    holds = blocked["share"] == 0 and base["high"] < 1
    return row(
        "retains the single-point-of-failure and denial-of-service problems of the single-server approach",
        "1 server",
        "S",
        f"{told(blocked)} delivered with the topic's one server blocked",
        HOLDS if holds else FAILS,
        f"A topic is as reliable as its one server: {told_with_interval(base)}.",
    )


def _other_lists(simulated: Simulated) -> Row:
    found, ch = simulated.s("one-unknown"), simulated.ch("known-90")
    holds = found["high"] < _MISSES_ONE_ANOTHER
    return row(
        "clients with different lists of servers will miss one another",
        "",
        "S",
        f"{told(found)} delivered where {found['condition']}",
        HOLDS if holds else FAILS,
        f"A list that is one server shorter numbers nearly every topic anew. CH has {told(ch)} where "
        f"{ch['condition']}.",
    )


def _bottleneck(simulated: Simulated) -> Row:
    found = simulated.s()
    alone, factor = (simulated.capacity(found, audience) for audience in (0, WIDE_AUDIENCE))
    holds = is_about(alone, found["servers"]) and is_about(factor, found["servers"])
    return row(
        "ameliorating the performance bottleneck",
        f"{found['servers']:,} times",
        "S",
        f"{alone:,.0f} times the capacity of one server, {factor:,.0f} times with {WIDE_AUDIENCE:,} "
        "subscribers a topic",
        HOLDS if holds else FAILS,
        "Over many topics each line is taken in once and forwarded once to each subscriber; one "
        "topic alone has "
        "the capacity of one server.",
    )


def _squared(simulated: Simulated) -> Row:
    servers = simulated.settings.servers
    sizes = [(roots(servers, factor), simulated.r(factor)) for factor in R_ROOTS]
    shares = [found["share"] for _, found in sizes]
    few, enough = sizes[0], sizes[-1]
    if shares != sorted(shares):
        verdict, because = FAILS, "Larger subsets did not deliver more."
    elif few[1]["low"] >= simulated.settings.down:
        squares = enough[0] ** 2 / servers
        lossy = few[1]["high"] < 1 - simulated.settings.down
        verdict = HOLDS_IF if lossy else HOLDS
        because = (
            f"A square equal to all servers delivers only {told(few[1])}; {told(enough[1])} take "
            f"one of {squares:.1f} "
            "times all servers."
        )
    else:
        verdict, because = FAILS, f"With a square equal to all servers hardly anything comes: {told(few[1])}."
    return row(
        "such that when its size is squared, the result is comparable to the total number of "
        "servers — larger for "
        "more reliability",
        f"{few[0]:,} of {servers:,}",
        "R",
        ", ".join(f"{told(found)} with {size:,} servers" for size, found in sizes),
        verdict,
        because,
    )


def _entire_network(simulated: Simulated) -> Row:
    half, most, nearly_all = (simulated.r(R_ROOTS[-1], f"blocked-{share}") for share in (50, 90, 99))
    if half["low"] > 0.5 and nearly_all["low"] > 0:
        verdict = HOLDS
        because = f"Some still come with 99 % blocked: {told(nearly_all)}."
    else:
        verdict, because = FAILS, f"With half of the servers blocked {told(half)} come."
    return row(
        "an attacker must essentially DoS the entire network to shut down a single topic",
        f"{simulated.settings.servers:,} servers",
        "R",
        f"{told(half)} delivered with half of all servers blocked, {told(most)} with 90 %",
        verdict,
        because,
    )


def _root(simulated: Simulated) -> Row:
    servers = simulated.settings.servers // 4
    found = simulated.r(R_ROOTS[-1])
    smaller = simulated.rows[f"r-{roots(servers, R_ROOTS[-1])}-of-{servers}"]
    alone, wide = (simulated.growth(found, smaller, audience) for audience in (0, WIDE_AUDIENCE))
    if abs(alone - 0.5) > _POWER_TOLERANCE:
        verdict, because = FAILS, "Lines taken in do not grow so."
    elif abs(wide - 0.5) > _POWER_TOLERANCE:
        verdict = HOLDS_IF
        because = (
            f"Only for lines taken in. With {WIDE_AUDIENCE:,} subscribers a topic those forwarded "
            "weigh most, "
            f"{found['copies']:.1f} for each of them whatever the number of servers, and the power "
            f"is {wide:.2f}."
        )
    else:
        verdict, because = HOLDS, "Whatever the audience."
    return row(
        "it allows the network bandwidth to scale as the square root of the number of servers",
        "power 0.5",
        "R",
        f"power {alone:.2f} between {smaller['servers']:,} servers ({told(smaller)} delivered) and "
        f"{found['servers']:,} ({told(found)})",
        verdict,
        because,
    )


def _orders(simulated: Simulated) -> Row:
    found, s = simulated.r(R_ROOTS[-1]), simulated.s()
    sendings = simulated.per_message(found, "sendings") / simulated.per_message(s, "sendings")
    leases = simulated.leases(found) / simulated.leases(s)
    each, both = min(log10(sendings), log10(leases)), log10(sendings) + log10(leases)
    if each >= 2 and max(log10(sendings), log10(leases)) <= 6:
        verdict = HOLDS
        because = (
            f"It is {each:.1f} orders on either side, {both:.1f} if both are multiplied; and "
            f"{told(found)} is more "
            f"than the {told(s)} of S."
        )
    else:
        verdict, because = FAILS, f"It is {each:.1f} orders of magnitude on either side."
    return row(
        "it requires two to six orders of magnitude more resources to get reasonable reliability than S",
        "10² to 10⁶ times",
        "R",
        f"{sendings:,.0f} times the lines sent for a message, {leases:,.0f} times the leases of a subscriber",
        verdict,
        because,
    )


def _robust(simulated: Simulated) -> Row:
    k = simulated.settings.k_prime
    every, one_less, s = (
        simulated.ch(f"blocked-{k}"),
        simulated.ch(f"blocked-{k - 1}"),
        simulated.s("blocked-1"),
    )
    holds = every["share"] == 0 and one_less["low"] > 0 and s["share"] == 0
    return row(
        "more robust against denial-of-service attacks than S by a factor of K (it requires K times as much "
        "bandwidth to swamp it)",
        f"{k} times",
        "CH",
        f"{told(every)} delivered with {k} servers blocked, {told(one_less)} with {k - 1}; with S "
        f"{told(s)} with 1",
        HOLDS if holds else FAILS,
        f"All {k} servers of a topic have to be blocked, which is still few."
        if holds
        else "It does not take all K servers, or they are not enough.",
    )


def _effort(simulated: Simulated) -> Row:
    k = simulated.settings.k_prime
    found, s = simulated.ch(), simulated.s()
    ratios = {
        "lines sent": simulated.per_message(found, "sendings") / simulated.per_message(s, "sendings"),
        "leases": simulated.leases(found) / simulated.leases(s),
        "copies": found["copies"] / s["copies"],
    }
    holds = all(is_about(ratio, k) for ratio in ratios.values())
    return row(
        "takes K times as much legitimate effort as S",
        f"{k} times",
        "CH",
        ", ".join(f"{ratio:.2f} times the {what}" for what, ratio in ratios.items()),
        HOLDS if holds else FAILS,
        f"It buys {told(found)} delivered for {told(s)}." if holds else "Not all of these grow with K.",
    )


def _inconsistent(simulated: Simulated) -> Row:
    most, half = simulated.ch("known-90"), simulated.ch("known-50")
    good = 1 - simulated.settings.down  # as much as S has with equal lists
    if half["low"] >= good:
        verdict, because = (
            HOLDS,
            "Even where lists have little in common more comes than with S and equal lists.",
        )
    elif most["low"] >= good:
        verdict = HOLDS_IF
        because = f"Only if lists are mostly the same: where {half['condition']}, {told(half)} come."
    else:
        verdict, because = FAILS, f"Where {most['condition']}, less comes than with S and equal lists."
    return row(
        "tolerates inconsistent server lists handed to different clients",
        "",
        "CH",
        f"{told_with_interval(most)} where {most['condition']}",
        verdict,
        because,
    )


def _no_single_point(simulated: Simulated) -> Row:
    found = simulated.ch("blocked-1")
    holds = found["low"] > 1 - simulated.settings.down
    return row(
        "eliminates single points of failure and performance bottlenecks",
        "",
        "CH",
        f"{told_with_interval(found)} with any one server of a topic blocked",
        HOLDS if holds else FAILS,
        "The others of the topic deliver." if holds else "One server takes more away than S's own would.",
    )


def _linear(simulated: Simulated) -> Row:
    servers = simulated.settings.servers // 4
    found, smaller = simulated.ch(), simulated.ch(f"of-{servers}")
    powers = [simulated.growth(found, smaller, audience) for audience in (0, WIDE_AUDIENCE)]
    holds = all(abs(power - 1) <= _POWER_TOLERANCE for power in powers)
    figure = round_figure(simulated.capacity(found, 0))
    return row(
        "bandwidth scales linearly as new servers come online",
        "power 1",
        "CH",
        f"power {powers[0]:.2f} between {smaller['servers']:,} servers and {found['servers']:,}",
        HOLDS if holds else FAILS,
        f"Whatever the audience; {found['servers']:,} servers carry some {figure:,} times what one "
        "does, over many "
        "topics."
        if holds
        else "It grows with another power.",
    )
