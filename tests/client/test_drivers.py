"""All drivers against real servers: `driver_suite` under asyncio and threads, uvloop, and gevent.

`make test` runs the first two in Linux's own ways to use sockets; a sixth of the rest runs all others.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import uvloop

from kcast.pubsub.sockets import SOCKETS_VARIABLE, uses_linux
from tests.support import layer_suite, log_suite  # add their scenarios
from tests.support.driver_suite import SCENARIOS, Servers, serving
from tests.support.drivers import Driver, Loop, Threads
from tests.support.forms import few_of
from tests.support.machine import has_ipv6

pytestmark = pytest.mark.world

DRIVERS: dict[str, Driver] = {
    "asyncio": Loop(asyncio.SelectorEventLoop),
    "threads": Threads(),
    "uvloop": Loop(uvloop.new_event_loop),
}
assert layer_suite and log_suite
RUNNABLE = [name for name in SCENARIOS if "ipv6_serves" not in name or has_ipv6()]
GEVENT_TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=few_of(["linux", "portable"]), autouse=True)
def sockets(request: pytest.FixtureRequest) -> Iterator[str]:
    """All scenarios are done twice: in Linux's own ways, and in those that every system has."""
    way: str = request.param
    with pytest.MonkeyPatch.context() as patch:
        if way == "portable":
            patch.setenv(SOCKETS_VARIABLE, way)
        elif not uses_linux():
            pytest.skip("these ways are Linux's own")
        yield way


@pytest.fixture(scope="module")
def servers(sockets: str) -> Iterator[Servers]:
    with serving() as started:
        yield started


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("driver", few_of(DRIVERS, 2))
def test_driver(driver: str, name: str, servers: Servers) -> None:
    if name not in RUNNABLE:
        pytest.skip("this machine has no IPv6")
    DRIVERS[driver].run(SCENARIOS[name](DRIVERS[driver], servers))


@pytest.mark.rest
def test_gevent() -> None:
    done = subprocess.run(
        (sys.executable, "-m", "tests.support.driver_suite_gevent", *RUNNABLE),
        capture_output=True,
        text=True,
        timeout=GEVENT_TIMEOUT_S,
        check=False,
    )
    results = {row["scenario"]: row["error"] for row in map(json.loads, done.stdout.splitlines())}
    assert {name: error for name, error in results.items() if error} == {}
    assert list(results) == RUNNABLE, f"not all did run; standard error:\n{done.stderr}"
