"""What commands take of a context, and of the variable KCAST_SEAL, where nobody types it."""

import os
from typing import Any

from kcast.client.cli.common import say, tried
from kcast.client.clusters import contexts
from kcast.client.sealed import key_names
from kcast.client.source import context_of

SEAL_VARIABLE = "KCAST_SEAL"  # the group for which messages are sealed, where no option names one


def fill_in(given: dict[str, Any], cluster_name: str | None) -> bool:
    """Puts what a context holds, and KCAST_SEAL, in place of options that were not given: `group_name`,
    `key_name`, and of those that the command has `is_signed` and, for those who read, `senders`.

    An empty `group_name` is for no group. Returns whether it has overridden one. Raises ContextError.
    """
    name = context_of(cluster_name)
    held = contexts.options(name) if name else []
    preset = dict(held)
    seal, typed = os.environ.get(SEAL_VARIABLE) or preset.get("--seal"), given["group_name"]
    given["group_name"] = (seal if typed is None else typed) or None
    is_writing = "is_signed" in given
    if is_writing:
        given["is_signed"] = given["is_signed"] or "--sign" in preset
    elif not given.get("senders", True):
        given["senders"] = tuple(value for option, value in held if option == "--from")
    if given["key_name"] is None and (given["group_name"] or given.get("is_signed")):
        given["key_name"] = preset.get("--key")
    return bool(seal) and typed == ""


def tell_of_clear_text(command: str) -> None:
    """Says that a message goes in clear, to a user who has groups."""
    if names := key_names.joined():
        say(command, f"in clear, so anybody can read it: --seal GROUP seals for one of yours: {tried(names)}")
