"""`kcast plan`: shows what theory expects of a policy, to choose one by: delivery, copies, cost, TTL.

It also shows what a price of new leases (PROTOCOL §5.11) means in computing time, measured on this machine.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib import import_module
from typing import Any

import click

from kcast.client.cli import forecast
from kcast.client.cli.common import (
    Number,
    cluster_option,
    count_of,
    errors_as_lines,
    load_cluster_if_named,
    value_option,
)
from kcast.client.cli.forecast import Setting, predict
from kcast.client.cli.policy_options import policy_argument, policy_of, policy_options
from kcast.client.cli.text import escaped, paragraph, table, tell, to_json
from kcast.client.source import find
from kcast.hashring.policy import Policy
from kcast.pubsub.limits import TTL_S_DEFAULT, WORK_BITS_MAX

HOSTS_DEFAULT = 100
DOWN_DEFAULT = 0.1


@click.command("plan")
@policy_argument
@cluster_option
@value_option("--hosts", click.IntRange(1, 100_000), "Hosts in the cluster.")
@policy_options
@value_option("--down", Number(0, 1), f"Share of time a host is down. [default: {DOWN_DEFAULT}]", unit="P")
@value_option("--down-exactly", click.IntRange(min=0), "Or: exactly D hosts are down.", unit="D")
@value_option("--loss", Number(0, 1, max_open=True), "Loss on each leg.", 0.0)
@value_option("--repeat", click.IntRange(1, 100), "Sends per message.", 1)
@value_option("--subscribers", click.IntRange(1, 10_000_000), "On the topic.", 10)
@value_option("--rate", Number(0, min_open=True), "Messages a second on the topic.", 1.0)
@value_option("--ttl", Number(1), "How long a lease stands unless it is renewed.", TTL_S_DEFAULT, "SECONDS")
@value_option("--lifetime", Number(1), "How long a subscriber stays, on average.", 600.0, "SECONDS")
@value_option(
    "--work-bits",
    click.IntRange(0, WORK_BITS_MAX),
    "Price of a new lease; shows what it means on this machine.",
    unit="BITS",
)
@value_option(
    "--detect",
    Number(0, 100, min_open=True),
    "Show how long two load tests must be to tell shares delivered that differ by this.",
    unit="POINTS",
)
@value_option("--topics", click.IntRange(1, 1_000_000), "For --detect.", 20)
@value_option(
    "--epoch", Number(0, min_open=True), "For --detect: how long a server stays down.", 2.0, "SECONDS"
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each policy, yours first.")
def command(
    policy: Policy | None,
    cluster_name: str | None,
    scheme: str | None,
    k: int | None,
    publish: int | None,
    subscribe: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show what theory expects a policy to deliver and to cost, beside others. Asks no server.

    A policy is written k/publish/subscribe. It is POLICY, or what --k and the others say; else it is that of
    the cluster file, and 5/3/5 without one. The number of hosts is that of --hosts, else of the cluster file,
    and 100 without one. Theory is beforehand: it is not known which hosts will be down. Each host is down for
    a share --down of the time, independently of others; or --down-exactly hosts are down. Theory is for
    publishers that do not avoid dead hosts. kcast's do avoid them, and lose less. The audience is the share
    of messages that reach all subscribers; it is a lower bound where --repeat makes more sends than hosts.

    With --work-bits, the price that `kcast serve` may ask, it measures how fast this machine finds stamps. It
    shows how long such clients compute for a lease, and for a table full of leases. An attacker may be a
    thousand times faster.

    With --detect, it shows how many epochs and pairs two runs of `kcast load` need, if a difference of that
    many points is to be seen in four cases of five. Runs of one seed have the same servers down at the same
    times, and need far fewer.

    With --json the keys spell out the table's columns; shares are 0 to 1, and `avoidance` is false. `work` is
    null without --work-bits; `from` says what was taken of which cluster, and is null where nothing was;
    `detection` is that of your policy, and null where there is none.

    \b
    Examples: the default policy; a lab of 12 with 4 servers killed; a price of 18 bits;
    what shows a tenth of a point
      kcast plan --down 0.1 --loss 0.01
      kcast plan 5/2/5 --hosts 12 --down-exactly 4
      kcast plan --work-bits 18
      kcast plan 5/3/5 --hosts 12 --loss 0.02 --rate 5 --detect 0.1
    """
    with errors_as_lines("plan"):
        if given["down"] is not None and given["down_exactly"] is not None:
            raise click.UsageError("--down and --down-exactly exclude each other: give one of them.")
        options = {"--scheme": scheme, "--k": k, "--publish": publish, "--subscribe": subscribe}
        own = [name for name, value in options.items() if value is not None]
        if policy is not None and own:
            raise click.UsageError(f"{policy} says all of the policy: leave out {' and '.join(own)}.")
        cluster = load_cluster_if_named("plan", cluster_name)
        hosts = given["hosts"] or (len(cluster.hosts) if cluster else HOSTS_DEFAULT)
        taken = ["the number of hosts"] if cluster and not given["hosts"] else []
        if policy is None and cluster and not own:
            policy = cluster.policy
            taken.insert(0, "the policy")
        source = find(cluster_name) if taken else None
        origin = f"{source.name}: {' and '.join(taken)}" if source else ""
        policy = policy or policy_of(scheme, hosts, k, publish, subscribe)
        if (given["down_exactly"] or 0) > hosts:
            raise click.UsageError(
                f"--down-exactly is {given['down_exactly']}, but there are {count_of(hosts, 'host')}."
            )
        setting = Setting(
            hosts=hosts,
            down=DOWN_DEFAULT if given["down"] is None else given["down"],
            ttl_s=given["ttl"],
            lifetime_s=given["lifetime"],
            **{name: given[name] for name in ("down_exactly", "loss", "repeat", "subscribers", "rate")},
        )
        bits, points, detection = given["work_bits"], given["detect"], None
        tries_per_s = None if bits is None else forecast.measured_tries_per_s()
        if points is not None:
            detection = _detection(policy, setting, points / 100, given["topics"], given["epoch"])
        for each in (policy, *forecast.others(policy, hosts)) if as_json else ():
            k, m, n = each.sizes(hosts)
            fields = {"policy": str(each), "scheme": each.scheme, "k": k, "publish": m, "subscribe": n}
            fields |= {"from": origin or None, "avoidance": False}
            fields |= {**predict(each, setting), "setting": asdict(setting)}
            work = None if tries_per_s is None else forecast.work(bits, tries_per_s, n)
            tell(to_json({**fields, "work": work, "detection": detection if each == policy else None}))
        if not as_json:
            servers = policy.sizes(hosts)[2]
            work = None if tries_per_s is None else forecast.work(bits, tries_per_s, servers)
            about = ["", *_about_detection(points, detection)] if points is not None else []
            page = (*_laid_out(_facts(policy, setting, work, origin)), "", *_choices(policy, setting), *about)
            tell("\n".join(page))


