"""Counts what was published and what arrived, and compares it with theory. Pure: no clock, no network.

A *pair* is a message and a subscriber that should get it. A message that is sent to dead servers only is lost
for all its subscribers at once. So messages, not pairs, are the independent trials;
`kcast.hashring.intervals.delivered_pairs` takes that into account exactly.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from kcast.hashring.effective_size import cluster_sums, effective_size
from kcast.hashring.intervals import delivered_pairs
from kcast.hashring.model import delivery_given_down, miss_exactly_down

CONFIDENCE = 0.9999
"""The chance that a run of a sound system is accepted, over all its judged phases and policies together."""
INVALID = "invalid run"
PIECE_BYTES_MAX = 300
"""Longer lines are published in pieces. A piece fits a datagram even if each byte takes three on the wire."""


class Phase(StrEnum):
    """The phases of a run, in order. `RECOVERING` is shown, but not judged."""

    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: the names of its K servers, how many of them get a message, its subscribers' numbers."""

    name: bytes
    k_prime: int
    servers: frozenset[str]
    audience: frozenset[int]


@dataclass(slots=True)
class _Publication:
    phase: Phase
    topic: Topic
    text: bytes
    dead: frozenset[str]
    at_s: float
    sent_to: Collection[str] | None = None
    delivered: set[int] = field(default_factory=set)

    @property
    def missing(self) -> int:
        return len(self.topic.audience) - len(self.delivered)


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """The figures of one phase under one policy.

    `interval` is the 99.99 % interval of the measured share, 0 to 1, with messages as trials (Wilson's, with
    the effective number of trials). `predicted`, a share, and `low` and `high`, in pairs, are theory given
    which servers were down; None and 0 in a phase that is not judged.
    """

    phase: Phase
    k_prime: int
    down: int
    messages: int
    pairs: int
    delivered: int
    duplicates: int
    unexplained: int
    """Number of pairs missed although the message was sent to a live server."""
    interval: tuple[float, float]
    predicted: float | None = None
    low: int = 0
    high: int = 0

    @property
    def is_judged(self) -> bool:
        """Whether the run's verdict depends on these figures."""
        return self.predicted is not None

    @property
    def agrees(self) -> bool:
        """Whether the delivered pairs lie in the range that holds 99.99 % of runs if theory is right."""
        return not self.is_judged or (self.pairs > 0 and self.low <= self.delivered <= self.high)

    @property
    def is_good(self) -> bool:
        """Whether theory agrees, and dead servers explain every pair missed."""
        return self.agrees and not self.unexplained

    @property
    def range(self) -> tuple[float, float]:
        """The range of theory as shares, 0 to 1."""
        return self.share(self.low), self.share(self.high)

    @property
    def verdict(self) -> str:
        """`ok`, `NOT`, or `not judged`."""
        return "not judged" if not self.is_judged else "ok" if self.is_good else "NOT"

    def share(self, pairs: float) -> float:
        """Returns pairs as a share, 0 to 1, of those expected; 0 if none were."""
        return pairs / self.pairs if self.pairs else 0.0


class Tally:
    """Counts one run: call `publish` before sending, `sent` once outcomes are known, `deliver` at arrival."""

    def __init__(self, topics: Iterable[Topic], k: int) -> None:
        self.faults: Counter[str] = Counter()
        self.expected: Counter[tuple[Phase, int]] = Counter()
        self.delivered: Counter[tuple[Phase, int]] = Counter()
        self.duplicates: Counter[tuple[Phase, int]] = Counter()
        self._topics = {topic.name: topic for topic in topics}
        self._k = k
        self._messages: list[_Publication] = []

    def publish(
        self, phase: Phase, topic: Topic, text: bytes, dead: frozenset[str], at_s: float
    ) -> tuple[int, bytes]:
        """Enters a message; returns its number, and the payload that carries it.

        `dead` are the servers that are down, `at_s` the seconds since the phase began.
        """
        number = len(self._messages)
        self._messages.append(_Publication(phase, topic, text, topic.servers & dead, at_s))
        self.expected[phase, topic.k_prime] += len(topic.audience)
        return number, b"%d %s" % (number, text)

    def sent(self, number: int, servers: Collection[str]) -> None:
        """Enters the servers that a message was sent to, whatever became of it there."""
        self._messages[number].sent_to = servers

    def deliver(self, topic: bytes, subscriber: int, payload: bytes) -> None:
        """Enters a delivery; one that should not have come, or not with this payload, counts in `faults`."""
        digits, space, text = payload.partition(b" ")
        is_number = space and digits.isdigit() and len(digits) < 18
        if not is_number or int(digits) >= len(self._messages):
            self.faults["unknown"] += 1
            return
        message = self._messages[int(digits)]
        if message.topic.name != topic or subscriber not in message.topic.audience:
            self.faults["misdirected"] += 1
        elif message.text != text or b"%d" % int(digits) != digits:
            self.faults["corrupted"] += 1
        elif subscriber in message.delivered:
            self.faults["repeated"] += 1
        else:
            message.delivered.add(subscriber)
            self.delivered[message.phase, message.topic.k_prime] += 1

    def is_complete(self, phase: Phase) -> bool:
        """Returns whether every pair of a phase has been delivered."""
        keys = [key for key in self.expected if key[0] == phase]
        return all(self.delivered[key] == self.expected[key] for key in keys)

    def last_loss_s(self, phase: Phase) -> float | None:
        """Returns when the last message that missed a subscriber was published, in seconds since its phase
        began; None if none missed any."""
        return max((m.at_s for m in self._messages if m.phase == phase and m.missing), default=None)

    def phase_results(self, downs: dict[Phase, int]) -> list[PhaseResult]:
        """Returns the figures of every phase under every policy; `downs` has the number of servers down."""
        keys = sorted(self.expected, key=lambda key: (key[1], list(Phase).index(key[0])))
        return [self._result_of(phase, k_prime, downs.get(phase, 0)) for phase, k_prime in keys]

    def _result_of(self, phase: Phase, k_prime: int, down: int) -> PhaseResult:
        messages = [m for m in self._messages if m.phase == phase and m.topic.k_prime == k_prime]
        predicted, low, high = None, 0, 0
        if phase is not Phase.RECOVERING:
            groups = Counter((len(m.dead), len(m.topic.audience)) for m in messages)
            distribution = delivered_pairs(
                (count, delivery_given_down(self._k, k_prime, self._k, dead), audience)
                for (dead, audience), count in groups.items()
            )
            predicted = distribution.mean / distribution.total if distribution.total else 0.0
            low, high = distribution.interval(phase_confidence(len({k for _, k in self.expected})))
        return PhaseResult(
            phase=phase,
            k_prime=k_prime,
            down=down,
            messages=len(messages),
            pairs=self.expected[phase, k_prime],
            delivered=self.delivered[phase, k_prime],
            duplicates=self.duplicates[phase, k_prime],
            unexplained=sum(m.missing for m in messages if m.sent_to is None or set(m.sent_to) - m.dead),
            interval=_measured_interval(messages),
            predicted=predicted,
            low=low,
            high=high,
        )


