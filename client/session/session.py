"""One client's dealings with one server: cookie, leases, publishes, and whether it is alive. Sans-IO.

PROTOCOL §5 to §7. Apart from copies, a server only answers, so all that a client knows of it comes from
answers to its own requests. There are two kinds of requests:

- *Control*: asking for a cookie, and asking for leases. While the server is alive, several requests for
  leases may be under way; when it is unclear whether the server is alive, only one. A request that is not
  answered in time is made again, each time later. After three silences the server counts as lost, and is
  asked once a renewal interval, so that all leases stand again soon after it has come back.
- *Publishes*: any number at a time. One that is not answered is not sent here again (the core may draw
  another server for it), unless another address may be used; the server is suspected, and control finds out.

A vouched request that is answered with a cookie (`%=`) was not carried out. If the cookie it showed was
young, the server has restarted, or our address has changed in a NAT. Either way our leases there are gone,
and all of them are asked for at once. Where that happens again and again, something else is wrong (a NAT
that changes with each packet, a server that takes no cookie), and they are asked for each time later.

Where new leases have a price, live ones are renewed apart from them, and never wait for a stamp. A server
whose price is above what anyone pays counts as lost for those who want new leases there.
"""

import logging
from collections.abc import Collection, Iterable
from math import inf
from random import Random

from kcast.client.clusters.cluster import ServerEntry
from kcast.client.events import Outcome
from kcast.client.session.allowance import Spending
from kcast.client.session.control import Control
from kcast.client.session.lease_requests import LeaseRequests, renewal_interval_s, usual_interval_s
from kcast.client.session.leases import Leases
from kcast.client.session.liveness import Change, Liveness, Notice, Sign
from kcast.client.session.outbox import Outbox, Settled
from kcast.client.session.requests import (
    Cookies,
    Kind,
    Parcel,
    Request,
    Requests,
    fewer_lines,
    number,
    refused_topics,
)
from kcast.client.session.whereabouts import FAMILIES, Whereabouts
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Burst
from kcast.pubsub.limits import (
    COOKIE_LEASE_LIFE_S,
    COOKIE_PUBLISH_LIFE_S,
    LINES_PER_DATAGRAM_MAX,
    RENEWALS_PER_TTL,
)

QUEUE_MAX = 4096  # parcels that wait for one server's cookie, or for room in its window
CREDIT_DIGITS_MAX = 10
LINES_MIN = 2  # a vouch line, and one that it vouches for

logger = logging.getLogger(__name__)


