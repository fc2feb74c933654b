"""`kcast bench` and its verbs, pub, sub, pubsub and latency: messages a second, latency, loss and cost."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from kcast.client.cli.commands import Commands
from kcast.client.cli.common import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    Number,
    complete_cluster,
    errors_as_lines,
    fail,
    load_cluster_to_use,
    say,
    several,
    to_watch,
    value_option,
)
from kcast.client.cli.policy_options import policy_of, policy_options
from kcast.client.cli.text import tell, to_json
from kcast.client.source import CLUSTER_VARIABLE
from kcast.hashring.policy import K_DEFAULT, Policy
from kcast.loadtest.bench.counts import Figures
from kcast.loadtest.bench.plan import CLIENTS_MAX, SIZE_BYTES_MIN, TOPICS_MAX, BenchPlan, Kind
from kcast.loadtest.bench.report import NAME, as_text, counted, described, failure, notes
from kcast.loadtest.bench.report import as_json as json_of
from kcast.loadtest.bench.run import Target, run
from kcast.loadtest.bench.worker import BenchFailed
from kcast.loadtest.clusters.processes import ProcessCluster
from kcast.loadtest.clusters.servers import UNLIMITED, ServerFailed
from kcast.pubsub.errors import KcastError
from kcast.pubsub.limits import TTL_S_DEFAULT

COUNT_DEFAULT = 20_000
DURATION_MAX_DEFAULT_S = 30.0  # with neither --rate nor --count nor --duration
_POLICY = ("scheme", "k", "publish", "subscribe")
DURATION_DEFAULT_S = 5.0  # with --rate alone
SERVERS_MAX = 200

Options = dict[str, Any]  # by the names of their parameters
_Option = Callable[[Any], Any]


# --- Options -----------------------------------------------------------------------------------------


_COUNT, _CLIENTS = click.IntRange(min=1), click.IntRange(1, CLIENTS_MAX)
_SECONDS = Number(0, min_open=True)
_CLUSTER_FILE = "a cluster file, the name of a signed list, or that of a context."


def _count(words: str) -> _Option:
    return value_option("--count", _COUNT, words, unit="COUNT")


def _duration(words: str) -> _Option:
    return value_option("--duration duration_s", _SECONDS, words, unit="SECONDS")


def _rate(words: str, default: float) -> _Option:
    kind = Number(0, min_open=default > 0)
    start = "Messages a second, of all publishers together, each at its time"
    return value_option("--rate", kind, start + words, default, "X")


def _cluster(words: str) -> _Option:
    form = "FILE|@NAME|CONTEXT"
    return click.option(
        "--cluster", "cluster_name", metavar=form, shell_complete=complete_cluster, help=words
    )


_topic = click.argument("topic", default="bench", metavar="[TOPIC]")
_topics = value_option(
    "--topics",
    click.IntRange(1, TOPICS_MAX),
    "Topics to spread the messages over: TOPIC/0, TOPIC/1, ...; with 1 it is TOPIC itself.",
    1,
    "N",
)
_subscribers = value_option("--subscribers", _CLIENTS, "Clients that subscribe, each to all topics.", 1, "N")
_json = click.option("--json", "as_json", is_flag=True, help="Print all figures as one JSON object.")
_publishing = several(
    _topic,
    value_option("--size size_bytes", click.IntRange(SIZE_BYTES_MIN), "Bytes of each payload.", 100, "BYTES"),
    _count(
        "Messages to publish, by all publishers together. [default: 20000, in 30 s at most, without a rate "
        "and --duration]"
    ),
    _duration("How long to publish. [default: 5 with a rate, unless --count is given]"),
    _topics,
    value_option("--publishers", _CLIENTS, "Clients that publish.", 1, "N"),
)
_rate_or_none = _rate("; 0: as fast as receipts come.", 0.0)
_ending = several(
    click.option(
        "--confirm/--no-confirm",
        default=True,
        show_default=True,
        help="Ask servers for a receipt of each message. Without, publishers are faster, and told nothing.",
    ),
    _cluster(
        f"The cluster that gets the load: {_CLUSTER_FILE} What {CLUSTER_VARIABLE} names, and the context in "
        "use, get none. [default: servers of its own]"
    ),
    value_option(
        "--servers",
        click.IntRange(1, SERVERS_MAX),
        f"Servers to start on this machine. [default: K of the policy, {K_DEFAULT}]",
        unit="N",
    ),
    policy_options,
    _json,
)


# --- Verbs -------------------------------------------------------------------------------------------


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
@several(_publishing, _rate_or_none, _ending)
def pub(**options: Any) -> None:
    """Publish, and tell messages a second.

    Without --rate, a publisher goes on as fast as receipts come: at most 256 of its messages await theirs.
    Nobody need be subscribed. With --cluster, 'kcast bench sub' in another terminal can receive the messages.

    \b
    Examples: servers of its own; a cluster, at a rate that it bears
      kcast bench pub
      kcast bench pub --cluster lab.cluster --rate 5000 --duration 10
    """
    _bench("pub", options)


@command.command("sub")
@several(
    _topic,
    _count("End after COUNT messages for each subscriber."),
    _duration("End so long after the first message. [default: when no more come]"),
    value_option("--wait wait_s", _SECONDS, "How long to wait for the first message.", 60.0, "SECONDS"),
    _topics,
    _subscribers,
    _cluster(f"The cluster: {_CLUSTER_FILE} [required]"),
    _json,
)
def sub(**options: Any) -> None:
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
    _bench("sub", options)


@command.command("pubsub")
@several(_publishing, _subscribers, _rate_or_none, _ending)
def pubsub(**options: Any) -> None:
    """Publish and subscribe, and tell messages a second and losses.

    Each subscriber should get each message. Without --rate, publishers go on as fast as receipts come, so
    that messages wait in queues, and latencies tell how long these are: see 'kcast bench latency'.

    \b
    Examples: one to one; one to ten; one server, as with a broker
      kcast bench pubsub
      kcast bench pubsub --subscribers 10 --rate 1000
      kcast bench pubsub --k 1 --no-confirm
    """
    _bench("pubsub", options)


@command.command("latency")
@several(_publishing, _subscribers, _rate(".", 1000.0), _ending)
def latency(**options: Any) -> None:
    """Publish at a rate, and tell latencies.

    Each message is published at its time, whatever becomes of others (open loop). Its latency counts from the
    time at which it was due, until a subscriber's program has it. So if a server or this machine stands still
    for a while, the figures have all messages that are late by it.

    \b
    Examples: 1000 messages a second; more of them, without receipts
      kcast bench latency
      kcast bench latency --rate 3000 --no-confirm
    """
    _bench("latency", options)


# --- A call ------------------------------------------------------------------------------------------


def _bench(kind: Kind, options: Options) -> None:
    """Says what a benchmark does, does it, prints what came of it, and ends the program."""
    cluster_name, as_json = options.pop("cluster_name"), options.pop("as_json")
    wait_s = options.pop("wait_s", 0.0)
    with errors_as_lines(NAME, closed_pipe_exit=EXIT_FAILURE):
        if sys.stdout is None:
            raise OSError("standard output is closed")
        if kind == "sub" and cluster_name is None:
            raise click.UsageError(
                "give --cluster FILE, the cluster at which others publish; for both use 'kcast bench pubsub'"
            )
        plan = plan_of(kind, options)
        if cluster_name is None:
            result = _on_own_servers(plan, *own_servers(options))
        else:
            refuse_own_servers(options)
            result = _on_cluster(plan, cluster_name, wait_s)
        sys.exit(_tell(plan, result, as_json=as_json))


def plan_of(kind: Kind, options: Options) -> BenchPlan:
    """Takes the options of a plan out of these, and returns the plan. Raises click.UsageError, TopicError."""
    names = BenchPlan.__dataclass_fields__.keys() & options.keys()
    given = {name: options.pop(name) for name in names}
    if "rate" in given:
        given["rate"] = given["rate"] or None
        if given["count"] is None and given["duration_s"] is None:
            has_rate = given["rate"] is not None
            given["count"] = None if has_rate else COUNT_DEFAULT
            given["duration_s"] = DURATION_DEFAULT_S if has_rate else DURATION_MAX_DEFAULT_S
    try:
        return BenchPlan(kind=kind, **given)
    except KcastError:  # a topic that cannot be one
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def own_servers(options: Options) -> tuple[int, Policy]:
    """Takes the number of servers and the policy out of the options. Raises click.UsageError."""
    wanted = options.pop("servers")
    given = {name: options.pop(name) for name in _POLICY}
    if all(value is None for value in given.values()):
        k = min(K_DEFAULT, wanted or K_DEFAULT)  # as `kcast serve --count` has it
        return wanted or k, Policy(k, k // 2 + 1, k)
    policy = policy_of(hosts=wanted or K_DEFAULT, **given)
    if wanted is not None and wanted < policy.k:
        raise click.UsageError(
            f"policy {policy} needs {policy.k} servers: raise --servers {wanted}, or lower --k {policy.k}"
        )
    return wanted or policy.k, policy


def refuse_own_servers(options: Options) -> None:
    """Raises click.UsageError where an option of servers of its own is given."""
    given = [f"--{name}" for name in (*_POLICY, "servers") if options.get(name) is not None]
    if given:
        raise click.UsageError(f"--cluster has servers and a policy: leave out {' and '.join(given)}")


def _on_own_servers(plan: BenchPlan, count: int, policy: Policy) -> Figures:
    """Starts servers on this machine, without limits on rates, and stops them at the end."""
    name = counted(count, "server")
    with _ended_in_words(), ProcessCluster(count, ttl_s=int(TTL_S_DEFAULT), options=UNLIMITED) as servers:
        say(NAME, f"started {name} on 127.0.0.1, policy {policy}")
        say(NAME, described(plan))
        result = run(plan, Target(servers.cluster(policy), "servers", count, policy, servers))
    say(NAME, f"stopped the {name.removeprefix('1 ')}")
    return result


def _on_cluster(plan: BenchPlan, name: str, wait_s: float) -> Figures:
    """Runs a benchmark on a cluster; `wait_s` is for the first message of others. Raises ClusterError."""
    cluster = load_cluster_to_use(NAME, name, is_watched=False)
    target = Target(to_watch(cluster), name, len(cluster.servers), cluster.policy)
    where = f"{name} ({counted(target.servers, 'server')}, policy {cluster.policy})"
    if plan.publishes:
        say(NAME, f"sends load to {where}, which others may use; Ctrl-C ends it")
    say(NAME, described(plan) + ("" if plan.publishes else f" of {where}"))
    with _ended_in_words():
        return run(plan, target, wait_s)


@contextmanager
def _ended_in_words() -> Iterator[None]:
    """Ends the program where there are no figures: after Ctrl-C, or with what processes have said."""
    try:
        yield
    except KeyboardInterrupt:
        fail(NAME, "interrupted, without figures", EXIT_INTERRUPTED)
    except (BenchFailed, ServerFailed) as error:
        tell(f"kcast {NAME}: {error}", err=True)  # of several lines, where there is the end of a log
        sys.exit(EXIT_FAILURE)


def _tell(plan: BenchPlan, result: Figures, *, as_json: bool) -> int:
    """Prints what came of it; returns the exit code."""
    if as_json:
        tell(to_json(json_of(plan, result)))
    elif result["published"] or result["delivered"]["messages"]:
        tell("\n".join(as_text(plan, result)))
    failed = failure(plan, result)
    for each in (*notes(plan, result), *([failed] if failed else [])):
        say(NAME, each)
    if result["interrupted"]:
        say(NAME, "interrupted: the figures are those until then")
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if failed else 0
