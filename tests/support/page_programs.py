"""Makes whole programs of the Python examples of a page, for asyncio and for blocking clients.

An example that makes its own client is a program already. Any other stands where a client is open:

    async with Client("lab.txt") as client:
        ...

Of one that both drivers can run, the page shows asyncio's, and says how to derive the other; `blocking` does
what it says.
"""

import re
from textwrap import indent

from tests.support.pages import Example, PageError

_FRAME = """\
import asyncio
from kcast import Client

async def main():
    async with Client("lab.txt") as client:
{example}
asyncio.run(main())
"""

# What the guide tells readers to do, in its "Which client".
_TO_BLOCKING = (
    (re.compile(r"\basync (?=with |for |def )"), ""),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"^(from kcast import .*)\bClient\b", re.MULTILINE), r"\1BlockingClient as Client"),
    (re.compile(r"\bkcast\.client\.aio\b"), "kcast.client.blocking"),
    (re.compile(r"^( *)import asyncio$", re.MULTILINE), r"\1import time"),
    (re.compile(r"\basyncio\.sleep\("), "time.sleep("),
    (re.compile(r"^asyncio\.run\(main\(\)\)$", re.MULTILINE), "main()"),
)

DRIVERS = ("asyncio", "blocking")


def programs(example: Example) -> dict[str, str]:
    """Returns the example's program for each driver that it is for, by the driver's name.

    Raises PageError where its comment says something else, or what should be for both is not.
    """
    if example.comment.startswith("saved as"):
        return {}  # the shell's blocks write and run it
    if example.comment not in ("", *DRIVERS):
        raise PageError(f"line {example.line}: {example.comment!r} says nothing about an example")
    if example.comment == "blocking":
        return {"blocking": _whole(example.text, blocking(_FRAME))}
    both = {"asyncio": _whole(example.text, _FRAME)}
    if not example.comment:
        both["blocking"] = blocking(both["asyncio"])
        if "asyncio" in both["blocking"]:
            raise PageError(f"line {example.line}: a blocking client cannot do this: mark it `asyncio`")
    return both


def blocking(program: str) -> str:
    """Returns a program for asyncio as one that blocks."""
    for pattern, instead in _TO_BLOCKING:
        program = pattern.sub(instead, program)
    return program


def _whole(example: str, frame: str) -> str:
    if re.search(r"\bClient\(", example):
        return example
    return frame.format(example=indent(example, " " * 8))
