"""`kcast demo`: publishes text while servers are killed, and compares what arrives with theory."""

import asyncio
import importlib.metadata
import json
import platform
import stat
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from kcast import pubsub
from kcast.client.cli.common import EXIT_FAILURE, EXIT_INTERRUPTED, errors_as_lines, fail, how_to_install
from kcast.client.cli.text import tell, to_json
from kcast.loadtest.charts.terminal import can_redraw
from kcast.loadtest.charts.text_chart import text_chart
from kcast.loadtest.charts.words import duration
from kcast.loadtest.demo import report
from kcast.loadtest.demo.plan import DemoPlan, DemoResult, K
from kcast.loadtest.demo.run import expected_s, run
from kcast.loadtest.demo.tally import CONFIDENCE, INVALID, PIECE_BYTES_MAX, PhaseResult, failures, pieces
from kcast.loadtest.demo.view import (
    ProgressBars,
    ProgressLines,
    drawing,
    explanation,
    named_series,
    policy_name,
    table,
)
from kcast.pubsub.errors import KcastError

if TYPE_CHECKING:
    from kcast.loadtest.demo.capture import DemoRecorder

TEXT_BYTES_MAX = 64 * 1024 * 1024

_LIBRARIES = ("kcast", "uvloop", "numpy", "xxhash")


@click.command("demo")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--servers", type=click.IntRange(K, 200), default=12, show_default=True, help="Servers to start."
)
@click.option("--kill", type=click.IntRange(min=1), default=4, show_default=True, help="Servers to kill.")
@click.option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(2, 60),
    default=4,
    show_default=True,
    metavar="SECONDS",
    help="How long a lease stands unless it is renewed.",
)
@click.option(
    "--topics", type=click.IntRange(1, 1000), default=24, show_default=True, help="Topics for each K'."
)
@click.option(
    "--subscribers",
    type=click.IntRange(1, 200),
    default=16,
    show_default=True,
    help="Subscribers for each K'.",
)
@click.option(
    "--publishers", type=click.IntRange(1, 50), default=4, show_default=True, help="Publishers for each K'."
)
@click.option(
    "--rate",
    type=click.IntRange(1, 100_000),
    default=400,
    show_default=True,
    help="Messages published each second.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Decides topics, who subscribes to them, and which servers are killed.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for delivery.svg, results.json, a capture and a report.",
)
@click.option(
    "--report/--no-report",
    "wants_report",
    default=True,
    help="Record a capture and analyse it, if the extra for it is installed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, one object a line.")
def command(
    files: tuple[Path, ...],
    servers: int,
    kill: int,
    ttl_s: int,
    topics: int,
    subscribers: int,
    publishers: int,
    rate: int,
    seed: int,
    out: Path,
    wants_report: bool,
    as_json: bool,
) -> None:
    """Publish text while servers are killed, and compare what arrives with theory.

    Starts servers on this machine, and publishes each line of FILE that is not blank, by default of kcast's
    PROTOCOL.md. It does so under three policies at once: each message goes to K' = 1, 2 or 3 of its topic's
    K = 5 servers. First all servers are up. Then some are killed, and publishers do not avoid them, so that
    loss shows. Then they are restarted. Every payload is compared with its file. Lines longer than 300 bytes
    are published in pieces of 300 bytes.

    The exit code is 0 only if the numbers delivered agree with theory, given which servers were killed, all
    payloads are intact, and every datagram was read in time. The demo takes about half a minute; the report
    of it (kcast analyse) takes about a minute more.

    \b
    Examples:
      kcast demo
      kcast demo --servers 20 --kill 8 --seed 7 README.md
    """
    if kill >= servers:
        raise click.BadParameter(
            f"of {servers} servers at most {servers - 1} can be killed", param_hint="--kill"
        )
    plan = DemoPlan(servers, kill, ttl_s, topics, subscribers, publishers, seed, rate)
    with errors_as_lines("demo", closed_pipe_exit=EXIT_FAILURE):
        if sys.stdout is None:
            raise OSError("standard output is closed")
        sys.exit(0 if _demo(plan, files, out, wants_report, as_json) else EXIT_FAILURE)


def _demo(plan: DemoPlan, files: tuple[Path, ...], out: Path, wants_report: bool, as_json: bool) -> bool:
    """Runs it, shows and writes what came of it; returns whether measurement and theory agree."""
    texts, sources = _read(files)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _fail(f"{out}: {error.strerror or error}")
    missing = report.missing_module()
    capture: Path | None = None
    stream = sys.stderr if as_json else sys.stdout
    if wants_report and missing is None:
        whole = duration(expected_s(plan, len(texts)))
        print(
            f"This takes about {whole}, and then about a minute for the report on Spark, which --no-report "
            "leaves out.",
            file=stream,
            flush=True,
        )
        capture = out / time.strftime("capture-%Y%m%d-%H%M%S")
        result = _run_recorded(plan, texts, stream, capture)
    else:
        result = _run(plan, texts, stream)
    stopped_s = result.stopped_s if result.stopped_s > plan.lease_slack_s else 0.0
    reasons = failures(result.phase_results, result.faults, result.dropped, result.leases_after_s, stopped_s)
    results = _report(plan, result, sources, len(texts), reasons)
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
            ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
            print()
            print(table(result.phase_results))
            print(explanation(plan, result))
            print(
                text_chart(named_series(plan, result.phase_results), "K'", "  theory", ascii_only=ascii_only)
            )
            for reason in reasons:
                print(f"NOT: {reason}")
            print(_verdict(reasons, result))
        sys.stdout.flush()
    finally:  # a finished run is not to be lost because one of its outputs fails
        _write(svg_path, drawing(plan, result.phase_results, what))
        _write(json_path, json.dumps(results, indent=2) + "\n")
    if not as_json:
        tell(f"chart:   {svg_path}\nresults: {json_path}")
    if capture is not None:
        _tell_report(capture, out, as_json)
    elif wants_report and not as_json:
        print(f"report:  none, {missing} is missing: {how_to_install('spark')} brings it", flush=True)
    return not reasons


