"""The scenarios of `driver_suite` named on the command line, over the blocking driver under gevent.

Prints one JSON object a line: the name of a scenario, and null or the traceback of its failure.
"""

from gevent import monkey

monkey.patch_all()  # before anything of ours is imported, as locust does it

import json  # noqa: E402 - only now
import sys  # noqa: E402 - only now
import traceback  # noqa: E402 - only now

from tests.support import layer_suite, log_suite  # noqa: E402 - only now
from tests.support.driver_suite import SCENARIOS, serving  # noqa: E402 - only now
from tests.support.drivers import Threads  # noqa: E402 - only now

assert layer_suite and log_suite  # they add their scenarios


def main(names: list[str]) -> None:
    with serving() as servers:
        for name in names:
            driver = Threads()
            try:
                driver.run(SCENARIOS[name](driver, servers))
                error = None
            except Exception:
                error = traceback.format_exc()
            print(json.dumps({"scenario": name, "error": error}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
