"""Which scenarios `kcast load` runs: a preset, or the defaults, changed by the options on the command line.

Each option may have several values; then every combination is a scenario. Fields that a scheme does not use
keep their defaults, so that combinations that do not differ are one scenario. A scenario is named after its
policy and what else differs between scenarios, so that its name tells it apart and can be the name of a
folder.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from kcast.hashring.policy import K_PRIME_DEFAULT
from kcast.loadtest.scenario import (
    OUTAGES_ALONE,
    POLICY_FIELDS,
    USED_BY_SCHEME,
    Scenario,
    ScenarioError,
    implied_outages,
)

SCENARIOS_MAX = 1000
NAME_CHARS_MAX = 200  # capture.folder uses the name for a folder

LOSS = "loss"  # of both legs; a scenario has a field for each leg
_LEGS = ("loss_in", "loss_out")

Values = Mapping[str, Sequence[Any]]
"""Fields of a scenario, or `loss`, with the values of each."""

_DEFAULTS = Scenario().as_json()
# Some readers would take these words in a folder's name for values that are not text.
_SAFE_NAME = re.compile(r"(?!(?i:nan|inf|infinity|null|true|false)$)[A-Za-z][A-Za-z0-9._-]{0,99}")
_SHARES = ("outage", "down")
_SIZES = ("subscribers", "rate", "duration_s", "deadline_s")  # are in a name only where nothing else tells
_BESIDE = ("spam", "offline")  # are in a name only where there is some


class Preset(NamedTuple):
    """Scenarios with a name. Each part is a grid of its own."""

    about: str
    parts: tuple[Values, ...]


class Grid(NamedTuple):
    """The scenarios to run, in order."""

    scenarios: tuple[Scenario, ...]
    impossible: tuple[str, ...]  # why combinations were skipped


_TENTH_DOWN: Values = {"outages": ("independent",), "outage": (0.1,), "stratified": (True,)}
_BAR: Values = {
    **{"servers": (100,), "topics": (40,), "topics_per_subscriber": (20,), "subscribers": (20,)},
    **{"publishers": (4,), "rate": (70.0,), "duration_s": (75.0,)},
    **{**_TENTH_DOWN, "loss": (0.02,)},
}
# An epoch is longer than any load: the same servers are mute all the time. One publisher at equal intervals,
# or one burst would be late for the sake of another's many copies, and no latency could be trusted.
_RAMBLE: Values = {
    **{"servers": (16,), "k": (16,), "k_prime": (4,), "publishers": (1,), "subscribers": (96,)},
    **{"topics": (1,), "rate": (6.0,), "arrivals": ("constant",), "duration_s": (5.0,), "deadline_s": (1.5,)},
    **{"outages": ("exact",), "down": (8,), "by": ("mute",), "epoch_s": (86_400.0,)},
    **{"payload_bytes": (512,), "burst": (2,), "delay_ms": (20.0,)},
}
_FORUM: Values = {**_RAMBLE, "publishers": (4,), "rate": (2.0,)}
_SHORT: Values = {"duration_s": (8.0,), "deadline_s": (1.0,)}


def _preset(about: str, *parts: Values) -> Preset:
    return Preset(about, parts)


PRESET_DEFAULT = "network"
"""Legs are slow enough that a small machine's own delay is negligible."""

