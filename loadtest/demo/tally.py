"""What was published, what arrived, and whether that is what the model says. Pure: no clock, no network.

A message is published to a topic and expected by its audience: each (message, subscriber) is a *pair*. With
few publish a message that goes to dead servers only is lost for its whole audience at once, so messages,
not pairs, are the independent trials; `kcast.hashring.intervals.delivered_pairs` counts that exactly.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from kcast.hashring.effective_size import cluster_sums, effective_size
from kcast.hashring.intervals import delivered_pairs
from kcast.hashring.model import delivery_given_down, miss_exactly_down

CONFIDENCE = 0.9999
"""That a right system's run is not rejected: all its cells together."""
PIECE_BYTES_MAX = 300
"""A longer line is published in pieces: even if each of its bytes takes three on the wire, a piece fits."""


class Phase(StrEnum):
    """What the cluster goes through. `RECOVERING` is shown, and not judged."""

    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"
    RECOVERED = "recovered"


NOT_JUDGED = (Phase.RECOVERING,)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its K servers, the K' of them that a message is published to, the subscribers' numbers."""

    name: bytes
    k_prime: int
    servers: frozenset[str]
    audience: frozenset[int]


@dataclass(slots=True)
class _Message:
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
class Cell:
    """One phase under one policy.

    `interval` is that of the measured share, 0 .. 1, at 99.99 %, messages being the trials (Wilson's, on the
    effective count of clusters). `predicted` and the range `low` .. `high`, in pairs, are the model's, given
    the servers that were dead; None where nothing is judged.
    """

    phase: Phase
    k_prime: int
    down: int
    messages: int
    pairs: int
    delivered: int
    duplicates: int
    unexplained: int
    """Pairs lost although the message was sent to a live server."""
    interval: tuple[float, float]
    predicted: float | None
    low: int | None
    high: int | None

    @property
    def is_judged(self) -> bool:
        """Whether the outcome depends on this cell."""
        return self.predicted is not None

    @property
    def agrees(self) -> bool:
        """Whether the measured pairs lie where 99.99 % of all runs do, if the model is right."""
        return (
            self.low is None
            or self.high is None
            or (self.pairs > 0 and self.low <= self.delivered <= self.high)
        )

    @property
    def is_good(self) -> bool:
        """Whether the cell agrees, and what was lost is explained by dead servers."""
        return self.agrees and not self.unexplained

    def share(self, pairs: float) -> float:
        """Pairs as a share, 0 .. 1, of those expected; 0 if none were."""
        return pairs / self.pairs if self.pairs else 0.0


class Tally:
    """Keeps the account of one run: `publish` before sending, `sent` when settled, `deliver` at arrival."""

    def __init__(self, topics: Iterable[Topic], k: int) -> None:
        self.faults: Counter[str] = Counter()
        self.expected: Counter[tuple[Phase, int]] = Counter()
        self.delivered: Counter[tuple[Phase, int]] = Counter()
        self.duplicates: Counter[tuple[Phase, int]] = Counter()
        self._topics = {topic.name: topic for topic in topics}
        self._k = k
        self._messages: list[_Message] = []

    def publish(
        self, phase: Phase, topic: Topic, text: bytes, dead: frozenset[str], at_s: float
    ) -> tuple[int, bytes]:
        """Enters a message while the servers `dead` are; its number, and the payload that carries it.

        `at_s` counts from the beginning of the phase.
        """
        number = len(self._messages)
        self._messages.append(_Message(phase, topic, text, topic.servers & dead, at_s))
        self.expected[phase, topic.k_prime] += len(topic.audience)
        return number, b"%d %s" % (number, text)

    def sent(self, number: int, servers: Collection[str]) -> None:
        """Enters which servers a message was sent to, whatever became of it there."""
        self._messages[number].sent_to = servers

    def deliver(self, topic: bytes, subscriber: int, payload: bytes) -> None:
        """Enters a delivery; what should not have come, or not so, goes to `faults`."""
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
        """Whether each pair of a phase has been delivered."""
        keys = [key for key in self.expected if key[0] == phase]
        return all(self.delivered[key] == self.expected[key] for key in keys)

    def last_loss_s(self, phase: Phase) -> float | None:
        """When the last message was published, in seconds of its phase, that did not reach all; or None."""
        return max((m.at_s for m in self._messages if m.phase == phase and m.missing), default=None)

    def cells(self, downs: dict[Phase, int]) -> list[Cell]:
        """The figures of every phase under every policy; `downs` are the servers down in each phase."""
        keys = sorted(self.expected, key=lambda key: (key[1], list(Phase).index(key[0])))
        return [self._cell(phase, k_prime, downs.get(phase, 0)) for phase, k_prime in keys]

    def _cell(self, phase: Phase, k_prime: int, down: int) -> Cell:
        messages = [m for m in self._messages if m.phase == phase and m.topic.k_prime == k_prime]
        predicted = low = high = None
        if phase not in NOT_JUDGED:
            groups = Counter((len(m.dead), len(m.topic.audience)) for m in messages)
            distribution = delivered_pairs(
                (count, self._chance(k_prime, dead), audience) for (dead, audience), count in groups.items()
            )
            predicted = distribution.mean / distribution.total if distribution.total else 0.0
            low, high = distribution.interval(cell_confidence(len({k for _, k in self.expected})))
        return Cell(
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

    def _chance(self, k_prime: int, dead: int) -> float:
        return delivery_given_down(self._k, k_prime, self._k, dead)


def _measured_interval(messages: Iterable[_Message]) -> tuple[float, float]:
    clusters = cluster_sums((len(m.topic.audience), len(m.delivered)) for m in messages)
    share = clusters.successes / clusters.trials if clusters.trials else 0.0
    return effective_size({"message": clusters}, clusters.clusters).interval(share, CONFIDENCE)


def unconditional(servers: int, down: int, k_prime: int) -> float:
    """The delivery to expect before it is known which servers will be killed: every K' of all, at random."""
    return 1 - miss_exactly_down(servers, down, k_prime)


