"""The credit for copies that one server gives us: when to show a sign of life, so that it goes on. Sans-IO.

PROTOCOL §7.7. A server says how many bytes it forwards without hearing that they arrive (`credit=`). A
renewal that shows a cookie which came after some copies proves that these have arrived. So the client counts
what it receives, and renews one lease when half of the credit is used up, or at once where little is left.
Whoever receives little never gets there: then usual renewals are enough.

The newest cookie may have been made before the copies were sent. Then the first renewal gains nothing, but
brings a cookie for the second. Only when that gains nothing either, the next ones wait, longer each time.
"""

from kcast.client.session.requests import Backoff, Request

CREDIT_BYTES_SMALL = 40_960  # so that a burst of 20 kB finds room, of 64 KiB, before a renewal is due
PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 1.0


class Credit:
    """What one server still forwards, as far as it has told, and what has come of that.

    While more `is_wanted`, a lease is to be renewed at `due_at`.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forgets all, since no lease stands any more."""
        self._told_bytes: int | None = None  # None where the server forwards without end
        self._told_sent_at = float("-inf")  # when the request was sent whose answer told that
        self._taken_bytes = 0
        self.taken_at = float("-inf")  # when copies came last
        self.is_wanted = False
        self._under_way: Request | None = None
        self._pause = Backoff()

    @property
    def due_at(self) -> float | None:
        """The time from which on a lease is to be renewed for more credit; None where there is no need."""
        return self._pause.not_before if self.is_wanted and self._under_way is None else None

    def is_due(self, now: float) -> bool:
        """Whether a lease is to be renewed now for more credit."""
        return self.due_at is not None and self.due_at <= now

    def took(self, size_bytes: int, now: float) -> bool:
        """Counts copies that have come; returns whether more credit is to be asked for, now or soon."""
        self._taken_bytes += size_bytes
        self.taken_at = now
        if self._told_bytes is None:
            return False
        if self._told_bytes < CREDIT_BYTES_SMALL or 2 * self._taken_bytes >= self._told_bytes:
            self.is_wanted = True
        return self.is_wanted and self._under_way is None

    def told(self, credit_bytes: int | None, sent_at: float, interval_s: float, now: float) -> None:
        """Takes what the server still forwards; None if it sets no bound.

        `sent_at` is when the request was sent that this answers: what a late answer tells is out of date.
        Where little is left, more is wanted if any copy has come within this interval.
        """
        if sent_at < self._told_sent_at:
            return
        self._told_bytes, self._told_sent_at, self._taken_bytes = credit_bytes, sent_at, 0
        is_small = credit_bytes is not None and credit_bytes < CREDIT_BYTES_SMALL
        self.is_wanted = is_small and self.taken_at > now - interval_s
        if not is_small:
            self._pause.reset()

    def asked(self, request: Request) -> None:
        """Notes that a request asks for more credit; another is made only after it is `closed`."""
        self._under_way = request

    def closed(self, request: Request, now: float) -> None:
        """Notes that a request was answered, which `told` knows by now, or given up."""
        if self._under_way is request:
            self._under_way = None
            if self.is_wanted:
                self._pause.failed(now, now, PAUSE_S_MIN, PAUSE_S_MAX)

    def let_be(self) -> None:
        """Asks for no more until further copies come, since there is no lease that could be renewed."""
        self.is_wanted = False
