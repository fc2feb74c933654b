"""`kcast bench` and its verbs, pub, sub, pubsub and latency: messages a second, latency, loss and cost."""

import sys
from typing import Any

import click

from kcast.client.cli.commands import Commands
from kcast.client.cli.common import EXIT_FAILURE, errors_as_lines
from kcast.loadtest.bench import options as given
from kcast.loadtest.bench.plan import Kind
from kcast.loadtest.bench.session import on_cluster, on_own_servers
from kcast.loadtest.bench.view import NAME


@click.group("bench", cls=Commands)
def command() -> None:
    """Measure messages a second, latency, loss and cost, on this machine or on a cluster.

    Without --cluster it starts servers on this machine, without limits on rates, and stops them at the end.
    With --cluster the load goes to a cluster, which others may use. Publishers and subscribers run in
    processes of their own, as many as this machine has cores. Progress goes to standard error, and figures to
    standard output; docs/bench.md explains them.

    The exit code is 0 if there are figures, also of losses. It is 1 if no message came or none had a receipt,
    if no server answers any more, or if 'sub' got fewer messages than --count; 2 for wrong usage; and 130
    after Ctrl-C, which ends a benchmark early, with the figures until then.

    \b
    Examples:
      kcast bench pubsub
      kcast bench latency --rate 2000
    """


@command.command("pub")
@given.several(given.topic, given.publishing, given.rate_or_none, given.ending)
def pub(topic: str, **options: Any) -> None:
    """Publish, and tell messages a second.

    Without --rate, a publisher goes on as fast as receipts come: at most 256 of its messages await theirs.
    Nobody need be subscribed. With --cluster, 'kcast bench sub' in another terminal can receive the messages.

    \b
    Examples: servers of its own; a cluster, at a rate that it bears
      kcast bench pub
      kcast bench pub --cluster lab.cluster --rate 5000 --duration 10
    """
    _run("pub", topic, options)


@command.command("sub")
@given.several(
    given.topic,
    given.count_each,
    given.duration_since_first,
    given.wait,
    given.topics,
    given.subscribers,
    given.cluster_elsewhere,
    given.json,
)
def sub(topic: str, **options: Any) -> None:
    """Receive what others publish, and tell what is missing.

    It receives what 'kcast bench pub', or anybody, publishes on TOPIC. It ends after --count messages for
    each subscriber, or --duration seconds after the first message; without --duration also when nothing has
    come for 1.5 s. Messages are missing if a publisher's number before them and one after them have come:
    what was lost before the first or after the last is not noticed. Latency is not measured, since publishers
    may have another clock.

    \b
    Examples: a subscriber, and a publisher in another terminal
      kcast bench sub --cluster lab.cluster --count 20000
      kcast bench pub --cluster lab.cluster --count 20000
    """
    _run("sub", topic, options)


@command.command("pubsub")
@given.several(given.topic, given.publishing, given.subscribers, given.rate_or_none, given.ending)
def pubsub(topic: str, **options: Any) -> None:
    """Publish and subscribe, and tell messages a second and losses.

    Each subscriber should get each message. Without --rate, publishers go on as fast as receipts come, so
    that messages wait in queues, and latencies tell how long these are: see 'kcast bench latency'.

    \b
    Examples: one to one; one to ten; one server, as with a broker
      kcast bench pubsub
      kcast bench pubsub --subscribers 10 --rate 1000
      kcast bench pubsub --k 1 --no-confirm
    """
    _run("pubsub", topic, options)


@command.command("latency")
@given.several(
    given.topic,
    given.rate,
    given.size,
    given.count_at_rate,
    given.duration_at_rate,
    given.topics,
    given.publishers,
    given.subscribers,
    given.ending,
)
def latency(topic: str, **options: Any) -> None:
    """Publish at a rate, and tell latencies.

    Each message is published at its time, whatever becomes of others (open loop). Its latency counts from the
    time at which it was due, until a subscriber's program has it. So if a server or this machine stands still
    for a while, the figures have all messages that are late by it.

    \b
    Examples: 1000 messages a second; more of them, without receipts
      kcast bench latency
      kcast bench latency --rate 3000 --no-confirm
    """
    _run("latency", topic, options)


def _run(kind: Kind, topic: str, options: given.Options) -> None:
    cluster_name, as_json = options.pop("cluster_name"), options.pop("as_json")
    wait_s = options.pop("wait_s", 0.0)
    with errors_as_lines(NAME, closed_pipe_exit=EXIT_FAILURE):
        if sys.stdout is None:
            raise OSError("standard output is closed")
        if kind == "sub" and cluster_name is None:
            raise click.UsageError(
                "give --cluster FILE, the cluster at which others publish; for both use 'kcast bench pubsub'"
            )
        plan = given.plan_of(kind, topic, options)
        if cluster_name is None:
            sys.exit(on_own_servers(plan, *given.own_servers(options), as_json=as_json))
        given.refuse_own_servers(options)
        sys.exit(on_cluster(plan, cluster_name, wait_s=wait_s, as_json=as_json))
