"""Cores that do wrong, each in one way that some checker of the simulation must name."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from kcast.client.cluster import Cluster, ServerEntry
from kcast.client.core import ClientCore
from kcast.client.events import Delivery, Outcome, Published, PublishedMany
from kcast.client.messages.guard_and_writer import Told
from kcast.client.receiving.dedup import CopyFilter
from kcast.client.session.allowance import Allowance
from kcast.client.session.requests import Cookie
from kcast.client.session.session import Session
from kcast.client.session.stamps import Stamps
from kcast.pubsub import wire
from kcast.pubsub.cookie import Cookies, Issued
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address, Burst, Transmit
from kcast.pubsub.fifo_table import FifoTable, PromisedEntry
from kcast.pubsub.leasing import Leasing, Price
from kcast.pubsub.limits import REPLY_BYTES_MAX, Limits
from kcast.pubsub.publishing import Publishing
from kcast.pubsub.rates import Demand
from kcast.pubsub.router import Routes
from kcast.pubsub.server import Server
from kcast.pubsub.stamp import FREE, Mint, Quote
from kcast.pubsub.subscribers import Subscribers
from kcast.pubsub.table import LeaseTable, Limit

# --- Servers that do wrong ---------------------------------------------------------------------------


class LongWinded(Server):
    """Answers longer than it was asked."""

    def _reply(self, request: bytes, source: Address, answer: bytes, *, is_proven: bool = True) -> None:
        answer = answer.ljust(len(request) + 1, b"\n")
        self.counts["answers_sent"] += 1
        self._replies.append(Transmit(answer, len(answer), (source,), 0))


class Obliging(Server):
    """Answers also what is shorter than its answer."""

    def _receive_datagram(self, datagram: bytes, source: Address, now: float) -> None:
        super()._receive_datagram(datagram.ljust(192, b"\n"), source, now)


class Chatty(Server):
    """Answers what other servers say."""

    def _receive_datagram(self, datagram: bytes, source: Address, now: float) -> None:
        super()._receive_datagram(datagram, source, now)
        if datagram.startswith((b"%=", b"%+")):
            self._reply(datagram, source, datagram[:REPLY_BYTES_MAX])


class AnswersTwice(Server):
    def _reply(self, request: bytes, source: Address, answer: bytes, *, is_proven: bool = True) -> None:
        super()._reply(request, source, answer, is_proven=is_proven)
        super()._reply(request, source, answer, is_proven=is_proven)


class _TakesAnyCookie(Cookies):
    def read(self, cookie: bytes, address: Address, now: float) -> Issued | None:
        return Issued(0.0, now, FREE)


class Credulous(Server):
    """Takes every cookie for its own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._cookies = _TakesAnyCookie(settings["secret"])


class RemembersAskers(Server):
    """Opens a publish lease for whoever asks for a cookie."""

    def _challenge(self, nonce: bytes, datagram: bytes, source: Address, now: float, **options: bool) -> None:
        self.publish_leases.renew(source, now)
        super()._challenge(nonce, datagram, source, now, **options)


class _AgelessCookies(Cookies):
    def read(self, cookie: bytes, address: Address, now: float) -> Issued | None:
        issued = super().read(cookie, address, now)
        return None if issued is None else issued._replace(age_s=0.0)


class TakesOldCookies(Server):
    """Never finds a cookie too old for leases."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._cookies = _AgelessCookies(settings["secret"])


def _use_table(server: Server, table: LeaseTable) -> None:
    server.leases = server._leasing.table = server._price._table = table
    server._egress._table = server._publishing._table = table
    server._subscribers._holders = table.holders
    table.holders.forgotten = server._subscribers._forget


class _Endless(LeaseTable):
    def _has_room(self, address: Address, now: float) -> bool:
        return True


class Hoarder(Server):
    """Has no bound on leases."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _use_table(self, _Endless(settings["ttl_s"], settings["limits"]))


class _Faithful(LeaseTable):
    def __init__(self, ttl_s: float, limits: Limits) -> None:
        super().__init__(ttl_s, limits)
        self._ever: dict[bytes, dict[Address, None]] = {}

    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        self._ever.setdefault(topic, {})[address] = None
        return super().open(topic, address, now)

    def routes(self, now: float) -> Routes:
        return defaultdict(tuple, {topic: tuple(addresses) for topic, addresses in self._ever.items()})


