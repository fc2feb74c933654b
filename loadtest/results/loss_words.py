"""What the network lost, in words, for `kcast load` and the analysis alike."""

from typing import Any

from kcast.loadtest.charts.words import percent_digits
from kcast.loadtest.results.leg_lines import IN, LEGS, OUT
from kcast.loadtest.results.loss_estimates import Losses, Rate


def measured(losses: Losses) -> str:
    """Returns, say, `1.02 % in (0.81 to 1.27), 0.90 % out (0.78 to 1.04)`; "" if nothing is known or lost.

    In is from publishers to servers, out from servers to subscribers.
    """
    if not losses.is_known or not losses.is_there:
        return ""
    if losses.by_leg is None:
        assert losses.both.rate is not None
        return _rate(losses.both.rate, "on both legs together")
    return ", ".join(_rate(rate, LEGS[leg]) for leg, rate in zip((IN, OUT), losses.by_leg, strict=True))


def bunches(losses: Losses) -> str:
    """Returns a sentence on losses that are certainly not independent of each other; "" without any."""
    told = []
    for leg in (IN, OUT):
        of = losses.legs[leg]
        if of.is_in_rows and of.after is not None:
            told.append(f"{LEGS[leg]}: {percent_digits(of.after.share)} % of the lines after a lost one")
        if of.is_together and of.together is not None:
            told.append(
                f"{LEGS[leg]}: {percent_digits(of.together.share)} % of the other lines of a message that "
                "lost one"
            )
    return f"losses came in bunches ({'; '.join(told)})" if told else ""


def said(losses: Losses) -> str:
    """Returns what figures are touched by loss that nobody asked for; "" if nothing was lost."""
    rates = measured(losses)
    if not rates:
        return ""
    more = bunches(losses)
    return (
        f"loss nobody asked for: {rates}; delivery includes it, theory beforehand does not, theory given "
        f"what happened does{'; ' + more if more else ''}"
    )


def _rate(rate: Rate, where: str) -> str:
    shares = (percent_digits(share) for share in (rate.share, rate.low, rate.high))
    return "{} % {where} ({} to {})".format(*shares, where=where)


def as_json(losses: Losses) -> dict[str, Any]:
    """Returns `said`, and by leg the number of lines that only the network can have lost, those that it lost,
    their share, and its interval; null where it is not known."""
    found: dict[str, Any] = {"said": said(losses)}
    for leg, name in LEGS.items():
        rate = losses.legs[leg].rate
        names = ("lines", "lost", "share", "low", "high")
        found[name] = None if rate is None else {each: getattr(rate, each) for each in names}
    return found
