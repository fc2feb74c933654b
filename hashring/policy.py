"""Policies: how many of a topic's hosts each side uses (PROTOCOL §8.3).

The four schemes of the 2004 note are four policies. K is the number of hosts that stand for a topic, and
both sides must mean the same ones; publishers send to `publish` of them, drawn at random, subscribers
hold leases on `subscribe` of them.

    S     placement by modulo, K = 1: one host
    R     placement on all hosts, publish and subscribe about sqrt(C) and more, of C hosts
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
"""R draws this many times sqrt(C) on each side, which misses exp(-9) = 0.01 % of messages when all is up."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Publish to `publish` and subscribe at `subscribe` of the `k` hosts of a topic. By default RCH 5/3/5.

    With placement "all", `k` is only the number of hosts for which the other two were chosen; the hosts
    of a topic are all that a view has. Raises ValueError for a policy that cannot work.
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
            raise ValueError(f"k is {self.k}: placement by modulo has one host a topic: set k to 1")
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
        """A policy by the name that the note gives it. Raises ValueError for what a scheme does not take.

        - `S` takes nothing.
        - `R` takes `servers`, the number C of hosts, and perhaps `publish` and `subscribe`; each is
          min(C, ceil(3 sqrt(C))) by default: the product, 9 C, makes a miss a matter of exp(-9).
        - `CH` takes `k`, 3 by default: with 90 % of hosts up and no loss, 99.9 % is delivered.
        - `RCH` takes `k` (5), `k_prime` (3) and `side`, the one that uses only `k_prime` ("publish").
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
        """`S`, `R`, `CH` or `RCH`."""
        if self.placement == "modulo":
            return "S"
        if self.placement == "all":
            return "R"
        return "CH" if self.publish == self.subscribe == self.k else "RCH"

    @property
    def name(self) -> str:
        """The scheme and its numbers, as in `RCH k=5 publish=3 subscribe=5`."""
        return f"{self.scheme} k={self.k} publish={self.publish} subscribe={self.subscribe}"

    def __str__(self) -> str:
        return self.name

    def candidates(self, ring: "HashRing", topic: bytes | str) -> tuple[bytes, ...]:
        """The hosts of a decoded topic that both sides know; each side draws its own among them.

        On the ring they are the `k` nearest, nearest first; by modulo the one whose number in the order of
        keys is the topic's hash mod C; with all, every host in the order of keys. None if the ring is empty.
        """
        if self.placement == "ring":
            return ring.nodes(topic, self.k)
        if self.placement == "all" or not len(ring):
            return ring.sorted_keys
        return (ring.sorted_keys[topic_hash(topic) % len(ring)],)

    def sizes(self, hosts: int) -> tuple[int, int, int]:
        """`(k, publish, subscribe)` as they come out in a view of so many hosts: none exceeds it."""
        k = hosts if self.placement == "all" else min(self.k, hosts)
        return k, min(self.publish, k), min(self.subscribe, k)


def draw(candidates: Sequence[T], count: int, rng: "Random") -> tuple[T, ...]:
    """`count` of the candidates at random; all of them, in their own order, if there are no more.

    Every subset is equally likely. Raises ValueError if `count` is negative.
    """
    if count < 0:
        raise ValueError(f"count is {count}: it cannot be negative")
    if count >= len(candidates):
        return tuple(candidates)
    return tuple(rng.sample(candidates, count))
