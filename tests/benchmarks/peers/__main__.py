"""The command: `python -m tests.benchmarks.peers`."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from tests.benchmarks.peers import machine, servers
from tests.benchmarks.peers.latencies import percentiles
from tests.benchmarks.peers.loaded import SATURATING_COPIES_PER_S, LoadedServer
from tests.benchmarks.peers.pacing import TICK_S
from tests.benchmarks.peers.search import highest_rate
from tests.benchmarks.peers.session import Failed, Poller
from tests.benchmarks.peers.trial import Trial
from tests.benchmarks.peers.workloads import Workload
from tests.support.trees import HERE, tree_of

WORKLOADS = (
    Workload("1-to-1", 1, 1, 1),
    Workload("1-to-100", 1, 100, 100),
    Workload("fan-out-10", 1000, 100, 10),
    Workload("fan-out-1", 1000, 100, 1),
)
RATES = (("0.3", 0.3), ("1", 1.0), ("3", 3.0))


def progress(words: str) -> None:
    print(f"  {words}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--search-seconds", type=float, default=0.5)
    parser.add_argument("--tick-us", type=float, default=TICK_S * 1e6)
    parser.add_argument("--beside", action="append", default=[], metavar="COMMIT|FOLDER")
    parser.add_argument("--without", action="append", default=[], metavar="SERVER")
    options = parser.parse_args(arguments)
    cores = machine.cores()
    os.sched_setaffinity(0, {cores.load})
    machine.raise_descriptors(65_536)
    poller = Poller()
    with ExitStack() as stack:
        import tempfile
        from pathlib import Path

        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kinds = [servers.kcast(HERE)]
        kinds += [servers.kcast(tree_of(name, scratch), f"kcast {Path(name).name[:8]}") for name in options.beside]
        for kind in servers.PEERS:
            if kind.name in options.without:
                continue
            try:
                print(kind.name, servers.version(kind))
                kinds.append(kind)
            except Failed as error:
                print(f"{kind.name} skipped: {error}")
        for workload in WORKLOADS:
            if not options.only or workload.name in options.only:
                row(workload, kinds, cores, poller, options)


def row(workload, kinds, cores, poller, options) -> None:
    with ExitStack() as stack:
        loaded = [
            stack.enter_context(LoadedServer(kind, workload, (cores.server,), poller, options.tick_us / 1e6))
            for kind in kinds
        ]
        highest = {}
        for each in loaded:
            saturated = each.trial(SATURATING_COPIES_PER_S / workload.fan_out, options.search_seconds)
            first = saturated.delivered_per_s / workload.fan_out
            highest[each.name] = highest_rate(lambda rate: each.sustains(rate, options.search_seconds), first)
            progress(f"{workload.name} {each.name}: at overload {first:,.0f} messages/s, sustained {highest[each.name]:,.0f}")
        best = max(highest.get("nats-server", 0), highest.get("redis-server", 0)) or max(highest.values())
        found: dict[tuple[str, str], list[Trial]] = {}
        for number in range(options.rounds):
            for label, factor in RATES:
                shift = number % len(loaded)
                for each in loaded[shift:] + loaded[:shift]:
                    found.setdefault((label, each.name), []).append(each.trial(factor * best, options.seconds))
            progress(f"{workload.name}: round {number + 1} of {options.rounds}")
        print(f"\n{workload.name}: the best peer sustains {best:,.0f} messages/s")
        print(f"{'rate':>5} {'server':20} {'us/copy':>8} {'load us':>8} {'ratio':>6}  {'range':12} {'delivered':>10} {'copies/s':>11} {'p50':>8} {'p99':>8} {'p99.9':>8} busy load")
        for label, _ in RATES:
            for each in loaded:
                trials = found[label, each.name]
                peers = [found[label, name] for name in ("nats-server", "redis-server") if (label, name) in found]
                ratios = [
                    mine.server_us / min(other.server_us for other in others)
                    for mine, *others in zip(trials, *peers, strict=True)
                ]
                latencies = [p for p in zip(*(percentiles(t.latencies_us) for t in trials))]
                ps = [median(v for v in p if v is not None) if any(v is not None for v in p) else 0 for p in latencies]
                print(
                    f"{label:>5} {each.name:20} {median(t.server_us for t in trials):8.3f} {median(t.load_us for t in trials):8.3f} {median(ratios):6.2f}"
                    f"  {min(ratios):.2f} to {max(ratios):.2f} {median(t.share_delivered for t in trials):10.4%} {median(t.delivered_per_s for t in trials):11,.0f}"
                    f" {ps[0]:8,.0f} {ps[1]:8,.0f} {ps[2]:8,.0f} {median(t.server_cpu_s / t.elapsed_s for t in trials):.2f} {median(t.load_cpu_s / t.elapsed_s for t in trials):.2f}",
                    flush=True,
                )
        for each in loaded:
            if each.complaints:
                print(f"{each.name} was started again {len(each.complaints)} times: {each.complaints[0]}")
            print(f"{each.name} sustains {highest[each.name]:,.0f} messages/s, {highest[each.name] * workload.fan_out:,.0f} copies/s")


main()
