"""What a client knows of the signed list that it goes by."""

from dataclasses import dataclass

from kcast.client.events import ListTrouble


@dataclass(frozen=True, slots=True)
class ListState:
    """What a client knows of the signed list `name` that it goes by. Times are in seconds since 1970.

    `version` is that of the list in force, signed under version `trust` of the trust document. `upcoming` is
    the version of a newer one that holds only later, None where there is none. `log_size` is the size of the
    public log as it was seen last. `checked_unix_s` is when this client looked last with success, None where
    it has not yet. `troubles` are those that have not passed.
    """

    name: str
    version: int
    trust: int
    log_size: int
    valid_after_s: int
    fresh_until_s: int
    valid_until_s: int
    upcoming: int | None = None
    checked_unix_s: float | None = None
    troubles: tuple[ListTrouble, ...] = ()
