"""`kcast plan`: shows what theory expects of a policy, to choose one by: delivery, copies, cost, TTL.

It also shows what a price of new leases (PROTOCOL §5.11) means in computing time, measured on this machine.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import fsum
from time import perf_counter

import click

from kcast.client.cli.common import (
    Number,
    cluster_option,
    count_of,
    errors_as_lines,
    load_cluster,
    table,
    to_json,
)
from kcast.hashring import model
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL, TTL_S_DEFAULT, WORK_BITS_MAX, Limits
from kcast.pubsub.stamp import Mint

HOSTS_DEFAULT = 100
DOWN_DEFAULT = 0.1
CH_K_SHOWN_MAX = 5
K_PRIME_SHOWN_MAX = 10
MEASURE_S = 0.2  # how long tries for a stamp are measured
EXACT_K_MAX = 100  # above it, hosts are taken as blocked independently: the exact sum takes time cubic in K


@dataclass(frozen=True)
class Setting:
    """The conditions for a policy. Shares are 0 to 1; `rate` is messages a second on one topic."""

    hosts: int
    down: float  # the share of time that each host is down, independently, or ...
    down_exactly: int | None  # ... the number of hosts that are down, drawn at random
    loss: float
    repeat: int
    subscribers: int
    rate: float
    ttl_s: float
    lifetime_s: float

    @property
    def up(self) -> float:
        """The share of hosts that are up, on average."""
        return 1 - (self.down if self.down_exactly is None else self.down_exactly / self.hosts)

    @property
    def interval_s(self) -> float:
        """Seconds between two renewals of a lease."""
        return min(self.ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)

    @property
    def live(self) -> float:
        """The share of time for which a lease stands, given that renewals may get lost."""
        return model.sigma(RENEWALS_PER_TTL, self.loss)


@dataclass(frozen=True)
class Forecast:
    """What theory expects of a policy in a setting. Copies are of one message at one subscriber."""

    policy: str
    delivery: float
    miss: float
    whole_audience: float
    copies: float
    duplicates: float
    packets_per_message: float
    published_per_s: float
    renewals_per_s: float
    forwarded_per_s: float
    blocked_to_halve: int
    blocked_to_stop: int
    best_ttl_s: float
    waste_per_s: float
    waste_at_best_per_s: float

    @property
    def packets_per_s(self) -> float:
        """All of a topic's packets a second, without answers."""
        return self.published_per_s + self.renewals_per_s + self.forwarded_per_s


@dataclass(frozen=True)
class Work:
    """The average computing time for new leases, on a core that tries `tries_per_s` stamps a second."""

    bits: int
    tries_per_s: float

    @property
    def lease_s(self) -> float:
        """Seconds for one new lease at one server."""
        return 2**self.bits / self.tries_per_s if self.bits else 0.0

    def subscription_s(self, servers: int) -> float:
        """Returns the seconds for one topic at this number of servers."""
        return servers * self.lease_s

    @property
    def table_s(self) -> float:
        """Seconds to fill a server's table with leases: n leases cost n times as much as one."""
        return Limits().leases * self.lease_s


