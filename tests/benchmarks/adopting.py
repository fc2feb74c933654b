"""How long an event loop waits while its client goes over to another signed list of 100,000 servers.

Run `python -m tests.benchmarks.adopting`. A client makes a turn each millisecond. Another list comes: it
is fetched and judged in a thread, and adopted at once. The longest turn is what the client itself takes; the
longest gap is what others in the loop wait, the thread's hold on the interpreter counted in.
"""

import time
from statistics import median

from kcast.client.cluster import ServerEntry
from kcast.client.engine import Engine
from kcast.hashring.policy import Policy
from tests.support.lists import hosts
from tests.support.published import AT_NAME, known_list

SERVERS = 100_000
RUNS = 5
TICK_S = 0.001
SETTLE_S = 1.0
WAIT_S = 30.0


def main() -> None:
    """Prints medians in milliseconds."""
    runs = [stalls_s(hosts(SERVERS + 100)) for _ in range(RUNS)]
    names = (
        "longest turn, at the adoption",
        "longest gap, at the adoption",
        "longest gap, of a quiet client",
    )
    for name, times_s in zip(names, zip(*runs, strict=True), strict=True):
        print(f"{name:34} {median(times_s) * 1000:5.0f} ms (worst {max(times_s) * 1000:.0f})")


def stalls_s(servers: tuple[ServerEntry, ...]) -> tuple[float, float, float]:
    """Returns these three of one client."""
    with known_list(Policy(5, 3, 5)) as known:
        known.publish(servers[:SERVERS], fresh_s=60, age_s=50)
        engine = Engine(AT_NAME, usage="with it:")
        engine.open()
        try:
            known.publish(servers[100:], fresh_s=3600)  # the first is due to be replaced
            turn_s, gap_s = longest(engine, WAIT_S, until_version=2)
            state = engine.list_state()
            assert state is not None and state.version == 2
            _, quiet_s = longest(engine, SETTLE_S)
        finally:
            engine.close()
    return turn_s, gap_s, quiet_s


def longest(engine: Engine, for_s: float, until_version: int = 0) -> tuple[float, float]:
    """Returns the longest turn, and the longest time between two, in so many seconds; until a version of the
    list is in use, and a second more."""
    turn_s = gap_s = 0.0
    before = time.perf_counter()
    end = before + for_s
    while before < end:
        engine.turn()
        turned = time.perf_counter()
        turn_s = max(turn_s, turned - before)
        time.sleep(TICK_S)
        now = time.perf_counter()
        gap_s = max(gap_s, now - before)
        before = now
        state = engine.list_state() if until_version else None
        if state is not None and state.version >= until_version:
            until_version, end = 0, now + SETTLE_S
    return turn_s, gap_s


if __name__ == "__main__":
    main()
