"""pubsub/clock.py: it goes on while the machine is suspended, and suspensions are noticed."""

import json
import subprocess
import sys
import time

import pytest

from kcast.pubsub import clock
from kcast.pubsub.clock import SuspensionWatch

CLOSE_S = 0.01


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A kernel whose clocks a test sets, in ns: the one that stands still, and the one that goes on."""
    clocks = {"monotonic": 10**12, "boottime": 10**12 + 50_000_000_000}
    monkeypatch.setattr(time, "monotonic_ns", lambda: clocks["monotonic"])
    monkeypatch.setattr(time, "clock_gettime_ns", lambda number: clocks["boottime"])
    monkeypatch.setattr(time, "clock_gettime", lambda number: clocks["boottime"] / 1e9)
    monkeypatch.setattr(clock, "_CLOCK", 7)
    monkeypatch.setattr(clock, "_LEAD_NS", clock._lead_ns())
    monkeypatch.setattr(clock, "_LEAD_S", clock._lead_ns() / 1e9)
    return clocks


def test_without_a_suspension_it_reads_as_the_monotonic_clock() -> None:
    before, between, after = time.monotonic(), clock.now(), time.monotonic()
    assert before - CLOSE_S <= between <= after + CLOSE_S
    assert abs(clock.now_ns() / 1e9 - clock.now()) < CLOSE_S
    assert abs(clock.suspended_s()) < CLOSE_S


def test_it_never_goes_back() -> None:
    readings = [clock.now() for _ in range(1000)]
    assert readings == sorted(readings)


def test_it_goes_on_in_a_suspension(kernel: dict[str, int]) -> None:
    begun, begun_ns = clock.now(), clock.now_ns()
    assert begun_ns == 10**12
    kernel["monotonic"] += 5_000_000_000
    kernel["boottime"] += 3605_000_000_000
    assert clock.now() - begun == pytest.approx(3605)
    assert clock.now_ns() - begun_ns == 3605_000_000_000
    assert clock.suspended_s() == pytest.approx(3600)


def test_processes_that_began_after_a_suspension_have_another_clock(
    kernel: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert clock.identity_of_lead() == "+5000"
    monkeypatch.setattr(clock, "_LEAD_NS", 1_500)  # two readings differ by as much
    assert clock.identity_of_lead() == ""


def test_a_suspension_is_noticed_once(kernel: dict[str, int]) -> None:
    watch = SuspensionWatch()
    assert watch.look(clock.now()) == 0.0
    kernel["monotonic"] += 1_000_000
    kernel["boottime"] += 90_001_000_000
    assert watch.look(clock.now()) == pytest.approx(90)
    assert watch.look(clock.now()) == 0.0
    kernel["boottime"] += 7_000_000_000
    assert watch.look(clock.now()) == pytest.approx(7)


def test_a_process_that_was_halted_was_not_suspended(kernel: dict[str, int]) -> None:
    watch = SuspensionWatch()
    watch.look(clock.now())
    for name in kernel:
        kernel[name] += 60_000_000_000
    assert watch.look(clock.now()) == 0.0


def test_where_no_clock_goes_on_it_is_the_monotonic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_CLOCK", None)
    assert abs(clock.now() - time.monotonic()) < CLOSE_S
    assert abs(clock.now_ns() - time.monotonic_ns()) < CLOSE_S * 1e9
    assert clock._lead_ns() == 0


@pytest.mark.world
@pytest.mark.skipif(sys.platform != "linux", reason="time namespaces are Linux's own")
def test_a_machine_that_was_suspended_before_changes_nothing() -> None:
    """In a time namespace in which the machine has been suspended for some 23 days."""
    program = (
        "import json, time; from kcast.pubsub import clock; "
        "print(json.dumps([clock.now(), time.monotonic(), clock.suspended_s(), clock.identity_of_lead()]))"
    )
    done = subprocess.run(
        (
            "unshare",
            "--map-root-user",
            "--time",
            "--boottime",
            "2000000",
            "--fork",
            sys.executable,
            "-c",
            program,
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no time namespaces can be made here: {done.stderr.strip()}")
    now, monotonic, suspended_s, identity = json.loads(done.stdout)
    assert abs(now - monotonic) < CLOSE_S
    assert abs(suspended_s) < CLOSE_S
    assert identity.startswith("+200000")
