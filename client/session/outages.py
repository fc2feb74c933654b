"""What it means for a client that servers are lost, or have forgotten it: are all lost, and when may it have
missed messages? Sans-IO.

A server gives no copies from when it has confirmed a lease last until it confirms one again, if it was lost
in between or had forgotten us. Where a message comes from several, the outage of one means nothing. So it
counts when as many servers had one at the same time as a publisher and a subscriber have in common at least.
"""

from math import inf

from kcast.client.events import AllServersLost, MayHaveMissed
from kcast.client.session.liveness import Change, Notice
from kcast.client.session.session import Session
from kcast.client.session.sessions import Sessions
from kcast.hashring.policy import Policy

KEPT_S = 60.0
KEPT_MAX = 256
SETTLING_S = 1.0  # servers that restart together come back one after another


class Outages:
    """The outages of a client's servers, of late. `next_at` is when `missed` has something to tell."""

    def __init__(self, sessions: Sessions) -> None:
        self.next_at = inf
        self.has_lost_some = False  # since it was last looked whether that are all
        self._are_all_lost = False  # and that was told
        self._sessions = sessions
        self._open: dict[Session, float] = {}  # since when
        self._over: list[tuple[float, float]] = []
        self._told_until = -inf

    def take(self, notice: Notice, session: Session, now: float) -> None:
        """Takes what a session reports."""
        match notice.change:
            case Change.LOST:
                self.has_lost_some = True
                if session.heard_at > -inf:
                    self._are_all_lost = False  # until now: it has answered
                if notice.reason != "price":
                    self._began(session)
                    self.next_at = min(self.next_at, now + SETTLING_S)
            case Change.RETURNED:
                self._are_all_lost = False
                self.next_at = now + SETTLING_S
            case Change.FORGOT:
                self._began(session)
                self.next_at = now + SETTLING_S

    def _began(self, session: Session) -> None:
        if session.leases.confirmed_at > -inf:
            self._open.setdefault(session, session.leases.confirmed_at)

    def _end(self, now: float) -> None:
        """Ends the outages of servers that have confirmed a lease since, and of those that were replaced."""
        self._over = [each for each in self._over if each[1] > now - KEPT_S]
        are_replaced = all(each.leases.has_standing for each in self._sessions.all() if each.leases)
        for session, since in list(self._open.items()):
            if are_replaced if not session.leases else session.leases.confirmed_at > since:
                self._over.append((since, session.leases.confirmed_at if session.leases else now))
                del self._open[session]
        del self._over[:-KEPT_MAX]

    def all_lost(self) -> list[AllServersLost]:
        """Returns the event that all servers are lost, where that is new."""
        sessions = self._sessions.all()
        has_lost_some, self.has_lost_some = self.has_lost_some, False
        if not has_lost_some or self._are_all_lost or not all(each.is_lost for each in sessions):
            return []
        self._are_all_lost = True
        return [AllServersLost(len(sessions))]

    def missed(self, policy: Policy, clock_offset_s: float, now: float) -> list[MayHaveMissed]:
        """Returns from when to when messages may have been missed under this policy, as far as that was not
        told. `clock_offset_s` makes seconds since 1970 of our times."""
        self._end(now)
        self.next_at = now + SETTLING_S if self._open else inf
        in_common = policy.publish + policy.subscribe - policy.k
        changes = [(at, step) for outage in self._over for at, step in zip(outage, (1, -1), strict=True)]
        depth, since, spans = 0, inf, []
        for at, step in sorted(changes):
            if step > 0 and depth + 1 == in_common:
                since = at
            elif step < 0 and depth == in_common and at > self._told_until:
                spans.append((max(since, self._told_until), at))
            depth += step
        if not spans:
            return []
        self._told_until = spans[-1][1]
        return [MayHaveMissed(spans[0][0] + clock_offset_s, self._told_until + clock_offset_s)]
