"""The note's claims about RCH, judged by the simulation."""

from collections.abc import Iterator, Sequence
from math import ceil, inf

from kcast.spark.findings.findings import Row
from kcast.spark.findings.tables import FAILS, HOLDS, HOLDS_IF
from kcast.spark.simulation.scenes import FORMS, Form
from kcast.spark.simulation.simulated import (
    TOLERANCE,
    Simulated,
    blocked_servers,
    is_about,
    percent,
    round_figure,
    told,
    told_with_interval,
)

WIDE_AUDIENCE = 1000
"""Number of subscribers of a topic for which figures that depend on it are given."""

_AUDIENCE_MAX = 1 << 40

_NAMES: dict[Form, str] = {"few-publish": "RCH, publish to K'", "few-subscribe": "RCH, subscribe to K'"}
_OTHER: dict[Form, Form] = {"few-publish": "few-subscribe", "few-subscribe": "few-publish"}


def claims(simulated: Simulated) -> Iterator[Row]:
    """Yields rows of the table "note", in the order of the note, subscribe-to-K' first."""
    yield _same_work(simulated)
    for form in FORMS:
        yield _copies(simulated, form)
    for form in FORMS:
        yield _secret(simulated, form)
    for form in reversed(FORMS):
        yield _bandwidth(simulated, form)
        yield _reliability(simulated, form)
        yield _block(simulated, form)
        yield _subscribers(simulated, form)
    yield _labels(simulated)
    yield _same_k(simulated)


def row(claim: str, figure: str, scenario: str, measured: str, verdict: str, because: str) -> Row:
    """Returns a row of the table "note"."""
    return {
        "claim": claim,
        "figure": figure,
        "scenario": scenario,
        "measured": measured,
        "verdict": verdict,
        "because": because,
    }


def _reliability(simulated: Simulated, form: Form) -> Row:
    settings = simulated.settings
    target = 1 - settings.down**settings.k_prime
    least, most = target - 5e-4, target + 5e-4  # 99.9 % is told to one decimal
    base = simulated.rch(form)

    def breaks(found: Row) -> bool:
        return bool(found["high"] < least or found["low"] > most)

    conditions = {
        "no packet is lost": simulated.rch(form, "loss-1"),
        "all know the same servers": simulated.rch(form, "known-90"),
    }
    broken = {condition: found for condition, found in conditions.items() if breaks(found)}
    premise = simulated.rch(form, "zones-10")
    independent = (
        f"Its premise of independent servers matters: where {premise['condition']}, it is {told(premise)}"
        if breaks(premise)
        else f"It even holds where {premise['condition']}: {told(premise)}"
    )
    if breaks(base):
        verdict, because = FAILS, "the simulation gives another share under the note's own conditions"
    elif broken:
        verdict = HOLDS_IF
        cases = ", and ".join(f"{told(found)} where {found['condition']}" for found in broken.values())
        because = f"Only if {' and '.join(broken)}: it is {cases}. {independent}"
    else:
        verdict, because = HOLDS, independent
    return row(
        f"provide {target:.1%} reliable delivery if the servers are independent and "
        f"{1 - settings.down:.0%} reliable",
        percent(target, 1),
        _NAMES[form],
        told_with_interval(base),
        verdict,
        _sentence(because),
    )


def _bandwidth(simulated: Simulated, form: Form) -> Row:
    settings = simulated.settings
    drawn = form == "few-subscribe"  # the note gives this form the large figure
    figure = round_figure(settings.servers / (settings.k_prime if drawn else settings.k))
    base, other = simulated.rch(form), simulated.rch(_OTHER[form])
    none, wide, endless = (simulated.capacity(base, audience) for audience in (0, WIDE_AUDIENCE, inf))
    of_other = simulated.capacity(other, 0)
    whose = (
        f"By lines taken in, {figure:,} is the figure of {_NAMES[_OTHER[form]]}"
        if is_about(of_other, figure)
        else f"{_NAMES[_OTHER[form]]} has {of_other:,.0f} by lines taken in"
    )
    if is_about(none, figure) and is_about(endless, figure):
        verdict, because = HOLDS, "it does not depend on how many subscribers a topic has"
    elif is_about(none, figure):
        verdict = HOLDS_IF
        because = f"only if lines taken in are what counts; with those forwarded it is {endless:,.0f}"
    elif is_about(endless, figure):
        verdict = HOLDS_IF
        least = _audience_for(simulated, base, figure * (1 - TOLERANCE))
        because = (
            f"only for what is forwarded to topics of about {least:,} subscribers and more; with no "
            "subscribers "
            f"it is {none:,.0f}, with {WIDE_AUDIENCE:,} it is {wide:,.0f}. {whose}"
        )
    else:
        verdict = FAILS
        because = f"for no audience is it near {figure:,}. {whose}"
    return row(
        f"this allows our network to handle {figure:,} times the bandwidth of a single server"
        if drawn
        else f"the network can handle {figure:,} times the bandwidth of a single server",
        f"{figure:,} times",
        _NAMES[form],
        f"{none:,.0f} times by lines taken in, {wide:,.0f} times with {WIDE_AUDIENCE:,} subscribers a topic, "
        f"{endless:,.0f} times by lines forwarded",
        verdict,
        _sentence(because),
    )


