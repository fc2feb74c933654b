"""Cover traffic of `kcast pub`: what is typed, and how long it goes on."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import click

from kcast.client.aio import Client, Cover, Published
from kcast.client.cli.common import Number, count_of, say, several, value_option
from kcast.client.cli.protection import require
from kcast.client.driving.arguments import CoverOptions, WriteOptions
from kcast.client.errors import ClientClosed
from kcast.pubsub.errors import KcastError

RATE_MAX = 1000.0  # as `kcast.client.sealed.cover` has it, which is imported only where it is needed


cover_options = several(
    value_option(
        "--cover cover_rate",
        Number(0, RATE_MAX, min_open=True),
        "With --seal: send RATE lines a second, messages or dummies, until Ctrl-C.",
        unit="RATE",
    ),
    value_option(
        "--size cover_size",
        click.IntRange(0),
        "With --cover: make all lines as long as one with a message of N bytes.",
        unit="N",
    ),
    value_option(
        "--for cover_s", Number(0, min_open=True), "With --cover: end after this time.", unit="SECONDS"
    ),
)
"""Adds `--cover`, `--size` and `--for`, as parameters `cover_rate`, `cover_size` and `cover_s`."""


def covering(
    rate: float | None, size: int | None, for_s: float | None, *, repeat: int, is_sealed: bool
) -> "Covering | None":
    """Returns what the options ask for; None for no cover traffic. Raises click.UsageError."""
    require(rate is None and size is not None, "--size", "--cover")
    require(rate is None and for_s is not None, "--for", "--cover")
    require(rate is not None and size is None, "--cover", "--size")
    require(rate is not None and not is_sealed, "--cover", "--seal")
    if rate is None or size is None:
        return None
    return Covering(CoverOptions(rate=rate, size=size, repeat=repeat), for_s)


class Covering:
    """Cover traffic on one topic. `unsent` is the number of messages that have not had their tick in time."""

    def __init__(self, options: CoverOptions, for_s: float | None) -> None:
        self.unsent = 0
        self._options = options
        self._for_s = for_s
        self._cover: Cover

    def begin(self, client: Client, topic: bytes, options: WriteOptions) -> None:
        """Begins it. Raises KcastError."""
        given: Any = {name: value for name, value in options.items() if name != "seal"}
        try:
            self._cover = client.cover(topic, **self._options, **given)
        except ValueError as error:
            raise KcastError(str(error)) from None

    async def run(self, reading: Coroutine[Any, Any, None]) -> None:
        """Goes on after the end of what is read, until it is time to end it all."""
        task = asyncio.create_task(reading)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._for_s):
                    await task
                    await asyncio.Event().wait()
        finally:
            self._cover.close()

    async def publish(self, payload: bytes) -> Published:
        """Returns what became of a message, once it has had its tick."""
        told = self._cover.put(payload)
        try:
            return await told
        except asyncio.CancelledError:  # by Ctrl-C, which has closed the cover traffic before
            if told.done() and not told.cancelled() and isinstance(told.exception(), ClientClosed):
                self.unsent += 1
            raise

    def too_large(self, size_bytes: int) -> str:
        """Returns what to say of a message that is larger than what is kept of lines."""
        from kcast.client.sealed.cover import too_large

        return too_large(size_bytes, self._options["size"])

    def summarise(self) -> None:
        """Says what went wrong."""
        if self.unsent:
            say("pub", f"{count_of(self.unsent, 'message')} had not had a tick at the end, and did not leave")
        if self._cover.skipped:
            say("pub", f"skipped {count_of(self._cover.skipped, 'tick')} of cover traffic: it was too late")
