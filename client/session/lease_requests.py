"""Requests for leases at one server: new ones, which may have a price, and renewals. Sans-IO.

PROTOCOL §5.11, §7. Several requests may be under way at a time; otherwise round trips would limit how many
leases can be renewed. While new leases have a price, they are requested apart from renewals, once a stamp is
found for them. So renewals never wait, and no lease lapses because looking for a stamp is slow.

Whether a server will take a stamp cannot be known before it is found. A price may rise once while a stamp is
looked for, and a server may restart. But each further search that bought nothing is followed by a longer
pause, so that nobody's computer works for a server that sells nothing. One that sells, and does not keep what
it sells, has an allowance (`kcast.client.session.allowance`).
"""

from collections.abc import Collection, Iterable
from math import inf
from random import Random

from kcast.client.session.allowance import Allowance, Spending
from kcast.client.session.credit import Credit
from kcast.client.session.leases import Leases, Place
from kcast.client.session.requests import LINE_BYTES_MAX, Backoff, Cookie, Kind, Request, Requests, Stamped
from kcast.client.session.stamps import PaidRenewals, Stamps, topics_max
from kcast.pubsub import wire
from kcast.pubsub.limits import LINES_PER_DATAGRAM_MAX, RENEWAL_INTERVAL_S_MAX, WORK_BITS_MAX

REQUESTS_MAX = 8  # for leases, under way at a time ...
PAID_REQUESTS_MAX = 2  # ... of them with a stamp, so that neither these nor renewals crowd the others out

# The pause after several stamps in a row that bought nothing. One of the highest price may take half a minute
# to find; and while a server is full, there must always be a stamp whose cookie is young enough.
PAUSE_S_MIN = 5.0
PAUSE_S_MAX = 4 * RENEWAL_INTERVAL_S_MAX
AGAIN_S_MAX = 1.0  # ... and before a stamp is sent again that was not answered, from the second time on

ASK_INTERVAL_S = 5.0  # between questions to a server that never told its ttl

# Whoever says a short ttl has each lease renewed no more often than this; but a few, that fit into one
# datagram, as often as any ttl asks for, which is three times a second.
RENEWAL_INTERVAL_S_MIN = 3.0
DATAGRAM_INTERVAL_S_MIN = 1 / 3

# What a ttl counts at most for how long servers of a former list are kept.
TTL_S_BELIEVED = 600.0

_NEW = (Place.NEW,)

# Reasons that refuse a whole datagram, and say nothing of the leases that it named.
_NOT_OF_LEASES = ("rate", "size")


