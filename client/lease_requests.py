"""How leases are asked for at one server, paid for where they have a price, and renewed. Sans-IO.

PROTOCOL §5.11, §7. Several requests may be under way at a time: else round trips would bound how many leases
can be renewed. While new leases have a price, they go apart from those that stand, when a stamp is found for
them; so renewals never wait, and no lease lapses because looking for a stamp is slow.

What a server does to a stamp cannot be known before it is found. A price may rise once while it is paid, and
a server may restart; but each further search that bought nothing is followed by a longer pause, so that
nobody's computer works for a server that sells nothing.
"""

from collections.abc import Collection, Iterable
from math import inf
from random import Random

from kcast.client.leases import Leases
from kcast.client.requests import LINE_BYTES_MAX, Backoff, Cookie, Kind, Request, Requests, Stamped
from kcast.client.stamps import Mints, topics_max
from kcast.pubsub import wire
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX, WORK_BITS_MAX

REQUESTS_MAX = 8  # for leases, under way at a time ...
PAID_REQUESTS_MAX = 2  # ... of them with a stamp, so that neither these nor renewals crowd the others out

# How long no stamp is looked for after several in a row that bought nothing. One of the highest price may
# take half a minute; and for a server that is full there must always be one whose cookie is young enough.
PAUSE_S_MIN = 5.0
PAUSE_S_MAX = 4 * RENEWAL_INTERVAL_S_MAX

# Refusals of a whole datagram: of the leases that it named they say nothing.
_NOT_OF_LEASES = ("rate", "size")


