"""Names and files of groups on the command line."""

import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcast.client.sealed.key_names import joined
from kcast.pubsub.errors import KcastError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_DASHED_KEY = re.compile(r"-[A-Za-z0-9_-]{42}(\.[A-Za-z0-9_.-]*)?")


def complete_joined(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Returns the groups joined here that begin like this; where there is none, has the shell complete
    files."""
    from click.shell_completion import CompletionItem

    found = [CompletionItem(name) for name in joined() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def complete_owned(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Returns the groups of this user's own that begin like this, for the shell."""
    from click.shell_completion import CompletionItem

    known: list[str] = []
    with suppress(KcastError):
        from kcast.client.sealed.group_owner import owned

        known = owned()
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


class KeyCommand(click.Command):
    """A command whose last argument is a key, which may begin with '-', as one in 64 does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the command line."""
        dashed = [arg for arg in args if _DASHED_KEY.fullmatch(arg)]
        if dashed and "--" not in args:
            args = [*(arg for arg in args if arg not in dashed), "--", *dashed]
        return super().parse_args(ctx, args)


own_argument = click.argument("name", shell_complete=complete_owned)


def shown_path(path: str) -> str:
    """Returns a path as it is typed here: below this folder without what leads to it."""
    with suppress(OSError, ValueError):
        path = str(Path(path).relative_to(Path.cwd()))
    return shlex.quote(path)
