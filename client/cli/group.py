"""The group of all commands.

Ctrl-C before a command can handle it ends the program silently, and SIGTERM is as Ctrl-C. Wrong usage is told
in one line.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EMFILE, ENFILE
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click

from kcast.client.cli.commands import Commands

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_TERMINATED = 143  # 128 + SIGTERM

_COMMANDS = {
    "serve": ("kcast.pubsub.serve", "run a server"),
    "sub": ("kcast.client.cli.sub", "print the messages of topics"),
    "pub": ("kcast.client.cli.pub", "publish a message, or one per line of standard input"),
    "request": ("kcast.client.cli.request", "ask a worker, and print its answer"),
    "reply": ("kcast.client.cli.reply", "answer requests, by a text or a command"),
    "who": ("kcast.client.cli.who", "who is there on a topic"),
    "history": ("kcast.client.cli.history", "what was said on a topic, from any holder or a file"),
    "keep": ("kcast.client.cli.keep", "keep what is said on topics, for those who miss it"),
    "ping": ("kcast.client.cli.ping", "which servers of the cluster are up, round-trip time, loss"),
    "top": ("kcast.client.cli.top", "watch the servers: state, round-trip time, loss, rates, leases"),
    "where": ("kcast.client.cli.where", "the servers of a topic, and why it is these"),
    "doctor": ("kcast.client.cli.doctor.command", "why something does not arrive here, and what to do"),
    "health": ("kcast.client.cli.health", "check whether one server works, for health checks"),
    "context": ("kcast.client.cli.context", "names for clusters, and the one in use"),
    "servers": ("kcast.client.cli.servers.group", "make, publish and check signed lists of servers"),
    "key": ("kcast.client.cli.key", "make and show the keys that sign messages"),
    "group": ("kcast.client.cli.groups.group", "make groups that read and write sealed messages"),
    "plan": ("kcast.client.cli.plan", "what theory expects a policy to deliver and to cost"),
    "demo": (
        "kcast.loadtest.demo.command",
        "kill servers of a cluster here, and compare what arrives with theory",
    ),
    "bench": (
        "kcast.loadtest.bench.command",
        "measure messages a second, latency and loss, here or on a cluster",
    ),
    "load": ("kcast.loadtest.load.command", "run load tests, with faults, and capture them"),
    "analyse": ("kcast.spark.command", "analyse captures of load tests, and compare them with theory"),
    "help": ("kcast.client.cli.help", "the help of a command"),
    "completion": ("kcast.client.cli.completion", "make your shell complete commands and options"),
}

_HEADINGS = {
    "Daily": (
        *("serve", "sub", "pub", "request", "reply", "who", "history", "keep"),
        *("ping", "top", "where", "doctor", "health"),
    ),
    "Clusters and keys": ("context", "servers", "key", "group"),
    "Measuring": ("plan", "demo", "bench", "load", "analyse"),
    "Help": ("help", "completion"),
}

_Result = TypeVar("_Result")


class _Commands(Commands):
    """All commands; what none of them has handled is handled here."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Does what the command line says, until SIGTERM at most."""
        with _sigterm_as_ctrl_c():
            return super().main(*args, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Reads the command line up to the subcommand."""
        return _told(lambda: super(_Commands, self).make_context(*args, **options))

    def invoke(self, ctx: click.Context) -> Any:
        """Loads and runs the subcommand; handles what the subcommand has not handled."""
        return _told(lambda: super(_Commands, self).invoke(ctx))


def _told(run: Callable[[], _Result]) -> _Result:
    """Runs it; tells wrong usage in one line, and ends silently after Ctrl-C."""
    try:
        return run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        raise
    except OSError as error:  # of --help and --version, and of too few open files: commands tell their own
        where = ""
        if error.errno not in (EMFILE, ENFILE):
            from kcast.client.cli.common import forget_stdout

            where = f"{error.filename or 'standard output'}: "
            forget_stdout()
        sys.exit(f"kcast: {where}{error.strerror or error}")
    except click.UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError" and error.ctx and error.ctx.parent is None:
            raise  # kcast alone: click shows the help
        from kcast.client.cli import usage
        from kcast.client.cli.text import tell

        with suppress(OSError):
            tell(f"{usage.command_of(error)}: {usage.one_line(error)}", err=True)
        sys.exit(EXIT_USAGE)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM do what Ctrl-C does, with exit code 143, where a command has no handler of its own.

    Without a handler it would end a command without its last words, and as PID 1 of a container not at all.
    """
    has_come = False

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    def end(_: int, frame: FrameType | None) -> None:
        nonlocal has_come
        has_come = True
        on_ctrl_c = signal.getsignal(signal.SIGINT)
        if callable(on_ctrl_c):
            on_ctrl_c(signal.SIGINT, frame)
            return
        # It is ignored, as in a script's background. Raised here, it would be a fault of the task that runs.
        asyncio = sys.modules.get("asyncio")
        if asyncio is None or (loop := asyncio._get_running_loop()) is None:
            interrupt()
        loop.call_soon_threadsafe(interrupt)

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except SystemExit as ended:
        sys.exit(EXIT_TERMINATED if has_come and ended.code else ended.code)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _tell_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        from importlib.metadata import version

        from kcast.client.cli.text import tell
        from kcast.pubsub.native import DESCRIPTION

        tell(f"kcast {version('kcast')}, {DESCRIPTION}")
        context.exit()


@click.group(
    cls=_Commands,
    members=_COMMANDS,
    headings=_HEADINGS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_tell_version,
    help="Show the version, and whether native code was built.",
)
def main() -> None:
    """Publish/subscribe over UDP with dumb servers and smart clients."""