class NeverForgets(Server):
    """Sends copies to whoever once held a lease."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _use_table(self, _Faithful(settings["ttl_s"], settings["limits"]))


class _PublishingWithGossip(Publishing):
    def _forward(self, data: bytes, segment_bytes: int, demand: Demand, source: Address, now: float) -> None:
        super()._forward(data, segment_bytes, demand, source, now)
        gossip = b"".join(line + b"!\n" for line in wire.split_lines(data)[0])
        super()._forward(gossip, len(gossip), demand._replace(topic=None), source, now)


class Gossip(Server):
    """Adds a line of its own to what it forwards."""

    make_publishing = _PublishingWithGossip


class Lax(Server):
    """Forwards what nobody vouched for, and tells its tap nothing of it."""

    def _receive_stranger(self, datagram: bytes, source: Address, now: float) -> None:
        super()._receive_stranger(datagram, source, now)
        tap, self._publishing._tap = self._publishing._tap, None
        for line in wire.split_lines(datagram)[0]:
            if b" " in line and not wire.is_control(line):
                self._publishing.forward([line], Demand(1, 1, 1), ("127.0.0.1", 1), now)
        self._publishing._tap = tap


class Forgetful(Server):
    """Passes over the subscriber that has waited longest."""

    def flush(self, now: float) -> list[Transmit]:
        transmits = super().flush(now)
        for index, (data, _, destinations, _) in enumerate(transmits):
            if len(destinations) > 1:
                lines = data.count(b"\n") - data.count(b"\n\n")
                self.counts["copies_sent"] -= lines
                transmits[index] = transmits[index]._replace(destinations=destinations[1:])
        return transmits


class Doubling(Server):
    """Sends every copy twice, and counts it so."""

    def flush(self, now: float) -> list[Transmit]:
        transmits = super().flush(now)
        copies = [each for each in transmits if not each.is_answer]
        self.counts["copies_sent"] += sum(
            len(wire.split_lines(each.data)[0]) * len(each.destinations) for each in copies
        )
        return transmits + copies


class _SubscribersDoubted(Subscribers):
    def granted(self, transmit: Transmit, now: float) -> Iterator[Transmit]:
        if len(transmit.destinations) > 1:
            self._refuse(Drop.CREDIT, transmit.data)
            transmit = transmit._replace(destinations=transmit.destinations[1:])
        return super().granted(transmit, now)


class Distrustful(Server):
    """Says that a subscriber has no credit left, of which it has used little."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        networks, limits = self._subscribers._networks, self.limits
        holders = self.leases.holders
        self._subscribers = _SubscribersDoubted(holders, networks, limits, settings["ttl_s"], self.drops)
        self._egress._subscribers = self._subscribers


class Discreet(Server):
    """Does not count what it answers to strangers."""

    def _reply(self, request: bytes, source: Address, answer: bytes, *, is_proven: bool = True) -> None:
        super()._reply(request, source, answer, is_proven=True)


