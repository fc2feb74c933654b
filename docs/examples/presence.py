"""Presence: who is there. Each member says so every few seconds, and the others keep a table of it.

    python presence.py lab.txt anna --room office

Nobody keeps the table for all: a member who comes asks, and the others answer, each after a moment of its
own so that they do not all speak at once. Who says nothing for three and a half heartbeats is taken for gone,
so one lost message, or a server that dies, shows in nobody's table.

Anyone may publish, so the table has a bound, and what cannot be read is left out.
"""

import argparse
import asyncio
import json
import random
import secrets
import signal
import sys
import time
from typing import NamedTuple

from kcast.client.aio import Client, KcastError

SILENT_AFTER = 3.5  # heartbeats
ANSWER_WITHIN_S = 0.5
MEMBERS_MAX = 1000
NAME_CHARS_MAX = 60


class Said(NamedTuple):
    """What a member says. `life` is drawn anew each time its program starts."""

    name: str
    life: str
    what: str  # "here", "who" (here, and who else is?) or "leaving"


def written(said: Said) -> str:
    """Returns the payload."""
    return json.dumps(said)


def read(payload: bytes) -> Said | None:
    """Reads a payload; None where a stranger wrote it."""
    try:
        name, life, what = json.loads(payload)
    except (ValueError, TypeError):
        return None
    is_sound = all(isinstance(each, str) and len(each) <= NAME_CHARS_MAX for each in (name, life, what))
    return Said(name, life, what) if is_sound and name.isprintable() else None


class Table:
    """Who is there, by name. It has no clock of its own."""

    def __init__(self, silent_after_s: float) -> None:
        self._silent_after_s = silent_after_s
        self._members: dict[str, tuple[str, float]] = {}  # name: (life, when it was last heard)

    def hear(self, said: Said, now: float) -> str:
        """Takes what a member says; returns what has changed by it, "" for nothing."""
        life, _ = self._members.get(said.name, ("", 0.0))
        if said.what == "leaving":
            if life != said.life:  # somebody who was not there, or who has started again meanwhile
                return ""
            del self._members[said.name]
            return f"- {said.name} has left"
        if not life and len(self._members) >= MEMBERS_MAX:
            return ""
        self._members[said.name] = said.life, now
        if life in ("", said.life):
            return "" if life else f"+ {said.name} is here"
        return f"+ {said.name} has started again"

    def forget(self, now: float) -> list[str]:
        """Forgets those who have been silent for long; returns what has changed by it."""
        silent = [n for n, (_, at) in self._members.items() if now - at > self._silent_after_s]
        for name in silent:
            del self._members[name]
        return [f"- {name} is silent" for name in silent]


async def take_part(cluster: str, room: str, name: str, heartbeat_s: float) -> None:
    """Tells the room that we are there, and prints who else comes and goes, until it is told to stop."""
    topic, life, table = f"presence/{room}", secrets.token_hex(4), Table(SILENT_AFTER * heartbeat_s)
    async with Client(cluster) as client:

        def say(what: str) -> None:
            client.publish_nowait(topic, written(Said(name, life, what)))

        heard = client.subscribe(topic)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, heard.close)
        await heard.ready(timeout_s=2)  # who asks before would not hear the answers
        say("who")
        beat_at = time.monotonic() + heartbeat_s
        while True:
            try:
                delivery = await heard.get(timeout_s=max(beat_at - time.monotonic(), 0.0))
                if delivery is None:
                    break  # closed
                said = read(delivery.payload)
            except TimeoutError:
                say("here")
                beat_at = time.monotonic() + heartbeat_s * random.uniform(0.9, 1.1)
                said = None
            if said is not None and said.life != life:
                tell([table.hear(said, time.monotonic())])
                if said.what == "who":
                    beat_at = min(beat_at, time.monotonic() + random.uniform(0.0, ANSWER_WITHIN_S))
            tell(table.forget(time.monotonic()))
        say("leaving")


def tell(changes: list[str]) -> None:
    """Prints what has changed."""
    for change in filter(None, changes):
        print(change, flush=True)


def main() -> None:
    """Reads the command line, and takes part."""
    parser = argparse.ArgumentParser(description="Tell others that you are there, and see who else is.")
    parser.add_argument("cluster", help="a cluster file, or a context")
    parser.add_argument("name")
    parser.add_argument("--room", default="hall")
    parser.add_argument("--heartbeat", type=float, default=2.0, help="seconds from one to the next")
    given = parser.parse_args()
    if not 0 < len(given.name) <= NAME_CHARS_MAX or not given.name.isprintable():
        parser.error(f"name: give 1 to {NAME_CHARS_MAX} printable characters")
    try:
        asyncio.run(take_part(given.cluster, given.room, given.name, given.heartbeat))
    except (KcastError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
