"""Runs of `kcast demo` on a small cluster, in this process; again where this machine was too busy for one."""

from pathlib import Path

from click.testing import CliRunner, Result

from kcast.loadtest.demo.command import command

SMALL = (
    *("--servers", "6", "--kill", "2", "--ttl", "2", "--topics", "4"),
    *("--subscribers", "4", "--publishers", "2", "--rate", "1000"),
)
RUNS_MAX = 3  # until this machine has time for a whole one


def demo(*arguments: str | Path) -> Result:
    """Runs the demo once."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def demo_in_time(*arguments: str | Path) -> Result:
    """Runs the demo on the small cluster until the machine does not stop it for longer than leases last."""
    for _ in range(RUNS_MAX):
        result = demo(*SMALL, *arguments)
        if "invalid run" not in result.stdout:
            break
    return result
