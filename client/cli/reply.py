"""`kcast reply`: answers requests on a topic, by a text, by what was asked, or by a command."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import click

from kcast.client.aio import FixedWindow, RemoteError
from kcast.client.cli.common import argument_bytes, cluster_option, errors_as_lines, say, value_option
from kcast.client.cli.layers import Opened, limit_option, opened, proof_options
from kcast.client.driving.arguments import ServiceOptions
from kcast.client.driving.mailboxes import Request
from kcast.client.layers.parts import ANSWER_BYTES_MAX
from kcast.client.layers.words import is_method

Answer = Callable[[Request], Awaitable[bytes]]


@click.command("reply")
@click.argument("topic")
@click.argument("text", required=False)
@cluster_option
@click.option("--echo", is_flag=True, help="Answer what was asked.")
@value_option("--command words", str, "Answer what a command prints; it reads what was asked.", unit="CMD")
@click.option("-m", "--method", "methods", multiple=True, metavar="METHOD", help="A method that it has.")
@value_option("-C --count", click.IntRange(min=1), "End after N requests.", unit="N")
@value_option("--concurrency", click.IntRange(min=1), "Requests that run at a time.", 16, "N")
@limit_option("Answer no sender more than COUNT requests in SECONDS.")
@proof_options("those who may ask")
def command(
    topic: str,
    text: str | None,
    cluster_name: str | None,
    echo: bool,
    words: str | None,
    methods: tuple[str, ...],
    count: int | None,
    concurrency: int,
    limit: FixedWindow | None,
    **proof: Any,
) -> None:
    """Answer requests on TOPIC (kcast request) until Ctrl-C or --count.

    Several of these on one topic share the requests: callers choose the one that has least to do for them,
    and go to another one if it dies.

    A sender is a key with --from or --seal, else a process: each `kcast request` is a new one to --limit.

    CMD is split as a shell does it, and run without one; a LF at the end of what it prints is left out. It
    finds KCAST_METHOD, KCAST_TOPIC, KCAST_SENDER (the caller's key, if that is proven) and KCAST_LEFT_MS in
    its environment. If its exit code is not 0, the caller is told `failed`; if it takes longer than the
    caller waits, it is killed.

    \b
    Examples: the time, a sum, and an echo for two methods
      kcast reply --cluster lab.cluster clock --command date
      kcast reply --cluster lab.cluster calc -m add --command 'xargs expr'
      kcast reply --cluster lab.cluster test --echo -m one -m two
    """
    if sum((text is not None, echo, words is not None)) != 1:
        raise click.UsageError("give TEXT, --echo or --command, and one of them only")
    for method in methods:
        if not method or not is_method(method):
            raise click.UsageError("-m: a method has 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    try:
        split = shlex.split(words or "")
    except ValueError as error:
        raise click.UsageError(f"--command: {error}") from None
    if words is not None and (not split or shutil.which(split[0]) is None):
        raise click.UsageError(f"--command: there is no program {split[0] if split else ''}".rstrip())
    with errors_as_lines("reply"):
        begun = opened("reply", topic, cluster_name, proof)
        content = argument_bytes(text or "")

        async def answer(request: Request) -> bytes:
            return await _run_command(split, request) if split else request.payload if echo else content

        options = ServiceOptions(concurrency=concurrency, limit=limit, senders=begun.senders)
        asyncio.run(_run(begun, answer, methods or ("",), count, options))
        sys.exit(0)


async def _run(
    begun: Opened, answer: Answer, methods: tuple[str, ...], count: int | None, options: ServiceOptions
) -> None:
    answered = 0
    closing: asyncio.Task[None] | None = None

    async def handle(request: Request) -> bytes:
        nonlocal answered, closing
        try:
            return await answer(request)
        finally:
            answered += 1
            if answered == count:
                closing = asyncio.create_task(service.close())

    async with begun.client as client:
        service = client.service(begun.topic, dict.fromkeys(methods, handle), **options)
        async with service:
            say("reply", f"{service.name} answers")
            try:
                await begun.until_first("reply", service.wait())
            finally:
                begun.report_drops("reply")


async def _run_command(words: list[str], request: Request) -> bytes:
    environment = {
        "KCAST_METHOD": request.method,
        "KCAST_TOPIC": os.fsdecode(request.topic),
        "KCAST_SENDER": request.sender or "",
        "KCAST_LEFT_MS": str(int(request.left_s * 1000)),
    }
    try:
        transport, program = await asyncio.get_running_loop().subprocess_exec(
            _Program, *words, stderr=None, env=os.environ | environment, start_new_session=True
        )
    except OSError as error:
        why = error.strerror or str(error)
        say("reply", f"{words[0]}: {why}")
        raise RemoteError("failed", why) from None
    try:
        stdin = transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        stdin.write(request.payload)
        stdin.close()
        await program.over.wait()
    finally:
        if not program.has_ended:
            with suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
            await program.exited.wait()  # or it would be told to an event loop that is closed
        transport.close()
    if len(program.printed) > ANSWER_BYTES_MAX + 1:
        raise RemoteError("size", f"the answer has more than {ANSWER_BYTES_MAX} bytes")
    if code := transport.get_returncode():
        raise RemoteError("failed", f"exit code {code}")
    return program.printed.removesuffix(b"\n")


class _Program(asyncio.SubprocessProtocol):
    """A program that answers: what it has printed, as much as an answer may have. It is `over` once it has
    exited and nobody who has its output runs, or once it has printed too much."""

    def __init__(self) -> None:
        self.printed = b""
        self.exited, self.over = asyncio.Event(), asyncio.Event()
        self.has_ended = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.printed += data
        if len(self.printed) > ANSWER_BYTES_MAX + 1:
            self.over.set()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.has_ended = True
        self.over.set()
