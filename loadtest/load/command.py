"""`kcast load` runs load tests over grids of scenarios; `kcast load compare` compares two runs."""

import importlib.util
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kcast.client.cli.commands import Commands
from kcast.client.cli.common import (
    EXIT_FAILURE,
    EXIT_USAGE,
    Number,
    count_of,
    errors_as_lines,
    fail,
    how_to_install,
    say,
    several,
    value_option,
)
from kcast.client.cli.text import table, tell, to_json
from kcast.loadtest.charts import words
from kcast.loadtest.faults.plan import outages
from kcast.loadtest.load import grid
from kcast.loadtest.load.estimate import CPU_SHARE_MAX, Estimate, estimate, total
from kcast.loadtest.scenario import POLICY_FIELDS, Scenario, ScenarioError, select
from kcast.loadtest.users.options import OPTIONS, click_options

if TYPE_CHECKING:
    from kcast.client.cluster import Cluster
    from kcast.loadtest.load.wanted_width import WantedWidth

NAME = "load"
EXTRA_MODULES = ("locust", "pyarrow", "docker")
OUT_DEFAULT = Path("load-out")
WORKERS_MAX = 256
DURATION_S_MAX = 600.0

_HEADINGS = {
    "run": "The run",
    "test": "The test",
    "servers": "Servers",
    "policy": "Policy",
    "clients": "Clients",
    "load": "Load",
    "faults": "Faults",
}
_GROUPS = {option.field: option.group for option in OPTIONS} | {grid.LOSS: "faults"}
_SEVERAL = tuple(option.field for option in OPTIONS if option.type is not bool and option.field != "name")


# --- The command line --------------------------------------------------------------------------------


class _Group(Commands):
    """Writes help under headings. A preset given as if it were a subcommand gets an error that says how."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes options, presets and subcommands."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _HEADINGS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[_GROUPS.get(parameter.name or "", "run")].append(record)
        for group, records in sections.items():
            with formatter.section(_HEADINGS[group]):
                formatter.write_dl(records)
        with formatter.section("Presets"):
            formatter.write_dl([(name, preset.about) for name, preset in grid.PRESETS.items()])
        self.format_commands(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the subcommand."""
        if args[0] in grid.PRESETS:
            ctx.fail(f"{args[0]} is a preset: give it as --preset {args[0]}")
        return super().resolve_command(ctx, args)


