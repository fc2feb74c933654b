"""Each checker of the simulation can fail: a core is broken on purpose, and the checker says so by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

import pubsub.server
from client.core import ClientCore
from client.dedup import CopyFilter
from client.events import Delivery, Event, Outcome, Published
from client.gaps import GapTracker
from hashring.policy import Policy
from pubsub import wire
from pubsub.endpoint import Address, Burst, Transmit
from pubsub.server import Server
from pubsub.table import LeaseTable
from tests.sim.checkers import CHECKERS, InvariantViolation
from tests.sim.options import Options
from tests.sim.scenario import check_determinism, run
from tests.sim.world import ClientMaker, ServerMaker, World

CALM = Options(seed=1, servers=3, clients=3, policy=Policy.from_scheme("CH", k=3), publish_interval_s=1.0)
ROUGH = replace(CALM, loss=0.1, faults=6, fault_s=30.0, ttl_s=6, burst=0.1, reorder=0.1, unreachable=0.5)
ATTACKED = replace(CALM, attacks=200)
TIGHT = replace(ATTACKED, capacity=5, topics=8, subscriptions=4, window_count=48, publishers_max=2)


# --- Servers that do wrong ---------------------------------------------------------------------------


class LongWinded(Server):
    """Answers longer than it was asked."""

    def _reply(self, request: bytes, source: Address, answer: bytes) -> None:
        answer = answer.ljust(len(request) + 1, b"\n")
        self.counts["answers_sent"] += 1
        self._replies.append(Transmit(answer, len(answer), (source,)))


class Obliging(Server):
    """Answers also what is shorter than its answer."""

    def _receive_datagram(self, datagram: bytes, source: Address, now: float) -> None:
        super()._receive_datagram(datagram.ljust(192, b"\n"), source, now)


class Chatty(Server):
    """Answers what other servers say."""

    def _receive_datagram(self, datagram: bytes, source: Address, now: float) -> None:
        super()._receive_datagram(datagram, source, now)
        if datagram.startswith((b"%=", b"%+")):
            self._reply(datagram, source, datagram)


class AnswersTwice(Server):
    def _reply(self, request: bytes, source: Address, answer: bytes) -> None:
        super()._reply(request, source, answer)
        super()._reply(request, source, answer)


class Credulous(Server):
    """Takes every cookie for its own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._cookies.age_s = lambda cookie, address, now: 0.0  # type: ignore[method-assign]


class RemembersAskers(Server):
    """Opens a publish lease for whoever asks for a cookie."""

    def _challenge(self, nonce: bytes, source: Address, now: float) -> bytes:
        self.publish_leases.renew(source, now)
        return super()._challenge(nonce, source, now)


class TakesOldCookies(Server):
    """Never finds a cookie too old for leases."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        age_s = self._cookies.age_s
        self._cookies.age_s = (  # type: ignore[method-assign]
            lambda cookie, address, now: None if age_s(cookie, address, now) is None else 0.0
        )


class Hoarder(Server):
    """Has no bound on leases."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "capacity": 10**9})


class _Faithful(LeaseTable):
    def __init__(self, ttl_s: float, capacity: int) -> None:
        super().__init__(ttl_s, capacity)
        self._ever: dict[bytes, dict[Address, None]] = {}

    def renew(self, topic: bytes, address: Address, now: float) -> bool:
        self._ever.setdefault(topic, {})[address] = None
        return super().renew(topic, address, now)

    def subscribers(self, topic: bytes, now: float) -> Sequence[Address]:
        return tuple(self._ever.get(topic, ()))


