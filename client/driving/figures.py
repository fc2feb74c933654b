"""All figures of a client at one moment, as JSON takes them."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from kcast.client.core import COUNTS, ClientCore
from kcast.client.driving.inbox import DeliveryInbox
from kcast.client.events import Drop, Outcome


def figures(
    core: ClientCore, subscribed: Collection[DeliveryInbox], kernel_drops: int, send_errors: Mapping[str, int]
) -> dict[str, Any]:
    """Returns what `kcast.client.driving.base.ClientBase.counters` tells."""
    states = Counter(core.server_states().values())
    return {
        **{name: core.counts[name] for name in COUNTS},
        "kernel_drops": kernel_drops,
        "queued": sum(len(inbox.items) for inbox in {inbox.target for inbox in subscribed}),
        "leases": sum(inbox.leases[0] for inbox in subscribed),
        "leases_wanted": sum(inbox.leases[1] for inbox in subscribed),
        "outcomes": {outcome.value: core.outcomes[outcome] for outcome in Outcome},
        "drops": {reason.value: core.drops[reason] for reason in Drop},
        "send_errors": dict(send_errors),
        "servers": {state: states[state] for state in ("alive", "suspected", "lost")},
    }
