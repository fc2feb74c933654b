"""What an invariant is, and how it says that it does not hold."""

from typing import TYPE_CHECKING, NoReturn

from tests.simulation.ledger import Boot, ClientTurn, ServerTurn

if TYPE_CHECKING:
    from tests.simulation.hosts import ServerHost
    from tests.simulation.world import World


class InvariantViolation(AssertionError):
    """What must always hold did not: which checker says so, in which run, when, and the facts."""

    def __init__(self, checker: str, seed: int, time: float, facts: str) -> None:
        super().__init__(f"{checker}: seed {seed}, at {time:.6f} s: {facts}")
        self.checker = checker
        self.seed = seed
        self.time = time
        self.facts = facts


class Checker:
    """An invariant. `name` is what a violation says."""

    name = ""

    def __init__(self, world: "World") -> None:
        self.world = world

    def server_turn(self, turn: ServerTurn) -> None:
        """Looks at what a server has just done; the ledger knows of it already."""

    def client_turn(self, turn: ClientTurn) -> None:
        """Looks at what a client has just done."""

    def server_ended(self, host: "ServerHost", boot: Boot) -> None:
        """Looks at a server that has drained and is about to end."""

    def finish(self) -> None:
        """Looks at the whole run, at its end."""

    def fail(self, facts: str) -> NoReturn:
        self.world.violate(self.name, facts)