class NeverForgets(Server):
    """Sends copies to whoever once held a lease."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.leases = _Faithful(settings["ttl_s"], settings["capacity"])


class Gossip(Server):
    """Adds a line of its own to what it forwards."""

    def _forward(self, line: bytes) -> None:
        super()._forward(line)
        super()._forward(line + b"!")


class Lax(Server):
    """Forwards what nobody vouched for."""

    def _receive_bare(self, datagram: bytes, lines: list[bytes], source: Address, now: float) -> None:
        super()._receive_bare(datagram, lines, source, now)
        for line in lines:
            if b" " in line and not wire.is_control(line):
                self._forward(line)


class Forgetful(Server):
    """Passes over the subscriber that has waited longest."""

    def flush(self, now: float) -> list[Transmit]:
        transmits = super().flush(now)
        for index, (data, segment_bytes, destinations) in enumerate(transmits):
            if len(destinations) > 1:
                lines = data.count(b"\n") - data.count(b"\n\n")
                self.counts["copies_sent"] -= lines
                transmits[index] = Transmit(data, segment_bytes, destinations[1:])
        return transmits


class Deaf(Server):
    """Swallows some datagrams without a word."""

    def _receive_datagram(self, datagram: bytes, source: Address, now: float) -> None:
        if datagram[-2:] == b"\n\n" and len(datagram) > 192:
            self.counts["datagrams_received"] += 1
        elif datagram[3:4] not in (b"A", b"B", b"C", b"D"):
            super()._receive_datagram(datagram, source, now)


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
        return [Transmit(data.ljust(1300, b"\n"), 1300, to) for data, _, to in super().flush(now)]


class Inventive(ClientCore):
    """Delivers what nobody said."""

    def events(self) -> list[Event]:
        return [
            replace(event, payload=b"rumour") if isinstance(event, Delivery) else event
            for event in super().events()
        ]


class Boastful(ClientCore):
    """Has a receipt for everything."""

    def events(self) -> list[Event]:
        return [
            replace(event, servers=dict.fromkeys(event.servers, Outcome.RECEIPT))
            if isinstance(event, Published)
            else event
            for event in super().events()
        ]


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


class NeverNew(CopyFilter):
    def is_new(self, line: bytes, server: Address, raw: bool, now: float) -> bool:
        return super().is_new(line, server, raw, now) and not line.endswith(b"7")


class AlwaysNew(CopyFilter):
    def is_new(self, line: bytes, server: Address, raw: bool, now: float) -> bool:
        super().is_new(line, server, raw, now)
        return True


def with_copies(kind: type[CopyFilter], **settings: Any) -> Callable[[World], None]:
    """Gives each client another filter, behind its back."""

    def sabotage(world: World) -> None:
        for client in world.clients:
            client.copies = client.core._copies = kind(**settings)

    return sabotage


def _unbounded_gaps(world: World) -> None:
    for client in world.clients:
        client.gaps = client.core._gaps = GapTracker(publishers_max=10**9)


def _stingy(world: World) -> None:
    """Clients publish to fewer servers than the policy says."""
    for client in world.clients:
        client.core.policy = replace(client.core.policy, publish=1)


def _leaky(world: World) -> None:
    """The network loses datagrams and does not count them."""
    carry = world.network._carry
    world.network._carry = (  # type: ignore[method-assign]
        lambda packets, delay_s: None if world.rng.random() < 0.01 else carry(packets, delay_s)
    )


@dataclass
class Sabotage:
    """What is broken, in which weather, and which checker must say so."""

    checker: str
    options: Options = CALM
    server: ServerMaker = Server
    client: ClientMaker = ClientCore
    then: Callable[[World], None] | None = None


SABOTAGES = {
    "datagrams of 1300 bytes": Sabotage("datagram-size", client=Verbose),
    "answers longer than requests": Sabotage("amplification", server=LongWinded),
    "short requests answered": Sabotage("amplification", ATTACKED, server=Obliging),
    "reply verbs answered": Sabotage("amplification", ATTACKED, server=Chatty),
    "two answers to one": Sabotage("amplification", server=AnswersTwice),
    "every cookie good": Sabotage("no-state-before-cookie", ATTACKED, server=Credulous),
    "publish leases for strangers": Sabotage("no-state-before-cookie", server=RemembersAskers),
    "leases without bound": Sabotage("table-bounds", TIGHT, server=Hoarder),
    "lines remembered without bound": Sabotage("table-bounds", TIGHT, then=with_copies(CopyFilter)),
    "publishers followed without bound": Sabotage("table-bounds", TIGHT, then=_unbounded_gaps),
    "copies to whose lease is over": Sabotage("nothing-to-expired-lease", ROUGH, server=NeverForgets),
    "lines of the server's own": Sabotage("nothing-to-expired-lease", server=Gossip),
    "strangers' publishes forwarded": Sabotage("only-vouched-forwarded", ATTACKED, server=Lax),
    "a message invented": Sabotage("nothing-delivered-not-published", client=Inventive),
    "no de-duplication": Sabotage("at-most-once", then=with_copies(AlwaysNew)),
    "a window that is too short": Sabotage("at-most-once", then=with_copies(CopyFilter, window_s=0.001)),
    "a subscriber passed over": Sabotage("complete-delivery", server=Forgetful),
    "a line that is never new": Sabotage("complete-delivery", then=with_copies(NeverNew)),
    "too few servers drawn": Sabotage("complete-delivery", then=_stingy),
    "receipts for everything": Sabotage("receipts-true", ROUGH, client=Boastful),
    "nothing renewed": Sabotage("leased-again", ROUGH, client=Stoic),
    "datagrams a server does not count": Sabotage("drops-accounted", ROUGH, server=Deaf),
    "datagrams a client does not count": Sabotage("drops-accounted", ATTACKED, client=Swallows),
    "datagrams the network does not count": Sabotage("drops-accounted", ROUGH, then=_leaky),
    "an exception": Sabotage("no-exception", replace(CALM, burst=0.5), server=Fragile),
    "a timer that never rests": Sabotage("no-spinning", server=Restless),
}


def run_sabotaged(sabotage: Sabotage) -> None:
    world = World(sabotage.options, make_server=sabotage.server, make_client=sabotage.client)
    if sabotage.then is not None:
        sabotage.then(world)
    run(world)


@pytest.mark.parametrize("name", SABOTAGES)
def test_what_is_broken_is_found(name: str) -> None:
    sabotage = SABOTAGES[name]
    with pytest.raises(InvariantViolation) as caught:
        run_sabotaged(sabotage)
    assert caught.value.checker == sabotage.checker, caught.value
    assert caught.value.seed == sabotage.options.seed and caught.value.time > 0 and caught.value.facts
    assert str(caught.value).startswith(f"{sabotage.checker}: seed 1, at ")


@pytest.mark.parametrize(
    "options", [CALM, ROUGH, ATTACKED, TIGHT], ids=["calm", "rough", "attacked", "tight"]
)
def test_what_is_not_broken_passes(options: Options) -> None:
    run_sabotaged(Sabotage("", options))


def test_a_lease_for_an_old_cookie_is_found() -> None:
    """Clients that renew never show one, so a datagram of long ago comes again."""
    world = World(replace(CALM, clients=1), make_server=TakesOldCookies)
    world.clients[0].subscribe(world.topics[0])
    world.run_for(1.0)
    old = next(p for p in world.network.recent if p.data.startswith(b"%!"))
    world.run_for(200.0)
    world.network.send(Transmit(old.data, len(old.data), (old.destination,)), old.source, "attacker", None)
    with pytest.raises(InvariantViolation, match=r"no-state-before-cookie: .* leases for a cookie of 20"):
        world.run_for(1.0)


def test_a_core_with_chance_of_its_own_is_found() -> None:
    def make(cluster: Any, rng: Random, **settings: Any) -> ClientCore:
        return ClientCore(cluster, Random(), **settings)

    with pytest.raises(InvariantViolation, match="determinism: seed 1"):
        check_determinism(lambda: World(CALM, make_client=make))


def test_a_request_answered_without_its_length_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of 192 bytes, taken out of the product itself: the length check behind it still holds."""
    monkeypatch.setattr(pubsub.server, "REQUEST_BYTES_MIN", 0)
    run_sabotaged(Sabotage("", ATTACKED))


def test_every_checker_is_sabotaged() -> None:
    names = {checker.name for checker in CHECKERS}
    assert len(names) == len(CHECKERS)
    assert names <= {sabotage.checker for sabotage in SABOTAGES.values()}
