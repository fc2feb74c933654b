"""loadtest/users/clocks.py: the offset of another machine's clock, and how far off it may be."""

from random import Random

from kcast.loadtest.users.clocks import Ping, clock_id, offset


def test_the_offset_is_within_its_error() -> None:
    for seed in range(20):
        rng = Random(seed)
        true_ns = rng.randint(-(10**15), 10**15)
        now_ns, pings = 10**12, []
        for _ in range(20):
            coordinator_ns, back_ns = (rng.randint(10_000, 3_000_000) for _ in range(2))
            pings.append(Ping(now_ns, now_ns + coordinator_ns + true_ns, now_ns + coordinator_ns + back_ns))
            now_ns += 10_000_000
        found = offset(pings)
        assert abs(found.offset_ns - true_ns) <= found.error_ns, f"seed {seed}"
        assert found.error_ns == (min(ping.back_ns - ping.sent_ns for ping in pings) + 1) // 2


def test_processes_of_one_machine_have_one_clock() -> None:
    assert clock_id() == clock_id()
    assert clock_id()
