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
from kcast.client.cli.common import (
    argument_bytes,
    cluster_option,
    errors_as_lines,
    say,
    topic_argument,
    value_option,
)
from kcast.client.cli.layers import Limit, Opened, opened, proof_options
from kcast.client.driving.mailboxes import Request
from kcast.client.layers.words import is_method

Handler = Callable[[Request], Awaitable[bytes]]


@click.command("reply")
@click.argument("topic")
@click.argument("text", required=False)
@cluster_option
@click.option("--echo", is_flag=True, help="Answer what was asked.")
@click.option(
    "--command",
    "words",
    metavar="CMD",
    help="Answer what a command prints; it reads what was asked.",
)
@click.option("-m", "--method", "methods", multiple=True, metavar="METHOD", help="A method that it has.")
@value_option("-C --count", click.IntRange(min=1), "End after N requests.", unit="N")
@value_option("--concurrency", click.IntRange(min=1), "Requests that run at a time.", 16, "N")
@value_option(
    "--limit", Limit(), "Answer no sender more than COUNT requests in SECONDS.", unit="COUNT/SECONDS"
)
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
        name = topic_argument(topic)
        begun = opened("reply", name, cluster_name, proof)
        content = argument_bytes(text or "")

        async def answer(request: Request) -> bytes:
            return await _run_command(split, request) if split else request.payload if echo else content

        serving = _Serving(answer, count)
        asyncio.run(_run(begun, name, serving, methods or ("",), concurrency, limit))
        sys.exit(0)


async def _run(
    begun: Opened,
    topic: bytes,
    serving: "_Serving",
    methods: tuple[str, ...],
    concurrency: int,
    limit: FixedWindow | None,
) -> None:
    async with begun.client as client:
        handlers = dict.fromkeys(methods, serving.handle)
        service = client.service(topic, handlers, concurrency=concurrency, limit=limit, senders=begun.senders)
        async with service:
            say("reply", f"{service.name} answers")
            ends = [asyncio.create_task(each) for each in (service.wait(), serving.enough.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in ends:
                task.cancel()


class _Serving:
    """Counts what was answered; `enough` is set once that is so."""

    def __init__(self, answer: Handler, count: int | None) -> None:
        self.enough = asyncio.Event()
        self._answer = answer
        self._left = count

    async def handle(self, request: Request) -> bytes:
        """Answers a request."""
        try:
            return await self._answer(request)
        finally:
            if self._left is not None:
                self._left -= 1
                if self._left <= 0:
                    self.enough.set()


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