class LeaseRequests:
    """Asks for the leases that are due at one server.

    `price_bits` is what a new lease costs there now. While the server drains (`is_draining`) it sells none at
    any price. It `is_dear` while new leases are wanted and cost more than anyone pays. Nothing is asked for
    before `not_before`, because of answers; so no answer ends that.
    """

    def __init__(self, leases: Leases, requests: Requests, rng: Random, spending: Spending) -> None:
        self.price_bits = 0
        self.is_draining = False
        self.is_dear = False
        self.not_before = -inf
        self.credit = Credit()
        self.renewals = PaidRenewals(leases)
        self._leases = leases
        self._requests = requests
        self._rng = rng
        self._backoff = Backoff()
        self._stamps = Stamps()
        self._allowance = Allowance(spending)
        self._pause = Backoff()  # between searches for stamps that bought nothing
        self._again = Backoff()  # between sendings of stamps, none of which was answered
        self._has_searched = False  # since a search was last counted as a success or a failure
        self._is_window_open = True

    @property
    def is_minting(self) -> bool:
        """Whether a stamp is looked for."""
        return self._stamps.is_minting or self.renewals.is_minting

    @property
    def has_price(self) -> bool:
        """Whether new leases or renewals cost work."""
        return self.price_bits > 0 or self.renewals.bits > 0

    @property
    def standing(self) -> tuple[object, ...]:
        """What decides when leases are asked for, as far as an answer to a publish can change it."""
        prices = self.price_bits, self.renewals.bits
        return *prices, self.is_draining, self.is_dear, self.not_before, self._is_window_open

    def weigh_price(self) -> None:
        """Decides whether the server is too dear.

        That is not undone when no lease is wanted any more: clients would return only to be refused again.
        """
        if self.price_bits <= WORK_BITS_MAX:
            self.is_dear = False
        elif self._leases.has_new:
            self.is_dear = True

    def work(self, tries: int, now: float) -> int:
        """Tries at most `tries` stamps, if the server may still cost that; returns how many were tried."""
        for_renewals = for_new = 0
        if self.renewals.is_minting and self._allowance.may_renew(now):
            for_renewals = self.renewals.work(tries)
            self._allowance.spend_on_renewals(for_renewals)
        elif self.renewals.is_minting:
            self.renewals.stop(self._allowance.renews_again_at(now))
        if self._stamps.is_minting and for_renewals < tries:
            for_new = self._work_for_new(tries - for_renewals, now)
        return for_renewals + for_new

    def _work_for_new(self, tries: int, now: float) -> int:
        if not self._allowance.is_left(now):
            self.bought_nothing(now)
            self._leases.ask_again(self._stamps.stop(), now)
            return 0
        tried = self._stamps.work(tries)
        self._allowance.spend(tried, now)
        if not self._stamps.is_minting and (found := self._stamps.newest) is not None:
            self._allowance.found(found.stamp)
        return tried

    def unwant(self, topic: bytes) -> None:
        """Lets a lease run out."""
        self._leases.unwant(topic)
        self._allowance.unwanted(topic)

    # --- Asking --------------------------------------------------------------------------------------

    def back_off(self, interval_s: float, now: float) -> None:
        """Notes that the server has forgotten us, or refused a single line. From the second time in a row, of
        either kind, leases are asked for later.

        While we wait already (and publish meanwhile), hearing it again changes nothing.
        """
        since = self.not_before
        if now < since:
            return
        # Less than an interval: when a lease has stood for one, its renewal finds out without waiting.
        delay_s_max = 0.8 * max(interval_s, ASK_INTERVAL_S)
        if now > since + 2 * delay_s_max:
            self._backoff.reset()
        self._backoff.failed(now, since, self._requests.timeout_s, delay_s_max)
        self.not_before = self._backoff.not_before

    def next_due(self) -> float | None:
        """Returns when there is something to ask for (perhaps too early, never too late); None for never."""
        if not self._leases or not self._has_room:
            return None  # the quick way for clients that only publish
        ready_at = self._stamps.next_ready() if self._may_pay_more else None
        new_at = self._leases.next_due(_NEW) if self._takes_new else None
        if new_at is not None and self.price_bits:
            new_at = max(new_at, self._pause.not_before)
        keep_at = self.renewals.next_due() if self.renewals.bits else None
        credit_at = self.credit.due_at if self.credit.is_wanted else None
        times = (ready_at, self._leases.next_due(self.renewals.free), keep_at, new_at, credit_at)
        due_at = min((at for at in times if at is not None), default=None)
        return None if due_at is None else max(due_at, self.not_before)

    def is_due(self, now: float) -> bool:
        """Whether a cookie is needed now, to ask for a lease or to look for its stamp."""
        if not self._leases or not self._has_room:
            return False
        places = (*self.renewals.free, *(_NEW if self._takes_new_at(now) else ()))
        keep_at = self.renewals.next_due() if self.renewals.bits else None
        is_keep_due = keep_at is not None and keep_at <= now
        return is_keep_due or self.credit.is_due(now) or self._leases.is_due(now, places)

    def datagrams(self, cookie: Cookie, lines_max: int, interval_s: float, now: float) -> list[bytes]:
        """Returns the requests for leases that are due, and begins to look for a stamp where one is needed.

        `cookie` is young enough to be shown. `lines_max` counts all lines of a datagram. `interval_s` is the
        time between renewals.
        """
        if not self._leases:
            return []
        # Leases that fall due a little later go along, so that renewals stay together.
        horizon = now + interval_s / 5
        if self.renewals.bits:
            tries = self._allowance.tries_for_renewals(interval_s, now)
            for topic in self.renewals.plan(tries, lines_max):
                self._allowance.unwanted(topic)
        has_price = self.price_bits > 0
        free = self._free
        sending = self._renewal_for_credit(cookie, now) if self.credit.is_wanted else []
        while self._has_room:
            if self._may_pay_more and (stamped := self._stamps.take_ready(now)) is not None:
                sending.append(self._datagram(Kind.PAID, stamped.cookie, stamped.topics, stamped, now))
            elif self.renewals.bits and (stamped := self.renewals.take_ready(now)) is not None:
                sending.append(self._datagram(Kind.LEASES, stamped.cookie, stamped.topics, stamped, now))
            elif self._leases.is_due(now, free):
                topics = self._leases.take_due(horizon, lines_max - 1, LINE_BYTES_MAX, free)
                sending.append(self._datagram(Kind.LEASES, cookie, topics, None, now))
            else:
                break
        if self.renewals.bits:
            self.renewals.begin(cookie, lines_max, now)
        if has_price and self._takes_new_at(now) and self._leases.is_due(now, _NEW):
            count_max = int(min(lines_max - 1, topics_max(self.price_bits), self._leases.room))
            topics = self._leases.take_due(horizon, count_max, LINE_BYTES_MAX, _NEW)
            self._stamps.begin(cookie, topics, self.price_bits)
            self._allowance.begin_search()
            self._has_searched = True
        return sending

    @property
    def _free(self) -> tuple[Place, ...]:
        """The places of leases that are asked for without a stamp."""
        return self.renewals.free if self.price_bits else (*self.renewals.free, *_NEW)

    def _renewal_for_credit(self, cookie: Cookie, now: float) -> list[bytes]:
        """Returns the renewal of the lease that is due next, if more credit is to be asked for."""
        if not self.credit.is_due(now) or not self._has_room:
            return []
        topics = self._leases.take_due(inf, 1, LINE_BYTES_MAX, self.renewals.free)
        if not topics:
            self.credit.let_be()
            return []
        request = self._open(Kind.LEASES, cookie, topics, None, now)
        self.credit.asked(request)
        return [datagram_of(request)]

    def probe(self, cookie: Cookie, lines_max: int, now: float) -> Request:
        """Returns a request that shows the cookie, and asks for all that is free of charge, due or not."""
        topics = self._leases.take_due(inf, lines_max - 1, LINE_BYTES_MAX, self._free)
        return self._open(Kind.LEASES, cookie, topics, None, now)

    @property
    def _has_room(self) -> bool:
        """Whether another request may be made: none while a cookie is asked for, and only one at a time until
        the server has taken one of its own cookies."""
        under_way = self._requests.count(Kind.LEASES, Kind.PAID)
        under_way_max = REQUESTS_MAX if self._is_window_open else 1
        return not self._requests.count(Kind.ASK) and under_way < under_way_max

    @property
    def _may_pay_more(self) -> bool:
        """Whether another stamp can go to the server."""
        return self._requests.count(Kind.PAID) < PAID_REQUESTS_MAX

    @property
    def _takes_new(self) -> bool:
        """Whether new leases are taken up when they are due: free of charge, or by looking for a stamp."""
        if not self.price_bits:
            return True
        is_ready = self._stamps.next_ready() == -inf
        is_paying = self._requests.count(Kind.PAID) > 0
        is_doubtful = self._pause.has_failed and is_paying
        # More could not be kept; or not as many more as are being paid for.
        is_full = self._leases.room < (inf if is_paying else 1)
        return not (
            self._stamps.is_minting or is_ready or is_doubtful or is_full or self.is_dear or self.is_draining
        )

    def _takes_new_at(self, now: float) -> bool:
        """Whether new leases are taken up now: not in the pause after stamps that bought nothing."""
        return self._takes_new and (not self.price_bits or now >= self._pause.not_before)

    def _datagram(
        self, kind: Kind, cookie: Cookie, topics: Collection[bytes], stamped: Stamped | None, now: float
    ) -> bytes:
        return datagram_of(self._open(kind, cookie, topics, stamped, now))

    def _open(
        self, kind: Kind, cookie: Cookie, topics: Collection[bytes], stamped: Stamped | None, now: float
    ) -> Request:
        return self._requests.open(kind, now, cookie=cookie, topics=tuple(topics), stamped=stamped)

    # --- Answers, and silence ------------------------------------------------------------------------

    def unanswered(self, request: Request, now: float) -> None:
        """Makes a request that got lost again, paid for with the same stamp."""
        self.credit.closed(request, now)
        if request.stamped is None:
            self._leases.ask_again(request.topics, now)
        elif request.kind is Kind.PAID:
            # A server that answers all but these would be asked without a pause.
            self._again.failed(now, now, self._requests.timeout_s, AGAIN_S_MAX)
            self._stamps.send_again(request.stamped, self._again.not_before)
        else:
            self.renewals.send_again(request.stamped)

    def granted(
        self, topics: Iterable[bytes], request: Request, ttl_s: float, interval_s: float, now: float
    ) -> list[bytes]:
        """Takes the server's promise of these leases; returns those that did not stand before."""
        self._is_window_open = True
        expires_at = request.sent_at + ttl_s
        if expires_at <= now:  # this process slept, and the lease has ended meanwhile
            self._leases.ask_again(topics, now)
            return []
        news = []
        for topic in topics:
            renew_at = request.sent_at + interval_s * self._rng.uniform(0.9, 1.0)
            is_new = self._leases.grant(topic, request.sent_at, expires_at, renew_at)
            if is_new:
                news.append(topic)
            if request.kind is Kind.PAID:
                self._again.reset()
                self._pause.reset()
                self._has_searched = False
                if is_new and request.stamped is not None:
                    self._allowance.bought(topic, request.stamped.stamp, now)
            else:
                self._allowance.renewed(topic, now)
        return news

    def refused(
        self, topics: Collection[bytes], request: Request, reason: str, interval_s: float, now: float
    ) -> tuple[list[bytes], bool]:
        """Takes the server's refusal of these leases; returns those that stood before, and whether they are
        asked for again only later."""
        again_at = now + interval_s
        if request.kind is Kind.PAID:
            self._again.reset()
            self.bought_nothing(now)
        if reason in _NOT_OF_LEASES:
            self._leases.ask_again(topics, again_at)
            return [], True
        if reason == "work":
            if self.renewals.bits:
                # They live until their ttl ends. The server does not count them among our first ones.
                live = [topic for topic in topics if self._leases.is_live(topic)]
                self._leases.put_behind(live)
                self._leases.ask_again(live, again_at)
                topics = [topic for topic in topics if not self._leases.is_live(topic)]
            if self.price_bits:
                again_at = max(now, self._pause.not_before)
        elif request.kind is Kind.PAID and request.stamped is not None:
            # A lease that was paid for and still refused is not paid for again while the stamp is good.
            self._stamps.send_again(request.stamped, again_at)
            again_at = inf
        ended = [topic for topic in topics if self._leases.deny(topic, request.sent_at, again_at)]
        self._allowance.ended(ended, now)
        return ended, again_at > now

    def expire(self, now: float) -> list[bytes]:
        """Ends leases that were not renewed in time; returns them."""
        ended = self._leases.expire(now)
        self._allowance.ended(ended, now)
        return ended

    def bought_nothing(self, now: float, pause_s_max: float = PAUSE_S_MAX) -> None:
        """Notes that a stamp was refused or never used. Counted once per search."""
        if self._has_searched:
            self._has_searched = False
            self._pause.failed(now, now, PAUSE_S_MIN, pause_s_max)

    def lost_way(self, interval_s: float, now: float) -> None:
        """Notes that the server is asked at another address, where no stamp that was found is of use.

        That may be the network's fault, so it makes no pause longer than `interval_s`, the time between
        renewals.
        """
        self.bought_nothing(now, max(interval_s, PAUSE_S_MIN))

    def let_go(self, era: int, now: float) -> None:
        """Drops stamps that the server would not take, so that others are looked for."""
        if self.renewals.bits:
            self.renewals.let_go(era, now)
        if self._stamps.is_minting and (self.is_draining or (self._stamps.bits or 0) > self.price_bits):
            self.bought_nothing(now)
        if self.is_draining:
            dropped = self._stamps.drop()
        else:
            dropped = self._stamps.let_go(self.price_bits, era, now, self._leases.is_wanted)
        self._leases.ask_again(dropped, now)

    def begin_anew(self, now: float) -> list[bytes]:
        """Asks for all leases anew, since none stands at the server any more; returns those that stood."""
        self.bought_nothing(now)
        self.credit.begin_anew()
        self.renewals.told(0, 0.0, now)
        self._is_window_open = False
        ended = self._leases.void(now)
        self._allowance.ended(ended, now)
        return ended


