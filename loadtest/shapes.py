"""A load shape for locust: more users step by step. Name it after the locustfile.

locust -f loadtest/locustfile.py,loadtest/shapes.py --headless -u 60 -r 20 -t 60s
"""

from math import ceil
from typing import Any

from locust import LoadTestShape

STEPS = 6
USERS_DEFAULT = 24
SPAWN_RATE_DEFAULT = 10.0
RUN_TIME_S_DEFAULT = 60.0


class Stairs(LoadTestShape):
    """Six equal steps up to -u users, each started at -r users a second; -t is the time of all six."""

    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        """Returns the number of users wanted now and the rate at which they start; None at the end."""
        options = self.runner.environment.parsed_options if self.runner is not None else None
        users = getattr(options, "num_users", None) or USERS_DEFAULT
        rate = getattr(options, "spawn_rate", None) or SPAWN_RATE_DEFAULT
        run_time_s = getattr(options, "run_time", None) or RUN_TIME_S_DEFAULT
        shape: Any = self  # get_run_time has no types
        step = int(shape.get_run_time() / run_time_s * STEPS)
        return (ceil(users * (step + 1) / STEPS), rate) if step < STEPS else None
