"""How a judge asks for files of a published log, and how it gives up. Sans-IO. PROTOCOL §10.7.

Each function is a generator that yields steps and is sent the answers (`kcast.client.trust.checks.verdicts`).
"""

from collections.abc import Generator
from typing import TypeVar

from kcast.client.trust.checks.faults import ListFault
from kcast.client.trust.checks.verdicts import Step, Want
from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.forms.tiles import Hashes

T = TypeVar("T")
Asking = Generator[Step, bytes | None, T]


class Fault(Exception):
    """Ends the judgement. `evidence` is what to keep, by file name."""

    def __init__(self, fault: ListFault, text: str, evidence: dict[str, bytes] | None = None) -> None:
        super().__init__(text)
        self.fault = fault
        self.text = text
        self.evidence = evidence or {}


def ask(path: str, bytes_max: int) -> Asking[bytes | None]:
    """Returns a file; None where there is none. One that is too long is a fault."""
    data = yield Want(path, bytes_max)
    if data is not None and len(data) > bytes_max:
        raise Fault(ListFault.TOO_BIG, f"{path} is longer than the {bytes_max} bytes that it may have")
    return data


def need(path: str, bytes_max: int) -> Asking[bytes]:
    """Returns a file; that there is none is a fault."""
    data = yield from ask(path, bytes_max)
    if data is None:
        raise Fault(ListFault.WITHHELD, f"{path} is not there: it may be held back, or the place is wrong")
    return data


def hashes(wanted: Hashes) -> Asking[list[bytes]]:
    """Returns hashes of the log's tree, read from its tiles; a tile that is missing is a fault."""
    try:
        tile = next(wanted)
        while True:
            data = yield from ask(tile.path, tile.size_bytes_max)
            if data is None and tile != tile.full:  # it may be there in its full form only
                data = yield from ask(tile.full.path, tile.full.size_bytes_max)
            tile = wanted.send(data)
    except StopIteration as done:
        found: list[bytes] = done.value
        return found
    except NoteError as error:
        raise Fault(ListFault.WITHHELD, f"the log's {error}") from None
