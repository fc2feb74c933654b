"""The invariants. Each is a small class that is shown every turn and raises InvariantViolation by its name.

They judge by the ledger, which is what an outside observer knows. Only the sizes of tables, and whether a
server keeps something for an address, are asked of the cores themselves: that cannot be seen from outside.
"""

from typing import TYPE_CHECKING

from kcast.client.events import Delivery, Outcome, Published, PublishedMany
from kcast.client.session.session import QUEUE_MAX
from kcast.pubsub.drops import Drop
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX, REPLY_BYTES_MAX
from kcast.pubsub.networks import SHARES_MAX
from tests.simulation.admission import (
    AudienceTrue,
    Draining,
    LeasesKept,
    LimitsHold,
    PricesTrue,
    PushedOutRightly,
    RatesHold,
    RefusalsTrue,
    WorkPaid,
)
from tests.simulation.checker import Checker
from tests.simulation.forwarding import AllForwarded, NothingToExpiredLease, OnlyVouchedForwarded
from tests.simulation.ledger import (
    LEASE_COOKIE_S,
    ClientTurn,
    Message,
    ServerTurn,
    is_control,
    line_of,
    lines_of,
    reply_in,
)
from tests.simulation.network import Packet
from tests.simulation.restarts import RestartLosesNothing
from tests.simulation.restraint import RequestsBounded, StampsBounded
from tests.simulation.taps import TapTrue

if TYPE_CHECKING:
    from tests.simulation.hosts import ClientHost
    from tests.simulation.world import World

WINDOW_BYTES = 16 * 1024 * 1024
RUNS_MAX = 64
OUTCOME_S_MAX = 30.0
SETTLED_S = 3.0


class DatagramSize(Checker):
    """Nothing longer than 1200 bytes, and nothing empty, is ever sent."""

    name = "datagram-size"

    def server_turn(self, turn: ServerTurn) -> None:
        self._check(turn.host.name, turn.sent)

    def client_turn(self, turn: ClientTurn) -> None:
        self._check(turn.host.name, turn.sent)

    def _check(self, name: str, sent: list[tuple[Address, bytes]]) -> None:
        for destination, data in sent:
            if not 0 < len(data) <= DATAGRAM_BYTES_MAX:
                self.fail(f"{name} sends {len(data)} bytes to {destination}")


class Amplification(Checker):
    """One answer at most to a datagram, no longer than it, and to strangers no more bytes than they sent."""

    name = "amplification"

    def server_turn(self, turn: ServerTurn) -> None:
        for destination, data in turn.unasked:
            self.fail(f"{turn.host.name} sends {destination} an answer to nothing: {data!r}")
        for request in turn.requests:
            answer = request.answer
            if answer is not None and len(answer) > min(len(request.packet.data), REPLY_BYTES_MAX):
                self.fail(
                    f"{turn.host.name} answers {len(request.packet.data)} bytes from {request.packet.source} "
                    f"with {len(answer)}: {answer!r}"
                )
        boot, counts = turn.boot, turn.host.core.counts
        if counts["unproven_bytes_sent"] > counts["unproven_bytes_received"]:
            self.fail(f"{turn.host.name} counts more bytes to strangers than from them: {dict(counts)}")
        for destination, _ in turn.sent:
            if boot.answers_out[destination] > boot.datagrams_in[destination]:
                self.fail(f"{turn.host.name} has answered {destination} more often than it was asked")
            if destination not in boot.proven and boot.bytes_out[destination] > boot.bytes_in[destination]:
                self.fail(
                    f"{turn.host.name} has sent {boot.bytes_out[destination]} bytes to {destination}, which "
                    f"never showed a cookie and sent {boot.bytes_in[destination]}"
                )


