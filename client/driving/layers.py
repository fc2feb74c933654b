"""Runs layers (`kcast.client.layers`) in an engine's turns: what they hear, and when they are due."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kcast.client.core import ClientCore
from kcast.client.driving.arguments import ReadOptions
from kcast.client.driving.inbox import DeliveryInbox
from kcast.client.driving.lazy_protection import LazyProtection
from kcast.client.driving.recipients import Recipients
from kcast.client.errors import ClientClosed
from kcast.client.events import Delivery, Drop
from kcast.client.layers.limit import FixedWindow
from kcast.client.messages.guard_and_writer import Guard
from kcast.pubsub import clock

if TYPE_CHECKING:  # which who runs no layer need not import
    from kcast.client.layers.host import Layer

AnyLayer = TypeVar("AnyLayer", bound="Layer")

logger = logging.getLogger(__name__)


class LayerInbox(DeliveryInbox):
    """Gives deliveries to a layer within the turn, and is its host (`kcast.client.layers.host.Host`). What
    comes, and a change of its leases, makes the layer due."""

    layer: "Layer"

    def __init__(self, layers: "Layers", core: ClientCore, on_over: Callable[[], object]) -> None:
        super().__init__(self, 1)
        self.is_called = True  # so that no stream takes it over
        self.rng: Random = core.rng
        self.drops: Counter[Drop] = core.drops
        self.on_over = on_over
        self.at = -inf  # when the layer is due
        self.has_failed = False
        self._layers, self._core = layers, core

    def put(self, items: Sequence[Delivery]) -> Sequence[object]:
        """Lets the layer hear them."""
        now = clock.now()
        try:
            for item in items:
                self.layer.hear(item, now)
            self.wake()
        except Exception:
            self._fail()
        return ()

    def call(self, function: Callable[[Any], object], item: Any, /) -> None:
        """Is never called: the inbox gives its items to the layer."""

    def wake(self) -> None:
        """Lets the layer do what is due, and what it has published leave, with the next turn."""
        self.at = self._layers.next_at = -inf

    def handle_timeout(self, now: float) -> None:
        """Lets the layer do what is due."""
        try:
            self.layer.handle_timeout(now)
            self.at = self.layer.next_at
        except Exception:
            self._fail()

    def _fail(self) -> None:
        logger.exception("a layer has failed, and ends: %r", self.layer)
        self.has_failed = True
        self.wake()

    def publish(self, topic: bytes, payload: bytes, now: float) -> None:
        """Publishes without receipts, signed and sealed as the client's messages are."""
        protection = self._layers.protection
        writer = None if protection.made is None else protection.writer(topic, {}, now, is_raw=False)
        self._core.publish(topic, payload, now, confirm=False, writer=writer)

    def each_leases(self) -> Sequence[tuple[int, int]]:
        """Returns the numbers of each topic's leases."""
        return [self._leases.get(topic, (0, 0)) for topic in self.layer.topics]


class _Engine(Protocol):
    """What layers need of the engine in whose turns they run."""

    core: ClientCore
    recipients: Recipients

    def begin(self) -> float:
        """Returns the time of a call. Raises ClientClosed."""

    def guard(self, topics: Sequence[bytes], options: ReadOptions, limit: FixedWindow | None) -> Guard | None:
        """Returns what judges the messages of a subscription."""

    def subscribe(self, topics: Sequence[bytes], inbox: DeliveryInbox) -> None:
        """Subscribes to all topics."""

    def unsubscribe(self, topics: Sequence[bytes], inbox: DeliveryInbox) -> None:
        """Ends an inbox."""


class Layers:
    """The layers of a client. `next_at` is when to `look`; infinite for never. `send` is called once there
    may be something to send from outside of a turn."""

    def __init__(self, engine: _Engine, protection: LazyProtection) -> None:
        self.next_at = inf
        self.send: Callable[[], object] = lambda: None
        self._engine = engine
        self.protection = protection
        self._inboxes: dict[Layer, LayerInbox] = {}

    def run(
        self,
        make: Callable[[LayerInbox], AnyLayer],
        senders: Iterable[str] | None,
        on_over: Callable[[], object],
        limit: FixedWindow | None = None,
        guard_of: Callable[[AnyLayer], Guard | None] | None = None,
    ) -> AnyLayer:
        """Makes a layer, and runs it, with the guard that a subscription to its topics has, until it is over;
        then `on_over` is called. Raises what `subscribe` raises, also for a limit that it goes by.

        With `guard_of` it has the guard that this returns.
        """
        engine = self._engine
        inbox = LayerInbox(self, engine.core, on_over)
        inbox.layer = layer = make(inbox)
        if guard_of is None:
            inbox.guard = engine.guard(layer.topics, {} if senders is None else {"senders": senders}, limit)
        else:
            inbox.guard = guard_of(layer)
        engine.recipients.unheard = self._topics().union(layer.topics)
        engine.subscribe(layer.topics, inbox)
        self._inboxes[layer] = inbox
        inbox.wake()
        self.send()
        return layer

    def use(self, layer: "Layer", act: Callable[[float], object]) -> None:
        """Acts on a layer, at the time of the call, if it still runs. Raises ClientClosed."""
        now = self._engine.begin()
        if layer in self._inboxes:
            act(now)
            self._inboxes[layer].wake()
            self.send()

    def stop(self, layer: "Layer") -> None:
        """Ends a layer's leases, and its turns."""
        inbox = self._inboxes.pop(layer, None)
        if inbox is not None:
            self._engine.unsubscribe(layer.topics, inbox)
            self._engine.recipients.unheard = self._topics()
            inbox.on_over()

    def look(self, now: float) -> None:
        """Lets those layers do what is due that are due."""
        for inbox in [inbox for inbox in self._inboxes.values() if inbox.at <= now]:
            if not inbox.has_failed:
                inbox.handle_timeout(now)
            if inbox.has_failed:
                inbox.layer.end(partial(ClientClosed, "a layer of this client has failed: the log says why"))
            if inbox.has_failed or inbox.layer.is_over:
                self.stop(inbox.layer)
        self.next_at = min((inbox.at for inbox in self._inboxes.values()), default=inf)

    def close(self, make_error: Callable[[], Exception]) -> None:
        """Ends all layers; who waits for them is given the error."""
        for inbox in list(self._inboxes.values()):
            inbox.layer.end(make_error)
            inbox.on_over()
        self._inboxes.clear()

    def _topics(self) -> frozenset[bytes]:
        return frozenset(topic for inbox in self._inboxes.values() for topic in inbox.layer.topics)
