"""Names of signed lists on the command line: `@example.org/lab`."""

import click
from click.shell_completion import CompletionItem

from kcast.client.cli.common import complete_lists
from kcast.client.trust.checks.verdicts import Held
from kcast.client.trust.reach.opening import unknown
from kcast.client.trust.state.places import StateError
from kcast.client.trust.state.store import Store


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the names of known lists that begin like this, for the shell."""
    return complete_lists(incomplete)


name_argument = click.argument("name", metavar="@NAME", shell_complete=complete_names)


def stored(name: str) -> tuple[Store, Held]:
    """Returns the state of a list that this user trusts. Raises KcastError where there is none."""
    store = Store(name.removeprefix("@"))
    held = store.load()
    if held is None:
        raise StateError(unknown(store.name))
    return store, held
