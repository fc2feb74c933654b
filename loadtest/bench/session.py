"""One call of `kcast bench`: says what it does, does it, and prints what came of it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kcast.client.cli.common import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    fail,
    load_cluster_to_use,
    say,
    to_watch,
)
from kcast.client.cli.text import tell, to_json
from kcast.client.cluster import Cluster, format_cluster
from kcast.client.source import CLUSTER_VARIABLE
from kcast.hashring.policy import Policy
from kcast.loadtest.bench.own_servers import own_servers
from kcast.loadtest.bench.plan import BenchPlan
from kcast.loadtest.bench.report import as_json as json_of
from kcast.loadtest.bench.report import as_text, notes
from kcast.loadtest.bench.run import BenchResult, Target, run
from kcast.loadtest.bench.view import NAME, ProgressLine, counted
from kcast.loadtest.bench.workers import BenchFailed
from kcast.loadtest.clusters.servers import ServerFailed


def on_own_servers(plan: BenchPlan, servers: int, policy: Policy, *, as_json: bool) -> int:
    """Runs a benchmark on servers that it starts and stops; returns the exit code.

    Ends the program where that fails. Raises OSError.
    """
    if named := os.environ.get(CLUSTER_VARIABLE):
        say(
            NAME,
            f"{CLUSTER_VARIABLE} names {named}, which gets no load: --cluster {named} would send it there",
        )
    with _ended_in_words(), own_servers(servers, policy) as own:
        target = Target(
            text=format_cluster(own.cluster), name="servers", servers=servers, policy=policy, own=own
        )
        say(NAME, _described(plan))
        result = run(plan, target, ProgressLine(plan))
    return _tell(plan, target, result, as_json=as_json)


def on_cluster(plan: BenchPlan, cluster_name: str, *, wait_s: float, as_json: bool) -> int:
    """Runs a benchmark on a cluster; returns the exit code. `wait_s` is for the first message of others.

    Ends the program where that fails. Raises ClusterError and OSError.
    """
    cluster = load_cluster_to_use(NAME, cluster_name, is_watched=False)
    what = to_watch(cluster)
    is_text = isinstance(what, Cluster)
    target = Target(
        text=format_cluster(cluster) if is_text else None,
        name=cluster_name if is_text else str(what),
        servers=len(cluster.servers),
        policy=cluster.policy,
    )
    where = f"{cluster_name} ({counted(target.servers, 'server')}, policy {cluster.policy})"
    if plan.publishes:
        say(NAME, f"sends load to {where}, which others may use; Ctrl-C ends it")
    say(NAME, _described(plan) + ("" if plan.publishes else f" of {where}"))
    with _ended_in_words():
        result = run(plan, target, ProgressLine(plan), wait_s)
    return _tell(plan, target, result, as_json=as_json)


@contextmanager
def _ended_in_words() -> Iterator[None]:
    """Ends the program where there are no figures: after Ctrl-C, or with what processes have said."""
    try:
        yield
    except KeyboardInterrupt:
        fail(NAME, "ended by Ctrl-C, without figures", EXIT_INTERRUPTED)
    except (BenchFailed, ServerFailed) as error:
        tell(f"kcast {NAME}: {error}", err=True)  # of several lines, where there is the end of a log
        sys.exit(EXIT_FAILURE)


def _described(plan: BenchPlan) -> str:
    """Returns what a benchmark does, in one line."""
    topics = counted(plan.topics, "topic") + f" ({plan.topic}" + ("/0, ...)" if plan.topics > 1 else ")")
    subscribers = counted(plan.subscribers, "subscriber")
    if not plan.publishes:
        return f"{subscribers}, {topics}"
    who = counted(plan.publishers, "publisher") + (f", {subscribers}" if plan.subscribes else "")
    what = "messages" if plan.count is None else counted(plan.count, "message")
    receipts = "" if plan.confirm else ", without receipts"
    how = "as fast as receipts come" if plan.confirm else "as fast as they leave"
    if plan.rate is not None:
        how = f"{plan.rate:,g} a second"
    if plan.duration_s is not None:
        how += f", for {plan.duration_s:g} s" + (" at most" if plan.count is not None else "")
    return f"{who}, {topics}: {what} of {plan.size_bytes} bytes{receipts}, {how}"


def _tell(plan: BenchPlan, target: Target, result: BenchResult, *, as_json: bool) -> int:
    """Prints what came of it; returns the exit code."""
    if as_json:
        tell(to_json(json_of(plan, target, result)))
    elif result.published or (result.delivered and result.delivered.messages):
        tell("\n".join(as_text(plan, target, result)))
    for note in notes(plan, result):
        say(NAME, note)
    if failure := _failure(plan, result):
        say(NAME, failure)
    if result.is_interrupted:
        say(NAME, "ended by Ctrl-C: the figures are those until then")
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if failure else 0


def _failure(plan: BenchPlan, result: BenchResult) -> str:
    """Returns why the benchmark has failed; "" where it has not."""
    published, delivered = result.published, result.delivered
    if published is not None:
        if published.are_servers_lost:
            return f"no server answers any more: it ended after {counted(published.attempted, 'message')}"
        if not published.with_receipt + published.sent:
            return "no message had a receipt"
    if delivered is None:
        return ""
    if not delivered.messages:
        return "no message came"
    wanted = plan.count * plan.subscribers if plan.kind == "sub" and plan.count is not None else 0
    return (
        f"{delivered.messages:,} of {counted(wanted, 'message')} came" if delivered.messages < wanted else ""
    )
