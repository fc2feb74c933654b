"""What commands that go on running say when the cluster file changes."""

from kcast.client.events import ClusterChanged, ClusterRefused


def told(event: ClusterChanged | ClusterRefused) -> str:
    """Returns one line, with the servers that were added and removed."""
    if isinstance(event, ClusterRefused):
        return f"{event.reason}; going on with the cluster as it was"
    changes = [*(f"+{server}" for server in event.added), *(f"-{server}" for server in event.removed)]
    return f"the cluster file has changed: {', '.join(changes) or 'the same servers'}"
