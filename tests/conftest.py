"""What holds for all tests."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.forms import Seeds, announced, chosen
from tests.support.serve_process import Serve, serving

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# Shells let what they start in the background ignore Ctrl-C, and children inherit that. Tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what runs more seeds in the sixths than in `make test`.

    Puts the longest tests with Spark first: else one process begins with them as the others end.
    """
    for item in items:
        if "seeds" in getattr(item, "fixturenames", ()):
            item.add_marker("seeds")
    if config.option.markexpr == "spark" and find_spec("xdist"):
        from tests.support.side_by_side import turn_of

        items.sort(key=lambda item: turn_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)  # xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadScopeScheduling | None":
    """Keeps tests in one process that share a session of Spark, or look at all that is on a Docker engine."""
    if config.option.markexpr not in ("spark", "containers") or config.option.dist != "loadfile":
        return None
    from tests.support.side_by_side import OnOneEngine, SideBySide

    return (SideBySide if config.option.markexpr == "spark" else OnOneEngine)(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lets what computes with Spark give way to load tests that run beside it."""
    if item.config.option.markexpr == "spark" and find_spec("xdist"):
        from tests.support.side_by_side import set_priority

        set_priority(item.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which tests were left out because an extra is not installed."""
    for library, extra in (("nacl", "trust"), ("cryptography", "trust"), ("pymerkle", "list-log")):
        if find_spec(library) is None:
            terminalreporter.write_line(
                f"left out: tests of what needs trust: they need {library}, which the extra {extra!r} brings"
            )


@pytest.fixture
def seeds() -> Seeds:
    """Gives the seeds to run: tests.support.forms.py."""
    return lambda few, every: announced(chosen(few, every, os.environ))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts real servers."""
    with serving() as start:
        yield start


@pytest.fixture(scope="session", autouse=True)
def _no_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps tests, and all that they start, away from the contexts, and the trust, of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("KCAST_TRUST_PATH", "")
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        yield
