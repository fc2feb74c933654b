"""A scenario: the settings of one load test, which with its seed decide all that can be decided beforehand.

Every process computes from it, without messages between them, who publishes what and when, who subscribes to
what, which servers are down when, and which servers each client knows. So a run can be repeated, and a
subscriber knows what it should have received.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from math import ceil
from typing import Any, Literal, Self, get_args

from kcast.hashring.policy import Policy
from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, TTL_S_MAX

Backend = Literal["processes", "lab", "containers", "file"]
Arrivals = Literal["poisson", "constant"]
Outages = Literal["none", "independent", "exact", "zones", "rolling"]
By = Literal["isolation", "mute", "kill", "stall"]

SPAM_LIMIT, SPAM_WINDOW_S = 3, 5.0
ID_CHARS = 16  # each payload ends with the message's number, in hex
PAYLOAD_BYTES_MAX = DATAGRAM_BYTES_MAX - 400  # room for the longest first line, topic and envelope
TOPICS_MAX = 1_000_000  # their names have six digits

POLICY_FIELDS = ("k", "k_prime", "side")
USED_BY_SCHEME = {"S": (), "R": (), "CH": ("k",), "RCH": POLICY_FIELDS}
"""The fields that make the policy, by scheme."""

BY_CLIENTS: tuple[By, ...] = ("isolation", "mute")
"""Outages that clients make, each on its own path: servers know nothing of them."""

OUTAGES_ALONE = "--outages alone does nothing: give --outage a share, or --down a number"

UNITS = {"_s": "SECONDS", "_ms": "MS", "_bytes": "BYTES"}
"""Suffixes of fields, and how a command line calls the unit."""


def option_name(field: str) -> str:
    """Returns the option of `kcast load` for a field: `--repeat-interval` for `repeat_interval_s`."""
    unit = next((unit for unit in UNITS if field.endswith(unit)), "")
    return "--" + field.removesuffix(unit).replace("_", "-")


class ScenarioError(KcastError, ValueError):
    """A scenario that cannot be run; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The settings of one load test, named like the options of `kcast load`. Shares are 0 .. 1.

    `outages` says which servers are down, drawn anew in each epoch of `epoch_s` seconds:

    - "independent": each server with probability `outage`; "zones": each of `zones` zones, likewise.
    - "exact": exactly `down` servers; "rolling": one server after the other, each for an epoch.

    With `stratified` these are as many in the whole load as planned, to the next whole number: only which
    servers (or zones) are down in which epochs is random.

    `by` says how: "isolation" cuts a server off from all clients and leaves it running, "mute" cuts off only
    the copies that it sends, "kill" ends it and starts it again, "stall" halts it. `known` is the share of
    the servers that each client knows. Faults of datagrams are per leg: `loss_in` from client to server,
    `loss_out` back, and the others on both legs. `rate` is messages per second of each publisher, which
    publishes `burst` of them at once, on one topic. `spam` is that of one more sender, beside all that is
    counted; with it subscribers take SPAM_LIMIT times `rate` of each sender, over SPAM_WINDOW_S. A share
    `offline` of the subscribers is away in the second quarter of the load; with it all hold logs, and so does
    a keeper.

    Raises ScenarioError for values that make no load test.
    """

    name: str = "load"
    seed: int = 1
    backend: Backend = "processes"
    servers: int = 12
    ttl_s: int = 60
    # policy and client options
    scheme: Literal["S", "R", "CH", "RCH"] = "RCH"
    k: int = 5
    k_prime: int = 3
    side: Literal["publish", "subscribe"] = "publish"
    renewals: float = 3.0  # M: renewals per ttl
    repeat: int = 1
    repeat_interval_s: float = 0.2
    confirm: bool = False
    avoid_dead: bool = False
    # load
    publishers: int = 4
    subscribers: int = 20
    mixed: int = 0
    topics: int = 20
    topics_per_subscriber: int = 10
    rate: float = 25.0
    arrivals: Arrivals = "poisson"
    burst: int = 1
    spam: float = 0.0
    payload_bytes: int = 100
    duration_s: float = 20.0
    deadline_s: float = 2.0
    # faults
    outages: Outages = "none"
    outage: float = 0.0
    down: int = 0
    zones: int = 4
    stratified: bool = False
    epoch_s: float = 2.0
    by: By = "isolation"
    known: float = 1.0
    offline: float = 0.0
    loss_in: float = 0.0
    loss_out: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0

    def __post_init__(self) -> None:
        is_unicode = not any("\ud800" <= char <= "\udfff" for char in self.name)
        self._check("name", is_unicode, "give Unicode characters")  # a folder has it
        for name in ("outage", "offline", "loss_in", "loss_out", "duplicate", "reorder"):
            self._check(name, 0 <= getattr(self, name) <= 1, "give a share from 0 to 1")
        self._check("known", 0 < self.known <= 1, "give a share above 0, up to 1")
        for name in ("publishers", "subscribers", "mixed", "down"):
            self._check(name, getattr(self, name) >= 0, "give 0 or more")
        self._check("spam", 0 <= self.spam < 1e6, "give 0 or more, below 1000000")
        for name in ("servers", "k", "k_prime", "topics", "repeat", "zones", "burst"):
            self._check(name, getattr(self, name) >= 1, "give 1 or more")
        advice = f"give {self.k} or less, since --k is {self.k}"
        self._check("k_prime", self.scheme != "RCH" or self.k_prime <= self.k, advice)
        self._check("ttl_s", 1 <= self.ttl_s <= TTL_S_MAX, f"give 1 to {TTL_S_MAX} seconds")
        for name in ("rate", "duration_s", "deadline_s", "epoch_s", "renewals", "repeat_interval_s"):
            self._check(name, 0 < getattr(self, name) < 1e6, "give a number above 0, below 1000000")
        for name in ("delay_ms", "jitter_ms"):
            self._check(name, 0 <= getattr(self, name) <= 10_000, "give 0 to 10000 milliseconds")
        for name, allowed in (
            *(("backend", get_args(Backend)), ("arrivals", get_args(Arrivals))),
            *(("outages", get_args(Outages)), ("by", get_args(By))),
        ):
            self._check(name, getattr(self, name) in allowed, f"use one of {', '.join(allowed)}")
        self._check("topics", self.topics <= TOPICS_MAX, f"give {TOPICS_MAX:,} at most")
        slowest_s = 2 * (self.delay_ms + self.jitter_ms) / 1000 + (self.repeat - 1) * self.repeat_interval_s
        # Otherwise, messages that are late as planned would be put down to a slow machine.
        advice = f"delays and repeats alone take up to {slowest_s:g} s: give a longer deadline"
        self._check("deadline_s", slowest_s < self.deadline_s, advice)
        advice = f"give 1 to {self.topics}, the number of topics"
        self._check("topics_per_subscriber", 1 <= self.topics_per_subscriber <= self.topics, advice)
        advice = f"give {ID_CHARS} to {PAYLOAD_BYTES_MAX} bytes"
        self._check("payload_bytes", ID_CHARS <= self.payload_bytes <= PAYLOAD_BYTES_MAX, advice)
        advice = f"leave one of the {self.servers} servers running"
        self._check("down", self.down < self.servers or self.outages != "exact", advice)
        advice = "servers that were not started here can only be isolated, or mute"
        self._check("by", self.backend != "file" or self.by in BY_CLIENTS or self.outages == "none", advice)
        try:
            _ = self.policy
        except ValueError as error:
            raise ScenarioError(str(error)) from None

    def _check(self, field: str, is_right: bool, advice: str) -> None:
        if not is_right:
            value = getattr(self, field)
            text = f"{value:.10g}" if isinstance(value, float) else str(value)
            shown = text if text.isprintable() else ascii(text)
            raise ScenarioError(f"{option_name(field)} is {shown}: {advice}")

    @property
    def policy(self) -> Policy:
        """The policy that scheme, k, k_prime and side stand for."""
        if self.scheme == "R":
            return Policy.from_scheme("R", servers=self.servers)
        if self.scheme == "S":
            return Policy.from_scheme("S")
        if self.scheme == "CH":
            return Policy.from_scheme("CH", k=self.k)
        return Policy.from_scheme("RCH", k=self.k, k_prime=self.k_prime, side=self.side)

    @property
    def has_outages(self) -> bool:
        """True if servers are planned to be down."""
        match self.outages:
            case "none":
                return False
            case "exact":
                return self.down > 0
            case "rolling":
                return True
            case _:
                return self.outage > 0

    @property
    def outage_units(self) -> int:
        """What `outage` is a share of in each epoch: servers, or zones."""
        return self.zones if self.outages == "zones" else self.servers

    @property
    def epochs(self) -> int:
        """Number of epochs of the load, of which the last may be shorter."""
        return max(1, ceil(self.duration_s / self.epoch_s))

    @property
    def publishing_users(self) -> int:
        """Number of users that publish."""
        return self.publishers + self.mixed

    @property
    def subscribing_users(self) -> int:
        """Number of users that subscribe."""
        return self.subscribers + self.mixed

    def with_(self, **changes: Any) -> Self:
        """Returns a copy with these fields changed. Raises ScenarioError."""
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, as in run.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns the scenario with these fields. Raises ScenarioError for unknown fields and bad values."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            name = unknown[0] if unknown[0].isprintable() else ascii(unknown[0])
            raise ScenarioError(f"a scenario has no {name}: it was written by another version of kcast")
        for field in fields(cls):
            value = values.get(field.name, field.default)
            kinds = (int, float) if isinstance(field.default, float) else (type(field.default),)
            if type(value) not in kinds:
                raise ScenarioError(f"not a scenario: its {field.name} is {value!r}")
        return cls(**values)

    @classmethod
    def from_capture(cls, values: Mapping[str, Any]) -> Self:
        """Returns the scenario that a capture tells, as `from_json` does.

        kcast 0.1.0 took any number for a k or k_prime that the scheme does not use. Such a one, which says
        nothing, becomes the default here.
        """
        values = dict(values)
        used = USED_BY_SCHEME.get(str(values.get("scheme")), POLICY_FIELDS)
        for name in POLICY_FIELDS:
            if name not in used and isinstance(values.get(name), int) and values[name] < 1:
                del values[name]
        return cls.from_json(values)


def select(scenarios: Sequence[Scenario], patterns: Sequence[str]) -> tuple[Scenario, ...]:
    """Returns the scenarios whose name matches one of the patterns (`*` is allowed); all if there are none.

    Raises ScenarioError for a pattern that matches no scenario.
    """
    if not patterns:
        return tuple(scenarios)
    for pattern in patterns:
        if not any(_matches(scenario, pattern) for scenario in scenarios):
            names = ", ".join(scenario.name for scenario in scenarios)
            raise ScenarioError(f"no scenario is named {pattern!r}: there are {names}")
    return tuple(s for s in scenarios if any(_matches(s, pattern) for pattern in patterns))


def _matches(scenario: Scenario, pattern: str) -> bool:
    return scenario.name == pattern or fnmatchcase(scenario.name, pattern)  # a name may contain [ and ?


def topic_name(topic_id: int) -> bytes:
    """Returns the name of a load test's topic; the six digits at its end are its number."""
    return b"load/%06d" % topic_id


def message_id(pub_id: int, seq: int) -> int:
    """Returns the number of a publisher's message; `seq` counts from 0."""
    return pub_id << 32 | seq


def payload(msg_id: int, size_bytes: int) -> bytes:
    """Returns a payload of `size_bytes` that ends with the message's number, in hex."""
    return b"%b%016x" % (b"." * (size_bytes - ID_CHARS), msg_id)


def implied_outages(outage: float, down: int) -> Outages:
    """Returns the kind of outages that is meant where only a share or a number of servers is given."""
    return "independent" if outage > 0 else "exact" if down > 0 else "none"
