"""What a server tells whoever runs it: lines on standard error, for people or (`--log json`) for programs.

Whatever clients can cause is counted, and told as what has been added to the counters, every few seconds
at most: so nobody can fill a disk by sending datagrams. Cookies, messages, topics and clients' addresses are
in no line.

A log must not stop a server: what standard error does not take at once is lost.
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

from kcast.pubsub.server import Drop, Server
from kcast.pubsub.udp import UdpPort

REPORT_INTERVAL_S = 5.0

# Dropped in the normal course of things: a publish that nobody listens to is no reason for a line.
_ROUTINE = frozenset((Drop.NO_SUBSCRIBER.value,))


class Log:
    """Writes the lines. `label` tells one server from others of the same command."""

    def __init__(self, *, as_json: bool = False, label: str = "") -> None:
        self._as_json = as_json
        self._label = label

    def labelled(self, label: str) -> "Log":
        """The same log, for one of several servers."""
        return Log(as_json=self._as_json, label=label)

    def info(self, event: str, text: str, **fields: object) -> None:
        """Something to know. `event` names it for programs, `text` says it to people, fields hold figures."""
        self._write("info", event, text, fields)

    def warning(self, event: str, text: str, **fields: object) -> None:
        """Something to look into."""
        self._write("warning", event, text, fields)

    def error(self, event: str, text: str, **fields: object) -> None:
        """Why the server ends, or does not start."""
        self._write("error", event, text, fields)

    def _write(self, level: str, event: str, text: str, fields: Mapping[str, object]) -> None:
        if self._as_json:
            named = {"server": self._label} if self._label else {}
            line = to_json({"time": _now(), "level": level, "event": event, "text": text, **named, **fields})
        else:
            line = f"kcast serve{' ' + self._label if self._label else ''}: {_printable(text)}"
        _write_to_stderr(line + "\n")


def to_json(fields: Mapping[str, object]) -> str:
    """One object in one line, ASCII alone, so that no terminal acts on it."""
    return json.dumps(fields).replace("\x7f", "\\u007f")


def _printable(text: str) -> str:
    """The text with all that a terminal could act on escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _now() -> str:
    """UTC in ISO 8601, to the millisecond."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1_000_000:03}Z"


def _write_to_stderr(line: str) -> None:
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):
        try:
            descriptor = sys.stderr.fileno()
        except UnsupportedOperation:  # something that stands in for it
            sys.stderr.write(line)
            return
        _write_at_once(descriptor, line.encode(errors="backslashreplace"))


def _write_at_once(descriptor: int, data: bytes) -> None:
    """Writes what goes without waiting; into a pipe up to PIPE_BUF bytes in one piece, whoever else writes.

    To look whether there is room would not do where others write to the same pipe or socket: one of them may
    fill it meanwhile.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.send(data, socket.MSG_DONTWAIT)
        return
    if stat.S_ISFIFO(mode):
        # Opened anew, since O_NONBLOCK on the descriptor would be for all who share it.
        own = None
        with suppress(OSError):
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
        if own is not None:
            try:
                os.write(own, data)
            finally:
                os.close(own)
            return
    # A file, a terminal, or a pipe of another user's: there, what is said above remains.
    if select.select([], [descriptor], [], 0)[1]:
        os.write(descriptor, data)


# --- What did not get through ------------------------------------------------------------------------


class Losses(NamedTuple):
    """All that a server and its sockets did not do, since they began, by reason or errno's name."""

    drops: Counter[str]
    refusals: Counter[str]
    overflows: int
    send_errors: Counter[str]
    receive_errors: Counter[str]

    @classmethod
    def of(cls, server: Server, ports: Sequence[UdpPort]) -> "Losses":
        """Reads the counters; any thread may."""
        # `dict` copies without letting another thread run, where a loop could meet a new key.
        drops = Counter({str(reason): count for reason, count in dict(server.drops).items()})
        send_errors: Counter[str] = Counter()
        receive_errors: Counter[str] = Counter()
        for port in ports:
            drops["link-local"] += port.link_local_count
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
        """What has been added."""
        return Losses(
            drops=self.drops - before.drops,
            refusals=self.refusals - before.refusals,
            overflows=self.overflows - before.overflows,
            send_errors=self.send_errors - before.send_errors,
            receive_errors=self.receive_errors - before.receive_errors,
        )


class Report:
    """Tells what was lost since it was last called, if that is worth a line."""

    def __init__(self, log: Log, read: Callable[[], Losses]) -> None:
        self._log = log
        self._read = read
        self._told = read()

    def __call__(self) -> None:
        """Writes at most one line of each kind."""
        losses = self._read()
        new = losses.since(self._told)
        if new.drops.keys() - _ROUTINE or new.refusals:
            parts = [f"dropped {listed(new.drops)}"] if new.drops else []
            parts += [f"refused {listed(new.refusals)}"] if new.refusals else []
            self._log.info("drops", "; ".join(parts), drops=dict(new.drops), refusals=dict(new.refusals))
        elif new.drops:
            losses = losses._replace(drops=self._told.drops)  # to be told with the next that is worth it
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


def listed(counts: Mapping[str, int]) -> str:
    """`reason=count` for all that are not 0, in the order of the alphabet."""
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items()) if count)