class Deaf(Server):
    """Swallows some datagrams without a word."""

    def receive(self, burst: Burst, now: float) -> None:
        if burst.data[-2:] == b"\n\n" and len(burst.data) > 192:
            self.counts["datagrams_received"] += -(-len(burst.data) // burst.segment_bytes)
        elif burst.data[3:4] not in (b"A", b"B", b"C", b"D"):
            super().receive(burst, now)


class _Boundless(LeaseTable):
    def _without_room(self, topic: bytes, address: Address, now: float) -> Limit | None:
        return None if self._has_room(address, now) else Limit.FULL


class Unlimited(Server):
    """Has no limit for an address, a prefix or topics."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _use_table(self, _Boundless(settings["ttl_s"], settings["limits"]))


class _Ashamed(LeaseTable):
    def open(self, topic: bytes, address: Address, now: float) -> Limit | None:
        return Limit.FULL if len(self) >= self.limits.leases - 1 else super().open(topic, address, now)


class Timid(Server):
    """Says that it is full while there is room for one more."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _use_table(self, _Ashamed(settings["ttl_s"], settings["limits"]))


class _LeasingHaughtily(Leasing):
    def ask(
        self, topics: Sequence[bytes], vouch: wire.Vouch | None, quote: Quote, source: Address, now: float
    ) -> tuple[int, str]:
        if topics and len(self.table) >= self.table.limits.leases:
            return (1 << len(topics)) - 1, "full"
        return super().ask(topics, vouch, quote, source, now)


class Haughty(Server):
    """Renews nothing while it is full."""

    make_leasing = _LeasingHaughtily


class Patient(Server):
    """Takes more lines of one address than it should."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._publishing.rates._limits = replace(self.limits, publishes_per_s=3 * self.limits.publishes_per_s)


class _PublishingGrudgingly(Publishing):
    def _take(self, source: Address, demand: Demand, now: float) -> Demand | None:
        return super()._take(source, demand._replace(lines=3 * demand.lines), now) and demand


class Grumpy(Server):
    """Refuses publishes for their rate long before there is too much of them."""

    make_publishing = _PublishingGrudgingly


class _LeasingFreely(Leasing):
    def _pays(self, vouch: wire.Vouch, topics: Sequence[bytes], due_bits: int) -> bool:
        return True


class Generous(Server):
    """Asks for work, and takes any."""

    make_leasing = _LeasingFreely


class _LeasingCheaply(Leasing):
    def _pays(self, vouch: wire.Vouch, topics: Sequence[bytes], due_bits: int) -> bool:
        return super()._pays(vouch, topics, due_bits - (len(topics) - 1).bit_length())


class Cheap(Server):
    """Asks for all the new leases of a datagram what one costs."""

    make_leasing = _LeasingCheaply


class _LeasingDearly(Leasing):
    def _pays(self, vouch: wire.Vouch, topics: Sequence[bytes], due_bits: int) -> bool:
        return super()._pays(vouch, topics, due_bits + 2 if due_bits else 0)


class Greedy(Server):
    """Asks for more than it says."""

    make_leasing = _LeasingDearly


class _Hasty(FifoTable):
    def _has_room(self, address: Address, now: float) -> bool:
        oldest = self._oldest()
        if isinstance(oldest, PromisedEntry):
            oldest.promised_until = now
        return super()._has_room(address, now)


class Faithless(Server):
    """Pushes the oldest lease out, whatever it was promised."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _use_table(self, _Hasty(settings["ttl_s"], settings["limits"]))


class _SteadyPrice(Price):
    def quote(self, address: Address, now: float) -> Quote:
        return Quote(self.least_bits)


class Unworried(Server):
    """Asks no more where it is full."""

    make_price = _SteadyPrice


class _HighPrice(Price):
    def quote(self, address: Address, now: float) -> Quote:
        return Quote(14)


class Worried(Server):
    """Asks as much as if it were full."""

    make_price = _HighPrice


class Amnesiac(Server):
    """Loses a lease now and then."""

    def handle_timeout(self, now: float) -> None:
        super().handle_timeout(now)
        self.leases.expire(now + 0.9 * self.ttl_s)


class _LeasingAlways(Leasing):
    def ask(
        self, topics: Sequence[bytes], vouch: wire.Vouch | None, quote: Quote, source: Address, now: float
    ) -> tuple[int, str]:
        is_draining, self.is_draining = self.is_draining, False
        try:
            return super().ask(topics, vouch, quote, source, now)
        finally:
            self.is_draining = is_draining


class Indifferent(Server):
    """Takes new leases while it drains."""

    make_leasing = _LeasingAlways


class Silent(Server):
    """Does not say that it drains."""

    def start_drain(self, now: float) -> None:
        super().start_drain(now)
        self._drain = {}


class Sudden(Server):
    """Ends as soon as it is told to."""

    def is_drained(self, now: float) -> bool:
        return self.is_draining


class Undying(Server):
    """Goes on draining."""

    def is_drained(self, now: float) -> bool:
        return False

    def next_timeout(self) -> float | None:
        return self.leases.next_expiry()


class Mute(Server):
    """Forwards nothing while it drains."""

    def flush(self, now: float) -> list[Transmit]:
        transmits = super().flush(now)
        if not self.is_draining:
            return transmits
        copies = [transmit for transmit in transmits if not transmit.data.startswith(b"%")]
        for transmit in copies:
            lines = transmit.data.count(b"\n") - transmit.data.count(b"\n\n")
            self.counts["copies_sent"] -= lines * len(transmit.destinations)
        return [transmit for transmit in transmits if transmit.data.startswith(b"%")]


class Flatterer(Server):
    """Tells of one subscriber more than there is."""

    def _audience_of(self, publishes: Sequence[bytes], now: float) -> int:
        return super()._audience_of(publishes, now) + 1


class Discourager(Server):
    """Tells of one subscriber less than there is."""

    def _audience_of(self, publishes: Sequence[bytes], now: float) -> int:
        return max(0, super()._audience_of(publishes, now) - 1)


class Secretive(Server):
    """Does not tell its tap of leases."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "tap": None})


class _PublishingTactfully(Publishing):
    def _forward(self, data: bytes, segment_bytes: int, demand: Demand, source: Address, now: float) -> None:
        tap, self._tap = self._tap, None
        super()._forward(data, segment_bytes, demand, source, now)
        self._tap = tap


class Tactful(Server):
    """Does not tell its tap of publishes."""

    make_publishing = _PublishingTactfully


class Fragile(Server):
    def receive(self, burst: Burst, now: float) -> None:
        if burst.data.startswith(b"%~"):
            raise ValueError("ping?")
        super().receive(burst, now)


class Restless(Server):
    """Always wants to be called at once."""

    def next_timeout(self) -> float | None:
        at = super().next_timeout()
        return at if at is None else 0.0


# --- Clients that do wrong ---------------------------------------------------------------------------


class Verbose(ClientCore):
    """Sends datagrams that are too long."""

    def flush(self, now: float) -> list[Transmit]:
        return [Transmit(data.ljust(1300, b"\n"), 1300, to) for data, _, to, _ in super().flush(now)]


class Inventive(ClientCore):
    """Delivers what nobody said."""

    def events(self) -> list[Told]:
        return [
            event._replace(payload=b"rumour") if isinstance(event, Delivery) else event
            for event in super().events()
        ]


class Boastful(ClientCore):
    """Has a receipt for everything."""

    def events(self) -> list[Told]:
        return [
            event._replace(servers=dict.fromkeys(event.servers, Outcome.RECEIPT))
            if isinstance(event, Published)
            else event
            for event in super().events()
        ]


class BoastfulOfMany(ClientCore):
    """Has a receipt for each of many messages."""

    def events(self) -> list[Told]:
        return [
            event._replace(without_receipt=()) if isinstance(event, PublishedMany) else event
            for event in super().events()
        ]


class SilentOfMany(ClientCore):
    """Does not tell what became of many messages."""

    def events(self) -> list[Told]:
        return [event for event in super().events() if not isinstance(event, PublishedMany)]


class Stoic(ClientCore):
    """Does nothing of its own accord, and so renews nothing that an answer does not remind it of."""

    def handle_timeout(self, now: float) -> None:
        pass

    def next_timeout(self) -> float | None:
        return None


class Swallows(ClientCore):
    """Says nothing of control lines that it does not understand."""

    def _receive_datagram(self, datagram: bytes, session: Any, now: float) -> None:
        if not datagram.startswith(b"%") or wire.parse_reply(datagram.partition(b"\n")[0]):
            super()._receive_datagram(datagram, session, now)


class Optimist(ClientCore):
    """Takes its leases for granted."""

    def lease_counts(self, topic: bytes) -> tuple[int, int]:
        _, wanted = super().lease_counts(topic)
        return wanted, wanted


class _ThriftyStamps(Stamps):
    def begin(self, cookie: Cookie, topics: Sequence[bytes], bits: int, **options: Any) -> None:
        super().begin(cookie, topics, bits, **options)
        self._mint = Mint(cookie.text, topics, bits)


class Thrifty(ClientCore):
    """Pays for one lease, however many a datagram opens."""

    def _session(self, server: ServerEntry, now: float) -> Session:
        session = super()._session(server, now)
        if not isinstance(session._lease_requests._stamps, _ThriftyStamps):
            session._lease_requests._stamps = _ThriftyStamps()
        return session


class Insistent(ClientCore):
    """Says everything thirty times."""

    def flush(self, now: float) -> list[Transmit]:
        return [transmit for transmit in super().flush(now) for _ in range(30)]


class Echoing(ClientCore):
    """Says everything again that is published, each time that it says something."""

    def __init__(self, cluster: Cluster, rng: Random, **settings: Any) -> None:
        super().__init__(cluster, rng, **settings)
        self._said: list[Transmit] = []

    def flush(self, now: float) -> list[Transmit]:
        sending = super().flush(now)
        self._said = (self._said + [each for each in sending if b" %@" in each.data])[-8:]
        return sending + self._said * bool(sending)


class Lavish(ClientCore):
    """Computes for as long as anyone asks for it."""

    def _session(self, server: ServerEntry, now: float) -> Session:
        session = super()._session(server, now)
        session._lease_requests._allowance = _FullPurse(self.sessions.spending)
        return session


class _FullPurse(Allowance):
    def is_left(self, now: float) -> bool:
        return True


class Reckless(ClientCore):
    """Publishes to whichever servers it draws, dead or not."""

    def __init__(self, cluster: Cluster, rng: Random, **settings: Any) -> None:
        super().__init__(cluster, rng, **{**settings, "avoid_dead": False})


class _InPython(CopyFilter):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, is_native=False)


class NeverNew(_InPython):
    def is_new(self, line: bytes, server: Hashable, raw: bool, now: float) -> bool:
        return super().is_new(line, server, raw, now) and not line.endswith(b"7")


class AlwaysNew(_InPython):
    def is_new(self, line: bytes, server: Hashable, raw: bool, now: float) -> bool:
        super().is_new(line, server, raw, now)
        return True