def cell_confidence(k_primes: int) -> float:
    """The confidence of each cell at which all hold together with `CONFIDENCE` (Bonferroni).

    Only while servers are down does chance decide, once under each of the K'.
    """
    return 1 - (1 - CONFIDENCE) / max(1, k_primes)


def failures(
    cells: Iterable[Cell], faults: Counter[str], dropped: int, leases_after_s: float | None
) -> list[str]:
    """Why a run did not succeed, a sentence each; none if it did.

    `leases_after_s` is when all leases stood again after the servers' restart, None if not within a ttl.
    `dropped` is what reached this machine's receive buffers and was not read in time: then nothing was
    measured but an overload, and the run is not valid.
    """
    found = []
    if dropped:
        found.append(
            f"invalid run: {_count(dropped, 'datagram')} dropped, because this machine did not read in time; "
            "use a lower --rate"
        )
    if leases_after_s is None:
        found.append("not all leases stood again within a ttl of the servers' restart")
    for cell in cells:
        if cell.is_judged and not cell.agrees:
            assert cell.predicted is not None and cell.low is not None and cell.high is not None
            found.append(
                f"K'={cell.k_prime}, {cell.phase}: {cell.delivered:,} of {cell.pairs:,} pairs delivered, and "
                f"the model allows {cell.low:,} to {cell.high:,}"
            )
        if cell.is_judged and cell.unexplained:
            found.append(
                f"K'={cell.k_prime}, {cell.phase}: {_count(cell.unexplained, 'pair')} lost of messages that "
                "were sent to a live server"
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
    "unknown": "with the number of no message that was published",
    "misdirected": "on a topic, or at a subscriber, that they were not for",
    "corrupted": "not what stands in the file",
    "repeated": "the same message was delivered twice to one subscriber",
}


def pieces(data: bytes) -> list[bytes]:
    """The texts to publish of a file: its lines, without LF and without blank ones, at most 300 bytes each.

    A longer line becomes several pieces of 300 bytes and a rest. Bytes stay as they are.
    """
    lines = [line for line in data.split(b"\n") if line.strip()]
    return [line[i : i + PIECE_BYTES_MAX] for line in lines for i in range(0, len(line), PIECE_BYTES_MAX)]
