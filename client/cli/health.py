"""`kcast health`: checks one server by using it as a client does.

It takes a lease, publishes, and awaits the copy, on a topic reserved for that. It may run every few seconds,
so it imports little. A server that refuses something because of a limit counts as healthy: it serves those
who have leases, and killing it would end these. Any other refusal counts as a fault.
"""

import math
import os
import sys
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from time import time

import click

from kcast.client.cli.probe import Probe
from kcast.client.cli.probing import Probing, address_argument
from kcast.client.cli.text import tell, to_json
from kcast.client.cli.times import utc
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Address, format_address
from kcast.pubsub.errors import KcastError

_LIMITS = frozenset(("full", "address", "prefix", "topics", "work", "rate"))  # PROTOCOL §5.8

LOOPBACK, PORT_DEFAULT = "127.0.0.1", 7400
_FIRST_PROCESS = Path("/proc/1/cmdline")

Verdict = tuple[bool, str]
"""Whether it is healthy, and what is wrong, or worth a remark though it works."""


def _timeout(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not (math.isfinite(value) and 0 < value <= 3600):
        raise click.BadParameter("give a number of seconds above 0, up to 3600")
    return value


def _address(ctx: click.Context, param: click.Parameter, value: str | None) -> Address | None:
    return address_argument(ctx, param, value or _served_by_first_process() or f"{LOOPBACK}:{PORT_DEFAULT}")


def _served_by_first_process() -> str | None:
    """Returns where process 1 serves, of several servers the first; None unless it is `kcast serve`, or an
    init that has started that. In a container it is. A port that the system has picked cannot be known."""
    try:
        words = [os.fsdecode(word) for word in _FIRST_PROCESS.read_bytes().split(b"\0")]
        verb = words.index("serve")
    except (OSError, ValueError):
        return None
    if not verb or Path(words[verb - 1]).name.partition(".")[0] != "kcast":
        return None
    options = [click.Option(["--host"], multiple=True), click.Option(["--port"], default=PORT_DEFAULT)]
    others = {"ignore_unknown_options": True, "allow_extra_args": True}
    serve = click.Command("serve", params=[*options], context_settings=others)
    given = serve.make_context("serve", words[verb + 1 :], resilient_parsing=True).params
    host = (*given["host"], LOOPBACK)[0]
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
    return format_address((host, given["port"]))


@click.command("health")
@click.argument("address", required=False, envvar="KCAST_HEALTH", callback=_address)
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=3.0,
    show_default=True,
    callback=_timeout,
    metavar="SECONDS",
    help="How long the check may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(address: Address, timeout_s: float, as_json: bool) -> None:
    """Check one server: take a lease, publish, and get the copy back.

    ADDRESS is IP:PORT, by default that of the variable KCAST_HEALTH. Without one it is where process 1 serves
    (of several servers the first), which is 'kcast serve' in a container; else 127.0.0.1:7400.

    The exit code is 0 if the server works. That includes a server that refuses a new lease because of a
    limit; then the output says so. It is 1 if the server does not answer, refuses for another reason, or is
    draining.

    With --json the keys are time (in UTC), address, healthy, why, leased, receipt and copy (whether each was
    got), and seconds.

    \b
    Examples:
      kcast health
      kcast health 192.0.2.7:7400 --timeout 1
    """
    name = format_address(address)
    began, probe = clock.now(), Probe(name, address, SystemRandom())
    try:
        with Probing([probe]) as probing:
            probe.begin(began)
            probing.deal([probe], began + timeout_s, lambda probe: _verdict(probe) is not None)
        is_healthy, why = _verdict(probe) or _too_late(probe, timeout_s)
    except (OSError, KcastError) as error:
        is_healthy, why = False, f"cannot ask: {getattr(error, 'strerror', None) or error}"
    took_s = clock.now() - began
    if as_json:
        got = {"leased": probe.is_leased, "receipt": probe.has_receipt, "copy": probe.has_copy}
        fields = {"time": utc(time()), "address": name, "healthy": is_healthy, "why": why}
        line = to_json({**fields, **got, "seconds": round(took_s, 6)})
    elif is_healthy:
        line = f"{name} is healthy" + (
            f", but {why}" if why else f" (lease and copy in {took_s * 1000:.1f} ms)"
        )
    else:
        line = f"kcast health: {name} is not healthy: {why}"
    with suppress(OSError):  # the exit code says the same
        tell(line, err=not (as_json or is_healthy))
    sys.exit(0 if is_healthy else 1)


def _verdict(probe: Probe) -> Verdict | None:
    """Draws conclusions from what has come so far; None where it is too early."""
    lease, publish = probe.lease_refusal, probe.publish_refusal
    remark = f"refuses a new lease: {lease}" if lease else ""
    if probe.is_too_dear:
        remark = "asks more work for a new lease than any client does"
    if probe.problem:
        return False, probe.problem
    if probe.is_draining:
        return False, "it is draining"
    if lease and lease not in _LIMITS:
        return False, remark
    if publish:
        if publish in _LIMITS:
            return True, remark or "refuses to forward more from here"
        return False, f"refuses to forward: {publish}"
    if error := probe.send_error or probe.network_error:
        return False, f"cannot ask: {error}"
    if probe.is_closed and not probe.is_answered:
        return False, "nobody listens there"
    return (True, remark) if probe.is_done else None


def _too_late(probe: Probe, timeout_s: float) -> Verdict:
    if not probe.is_answered:
        return False, f"no answer in {timeout_s:g} s"
    if probe.session.is_minting:  # it does answer, and finding a stamp in time is a matter of luck
        return True, f"a new lease costs more than {timeout_s:g} s of work"
    if not (probe.is_leased or probe.lease_refusal or probe.is_too_dear):
        return False, f"no lease in {timeout_s:g} s"
    if not probe.has_receipt:
        return False, f"no receipt in {timeout_s:g} s"
    return False, f"no copy of a message that it forwarded in {timeout_s:g} s"
