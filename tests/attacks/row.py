"""A row of the attack suite."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.attacks.figures import Figure
from tests.attacks.lab import Lab


@dataclass(frozen=True)
class Row:
    """An attack, and what is measured while it goes on. `bars` is what docs/reliability.md says they are.

    A row that is not `in_short` is run by name, or with `--full`. One that `is_light` needs little of the
    machine, and is run beside others of that kind.
    """

    name: str
    bars: str
    measure: Callable[[Lab], Iterator[Figure]]
    in_short: bool = True
    is_light: bool = False
