"""`kcast doctor`: says for each server, and for this machine, what is wrong and what to do about it."""

import asyncio
import sys
from collections.abc import Sequence
from time import time

import click

from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    cluster_option,
    count_of,
    errors_as_lines,
    load_cluster_to_use,
)
from kcast.client.cli.doctor import idle
from kcast.client.cli.doctor.examine import examine
from kcast.client.cli.doctor.findings import Finding, of_machine, of_server
from kcast.client.cli.doctor.kinds import Level
from kcast.client.cli.doctor.machine import MachineWatch
from kcast.client.cli.doctor.progress import Progress
from kcast.client.cli.doctor.seen import ListTimes, Machine, Seen
from kcast.client.cli.pinger import targets_of
from kcast.client.cli.text import escaped, paragraph, tell, to_json
from kcast.client.cli.times import utc
from kcast.client.clusters.cluster import Cluster, parse_address
from kcast.pubsub.endpoint import Address, format_address

AT_ONCE_MAX = 32  # addresses that are examined at the same time
LABEL_CHARS_MAX = 30
MACHINE = "this machine"


def _address(ctx: click.Context, param: click.Parameter, value: str | None) -> Address | None:
    try:
        return None if value is None else parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("doctor")
@click.argument("address", required=False, callback=_address)
@cluster_option
@click.option(
    "--slow", is_flag=True, help="Also find out how long NAT and firewall keep the way back open: a minute."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(min=0, min_open=True, max=60),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for answers, in each step.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each finding, one a line.")
def command(
    address: Address | None, cluster_name: str | None, slow: bool, timeout_s: float, as_json: bool
) -> None:
    """Find out why something does not arrive here.

    Without ADDRESS (IP:PORT) it examines all servers of the cluster, at each of their addresses, as a client
    on this machine meets them: pings of two sizes, a lease, a message and its copy. Then it looks at this
    machine: address families, buffers, clock. docs/doctor.md explains each finding.

    A finding is ok, a note, or a fault. The exit code is 1 if there is a fault, else 0.

    With --json the keys are time (in UTC), server and address (null for this machine), id (of the finding),
    level (ok, note, fault), text, advice (empty where all is well) and figures (by name, others for each id).

    \b
    Examples:
      kcast doctor --cluster lab.cluster
      kcast doctor 192.0.2.7:7400 --slow
    """
    with errors_as_lines("doctor"):
        if address is not None and cluster_name is not None:
            raise click.UsageError("give ADDRESS or --cluster: a cluster's servers are all examined")
        cluster = None
        if address is None:
            cluster = load_cluster_to_use("doctor", cluster_name, is_watched=False)
            each_seen = [Seen(target.server, target.label, target.address) for target in targets_of(cluster)]
        else:
            name = format_address(address)
            each_seen = [Seen(name, name, address)]
        machine = asyncio.run(_examine_all(each_seen, timeout_s, idle.PAUSES_S if slow else ()))
        found = [(seen, of_server(seen)) for seen in each_seen]
        of_here = of_machine(machine, _times(cluster))
        for line in _as_json(found, of_here) if as_json else _as_text(found, of_here):
            tell(line)
        if any(finding.level is Level.FAULT for _, some in (*found, (None, of_here)) for finding in some):
            sys.exit(EXIT_FAILURE)


def _times(cluster: Cluster | None) -> ListTimes | None:
    if cluster is None or cluster.signed is None:
        return None
    facts = cluster.signed
    return ListTimes(facts.valid_after_s, facts.fresh_until_s, facts.valid_until_s)


async def _examine_all(each_seen: Sequence[Seen], timeout_s: float, pauses_s: tuple[float, ...]) -> Machine:
    watch = MachineWatch()
    done = 0

    def count_one() -> None:
        nonlocal done
        done += 1

    def progress(passed_s: float) -> str:
        longest = f" (a batch takes {max(pauses_s):.0f} s and more)" if pauses_s else ""
        return f"{done} of {_addresses(each_seen)} examined, {passed_s:.0f} s{longest}"

    async with Progress(progress):
        for start in range(0, len(each_seen), AT_ONCE_MAX):
            await examine(each_seen[start : start + AT_ONCE_MAX], timeout_s, pauses_s, count_one)
    usable = {seen.server for seen in each_seen if seen.address is not None and not seen.no_family}
    for seen in each_seen:
        seen.has_other = bool(seen.no_family) and seen.server in usable
    return watch.seen()


Found = Sequence[tuple[Seen, list[Finding]]]


def _as_json(found: Found, of_here: list[Finding]) -> list[str]:
    now = utc(time())
    rows = [(seen.server, seen.address, finding) for seen, some in found for finding in some]
    return [
        to_json(
            {
                "time": now,
                "server": server,
                "address": format_address(address) if address else None,
                "id": finding.id,
                "level": finding.level,
                "text": finding.text,
                "advice": finding.advice,
                "figures": dict(finding.figures),
            }
        )
        for server, address, finding in (*rows, *((None, None, finding) for finding in of_here))
    ]


def _as_text(found: Found, of_here: list[Finding]) -> list[str]:
    width = min(LABEL_CHARS_MAX, max(len(MACHINE), *(len(seen.label) for seen, _ in found)))
    lines = []
    for label, some in (*((seen.label, some) for seen, some in found), (MACHINE, of_here)):
        fine = ", ".join(finding.text for finding in some if finding.level is Level.OK)
        texts = [(Level.OK, fine)] if fine else []
        texts += [
            (finding.level, f"{finding.text}: {finding.advice}")
            for finding in some
            if finding.level is not Level.OK
        ]
        for level, text in texts:
            lines += paragraph(text, f"{level:<5}  {escaped(label):<{width}}  ")
    troubled = [seen for seen, some in found if any(finding.level is Level.FAULT for finding in some)]
    faults = sum(
        finding.level is Level.FAULT for some in (*(s for _, s in found), of_here) for finding in some
    )
    if not faults:
        return [*lines, "", f"nothing to do: {_addresses(found)} examined"]
    where = f"at {len(troubled)} of {_addresses(found)}" if troubled else "here"
    return [*lines, "", f"{count_of(faults, 'thing')} to do, {where}"]


def _addresses(some: Sequence[object]) -> str:
    return "1 address" if len(some) == 1 else f"{len(some)} addresses"
