"""The table of a server's states, as the module's docstring and the documentation tell it."""

import re

from kcast.client.session import liveness
from kcast.client.session.liveness import Liveness, Sign
from kcast.client.session.session import Session

Row = tuple[Liveness, Sign, Liveness]


def rows(text: str) -> list[Row]:
    """The rows of the table in a text, in columns two spaces apart or between bars."""
    found = []
    for line in text.splitlines():
        cells = [cell for cell in re.split(r"\s*\|\s*|\s{2,}", line.strip()) if cell]
        if len(cells) == 3 and cells[0] in list(Liveness):
            found.append((Liveness(cells[0]), Sign(cells[1]), Liveness(cells[2])))
    return found


TOLD = rows(liveness.__doc__ or "")


class Watched:
    """Stands for `Session.liveness`: a change that the table does not tell of fails, whoever makes it."""

    def __init__(self) -> None:
        self.taken: set[tuple[Liveness, Liveness]] = set()

    def __get__(self, session: Session, owner: type[Session]) -> Liveness:
        state: Liveness = vars(session)["liveness"]
        return state

    def __set__(self, session: Session, state: Liveness) -> None:
        before = vars(session).get("liveness", state)
        if state is not before:
            assert (before, state) in {(row[0], row[2]) for row in TOLD}, f"{before} -> {state}"
            self.taken.add((before, state))
        vars(session)["liveness"] = state
