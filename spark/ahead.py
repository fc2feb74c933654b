"""What an analysis can do while Spark starts: simulate runs of plans, and import what that takes.

Java and Spark take some three seconds to start, of which Python only waits. To simulate the runs of a plan,
for intervals and tests, takes up to two for each scenario, and `scipy.special` takes half a second.
"""

import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kcast.loadtest.scenario import Scenario
from kcast.spark.findings.plan_laws import simulate_ahead


@contextmanager
def ahead(scenarios: Sequence[Scenario]) -> Iterator[None]:
    """Works ahead while the `with` lasts, in a thread; what that has begun then, it completes first.

    It does not go on beside the analysis: two threads of Python would hold each other up.
    """
    is_over = threading.Event()
    thread = threading.Thread(target=_work, args=(scenarios, is_over), name="kcast-ahead", daemon=True)
    thread.start()
    try:
        yield
        is_over.set()
        thread.join()
    finally:
        is_over.set()


def _work(scenarios: Sequence[Scenario], is_over: threading.Event) -> None:
    importlib.import_module("scipy.special")
    for scenario in scenarios:
        if is_over.is_set():
            return
        simulate_ahead(scenario)