PRESETS: dict[str, Preset] = {
    PRESET_DEFAULT: _preset(
        "the default: legs of 20 to 25 ms that lose 1 %, a tenth of 12 servers down",
        {**_TENTH_DOWN, "delay_ms": (20.0,), "jitter_ms": (5.0,), "loss": (0.01,)},
    ),
    "smoke": _preset(
        "a quick check that everything works: 4 servers, 3 s of load",
        {"servers": (4,), "k": (3,), "k_prime": (2,), "duration_s": (3.0,), "deadline_s": (1.0,)},
    ),
    "k-prime": _preset(
        "policies 5/1/5, 5/2/5, 5/3/5 and 5/5/5: a tenth of 12 servers down, 2 % loss on each leg",
        {**_TENTH_DOWN, **_SHORT, "loss": (0.02,), "k": (5,), "k_prime": (1, 2, 3, 5)},
    ),
    "grid": _preset(
        "policies 8/1/8, 8/2/8, 8/3/8, 8/5/8, and k/k/k with k of 1, 2, 3, 5, 8; a tenth of 100 servers down",
        {**_BAR, "scheme": ("RCH",), "k": (8,), "k_prime": (1, 2, 3, 5)},
        {**_BAR, "scheme": ("CH",), "k": (1, 2, 3, 5, 8)},
    ),
    "few-subscribe": _preset(
        "the same with few subscribe: policies 8/8/1, 8/8/2, 8/8/3, 8/8/5",
        {**_BAR, "scheme": ("RCH",), "k": (8,), "k_prime": (1, 2, 3, 5), "side": ("subscribe",)},
    ),
    "kills": _preset(
        "servers killed and started again: 3 of 12 are down at any time",
        {
            **{"outages": ("exact",), "down": (3,), "by": ("kill",), "epoch_s": (5.0,)},
            **{"ttl_s": (6,), "k_prime": (1, 3), "duration_s": (20.0,)},
        },
    ),
    "stalls": _preset(
        "servers halted (SIGSTOP) and resumed: they then get what they were sent meanwhile",
        {
            **{**_TENTH_DOWN, "by": ("stall",), "epoch_s": (5.0,)},
            **{"ttl_s": (20,), "k_prime": (1, 3), "duration_s": (20.0,)},
        },
    ),
    "rolling": _preset(
        "a rolling restart: 12 servers are killed and started again, one after the other",
        {
            **{"outages": ("rolling",), "by": ("kill",), "epoch_s": (2.0,)},
            **{"ttl_s": (6,), "duration_s": (24.0,)},
        },
    ),
    "zones": _preset(
        "servers that fail together: 20 servers in 4 zones, a tenth of the zones down",
        {
            **{"outages": ("zones",), "outage": (0.1,), "zones": (4,), "stratified": (True,)},
            "servers": (20,),
            **{"k_prime": (1, 2, 3, 5), "duration_s": (15.0,)},
        },
    ),
    "views": _preset(
        "clients that know only 100 %, 90 % or 75 % of 20 servers, each a random part of its own",
        {"servers": (20,), "known": (1.0, 0.9, 0.75), "k_prime": (1, 3), "duration_s": (10.0,)},
    ),
    "repeats": _preset(
        "each message sent once, twice, three times; 10 % loss on each leg",
        {"k_prime": (1,), "repeat": (1, 2, 3), "loss": (0.1,), "duration_s": (10.0,)},
    ),
    "ramble": _preset(
        "a gossip forum's experiments: each message to 2, 4 or 8 of 16 servers, of which up to 8 are mute",
        {**_RAMBLE, "k_prime": (2, 4, 8)},
        {**_RAMBLE, "down": (0, 4)},
        {**_RAMBLE, "delay_ms": (2000.0,), "deadline_s": (4.5,)},
        {**_RAMBLE, "burst": (8,), "rate": (16.0,)},
        {**_FORUM, "spam": (12.0,)},
        # Logs of so many cost more than a laptop has; and what is young is not told yet.
        {**_FORUM, "offline": (0.2,), "subscribers": (24,), "duration_s": (10.0,), "deadline_s": (18.0,)},
    ),
    "lab": _preset(
        "1,000 servers in one process, a tenth of them down",
        {**_TENTH_DOWN, "backend": ("lab",), "servers": (1000,), "k_prime": (1, 3), "duration_s": (15.0,)},
    ),
    "containers": _preset(
        "a small grid on containers; needs a Docker engine and the image kcast",
        {
            **{**_TENTH_DOWN, **_SHORT, "loss": (0.02,)},
            **{"backend": ("containers",), "servers": (5,), "k_prime": (1, 2, 3)},
        },
    ),
}


def preset(name: str) -> Preset:
    """Returns the preset of this name. Raises ScenarioError, which lists all presets."""
    if name not in PRESETS:
        raise ScenarioError(f"no preset is named {name!r}: use one of {', '.join(PRESETS)}")
    return PRESETS[name]


def expand(parts: Iterable[Values], given: Values) -> Grid:
    """Returns every combination of the values of each part; values in `given` replace the part's own.

    Impossible combinations are skipped and reported. Raises ScenarioError if all are impossible, if there are
    more than SCENARIOS_MAX, or if `given` asks for a fault that no scenario has.
    """
    found: dict[Scenario, None] = {}
    impossible: dict[str, None] = {}
    for part in parts:
        values = {**_without_other_outages(part, given), **given}
        _limit(values)
        for combination in product(*values.values()):
            try:
                found[_scenario(dict(zip(values, combination, strict=True)))] = None
            except ScenarioError as error:
                impossible[str(error)] = None
    if impossible and not found:
        raise ScenarioError(next(iter(impossible)))
    if len(found) > SCENARIOS_MAX:
        raise ScenarioError(_too_many(len(found)))
    _refuse_idle(given, found)
    return Grid(_named(tuple(found)), tuple(impossible))


def _without_other_outages(part: Values, given: Values) -> Values:
    """Removes a part's own outages if `given` asks for another kind, which would otherwise change nothing."""
    kinds = part.get("outages", ())
    asks_for_others = ("down" in given and "exact" not in kinds) or (
        "outage" in given and not {"independent", "zones"} & set(kinds)
    )
    if "outages" in given or not asks_for_others:
        return part
    return {name: values for name, values in part.items() if name not in ("outages", *_SHARES)}


