"""Names of signed lists on the command line: `@example.org/lab`."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kcast.client.trust.store import Store
    from kcast.client.trust.verdicts import Held


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Returns the names of known lists that begin like this, for the shell."""
    from click.shell_completion import CompletionItem

    from kcast.client.trust.places import known_names

    return [CompletionItem(f"@{name}") for name in known_names() if f"@{name}".startswith(incomplete)]


name_argument = click.argument("name", metavar="@NAME", shell_complete=complete_names)


def stored(name: str) -> "tuple[Store, Held]":
    """Returns the state of a list that this user trusts. Raises KcastError where there is none."""
    from kcast.client.resembling import did_you_mean
    from kcast.client.trust.places import StateError, known_names
    from kcast.client.trust.store import Store

    bare = name.removeprefix("@")
    store = Store(bare)
    held = store.load()
    if held is None:
        known = known_names()
        raise StateError(
            f"@{bare}: no list of this name is trusted here{did_you_mean(bare, known)}: 'kcast servers trust "
            "URL PIN' begins that"
        )
    return store, held
