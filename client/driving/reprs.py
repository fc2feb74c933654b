"""The reprs of what a program holds of a client: topics, leases, servers. They never raise, and are short."""

from collections.abc import Callable, Sequence
from reprlib import repr as shortened
from typing import Any

from kcast.client.driving.engine import Engine
from kcast.client.driving.inbox import DeliveryInbox, Inbox

TOPICS_MAX = 3  # that are named


def described(thing: object, describe: Callable[[], str]) -> str:
    """Returns the repr of a thing. What `describe` reads may change meanwhile, and need not be there yet."""
    try:
        return f"<{type(thing).__module__}.{type(thing).__qualname__}: {describe()}>"
    except Exception:
        return object.__repr__(thing)


def of_client(engine: Engine) -> str:
    """Returns whether a client is open, its servers, its topics and its leases."""
    cluster = engine.cluster
    name = shortened(cluster.name or str(cluster.path or "?"))
    lost = list(engine.core.server_states().values()).count("lost")
    servers = f"{len(cluster.servers)} servers of {name}, {lost} lost"
    state = "open" if engine.is_open else "not open"
    return ", ".join([state, servers, *_of_subscribed(engine.recipients.subscribed())])


def of_inbox(inbox: Inbox[Any], topics: Sequence[bytes] = ()) -> str:
    """Returns the topics of an inbox or of its sources, how many of their leases stand, and what waits."""
    inboxes = [each for each in (inbox, *inbox.sources()) if isinstance(each, DeliveryInbox)]
    waits = "ended" if inbox.is_ended else f"{len(inbox.items)} waiting"
    return ", ".join([*_of_subscribed(inboxes, topics), waits])


def of_topics(topics: Sequence[bytes]) -> str:
    """Returns some of these topics, and how many more there are."""
    more = len(topics) - TOPICS_MAX
    return " ".join(map(shortened, topics[:TOPICS_MAX])) + f" and {more} more" * (more > 0)


def _of_subscribed(inboxes: Sequence[DeliveryInbox], topics: Sequence[bytes] = ()) -> list[str]:
    topics = topics or list(dict.fromkeys(topic for inbox in inboxes for topic in inbox.topics()))
    leased, wanted = (sum(inbox.leases[number] for inbox in inboxes) for number in (0, 1))
    return [of_topics(topics)] * bool(topics) + [f"{leased} of {wanted} leases"] * bool(wanted)
