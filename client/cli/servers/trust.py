"""`kcast servers trust`: begins to trust a list, by its pin."""

import re
from time import time

import click

from kcast.client.cli.common import EXIT_USAGE, count_of, errors_as_lines, fail, say
from kcast.client.cli.text import escaped, tell
from kcast.client.trust.checks.verdicts import Accepted, Held
from kcast.client.trust.forms import document as documents
from kcast.client.trust.forms.document import DOCUMENT_BYTES_MAX
from kcast.client.trust.forms.note import NoteError
from kcast.client.trust.publisher.editing import EditError
from kcast.client.trust.reach import update
from kcast.client.trust.reach.sources import source_of
from kcast.client.trust.state.store import Store

_VERB = "servers trust"


_PIN = re.compile(r"[A-Za-z0-9_-]{43}")


class _Command(click.Command):
    """A command whose PIN may begin with '-', as one pin in 64 does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = next((at for at, arg in enumerate(args) if arg[0:1] == "-" and _PIN.fullmatch(arg)), None)
        if at is not None and "--" not in args:
            args = [*args[:at], "--", *args[at:]]
        return super().parse_args(ctx, args)


@click.command("trust", cls=_Command)
@click.argument("source", metavar="URL")
@click.argument("pin", required=False)
def command(source: str, pin: str | None) -> None:
    """Trust the list of servers at URL, if its trust document has this PIN.

    The PIN, 43 characters, says which trust document is meant, so that it does not matter by which way that
    comes. Take it from the list's operators, and not from where the list lies. URL is one of http or https,
    or the path of a folder or of a bundle.

    Without a PIN, the one that was seen is shown, and nothing is trusted.

    \b
    Example:
      kcast servers trust https://lists.example.org/lab kTD6gIQP3Kpuiq1pK8qE7ZRvOIX9Vfdt07K_Q-MqR5c
    """
    with errors_as_lines("servers trust"):
        if pin is not None and not _PIN.fullmatch(pin):
            text = f"'{pin}' is no pin, which has 43 characters: take it from the list's operators"
            fail(_VERB, text, EXIT_USAGE)
        place = source_of(source)
        data = place.get("trust/1", DOCUMENT_BYTES_MAX)
        if data is None:
            raise EditError(f"{source}: there is no trust document (trust/1)")
        try:
            document, note = documents.parse(data)
            seen = documents.pin_of(note.text)
            if pin is None:
                fail(
                    _VERB,
                    f"{source} shows {document.name} with the pin {seen}: ask its operators by another "
                    f"way which pin is theirs, and then type: kcast servers trust {source} PIN",
                )
            if seen != pin:
                fail(
                    _VERB,
                    f"{source}: wrong pin: it shows {document.name} with the pin {seen}; nothing was "
                    "trusted: ask its operators which pin is theirs",
                )
            documents.check_first(data, pin)
        except NoteError as error:
            raise EditError(f"{source}: trust/1: {error}") from None
        store = Store(document.name)
        before = store.load()
        is_in_use = before is not None and before.list is not None
        store.begin(Held(data))
        if not is_in_use:
            store.remember_source(source)
        verdict = update.run(store, place, int(time()))
        if not isinstance(verdict, Accepted):
            stands = "what is stored here stays in use" if is_in_use else "it is trusted by its pin now"
            fail(
                _VERB,
                f"{document.name}: {stands}, but this list was refused: {verdict.text} ({verdict.fault})",
            )
        store.remember_source(source)
        facts = (verdict.upcoming or verdict.cluster).signed
        assert facts is not None
        for warning in verdict.warnings:
            say(_VERB, f"{warning.text} ({warning.fault})")
        servers = count_of(len(verdict.cluster.servers), "server")
        tell(
            f"{document.name} is trusted: version {facts.version}, {servers}; use it as --cluster "
            f"@{escaped(document.name)}"
        )