def usual_interval_s(ttl_s: float | None, renewals_per_ttl: float) -> float:
    """Returns the seconds between renewals of few leases (§7.3); between questions where the ttl is not
    known."""
    if ttl_s is None:
        return ASK_INTERVAL_S
    return min(ttl_s / renewals_per_ttl, RENEWAL_INTERVAL_S_MAX)


def renewal_interval_s(ttl_s: float | None, renewals_per_ttl: float, leases: Leases) -> float:
    """Returns the seconds between renewals of these leases (§7.3).

    Where a ttl asks for more than is bearable, it does not keep them: they are asked for anew as often.
    """
    usual_s = usual_interval_s(ttl_s, renewals_per_ttl)
    if usual_s >= RENEWAL_INTERVAL_S_MIN:
        return usual_s
    more = max(len(leases) // LINES_PER_DATAGRAM_MAX, leases.size_bytes // LINE_BYTES_MAX)
    return max(usual_s, min(RENEWAL_INTERVAL_S_MIN, more * DATAGRAM_INTERVAL_S_MIN))


def datagram_of(request: Request) -> bytes:
    """Returns a request for leases as it goes to the server."""
    assert request.cookie is not None
    vouch = wire.Vouch(request.nonce, request.cookie.text, request.stamped.stamp if request.stamped else None)
    return wire.request_datagram(vouch, [topic + b"\n" for topic in request.topics])
