"""What commands that go on running say when the cluster file, the signed list, or a group changes."""

from kcast.client.cli.times import utc
from kcast.client.events import ClusterChanged, ClusterRefused, GroupTrouble, ListChanged, ListTrouble

News = ClusterChanged | ClusterRefused | GroupTrouble | ListChanged | ListTrouble


def told(event: News) -> str:
    """Returns one line, with the servers that were added and removed."""
    match event:
        case ClusterRefused(reason):
            return f"{reason}; going on with the cluster as it was"
        case ClusterChanged(added, removed):
            return f"the cluster file has changed: {_changes(added, removed)}"
        case ListChanged(name, version, added, removed, from_unix_s):
            later = "" if from_unix_s is None else f"; publishers go by it from {utc(from_unix_s)} on"
            return f"{name}: version {version} of the server list: {_changes(added, removed)}{later}"
        case GroupTrouble(group, fault, text):
            return f"group {group}: {text} ({fault})"
        case ListTrouble(name, fault, text, kept, evidence):
            stays = "" if kept is None else f"; version {kept} stays in use"
            return f"{name}: {text} ({fault}){stays}{evidence and f'. Evidence: {evidence}'}"


def _changes(added: tuple[str, ...], removed: tuple[str, ...]) -> str:
    changes = [*(f"+{server}" for server in added), *(f"-{server}" for server in removed)]
    return ", ".join(changes) or "the same servers"
