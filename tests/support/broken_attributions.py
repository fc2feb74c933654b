"""Attributions that are wrong, each in one way that a test must find."""

from collections.abc import Callable
from typing import Any

from kcast.loadtest.results.causes import Cause
from tests.support.handmade_capture import World

# Each breaks a world in which message 0 went to servers 0 and 1, so that subscriber 0 misses it.
Breaks = Callable[[World, int], None]
BROKEN: dict[str, tuple[Cause, dict[str, Any], Breaks]] = {}
