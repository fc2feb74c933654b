"""`kcast plan`: shows what theory expects of a policy, to choose one by: delivery, copies, cost, TTL.

It also shows what a price of new leases (PROTOCOL §5.11) means in computing time, measured on this machine.
"""

from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from typing import Any, cast

import click

from kcast.client.cli.common import (
    Number,
    cluster_option,
    count_of,
    errors_as_lines,
    load_cluster_if_named,
)
from kcast.client.cli.forecast import Setting, Work, all_of_k, few_publish, measured_tries_per_s, predict
from kcast.client.cli.policy_options import policy_argument, policy_of, policy_options
from kcast.client.cli.text import paragraph, table, tell, to_json
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import TTL_S_DEFAULT, WORK_BITS_MAX, Limits

HOSTS_DEFAULT = 100
DOWN_DEFAULT = 0.1
_LABEL_CHARS = len("best TTL   ")


@click.command("plan")
@policy_argument
@cluster_option
@click.option("--hosts", type=click.IntRange(1, 100_000), help="Hosts in the cluster.")
@policy_options
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
@click.option(
    "--detect",
    "detect_points",
    type=Number(0, 100, min_open=True),
    metavar="POINTS",
    help="Show how long two load tests must be to tell shares delivered that differ by this.",
)
@click.option(
    "--topics", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="For --detect."
)
@click.option(
    "--epoch",
    "epoch_s",
    type=Number(0, min_open=True),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="For --detect: how long a server stays down.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each policy, yours first.")
def command(
    policy: Policy | None,
    cluster_name: str | None,
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
    detect_points: float | None,
    topics: int,
    epoch_s: float,
    as_json: bool,
) -> None:
    """Show what theory expects a policy to deliver and to cost, beside others. Asks no server.

    A policy is written k/publish/subscribe. It is POLICY, or what --k and the others say; else it is that of
    the cluster file, and 5/3/5 without one. The number of hosts is that of --hosts, else of the cluster file,
    and 100 without one. Theory is beforehand: it is not known which hosts will be down. Each host is down for
    a share --down of the time, independently of others; or --down-exactly hosts are down. Theory is for
    publishers that do not avoid dead hosts. kcast's do avoid them, and lose less.

    With --work-bits, the price that `kcast serve` may ask, it measures how fast this machine finds stamps. It
    shows how long such clients compute for a lease, and for a table full of leases. An attacker may be a
    thousand times faster.

    With --detect, it shows how many epochs and pairs two runs of `kcast load` need, if a difference of that
    many points is to be seen in four cases of five. Runs of one seed have the same servers down at the same
    times, and need far fewer.

    With --json the keys spell out the table's columns; shares are 0 to 1, and `avoidance` is false. `work` is
    null without --work-bits; `detection` is that of your policy, and null where there is none.

    \b
    Examples: the default policy; a lab of 12 with 4 servers killed; a price of 18 bits;
    what shows a tenth of a point
      kcast plan --down 0.1 --loss 0.01
      kcast plan 5/2/5 --hosts 12 --down-exactly 4
      kcast plan --work-bits 18
      kcast plan 5/3/5 --hosts 12 --loss 0.02 --rate 5 --detect 0.1
    """
    with errors_as_lines("plan"):
        if down is not None and down_exactly is not None:
            raise click.UsageError("--down and --down-exactly exclude each other: give one of them.")
        given = {"--scheme": scheme, "--k": k, "--publish": publish, "--subscribe": subscribe}
        own = [name for name, value in given.items() if value is not None]
        if policy is not None and own:
            raise click.UsageError(f"{policy} says all of the policy: leave out {' and '.join(own)}.")
        cluster = load_cluster_if_named("plan", cluster_name)
        if hosts is None:
            hosts = len(cluster.hosts) if cluster else HOSTS_DEFAULT
        if policy is None:
            policy = (
                cluster.policy if cluster and not own else policy_of(scheme, hosts, k, publish, subscribe)
            )
        if down_exactly is not None and down_exactly > hosts:
            raise click.UsageError(
                f"--down-exactly is {down_exactly}, but there are {count_of(hosts, 'host')}."
            )
        down = DOWN_DEFAULT if down is None else down
        setting = Setting(hosts, down, down_exactly, loss, repeat, subscribers, rate, ttl_s, lifetime_s)
        work = None if work_bits is None else Work(work_bits, measured_tries_per_s())
        detection = None
        if detect_points is not None:
            detection = _detection(policy, setting, detect_points / 100, topics, epoch_s)
        lines = _as_json(policy, setting, work, detection) if as_json else _as_text(policy, setting, work)
        for line in lines:
            tell(line)
        if detect_points is not None and not as_json:
            for line in _detection_lines(detect_points, detection):
                tell(line)


