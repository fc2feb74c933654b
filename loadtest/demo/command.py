"""`kcast demo`: publishes text while servers are killed, and compares what arrives with theory."""

import asyncio
import importlib.metadata
import json
import platform
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import click
import uvloop

from kcast import pubsub
from kcast.client.cli.common import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    FOLDER,
    errors_as_lines,
    fail,
    value_option,
)
from kcast.client.cli.text import escaped, tell, to_json
from kcast.loadtest.charts.text_chart import text_chart
from kcast.loadtest.demo.plan import DemoPlan, DemoResult, K
from kcast.loadtest.demo.run import run
from kcast.loadtest.demo.tally import CONFIDENCE, INVALID, PIECE_BYTES_MAX, PhaseResult, failures, pieces
from kcast.loadtest.demo.view import Progress, drawing, explanation, named_series, policy_name, table
from kcast.pubsub.errors import KcastError

TEXT_BYTES_MAX = 64 * 1024 * 1024

_LIBRARIES = ("kcast", "uvloop", "numpy", "xxhash")


def _number(option: str, field: str, least: int | None, most: int | None, words: str) -> Callable[..., Any]:
    """An option with a whole number: a field of the plan, which has its default."""
    kind, default = click.IntRange(least, most), getattr(DemoPlan(), field)
    return click.option(option, field, type=kind, default=default, show_default=True, help=words)


@click.command("demo")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@_number("--servers", "servers", K, 200, "Servers to start.")
@_number("--kill", "kill", 1, None, "Servers to kill.")
@_number("--ttl", "ttl_s", 2, 60, "How many seconds a lease stands unless it is renewed.")
@_number("--topics", "topics", 1, 1000, "Topics for each K'.")
@_number("--subscribers", "subscribers", 1, 200, "Subscribers for each K'.")
@_number("--publishers", "publishers", 1, 50, "Publishers for each K'.")
@_number("--rate", "rate", 1, 100_000, "Messages published each second.")
@_number(
    "--seed", "seed", None, None, "Decides topics, who subscribes to them, and which servers are killed."
)
@value_option("--out", FOLDER, "Folder for delivery.svg and results.json.", Path("demo-out"))
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, one object a line.")
def command(files: tuple[Path, ...], out: Path, as_json: bool, **numbers: int) -> None:
    """Publish text while servers are killed, and compare what arrives with theory.

    Starts servers on this machine, and publishes each line of FILE that is not blank, by default of kcast's
    PROTOCOL.md. It does so under three policies at once: each message goes to K' = 1, 2 or 3 of its topic's
    K = 5 servers. First all servers are up. Then some are killed, and publishers do not avoid them, so that
    loss shows. Then they are restarted. Every payload is compared with its file. Lines longer than 300 bytes
    are published in pieces of 300 bytes.

    The exit code is 0 only if the numbers delivered agree with theory, given which servers were killed, all
    payloads are intact, and every datagram was read in time. The demo takes about half a minute.

    \b
    Examples:
      kcast demo
      kcast demo --servers 20 --kill 8 --seed 7 README.md
    """
    plan = DemoPlan(**numbers)
    if plan.kill >= plan.servers:
        most = f"of {plan.servers} servers at most {plan.servers - 1} can be killed"
        raise click.BadParameter(most, param_hint="--kill")
    with errors_as_lines("demo", closed_pipe_exit=EXIT_FAILURE):
        if sys.stdout is None:
            raise OSError("standard output is closed")
        sys.exit(0 if _demo(plan, files, out, as_json) else EXIT_FAILURE)


def _demo(plan: DemoPlan, files: tuple[Path, ...], out: Path, as_json: bool) -> bool:
    """Runs it, shows and writes what came of it; returns whether measurement and theory agree."""
    texts, sources = _read(files)
    out.mkdir(parents=True, exist_ok=True)
    result = _run(plan, texts, sys.stderr if as_json else sys.stdout)
    stopped_s = result.stopped_s if result.stopped_s > plan.lease_slack_s else 0.0
    reasons = failures(result.phase_results, result.faults, result.dropped, result.leases_after_s, stopped_s)
    results = _as_json(plan, result, sources, len(texts), reasons)
    source = ", ".join(sources)
    what = f"{len(texts):,} lines of {source if len(source) <= 40 else f'{len(sources)} files'}"
    svg_path, json_path = out / "delivery.svg", out / "results.json"
    try:
        if as_json:
            for each in results["phases"]:
                tell(to_json({"type": "phase", **each}))
            rest = {name: value for name, value in results.items() if name not in ("phases", "dead_of_topic")}
            tell(to_json({"type": "result", **rest, "files": [str(svg_path), str(json_path)]}))
        else:
            _show(plan, result, reasons)
        sys.stdout.flush()
    finally:  # a finished run is not to be lost because one of its outputs fails
        _write(svg_path, drawing(plan, result.phase_results, what))
        _write(json_path, json.dumps(results, indent=2) + "\n")
    if not as_json:
        tell(f"chart:   {svg_path}\nresults: {json_path}")
    return not reasons