def _losses(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    share = Number(0, 1)
    return tuple(share.convert(each.strip(), param, ctx) for each in text.split(","))


_PATH = click.Path(path_type=Path)
_own_options = several(
    click.option("--preset", metavar="NAME", help="Run this preset; other options change its scenarios."),
    click.option(
        "--only", multiple=True, metavar="NAME", help="Run only this scenario; * stands for any text."
    ),
    value_option(
        "--out", _PATH, f"A new folder for the capture.  [default: {OUT_DEFAULT}/ and the time]", unit="DIR"
    ),
    value_option(
        "--until-width width_points",
        Number(0, 100, min_open=True),
        "Run each scenario until its interval is no wider than this.",
        unit="POINTS",
    ),
    value_option(
        "--max-duration duration_s_max",
        Number(0, 1e6, min_open=True),
        f"With --until-width: the longest load of a scenario.  [default: {DURATION_S_MAX:g}]",
        unit="SECONDS",
    ),
    click.option("--dry-run", is_flag=True, help="Only estimate time, disk space and CPU."),
    click.option("--resume", type=_PATH, metavar="DIR", help="Run what an earlier run has left unfinished."),
    click.option("--replay", type=_PATH, metavar="FILE", help="Run the scenarios of this run.json again."),
    value_option(
        "--workers",
        click.IntRange(1, WORKERS_MAX),
        "Number of processes for the users.  [default: 1]",
        unit="N",
    ),
    value_option(
        "--cluster",
        str,
        "Use the servers of this cluster file, which someone else runs, in place of own ones.",
        unit="FILE|CONTEXT",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, one object a line."),
    click.option("--strict", "is_strict", is_flag=True, help="Fail if a latency is not valid, too."),
    click.option("--image", metavar="NAME", help="Image for --backend containers.  [default: kcast]"),
    click.option("--loss", callback=_losses, metavar="X[,...]", help="Sets both --loss-in and --loss-out."),
)
"""Adds the options of the run as a whole."""


@click.group(NAME, cls=_Group, invoke_without_command=True)
@_own_options
@click_options(_SEVERAL)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run load tests on this machine, with faults, and explain what arrived.

    Starts servers, lets locust users publish and subscribe on a seeded schedule, injects faults, and captures
    everything in Parquet files. Then compares the share delivered with theory, finds the cause of each miss,
    and says whether the figures can be trusted.

    Options marked [,...] take several values; each combination is a scenario.

    \b
    Examples:
      kcast load
      kcast load --k-prime 1,2,3,5 --outage 0.1 --loss 0.02 --duration 10
      kcast load --preset grid --dry-run
      kcast load --until-width 0.5 --max-duration 300
      kcast load --cluster prod.cluster --rate 5 --duration 60
      kcast load compare load-out/before load-out/after

    \b
    Exit codes: 0 it was done, 1 it could not be run, 2 wrong usage, 3 the delivery
    of a scenario is not valid, 4 with --strict: a latency is not valid, 5 with
    --until-width: an interval is wider in the end, 130 Ctrl-C.
    """
    if ctx.invoked_subcommand is not None:
        return
    with errors_as_lines(NAME, closed_pipe_exit=EXIT_FAILURE):
        if sys.stdout is None:
            raise OSError("standard output is closed")
        sys.exit(_load(**options))


def _load(
    *,
    preset: str | None,
    only: tuple[str, ...],
    out: Path | None,
    width_points: float | None,
    duration_s_max: float | None,
    dry_run: bool,
    resume: Path | None,
    replay: Path | None,
    workers: int | None,
    image: str | None,
    cluster: str | None,
    is_strict: bool,
    as_json: bool,
    **fields: Any,
) -> int:
    """Does what the options ask for. Returns the exit code."""
    given = {
        name: value if isinstance(value, tuple) else (value,)
        for name, value in fields.items()
        if value is not None
    }
    earlier = resume or replay
    if resume and (out or replay):
        fail(NAME, "--resume continues in its own folder: leave out --out and --replay", EXIT_USAGE)
    if earlier and (given or preset):
        fail(NAME, f"the scenarios are those of {earlier}: give no options that change them", EXIT_USAGE)
    if earlier and cluster:
        fail(NAME, f"the servers are those of {earlier}: leave out --cluster", EXIT_USAGE)
    others = None
    if cluster is not None:
        others = _servers_of_others(cluster, given)
        given |= _fields_on(others, cluster, given, preset)
        cluster = str(Path(cluster).resolve()) if Path(cluster).exists() else cluster
    if earlier or not dry_run:
        _require_extra()
    known = _read(earlier) if earlier else _EarlierRun()
    is_of_others = any(scenario.backend == "file" for scenario in known.scenarios)
    if is_of_others and "cluster" not in known.settings:
        fail(NAME, f"{earlier}: locust ran this on the servers of a cluster file: run locust again")
    try:
        scenarios = select(known.scenarios or _expanded(preset, given), only)
        for scenario in scenarios:
            outages(scenario)  # raises if there are too many to plan
        if others is not None:
            _refuse_too_few_hosts(others, scenarios)
    except ScenarioError as error:
        fail(NAME, str(error), EXIT_USAGE)
    width = _wanted_width(width_points, duration_s_max, is_earlier=bool(earlier), given=given)
    if width is not None:
        scenarios = tuple(width.first_try(scenario) for scenario in scenarios)
    settings = dict(known.settings)
    own = {"workers": workers, "image": image, "cluster": cluster}
    settings |= {name: value for name, value in own.items() if value is not None}
    if resume:
        scenarios = tuple(scenario for scenario in scenarios if scenario.name not in known.complete)
    if dry_run:
        _print_estimates(scenarios, settings.get("workers", 1), as_json)
        return 0
    from kcast.loadtest.load import session

    return session.run(
        scenarios,
        settings,
        out=resume or out or OUT_DEFAULT / time.strftime("%Y%m%d-%H%M%S"),
        is_resumed=resume is not None,
        is_strict=is_strict,
        as_json=as_json,
        width=width,
    )


def _wanted_width(
    points: float | None, duration_s_max: float | None, *, is_earlier: bool, given: Mapping[str, Any]
) -> "WantedWidth | None":
    """Returns what --until-width asks for; ends the program where other options contradict it."""
    if points is None:
        if duration_s_max is not None:
            fail(NAME, "--max-duration limits --until-width: give that too, or --duration", EXIT_USAGE)
        return None
    if is_earlier:
        fail(NAME, "--until-width changes lengths: it goes with neither --resume nor --replay", EXIT_USAGE)
    if "duration_s" in given:
        fail(NAME, "--until-width chooses the length: give --max-duration in place of --duration", EXIT_USAGE)
    from kcast.loadtest.load.wanted_width import WantedWidth

    return WantedWidth(points / 100, duration_s_max or DURATION_S_MAX)


def _servers_of_others(cluster: str, given: grid.Values) -> "Cluster":
    """Reads a cluster file; ends the program where it cannot be read, or options contradict it."""
    from kcast.loadtest.clusters.foreign import read_cluster
    from kcast.loadtest.clusters.servers import ServerFailed

    for name in ("backend", "servers"):
        if name in given:
            fail(NAME, f"--{name} is for own servers, and --cluster names others: leave one out", EXIT_USAGE)
    try:
        return read_cluster(cluster)
    except ServerFailed as error:
        fail(NAME, str(error))


def _fields_on(
    others: "Cluster", name: str, given: grid.Values, preset: str | None
) -> dict[str, tuple[Any, ...]]:
    """Returns the fields of scenarios that the servers of the cluster file `name` decide; ends the program
    where scenarios cannot have them."""
    from kcast.loadtest.users.assignment import policy_on, scheme_of

    fields: dict[str, Any] = {"backend": "file", "servers": len(others.servers)}
    part: grid.Values = grid.PRESETS[preset].parts[0] if preset in grid.PRESETS else {}
    (needs,) = part.get("k", (0,)) if part.get("k") == part.get("servers") else (0,)  # each topic is at all
    if len(others.hosts) < needs and "k" not in given:
        there = count_of(len(others.hosts), "host")
        fail(NAME, f"--preset {preset} needs {needs} hosts, and {name} has {there}: give a --k", EXIT_USAGE)
    if preset is None and not {"scheme", *POLICY_FIELDS} & set(given):
        policy = policy_on(others)
        fields |= scheme_of(policy)
        if Scenario(**fields).policy != policy:
            fail(NAME, f"{name}: its policy is {policy}: give another by --k and --k-prime")
        if policy != others.policy:
            where = f"its {len(others.servers)} servers are on {count_of(len(others.hosts), 'host')}"
            say(NAME, f"{name}: {where}: with these, policy {others.policy} is {policy}")
    return {field: (value,) for field, value in fields.items()}


def _refuse_too_few_hosts(others: "Cluster", scenarios: Iterable[Scenario]) -> None:
    """Raises ScenarioError for scenarios that need more hosts than there are."""
    from kcast.loadtest.users.assignment import refuse_too_few_hosts

    for scenario in scenarios:
        refuse_too_few_hosts(scenario.policy, others)


def _require_extra(modules: Iterable[str] = EXTRA_MODULES) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        fail(NAME, f"{missing[0]} is not installed: {how_to_install('load')} brings it", EXIT_FAILURE)


class _EarlierRun(NamedTuple):
    """The scenarios and settings of an earlier run, and the names of its complete scenarios."""

    scenarios: tuple[Scenario, ...] = ()
    settings: Mapping[str, Any] = MappingProxyType({})
    complete: frozenset[str] = frozenset()


def _read(path: Path) -> _EarlierRun:
    """Reads the run in a folder, or of a run.json."""
    from kcast.loadtest.capture.folder import CaptureError, open_run

    try:
        run = open_run(path)
        done = frozenset(each.scenario.name for each in run.scenarios if each.status == "complete")
        return _EarlierRun(run.planned, run.info.get("settings", {}), done)
    except CaptureError as error:
        fail(NAME, str(error))


def _expanded(preset: str | None, given: grid.Values) -> tuple[Scenario, ...]:
    """Returns the scenarios that the command line asks for."""
    if preset is None and not given:
        preset = grid.PRESET_DEFAULT
    made = grid.expand(grid.preset(preset).parts if preset else ({},), given)
    for reason in made.impossible:
        say(NAME, f"skipped a combination: {reason}")
    return made.scenarios


# --- Estimates --------------------------------------------------------------------------------------


def _print_estimates(scenarios: tuple[Scenario, ...], workers: int, as_json: bool) -> None:
    estimates = [estimate(scenario, workers) for scenario in scenarios]
    if as_json:
        for each in estimates:
            tell(to_json({"type": "estimate", **asdict(each)}))
        return
    rows = estimates if len(estimates) == 1 else [*estimates, total(estimates)]
    heads = ("scenario", "messages", "pairs", "copies", "time", "disk", "CPU")
    tell("\n".join(table(heads, map(_estimate_row, rows))))
    for warning in warnings(estimates, workers):
        say(NAME, warning)


def _estimate_row(each: Estimate) -> tuple[str, ...]:
    return (
        each.name,
        *(f"{count:,.0f}" for count in (each.messages, each.pairs, each.copies)),
        words.duration(each.time_s),
        words.size(each.disk_bytes),
        f"{each.cpu_share:.0%}",
    )


def warnings(estimates: list[Estimate], workers: int) -> list[str]:
    """Returns what will make figures invalid, as far as it is known beforehand."""
    return [
        f"{each.name}: users would need {each.cpu_share:.0%} of a core in each of {workers} processes, and "
        "be late: give more --workers, or a lower --rate"
        for each in estimates
        if each.cpu_share > CPU_SHARE_MAX
    ]


# --- Two runs ----------------------------------------------------------------------------------------


@command.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--fail-on-loss", "fails_on_loss", is_flag=True, help="Fail if significantly less arrived in B."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def compare_command(a: Path, b: Path, fails_on_loss: bool, as_json: bool) -> None:
    """Compare two runs, A and B.

    Prints for each scenario the differences of the shares delivered, with intervals, and of the latencies.

    \b
    Example:
      kcast load compare load-out/before load-out/after --fail-on-loss

    \b
    Exit codes: 0 it was done, 1 it cannot be compared, 2 wrong usage, 3 with
    --fail-on-loss: in a scenario the interval of the difference is below 0.
    """
    with errors_as_lines(NAME, closed_pipe_exit=EXIT_FAILURE):
        _require_extra(("pyarrow",))  # which the extra of analyses brings, too
        from kcast.loadtest.load import session

        sys.exit(session.compare(a, b, fails_on_loss=fails_on_loss, as_json=as_json))
