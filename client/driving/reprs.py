"""The reprs of what a program holds of a client: topics, leases, servers. They never raise, and are short."""

from collections import Counter
from collections.abc import Sequence
from reprlib import repr as shortened
from typing import Any

from kcast.client.driving.engine import Engine
from kcast.client.driving.inbox import DeliveryInbox, Inbox

TOPICS_MAX = 3  # that are named


class Described:
    """Has `_description` in its repr. Threads may change what that reads, without a lock."""

    def __repr__(self) -> str:
        try:
            return f"<{type(self).__module__}.{type(self).__qualname__}: {self._description()}>"
        except Exception:  # it changes just now, or is half made
            return object.__repr__(self)

    def _description(self) -> str:
        raise NotImplementedError


def of_client(engine: Engine) -> str:
    """Returns the cluster, its servers by their states, topics and leases, and whether the client is open."""
    cluster, inboxes = engine.cluster, engine.recipients.subscribed()
    states = Counter(engine.core.server_states().values() if engine.is_open else ())
    told = ", ".join(f"{states[state]} {state}" for state in ("alive", "suspected", "lost") if states[state])
    name = shortened(cluster.name or str(cluster.path or "a cluster"))
    servers = f"{len(cluster.servers)} servers of {name}" + f" ({told})" * bool(told)
    return ", ".join((_state(engine), servers, *_of_subscribed(inboxes)))


def _state(engine: Engine) -> str:
    if engine.is_forked or engine.failure is not None:
        return "forked" if engine.is_forked else "failed"
    return "open" if engine.is_open else "closed" if engine.has_been_open else "not open"


def of_inbox(inbox: Inbox[Any], topics: Sequence[bytes] = ()) -> str:
    """Returns the topics of an inbox or of its sources, how many of their leases stand, and what waits."""
    inboxes = [each for each in (inbox, *inbox.sources) if isinstance(each, DeliveryInbox)]
    return ", ".join(
        (*_of_subscribed(inboxes, topics), "ended" if inbox.is_ended else f"{len(inbox.items)} waiting")
    )


def of_topics(topics: Sequence[bytes]) -> str:
    """Returns some of these topics, and how many more there are."""
    shown = " ".join(map(shortened, topics[:TOPICS_MAX]))
    return shown + f" and {len(topics) - TOPICS_MAX} more" * (len(topics) > TOPICS_MAX)


def _of_subscribed(inboxes: Sequence[DeliveryInbox], topics: Sequence[bytes] = ()) -> list[str]:
    topics = topics or list(dict.fromkeys(topic for inbox in inboxes for topic in inbox.topics))
    leased, wanted = (sum(inbox.leases[number] for inbox in inboxes) for number in (0, 1))
    return [of_topics(topics)] * bool(topics) + [f"{leased} of {wanted} leases"] * bool(wanted)