def _refuse_idle(given: Values, scenarios: Collection[Scenario]) -> None:
    """Raises ScenarioError for a fault that was asked for and that no scenario has."""

    def is_asked(name: str, *idle: Any) -> bool:
        return any(value not in idle for value in given.get(name, ()))

    kinds = {scenario.outages for scenario in scenarios}
    if is_asked("outage", 0) and not kinds & {"independent", "zones"}:
        raise ScenarioError(
            f"--outage needs --outages independent or zones, and it is {', '.join(sorted(kinds))}"
        )
    if is_asked("down", 0) and "exact" not in kinds:
        raise ScenarioError(
            f"--down needs --outages exact, and it is {', '.join(sorted(kinds))}: leave one of them out"
        )
    if is_asked("outages", "none") and not any(scenario.has_outages for scenario in scenarios):
        raise ScenarioError(OUTAGES_ALONE)
    if is_asked("by", "isolation") and kinds == {"none"}:
        raise ScenarioError("--by says how servers fail, and none does: give --outage, --down or --outages")


def _limit(values: Values) -> None:
    count = 1
    for some in values.values():
        count *= len(some)
    if count > SCENARIOS_MAX:
        raise ScenarioError(_too_many(count))


def _too_many(count: int) -> str:
    return f"these are {count:,} scenarios: give fewer values, for {SCENARIOS_MAX:,} scenarios at most"


def _scenario(chosen: Mapping[str, Any]) -> Scenario:
    """Returns the scenario of one combination, with defaults that depend on its values."""
    values = dict(chosen)
    loss = values.pop(LOSS, None)
    if loss is not None:
        values = dict.fromkeys(_LEGS, loss) | values
    if "outages" not in values:
        values["outages"] = implied_outages(values.get("outage", 0), values.get("down", 0))
    scheme = values.get("scheme", _DEFAULTS["scheme"])
    for name in POLICY_FIELDS:
        if name not in USED_BY_SCHEME.get(scheme, POLICY_FIELDS):
            values.pop(name, None)
    if scheme == "RCH":
        k = values.get("k", _DEFAULTS["k"])
        k_prime = values.setdefault("k_prime", min(k, K_PRIME_DEFAULT))
        if k_prime == k:  # the same as CH, so it must not be a scenario of its own
            values = {name: value for name, value in values.items() if name not in ("k_prime", "side")}
            values["scheme"] = "CH"
    topics = values.get("topics", _DEFAULTS["topics"])
    values.setdefault("topics_per_subscriber", max(1, min(_DEFAULTS["topics_per_subscriber"], topics)))
    scenario = Scenario.from_json(values)
    for users, kind in (
        (scenario.publishing_users, "publishers"),
        (scenario.subscribing_users, "subscribers"),
    ):
        if not users:
            raise ScenarioError(f"--{kind} and --mixed are 0: nothing can be delivered; give one of them")
    return scenario


def _named(scenarios: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    """Gives each scenario a name of its own."""
    table = [{**scenario.as_json(), LOSS: scenario.loss_in} for scenario in scenarios]
    policy = ("scheme", *POLICY_FIELDS)
    differ = [name for name in _DEFAULTS if name not in policy and _count(table, name) > 1]
    if set(_LEGS) <= set(differ) and all(values["loss_in"] == values["loss_out"] for values in table):
        differ = [LOSS if name == "loss_in" else name for name in differ if name != "loss_out"]
    if any(name in differ and _count(table, name) == _count(table, name, "outages") for name in _SHARES):
        differ = [name for name in differ if name != "outages"]  # the share tells it, too
    for name in _SIZES:
        fewer = [each for each in differ if each != name]
        if _count(table, *policy, *fewer) == len(scenarios):  # others tell it, too
            differ = fewer
    named = []
    for scenario, values in zip(scenarios, table, strict=True):
        words = [policy_name(scenario)]
        there = [name for name in differ if values[name] or name not in _BESIDE]
        words += [f"{name.replace('_', '-')}-{_short(values[name])}" for name in there]
        named.append(scenario.with_(name=_checked("_".join(words))))
    return tuple(named)


def _checked(name: str) -> str:
    if len(name) > NAME_CHARS_MAX:
        raise ScenarioError(
            f"a scenario would be named {name}, which is too long: give several values to fewer options"
        )
    return name


def _count(table: Sequence[Mapping[str, Any]], *names: str) -> int:
    """Returns the number of different combinations of these fields."""
    return len({tuple(values[name] for name in names) for values in table})


def policy_name(scenario: Scenario) -> str:
    """Returns `5-3-5` for 5/3/5. S and R, which place topics in other ways, are `s` and `r-12-11-11`."""
    policy = scenario.policy
    if policy.scheme == "S":
        return "s"
    sizes = f"{policy.k}-{policy.publish}-{policy.subscribe}"
    if policy.scheme == "R":
        return f"r-{sizes}"
    return sizes if policy.k < 1000 else f"k-{sizes}"  # 1000-3-5 is a date for some readers of folders


def _short(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
