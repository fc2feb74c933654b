"""The orders to a worker, a process with some clients of a benchmark: JSON objects on its standard input."""

from typing import Any, TypedDict


class Job(TypedDict):
    """The first order: who runs here. `text` is that of a cluster file, None where `name` leads to one."""

    plan: dict[str, Any]
    publishers: list[int]
    subscribers: list[int]
    text: str | None
    name: str
    ready_timeout_s: float


class Go(TypedDict):
    """The second: when to begin, in ns of the monotonic clock, and who publishes; None for anybody."""

    go_ns: int
    names: list[str] | None
