"""Which tests with Spark, and which on containers, stay together where several processes run them.

Those with Spark also have an order, and some give way.
"""

import os
from contextlib import suppress

from xdist.scheduler import LoadScopeScheduling

PAGES = "tests/docs/test_shell_blocks.py"
START, ANALYSIS = ALONE = ("tests/spark/session/test_start.py", "tests/spark/test_analysis.py")
"""Files whose tests start a Java each, or several."""

SESSION = "the session"
_PAGE = f"{PAGES}::test_the_blocks_of_a_page_do_what_it_says[docs/analysis.md-test-spark"
LITTLE = f"{START}::test_a_machine_that_does_not_know_localhost_is_told_what_to_do"
FIRST = (
    *(f"{_PAGE}]", SESSION, f"{_PAGE}-alone-1]"),
    *(LITTLE, START, ANALYSIS),
)
"""Groups in the order in which they begin. xdist gives out two groups at once if the first is a single test:
so little ones wait for the end of the pages."""

_IN_TIME = (f"{_PAGE}]", f"{ANALYSIS}::test_a_demo_ends_with_a_report_of_what_it_says")
"""Tests that run load tests, whose users must send when it is time."""

_GIVES_WAY = 10  # niceness: a tenth of the processor, where others want it


def group_of(nodeid: str) -> str:
    """Returns what a test belongs to: each case of a page stands alone, each file of ALONE is a group.

    All others use one session: another would start another Java, and each Java is slow in all that it does
    for the first time.
    """
    path = nodeid.partition("::")[0]
    if path == PAGES or nodeid == LITTLE:
        return nodeid
    return path if path in ALONE else SESSION


def turn_of(nodeid: str) -> int:
    """Returns a number by which tests are sorted."""
    group = group_of(nodeid)
    return FIRST.index(group) if group in FIRST else len(FIRST)


def set_priority(nodeid: str) -> None:
    """Lets this process, and what it starts from now on, give way to load tests unless it runs one."""
    with suppress(PermissionError):  # only root may want more again
        os.setpriority(os.PRIO_PROCESS, 0, 0 if nodeid in _IN_TIME else _GIVES_WAY)


class SideBySide(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each process a group of the tests with Spark at a time."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


class OnOneEngine(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Runs the tests of compose.yaml beside all others, which look at all that load tests leave on it."""

    def _split_scope(self, nodeid: str) -> str:
        return "compose" if nodeid.startswith("tests/containers/test_compose.py") else "clusters"