def _measured_interval(messages: Iterable[_Publication]) -> tuple[float, float]:
    clusters = cluster_sums((len(m.topic.audience), len(m.delivered)) for m in messages)
    share = clusters.successes / clusters.trials if clusters.trials else 0.0
    return effective_size({"message": clusters}, clusters.clusters).interval(share, CONFIDENCE)


def for_servers(servers: int, down: int, k_prime: int) -> float:
    """Returns the share of pairs that theory expects before it is known which servers will be killed."""
    return 1 - miss_exactly_down(servers, down, k_prime)


def phase_confidence(k_primes: int) -> float:
    """Returns the confidence for one policy at which all of them together have `CONFIDENCE` (Bonferroni).

    Chance plays a part only while servers are down, once under each of the policies.
    """
    return 1 - (1 - CONFIDENCE) / max(1, k_primes)


def failures(
    phase_results: Iterable[PhaseResult],
    faults: Counter[str],
    dropped: int,
    leases_after_s: float | None,
    stopped_s: float = 0.0,
) -> list[str]:
    """Returns why a run did not succeed, a sentence each; nothing if it did.

    `leases_after_s` is the time from the servers' restart until all leases stood again; None if that took
    longer than a ttl. `dropped` is the number of datagrams that arrived at clients and were not read in time.
    If there are any, the run measured only that the machine was overloaded. So it does where leases ended
    because the machine stopped the demo: for `stopped_s`, 0 if that was too short to matter. Neither excuses
    a payload that is wrong.
    """
    found = []
    if dropped:
        found.append(
            f"{INVALID}: {_count(dropped, 'datagram')} dropped, because this machine did not read in time; "
            "use a lower --rate"
        )
    if leases_after_s is None:
        found.append("not all leases stood again within a ttl of the servers' restart")
    for each in phase_results:
        if each.is_judged and not each.agrees:
            found.append(
                f"K'={each.k_prime}, {each.phase}: {each.delivered:,} of {each.pairs:,} pairs delivered; "
                f"theory allows {each.low:,} to {each.high:,}"
            )
        if each.is_judged and each.unexplained:
            found.append(
                f"K'={each.k_prime}, {each.phase}: {_count(each.unexplained, 'pair')} missed although the "
                "message was sent to a live server"
            )
    if found and stopped_s:
        found.insert(
            0,
            f"{INVALID}: this machine stopped the demo for {stopped_s:.1f} s, so leases ended; use a longer "
            "--ttl, or a machine with less to do",
        )
    found += [
        f"{_count(count, 'payload')} {kind}: {_FAULTS[kind]}"
        for kind, count in sorted(faults.items())
        if count
    ]
    return found


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


_FAULTS = {
    "unknown": "no message with this number was published",
    "misdirected": "delivered on another topic, or to another subscriber",
    "corrupted": "not what stands in the file",
    "repeated": "the same message was delivered twice to one subscriber",
}


def pieces(data: bytes) -> list[bytes]:
    """Returns the texts to publish of a file: its lines without LF, blank ones left out, bytes unchanged.

    A line longer than 300 bytes becomes pieces of 300 bytes and a rest.
    """
    lines = [line for line in data.split(b"\n") if line.strip()]
    return [line[i : i + PIECE_BYTES_MAX] for line in lines for i in range(0, len(line), PIECE_BYTES_MAX)]