def _detection(
    policy: Policy, setting: Setting, difference: float, topics: int, epoch_s: float
) -> dict[str, Any] | None:
    """What shows the difference, as `kcast.loadtest.load.sample_size` has it; None without exact theory.

    It is reached by name, as commands of other packages are: this package knows no load tests.
    """
    sample_size = import_module("kcast.loadtest.load.sample_size")
    outages: dict[str, Any] = {"outages": "none"}
    if setting.down_exactly:
        outages = {"outages": "exact", "down": setting.down_exactly}
    elif setting.down_exactly is None and setting.down:
        outages = {"outages": "independent", "outage": setting.down}
    found = sample_size.detection(
        policy,
        difference,
        sample_size.Load(topics, setting.subscribers, max(1, round(setting.rate * epoch_s))),
        epoch_s=epoch_s,
        servers=setting.hosts,
        repeat=setting.repeat,
        ttl_s=max(1, round(setting.ttl_s)),
        deadline_s=max(2.0, setting.repeat * 0.3),
        loss_in=setting.loss,
        loss_out=setting.loss,
        **outages,
    )
    fields: dict[str, Any] | None = found and found.as_json()
    return fields


# --- Text --------------------------------------------------------------------------------------------

_LABEL_CHARS = len("to detect  ")


def _laid_out(page: str) -> Iterator[str]:
    """Yields lines, each folded below its own text where it is too long."""
    for line in page.splitlines():
        yield from paragraph(line[_LABEL_CHARS:], line[:_LABEL_CHARS]) or [""]


