"""`kcast reply`: answers requests on a topic, by a text, by what was asked, or by a command."""

import asyncio
import os
import shlex
import shutil
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
            await service.wait()


async def _run_command(words: list[str], request: Request) -> bytes:
    environment = {
        "KCAST_METHOD": request.method,
        "KCAST_TOPIC": os.fsdecode(request.topic),
        "KCAST_SENDER": request.sender or "",
        "KCAST_LEFT_MS": str(int(request.left_s * 1000)),
    }
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        printed, _ = await process.communicate(request.payload)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        raise
    if process.returncode:
        raise RemoteError("failed", f"exit code {process.returncode}")
    return printed.removesuffix(b"\n")