class NoStateBeforeCookie(Checker):
    """A server keeps nothing for an address that has not received a cookie there and shown it."""

    name = "no-state-before-cookie"

    def server_turn(self, turn: ServerTurn) -> None:
        boot, server = turn.boot, turn.host.core
        for request in turn.requests:
            source = request.packet.source
            if request.is_granted:
                if source not in boot.proven or not request.is_cookie_received:
                    self.fail(
                        f"{turn.host.name} gives {source} a receipt for a cookie that never went there: "
                        f"{request.packet.data!r}"
                    )
                assert request.cookie_age_s is not None
                if request.subscribes() and request.cookie_age_s > LEASE_COOKIE_S:
                    self.fail(f"{turn.host.name} leases for a cookie of {request.cookie_age_s} s")
            if source in boot.proven:
                continue
            if server.publish_leases.left_s(source, turn.now) > 0:
                self.fail(f"{turn.host.name} has a publish lease for {source}, which showed no cookie")
            for topic in request.subscribes():
                if source in server.leases.subscribers(topic, turn.now):
                    self.fail(f"{turn.host.name} has {source} on {topic!r}, which showed no cookie")
        known = len(boot.possible.live(turn.now))
        if turn.requests and len(server.leases) > known:
            self.fail(
                f"{turn.host.name} holds {len(server.leases)} leases; {known} were granted to addresses that "
                f"had shown a cookie, and may live"
            )


class TableBounds(Checker):
    """No table, window or queue outgrows its bound."""

    name = "table-bounds"

    def server_turn(self, turn: ServerTurn) -> None:
        name, server, limits = turn.host.name, turn.host.core, self.world.options.limits
        self._bound(name, "leases", len(server.leases), limits.leases)
        self._bound(name, "topics", server.leases.topic_count, limits.topics)
        self._bound(name, "publish leases", len(server.publish_leases), limits.publishers)
        self._bound(name, "rates", len(server._publishing.rates), SHARES_MAX * limits.publishers)

    def client_turn(self, turn: ClientTurn) -> None:
        host, options = turn.host, self.world.options
        self._bound(host.name, "lines remembered", len(host.copies), options.window_count)
        self._bound(host.name, "bytes remembered", host.copies.size_bytes, WINDOW_BYTES + 2048)
        self._bound(host.name, "publishers followed", len(host.gaps), options.publishers_max)
        if any(isinstance(event, Published | PublishedMany) for event in turn.events):
            for session in host.core.sessions.all():
                self._bound(host.name, "lines waiting", len(session.outbox), QUEUE_MAX)

    def finish(self) -> None:
        for host in self.world.clients:
            for sequence in host.gaps.sequences():
                self._bound(host.name, "runs of missing numbers", len(sequence.missing), RUNS_MAX)
                self._bound(host.name, "runs that are not believed", len(sequence.runs), RUNS_MAX)

    def _bound(self, name: str, what: str, count: int, bound: int) -> None:
        if count > bound:
            self.fail(f"{name} has {count} {what}, at most {bound}")


def _is_raw(line: bytes) -> bool:
    return not line.partition(b" ")[2].startswith(b"%@")


class AtMostOnce(Checker):
    """Within the window an enveloped line is delivered once; a raw one as often as §9.3 takes it for new."""

    name = "at-most-once"

    def client_turn(self, turn: ClientTurn) -> None:
        for line, entry in turn.copies.items():
            allowed = entry.again + (entry.raw_due if _is_raw(line) else 1)
            if entry.delivered > allowed:
                self.fail(f"{turn.host.name} delivers {line!r} {entry.delivered} times, {allowed} are right")
        for line in turn.delivered - turn.copies.keys():
            self.fail(f"{turn.host.name} delivers {line!r}, of which no copy came")


class NothingInvented(Checker):
    """Nothing is delivered that was not published, by a client or by an attacker, nor on another topic."""

    name = "nothing-delivered-not-published"

    def client_turn(self, turn: ClientTurn) -> None:
        ledger = self.world.ledger
        for event in turn.events:
            if isinstance(event, Delivery):
                line = line_of(event, turn.copies)
                if line not in ledger.messages and line not in ledger.forged:
                    self.fail(f"{turn.host.name} delivers {line!r}, which nobody published")
                if event.topic not in turn.host.subscribed:
                    self.fail(f"{turn.host.name} delivers {line!r}, a topic that it does not subscribe to")


