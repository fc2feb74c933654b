"""`kcast request`: asks a worker of a topic, or all of them, and prints the answer."""

import asyncio
import sys
from typing import Any

import click

from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    Output,
    argument_bytes,
    cluster_option,
    errors_as_lines,
    fail,
    say,
    value_option,
)
from kcast.client.cli.input import LINE_KEPT_BYTES
from kcast.client.cli.layers import Opened, opened, proof_options, require_server
from kcast.client.cli.text import escaped, text_fields, to_json
from kcast.client.driving.arguments import RequestOptions
from kcast.client.errors import NoWorker, RemoteError, RequestTimeout
from kcast.client.layers.calls import Reply
from kcast.client.layers.words import is_member, is_method
from kcast.pubsub.errors import KcastError

EXIT_REMOTE = 4


@click.command("request")
@click.argument("topic")
@click.argument("payload", required=False)
@cluster_option
@click.option("-m", "--method", default="", metavar="METHOD", help="The method, where workers have several.")
@value_option(
    "-W --timeout timeout_s", Number(0, 3600, min_open=True), "Give up after this time.", 5.0, "SECONDS"
)
@click.option("--to", metavar="NAME", help="Ask this worker alone.")
@click.option("--all", "of_all", is_flag=True, help="Ask each worker that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print each answer as a JSON object, and a LF.")
@proof_options("the workers that are to be believed")
def command(
    topic: str,
    payload: str | None,
    cluster_name: str | None,
    method: str,
    timeout_s: float,
    to: str | None,
    of_all: bool,
    as_json: bool,
    **proof: Any,
) -> None:
    """Ask a worker of TOPIC (kcast reply), and print its answer.

    PAYLOAD is what the worker is given; with - it is read from standard input, by default it is empty. A
    worker that does not answer is asked twice, and then another one. So a request may be done twice.

    A LF is added to each answer. With --all each answer begins with the worker's name and a TAB. With --json
    the keys are worker, sender (the key that proves it, or null), attempts and payload (or payload_base64, if
    it is not UTF-8); of a worker that declines, worker (null unless --all or --to named it), code and text.

    The exit code is 0 if there is an answer, 1 if there is none in time, and 4 if the worker declines. With
    --all it is 0 if all answer.

    \b
    Examples: an answer, and one of each worker
      kcast request --cluster lab.cluster calc '1 + 2' -m add
      kcast request --cluster lab.cluster clock --all
    """
    if to is not None and of_all:
        raise click.UsageError("--to asks one worker, and --all each of them: give one of them")
    if to is not None and not is_member(to):
        raise click.UsageError("--to: a worker's name has 11 characters; 'kcast who' shows them")
    if not is_method(method):
        raise click.UsageError("-m: a method has 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    with errors_as_lines("request", closed_pipe_exit=EXIT_FAILURE):
        begun = opened("request", topic, cluster_name, proof)
        content = _read_all() if payload == "-" else argument_bytes(payload or "")
        options = RequestOptions(method=method, timeout_s=timeout_s, senders=begun.senders)
        if to is not None:
            options["to"] = to
        printer = _Printer(Output(), as_json, with_name=of_all)
        sys.exit(asyncio.run(_run(begun, content, options, printer)))


def _read_all() -> bytes:
    """Returns standard input, as much as shows that it is too large for a message."""
    if sys.stdin is None:
        fail("request", "standard input is closed: give PAYLOAD, or something to read")
    return sys.stdin.buffer.read(LINE_KEPT_BYTES)


async def _run(begun: Opened, payload: bytes, options: RequestOptions, printer: "_Printer") -> int:
    async with begun.client as client:
        try:
            if printer.with_name:
                found = await client.request_all(begun.topic, payload, **options)
            else:
                reply = await client.request_nowait(begun.topic, payload, **options)
                found = {reply.worker: reply}
        except RemoteError as error:
            found = {options.get("to") or "": error}
        except (NoWorker, RequestTimeout) as error:
            begun.report_drops("request")
            require_server("request", client)
            is_unheard = isinstance(error, NoWorker) or not error.worked
            if is_unheard and begun.senders is not None and begun.credentials.identity is None:
                say("request", "a worker may take only signed requests: try --sign")
            raise
        return max([await printer.print(name, each) for name, each in sorted(found.items())])


class _Printer:
    """Prints what workers say."""

    def __init__(self, output: Output, as_json: bool, *, with_name: bool) -> None:
        self._output, self._as_json, self.with_name = output, as_json, with_name

    async def print(self, name: str, found: Reply | KcastError) -> int:
        """Prints an answer, or says why there is none; returns the exit code."""
        match found:
            case Reply(payload, _, sender, attempts):
                shown = escaped(payload).encode() if self._output.is_terminal else payload
                fields = {"sender": sender, "attempts": attempts, **text_fields("payload", payload)}
                await self._write(name, shown, fields)
                return 0
            case RemoteError(code=code, text=text) if self._as_json:
                await self._write(name, b"", {"code": code, "text": text})
        said = str(found)
        if isinstance(found, RemoteError) and found.code == "limited":
            said = f"limited: it takes no more from you for {found.text} s"
        say("request", f"{name}: {said}" if self.with_name else said)
        return EXIT_REMOTE if isinstance(found, RemoteError) else EXIT_FAILURE

    async def _write(self, name: str, shown: bytes, fields: dict[str, object]) -> None:
        if self._as_json:
            shown = to_json({"worker": name or None, **fields}).encode()
        elif self.with_name:
            shown = name.encode() + b"\t" + shown
        await self._output.write(shown + b"\n")
