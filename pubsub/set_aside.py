"""Which destinations are set aside, since the kernel could not bring them the last datagrams. Sans-IO.

A destination is set aside by IP address if it is on the server's own link and answers neither ARP nor
neighbour discovery, and by address and port if the kernel refuses to send there. Each may have a datagram now
and then as a trial; all else that is meant for it is dropped. So it costs the others nothing, and is found
again soon after it is back.

ICMP is no reason to set anybody aside: whoever guesses a port can forge it.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from kcast.pubsub.endpoint import Address

ASIDE_MAX = 4096  # for either reason; the one that was set aside first gives way
TRIAL_S_MIN = 0.05  # to the first trial; each further one takes twice the time of the one before
TRIAL_S_MAX = 0.5
FORGET_S = 10.0  # a trial that nobody has wanted for so long: there are no more datagrams for it

UNRESOLVED = "unresolved"
REFUSED = "refused"

_Key = TypeVar("_Key", str, Address)


class _Entry:
    __slots__ = ("due_at", "pause_s")

    def __init__(self, now: float) -> None:
        self.pause_s = TRIAL_S_MIN
        self.due_at = now + TRIAL_S_MIN


class SetAside:
    """The destinations set aside. Empty, and so false, as long as all is well."""

    def __init__(self) -> None:
        # Apart, so that nobody who forges the sources of requests can push the others out.
        self._unresolved: dict[str, _Entry] = {}
        self._refused: dict[Address, _Entry] = {}
        self._sweep_at = 0.0

    def __len__(self) -> int:
        return len(self._unresolved) + len(self._refused)

    @property
    def has_unresolved(self) -> bool:
        """Whether any is set aside because it does not answer on the link."""
        return bool(self._unresolved)

    def concerns(self, destinations: Sequence[Address]) -> bool:
        """Whether any of these is set aside."""
        if not self._refused.keys().isdisjoint(destinations):
            return True
        unresolved = self._unresolved
        return bool(unresolved) and any(ip in unresolved for ip, _ in destinations)

    def reason(self, destination: Address) -> str:
        """Returns why a destination is set aside: UNRESOLVED, REFUSED; or nothing if it is not."""
        if destination[0] in self._unresolved:
            return UNRESOLVED
        return REFUSED if destination in self._refused else ""

    def try_now(self, destination: Address, now: float) -> bool:
        """Whether one that is set aside may have a datagram now. It then has to wait for the next."""
        entry = self._unresolved.get(destination[0]) or self._refused[destination]
        if now < entry.due_at:
            return False
        entry.pause_s = min(2 * entry.pause_s, TRIAL_S_MAX)
        entry.due_at = now + entry.pause_s
        return True

    def refused(self, destination: Address, now: float) -> None:
        """The kernel has refused to send there."""
        if destination not in self._refused:
            _set(self._refused, destination, now)

    def accepted(self, destination: Address) -> None:
        """The kernel has taken a datagram for it."""
        self._refused.pop(destination, None)

    def learn(self, resolved: Iterable[str], unresolved: Iterable[str], now: float) -> bool:
        """Takes what the kernel knows of its neighbours. Who is in neither stays as it is.

        Returns whether any were set aside that were not before.
        """
        for ip in self._unresolved.keys() & set(resolved):
            del self._unresolved[ip]
        new = set(unresolved) - self._unresolved.keys()
        for ip in new:
            _set(self._unresolved, ip, now)
        return bool(new)

    def sweep(self, now: float) -> None:
        """Forgets those for whom nothing was meant for a while."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + 1.0
        _forget(self._unresolved, now)
        _forget(self._refused, now)


def _set(entries: dict[_Key, _Entry], key: _Key, now: float) -> None:
    if len(entries) >= ASIDE_MAX:
        del entries[next(iter(entries))]
    entries[key] = _Entry(now)


def _forget(entries: dict[_Key, _Entry], now: float) -> None:
    for key in [key for key, entry in entries.items() if entry.due_at < now - FORGET_S]:
        del entries[key]
