"""Sets of servers as bits: 64 to a column, as many columns as the servers of the largest cell need.

What a message's way to a subscriber depends on is which servers it was sent to, which the subscriber asked,
which sent a copy. As sets, all ways of a pair are told apart and counted at once, and no row is made of each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add, or_

from pyspark.sql import Column
from pyspark.sql import functions as sf

BITS = 64


def words_for(servers: int) -> int:
    """How many columns a set of so many servers takes."""
    return max(1, -(-servers // BITS))


@dataclass(frozen=True, slots=True)
class Servers:
    """A set of servers of a row's cell: columns of int64, server s is bit s % 64 of word s // 64."""

    words: tuple[Column, ...]

    def __and__(self, other: "Servers") -> "Servers":
        return self._with(other, lambda mine, others: mine.bitwiseAND(others))

    def __or__(self, other: "Servers") -> "Servers":
        return self._with(other, lambda mine, others: mine.bitwiseOR(others))

    def __sub__(self, other: "Servers") -> "Servers":
        return self._with(other, lambda mine, others: mine.bitwiseAND(sf.bitwise_not(others)))

    def _with(self, other: "Servers", operation: Callable[[Column, Column], Column]) -> "Servers":
        return Servers(tuple(map(operation, self.words, other.words)))

    def where(self, condition: Column) -> "Servers":
        """The same set where the condition is true, else none."""
        return Servers(tuple(sf.when(condition, word).otherwise(_zero()) for word in self.words))

    def filled(self, other: "Servers | None" = None) -> "Servers":
        """With another set, else none, where a join found no row."""
        others = other.words if other else [_zero()] * len(self.words)
        return Servers(tuple(map(sf.coalesce, self.words, others)))

    def count(self) -> Column:
        """How many there are, int."""
        return reduce(add, [sf.bit_count(word) for word in self.words])

    def some(self) -> Column:
        """Whether there are any."""
        return reduce(or_, [word != 0 for word in self.words])

    def differ(self, other: "Servers") -> Column:
        """Whether the sets are not the same."""
        return reduce(or_, map(lambda mine, others: mine != others, self.words, other.words))

    def has(self, server: Column) -> Column:
        """Whether a server is one of them; any number may be asked for."""
        return (self & only(server, len(self.words))).some()

    def named(self, name: str) -> list[Column]:
        """Columns to select, which `of` finds again."""
        return [word.alias(f"{name}_{number}") for number, word in enumerate(self.words)]


def _zero() -> Column:
    return sf.lit(0).cast("long")


def of(name: str, words: int) -> Servers:
    """The set that was `named` so."""
    return Servers(tuple(sf.col(f"{name}_{number}") for number in range(words)))


def none(words: int) -> Servers:
    """No servers."""
    return Servers((_zero(),) * words)


def only(server: Column, words: int) -> Servers:
    """One server, an int; none if there is none of that number."""
    # Java's shift takes its operand modulo 64.
    bit = sf.call_function("shiftleft", sf.lit(1).cast("long"), server)
    if words == 1:
        return Servers((sf.when((server >= 0) & (server < BITS), bit).otherwise(_zero()),))
    word = sf.call_function("shiftright", server, sf.lit(6))  # -1 stays below 0
    return Servers(tuple(sf.when(word == number, bit).otherwise(_zero()) for number in range(words)))


def up_to(servers: Column, words: int) -> Servers:
    """All servers from 0 up to, and without, one."""

    def word(number: int) -> Column:
        rest = servers - number * BITS
        bits = sf.call_function("shiftleft", sf.lit(1).cast("long"), rest) - 1
        return (
            sf.when(rest <= 0, _zero())
            .when(rest >= BITS, sf.lit(-1).cast("long"))
            .when(rest == BITS - 1, sf.lit((1 << 63) - 1))  # where the difference would overflow
            .otherwise(bits)
        )

    return Servers(tuple(word(number) for number in range(words)))


def union(name: str, servers: Servers) -> list[Column]:
    """Aggregates: all that is in the sets of any row of a group."""
    return [sf.bit_or(word).alias(f"{name}_{number}") for number, word in enumerate(servers.words)]
