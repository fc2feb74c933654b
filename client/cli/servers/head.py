"""`kcast servers head`: the head of a list's log, for `kcast serve --head @FILE`."""

import click

from kcast.client.cli.common import errors_as_lines
from kcast.client.cli.servers.names import name_argument, stored
from kcast.client.cli.text import tell
from kcast.client.trust.forms.checkpoint import Checkpoint
from kcast.client.trust.forms.heads import head_of
from kcast.client.trust.publisher.editing import EditError


@click.command("head")
@name_argument
def command(name: str) -> None:
    """Print the head of a list's log, as far as this machine has seen it.

    Servers started with --head @FILE give the text in FILE to clients, who then look whether there is a newer
    list. It is a hint: no client believes it.

    \b
    Example:
      kcast servers head @example.org/lab > lab.head
    """
    with errors_as_lines("servers head"):
        held = stored(name)[1]
        if held.checkpoint is None:
            raise EditError(f"{name}: no list has been seen yet: 'kcast servers verify {name}' fetches it")
        checkpoint = Checkpoint.read(held.checkpoint)
        tell(head_of(checkpoint))
