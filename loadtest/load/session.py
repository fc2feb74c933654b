"""One call of `kcast load`: runs scenarios, prints results, and says how to continue after an error."""

import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kcast.client.cli.common import EXIT_FAILURE, EXIT_INTERRUPTED
from kcast.client.cli.text import escaped, tell, to_json
from kcast.loadtest.capture.folder import (
    CaptureError,
    RunFolder,
    ScenarioFolder,
    create_run,
    open_run,
    resume_run,
)
from kcast.loadtest.charts import words
from kcast.loadtest.clusters.engine import connect
from kcast.loadtest.clusters.servers import EngineMissing, ServerFailed
from kcast.loadtest.load.estimate import estimate, total
from kcast.loadtest.load.locusts import LocustFailed
from kcast.loadtest.load.report import exit_code, print_results
from kcast.loadtest.load.run import LoadFailed, RunSettings, run_all
from kcast.loadtest.load.view import Watcher
from kcast.loadtest.load.wanted_width import WantedWidth
from kcast.loadtest.results.compare import compare as compare_runs
from kcast.loadtest.results.summary import ResultsError, Summary
from kcast.loadtest.results.verdicts import EXIT_REFUSED
from kcast.loadtest.scenario import Scenario

EXIT_TOO_WIDE = 5
"""The exit code of --until-width where an interval is wider than asked for."""

# Errors whose messages are for people.
FAILURES = (LoadFailed, LocustFailed, ServerFailed, EngineMissing, CaptureError, ResultsError)


def run(
    scenarios: Sequence[Scenario],
    settings: dict[str, Any],
    *,
    out: Path,
    is_resumed: bool,
    is_strict: bool,
    as_json: bool,
    width: WantedWidth | None = None,
) -> int:
    """Runs scenarios, captures them in `out`, and prints results. Returns the exit code.

    With `width` it is EXIT_TOO_WIDE if the interval of a scenario is wider than that in the end.

    Raises BrokenPipeError.
    """
    results: dict[str, Summary] = {}
    wanted = len(scenarios)
    code = 0
    try:
        if any(scenario.backend == "containers" for scenario in scenarios):
            connect().close()  # before there is a folder
        _refuse_small_disk(out, scenarios, settings.get("workers", 1))
        folder = _folder(scenarios, settings, out, is_resumed)
        results |= _finished(folder)
        wanted += len(results)
        stream = sys.stderr if as_json else sys.stdout
        with Watcher(stream) as watcher:
            watcher.say(f"capture: {out}")
            if scenarios:
                run_all(folder, scenarios, RunSettings(**settings), watcher, results, width)
    except KeyboardInterrupt:
        _complain(f"stopped{_rest(out, len(results), wanted, is_begun=out.exists())}")
        code = EXIT_INTERRUPTED
    except FAILURES as error:
        _complain(f"{error}{_rest(out, len(results), wanted)}")
        code = EXIT_FAILURE
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}{_rest(out, len(results), wanted)}")
        code = EXIT_FAILURE
    if results:
        print_results(results, out, is_strict=is_strict, as_json=as_json)
    code = code or exit_code(results.values(), is_strict=is_strict)
    if width is not None:
        short = [line for line in map(width.shortfall, results.values()) if line]
        for line in short:
            _complain(line)
        code = code or (EXIT_TOO_WIDE if short else 0)
    return code


def compare(a: Path, b: Path, *, fails_on_loss: bool, as_json: bool) -> int:
    """Prints how two runs differ, scenario by scenario. Returns the exit code.

    With `fails_on_loss` it is EXIT_REFUSED if in any scenario significantly less arrived in `b`.
    """
    try:
        comparison = compare_runs(_results(a), _results(b))
    except FAILURES as error:
        _complain(str(error))
        return EXIT_FAILURE
    tell(to_json(comparison.as_json()) if as_json else comparison.text().rstrip())
    if not fails_on_loss:
        return 0
    if not comparison.differences:
        _complain("--fail-on-loss: nothing could be compared")
        return EXIT_FAILURE
    lost = [difference.name for difference in comparison.differences if difference.is_loss]
    if lost:
        _complain(f"significantly less arrived in {', '.join(lost)}")
    return EXIT_REFUSED if lost else 0


def _results(path: Path) -> Iterable[Summary]:
    found = _finished(open_run(path))
    if not found:
        raise CaptureError(f"{path}: no scenario is complete, so there is nothing to compare")
    return found.values()


def _finished(folder: RunFolder) -> dict[str, Summary]:
    """Returns the summaries of a run's complete scenarios."""
    return {each.scenario.name: _summary(each) for each in folder.scenarios if each.status == "complete"}


def _summary(folder: ScenarioFolder) -> Summary:
    results = folder.info.get("results")
    if results is None:
        raise CaptureError(f"{folder.path}: has no results: locust captured it, not kcast load")
    return Summary.from_json({**results, "status": folder.status})  # earlier versions wrote "running" there


def _folder(
    scenarios: Sequence[Scenario], settings: dict[str, Any], out: Path, is_resumed: bool
) -> RunFolder:
    if is_resumed:
        return resume_run(out) if scenarios else open_run(out)
    return create_run(out, scenarios, seed=scenarios[0].seed, command=sys.argv, facts={"settings": settings})


def _refuse_small_disk(out: Path, scenarios: Sequence[Scenario], workers: int) -> None:
    needed = total(estimate(scenario, workers) for scenario in scenarios).disk_bytes
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise LoadFailed(
            f"{out} needs about {words.size(needed)}, and {words.size(free)} are free there: "
            "give another --out, or less load"
        )


def _rest(out: Path, complete: int, wanted: int, is_begun: bool = False) -> str:
    """Says how to run the remaining scenarios; "" if nothing was run."""
    if not complete and not is_begun:
        return ""
    how = f"kcast load --resume {shlex.quote(str(out))}"
    return f"\n{complete} of {wanted} scenarios are complete; for the rest: {how}"


def _complain(text: str) -> None:
    """Prints to standard error, line by line; control characters of other programs are escaped."""
    for line in f"kcast load: {text}".splitlines():
        print(escaped(line), file=sys.stderr, flush=True)
