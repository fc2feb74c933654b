"""Sets of servers as bits: 64 to a column, as many columns as the servers of the largest cell need.

What became of a pair depends on which servers its message was sent to, which of them the subscriber asked,
and which sent a copy. With sets, all paths of a pair are told apart and counted at once, without a row each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add, or_

from pyspark.sql import Column
from pyspark.sql import functions as sf

BITS = 64


def words_for(servers: int) -> int:
    """Number of 64-bit columns needed for `servers` servers."""
    return max(1, -(-servers // BITS))


@dataclass(frozen=True, slots=True)
class ServerSet:
    """A set of servers of a row's cell: int64 columns; server s is bit s % 64 of word s // 64."""

    words: tuple[Column, ...]

    def __and__(self, other: "ServerSet") -> "ServerSet":
        return self._with(other, lambda mine, others: mine.bitwiseAND(others))

    def __or__(self, other: "ServerSet") -> "ServerSet":
        return self._with(other, lambda mine, others: mine.bitwiseOR(others))

    def __sub__(self, other: "ServerSet") -> "ServerSet":
        return self._with(other, lambda mine, others: mine.bitwiseAND(sf.bitwise_not(others)))

    def _with(self, other: "ServerSet", operation: Callable[[Column, Column], Column]) -> "ServerSet":
        return ServerSet(tuple(map(operation, self.words, other.words)))

    def where(self, condition: Column) -> "ServerSet":
        """The same set where the condition is true, else the empty set."""
        return ServerSet(tuple(sf.when(condition, word).otherwise(_zero()) for word in self.words))

    def filled(self, other: "ServerSet | None" = None) -> "ServerSet":
        """The same set; where a join found no row (null), `other`, by default the empty set."""
        others = other.words if other else [_zero()] * len(self.words)
        return ServerSet(tuple(map(sf.coalesce, self.words, others)))

    def count(self) -> Column:
        """Number of servers, int."""
        return reduce(add, [sf.bit_count(word) for word in self.words])

    def some(self) -> Column:
        """Whether the set has any server."""
        return reduce(or_, [word != 0 for word in self.words])

    def differ(self, other: "ServerSet") -> Column:
        """Whether the sets differ."""
        return reduce(or_, map(lambda mine, others: mine != others, self.words, other.words))

    def has(self, server: Column) -> Column:
        """Whether a server, any int, is in the set."""
        return (self & only(server, len(self.words))).some()

    def named(self, name: str) -> list[Column]:
        """The set as columns to select; `of` returns it by the same name."""
        return [word.alias(f"{name}_{number}") for number, word in enumerate(self.words)]


def _zero() -> Column:
    return sf.lit(0).cast("long")


def of(name: str, words: int) -> ServerSet:
    """The set that was `named` so, of `words` columns."""
    return ServerSet(tuple(sf.col(f"{name}_{number}") for number in range(words)))


def only(server: Column, words: int) -> ServerSet:
    """The set of one server, an int; the empty set if that is negative, or beyond the columns."""
    # Java's shift takes its operand modulo 64.
    bit = sf.call_function("shiftleft", sf.lit(1).cast("long"), server)
    if words == 1:
        return ServerSet((sf.when((server >= 0) & (server < BITS), bit).otherwise(_zero()),))
    word = sf.call_function("shiftright", server, sf.lit(6))  # -1 stays below 0
    return ServerSet(tuple(sf.when(word == number, bit).otherwise(_zero()) for number in range(words)))


def up_to(servers: Column, words: int) -> ServerSet:
    """The set of all servers from 0 to `servers` - 1."""

    def word(number: int) -> Column:
        rest = servers - number * BITS
        bits = sf.call_function("shiftleft", sf.lit(1).cast("long"), rest) - 1
        return (
            sf.when(rest <= 0, _zero())
            .when(rest >= BITS, sf.lit(-1).cast("long"))
            .when(rest == BITS - 1, sf.lit((1 << 63) - 1))  # whose subtraction would overflow
            .otherwise(bits)
        )

    return ServerSet(tuple(word(number) for number in range(words)))


def union(name: str, servers: ServerSet) -> list[Column]:
    """Aggregates, named as `ServerSet.named` does: the union of the sets of a group's rows."""
    return [sf.bit_or(word).alias(f"{name}_{number}") for number, word in enumerate(servers.words)]
