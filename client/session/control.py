"""When one server is asked for a cookie, for leases, or whether it is there, and by which datagrams. Sans-IO.

PROTOCOL §5.3, §7.3, §7.4. While the server is alive, leases are asked for as they are due. When it is unclear
whether it is alive, it is asked one thing at a time, and not before a time that follows from its silences.

Most turns bring or send messages, and change nothing of this. So it is remembered how long there is nothing
to ask for (`quiet_until`), and looked at again only when something has happened that may change it.
"""

from math import inf
from random import Random

from kcast.client.session.lease_requests import LeaseRequests, datagram_of
from kcast.client.session.leases import Leases
from kcast.client.session.requests import CONTROL, Cookies, Kind, Request, Requests
from kcast.client.session.whereabouts import Whereabouts
from kcast.pubsub import wire
from kcast.pubsub.limits import COOKIE_LEASE_LIFE_S, COOKIE_PUBLISH_LIFE_S

LOST_AFTER_MISSES = 3
HURRY_INTERVAL_S = 2.0


class Control:
    """What is asked of one server beside publishes.

    `misses` counts silences since the last answer, and `heard_at` is when the request was made that was
    answered last. Nothing is asked before `not_before`, because of silence; an answer ends that. `checked_at`
    is when `check` was called last.
    """

    def __init__(
        self,
        rng: Random,
        requests: Requests,
        leases: Leases,
        lease_requests: LeaseRequests,
        cookies: Cookies,
        whereabouts: Whereabouts,
    ) -> None:
        self.misses = 0
        self.heard_at = -inf
        self.not_before = -inf
        self.quiet_until = -inf
        self.checked_at = -inf
        self._is_check_wanted = False
        self._rng = rng
        self._requests = requests
        self._leases = leases
        self._lease_requests = lease_requests
        self._cookies = cookies
        self._whereabouts = whereabouts

    @property
    def _is_checked(self) -> bool:
        """Whether it is asked every renewal interval anyway: does it still drain, is it still too dear?"""
        return self._lease_requests.is_draining or self._lease_requests.is_dear

    @property
    def standing(self) -> tuple[object, ...]:
        """What decides when there is something to ask for, as far as an answer to a publish can change it."""
        return self.not_before, self._cookies.era, *self._lease_requests.standing

    def may_ask_all(self, now: float) -> bool:
        """Whether all addresses of the server may be asked, and the first to answer be used.

        Not where a lease may stand by way of the one in use, since the server would then hold two of us: one
        that we know of, or one whose receipt was lost, which a cookie that serves may have opened.
        """
        if len(self._whereabouts.addresses) < 2:
            return False
        serves = self._cookies.serving(COOKIE_LEASE_LIFE_S, now) is not None
        return not self._leases or not (serves or self._leases.has_standing)

    def heard(self, request: Request) -> None:
        """Takes it that the server has answered this."""
        self.misses = 0
        self.heard_at = max(self.heard_at, request.sent_at)
        self.not_before = -inf
        if self._whereabouts.asked:
            self._whereabouts.ask_no_more()

    def missed(self, interval_s: float, is_hurried: bool, now: float) -> bool:
        """Counts one more silence, after which the next question waits; returns whether it is the third, or a
        later one. `interval_s` is the time between renewals; in a hurry it waits less."""
        self._requests.count_silence()
        self.misses += 1
        if self.misses < LOST_AFTER_MISSES:
            self.not_before = now + self._requests.timeout_s * (2 ** (self.misses - 1) - 1)
            return False
        # All of its clients have lost it at once; back again, it answers few strangers a second.
        wait_s = interval_s * self._rng.uniform(0.5, 0.9)
        self.not_before = now + (min(wait_s, HURRY_INTERVAL_S) if is_hurried else wait_s)
        return True

    def stir(self) -> None:
        """Takes it that something has happened after which there may be something to ask for."""
        self.quiet_until = -inf

    def may_be_checked(self, now: float) -> bool:
        """Whether it can be asked though nothing is due: not where leases cost work, which is planned."""
        return not self._lease_requests.has_price and now >= self._lease_requests.not_before

    def check(self, now: float) -> None:
        """Asks with the next flush, whether or not anything is due, and however long it has been silent."""
        self.checked_at = now
        self._is_check_wanted = True
        self.not_before = -inf
        self.stir()

    def is_quiet(self, now: float) -> bool:
        """Whether there is surely nothing to ask for."""
        return now < self.quiet_until and not self._lease_requests.credit.is_wanted

    def next_due(self, is_answering: bool, interval_s: float) -> float:
        """Returns when a lease ends, or something is to be asked for; infinite for never.

        `is_answering` is whether the server is alive, `interval_s` the time between renewals.
        """
        times = [self._leases.next_expiry()]
        if is_answering:
            if self._is_checked and not self._requests.count(*CONTROL):
                times.append(max(self.heard_at + interval_s, self.not_before))
            due = self._lease_requests.next_due()
            times.append(None if due is None else max(due, self.not_before))
        elif not self._requests.count(*CONTROL):
            times.append(self.not_before)
        due_at = min([at for at in times if at is not None], default=inf)
        if is_answering and not self._is_checked and not self._lease_requests.has_price:
            self.quiet_until = due_at
        return due_at

    def datagrams(
        self, is_answering: bool, interval_s: float, lines_max: int, waiting: int, now: float
    ) -> list[bytes]:
        """Returns what is asked now. `lines_max` counts all lines of a datagram; `waiting` lines to publish
        wait for a cookie."""
        self.stir()
        controls = self._requests.count(*CONTROL)
        datagrams: list[bytes] = []
        if now >= self.not_before:
            is_check_due = self._is_check_wanted or (self._is_checked and now >= self.heard_at + interval_s)
            if not controls and (is_check_due or not is_answering):
                datagrams.append(self._probe(lines_max, now))
                self._is_check_wanted = False
            if is_answering and now >= self._lease_requests.not_before:
                datagrams += self._lease_datagrams(interval_s, lines_max, now)
        has_cookie = self._cookies.serving(COOKIE_PUBLISH_LIFE_S, now) is not None
        if waiting and not has_cookie and not datagrams and not controls:
            datagrams.append(self._ask(now))  # which must not wait for the next renewal
        return datagrams

    def _probe(self, lines_max: int, now: float) -> bytes:
        """Asks whether the server is there, and renews what it can on the way.

        The cookie is shown where there is one, to learn whether it is still the server that we knew.
        """
        cookie = self._cookies.serving(COOKIE_LEASE_LIFE_S, now)
        if cookie is None:
            return self._ask(now)
        request = self._lease_requests.probe(cookie, lines_max, now)
        self._ask_elsewhere(request, now)
        return datagram_of(request)

    def _lease_datagrams(self, interval_s: float, lines_max: int, now: float) -> list[bytes]:
        cookie = self._cookies.serving(COOKIE_LEASE_LIFE_S, now)
        if cookie is not None:
            return self._lease_requests.datagrams(cookie, lines_max, interval_s, now)
        return [self._ask(now)] if self._lease_requests.is_due(now) else []

    def _ask(self, now: float) -> bytes:
        return self._ask_elsewhere(self._requests.open(Kind.ASK, now), now)

    def _ask_elsewhere(self, request: Request, now: float) -> bytes:
        """Lets a request, which leaves now, go to the other addresses too, as one for a cookie; returns that.

        No cookie is good there, and whatever is asked for with one must be asked for at one address only.
        """
        ask = wire.request_datagram(wire.Ask(request.nonce))
        if self.may_ask_all(now):
            self._whereabouts.ask_all(ask, now)
        else:
            self._whereabouts.ask_no_more()
        return ask