class CompleteDelivery(AllForwarded):
    """Everything is delivered that can be: by servers in any weather, and end to end where nothing is lost.

    1. A server forwards what it accepts (`AllForwarded`).
    2. A client delivers what a server of the topic brings, unless it has delivered it before.
    3. While the network loses nothing: what is published while all the leases of a subscriber stand, and
       reaches a server that it holds a lease at, is delivered within the time that datagrams take; and it
       reaches as many servers as the policy says. What a server left out because more came at once than
       credit allows need not come from there.
    """

    name = "complete-delivery"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._open: list[tuple[float, bytes, Message, list[tuple[ClientHost, frozenset[str]]]]] = []
        self._seen = 0
        self.checked = 0

    def client_turn(self, turn: ClientTurn) -> None:
        self._open_new()
        self._close_due()
        messages = self.world.ledger.messages
        for line, entry in turn.copies.items():
            if line not in messages:
                continue
            raw_due = entry.raw_due if self.world.options.window_count >= 1000 else 0
            due = raw_due if _is_raw(line) else 1
            ever = self.world.ledger.delivered[turn.host.name][line]
            if (entry.delivered if _is_raw(line) else ever) < due:
                self.fail(f"{turn.host.name} got {line!r} and delivered {entry.delivered} of {due}")

    def _open_new(self) -> None:
        """Takes note, for each new message, of who is leased at which servers."""
        new = self.world.ledger.log[self._seen :]
        if not new:
            return
        self._seen += len(new)
        if not self.world.is_calm:
            return
        for line, message in new:
            if self._is_restarting(message):
                continue  # then it is another checker's
            audience = [
                (host, self.world.leased_at(host, message.topic))
                for host in self.world.clients
                if self.world.is_fully_leased(host, message.topic)
            ]
            due_at = message.at + SETTLED_S + 2 * self.world.network.delay_s_max
            self._open.append((due_at, line, message, audience))

    def _is_restarting(self, message: Message) -> bool:
        addresses = self.world.server_addresses(message.publisher, message.topic)
        return any(self.world.server_at[address].is_restarting for address in addresses)

    def _close_due(self) -> None:
        while self._open and self._open[0][0] <= self.world.clock.time:
            self._close(*self._open.pop(0))

    def _close(
        self,
        due_at: float,
        line: bytes,
        message: Message,
        audience: "list[tuple[ClientHost, frozenset[str]]]",
    ) -> None:
        world = self.world
        if not world.was_calm_since(message.at) or not world.options.is_ample or not message.is_unique:
            return
        if self._is_restarting(message):
            return
        candidates = world.servers_of(message.publisher, message.topic)
        hostile = candidates & world.hostile
        wanted = min(world.options.policy.publish, len(candidates)) - len(hostile)
        if len(message.forwarded | (message.shadowed - hostile)) < wanted:
            self.fail(f"{line!r} was forwarded by {sorted(message.forwarded)}, {wanted} servers are drawn")
        for host, leased in audience:
            if message.topic not in host.subscribed or host.subscribed[message.topic] > message.at:
                continue
            self.checked += 1
            if hostile:
                leased &= world.leased_at(host, message.topic)  # nobody knows which leases it has given up
            beyond_credit = self.beyond_credit.get(line, ())
            sent_by = {
                name
                for name in leased & message.forwarded
                if not any((name, address) in beyond_credit for address in host.addresses)
            }
            if sent_by and not world.ledger.delivered[host.name][line]:
                self.fail(
                    f"{host.name}, leased at {sorted(leased)}, has not got {line!r}, which "
                    f"{sorted(sent_by)} forwarded"
                )

    def finish(self) -> None:
        self._open_new()
        self._close_due()


