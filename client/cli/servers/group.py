"""The group `kcast servers`: one verb a module, each imported only when it is called."""

import click

from kcast.client.cli.commands import Commands

_HERE = "kcast.client.cli.servers"

# Verbs of those who publish a list, then of those who use one, then of witnesses.
VERBS = {
    "init": (f"{_HERE}.init", "begin a list: keys, a trust document, a log, version 1"),
    "add": (f"{_HERE}.add", "add servers to a list"),
    "remove": (f"{_HERE}.remove", "remove servers from a list"),
    "sign": (f"{_HERE}.sign", "sign a list, or a trust document, with your keys"),
    "publish": (f"{_HERE}.publish", "publish what a list has become, or renew it"),
    "rotate": (f"{_HERE}.rotate", "change keys, witnesses and rules; throw a stolen key out"),
    "trust": (f"{_HERE}.trust", "begin to trust a list, by its pin"),
    "verify": (f"{_HERE}.verify", "make all checks of a list, and print each"),
    "show": (f"{_HERE}.show", "print a list"),
    "diff": (f"{_HERE}.diff", "what tells two lists apart, and whether their clients meet"),
    "log": (f"{_HERE}.log", "the history of a list, as its public log has it"),
    "head": (f"{_HERE}.head", "the head of a list's log, for kcast serve --head"),
    "evidence": (f"{_HERE}.evidence", "what lies here that shows that a log has lied"),
    "witness": (f"{_HERE}.witness", "vouch that a list's log shows everybody the same"),
}


@click.group("servers", cls=Commands, members=VERBS)
def command() -> None:
    """Make, publish and check signed lists of servers.

    A cluster file says which servers there are, and whoever can change it, or withhold it, decides whom
    clients talk to. A signed list is a cluster file that clients can check: keys of its owners sign it, a
    public log records it, and witnesses vouch that all people are shown the same log.

    docs/trust.md is the page to follow, from the first list to a stolen key.
    """