def _verdict(reasons: list[str], result: DemoResult) -> str:
    if any(reason.startswith(INVALID) for reason in reasons) and not result.faults.total():
        return "no verdict: this machine was too busy"
    return f"measurement and model {'do NOT agree' if reasons else 'agree'}"


def _tell_report(capture: Path, out: Path, as_json: bool) -> None:
    page = report.make(capture, out / "report")
    if as_json:
        files = [str(capture), *([] if page is None else [str(page)])]
        tell(to_json({"type": "report", "files": files}))
        return
    tell(f"capture: {capture}")
    if page is not None:
        tell(f"report:  {page}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        _fail(f"{path}: {error.strerror or error} (the result stands above)")


def _run_recorded(plan: DemoPlan, texts: list[bytes], stream: TextIO, capture: Path) -> DemoResult:
    """Runs the demo, and writes a capture of it."""
    from kcast.loadtest.demo.capture import DemoRecorder

    with TemporaryDirectory(prefix="_taps-", dir=capture.parent) as tap_dir:
        recorder = DemoRecorder(plan, K, Path(tap_dir))
        result = _run(plan, texts, stream, recorder)
        recorder.write(capture, sys.argv)
        return result


def _run(
    plan: DemoPlan, texts: list[bytes], stream: TextIO, recorder: "DemoRecorder | None" = None
) -> DemoResult:
    try:
        if can_redraw(stream):
            with ProgressBars(plan, stream) as watcher:
                return _run_loop(run(plan, texts, watcher, recorder))
        return _run_loop(run(plan, texts, ProgressLines(plan, stream), recorder))
    except KeyboardInterrupt:
        fail("demo", "stopped, no verdict", EXIT_INTERRUPTED)
    except (KcastError, ExceptionGroup) as error:
        found = _leaves(error)
        for each in found:
            if not isinstance(each, KcastError | OSError):
                raise error from None  # a bug: a failure that came with it must not hide it
        if isinstance(found[0], KcastError):
            _fail(str(found[0]))  # of several lines, where servers have said why they did not start
        raise found[0] from None


def _leaves(error: BaseException) -> list[BaseException]:
    """Returns the exceptions in nested groups."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]


def _run_loop(main: Coroutine[Any, Any, DemoResult]) -> DemoResult:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def _read(files: tuple[Path, ...]) -> tuple[list[bytes], list[str]]:
    """Returns the texts to publish, and the names of their files."""
    sources = files or (Path(pubsub.__file__).with_name("PROTOCOL.md"),)
    texts: list[bytes] = []
    bytes_left = TEXT_BYTES_MAX
    for path in sources:
        try:
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                _fail(f"{_printable(path)}: not a regular file")
            with path.open("rb") as file:
                data = file.read(bytes_left + 1)
        except OSError as error:
            _fail(f"{_printable(path)}: {error.strerror or error}")
        bytes_left -= len(data)
        if bytes_left < 0:
            _fail(f"{_printable(path)}: with it, more than {TEXT_BYTES_MAX >> 20} MiB would be published")
        texts += pieces(data)
    if not texts:
        _fail(f"{', '.join(map(_printable, files))}: all lines are blank, so there is nothing to publish")
    return texts, [_printable(path.name) for path in sources]


def _report(
    plan: DemoPlan, result: DemoResult, sources: list[str], lines: int, reasons: list[str]
) -> dict[str, Any]:
    """Returns what goes to results.json: all that is needed to run it again, or to judge it another way."""
    versions = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "agrees": not reasons,
        "failures": reasons,
        "parameters": {**asdict(plan), "k": K, "confidence": CONFIDENCE, "piece_bytes_max": PIECE_BYTES_MAX},
        "sources": sources,
        "texts": lines,
        "versions": versions,
        "killed": list(result.killed),
        "payload_faults": dict(result.faults),
        "kernel_drops": result.kernel_drops,
        "slow_consumer_drops": result.slow_drops,
        "unanswered_by_live_servers": result.unanswered,
        "leases_after_s": result.leases_after_s,
        "stopped_s": result.stopped_s,
        "last_loss_s": result.last_loss_s,
        "phases": [_as_json(each) for each in result.phase_results],
        "dead_of_topic": result.dead_of_topic,
    }


def _as_json(result: PhaseResult) -> dict[str, Any]:
    return {
        "policy": policy_name(result.k_prime),
        "k_prime": result.k_prime,
        "phase": str(result.phase),
        "down": result.down,
        "messages": result.messages,
        "pairs": result.pairs,
        "delivered": result.delivered,
        "duplicates": result.duplicates,
        "unexplained": result.unexplained,
        "measured": result.share(result.delivered),
        "measured_interval": list(result.interval),
        "predicted": result.predicted,
        "range_pairs": [result.low, result.high] if result.is_judged else None,
        "verdict": result.verdict,
    }


def _printable(name: str | Path) -> str:
    """Returns a file's name without what would move a terminal's cursor or is no text."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(name))


def _fail(text: str) -> NoReturn:
    tell(f"kcast demo: {text}", err=True)
    sys.exit(1)