def _audience_for(simulated: Simulated, found: Row, capacity: float) -> int:
    """The least number of subscribers per topic with this capacity, which it reaches with enough of them."""
    low, high = 0, 1
    while simulated.capacity(found, high) < capacity and high < _AUDIENCE_MAX:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if simulated.capacity(found, middle) >= capacity else (middle, high)
    unit = 10 ** max(0, len(str(high)) - 2)
    return int(ceil(high / unit) * unit)


def _subscribers(simulated: Simulated, form: Form) -> Row:
    settings = simulated.settings
    drawn = form == "few-publish"  # the note gives this form the large figure
    figure = round_figure(settings.servers / (settings.k_prime if drawn else settings.k))
    base, other = simulated.rch(form), simulated.rch(_OTHER[form])
    leases, leases_of_other = simulated.leases(base), simulated.leases(other)
    holds, of_other = settings.servers / leases, settings.servers / leases_of_other
    if is_about(holds, figure):
        verdict, because = HOLDS, f"a subscriber is at {leases:,.0f} servers"
    else:
        verdict = FAILS
        because = f"a subscriber is at {leases:,.0f} servers, each of which has to keep it"
        if is_about(of_other, figure):
            because += (
                f". {figure:,} is the figure of {_NAMES[_OTHER[form]]}, where it is at {leases_of_other:,.0f}"
            )
    return row(
        f"it can handle {figure:,} times as many subscribers as a single server"
        if drawn
        else f"it can only handle {figure:,} times as many subscribers as a single server could",
        f"{figure:,} times",
        _NAMES[form],
        f"{holds:,.0f} times, by the leases that servers keep: {leases:,.0f} of each subscriber",
        verdict,
        _sentence(because),
    )


def _labels(simulated: Simulated) -> Row:
    """Whether each form has the capacity that the note gives to it, or to the other."""
    settings = simulated.settings
    high, low = (round_figure(settings.servers / each) for each in (settings.k_prime, settings.k))
    bandwidth = {form: simulated.capacity(simulated.rch(form), 0) for form in FORMS}
    subscribers = {form: settings.servers / simulated.leases(simulated.rch(form)) for form in FORMS}
    labels: dict[Form, tuple[int, int]] = {"few-subscribe": (high, low), "few-publish": (low, high)}

    def has_figures_of(form: Form, whose: Form) -> bool:
        of_bandwidth, of_subscribers = labels[whose]
        return is_about(bandwidth[form], of_bandwidth) and is_about(subscribers[form], of_subscribers)

    if all(has_figures_of(form, _OTHER[form]) for form in FORMS):
        verdict = FAILS
        because = (
            "the two labels are swapped: what the note says of subscribe-to-K' is true of publish-to-K', and "
            "the reverse. Who draws K' servers does less: a publisher's lines then burden fewer servers, a "
            "subscriber's leases likewise"
        )
    elif all(has_figures_of(form, form) for form in FORMS):
        verdict, because = HOLDS, "each form has the capacities that the note gives to it"
    else:
        verdict, because = FAILS, "the figures are those of neither form"
    return row(
        f"In the subscribe-to-K' scenario, {high:,} times the bandwidth, {low:,} times as many subscribers; "
        f"in the publish-to-K' scenario, {low:,} times the bandwidth, {high:,} times as many subscribers",
        f"{high:,} and {low:,} times",
        "RCH, both forms",
        "; ".join(
            f"{_NAMES[form]}: {bandwidth[form]:,.0f} times the bandwidth by lines taken in, "
            f"{subscribers[form]:,.0f} times the subscribers"
            for form in reversed(FORMS)
        ),
        verdict,
        _sentence(because),
    )


def _block(simulated: Simulated, form: Form) -> Row:
    settings = simulated.settings
    found = simulated.blocked(form)
    every, one_less, least = found[-1], found[-2], found[0]
    stopped = every["share"] == 0
    if stopped and one_less["low"] > 0:
        verdict = HOLDS
        because = (
            f"nothing less stops all: with {blocked_servers(one_less):,} blocked {told(one_less)} "
            "still come. "
            f"But to do harm takes less: with {blocked_servers(least):,} only {told(least)} come"
        )
    else:
        verdict = FAILS
        because = (
            f"with {blocked_servers(every):,} blocked {told(every)} come, with one less {told(one_less)}"
        )
    return row(
        f"require {settings.k:,} servers' worth of traffic ({settings.k / settings.servers:.0%} of "
        "the network) "
        "to block access to a single topic",
        f"{settings.k:,} servers",
        _NAMES[form],
        f"{told(every)} delivered with {blocked_servers(every):,} blocked",
        verdict,
        _sentence(because),
    )


