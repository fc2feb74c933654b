"""Shared by the commands: options, topics and files, text for people, errors in one line, output."""

import asyncio
import errno
import io
import math
import os
import select
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from kcast.client.cli import file_news
from kcast.client.cli.text import escaped
from kcast.client.clusters import cluster as clusters
from kcast.client.clusters import contexts
from kcast.client.clusters.cluster import Cluster, ClusterError
from kcast.client.clusters.watch import Watch
from kcast.client.errors import place
from kcast.client.source import CLUSTER_VARIABLE, Source, find
from kcast.client.source import named as named_source
from kcast.client.trust.extras import MissingExtra
from kcast.client.trust.extras import how_to_install as how_to_install  # for commands of other packages
from kcast.client.trust.state import places
from kcast.hashring.policy import Policy
from kcast.pubsub import clock
from kcast.pubsub.errors import KcastError, named
from kcast.pubsub.wire import encode_topic

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
TRIED_SHOWN_MAX = 5

_PIPE_WRITE_BYTES = 4096  # a writable pipe takes as much without blocking: PIPE_BUF on Linux
_Command = TypeVar("_Command", bound=Callable[..., Any])


# --- Options -----------------------------------------------------------------------------------------


class Number(click.FloatRange):
    """A finite number in a range; click alone would accept `nan`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number, or ends with a usage error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


FILE, FOLDER = click.Path(dir_okay=False, path_type=Path), click.Path(file_okay=False, path_type=Path)


def value_option(
    names: str, kind: Any, text: str, default: Any = None, unit: str | None = None, **more: Any
) -> Callable[[_Command], _Command]:
    """Adds an option that takes a value. `names` are what click takes for names, with spaces between them,
    and `more` what else it takes."""
    text += " May be given several times." if "multiple" in more else ""
    more |= {"default": default, "show_default": default is not None, "metavar": unit, "help": text}
    return click.option(*names.split(), type=kind, **more)


def several(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Returns a decorator that adds these options, in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def cluster_option(command: _Command) -> _Command:
    """Adds the option `--cluster` as parameter `cluster_name`, which `load_cluster` takes."""
    return click.option(
        "--cluster",
        "cluster_name",
        metavar="FILE|@NAME|CONTEXT",
        shell_complete=complete_cluster,
        help="The cluster file, the name of a signed list, or that of a context. "
        f"[default: what the variable {CLUSTER_VARIABLE} names, else the context in use]",
    )(command)


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Returns the contexts that begin like this, for the shell."""
    from click.shell_completion import CompletionItem

    try:
        known = contexts.names()
    except ClusterError:
        known = []
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


def complete_lists(incomplete: str) -> "list[CompletionItem]":
    """Returns the signed lists that are known here whose `@NAME` begins like this, for the shell."""
    from click.shell_completion import CompletionItem

    known = (f"@{name}" for name in places.known_names())
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


