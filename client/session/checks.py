"""Which server a subscriber asks though no lease is due there, so that it soon hears of a restart. Sans-IO.

PROTOCOL §7.3. Most often all servers restart together, or our own address has changed for all of them. So it
is enough to hear from one of them every few seconds. What is asked renews leases, so the renewals of several
servers come to be spread over the interval. As soon as one has forgotten us, or is back, all others are
asked: once a renewal interval at most, so that a server that lies does not multiply what others get.
"""

from collections.abc import Callable, Iterable
from math import inf

from kcast.client.session.liveness import Change, Liveness, Notice
from kcast.client.session.session import Session
from kcast.client.session.sessions import Sessions
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX

CHECK_INTERVAL_S = 5.0


class Checks:
    """Asks servers at which leases are wanted. `next_at` is when one may be due; infinite before any is."""

    def __init__(self, sessions: Sessions, touch: Callable[[Session], None]) -> None:
        self.next_at = inf
        self._sessions = sessions
        self._touch = touch
        self._all_at = -inf  # before that time not all are asked again

    def begin(self, now: float) -> None:
        """Notes that there are leases, or will be soon."""
        self.next_at = min(self.next_at, now + CHECK_INTERVAL_S)

    def ask_one(self, now: float) -> None:
        """Asks the server that was asked longest ago, if none has answered for a while."""
        leasing = self._leasing()
        heard_at = max((session.heard_at for session in leasing), default=now)
        is_due = now >= heard_at + CHECK_INTERVAL_S
        self.next_at = (now if is_due else heard_at) + CHECK_INTERVAL_S
        if is_due:
            leasing.sort(key=lambda each: max(each.heard_at, each.control.checked_at))
            self._ask([each for each in leasing if self._may_be_asked(each, now)][:1], now)

    def take(self, notice: Notice, now: float) -> None:
        """Asks all where a server has forgotten us or is back; not again within a renewal interval."""
        if notice.change in (Change.FORGOT, Change.RETURNED) and now >= self._all_at:
            self.ask_all(now)

    def ask_all(self, now: float) -> None:
        """Asks all of which there may be something to learn."""
        self._all_at = now + RENEWAL_INTERVAL_S_MAX
        self._ask([each for each in self._leasing() if self._may_be_asked(each, now)], now)

    def _leasing(self) -> list[Session]:
        return [session for session in self._sessions.all() if session.leases]

    @staticmethod
    def _may_be_asked(session: Session, now: float) -> bool:
        """Whether there is something to learn; one that is suspected, or is looked up, is asked anyway."""
        is_asked = session.address is None or session.liveness is Liveness.SUSPECTED
        return not is_asked and session.control.may_be_checked(now)

    def _ask(self, sessions: Iterable[Session], now: float) -> None:
        for session in sessions:
            session.control.check(now)
            self._touch(session)