def _detection(
    policy: Policy, setting: Setting, difference: float, topics: int, epoch_s: float
) -> dict[str, Any] | None:
    """What shows the difference, as `kcast.loadtest.load.sample_size` has it; None without exact theory.

    It is reached by name, as commands of other packages are: this package knows no load tests.
    """
    sample_size = import_module("kcast.loadtest.load.sample_size")
    messages = max(1, round(setting.rate * epoch_s))
    outages: dict[str, Any] = {"outages": "none"}
    if setting.down_exactly:
        outages = {"outages": "exact", "down": setting.down_exactly}
    elif setting.down_exactly is None and setting.down:
        outages = {"outages": "independent", "outage": setting.down}
    found = sample_size.detection(
        policy,
        difference,
        sample_size.Load(topics, setting.subscribers, messages),
        epoch_s=epoch_s,
        servers=setting.hosts,
        repeat=setting.repeat,
        ttl_s=max(1, round(setting.ttl_s)),
        deadline_s=max(2.0, setting.repeat * 0.3),
        loss_in=setting.loss,
        loss_out=setting.loss,
        **outages,
    )
    return None if found is None else cast("dict[str, Any]", found.as_json())


def _detection_lines(points: float, found: dict[str, Any] | None) -> Iterator[str]:
    yield ""
    if found is None:
        yield from paragraph(
            f"There is no exact theory for what shows {points:g} points here (nothing is lost, messages are "
            "repeated, both sides draw, or outages are long against the TTL): measure with kcast load "
            "--until-width"
        )
        return
    lines = (
        f"to detect  {points:g} points less than {_share(found['share'])}: two runs of "
        f"{count_of(found['epochs'], 'epoch')} of {found['epoch_s']:g} s each "
        f"({_duration(found['duration_s'])}, {found['pairs']:,} pairs)",
        f"           of one seed, with the same servers down: {count_of(found['epochs_same_seed'], 'epoch')} "
        f"({_duration(found['duration_same_seed_s'])}, {found['pairs_same_seed']:,} pairs)",
        "           seen in four cases of five, by a test at 5 %",
    )
    for line in lines:
        yield from paragraph(line[_LABEL_CHARS:], line[:_LABEL_CHARS])


# --- Output ------------------------------------------------------------------------------------------


def _as_json(
    policy: Policy, setting: Setting, work: Work | None, detection: dict[str, Any] | None
) -> Iterator[str]:
    for each in (policy, *few_publish(policy, setting.hosts), *all_of_k(setting.hosts)):
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
                "detection": detection if each == policy else None,
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
    for line in _facts(policy, setting, work):
        yield from paragraph(line[_LABEL_CHARS:], line[:_LABEL_CHARS]) or [""]
    yield ""
    yield from _choices(policy, setting)


def _facts(policy: Policy, setting: Setting, work: Work | None) -> Iterator[str]:
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
    given = f"{setting.ttl_s:g} s"
    other = "" if given == f"{own.best_ttl_s:.0f} s" else f", with {given} {own.waste_per_s:.3f}"
    yield (
        f"best TTL   {own.best_ttl_s:.0f} s: a lease then wastes {own.waste_at_best_per_s:.3f} packets/s"
        f"{other} (subscribers stay {setting.lifetime_s:g} s)"
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


def _choices(policy: Policy, setting: Setting) -> Iterator[str]:
    heads = (
        *("", "policy", "delivery", "lost 1 in", "audience", "copies", "packets", "packets /s"),
        "to halve / stop",
    )
    rows: list[list[str]] = []
    is_shown = False
    for each in dict.fromkeys((*few_publish(policy, setting.hosts), *all_of_k(setting.hosts))):
        expected = predict(each, setting)
        is_own = policy.placement == "ring" and each.sizes(setting.hosts) == policy.sizes(setting.hosts)
        is_shown |= is_own
        rows.append(
            [
                "*" if is_own else "",
                str(each),
                _share(expected.delivery),
                _one_in(expected.miss).removeprefix("1 in ").removesuffix(" lost"),
                _share(expected.whole_audience),
                f"{expected.copies:.2f}",
                f"{expected.packets_per_message:.1f}",
                f"{expected.packets_per_s:.1f}",
                f"{expected.blocked_to_halve}/{expected.blocked_to_stop}",
            ]
        )
    yield from table(heads, rows, left=2)
    yield from paragraph(
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