class Session:
    """The state that a client keeps about one server. The core takes what is in `notices`.

    `families` are the IP versions, of 4 and 6, that the client has. The server is asked at its first address
    of these; at the next when it is lost, or silent with no lease that may stand. One that has none is lost
    from the start. A named server has no address until `locate` says which; what is to be sent to it waits.

    `renewals_per_ttl` is the number of times a lease is renewed while the server's promise lasts. `spending`
    is what all sessions of the client have cost.

    `name` is the server's: `IP:port`, or the name and port by which it is known. A datagram to it has
    `lines_max` lines at most, the vouch line counted. What is published there goes by its `outbox`.

    `liveness` is changed in `_see` only, by its own table. Price (`_lease_requests.is_dear`) and draining are
    no part of it.
    """

    def __init__(
        self,
        server: ServerEntry,
        rng: Random,
        families: Collection[int] = FAMILIES,
        renewals_per_ttl: float = RENEWALS_PER_TTL,
        spending: Spending | None = None,
    ) -> None:
        self.server = server
        self.name = server.name
        self.whereabouts = Whereabouts(server.addresses, families)
        self.notices: list[Notice] = []
        self.ttl_s: float | None = None
        self.head: str | None = None
        self.liveness = Liveness.ALIVE if self.addresses or server.named else Liveness.LOST
        self.warm_at = -inf
        self.hurried_until = -inf  # a server that is lost is asked more often until then
        self._renewals_per_ttl = renewals_per_ttl
        self._cookies = Cookies()
        self.lines_max = LINES_PER_DATAGRAM_MAX
        self._is_told_lost = self.liveness is Liveness.LOST
        self._requests = Requests(rng)
        self.leases = Leases()
        self._lease_requests = LeaseRequests(self.leases, self._requests, rng, spending or Spending())
        self.credit = self._lease_requests.credit  # counts copies (§7.7)
        self.outbox = Outbox(self._requests, QUEUE_MAX)
        self.control = Control(
            rng, self._requests, self.leases, self._lease_requests, self._cookies, self.whereabouts
        )

    # --- What the core asks of it --------------------------------------------------------------------

    @property
    def address(self) -> Address | None:
        """The address at which it is asked at present; None where it has none that we can use."""
        return self.whereabouts.address

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses at which it can be asked."""
        return self.whereabouts.addresses

    @property
    def is_lost(self) -> bool:
        """Whether it is taken for dead: silent for too long, or too dear."""
        return self.liveness is Liveness.LOST or self._lease_requests.is_dear

    @property
    def is_alive(self) -> bool:
        """Whether it is believed to serve; a server never asked is given the benefit of the doubt."""
        return self._is_answering and not self._lease_requests.is_dear

    @property
    def heard_at(self) -> float:
        """When the request was made that was answered last; -inf before."""
        return self.control.heard_at

    @property
    def is_draining(self) -> bool:
        """Whether it says that it is about to stop."""
        return self._lease_requests.is_draining

    @property
    def is_minting(self) -> bool:
        """Whether `work` has something to do; not while the server does not answer."""
        return self._lease_requests.is_minting and self._is_answering

    @property
    def renewal_interval_s(self) -> float:
        """Seconds between renewals (§7.3), or between questions while the server's ttl is not known."""
        return renewal_interval_s(self.ttl_s, self._renewals_per_ttl, self.leases)

    def rank(self, now: float) -> int:
        """Returns the server's rank for publishers, from 0 (best) to 3.

        A server that drains still has all its leases; one that came back a moment ago has few yet.
        """
        if not self.is_alive:
            return 3
        return 2 if now < self.warm_at else int(self.is_draining)

    def is_warm(self, now: float) -> bool:
        """Whether subscribers have had the time to lease again since it came back (one renewal)."""
        return now >= self.warm_at

    def want(self, topic: bytes, now: float) -> None:
        """Holds a lease on this topic (wire form) from now on."""
        self.control.stir()
        self.leases.want(topic, now)

    def unwant(self, topic: bytes) -> None:
        """Lets the lease run out."""
        self.control.stir()
        self._lease_requests.unwant(topic)

    def is_leased(self, topic: bytes) -> bool:
        """Whether the server has promised copies of this topic for now."""
        return self.leases.is_live(topic)

    def publish(self, line: bytes, handle: int, confirm: bool) -> bool:
        """Sends a line (with its LF) with the next flush. Returns False where too many wait already."""
        return self.outbox.put(Parcel(line, handle, confirm))

    def take_settled(self) -> list[Settled]:
        """Returns what became of published lines since the last call."""
        return self.outbox.take_settled()

    def work(self, tries: int, now: float) -> int:
        """Tries at most `tries` stamps for the leases that wait for one; returns how many were tried."""
        self._lease_requests.let_go(self._cookies.era, now)
        return self._lease_requests.work(tries, now) if self.is_minting else 0

    def locate(self, addresses: Iterable[Address], now: float) -> None:
        """Takes the addresses that the server has from now on; without any it is lost."""
        self.control.stir()
        before = self.address
        if self.whereabouts.take(addresses):
            self.control.not_before = now
            if before is not None:
                self._begin_at_address(now)
        if self.address is None:
            self._see(Sign.SILENCE)
            self._see(Sign.THIRD_SILENCE)
        self._judge(now)

    # --- Time ----------------------------------------------------------------------------------------

    @property
    def _is_answering(self) -> bool:
        return self.liveness is Liveness.ALIVE

    def next_timeout(self) -> float | None:
        """Returns when `handle_timeout` or `datagrams_to_send` has something to do; None for never."""
        if not self.addresses:
            return None
        due_at = self.control.quiet_until
        if due_at == -inf:
            due_at = self.control.next_due(self._is_answering, self.renewal_interval_s)
        at = min(due_at, self.outbox.go_on_at, self.whereabouts.next_at, self._requests.next_deadline())
        return None if at == inf else at

    def has_nothing_to_send(self, now: float) -> bool:
        """Whether `datagrams_to_send` would surely return nothing."""
        return not len(self.outbox) and self.control.is_quiet(now)

    def handle_timeout(self, now: float) -> None:
        """Gives up requests that were not answered in time, and leases that were not renewed."""
        self.control.stir()
        for request in self._requests.give_up(now):
            self._unanswered(request, now)
        self._tell_leases(self._lease_requests.expire(now))
        self._judge(now)

    def handle_unreachable(self, address: Address, now: float, *, is_closed: bool) -> None:
        """Takes the network's word that nobody listens there (`is_closed`): what is in flight will not be
        answered; or that nothing gets there now: if another address is to be asked, then at once.

        Such a message can be forged, so it only makes us ask sooner and prefer others; no lease is given up.
        """
        self.control.stir()
        if not self.whereabouts.refused(address, now) or not is_closed:
            return
        for request in self._requests.give_up():
            self._unanswered(request, now)

    def _unanswered(self, request: Request, now: float) -> None:
        """Deals with a request that was not answered in time."""
        is_silence = self._requests.is_silence(request)
        if not request.is_control:
            if is_silence and self.control.may_ask_all(now):
                self.outbox.try_again(request.parcels)  # at whichever address answers first
            else:
                self.outbox.settle(request.parcels, Outcome.NO_ANSWER)
            self.outbox.lease_until = -inf
            if is_silence and self._is_answering:
                self._see(Sign.SILENCE)
                self.control.not_before = now
            return
        self._lease_requests.unanswered(request, now)
        if request.kind is Kind.ASK or (not self._is_answering and self.control.may_ask_all(now)):
            self.outbox.wait_again()
        if not is_silence:
            return
        if not self.control.missed(self.renewal_interval_s, now < self.hurried_until, now):
            self._see(Sign.SILENCE)
        elif self._see(Sign.THIRD_SILENCE):
            self._judge(now)
            self._move(now)

    def _see(self, sign: Sign) -> bool:
        """Moves `liveness` along its table; nothing else does. Returns whether it has changed."""
        before, self.liveness = self.liveness, self.liveness.after(sign)
        if self.liveness is before:
            return False
        logger.debug("%s: %s -> %s (%s)", self.name, before, self.liveness, sign)
        if self.liveness is Liveness.SUSPECTED:
            self.notices.append(Notice(Change.SUSPECTED))
        return True

    def _move(self, now: float) -> None:
        """Asks the server at its next address, if there is one. There our own address differs too, and
        nothing that we had stands; where a lease stood, it has not been asked there yet."""
        if self.whereabouts.move():
            self.control.not_before = now
            self._begin_at_address(now)

    def _begin_at_address(self, now: float, answered: Request | None = None) -> None:
        """Gives up what is under way, since another address is asked now, or has `answered`."""
        for request in self._requests.move(answered):
            if answered is None:
                self.outbox.settle(request.parcels, Outcome.NO_ANSWER)
            else:
                self.outbox.try_again(request.parcels)
        self.whereabouts.ask_no_more()
        self._lease_requests.lost_way(self.renewal_interval_s, now)
        self._void(now)

    def _void(self, now: float) -> None:
        """Begins a new era: all that stood at the server is gone or of no use, cookies too."""
        self._cookies.begin_era()
        self.lines_max = LINES_PER_DATAGRAM_MAX
        self.outbox.lease_until = -inf
        self._tell_leases(self._lease_requests.begin_anew(now))

    def _judge(self, now: float) -> None:
        """Tells when the server has become lost, or is lost no more."""
        self._lease_requests.weigh_price()
        if self.is_lost != self._is_told_lost:
            self._is_told_lost = self.is_lost
            if not self.is_lost:
                self.warm_at = now + self.renewal_interval_s
                self.notices.append(Notice(Change.RETURNED))
            else:
                silent = "silent" if self.addresses else "name"
                reason = "price" if self.liveness is not Liveness.LOST else silent
                self.notices.append(Notice(Change.LOST, reason=reason))

    # --- Answers -------------------------------------------------------------------------------------

    def moves_to(self, burst: Burst, now: float) -> bool:
        """Returns whether a burst from an address that is not in use brings the first answer to a request for
        a cookie; then that address is in use from now on. The answer itself is still to be handled."""
        reply = wire.parse_reply(burst.data.partition(b"\n")[0])
        request = self._requests.control_of(reply.nonce) if isinstance(reply, wire.Challenge) else None
        if request is None or not self.whereabouts.answered(burst.source):
            return False
        logger.debug("%s: answers at %s", self.name, burst.source)
        self.control.stir()
        self._begin_at_address(now, request)
        return True

    def handle_replies(self, replies: Collection[wire.Reply], now: float) -> int:
        """Takes the control lines of one datagram; returns how many of them answer nothing that we asked."""
        receipt = next((reply for reply in replies if isinstance(reply, wire.Receipt)), None)
        unasked = 0
        for reply in replies:
            if isinstance(reply, wire.Refusal) and receipt is not None and reply.nonce == receipt.nonce:
                continue
            request = self._requests.take(reply)
            if request is None:
                unasked += 1
                continue
            before = self.liveness, self.ttl_s, *self.control.standing
            is_newest = self._answered(request, reply, now)
            match reply:
                case wire.Receipt():
                    refusal = next((r for r in replies if isinstance(r, wire.Refusal)), None)
                    if refusal is not None and refusal.nonce != reply.nonce:
                        refusal = None
                    self._handle_receipt(request, reply, refusal, now)
                case wire.Challenge():
                    self._handle_challenge(request, reply, now)
                case wire.Refusal():
                    self._handle_refusal(request, reply, now)
                case wire.Pong() if is_newest:
                    self.outbox.lease_until = now + reply.left_s if reply.left_s else -inf
            self.credit.closed(request, now)
            self._judge(now)
            if request.is_control or (self.liveness, self.ttl_s, *self.control.standing) != before:
                self.control.stir()
        return unasked

    def _answered(self, request: Request, reply: wire.Reply, now: float) -> bool:
        """Takes what every answer tells: that the server is there, whether it drains, and its price. Returns
        whether no later news has come before."""
        is_newest = self._requests.heard(request, now)
        self.outbox.window.answered(request.mark, now - request.sent_at)
        self.control.heard(request)
        before, was_draining = self.liveness, self.is_draining
        self._see(Sign.ANSWER)
        if is_newest:
            self._lease_requests.is_draining = reply.attributes.get("drain") == "1"
            self.head = reply.attributes.get("head", self.head)
        if self._is_told_lost:
            self._judge(now)
        if before is Liveness.LOST:
            self.leases.renew_all(now)
        elif before is Liveness.SUSPECTED or (was_draining and not self.is_draining):
            self.notices.append(Notice(Change.TRUSTED))
        if self.is_draining and not was_draining:
            self.notices.append(Notice(Change.DRAINING))
        return is_newest

    def _handle_receipt(
        self, request: Request, receipt: wire.Receipt, refusal: wire.Refusal | None, now: float
    ) -> None:
        audience = number(receipt.attributes.get("audience"))
        self.outbox.settle(request.parcels, Outcome.RECEIPT, audience)
        if not self._cookies.is_of_now(request.cookie):
            return  # what it promised is gone
        self.ttl_s = max(1.0, receipt.ttl_s)
        self._keep_cookie(receipt, request, now)
        refused = [] if refusal is None else refused_topics(refusal, request.topics)
        granted = [topic for topic in request.topics if topic not in refused]
        interval_s = self.renewal_interval_s
        if request.topics:
            credit_bytes = number(receipt.attributes.get("credit"), CREDIT_DIGITS_MAX)
            self.credit.told(credit_bytes, request.sent_at, interval_s, now)
        self._tell_leases(self._lease_requests.granted(granted, request, self.ttl_s, interval_s, now))
        if refusal is not None:
            self._tell_refused(refused, request, refusal.reason, now)
        if not request.topics:
            is_open = receipt.attributes.get("bare") != "0"
            self.outbox.lease_until = request.sent_at + self.ttl_s if is_open else -inf

    def _handle_challenge(self, request: Request, challenge: wire.Challenge, now: float) -> None:
        cookie = request.cookie
        life_s = COOKIE_LEASE_LIFE_S if request.topics else COOKIE_PUBLISH_LIFE_S
        was_young = cookie is not None and cookie.serves(life_s, request.sent_at)
        # That it refuses a cookie of an era that is over is nothing new.
        if was_young and self._cookies.is_of_now(cookie):
            self.warm_at = now + self.renewal_interval_s
            self.notices.append(Notice(Change.FORGOT))
            self._lease_requests.back_off(self.renewal_interval_s, now)
            # Of what a stranger sends at once a server answers one request (§5.2), so the rest may be silent.
            for other in self._requests.give_up_shown(self._cookies.era):
                self.outbox.try_again(other.parcels)
            self._void(now)
        self._keep_cookie(challenge, request, now)
        self.leases.ask_again(request.topics, now)
        self.outbox.try_again(request.parcels)

    def _handle_refusal(self, request: Request, refusal: wire.Refusal, now: float) -> None:
        if refusal.reason == "size" and self._shrink(request, refusal):
            if request.kind is Kind.PAID:
                self._lease_requests.bought_nothing(now)
            self.leases.ask_again(request.topics, now)
            self.outbox.send_again(request.parcels)
            return
        if refusal.reason == "size":
            self._lease_requests.back_off(self.renewal_interval_s, now)
        if refusal.reason == "work":
            bits = number(refusal.attributes.get("bits"))
            self._lease_requests.price_bits = self._lease_requests.price_bits if bits is None else bits
        refused = refused_topics(refusal, request.topics)
        self._tell_refused(refused, request, refusal.reason, now)
        # The refusal tells nothing of the other topics, which must not wait for ever.
        others = [topic for topic in request.topics if topic not in refused]
        self.leases.ask_again(others, now + self.renewal_interval_s)
        self.outbox.refused(request.parcels, refusal.reason, now)

    def _shrink(self, request: Request, refusal: wire.Refusal) -> bool:
        """Puts fewer lines in a datagram from now on; returns whether that splits the one that was too long.

        The vouch line counts; one line beside it must be possible.
        """
        line_count = 1 + len(request.topics) + sum(parcel.line_count for parcel in request.parcels)
        self.lines_max = max(LINES_MIN, min(self.lines_max, fewer_lines(refusal, line_count)))
        return line_count > self.lines_max

    def _keep_cookie(self, reply: wire.Challenge | wire.Receipt, request: Request, now: float) -> None:
        """Takes a cookie, and the prices that were told with it, unless a newer one is known."""
        if self._cookies.keep(reply.cookie, request.sent_at):
            self._lease_requests.price_bits = reply.bits
            keep_bits = number(reply.attributes.get("keep")) or 0
            self._lease_requests.renewals.told(keep_bits, self.renewal_interval_s, now)

    def _tell_refused(self, topics: Collection[bytes], request: Request, reason: str, now: float) -> None:
        ended, is_later = self._lease_requests.refused(topics, request, reason, self.renewal_interval_s, now)
        self._tell_leases(ended)
        if is_later:
            self.notices += [Notice(Change.REFUSED, topic, reason) for topic in topics]

    def _tell_leases(self, topics: Iterable[bytes]) -> None:
        self.notices += [Notice(Change.LEASES, topic) for topic in topics]

    # --- Sending -------------------------------------------------------------------------------------

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, int]]:
        """Returns what is to go to this server now: buffers, each with the size in bytes of the datagrams in
        it (the last may be shorter)."""
        if not self.addresses and self.liveness is Liveness.LOST:
            self.outbox.give_up()
        if not self.addresses:
            return []
        self._requests.begin_round()
        sending = self._lines_to_send(now)
        if self.has_nothing_to_send(now):
            return sending
        self._judge(now)
        self._lease_requests.let_go(self._cookies.era, now)
        controls = self.control.datagrams(
            self._is_answering, self.renewal_interval_s, self.lines_max, len(self.outbox), now
        )
        return sending + [(datagram, len(datagram)) for datagram in controls]

    def _lines_to_send(self, now: float) -> list[tuple[bytes, int]]:
        """Returns the datagrams with lines to publish.

        Near its end a publish lease is renewed by vouching again, so that it never lapses in a busy stream.
        It is used only if the server has told recently that it does not drain. Draining takes longer than the
        usual renewal interval, so nothing is sent bare to a server that may have stopped since.
        """
        if not len(self.outbox):
            return []
        interval_s = usual_interval_s(self.ttl_s, RENEWALS_PER_TTL)
        has_lease = self.outbox.lease_until - now > interval_s
        has_heard = not self.is_draining and now - self.control.heard_at <= interval_s
        cookie = self._cookies.serving(COOKIE_PUBLISH_LIFE_S, now)
        if self.liveness is not Liveness.ALIVE and self.control.may_ask_all(now):
            cookie, has_lease = None, False  # lines wait: the first address to answer will be used
        return self.outbox.datagrams_to_send(now, cookie, self.lines_max, may_go_bare=has_lease and has_heard)