def _show(plan: DemoPlan, result: DemoResult, reasons: list[str]) -> None:
    print()
    print(table(result.phase_results))
    print(explanation(plan, result))
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    print(text_chart(named_series(plan, result.phase_results), "K'", "  theory", ascii_only=ascii_only))
    for reason in reasons:
        print(f"NOT: {reason}")
    if any(reason.startswith(INVALID) for reason in reasons) and not result.faults.total():
        print("no verdict: this machine was too busy")
    else:
        print(f"measurement and model {'do NOT agree' if reasons else 'agree'}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail("demo", f"{path}: {error.strerror or error} (the result stands above)")


def _run(plan: DemoPlan, texts: list[bytes], stream: TextIO) -> DemoResult:
    try:
        with Progress(plan, stream) as progress, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(plan, texts, progress))
    except KeyboardInterrupt:
        fail("demo", "stopped, no verdict", EXIT_INTERRUPTED)
    except (KcastError, ExceptionGroup) as error:
        found = _leaves(error)
        for each in found:
            if not isinstance(each, KcastError | OSError):
                raise error from None  # a bug: a failure that came with it must not hide it
        if isinstance(
            found[0], KcastError
        ):  # of several lines, where servers have said why they did not start
            tell(f"kcast demo: {found[0]}", err=True)
            sys.exit(EXIT_FAILURE)
        raise found[0] from None


def _leaves(error: BaseException) -> list[BaseException]:
    """Returns the exceptions in nested groups."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]


def _read(files: tuple[Path, ...]) -> tuple[list[bytes], list[str]]:
    """Returns the texts to publish, and the names of their files."""
    sources = files or (Path(pubsub.__file__).with_name("PROTOCOL.md"),)
    texts: list[bytes] = []
    bytes_left = TEXT_BYTES_MAX
    for path in sources:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            fail("demo", f"{path}: not a regular file")
        with path.open("rb") as file:
            data = file.read(bytes_left + 1)
        bytes_left -= len(data)
        if bytes_left < 0:
            fail("demo", f"{path}: with it, more than {TEXT_BYTES_MAX >> 20} MiB would be published")
        texts += pieces(data)
    if not texts:
        fail("demo", f"{', '.join(map(str, files))}: all lines are blank, so there is nothing to publish")
    return texts, [escaped(path.name) for path in sources]


def _as_json(
    plan: DemoPlan, result: DemoResult, sources: list[str], lines: int, reasons: list[str]
) -> dict[str, Any]:
    """Returns what goes to results.json: all that is needed to run it again, or to judge it another way."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {
        "agrees": not reasons,
        "failures": reasons,
        "parameters": {**asdict(plan), "k": K, "confidence": CONFIDENCE, "piece_bytes_max": PIECE_BYTES_MAX},
        "sources": sources,
        "texts": lines,
        "versions": {"python": platform.python_version(), **versions},
        "killed": list(result.killed),
        "payload_faults": dict(result.faults),
        "kernel_drops": result.kernel_drops,
        "slow_consumer_drops": result.slow_drops,
        "unanswered_by_live_servers": result.unanswered,
        "leases_after_s": result.leases_after_s,
        "stopped_s": result.stopped_s,
        "last_loss_s": result.last_loss_s,
        "phases": [_phase_as_json(each) for each in result.phase_results],
        "dead_of_topic": result.dead_of_topic,
    }


def _phase_as_json(result: PhaseResult) -> dict[str, Any]:
    return {
        "policy": policy_name(result.k_prime),
        **{name: getattr(result, name) for name in _FIGURES},
        "measured": result.share(result.delivered),
        "measured_interval": list(result.interval),
        "predicted": result.predicted,
        "range_pairs": [result.low, result.high] if result.is_judged else None,
        "verdict": result.verdict,
    }


_FIGURES = ("k_prime", "phase", "down", "messages", "pairs", "delivered", "duplicates", "unexplained")
