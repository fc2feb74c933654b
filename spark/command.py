"""`kcast analyse`: captures of load tests in, reliability versus K out; the 2004 note at its own scale."""

import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import click
from click.core import ParameterSource

from kcast.client.cli.common import (
    EXIT_FAILURE,
    EXIT_USAGE,
    FILE,
    FOLDER,
    errors_as_lines,
    fail,
    how_to_install,
    value_option,
)
from kcast.client.cli.text import escaped, tell
from kcast.loadtest.capture.manifest import CaptureError
from kcast.spark.gate import EXIT_CONDITION, ConditionError, judged, parse
from kcast.spark.request import (
    MASTER_DEFAULT,
    MEMORY_DEFAULT,
    NAME,
    OUT_DEFAULT,
    SEED_DEFAULT,
    AnalysisRequest,
    refuse,
)

EXTRA_MODULES = ("pyspark", "pandas", "pyarrow", "scipy", "jinja2")
RENDERING_MODULES = ("jinja2",)
EXPLAINING_MODULES = ("pyarrow",)  # for --why, which the extra of load tests brings, too

_MEMORY = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)
_MESSAGE = re.compile(r"(?:(\d{1,10}):)?(\d{1,19})", re.ASCII)
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *\d+)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+", re.IGNORECASE
)


def _memory(ctx: click.Context, param: click.Parameter, text: str) -> str:
    if _MEMORY.fullmatch(text) is None:
        raise click.BadParameter(f"{text} is no size: give one such as 2g or 500m", ctx, param)
    return text


def _master(ctx: click.Context, param: click.Parameter, text: str) -> str:
    if _MASTER.fullmatch(text) is None:
        advice = "give one such as local[2], spark://HOST:7077, yarn or k8s://https://HOST:6443"
        raise click.BadParameter(f"{text} is no master of Spark: {advice}", ctx, param)
    return text