def complete_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Returns this user's keys that begin like this; where there is none, has the shell complete files."""
    from click.shell_completion import CompletionItem

    from kcast.client.sealed.key_names import known

    found = [CompletionItem(name) for name in known() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def complete_cluster(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Returns the contexts that begin like this; where there is none, has the shell complete files."""
    from click.shell_completion import CompletionItem

    if incomplete.startswith("@"):
        return complete_lists(incomplete)
    return complete_contexts(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]


def load_cluster(command: str, cluster_name: str | None) -> Cluster:
    """Returns the cluster; if none is named, ends the program and says what to do. Raises ClusterError."""
    return _read(command, _cluster_source(command, cluster_name), is_watched=False)


def load_cluster_if_named(command: str, cluster_name: str | None) -> Cluster | None:
    """Returns the cluster; None if neither option, variable nor context names one. Raises ClusterError."""
    source = find(cluster_name)
    return _read(command, source, is_watched=False) if source else None


def load_cluster_to_use(command: str, cluster_name: str | None, *, is_watched: bool = True) -> Cluster:
    """Returns the cluster; says if it has fewer hosts than its policy wants. What is wrong with a signed list
    is said here only where it is not watched. Raises ClusterError."""
    source = _cluster_source(command, cluster_name)
    cluster = _read(command, source, is_watched=is_watched)
    wanted, servers, hosts = cluster.policy.k, len(cluster.servers), len(cluster.hosts)
    if cluster.policy.placement != "ring" or hosts >= wanted:
        return cluster
    text = f"the policy wants {wanted} hosts, there {'is 1' if hosts == 1 else f'are {hosts}'}"
    if servers > hosts and not cluster.is_lab:
        counted = f"{servers} servers on {count_of(hosts, 'host')} count as {'one' if hosts == 1 else hosts}"
        text = f"{counted} ({text}); for several hosts on one machine add a line 'lab'"
    elif cluster.policy == Policy():
        fitting = f"policy k={hosts} publish={hosts // 2 + 1} subscribe={hosts}"
        text += f"; without a line 'policy' it is {cluster.policy}, and for {count_of(hosts, 'host')} "
        text += f"you can write '{fitting}'"
    say(command, f"{source.name}: {text}")
    return cluster


def _read(command: str, source: Source, *, is_watched: bool) -> Cluster:
    """Reads a cluster, of a signed list a newer one if it is time for that. A command may end before a client
    has fetched it."""
    troubles = source.refresh()
    cluster = source.read()
    for trouble in troubles if is_watched else (*troubles, *source.troubles()):
        say(command, file_news.told(trouble))
    return cluster


def to_watch(cluster: Cluster) -> Cluster | Path | str:
    """Returns what to give a client that runs for long: the file, or the signed list's name, so that it
    adopts what changes; the cluster itself where that came from a pipe, which cannot be read again."""
    if cluster.is_signed:
        return f"@{cluster.name}"
    return cluster.path if cluster.path is not None and cluster.path.is_file() else cluster


def watch_of(cluster: Cluster) -> Watch | None:
    """Returns a watch on what a cluster was read from, for what runs for long without a client; None where it
    cannot change. Raises ClusterError."""
    what = to_watch(cluster)
    if isinstance(what, Cluster):
        return None
    source = named_source(what)
    if cluster.is_signed:
        source.read()
    return source.watch(cluster, clock.now(), dict)


def _cluster_source(command: str, cluster_name: str | None) -> Source:
    source = find(cluster_name)
    if source is None:
        fail(
            command,
            f"no cluster: give --cluster FILE, set {CLUSTER_VARIABLE} to it, or name it with 'kcast context "
            f"add'. A cluster file begins with the line '{clusters.HEADER}'; then each server has a line "
            "'server IP:PORT'. If all servers are on one machine, add a line 'lab'",
            EXIT_USAGE,
        )
    return source


def argument_bytes(text: str) -> bytes:
    """Returns a command line argument as the bytes that were typed, UTF-8 or not."""
    return os.fsencode(text)


def topic_argument(text: str) -> bytes:
    """Returns a topic from the command line. Raises TopicError before anything is opened or sent."""
    topic = argument_bytes(text)
    encode_topic(topic)
    return topic


# --- Text for people ---------------------------------------------------------------------------------


def count_of(count: int, noun: str) -> str:
    """Returns `1 message`, `2 messages`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tried(names: Sequence[str]) -> str:
    """Returns the names of the servers that were asked, at most five."""
    shown = ", ".join(names[:TRIED_SHOWN_MAX])
    return shown + (f" and {len(names) - TRIED_SHOWN_MAX} more" if len(names) > TRIED_SHOWN_MAX else "")


def nobody_answers(cluster: Cluster, names: Iterable[str], asked_at: Mapping[str, Sequence[str]]) -> str:
    """Returns what to say if none of these servers answers, which were asked at these addresses."""
    whose = f"server of {escaped(cluster.name)}" if cluster.name else "server"
    asked = tried([place(name, asked_at.get(name, ())) for name in names])
    return f"no {whose} answers (tried {asked}); 'kcast doctor' finds out why"


# --- Errors ------------------------------------------------------------------------------------------


def say(command: str, text: str, at: str = "") -> None:
    """Prints a line on standard error, even if nobody reads it; after the time, if that is given."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:  # `print` would take standard output for it
            print(f"{at}{at and ' '}kcast {command}: {escaped(text)}", file=sys.stderr, flush=True)


def fail(command: str, text: str, exit_code: int = EXIT_FAILURE) -> NoReturn:
    """Says why, and ends the program."""
    say(command, text)
    sys.exit(exit_code)


@contextmanager
def errors_as_lines(command: str, closed_pipe_exit: int = 0) -> Iterator[None]:
    """Turns the errors that users can meet into one line and an exit code."""
    try:
        yield
    except MissingExtra as error:
        fail(command, str(error), EXIT_USAGE)
    except KcastError as error:
        fail(command, str(error), EXIT_USAGE if error.is_misuse else EXIT_FAILURE)
    except BrokenPipeError:
        forget_stdout()
        sys.exit(closed_pipe_exit)
    except OSError as error:
        try:
            sys.stdout.flush()
        except (OSError, ValueError, AttributeError):
            forget_stdout()
        what = error.strerror or str(error)
        fail(command, f"{os.fsdecode(error.filename)}: {what}" if error.filename else what)
    except KeyboardInterrupt:
        with suppress(OSError):
            sys.stdout.flush()
        sys.exit(EXIT_INTERRUPTED)


def forget_stdout() -> None:
    """Sends standard output nowhere: Python flushes it at the end, and would complain again."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def descriptor(stream: IO[Any], what: str) -> int:
    """The number by which the system knows a stream. Raises OSError if it has none."""
    try:
        return stream.fileno()
    except io.UnsupportedOperation:
        raise OSError(
            f"{what} is an object of Python's and no file of the system: run kcast as a program of its own, "
            "or use kcast.Client"
        ) from None


# --- Output from within an event loop ----------------------------------------------------------------


class Output:
    """Standard output for a program that must not stop while a reader is slow, or its leases would end.

    When `write` returns, all has been handed to the system. Raises BrokenPipeError, also for what is no pipe.
    """

    def __init__(self) -> None:
        if sys.stdout is None:
            raise OSError("standard output is closed")
        self._fd = descriptor(sys.stdout, "standard output")
        self._turn = asyncio.Lock()
        self.is_terminal = os.isatty(self._fd)
        mode = os.fstat(self._fd).st_mode
        self._is_file = stat.S_ISREG(mode)
        self._is_pipe = stat.S_ISFIFO(mode)

    async def write(self, data: bytes) -> None:
        """Writes all of it; waits for a slow reader without stopping the event loop."""
        async with self._turn:
            while data:
                if not self._takes_at_once():
                    await self._writable()
                data = data[self._write(data) :]

    def write_at_once(self, data: bytes) -> bool:
        """Writes as much as goes without waiting; returns whether that was all. For the end of a program."""
        with suppress(OSError):
            while data and self._takes_at_once():
                data = data[self._write(data) :]
        return not data

    async def outlive(self) -> None:
        """Waits until nobody reads any more; then raises BrokenPipeError."""
        gone = asyncio.Event()
        forget = self.on_closed(gone.set)
        try:
            await gone.wait()
            raise BrokenPipeError
        finally:
            forget()

    def on_closed(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back once nobody reads a pipe, a socket or a terminal any more; returns what ends this."""
        watched: Any = self._fd  # the writing end of a pipe wakes whoever would read it, when it closes
        if sys.platform == "linux":
            watched = select.epoll()  # which can be watched without being readable itself
            with suppress(PermissionError):  # a file, which has no reader that could go
                # That a TCP peer is gone its FIN alone tells; a local one may end its own half and read on.
                watched.register(self._fd, select.EPOLLRDHUP if self._is_remote() else 0)
        elif not self._is_pipe:
            return lambda: None
        loop = asyncio.get_running_loop()
        loop.add_reader(watched, callback)

        def undo() -> None:
            loop.remove_reader(watched)

        return undo

    def _is_remote(self) -> bool:
        if not stat.S_ISSOCK(os.fstat(self._fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(self._fd)) as ours:
            return ours.family != socket.AF_UNIX

    def _takes_at_once(self) -> bool:
        return self._is_file or bool(select.select([], [self._fd], [], 0)[1])

    def _write(self, data: bytes) -> int:
        try:
            with named("standard output"):
                return os.write(self._fd, data if self._is_file else data[:_PIPE_WRITE_BYTES])
        except OSError as error:
            if isinstance(error, ConnectionError) or (self.is_terminal and error.errno == errno.EIO):
                raise BrokenPipeError from None
            raise

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._fd)
