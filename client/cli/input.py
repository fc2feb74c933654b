"""The messages that `kcast pub` takes from its standard input or from a file, read as they come."""

import asyncio
import os
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from kcast.client.cli.common import say
from kcast.client.messages.lines import wire_topic_of
from kcast.pubsub.errors import KcastError
from kcast.pubsub.wire import TopicError

LINE_KEPT_BYTES = 65_536
_READ_BYTES = 65_536


class Lines(NamedTuple):
    """Lines of input in a row, without their LF; `first` is the number of the first, None where there are no
    lines.

    A line longer than 64 KiB comes alone: `size_bytes` is its size, and `data` is empty bytes. `why` says why
    all of the input is one message, where nobody has asked for that.
    """

    first: int | None
    data: Sequence[bytes]
    size_bytes: int = 0
    why: str = ""


class Run(NamedTuple):
    """Lines of one topic, in order; the rest is as in `Lines`. A line that has no topic comes alone, with
    `why`."""

    topic: bytes
    numbers: Sequence[int | None]
    payloads: Sequence[bytes]
    size_bytes: int = 0
    why: str = ""

    def part(self, some: slice) -> "Run":
        """Returns some of the lines."""
        return self._replace(numbers=self.numbers[some], payloads=self.payloads[some])


def runs(lines: Lines, topic: bytes | None, together_max: int) -> Iterator[Run]:
    """Yields lines as many together as may be, by topic where each line has its own."""
    first, data, size_bytes, why = lines
    numbers = [None] if first is None else range(first, first + len(data))
    whole = [Run(topic, numbers, data, size_bytes, why)] if topic else _by_topic(numbers, data)
    for run in whole:
        for start in range(0, len(run.payloads), together_max):
            yield run.part(slice(start, start + together_max))


def _by_topic(numbers: Sequence[int | None], lines: Sequence[bytes]) -> list[Run]:
    """Returns what `topic SP message` publishes (PROTOCOL §4.1), with the message as it is."""
    found: dict[bytes, tuple[list[int | None], list[bytes]]] = {}
    malformed: list[Run] = []
    for number, line in zip(numbers, lines, strict=True):
        start, space, message = (line.removeprefix(BOM_UTF8) if number == 1 else line).partition(b" ")
        topic = unquote_to_bytes(start)
        try:
            if not space:
                raise TopicError("expected a topic, a space, and a message")
            if topic not in found:
                wire_topic_of(topic, is_own=False)
                found[topic] = [], []
        except TopicError as error:
            malformed.append(Run(b"", [number], [line], why=str(error)))
            continue
        found[topic][0].append(number)
        found[topic][1].append(message)
    return [*malformed, *(Run(topic, *each) for topic, each in found.items())]


async def just(message: bytes) -> AsyncIterator[Lines]:
    """Yields one message."""
    yield Lines(None, [message])


async def read_lines(fd: int, *, is_text: bool) -> AsyncIterator[Lines]:
    """Yields a descriptor's lines as they come, those that come together at once, the last also without LF;
    never stops the event loop.

    If it `is_text`, NUL says that there are no lines: all of it is one message. Raises KcastError if lines
    have been yielded before.
    """
    number, size_bytes = 1, 0  # of the line that has not ended yet
    kept = bytearray()
    while chunk := await _read(fd):
        if is_text and b"\0" in chunk:
            if number > 1:
                raise KcastError(
                    f"there is a NUL byte in line {number} of standard input or later, so this is no text: "
                    "nothing from there on is published. -f FILE publishes a file as one message, -l lines "
                    "of any bytes"
                )
            say(
                "pub",
                "the input holds a NUL byte: all of it is one message, once it ends; -l publishes lines",
            )
            async for whole in read_whole(fd, bytes(kept) + chunk):
                yield whole._replace(why="it holds a NUL byte")
            return
        *ended, rest = chunk.split(b"\n")
        if ended and size_bytes:
            size_bytes += len(ended[0])
            ended[0] = bytes(kept) + ended[0]
            if size_bytes > LINE_KEPT_BYTES:
                del ended[0]
                yield Lines(number, [b""], size_bytes)
                number += 1
            size_bytes = 0
            kept.clear()
        if ended:
            yield Lines(number, ended)
            number += len(ended)
        size_bytes += len(rest)
        kept += rest if size_bytes <= LINE_KEPT_BYTES else b""
    if size_bytes:
        yield _last(number, kept, size_bytes, "" if number > 1 else "it has no LF")


async def read_whole(fd: int, begun: bytes = b"") -> AsyncIterator[Lines]:
    """Yields all that a descriptor gives, after what is read already, as one message; never stops the event
    loop."""
    size_bytes = len(begun)
    kept = bytearray(begun)
    while chunk := await _read(fd):
        size_bytes += len(chunk)
        kept += chunk[: max(0, LINE_KEPT_BYTES + 1 - len(kept))]
    yield _last(None, kept, size_bytes)


def _last(number: int | None, kept: bytes | bytearray, size_bytes: int, why: str = "") -> Lines:
    if size_bytes > LINE_KEPT_BYTES:
        return Lines(number, [b""], size_bytes, why)
    return Lines(number, [bytes(kept)], why=why)


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