@click.command("plan")
@cluster_option
@click.option("--hosts", type=click.IntRange(1, 100_000), help="Hosts in the cluster.")
@click.option("--scheme", type=click.Choice(["S", "R", "CH", "RCH"]), help="A scheme of the note of 2004.")
@click.option("--k", type=click.IntRange(1, 1000), metavar="K", help="Number of a topic's hosts.")
@click.option(
    "--publish", type=click.IntRange(1, 1000), metavar="M", help="Number that each message goes to."
)
@click.option(
    "--subscribe", type=click.IntRange(1, 1000), metavar="N", help="Number that a subscriber leases at."
)
@click.option(
    "--down", type=Number(0, 1), metavar="P", help=f"Share of time a host is down. [default: {DOWN_DEFAULT}]"
)
@click.option("--down-exactly", type=click.IntRange(min=0), metavar="D", help="Or: exactly D hosts are down.")
@click.option(
    "--loss", type=Number(0, 1, max_open=True), default=0.0, show_default=True, help="Loss on each leg."
)
@click.option(
    "--repeat", type=click.IntRange(1, 100), default=1, show_default=True, help="Sends per message."
)
@click.option(
    "--subscribers", type=click.IntRange(1, 10_000_000), default=10, show_default=True, help="On the topic."
)
@click.option(
    "--rate",
    type=Number(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Messages a second on the topic.",
)
@click.option(
    "--ttl",
    "ttl_s",
    type=Number(1),
    default=TTL_S_DEFAULT,
    show_default=True,
    metavar="SECONDS",
    help="How long a lease stands unless it is renewed.",
)
@click.option(
    "--lifetime",
    "lifetime_s",
    type=Number(1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a subscriber stays, on average.",
)
@click.option(
    "--work-bits",
    type=click.IntRange(0, WORK_BITS_MAX),
    metavar="BITS",
    help="Price of a new lease; shows what it means on this machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each policy, yours first.")
def command(
    cluster_file: str | None,
    hosts: int | None,
    scheme: str | None,
    k: int | None,
    publish: int | None,
    subscribe: int | None,
    down: float | None,
    down_exactly: int | None,
    loss: float,
    repeat: int,
    subscribers: int,
    rate: float,
    ttl_s: float,
    lifetime_s: float,
    work_bits: int | None,
    as_json: bool,
) -> None:
    """Show what theory expects a policy to deliver and to cost, beside others. Asks no server.

    A policy is written k/publish/subscribe. It and the number of hosts come from the options, else from the
    cluster file, else they are 5/3/5 and 100. Theory is beforehand: it is not known which hosts will be down.
    Each host is down for a share --down of the time, independently of others; or --down-exactly hosts are
    down. Theory is for publishers that do not avoid dead hosts. kcast's do avoid them, and lose less.

    With --work-bits, the price that `kcast serve` may ask, it measures how fast this machine finds stamps. It
    shows how long such clients compute for a lease, and for a table full of leases. An attacker may be a
    thousand times faster.

    With --json the keys spell out the table's columns; shares are 0 to 1, and `avoidance` is false. `work` is
    null without --work-bits.

    \b
    Examples: the default policy; a lab of 12 with 4 servers killed; a price of 18 bits
      kcast plan --down 0.1 --loss 0.01
      kcast plan --hosts 12 --down-exactly 4 --k 5 --publish 2 --subscribe 5
      kcast plan --work-bits 18
    """
    with errors_as_lines("plan"):
        if down is not None and down_exactly is not None:
            raise click.UsageError("--down and --down-exactly exclude each other: give one of them.")
        own = any(value is not None for value in (scheme, k, publish, subscribe))
        cluster = load_cluster("plan", cluster_file) if cluster_file else None
        if hosts is None:
            hosts = len({server.key for server in cluster.servers}) if cluster else HOSTS_DEFAULT
        policy = cluster.policy if cluster and not own else _policy(scheme, hosts, k, publish, subscribe)
        if down_exactly is not None and down_exactly > hosts:
            raise click.UsageError(
                f"--down-exactly is {down_exactly}, but there are {count_of(hosts, 'host')}."
            )
        down = DOWN_DEFAULT if down is None else down
        setting = Setting(hosts, down, down_exactly, loss, repeat, subscribers, rate, ttl_s, lifetime_s)
        work = None if work_bits is None else Work(work_bits, _measured_tries_per_s())
        for line in _as_json(policy, setting, work) if as_json else _as_text(policy, setting, work):
            click.echo(line)


def _policy(
    scheme: str | None, hosts: int, k: int | None, publish: int | None, subscribe: int | None
) -> Policy:
    """Returns the policy that the options describe. Raises click.UsageError."""
    try:
        if scheme == "S":
            return Policy.from_scheme("S", k=k, publish=publish, subscribe=subscribe)
        if scheme == "R":
            return Policy.from_scheme("R", servers=hosts, k=k, publish=publish, subscribe=subscribe)
        if scheme == "CH":
            return Policy.from_scheme("CH", k=k, publish=publish, subscribe=subscribe)
        k = Policy().k if k is None else k
        few = min(k, Policy().publish)
        if publish is None:
            publish = few if subscribe in (None, k) else k
        return Policy(k, publish, k if subscribe is None else subscribe)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None


# --- Theory ------------------------------------------------------------------------------------------


def predict(policy: Policy, setting: Setting) -> Forecast:
    """Returns what theory expects of a policy in a setting if publishers do not avoid dead hosts."""
    k, m, n = policy.sizes(setting.hosts)
    miss = _miss(k, m, n, setting)
    delivery = 1 - miss
    copies = model.copies(k, m, n, setting.up, setting.loss, setting.loss, setting.live, setting.repeat)
    cost = model.cost(
        k,
        m,
        n,
        setting.subscribers,
        setting.rate,
        setting.interval_s,
        setting.repeat,
        setting.up,
        setting.loss,
        setting.live,
    )
    flow = setting.rate * setting.repeat * m / k

    def waste(ttl_s: float) -> float:
        return model.wasted_traffic(ttl_s, flow, setting.lifetime_s, RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)

    best_ttl_s = model.best_ttl(flow, setting.lifetime_s, RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX)
    return Forecast(
        policy=str(policy),
        delivery=delivery,
        miss=miss,
        whole_audience=_whole_audience(k, m, n, setting),
        copies=copies,
        duplicates=model.duplicates(copies, delivery) if delivery else 0.0,
        packets_per_message=(cost.published + cost.forwarded) / setting.rate,
        published_per_s=cost.published,
        renewals_per_s=cost.renewals,
        forwarded_per_s=cost.forwarded,
        blocked_to_halve=_blocked_to_halve(k, m, n, setting),
        blocked_to_stop=k,
        best_ttl_s=best_ttl_s,
        waste_per_s=waste(setting.ttl_s),
        waste_at_best_per_s=waste(best_ttl_s),
    )


def _sends(k: int, m: int, repeat: int) -> tuple[int, int]:
    """Returns how often a message goes to each host: `least` times, and to `extra` of the k once more."""
    return divmod(m * repeat, k)


def _path_up(sends: int, setting: Setting) -> float:
    """The chance that a message sent `sends` times to a host that is up gets through it."""
    return model.path(0.0, setting.loss, setting.loss, setting.live, sends)


def _miss(k: int, m: int, n: int, setting: Setting) -> float:
    """The chance that a subscriber misses a message, with repeats counted at the hosts they go to."""
    least, extra = _sends(k, m, setting.repeat)
    more, less = _path_up(least + 1, setting), _path_up(least, setting)
    first, pmf = model.hypergeometric(k, extra, n)
    if setting.down_exactly is None:
        up = 1 - setting.down
        return fsum(w * (1 - up * more) ** h * (1 - up * less) ** (n - h) for h, w in enumerate(pmf, first))
    # First for the hosts with more sends: the number of them that are down.
    hosts, down = setting.hosts, setting.down_exactly
    total = 0.0
    for h, weight in enumerate(pmf, first):
        first_down, down_pmf = model.hypergeometric(hosts, down, h)
        for d, chance in enumerate(down_pmf, first_down):
            rest = 1.0
            if less and n > h:
                rest = model.miss_exactly_down(hosts - h, down - d, n - h, less)
            total += weight * chance * (1 - more) ** (h - d) * rest
    return total


def _whole_audience(k: int, m: int, n: int, setting: Setting) -> float:
    """The chance that all subscribers get a message; a lower bound if there are more sends than hosts."""
    used = min(k, m * setting.repeat)
    if setting.down_exactly is None:
        return model.audience(
            k, used, n, setting.subscribers, setting.up, setting.loss, setting.loss, setting.live
        )
    first, pmf = model.hypergeometric(setting.hosts, setting.hosts - setting.down_exactly, used)
    # Given the number of used hosts that are up, only packet loss is left to chance.
    return fsum(
        weight * model.audience(k, up, n, setting.subscribers, 1.0, setting.loss, setting.loss, setting.live)
        for up, weight in enumerate(pmf, first)
    )


def _blocked_to_halve(k: int, m: int, n: int, setting: Setting) -> int:
    """Returns how many of a topic's hosts must be blocked to halve its delivery."""
    used, path_up = min(k, m * setting.repeat), setting.up * _path_up(1, setting)

    def delivery(blocked: int) -> float:
        if k > EXACT_K_MAX:
            return model.delivery(k, used, n, path_up * (1 - blocked / k))
        return model.delivery_given_down(k, used, n, blocked, path_up)

    whole = delivery(0)
    return bisect_left(range(k), True, key=lambda blocked: delivery(blocked) <= whole / 2)


def _few_publish(policy: Policy, hosts: int) -> list[Policy]:
    """Returns k/1/k to k/k/k, if the policy is on the ring; leaves some out of a long list."""
    if policy.placement != "ring":
        return []
    k, m, _ = policy.sizes(hosts)
    step = max(1, -(-k // K_PRIME_SHOWN_MAX))
    return [Policy(k, k_prime, k) for k_prime in sorted({1, *range(step, k + 1, step), k, m})]


def _all_of_k(hosts: int) -> list[Policy]:
    return [Policy(k, k, k) for k in range(1, min(CH_K_SHOWN_MAX, hosts) + 1)]


def _measured_tries_per_s() -> float:
    """Measures how many stamps a client tries in a second on one core of this machine."""
    mint = Mint(b"A" * 32, [b"a-topic-of-some-length"], bits=60)
    mint.work(1000)
    started_at, before = perf_counter(), mint.tries
    while (spent_s := perf_counter() - started_at) < MEASURE_S:
        mint.work(5000)
    return (mint.tries - before) / spent_s


# --- Output ------------------------------------------------------------------------------------------


def _as_json(policy: Policy, setting: Setting, work: Work | None) -> Iterator[str]:
    for each in (policy, *_few_publish(policy, setting.hosts), *_all_of_k(setting.hosts)):
        prediction = predict(each, setting)
        fields = asdict(prediction)
        del fields["policy"]
        k, m, n = each.sizes(setting.hosts)
        yield to_json(
            {
                "policy": str(each),
                "scheme": each.scheme,
                "k": k,
                "publish": m,
                "subscribe": n,
                "avoidance": False,
                **fields,
                "packets_per_s": prediction.packets_per_s,
                "setting": asdict(setting),
                "work": None if work is None else _work_fields(work, n),
            }
        )


def _work_fields(work: Work, servers: int) -> dict[str, float]:
    return {
        "bits": work.bits,
        "tries_per_s": work.tries_per_s,
        "lease_s": work.lease_s,
        "subscription_s": work.subscription_s(servers),
        "table_leases": Limits().leases,
        "table_s": work.table_s,
    }


def _as_text(policy: Policy, setting: Setting, work: Work | None) -> Iterator[str]:
    own = predict(policy, setting)
    k, publish, subscribe = policy.sizes(setting.hosts)
    if setting.down_exactly is None:
        outage = f"each down {_share(setting.down)} of the time"
    else:
        outage = f"exactly {setting.down_exactly} of them down"
    yield f"policy     {policy}" + ("" if k == policy.k else f" (with so few hosts, k={k})")
    hosts = count_of(setting.hosts, "host")
    yield f"setting    {hosts}, {outage}; packet loss {_share(setting.loss)} each way"
    yield (
        f"           {setting.rate:g} messages/s, {setting.subscribers} subscribers, "
        f"each message sent {'once' if setting.repeat == 1 else f'{setting.repeat} times'}"
    )
    yield "           publishers do not avoid dead servers"
    yield ""
    yield f"delivery   {_share(own.delivery)}: {_one_in(own.miss)}"
    more_sends = publish * setting.repeat > k
    yield (
        f"audience   {'at least ' if more_sends else ''}{_share(own.whole_audience)} of messages reach all "
        f"{setting.subscribers} subscribers"
    )
    yield f"copies     {own.copies:.2f} a message and subscriber; {own.duplicates:.2f} duplicates a delivery"
    yield f"packets    {own.packets_per_message:.1f} a message (published and forwarded)"
    yield (
        f"           {own.packets_per_s:.1f} a second: {own.published_per_s:.1f} published, "
        f"{own.forwarded_per_s:.1f} forwarded, {own.renewals_per_s:.1f} renewals; answers not counted"
    )
    yield (
        f"to block   {own.blocked_to_halve} of a topic's {count_of(k, 'host')} to halve its delivery, "
        f"{own.blocked_to_stop} to stop it"
    )
    yield (
        f"best TTL   {own.best_ttl_s:.0f} s: a lease then wastes {own.waste_at_best_per_s:.3f} packets/s, "
        f"with {setting.ttl_s:g} s {own.waste_per_s:.3f} (subscribers stay {setting.lifetime_s:g} s)"
    )
    if work is not None:
        yield (
            f"work       {work.bits} bits: a new lease takes {_duration(work.lease_s)} on one core here, a "
            f"subscription {_duration(work.subscription_s(subscribe))} ({count_of(subscribe, 'server')})"
        )
        yield (
            f"           to fill a table of {Limits().leases:,} leases takes {_duration(work.table_s)}; on "
            f"average, at {work.tries_per_s / 1e6:.2g} million tries/s"
        )
    yield ""
    yield from _choices(policy, setting)


def _choices(policy: Policy, setting: Setting) -> Iterator[str]:
    heads = ("", "policy", "delivery", "lost", "audience", "copies", "packets", "packets/s", "halve/stop")
    rows: list[list[str]] = []
    is_shown = False
    for each in dict.fromkeys((*_few_publish(policy, setting.hosts), *_all_of_k(setting.hosts))):
        expected = predict(each, setting)
        is_own = policy.placement == "ring" and each.sizes(setting.hosts) == policy.sizes(setting.hosts)
        is_shown |= is_own
        rows.append(
            [
                "*" if is_own else "",
                str(each),
                _share(expected.delivery),
                _one_in(expected.miss).removesuffix(" lost"),
                _share(expected.whole_audience),
                f"{expected.copies:.2f}",
                f"{expected.packets_per_message:.1f}",
                f"{expected.packets_per_s:.1f}",
                f"{expected.blocked_to_halve}/{expected.blocked_to_stop}",
            ]
        )
    yield from table(heads, rows, left=2)
    yield (
        "A policy is k/publish/subscribe: a message goes to `publish` of a topic's k hosts, and subscribers "
        "lease at `subscribe` of them" + (". *: yours" if is_shown else "")
    )


def _share(share: float) -> str:
    """Returns a percentage with enough digits to tell it from 100 %."""
    if share >= 1:
        return "100 %"
    for digits in range(1, 9):
        text = f"{100 * share:.{digits}f}"
        if float(text) < 100 and (100 - float(text)) >= 0.5 * 10 ** (1 - digits):
            return f"{text} %"
    return f"{100 * share:.8f} %"


def _duration(duration_s: float) -> str:
    """Returns a time to three digits, in the unit that suits."""
    for least_s, unit_s, unit in (
        (172_800, 86_400, "days"),
        (7200, 3600, "h"),
        (120, 60, "min"),
        (1, 1, "s"),
    ):
        if duration_s >= least_s:
            return f"{duration_s / unit_s:.3g} {unit}"
    return f"{1000 * duration_s:.3g} ms"


def _one_in(miss: float) -> str:
    if miss < 1e-15:
        return "none lost"
    return f"1 in {1 / miss:,.3g} lost" if 1 / miss < 1000 else f"1 in {1 / miss:,.0f} lost"
