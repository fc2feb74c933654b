"""What all rows of a run have: the machine's cores, the servers that there are, the options."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bench.peers.kinds import Kind, version
from bench.peers.machine import Cores
from bench.peers.session import Failed, Poller

Item = TypeVar("Item")


@dataclass
class Bench:
    """The means of a run. `report` is told how it goes on, in a few words each time."""

    cores: Cores
    poller: Poller
    report: Callable[[str], None]
    rounds: int
    seconds: float
    search_seconds: float
    tick_s: float
    descriptors: int
    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def present(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Returns those that are installed and run; notes the version of each, or why it is skipped."""
        found = []
        for kind in kinds:
            if kind.name not in self.versions and kind.name not in self.skipped:
                try:
                    self.versions[kind.name] = version(kind)
                except Failed as error:
                    self.skip(kind.name, str(error))
            if kind.name not in self.skipped:
                found.append(kind)
        return found

    def skip(self, name: str, why: str) -> None:
        """Notes that there will be no figures of a server or client, and why."""
        self.skipped[name] = why
        self.report(f"{name} is skipped: {why}")


def rotated(items: Sequence[Item], number: int) -> list[Item]:
    """Returns the items, with another one first in each round."""
    shift = number % len(items) if items else 0
    return [*items[shift:], *items[:shift]]
