"""Presence: who is there. Each member says so every few seconds, and the others keep a table of it.

    python presence.py anna --room office --cluster lab.txt

Nobody keeps the table for all: a member who comes asks, and the others answer, each after a moment of its
own so that they do not all speak at once. Who says nothing for three and a half heartbeats is taken for gone,
so one lost message, or a server that dies, shows in nobody's table.

Anyone may publish, and say what another would: so the table has a bound, what cannot be read is left out, and
"leaving" is believed only until the next heartbeat.
"""

import argparse
import asyncio
import json
import random
import secrets
import signal
import sys
import time
from contextlib import suppress
from typing import NamedTuple

from kcast.client.aio import AllServersLost, Client, Delivery, KcastError, ServerReturned

SILENT_AFTER = 3.5  # heartbeats
ANSWER_WITHIN_S = 0.5
MEMBERS_MAX = 1000
NAME_CHARS_MAX = 60
PAYLOAD_BYTES_MAX = 600  # more than ours have

HERE, WHO, LEAVING = "here", "who", "leaving"  # "who" is: I am here, and who else is?


class Said(NamedTuple):
    """What a member says. `life` is drawn anew each time its program starts."""

    name: str
    life: str
    what: str


def written(said: Said) -> str:
    """Returns the payload."""
    return json.dumps(said)


def read(payload: bytes) -> Said | None:
    """Reads a payload; None where it is none of ours."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        return None
    try:
        name, life, what = json.loads(payload)
    except (ValueError, TypeError):
        return None
    if what not in (HERE, WHO, LEAVING) or not all(isinstance(each, str) and each for each in (name, life)):
        return None
    return Said(name, life, what) if len(name) <= NAME_CHARS_MAX and name.isprintable() else None


class Table:
    """Who is there, by life: two may have one name. It has no clock of its own."""

    def __init__(self, silent_after_s: float) -> None:
        self._silent_after_s = silent_after_s
        self._members: dict[str, tuple[str, float]] = {}  # life: (name, when it was last heard)

    def hear(self, said: Said, now: float) -> str:
        """Takes what a member says; returns what has changed by it, "" for nothing."""
        is_known = said.life in self._members
        if said.what == LEAVING:
            return f"- {self._members.pop(said.life)[0]} has left" if is_known else ""
        if not is_known and len(self._members) >= MEMBERS_MAX:
            return ""
        self._members[said.life] = said.name, now
        return "" if is_known else f"+ {said.name} is here"

    def wait_anew(self, now: float) -> None:
        """Gives all who were there the time to be heard again."""
        self._members = {life: (name, now) for life, (name, _) in self._members.items()}

    def forget(self, now: float) -> list[str]:
        """Forgets those who have been silent for long; returns what has changed by it."""
        silent = [life for life, (_, at) in self._members.items() if now - at > self._silent_after_s]
        return [f"- {self._members.pop(life)[0]} is silent" for life in silent]


async def take_part(cluster: str | None, room: str, name: str, heartbeat_s: float) -> None:
    """Tells the room that we are there, and prints who else comes and goes, until it is told to stop."""
    topic, life, table = f"presence/{room}", secrets.token_hex(4), Table(SILENT_AFTER * heartbeat_s)
    asked, are_lost = asyncio.Event(), False
    async with Client(cluster) as client:

        def say(what: str) -> None:
            client.publish_nowait(topic, written(Said(name, life, what)))

        async def beat() -> None:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asked.wait(), heartbeat_s * random.uniform(0.9, 1.1))
                    await asyncio.sleep(random.uniform(0.0, ANSWER_WITHIN_S))
                asked.clear()
                say(HERE)
                if not are_lost:  # else all would fall silent
                    tell(table.forget(time.monotonic()))

        heard = client.subscribe(topic)
        both = client.stream(heard, client.events())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, both.close)
        await heard.ready(timeout_s=2)  # who asks before would not hear the answers
        say(WHO)
        beating = asyncio.create_task(beat())
        async for item in both:
            match item:
                case AllServersLost():
                    are_lost = True
                    tell(["? no server answers: nobody knows who is there"])
                case ServerReturned() if are_lost:
                    are_lost = False
                    table.wait_anew(time.monotonic())
                    tell(["? servers answer again"])
                case Delivery(payload=payload):
                    said = read(payload)
                    if said is not None and said.life != life:
                        tell([table.hear(said, time.monotonic())])
                        if said.what == WHO:
                            asked.set()
        beating.cancel()
        say(LEAVING)


def tell(changes: list[str]) -> None:
    """Prints what has changed."""
    for change in filter(None, changes):
        print(change, flush=True)


def main() -> None:
    """Reads the command line, and takes part."""
    parser = argparse.ArgumentParser(description="Tell others that you are there, and see who else is.")
    parser.add_argument("name")
    parser.add_argument("--cluster", help="a cluster file, or a context; by default what KCAST_CLUSTER names")
    parser.add_argument("--room", default="hall")
    parser.add_argument("--heartbeat", type=float, default=2.0, help="seconds from one to the next")
    given = parser.parse_args()
    if given.heartbeat <= 0:
        parser.error("--heartbeat: give more than 0")
    if not 0 < len(given.name) <= NAME_CHARS_MAX or not given.name.isprintable():
        parser.error(f"name: give 1 to {NAME_CHARS_MAX} printable characters")
    try:
        asyncio.run(take_part(given.cluster, given.room, given.name, given.heartbeat))
    except (KcastError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
