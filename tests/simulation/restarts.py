"""What a rolling restart promises: servers drain one after the other, and no message is lost.

What can be promised? A draining server forwards as before, so nothing is lost until it ends. From then until
its subscribers have leased again (a renewal later), what is sent to it alone reaches nobody, and a publisher
that meets it for the first time then cannot know. So it is promised

- to every message, where publishers and subscribers share two servers or more: publish + subscribe > k + 1;
- where they share one, to messages of publishers that avoid dead servers and had an answer while the server
  was draining: a renewal and 5 s are long enough for whoever has anything to do there. Of those that had
  none, but had dealings with the server before, to messages for which they want receipts: these are sent to
  another server when there is no answer, and when a cookie that should be good is refused.

Where some of the servers lie, they count as ones that nobody shares, and only the first is promised.

A subscriber is promised it while it holds a lease at each of its servers but the one that is restarted, and
at one at least.
"""

from typing import TYPE_CHECKING

from kcast.pubsub.endpoint import Address
from tests.simulation.checker import Checker
from tests.simulation.ledger import Boot, ClientTurn, Message, is_answer, lines_of

if TYPE_CHECKING:
    from tests.simulation.hosts import ClientHost, ServerHost
    from tests.simulation.world import World

SETTLED_S = 8.0  # two answers that are awaited in vain, and the delivery by way of another server


class RestartLosesNothing(Checker):
    """While one server of a topic is restarted after draining, what is promised above is delivered."""

    name = "restart-loses-nothing"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._heard: set[tuple[str, Address, float]] = set()
        self._open: list[tuple[bytes, Message, ServerHost, list[ClientHost]]] = []
        self._seen = 0
        self.checked = 0

    def client_turn(self, turn: ClientTurn) -> None:
        self._open_new()
        self._close_due()
        for packet in turn.packets:
            boot = packet.sender
            if not isinstance(boot, Boot) or boot.draining_since is None or not is_answer(packet.data):
                continue
            if b"drain=1" in lines_of(packet.data)[0].split(b" "):
                self._heard.add((turn.host.name, boot.address, boot.draining_since))

    def _open_new(self) -> None:
        new = self.world.ledger.log[self._seen :]
        if not new:
            return
        self._seen += len(new)
        for line, message in new if self.world.is_calm and self.world.options.is_ample else ():
            servers = {
                self.world.server_at[address].name: self.world.server_at[address]
                for address in sorted(self.world.server_addresses(message.publisher, message.topic))
            }
            restarting = [server for server in servers.values() if server.is_restarting]
            if len(restarting) == 1 and self._is_promised(message, restarting[0]):
                audience = [host for host in self.world.clients if self._stands(host, message, restarting[0])]
                self._open.append((line, message, restarting[0], audience))

    def _is_promised(self, message: Message, server: "ServerHost") -> bool:
        options, host = self.world.options, message.publisher
        shared = options.policy.publish + options.policy.subscribe - options.policy.k
        hostile = self._hostile_count(message)
        if hostile:
            return shared - hostile > 1
        if shared != 1:
            return shared > 1  # where it is less, a message may miss a subscriber at any time
        has_heard = (host.name, server.address, server.drained_since) in self._heard
        is_back = server.is_up and not server.is_draining
        known = server.knew if is_back else server.knew | server.boot.received.keys()
        knows = all(address in known for address in host.addresses)
        return options.avoid_dead and (has_heard or (message.confirm and knows))

    def _stands(self, host: "ClientHost", message: Message, server: "ServerHost") -> bool:
        """Whether a subscriber stands as well as it can without this server, or with it while it drains."""
        if not host.can_act or host.subscribed.get(message.topic, message.at) >= message.at:
            return False
        leased = self.world.leased_at(host, message.topic)
        wanted = min(self.world.options.policy.subscribe, len(self.world.servers_of(host, message.topic)))
        return len(leased - {server.name}) >= max(1, wanted - 1 - self._hostile_count(message))

    def _hostile_count(self, message: Message) -> int:
        return len(self.world.hostile & self.world.servers_of(message.publisher, message.topic))

    def _close_due(self) -> None:
        slack_s = SETTLED_S + 2 * self.world.network.delay_s_max
        while self._open and self._open[0][1].at + slack_s <= self.world.clock.time:
            line, message, server, audience = self._open.pop(0)
            for host in audience if message.is_unique and self.world.was_calm_since(message.at) else ():
                if host.subscribed.get(message.topic, message.at) >= message.at:
                    continue
                if self._hostile_count(message) and not self._stands(host, message, server):
                    continue  # servers that lie may have made it give up leases meanwhile
                self.checked += 1
                if not self.world.ledger.delivered[host.name][line]:
                    self.fail(
                        f"{host.name} has not got {line!r} of {message.publisher.name}, published at "
                        f"{message.at:.3f} s and forwarded by {sorted(message.forwarded)}"
                    )

    def finish(self) -> None:
        self._open_new()
        self._close_due()
