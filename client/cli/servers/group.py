"""The group `kcast servers`: one verb a module, each imported only when it is called."""

import click

from kcast.client.cli.lazy_group import LazyGroup

_HERE = "kcast.client.cli.servers"

# Verbs of those who publish a list, then of those who use one, then of witnesses.
VERBS = {
    "show": (f"{_HERE}.show", "print a list of servers"),
    "witness": (f"{_HERE}.witness", "vouch that a list's log shows everybody the same"),
}


@click.group("servers", cls=LazyGroup, members=VERBS)
def command() -> None:
    """Make, publish and check signed lists of servers.

    A cluster file says which servers there are, and whoever can change it, or withhold it, decides whom
    clients talk to. A signed list is a cluster file that clients can check: keys of its owners sign it, a
    public log records it, and witnesses vouch that all people are shown the same log.

    docs/trust.md is the page to follow, from the first list to a stolen key.
    """