class ReceiptsTrue(Checker):
    """A publish whose outcome at a server is a receipt was forwarded by it, unless tampered with. Messages
    that are published together have an outcome, too, half a minute later at most."""

    name = "receipts-true"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._sent: dict[bytes, tuple[bytes, ...]] = {}  # nonce -> lines of the request that it stood in

    def server_turn(self, turn: ServerTurn) -> None:
        for request in turn.requests:
            if request.packet.sender is None and request.is_granted:
                for line in self._sent.get(request.lines[0].split(b" ")[1], ()):
                    if (message := self.world.ledger.messages.get(line)) is not None:
                        message.tampered.add(turn.boot.name)

    def client_turn(self, turn: ClientTurn) -> None:
        for _, data in turn.sent:
            if data.startswith(b"%!"):
                self._sent[data.split(b" ", 2)[1]] = lines_of(data)
        for event in turn.events:
            if isinstance(event, PublishedMany):
                self._check_many(turn, event)
            if not isinstance(event, Published) or event.seq is None:
                continue
            publisher = turn.host.core.publisher
            message = self.world.ledger.message_by_number(event.topic, publisher, event.seq)
            for server, outcome in event.servers.items():
                if outcome is Outcome.RECEIPT and not self._may_have(message, server):
                    self.fail(
                        f"{turn.host.name} believes that {self.world.name_of_server[server]} forwarded "
                        f"{publisher}.{event.seq} on {event.topic!r}, which it did not"
                    )

    def _may_have(self, message: Message | None, server: str) -> bool:
        """Whether a server may have given a receipt for a message."""
        name = self.world.name_of_server[server]
        return name in self.world.hostile or (
            message is not None and name in message.forwarded | message.tampered
        )

    def _check_many(self, turn: ClientTurn, event: PublishedMany) -> None:
        """A message with a receipt was forwarded by one of the servers; and no server has more receipts than
        messages that it forwarded. Each outcome is told once."""
        _, count = turn.host.together.pop(event.handle, (0.0, None))
        if count != event.messages:
            self.fail(f"{turn.host.name} tells an outcome of {event.messages} messages, which nobody awaits")
            return
        if event.first_seq is None:
            return
        publisher, ledger = turn.host.core.publisher, self.world.ledger
        messages = [
            ledger.message_by_number(event.topic, publisher, event.first_seq + index)
            for index in range(event.messages)
        ]
        for index in set(range(event.messages)) - set(event.without_receipt):
            if not any(self._may_have(messages[index], server) for server in event.servers):
                self.fail(
                    f"{turn.host.name} believes that {publisher}.{event.first_seq + index} on "
                    f"{event.topic!r} was forwarded, which it was not"
                )
        for server, outcomes in event.servers.items():
            possible = sum(self._may_have(message, server) for message in messages)
            if outcomes.get(Outcome.RECEIPT, 0) > possible:
                self.fail(
                    f"{turn.host.name} has {outcomes[Outcome.RECEIPT]} receipts of {server} for "
                    f"{event.topic!r}, which forwarded {possible} of these messages"
                )

    def finish(self) -> None:
        since = self.world.clock.time - OUTCOME_S_MAX
        for host in self.world.clients:
            late = [handle for handle, (at, _) in host.together.items() if at < since]
            if host.can_act and late:
                self.fail(f"{host.name} has told no outcome of messages {late}")


class LeasedAgain(Checker):
    """Once all is healed, every subscriber holds all the leases it wants within a ttl and a renewal."""

    name = "leased-again"

    def due_at(self, healed_at: float) -> float:
        """When this may be asked. The slack is for round trips."""
        options = self.world.options
        bound_s = options.ttl_s + options.renewal_interval_s + options.minting_s
        return healed_at + bound_s + 6 * self.world.network.delay_s_max + 0.5

    def check(self) -> None:
        for host in self.world.clients:
            for topic in host.subscribed if host.can_act else ():
                leased, wanted = host.core.lease_counts(topic)
                candidates = self.world.servers_of(host, topic)
                really = self.world.leased_at(host, topic) & candidates
                due = min(self.world.options.policy.subscribe, len(candidates))
                honest_due = due - len(candidates & self.world.hostile)
                is_short = (leased < honest_due) if honest_due < due else (leased != due)
                if wanted != due or is_short or len(really) < honest_due:
                    self.fail(
                        f"{host.name} holds {leased} of {wanted} leases on {topic!r} by its own account, and "
                        f"really at {sorted(really)}; {due} of {sorted(candidates)} are right; it sees "
                        f"{host.core.server_states()}"
                    )