def _conditions(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        for text in texts:
            parse(text)
    except ConditionError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return texts


def _message(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    found = _MESSAGE.fullmatch(text)
    publisher, number = (0, -1) if found is None else (int(found[1] or 0), int(found[2]))
    if number < 0 or publisher >= 1 << 31 or number >= 1 << (32 if ":" in text else 63):
        advice = "give its msg_id, or PUBLISHER:NUMBER such as 0:17"
        raise click.BadParameter(f"{text} is no message: {advice}", ctx, param)
    return (publisher << 32) + number


@click.command(NAME)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@value_option("--out", FOLDER, f"Folder for the report.  [default: {OUT_DEFAULT}]", unit="DIR")
@click.option("--only", multiple=True, metavar="NAME", help="Only this scenario; * matches anything.")
@click.option("--simulate", "simulates", is_flag=True, help="Simulate the note of 2004 at its own scale.")
@value_option("--seed", click.IntRange(0, 2**64 - 1), "Seed of the simulation.", SEED_DEFAULT)
@value_option("--render", FILE, "Only make report.html again, from this report.json.", unit="FILE")
@value_option(
    "--master",
    str,
    "Where Spark works: local[2] is two cores of this machine, spark://HOST:PORT a cluster.",
    MASTER_DEFAULT,
    "URL",
    callback=_master,
)
@value_option(
    "--memory",
    str,
    "Memory of Spark's driver, which does all the work if the master is local.",
    MEMORY_DEFAULT,
    "SIZE",
    callback=_memory,
)
@click.option(
    "--pairs",
    "keeps_pairs",
    is_flag=True,
    help="Also write what became of each message and subscriber: folders of Parquet files in DIR.",
)
@value_option(
    "--why",
    str,
    "Only tell what became of this message, as msg_id or PUBLISHER:NUMBER; needs no Spark.",
    unit="MESSAGE",
    callback=_message,
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as one object a line.")
@click.option("--strict", "is_strict", is_flag=True, help="Fail if a latency is not valid, too.")
@value_option(
    "--fail-if",
    str,
    "Fail if a figure is certainly beyond a bound, as in 'delivered < 99.9 %'.",
    unit="CONDITION",
    multiple=True,
    callback=_conditions,
)
@click.pass_context
def command(
    ctx: click.Context,
    runs: tuple[str, ...],
    out: Path | None,
    only: tuple[str, ...],
    simulates: bool,
    seed: int,
    render: Path | None,
    master: str,
    memory: str,
    keeps_pairs: bool,
    why: int | None,
    as_json: bool,
    is_strict: bool,
    fail_if: tuple[str, ...],
) -> None:
    """Analyse captures of load tests: what share arrives as K grows, beside theory, and why the rest did not.

    RUN is a folder that `kcast load` wrote; several are analysed together. DIR gets one page, report.html,
    which needs no network; its figures as report.json; and all tables as CSV and Parquet.

    --simulate simulates 100,000 servers, with or without RUN; it takes a minute or two.

    --why tells what became of one message: each server that it was sent to, and each subscriber, with the
    cause where it was missed. --only chooses the scenario.

    --fail-if is a gate for automated checks; it may be given several times. A condition is
    [SCENARIO: ]FIGURE, < or >, and a bound: 'delivered < 99.9 %', 'p99 > 50 ms', '5-3-*: copies > 3.2'. It is
    fulfilled where the whole 95 % interval of the figure is beyond the bound, and not certain where the
    interval contains it.

    \b
    Examples:
      kcast load --preset k-prime --out run && kcast analyse run
      kcast analyse run --fail-if 'delivered < 99 %' --fail-if 'p99 > 50 ms'
      kcast analyse run --why 0:17 --only 5-3-5
      kcast analyse load-out/* --out report
      kcast analyse --simulate --out note
      kcast analyse --render analysis-out/report.json

    \b
    Exit codes: 0 it was done, 1 nothing can be analysed, 2 wrong usage, 3 what was
    measured is not what theory says, or the delivery of a scenario is not valid, or
    scenarios were left out, 4 with --strict: a latency is not valid, 5 a condition of
    --fail-if is fulfilled, 130 Ctrl-C.
    """
    with errors_as_lines(NAME, closed_pipe_exit=EXIT_FAILURE):
        if sys.stdout is None:
            raise OSError("standard output is closed")
        if render is not None:
            if others := [name for name in _given(ctx) if name not in ("--render", "--out", "--fail-if")]:
                what = f"--render only makes the page again: leave out {', '.join(others)}"
                fail(NAME, what, EXIT_USAGE)
            require_extra(RENDERING_MODULES)
            sys.exit(_render(render, out or render.parent, fail_if))
        if why is not None:
            if others := [name for name in _given(ctx) if name not in ("--why", "--only", "--json", "RUN")]:
                fail(NAME, f"--why only tells of a message: leave out {', '.join(others)}", EXIT_USAGE)
            if len(runs) != 1:
                fail(NAME, "--why takes one RUN", EXIT_USAGE)
            require_extra(EXPLAINING_MODULES)
            _why(runs[0], why, only, as_json=as_json)
            return
        if not runs and not simulates:
            fail(NAME, "nothing to analyse: name a RUN, or give --simulate", EXIT_USAGE)
        if only and not runs:
            fail(NAME, "--only chooses scenarios of a RUN: name one", EXIT_USAGE)
        if keeps_pairs and not runs:
            fail(NAME, "--pairs writes the pairs of captures: name a RUN", EXIT_USAGE)
        request = AnalysisRequest(
            *(runs, out or OUT_DEFAULT, master, memory, only, simulates, seed, as_json, is_strict, fail_if),
            keeps_pairs=keeps_pairs,
        )
        require_extra()
        try:
            refuse(request)
        except CaptureError as error:
            fail(NAME, str(error))
        from kcast.spark.launch import launch

        sys.exit(launch(request))


def _given(ctx: click.Context) -> list[str]:
    """The options and arguments that stand on the command line, as one types them."""
    return [
        parameter.opts[0] if isinstance(parameter, click.Option) else "RUN"
        for parameter in ctx.command.params
        if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        and ctx.params.get(parameter.name or "") != ()
    ]


def require_extra(modules: Iterable[str] = EXTRA_MODULES) -> None:
    """Ends the program, telling what to install, if a module of the extra is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        fail(NAME, f"{missing[0]} is missing: {how_to_install('spark')} brings it")


def _why(run: str, msg_id: int, only: tuple[str, ...], *, as_json: bool) -> None:
    """Tells what became of a message. Ends the program where nothing can be told. Raises OSError."""
    from kcast.spark.why import why

    try:
        why(run, msg_id, only, as_json=as_json)
    except CaptureError as error:
        fail(NAME, str(error))


def _render(source: Path, out: Path, fail_if: tuple[str, ...]) -> int:
    """Makes the page from a report.json, and judges conditions; returns the exit code. Raises OSError."""
    from kcast.spark.findings.findings import FindingsError
    from kcast.spark.report.write import read, render

    try:
        findings, outcomes = judged(read(source), fail_if)
        page = render(findings, out)
    except FindingsError as error:
        fail(NAME, str(error))
    for outcome in outcomes:
        tell(escaped(str(outcome)))
    tell(f"report: {page}")
    return EXIT_CONDITION if any(outcome.fails for outcome in outcomes) else 0
