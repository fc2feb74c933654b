"""What a server tells its operator: lines on standard error, for people or (`--log json`) for programs.

Each line begins with the time, in UTC. What clients can cause is only counted. A line tells how much the
counters have grown, at most every few seconds, so nobody can fill a disk by sending datagrams. No line has a
cookie, message, topic or client's address in it.

The log must not stop the server: a line that standard error does not take at once is lost.
"""

import json
import os
import select
import socket
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import UnsupportedOperation
from typing import NamedTuple

from kcast.pubsub.drops import HARMLESS, STEPS
from kcast.pubsub.server import Server
from kcast.pubsub.udp import UdpPort

REPORT_INTERVAL_S = 5.0


class Log:
    """Writes the lines. `label` tells apart the servers of one command."""

    def __init__(self, *, as_json: bool = False, label: str = "") -> None:
        self._as_json = as_json
        self._label = label

    def labelled(self, label: str) -> "Log":
        """Returns the same log with a label, for one of several servers."""
        return Log(as_json=self._as_json, label=label)

    def info(self, event: str, text: str, **fields: object) -> None:
        """Tells something. `event` names it for programs, `text` tells people, `fields` are figures."""
        self._write("info", event, text, fields)

    def warning(self, event: str, text: str, **fields: object) -> None:
        """Tells something to look into."""
        self._write("warning", event, text, fields)

    def error(self, event: str, text: str, **fields: object) -> None:
        """Tells why the server ends, or does not start."""
        self._write("error", event, text, fields)

    def announcement(self, event: str, text: str, **fields: object) -> str:
        """Returns the line for standard output that tells something to whoever started the server."""
        return f"{self._as_object('info', event, text, fields) if self._as_json else f'kcast: {text}'}\n"

    def _write(self, level: str, event: str, text: str, fields: Mapping[str, object]) -> None:
        if self._as_json:
            line = self._as_object(level, event, text, fields)
        else:
            line = f"{_now()} kcast serve{' ' + self._label if self._label else ''}: {_printable(text)}"
        _write_to_stderr(line + "\n")

    def _as_object(self, level: str, event: str, text: str, fields: Mapping[str, object]) -> str:
        named = {"server": self._label} if self._label else {}
        return to_json({"time": _now(), "level": level, "event": event, "text": text, **named, **fields})


def to_json(fields: Mapping[str, object]) -> str:
    """Returns an object in one line of printable ASCII, so that no terminal acts on it."""
    return json.dumps(fields).replace("\x7f", "\\u007f")


def _printable(text: str) -> str:
    """Returns the text with everything escaped that a terminal could act on."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _now() -> str:
    """Returns the time in UTC, in ISO 8601 with milliseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1_000_000:03}Z"


def _write_to_stderr(line: str) -> None:
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):
        try:
            descriptor = sys.stderr.fileno()
        except UnsupportedOperation:  # a replacement that has no descriptor
            sys.stderr.write(line)
            return
        _write_at_once(descriptor, line.encode(errors="backslashreplace"))


def _write_at_once(descriptor: int, data: bytes) -> None:
    """Writes what can be written without waiting. In a pipe, up to PIPE_BUF bytes stay in one piece.

    To check first whether there is room is not enough for a pipe or socket that others write to: they may
    fill it in between.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.send(data, socket.MSG_DONTWAIT)
        return
    if stat.S_ISFIFO(mode):
        # Opened anew, because O_NONBLOCK on the descriptor would apply to all processes that share it.
        own = None
        with suppress(OSError):
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
        if own is not None:
            try:
                os.write(own, data)
            finally:
                os.close(own)
            return
    # A file, a terminal, or a pipe of another user: checking first is all that can be done.
    if select.select([], [descriptor], [], 0)[1]:
        os.write(descriptor, data)


# --- What was dropped or refused ---------------------------------------------------------------------


class Losses(NamedTuple):
    """What a server and its sockets have dropped or refused since they began, by reason or errno's name."""

    drops: Counter[str]
    refusals: Counter[str]
    overflows: int
    send_errors: Counter[str]
    receive_errors: Counter[str]

    @classmethod
    def of(cls, server: Server, ports: Sequence[UdpPort]) -> "Losses":
        """Reads the counters. Any thread may call it."""
        # `dict` copies in one step; in a loop, another thread could add a key meanwhile.
        drops = Counter({str(reason): count for reason, count in dict(server.drops).items()})
        send_errors: Counter[str] = Counter()
        receive_errors: Counter[str] = Counter()
        for port in ports:
            drops["link-local"] += port.link_local_count
            drops["sieve"] += port.sieved_count
            send_errors.update(dict(port.send_errors))
            receive_errors.update(dict(port.receive_errors))
        return cls(
            drops=drops,
            refusals=Counter(dict(server.refusals)),
            overflows=sum(port.overflow_count for port in ports),
            send_errors=send_errors,
            receive_errors=receive_errors,
        )

    def since(self, before: "Losses") -> "Losses":
        """Returns what has been added since `before`."""
        return Losses(
            drops=self.drops - before.drops,
            refusals=self.refusals - before.refusals,
            overflows=self.overflows - before.overflows,
            send_errors=self.send_errors - before.send_errors,
            receive_errors=self.receive_errors - before.receive_errors,
        )

    def drops_and_harmless(self) -> tuple[Counter[str], Counter[str]]:
        """Splits `drops`: what was really dropped, by reason; and the rest, by what people call it."""
        drops, harmless = self.drops.copy(), Counter[str]()
        for reason, name in HARMLESS.items():
            harmless[name] += drops.pop(reason, 0)
        return +drops, +harmless


class Report:
    """Tells what was dropped or refused since the last call, if anything was."""

    def __init__(self, log: Log, read: Callable[[], Losses]) -> None:
        self._log = log
        self._read = read
        self._told = read()

    def __call__(self) -> None:
        """Writes at most one line of each kind."""
        losses = self._read()
        new = losses.since(self._told)
        drops, _ = new.drops_and_harmless()
        if drops or new.refusals:
            dropped, refused = listed(without_steps(drops)), listed(without_steps(new.refusals))
            parts = [f"dropped {dropped}"] if dropped else []
            parts += [f"refused {refused}"] if refused else []
            parts += steps(new.refusals)
            self._log.info("drops", "; ".join(parts), drops=drops, refusals=new.refusals)
        if new.overflows:
            self._log.warning(
                "overflow",
                f"the receive buffer was full: the kernel dropped {new.overflows} or more (--receive-buffer)",
                overflows=new.overflows,
            )
        if new.send_errors or new.receive_errors:
            parts = [f"not sent {listed(new.send_errors)}"] if new.send_errors else []
            parts += [f"failed receives {listed(new.receive_errors)}"] if new.receive_errors else []
            self._log.warning(
                "errors",
                "; ".join(parts),
                send_errors=dict(new.send_errors),
                receive_errors=dict(new.receive_errors),
            )
        self._told = losses


def without_steps(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns what was dropped or refused, but for the steps of a conversation."""
    return {name: count for name, count in counts.items() if name not in STEPS}


def steps(refusals: Mapping[str, int]) -> list[str]:
    """Returns how often clients were told what to do instead, in words."""
    return [f"{words}: {refusals[reason]}" for reason, words in STEPS.items() if refusals.get(reason)]


def listed(counts: Mapping[str, int]) -> str:
    """Returns `reason=count` for all that are not 0, in alphabetical order."""
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items()) if count)
