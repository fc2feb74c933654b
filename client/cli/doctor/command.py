"""`kcast doctor`: says for each server, and for this machine, what is wrong and what to do about it."""

import sys
from collections.abc import Sequence
from random import SystemRandom
from time import time

import click

from kcast.client.cli.common import (
    EXIT_FAILURE,
    Number,
    cluster_option,
    count_of,
    errors_as_lines,
    load_cluster_to_use,
    value_option,
)
from kcast.client.cli.doctor.examine import PAUSES_S, examine
from kcast.client.cli.doctor.findings import Finding, Level, Seen, of_machine, of_server
from kcast.client.cli.doctor.machine import MachineWatch
from kcast.client.cli.probe import Probe
from kcast.client.cli.probing import address_argument, probes_of
from kcast.client.cli.text import escaped, paragraph, tell, to_json
from kcast.client.cli.times import utc
from kcast.pubsub.endpoint import Address, format_address

AT_ONCE_MAX = 32  # addresses that are examined at the same time
LABEL_CHARS_MAX = 30
MACHINE = "this machine"

Found = Sequence[tuple[Probe | None, list[Finding]]]
"""The findings at each address, and with None those about this machine."""


@click.command("doctor")
@click.argument("address", required=False, callback=address_argument)
@cluster_option
@click.option(
    "--slow", is_flag=True, help="Also find out how long NAT and firewall keep the way back open: a minute."
)
@value_option(
    "--timeout timeout_s",
    Number(0, 60, min_open=True),
    "How long to wait for answers, in each step.",
    3.0,
    "SECONDS",
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
        signed = None
        if address is None:
            cluster = load_cluster_to_use("doctor", cluster_name, is_watched=False)
            signed, probes = cluster.signed, probes_of(cluster)
        else:
            probes = [Probe(format_address(address), address, SystemRandom())]
        each_seen = [Seen(probe) for probe in probes]
        watch = MachineWatch()
        _examine_all(each_seen, timeout_s, is_slow=slow)
        found: Found = [
            *((seen.probe, of_server(seen)) for seen in each_seen),
            (None, of_machine(watch.seen(), signed)),
        ]
        for line in _as_json(found) if as_json else _as_text(found):
            tell(line)
        if any(finding.level is Level.FAULT for _, some in found for finding in some):
            sys.exit(EXIT_FAILURE)


def _examine_all(each_seen: Sequence[Seen], timeout_s: float, *, is_slow: bool) -> None:
    from rich.console import Console

    longest = f" (a batch takes {max(PAUSES_S):.0f} s and more)" if is_slow else ""
    with Console(stderr=True).status("") as status:  # on a terminal only
        for start in range(0, len(each_seen), AT_ONCE_MAX):
            status.update(f"{start} of {_addresses(len(each_seen))} examined{longest}")
            examine(each_seen[start : start + AT_ONCE_MAX], timeout_s, is_slow=is_slow)
    usable = {
        seen.probe.server for seen in each_seen if seen.probe.address is not None and not seen.no_family
    }
    for seen in each_seen:
        seen.has_other = seen.probe.server in usable


def _as_json(found: Found) -> list[str]:
    now = utc(time())
    return [
        to_json(
            {
                "time": now,
                "server": probe and probe.server,
                "address": format_address(probe.address) if probe and probe.address else None,
                "id": finding.id,
                "level": finding.level,
                "text": finding.text,
                "advice": finding.advice,
                "figures": dict(finding.figures),
            }
        )
        for probe, some in found
        for finding in some
    ]


def _as_text(found: Found) -> list[str]:
    labels = [probe.label if probe else MACHINE for probe, _ in found]
    width = min(LABEL_CHARS_MAX, max(map(len, labels)))
    lines = []
    for label, (_, some) in zip(labels, found, strict=True):
        fine = ", ".join(finding.text for finding in some if finding.level is Level.OK)
        others = [(each.level, f"{each.text}: {each.advice}") for each in some if each.level is not Level.OK]
        for level, text in [(Level.OK, fine)] * bool(fine) + others:
            lines += paragraph(text, f"{level:<5}  {escaped(label):<{width}}  ")
    faults = [probe for probe, some in found for finding in some if finding.level is Level.FAULT]
    addresses = _addresses(len(found) - 1)
    if not faults:
        return [*lines, "", f"nothing to do: {addresses} examined"]
    troubled = len({*faults} - {None})
    where = f"at {troubled} of {addresses}" if troubled else "here"
    return [*lines, "", f"{count_of(len(faults), 'thing')} to do, {where}"]


def _addresses(count: int) -> str:
    return "1 address" if count == 1 else f"{count} addresses"
