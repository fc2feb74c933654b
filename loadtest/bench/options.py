"""The options of `kcast bench`, and the plan that they make."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kcast.client.cli.common import Number, complete_cluster
from kcast.client.cli.policy_options import policy_of, policy_options
from kcast.client.source import CLUSTER_VARIABLE
from kcast.hashring.policy import K_DEFAULT, Policy
from kcast.loadtest.bench.course import WAIT_S_DEFAULT
from kcast.loadtest.bench.plan import CLIENTS_MAX, SIZE_BYTES_MIN, TOPICS_MAX, BenchPlan, Kind
from kcast.pubsub.errors import KcastError

TOPIC_DEFAULT = "bench"
COUNT_DEFAULT = 20_000
DURATION_MAX_DEFAULT_S = 30.0  # with neither --rate nor --count nor --duration
DURATION_DEFAULT_S = 5.0  # with --rate alone
RATE_DEFAULT = 1000.0  # of `latency`
SERVERS_MAX = 200

Options = dict[str, Any]  # by the names of their parameters
_Function = TypeVar("_Function", bound=Callable[..., Any])

_SEVERAL = click.IntRange(1, CLIENTS_MAX)
_COUNT = click.IntRange(min=1)
_DURATION = Number(0, min_open=True)


def several(*options: Callable[[_Function], _Function]) -> Callable[[_Function], _Function]:
    """Returns a decorator that adds these options, in this order."""

    def decorate(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


topic = click.argument("topic", default=TOPIC_DEFAULT, metavar="[TOPIC]")

size = click.option(
    "--size",
    "size_bytes",
    type=click.IntRange(SIZE_BYTES_MIN),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="Size of a message's payload.",
)
count = click.option(
    "--count",
    type=_COUNT,
    metavar="COUNT",
    help="Messages to publish, by all publishers together. [default: 20000, in 30 s at most, unless --rate "
    "or --duration is given]",
)
count_at_rate = click.option(
    "--count", type=_COUNT, metavar="COUNT", help="Messages to publish, by all publishers together."
)
duration = click.option(
    "--duration",
    "duration_s",
    type=_DURATION,
    metavar="SECONDS",
    help="How long to publish. [default: 5 with --rate, unless --count is given]",
)
duration_at_rate = click.option(
    "--duration",
    "duration_s",
    type=_DURATION,
    metavar="SECONDS",
    help="How long to publish. [default: 5, unless --count is given]",
)
topics = click.option(
    "--topics",
    type=click.IntRange(1, TOPICS_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="Topics to spread the messages over: TOPIC/0, TOPIC/1, ...; with 1 it is TOPIC itself.",
)
publishers = click.option(
    "--publishers", type=_SEVERAL, default=1, show_default=True, metavar="N", help="Clients that publish."
)
subscribers = click.option(
    "--subscribers",
    type=_SEVERAL,
    default=1,
    show_default=True,
    metavar="N",
    help="Clients that subscribe, each to all topics.",
)
rate_or_none = click.option(
    "--rate",
    type=Number(min=0),
    default=0.0,
    show_default=True,
    metavar="X",
    help="Messages a second, of all publishers together, each at its time; 0: as fast as receipts come.",
)
rate = click.option(
    "--rate",
    type=Number(min=0, min_open=True),
    default=RATE_DEFAULT,
    show_default=True,
    metavar="X",
    help="Messages a second, of all publishers together, each at its time.",
)
confirm = click.option(
    "--confirm/--no-confirm",
    default=True,
    show_default=True,
    help="Ask servers for a receipt of each message. Without, publishers are faster, and are told nothing.",
)
cluster = click.option(
    "--cluster",
    "cluster_name",
    metavar="FILE|@NAME|CONTEXT",
    shell_complete=complete_cluster,
    help="The cluster that gets the load: a cluster file, the name of a signed list, or that of a context. "
    f"What {CLUSTER_VARIABLE} names, and the context in use, get none. [default: servers of its own]",
)
cluster_elsewhere = click.option(
    "--cluster",
    "cluster_name",
    metavar="FILE|@NAME|CONTEXT",
    shell_complete=complete_cluster,
    help="The cluster: a cluster file, the name of a signed list, or that of a context. [required]",
)
servers = click.option(
    "--servers",
    type=click.IntRange(1, SERVERS_MAX),
    metavar="N",
    help=f"Servers to start on this machine. [default: K of the policy, {K_DEFAULT}]",
)
wait = click.option(
    "--wait",
    "wait_s",
    type=Number(0, min_open=True),
    default=WAIT_S_DEFAULT,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the first message.",
)
count_each = click.option(
    "--count",
    type=_COUNT,
    metavar="COUNT",
    help="End after COUNT messages for each subscriber.",
)
duration_since_first = click.option(
    "--duration",
    "duration_s",
    type=_DURATION,
    metavar="SECONDS",
    help="End so long after the first message. [default: when no more come]",
)
json = click.option("--json", "as_json", is_flag=True, help="Print all figures as one JSON object.")

publishing = several(size, count, duration, topics, publishers)
ending = several(confirm, cluster, servers, policy_options, json)


def plan_of(kind: Kind, topic: str, options: Options) -> BenchPlan:
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
        return BenchPlan(kind=kind, topic=topic, **given)
    except KcastError:  # a topic that cannot be one
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def own_servers(options: Options) -> tuple[int, Policy]:
    """Takes the number of servers and the policy out of the options. Raises click.UsageError."""
    wanted = options.pop("servers")
    given = {name: options.pop(name) for name in ("scheme", "k", "publish", "subscribe")}
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
    """Takes the options of servers of its own out of these. Raises click.UsageError where one is given."""
    if options.pop("servers", None) is not None:
        raise click.UsageError("--servers starts servers: leave it out with --cluster")
    for name in ("scheme", "k", "publish", "subscribe"):
        if options.pop(name, None) is not None:
            raise click.UsageError(f"--{name} is for servers of its own: the cluster file says the policy")
