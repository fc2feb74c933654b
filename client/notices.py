"""What a session reports to the core, besides what became of published lines."""

from dataclasses import dataclass
from enum import Enum, auto


class Change(Enum):
    """What has changed at a server."""

    LEASES = auto()  # a lease was gained or has ended
    REFUSED = auto()  # a lease was refused, and is asked for again later
    SUSPECTED = auto()  # the server has not answered
    LOST = auto()  # the server is lost, or too dear
    RETURNED = auto()  # it is neither any more
    TRUSTED = auto()  # it is suspected, or drains, no more
    FORGOT = auto()  # it knows none of our leases any more
    DRAINING = auto()  # it is about to stop


@dataclass(slots=True)
class Notice:
    """A change, with the topic (wire form) and the reason where they apply."""

    change: Change
    topic: bytes = b""
    reason: str = ""