def _secret(simulated: Simulated, form: Form) -> Row:
    settings = simulated.settings
    known = simulated.rch(form, "draw-known")
    found = simulated.blocked(form)
    same_share = told(found[-2]), blocked_servers(found[-2])
    if known["share"] > 0:
        verdict, because = HOLDS, f"to know the draw does not help: {told(known)} come all the same"
    else:
        verdict = HOLDS_IF
        because = (
            f"only if the draws stay secret: who knows one needs {settings.k_prime} servers. Blind, with "
            f"{same_share[1]:,} blocked {same_share[0]} still come"
        )
    whom = "to a single subscriber" if form == "few-subscribe" else "from a single publisher"
    return row(
        f"you still have to flood all K servers to block traffic even {whom}",
        f"{settings.k:,} servers",
        _NAMES[form],
        f"{told(known)} delivered where {known['condition']}",
        verdict,
        _sentence(because),
    )


def _copies(simulated: Simulated, form: Form) -> Row:
    settings = simulated.settings
    base, all_up = simulated.rch(form), simulated.rch("few-publish", "all-up")
    if is_about(base["copies"], settings.k_prime):
        verdict, because = HOLDS, "servers that are down take nothing away"
    elif is_about(all_up["copies"], settings.k_prime):
        verdict = HOLDS_IF
        because = (
            f"only while all servers are up, when it is {all_up['copies']:.3f} times; lines to "
            "servers that are "
            "down are lost"
        )
    else:
        verdict, because = FAILS, f"even with all servers up it is {all_up['copies']:.3f} times"
    return row(
        "each subscriber receives each message K' times",
        f"{settings.k_prime} times",
        _NAMES[form],
        f"{base['copies']:.3f} times, on average",
        verdict,
        _sentence(because),
    )


def _same_work(simulated: Simulated) -> Row:
    settings = simulated.settings
    ch = simulated.ch()
    found = [simulated.rch(form) for form in FORMS]
    same_service = all(one["low"] <= ch["high"] and ch["low"] <= one["high"] for one in found)
    same_copies = all(is_about(one["copies"], ch["copies"]) for one in found)
    drawn = simulated.per_message(found[0], "sendings"), simulated.leases(found[1])
    same_of_drawers = all(is_about(lines, settings.k_prime) for lines in drawn)
    all_of_others = simulated.leases(found[0]), simulated.per_message(found[1], "sendings")
    measured = (
        f"{_listed([told(one) for one in found])} delivered, {told(ch)} with CH and K = {settings.k_prime}; "
        f"{_listed(['{copies:.2f}'.format(**one) for one in found])} copies, {ch['copies']:.2f} with CH"
    )
    if not (same_service and same_copies and same_of_drawers):
        verdict, because = FAILS, "service or work differ from those of CH with K = K'"
    elif all(is_about(lines, settings.k_prime) for lines in all_of_others):
        verdict, because = HOLDS, "both sides do the same as with CH"
    else:
        verdict = HOLDS_IF
        because = (
            "only on the side that draws: with few publish a subscriber keeps "
            f"{all_of_others[0]:,.0f} leases, with "
            f"few subscribe a message is sent {all_of_others[1]:,.0f} times, where CH takes "
            f"{settings.k_prime}"
        )
    return row(
        "allows K to be larger for the same amount of legitimate work and quality of service",
        f"K = {settings.k:,} for {settings.k_prime}",
        "RCH, CH",
        measured,
        verdict,
        _sentence(because),
    )


def _same_k(simulated: Simulated) -> Row:
    settings = simulated.settings
    half = settings.k // 2
    rch = {form: simulated.rch(form, f"k-{half}") for form in FORMS}
    ch = simulated.ch(f"k-{settings.k_prime - 1}")
    worse = [form for form in FORMS if rch[form]["high"] < simulated.rch(form)["low"]]
    # CH should do as if both used the smaller K.
    alone = 1 - settings.down ** (settings.k_prime - 1)
    tolerant = ch["low"] <= alone <= ch["high"] or ch["share"] > alone
    if not worse:
        verdict, because = FAILS, "it costs nothing if subscribers use half of K"
    elif len(worse) == len(FORMS) and tolerant:
        verdict, because = HOLDS, "both forms lose where K differs, and CH does not"
    else:
        verdict = HOLDS_IF
        because = (
            f"only for {_listed([_NAMES[form] for form in worse])} when it is subscribers who use "
            "less; CH with "
            f"{settings.k_prime - 1} against {settings.k_prime} has {told(ch)}, "
            f"{'as' if tolerant else 'less than'} if both used {settings.k_prime - 1}"
        )
    return row(
        "Everyone must use the same K, which is not true with CH",
        f"K = {settings.k:,}",
        "RCH, CH",
        f"where subscribers use K = {half:,}: "
        + ", ".join(f"{told(found)} with {_NAMES[form]}" for form, found in rch.items()),
        verdict,
        _sentence(because),
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join(words)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