class DropsAccounted(Checker):
    """Every datagram handed to a core is counted, and so is what became of it."""

    name = "drops-accounted"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._before: dict[object, tuple[int, int]] = {}
        self._asked: dict[str, set[tuple[Address, bytes]]] = {}
        self._hostile_addresses = {
            address
            for server in world.servers
            if server.name in world.hostile
            for address in server.addresses
        }

    def server_turn(self, turn: ServerTurn) -> None:
        server = turn.host.core
        received = server.counts["datagrams_received"] + server.drops[Drop.OWN_ADDRESS]
        if received != turn.boot.handed_over:
            self.fail(f"{turn.host.name} was handed {turn.boot.handed_over} datagrams and counts {received}")
        if server.counts["copies_sent"] != turn.boot.copies_out:
            self.fail(
                f"{turn.host.name} sent {turn.boot.copies_out} copies, counts {server.counts['copies_sent']}"
            )
        unproven = server.counts["unproven_bytes_received"], server.counts["unproven_bytes_sent"]
        if unproven != (turn.boot.unproven_bytes_in, turn.boot.unproven_bytes_out):
            self.fail(
                f"{turn.host.name} got {turn.boot.unproven_bytes_in} bytes from strangers that it answered, "
                f"with {turn.boot.unproven_bytes_out}; it counts {unproven}"
            )
        if server.refusals != turn.boot.refusals:
            self.fail(f"{turn.host.name} refused {turn.boot.refusals}, and counts {server.refusals}")
        counted = server.counts["answers_sent"] + server.counts["messages_received"] + server.drops.total()
        self._compare(turn.boot, turn.host.name, received, counted)

    def client_turn(self, turn: ClientTurn) -> None:
        client = turn.host.core
        asked = self._asked.setdefault(turn.host.name, set())
        # Answers to what was asked have no counter: they do their work.
        silent = 0
        for packet in turn.packets:
            answered = asked.intersection(_answers(packet))
            if packet.sender is not None and packet.source not in self._hostile_addresses:
                asked -= answered  # a forged one may not have done, if it is of another kind
            silent += bool(answered)
        for destination, data in turn.sent:
            lines = [line for line in lines_of(data) if is_control(line)]
            asked.update((destination, line.split(b" ")[1]) for line in lines)
        received = client.counts["datagrams_received"]
        before, counted_before = self._before.get(turn.host, (0, 0))
        if received - before != len(turn.packets):
            self.fail(f"{turn.host.name} was handed {len(turn.packets)} datagrams, not {received - before}")
        counted = client.counts["copies_received"] + client.drops.total()
        if counted - counted_before < received - before - silent:
            self.fail(
                f"{turn.host.name} was handed {received - before} datagrams, and tells what became of "
                f"{counted - counted_before}: {[packet.data for packet in turn.packets]}"
            )
        self._before[turn.host] = received, counted

    def _compare(self, key: object, name: str, received: int, counted: int) -> None:
        received_before, counted_before = self._before.get(key, (0, 0))
        if counted - counted_before < received - received_before:
            self.fail(
                f"{name} was handed {received - received_before} datagrams, and tells what became of "
                f"{counted - counted_before}"
            )
        self._before[key] = received, counted

    def finish(self) -> None:
        fates = self.world.network.fates
        carried = fates["sent"] + fates["duplicated"]
        buffered = sum(len(host._buffer) for host in (*self.world.servers, *self.world.clients))
        ended = fates.total() - carried + self.world.network.in_flight + buffered
        if carried != ended:
            self.fail(f"the network carried {carried} datagrams and knows the fate of {ended}: {dict(fates)}")


def _answers(packet: Packet) -> list[tuple[Address, bytes]]:
    """What it answers: from where, and to which nonce."""
    if len(packet.data) > DATAGRAM_BYTES_MAX:
        return []
    replies = [reply_in(line) for line in lines_of(packet.data)]
    return [(packet.source, reply.nonce) for reply in replies if reply is not None]


CHECKERS: tuple[type[Checker], ...] = (
    DatagramSize,
    Amplification,
    NoStateBeforeCookie,
    TableBounds,
    LeasesKept,
    LimitsHold,
    RefusalsTrue,
    RatesHold,
    WorkPaid,
    PricesTrue,
    PushedOutRightly,
    Draining,
    NothingToExpiredLease,
    OnlyVouchedForwarded,
    NothingInvented,
    AtMostOnce,
    CompleteDelivery,
    RestartLosesNothing,
    ReceiptsTrue,
    AudienceTrue,
    LeasedAgain,
    DropsAccounted,
    TapTrue,
    RequestsBounded,
    StampsBounded,
)