def _facts(policy: Policy, setting: Setting, work: dict[str, float] | None, origin: str) -> str:
    own = predict(policy, setting)
    k, _, subscribe = policy.sizes(setting.hosts)
    few = "" if k == policy.k else f" (with so few hosts, k={k})"
    outage = f"exactly {setting.down_exactly} of them down"
    if setting.down_exactly is None:
        outage = f"each down {_share(setting.down)} of the time"
    sent = "once" if setting.repeat == 1 else f"{setting.repeat} times"
    taken = f"from       {escaped(origin)}\n" if origin else ""
    page = f"""\
policy     {policy}{few}
{taken}\
setting    {count_of(setting.hosts, "host")}, {outage}; packet loss {_share(setting.loss)} each way
           {setting.rate:g} messages/s, {setting.subscribers} subscribers, each message sent {sent}
           publishers do not avoid dead servers
packets    {own["packets_per_s"]:.1f} a second: {own["published_per_s"]:.1f} published, \
{own["forwarded_per_s"]:.1f} forwarded, {own["renewals_per_s"]:.1f} renewals; answers not counted
best TTL   {own["best_ttl_s"]:.0f} s: a lease then wastes {own["waste_at_best_per_s"]:.3f} packets/s, with \
{setting.ttl_s:g} s {own["waste_per_s"]:.3f} (subscribers stay {setting.lifetime_s:g} s)
"""
    if work is None:
        return page
    each, all_servers, table_s = (_duration(work[name]) for name in ("lease_s", "subscription_s", "table_s"))
    return f"""{page}\
work       {work["bits"]} bits: a new lease takes {each} on one core here, a subscription {all_servers} \
({count_of(subscribe, "server")})
           to fill a table of {work["table_leases"]:,} leases takes {table_s}; on average, at \
{work["tries_per_s"] / 1e6:.2g} million tries/s
"""


def _choices(policy: Policy, setting: Setting) -> Iterator[str]:
    heads = ("", "policy", "delivery", "lost\n1 in", "audience", "copies", "packets", "packets\n/s")
    rows: list[tuple[str, ...]] = []
    for each in dict.fromkeys((policy, *forecast.others(policy, setting.hosts))):
        of = predict(each, setting)
        shares = _share(of["delivery"]), _one_in(of["miss"]), _share(of["whole_audience"])
        packets = (f"{of[name]:.1f}" for name in ("packets_per_message", "packets_per_s"))
        traffic = f"{of['copies']:.2f}", *packets
        blocked = f"{of['blocked_to_halve']}/{of['blocked_to_stop']}"
        rows.append(("*" if each == policy else "", str(each), *shares, *traffic, blocked))
    yield from table((*heads, "halve/\nstop"), rows, left=2)
    yield from paragraph(
        "A policy is k/publish/subscribe: a message goes to `publish` of a topic's k hosts, and subscribers "
        "lease at `subscribe` of them. *: yours. halve/stop: how many of the k must be blocked for that"
    )


def _about_detection(points: float, found: dict[str, Any] | None) -> Iterable[str]:
    if found is None:
        return paragraph(
            f"There is no exact theory for what shows {points:g} points here (nothing is lost, messages are "
            "repeated, both sides draw, or outages are long against the TTL): measure with kcast load "
            "--until-width"
        )
    epochs, same_seed = (count_of(found[name], "epoch") for name in ("epochs", "epochs_same_seed"))
    takes, same_takes = (_duration(found[name]) for name in ("duration_s", "duration_same_seed_s"))
    return _laid_out(f"""\
to detect  {points:g} points less than {_share(found["share"])}: two runs of {epochs} of \
{found["epoch_s"]:g} s each ({takes}, {found["pairs"]:,} pairs)
           of one seed, with the same servers down: {same_seed} ({same_takes}, \
{found["pairs_same_seed"]:,} pairs)
           seen in four cases of five, by a test at 5 %
""")


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
    units = ((172_800, 86_400, "days"), (7200, 3600, "h"), (120, 60, "min"), (1, 1, "s"))
    for least_s, unit_s, unit in units:
        if duration_s >= least_s:
            return f"{duration_s / unit_s:.3g} {unit}"
    return f"{1000 * duration_s:.3g} ms"


def _one_in(miss: float) -> str:
    if miss < 1e-15:
        return "none"
    return f"{1 / miss:,.3g}" if 1 / miss < 1000 else f"{1 / miss:,.0f}"
