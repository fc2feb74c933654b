"""Estimates what a load test takes, before anything is started: messages, time, disk, CPU.

The costs were measured on a 2-core machine (docs/measured.md). They are good enough to tell minutes from
hours, and whether the capture fits on the disk.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from kcast.loadtest.results.prediction import share_down
from kcast.loadtest.scenario import Scenario
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX

# Costs in seconds.
_START_S = 2.0  # locust, and everything that is started once
_END_S = 1.0  # for all processes to end, after the last deadline
_WORKER_S = 1.0
_SERVER_S = {"processes": 0.02, "containers": 1.2, "lab": 0.004, "file": 0.0}  # to start and to end one
_LEASE_S = 0.0004
_ROW_S = 2.5e-6  # to convert taps, and to compute results
_COPY_CPU_S = 28e-6  # in the process that users run in
_SEND_CPU_S = 40e-6

# Size of a row on disk, and of the parts themselves, which are written every two seconds.
_PUBLISH_BYTES, _SENT_BYTES, _TAKEN_BYTES, _COPY_BYTES, _LEASE_BYTES = 22.0, 4.0, 8.0, 6.5, 6.0
_PARTS_BYTES_PER_S = 14_000.0

CPU_SHARE_MAX = 0.8  # of a core, for each process of users; above it users would be late


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a scenario takes. `cpu_share` is the share of one core that each process of users needs."""

    name: str
    messages: float
    pairs: float
    copies: float
    time_s: float
    disk_bytes: float
    cpu_share: float


def estimate(scenario: Scenario, workers: int = 1) -> Estimate:
    """Estimates a scenario whose users run in `workers` processes."""
    k, publish, subscribe = scenario.policy.sizes(scenario.servers)
    interval_s = min(scenario.ttl_s / scenario.renewals, RENEWAL_INTERVAL_S_MAX)
    audience = scenario.subscribing_users * scenario.topics_per_subscriber / scenario.topics
    messages = scenario.publishing_users * scenario.rate * scenario.duration_s
    sent = messages * publish * scenario.repeat * (1 + scenario.duplicate)
    up = 1 - (share_down(scenario) if scenario.by != "mute" else 0.0)  # copies of mute servers come, too
    taken = sent * up * (1 - scenario.loss_in)
    copies = taken * audience * subscribe / k
    leases = scenario.subscribing_users * scenario.topics_per_subscriber * subscribe
    renewals = leases * (1 + scenario.duration_s / interval_s)
    processes = max(1, workers)
    rows = messages + sent + taken + copies + renewals
    run_s = scenario.duration_s + scenario.deadline_s
    return Estimate(
        name=scenario.name,
        messages=messages,
        pairs=messages * audience,
        copies=copies,
        time_s=fsum(
            (
                *(_START_S, _SERVER_S[scenario.backend] * scenario.servers, _LEASE_S * leases / processes),
                *(run_s, _END_S, _ROW_S * rows, _WORKER_S * (processes if processes > 1 else 0)),
            )
        ),
        disk_bytes=(
            _PUBLISH_BYTES * messages
            + _SENT_BYTES * sent
            + _TAKEN_BYTES * taken
            + _COPY_BYTES * copies
            + _LEASE_BYTES * renewals
            + _PARTS_BYTES_PER_S * run_s * processes
        ),
        cpu_share=(_COPY_CPU_S * copies + _SEND_CPU_S * sent) / scenario.duration_s / processes,
    )


def total(estimates: Iterable[Estimate], name: str = "in all") -> Estimate:
    """Returns the sum of estimates; of `cpu_share` the largest."""
    some = list(estimates)
    return Estimate(
        name=name,
        messages=sum(one.messages for one in some),
        pairs=sum(one.pairs for one in some),
        copies=sum(one.copies for one in some),
        time_s=sum(one.time_s for one in some),
        disk_bytes=sum(one.disk_bytes for one in some),
        cpu_share=max((one.cpu_share for one in some), default=0.0),
    )
