"""What an analysis can do while Spark starts: import its own modules, and simulate runs of plans.

Java and Spark take some three seconds to start, of which Python only waits. The modules take one. To simulate
the runs of a plan, for intervals and tests, takes up to two for each scenario.
"""

import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kcast.loadtest.scenario import Scenario


@contextmanager
def ahead(modules: Sequence[str], scenarios: Sequence[Scenario]) -> Iterator[None]:
    """Imports these modules and simulates runs of these scenarios while the `with` lasts, in a thread; what
    that has begun then, it completes first.

    It does not go on beside the analysis: two threads of Python would hold each other up.
    """
    is_over = threading.Event()
    thread = threading.Thread(
        target=_work, args=(modules, scenarios, is_over), name="kcast-ahead", daemon=True
    )
    thread.start()
    try:
        yield
        is_over.set()
        thread.join()
    finally:
        is_over.set()


def _work(modules: Sequence[str], scenarios: Sequence[Scenario], is_over: threading.Event) -> None:
    for name in modules:
        importlib.import_module(name)
    # It needs numpy, which takes a while to import itself.
    from kcast.spark.findings.plan_laws import simulate_ahead

    for scenario in scenarios:
        if is_over.is_set():
            return
        simulate_ahead(scenario)
