"""The messages that `kcast pub` takes from its standard input or from a file, read as they come."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import NamedTuple

LINE_KEPT_BYTES = 65_536
_READ_BYTES = 65_536


class InputLine(NamedTuple):
    """A line of input without its LF. If it is longer than 64 KiB, `data` is empty."""

    number: int | None
    data: bytes
    size_bytes: int


async def just(message: bytes) -> AsyncIterator[InputLine]:
    """Yields one message."""
    yield InputLine(None, message, len(message))


async def read_lines(fd: int) -> AsyncIterator[InputLine]:
    """Yields a descriptor's lines as they come, the last also without LF; never stops the event loop."""
    number, size_bytes = 1, 0
    kept = bytearray()
    while chunk := await _read(fd):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            size_bytes += len(part)
            kept += part
            yield InputLine(number, bytes(kept) if size_bytes <= LINE_KEPT_BYTES else b"", size_bytes)
            number, size_bytes = number + 1, 0
            kept.clear()
        size_bytes += len(rest)
        if size_bytes <= LINE_KEPT_BYTES:
            kept += rest
        else:
            kept.clear()
    if size_bytes:
        yield InputLine(number, bytes(kept) if size_bytes <= LINE_KEPT_BYTES else b"", size_bytes)


async def read_whole(fd: int) -> AsyncIterator[InputLine]:
    """Yields all that a descriptor gives as one message; never stops the event loop."""
    size_bytes = 0
    kept = bytearray()
    while chunk := await _read(fd):
        size_bytes += len(chunk)
        kept += chunk[: max(0, LINE_KEPT_BYTES + 1 - len(kept))]
    yield InputLine(None, bytes(kept) if size_bytes <= LINE_KEPT_BYTES else b"", size_bytes)


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(fd, readable.set)
    except PermissionError:  # a file: it cannot be watched, and is always readable
        return _read_now(fd)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return _read_now(fd)


def _read_now(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard input") from None