class Lessee:
    """Asks for the leases that are due at one server.

    `price_bits` is what a new one costs there now. One that is `draining` sells none at any price.
    """

    def __init__(self, leases: Leases, requests: Requests, rng: Random) -> None:
        self.price_bits = 0
        self.is_draining = False
        self._leases = leases
        self._requests = requests
        self._rng = rng
        self._mints = Mints()
        self._is_dear = False
        self._pause = Backoff()  # between searches for stamps that bought nothing
        self._has_searched = False  # since something was bought, or was not
        self._is_window_open = True

    @property
    def is_minting(self) -> bool:
        """Whether a stamp is looked for."""
        return self._mints.is_minting

    def weigh_price(self) -> bool:
        """Whether new leases are wanted, and cost more than anyone pays.

        It stays so while the price does, whoever wants what: to find the server affordable again for want of
        customers would only bring back those who were sent away.
        """
        if self.price_bits <= WORK_BITS_MAX:
            self._is_dear = False
        elif self._leases.has_new:
            self._is_dear = True
        return self._is_dear

    def work(self, tries: int) -> int:
        """Looks for a stamp, so many times at most; how many it were."""
        return self._mints.work(tries)

    # --- Asking --------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When there is something to ask for; perhaps earlier than needed, never later."""
        if not self._leases or not self._has_room:
            return None  # a publisher's way out
        ready_at = self._mints.next_ready() if self._may_pay_more else None
        new_at = self._leases.next_due(renewals=False) if self._takes_new else None
        if new_at is not None and self.price_bits:
            new_at = max(new_at, self._pause.not_before)
        times = (ready_at, self._leases.next_due(new=False), new_at)
        return min((at for at in times if at is not None), default=None)

    def is_due(self, now: float) -> bool:
        """Whether there is a lease to ask for, or to look for a stamp for, for which a cookie is needed."""
        return bool(self._leases) and self._has_room and self._leases.is_due(now, new=self._takes_new_at(now))

    def datagrams(self, cookie: Cookie, lines_max: int, interval_s: float, now: float) -> list[bytes]:
        """Requests for what is due, with this cookie, which is young; for what is to be paid, the search for
        a stamp begins. `lines_max` counts all lines of a datagram, `interval_s` is between renewals."""
        if not self._leases:
            return []
        # What falls due a little later goes along, so that renewals stay together.
        horizon = now + interval_s / 5
        has_price = self.price_bits > 0
        sending: list[bytes] = []
        while self._has_room:
            if self._may_pay_more and (stamped := self._mints.take_ready(now)) is not None:
                sending.append(self._datagram(stamped.cookie, stamped.topics, stamped, now))
            elif self._leases.is_due(now, new=not has_price):
                topics = self._leases.take_due(horizon, lines_max - 1, LINE_BYTES_MAX, new=not has_price)
                sending.append(self._datagram(cookie, topics, None, now))
            else:
                break
        if has_price and self._takes_new_at(now) and self._leases.is_due(now, renewals=False):
            count_max = min(lines_max - 1, topics_max(self.price_bits))
            topics = self._leases.take_due(horizon, count_max, LINE_BYTES_MAX, renewals=False)
            self._mints.begin(cookie, topics, self.price_bits)
            self._has_searched = True
        return sending

    def probe(self, cookie: Cookie, lines_max: int, now: float) -> bytes:
        """Shows the cookie, and asks for what there is to ask for at no price, due or not."""
        new = not self.price_bits
        return self._datagram(
            cookie, self._leases.take_due(inf, lines_max - 1, LINE_BYTES_MAX, new=new), None, now
        )

    @property
    def _has_room(self) -> bool:
        """Whether another request may be under way; none, while a cookie is asked for, and one, while it is
        in doubt whether the server takes its own cookies."""
        under_way = self._requests.count(Kind.LEASES, Kind.PAID)
        under_way_max = REQUESTS_MAX if self._is_window_open else 1
        return not self._requests.count(Kind.ASK) and under_way < under_way_max

    @property
    def _may_pay_more(self) -> bool:
        """Whether another stamp can go to the server."""
        return self._requests.count(Kind.PAID) < PAID_REQUESTS_MAX

    @property
    def _takes_new(self) -> bool:
        """Whether new leases are taken up when they are due: at no price, or by looking for a stamp."""
        is_ready = self._mints.next_ready() == -inf
        is_doubtful = self._pause.has_failed and self._requests.count(Kind.PAID) > 0
        return not self.price_bits or not (
            self._mints.is_minting or is_ready or is_doubtful or self._is_dear or self.is_draining
        )

    def _takes_new_at(self, now: float) -> bool:
        """Whether they are now: not while nothing is bought after stamps that bought nothing."""
        return self._takes_new and (not self.price_bits or now >= self._pause.not_before)

    def _datagram(
        self, cookie: Cookie, topics: Collection[bytes], stamped: Stamped | None, now: float
    ) -> bytes:
        kind = Kind.LEASES if stamped is None else Kind.PAID
        request = self._requests.open(kind, now, cookie=cookie, topics=tuple(topics), stamped=stamped)
        vouch = wire.Vouch(request.nonce, cookie.text, stamped.stamp if stamped else None)
        return wire.request_datagram(vouch, [topic + b"\n" for topic in topics])

    # --- Answers, and none ---------------------------------------------------------------------------

    def unanswered(self, request: Request, now: float) -> None:
        """A request of ours got lost: it is made again, and paid with the same stamp."""
        if request.stamped is not None:
            self._mints.send_again(request.stamped, -inf)
        else:
            self._leases.ask_again(request.topics, now)

    def granted(
        self, topics: Iterable[bytes], request: Request, ttl_s: float, interval_s: float, now: float
    ) -> list[bytes]:
        """The server promises these; those that did not stand before."""
        self._is_window_open = True
        expires_at = request.sent_at + ttl_s
        if expires_at <= now:  # we slept, and it has ended meanwhile
            self._leases.ask_again(topics, now)
            return []
        news = []
        for topic in topics:
            renew_at = request.sent_at + interval_s * self._rng.uniform(0.9, 1.0)
            if self._leases.grant(topic, request.sent_at, expires_at, renew_at):
                news.append(topic)
            if request.stamped is not None:
                self._pause.reset()
                self._has_searched = False
        return news

    def refused(
        self, topics: Collection[bytes], request: Request, reason: str, interval_s: float, now: float
    ) -> tuple[list[bytes], bool]:
        """The server refuses these. Those that stood before, and whether they are asked for only later."""
        again_at = now + interval_s
        if request.stamped is not None:
            self.bought_nothing(now)
        if reason in _NOT_OF_LEASES:
            self._leases.ask_again(topics, again_at)
            return [], True
        if reason == "work":
            if self.price_bits:
                again_at = max(now, self._pause.not_before)
        elif request.stamped is not None:
            # What was paid for and refused all the same is not paid again as long as the stamp is good.
            self._mints.send_again(request.stamped, again_at)
            again_at = inf
        ended = [topic for topic in topics if self._leases.deny(topic, request.sent_at, again_at)]
        return ended, again_at > now

    def bought_nothing(self, now: float) -> None:
        """A stamp was not taken, or was looked for in vain. That counts once for each search."""
        if self._has_searched:
            self._has_searched = False
            self._pause.failed(now, now, PAUSE_S_MIN, PAUSE_S_MAX)

    def let_go(self, era: int, now: float) -> None:
        """Drops stamps that nobody would take, so that others are looked for."""
        if self._mints.is_minting and (self.is_draining or self._mints.bits != self.price_bits):
            self.bought_nothing(now)
        if self.is_draining:
            dropped = self._mints.drop()
        else:
            dropped = self._mints.let_go(self.price_bits, era, now, self._leases.is_wanted)
        self._leases.ask_again(dropped, now)

    def begin_anew(self, now: float) -> list[bytes]:
        """Nothing stands at the server any more, and all is to be asked for; what stood."""
        self.bought_nothing(now)
        self._is_window_open = False
        ended = self._leases.void(now)
        self._leases.ask_for_all(now)
        return ended
