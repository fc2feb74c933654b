"""Policies: how many of a topic's hosts each side uses (PROTOCOL §8.3).

A policy is written `5/3/5`: k, publish, subscribe. Each topic has k hosts, the same for everyone. Publishers
send to `publish` of them, drawn at random; subscribers hold leases at `subscribe` of them. The four schemes
of the 2004 note are four policies:

    S     placement by modulo, K = 1: one host
    R     placement on all C hosts, publish and subscribe at least about sqrt(C)
    CH    placement on the ring, both sides use all K
    RCH   placement on the ring, one side uses all K, the other K' of them

RCH with K' on the publishing side is "few publish", on the subscribing side "few subscribe".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from kcast.hashring.hashing import topic_hash

if TYPE_CHECKING:
    from random import Random

    from kcast.hashring.ring import HashRing

Placement = Literal["ring", "modulo", "all"]
Side = Literal["publish", "subscribe"]
T = TypeVar("T")

K_DEFAULT = 5
K_PRIME_DEFAULT = 3
RANDOM_ROOTS_DEFAULT = 3.0
"""R draws this many times sqrt(C) hosts on each side. With all hosts up it misses exp(-9) = 0.01 %."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Publish to `publish` and subscribe at `subscribe` of a topic's `k` hosts; 5/3/5 by default.

    With placement "all" a topic's hosts are all hosts of the view, and `k` is only the number of hosts for
    which the other two were chosen. Raises ValueError for a policy that cannot work.

    >>> Policy(k=5, publish=2, subscribe=2)
    Traceback (most recent call last):
    ...
    ValueError: publish=2 and subscribe=2 of k=5 may have no host in common: set one of them to 5
    """

    k: int = K_DEFAULT
    publish: int = K_PRIME_DEFAULT
    subscribe: int = K_DEFAULT
    placement: Placement = "ring"

    def __post_init__(self) -> None:
        if self.placement not in get_args(Placement):
            raise ValueError(f"placement is {self.placement!r}: use one of {', '.join(get_args(Placement))}")
        for name in ("k", "publish", "subscribe"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}: give a whole number of at least 1")
        for name in ("publish", "subscribe"):
            if getattr(self, name) > self.k:
                raise ValueError(
                    f"{name}={getattr(self, name)} is more than k={self.k}: raise k, or lower {name}"
                )
        if self.placement == "modulo" and self.k != 1:
            raise ValueError(f"k is {self.k}: placement by modulo has one host per topic: set k to 1")
        if self.placement == "ring" and self.publish + self.subscribe <= self.k:
            raise ValueError(
                f"publish={self.publish} and subscribe={self.subscribe} of k={self.k} may have no host in "
                f"common: set one of them to {self.k}"
            )

    @classmethod
    def from_scheme(
        cls,
        scheme: str,
        *,
        k: int | None = None,
        k_prime: int | None = None,
        side: Side | None = None,
        servers: int | None = None,
        publish: int | None = None,
        subscribe: int | None = None,
    ) -> "Policy":
        """Returns the policy of a scheme of the note. Raises ValueError for what the scheme does not take.

        - `S` takes nothing.
        - `R` takes `servers`, the number C of hosts, and optionally `publish` and `subscribe`. Each is
          min(C, ceil(3 sqrt(C))) by default: their product is 9 C, so exp(-9) of the messages are missed.
        - `CH` takes `k` (3). With 90 % of the hosts up and no loss, 99.9 % is delivered.
        - `RCH` takes `k` (5), `k_prime` (3) and `side`, the side that uses only `k_prime` ("publish").
        """
        given = {
            "k": k,
            "k_prime": k_prime,
            "side": side,
            "servers": servers,
            "publish": publish,
            "subscribe": subscribe,
        }
        takes = {
            "S": (),
            "R": ("servers", "publish", "subscribe"),
            "CH": ("k",),
            "RCH": ("k", "k_prime", "side"),
        }
        if scheme not in takes:
            raise ValueError(f"scheme is {scheme!r}: use one of {', '.join(takes)}")
        for name, value in given.items():
            if value is not None and name not in takes[scheme]:
                raise ValueError(f"scheme {scheme} takes no {name}: leave it out")
        if scheme == "S":
            return cls(1, 1, 1, "modulo")
        if scheme == "R":
            if servers is None or servers < 1:
                raise ValueError("scheme R needs servers: the number of hosts, at least 1")
            few = min(servers, ceil(RANDOM_ROOTS_DEFAULT * sqrt(servers)))
            return cls(
                servers, few if publish is None else publish, few if subscribe is None else subscribe, "all"
            )
        if scheme == "CH":
            k = K_PRIME_DEFAULT if k is None else k
            return cls(k, k, k)
        k = K_DEFAULT if k is None else k
        k_prime = min(k, K_PRIME_DEFAULT) if k_prime is None else k_prime
        if side not in (None, *get_args(Side)):
            raise ValueError(f"side is {side!r}: use publish or subscribe")
        return cls(k, k, k_prime) if side == "subscribe" else cls(k, k_prime, k)

    @property
    def scheme(self) -> str:
        """The note's name for it: `S`, `R`, `CH` or `RCH`."""
        if self.placement == "modulo":
            return "S"
        if self.placement == "all":
            return "R"
        return "CH" if self.publish == self.subscribe == self.k else "RCH"

    def __str__(self) -> str:
        """Returns k/publish/subscribe, as in `5/3/5`; with the scheme if that is not CH or RCH."""
        sizes = f"{self.k}/{self.publish}/{self.subscribe}"
        return sizes if self.placement == "ring" else f"{sizes} (scheme {self.scheme})"

    @property
    def margin(self) -> int:
        """The number of a topic's k hosts that both sides use at least: publish + subscribe - k.

        While fewer hosts than this are replaced, the two sides still meet
        (`kcast.client.trust.checks.meeting`).
        With placement "modulo" it is 1: both sides must have the same hosts. With "all" the sides meet by
        chance, and it is usually negative; it is that of a view with k hosts, and smaller where there are
        more.

        >>> Policy(k=5, publish=3, subscribe=5).margin
        3
        """
        return self.publish + self.subscribe - self.k

    def candidates(self, ring: "HashRing", topic: bytes | str) -> tuple[bytes, ...]:
        """Returns the hosts of a decoded topic. Each side draws those that it uses from them.

        With placement "ring" they are the `k` nearest, nearest first; with "modulo" the one whose index in
        the byte order of keys is the topic's hash mod C; with "all" every host, in the byte order of keys.
        Empty if the ring is empty.
        """
        if self.placement == "ring":
            return ring.nodes(topic, self.k)
        if self.placement == "all" or not len(ring):
            return ring.sorted_keys
        return (ring.sorted_keys[topic_hash(topic) % len(ring)],)

    def sizes(self, hosts: int) -> tuple[int, int, int]:
        """Returns `(k, publish, subscribe)` for a view of this many hosts; none exceeds it."""
        k = hosts if self.placement == "all" else min(self.k, hosts)
        return k, min(self.publish, k), min(self.subscribe, k)


def draw(candidates: Sequence[T], count: int, rng: "Random") -> tuple[T, ...]:
    """Draws `count` of the candidates at random; returns all, in their order, if there are no more.

    Every subset is equally likely. Raises ValueError if `count` is negative.
    """
    if count < 0:
        raise ValueError(f"count is {count}: it cannot be negative")
    if count >= len(candidates):
        return tuple(candidates)
    return tuple(rng.sample(candidates, count))
