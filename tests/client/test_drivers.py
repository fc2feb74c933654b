"""All drivers against real servers: `driver_suite` under asyncio, uvloop, threads and gevent."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import uvloop

from kcast.pubsub.sockets import SOCKETS_VARIABLE, uses_linux
from tests.support.driver_suite import SCENARIOS, Servers, serving
from tests.support.drivers import Driver, Loop, Threads
from tests.support.machine import has_ipv6

pytestmark = pytest.mark.world

DRIVERS: dict[str, Driver] = {
    "asyncio": Loop(asyncio.SelectorEventLoop),
    "uvloop": Loop(uvloop.new_event_loop),
    "threads": Threads(),
}
RUNNABLE = [name for name in SCENARIOS if "ipv6_serves" not in name or has_ipv6()]
GEVENT_TIMEOUT_S = 60.0


@pytest.fixture(scope="module", params=["linux", "portable"], autouse=True)
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


@pytest.fixture(scope="module", autouse=True)
def gevent_process(sockets: str) -> Iterator["subprocess.Popen[str]"]:
    """All scenarios under gevent, at the same time as the others under the other drivers."""
    process = subprocess.Popen(
        (sys.executable, "-m", "tests.support.driver_suite_gevent", *RUNNABLE),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def gevent_results(gevent_process: "subprocess.Popen[str]") -> tuple[dict[str, str | None], str]:
    """Scenario -> None or how it failed; and what there was on standard error."""
    try:
        output, errors = gevent_process.communicate(timeout=GEVENT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        gevent_process.kill()
        output, errors = gevent_process.communicate()
        errors += f"it was ended after {GEVENT_TIMEOUT_S:g} s\n"
    results = map(json.loads, output.splitlines())
    return {result["scenario"]: result["error"] for result in results}, errors


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("driver", DRIVERS)
def test_driver(driver: str, name: str, servers: Servers) -> None:
    if name not in RUNNABLE:
        pytest.skip("this machine has no IPv6")
    DRIVERS[driver].run(SCENARIOS[name](DRIVERS[driver], servers))


@pytest.mark.parametrize("name", SCENARIOS)
def test_gevent(name: str, gevent_results: tuple[dict[str, str | None], str]) -> None:
    if name not in RUNNABLE:
        pytest.skip("this machine has no IPv6")
    results, errors = gevent_results
    assert name in results, f"it did not run; standard error:\n{errors}"
    if results[name] is not None:
        pytest.fail(results[name] or "", pytrace=False)
