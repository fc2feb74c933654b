"""`kcast health`: checks one server by using it as a client does.

It takes a lease, publishes, and awaits the copy, on a topic reserved for that. It may run every few seconds,
so it imports little. A server that refuses something because of a limit counts as healthy: it serves those
who have leases, and killing it would end these. Any other refusal counts as a fault.
"""

import math
import select
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from random import SystemRandom
from time import time

import click

from kcast.client.cli.text import tell, to_json
from kcast.client.cli.times import utc
from kcast.client.cli.trial import Trial
from kcast.client.clusters.cluster import parse_address
from kcast.pubsub import clock
from kcast.pubsub.endpoint import Address, Transmit, datagrams, format_address
from kcast.pubsub.errors import KcastError
from kcast.pubsub.udp import UdpPort, open_socket

_LIMITS = frozenset(("full", "address", "prefix", "topics", "work", "rate"))  # PROTOCOL §5.8


@dataclass
class HealthReport:
    """The result of a check. `why` says what is wrong, or what is worth a remark though the server works."""

    address: str
    healthy: bool = False
    why: str = ""
    leased: bool = False
    receipt: bool = False
    copy: bool = False
    seconds: float = 0.0


def _timeout(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not (math.isfinite(value) and 0 < value <= 3600):
        raise click.BadParameter("give a number of seconds above 0, up to 3600")
    return value


def _address(ctx: click.Context, param: click.Parameter, value: str) -> Address:
    try:
        return parse_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("health")
@click.argument("address", default="127.0.0.1:7400", callback=_address)
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

    ADDRESS is IP:PORT, by default 127.0.0.1:7400.

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
    report = HealthReport(format_address(address))
    began = clock.now()
    try:
        sock = open_socket("::" if ":" in address[0] else "0.0.0.0", 0, report_unreachable=True)
    except (OSError, KcastError) as error:
        report.why = f"cannot ask: {getattr(error, 'strerror', None) or error}"
    else:
        with UdpPort(sock) as port:
            _Check(address, port, report).run(began + timeout_s, timeout_s)
    report.seconds = round(clock.now() - began, 6)
    _tell(report, as_json)
    sys.exit(0 if report.healthy else 1)


def _tell(report: HealthReport, as_json: bool) -> None:
    if as_json:
        line = to_json({"time": utc(time()), **asdict(report)})
    elif report.healthy:
        line = f"{report.address} is healthy"
        line += (
            f", but {report.why}" if report.why else f" (lease and copy in {report.seconds * 1000:.1f} ms)"
        )
    else:
        line = f"kcast health: {report.address} is not healthy: {report.why}"
    with suppress(OSError):  # the exit code says the same
        tell(line, err=not (as_json or report.healthy))


class _Check:
    """One check: a trial of the server, on one socket."""

    def __init__(self, address: Address, port: UdpPort, report: HealthReport) -> None:
        self._address = address
        self._port = port
        self._report = report
        self._trial = Trial(address, SystemRandom())
        self._is_unreachable = False
        self._is_over = False

    def run(self, deadline: float, timeout_s: float) -> None:
        """Fills in the report; returns at the deadline at the latest."""
        self._trial.begin(clock.now())
        while not self._is_over:
            now = clock.now()
            if now >= deadline:
                self._give_up(timeout_s)
                return
            for data, segment_bytes in self._trial.datagrams_to_send(now):
                self._port.send([Transmit(data, segment_bytes, (self._address,))])
            self._take_what_came(deadline)
            self._look()

    def _take_what_came(self, deadline: float) -> None:
        """Waits until something happens; looks for a stamp meanwhile, if one is needed."""
        self._trial.work(clock.now())
        until = min(deadline, self._trial.next_timeout())
        select.select([self._port], [], [], max(0.0, until - clock.now()))
        now = clock.now()
        for burst in self._port.receive():
            if burst.source == self._address:
                for datagram in datagrams(burst.data, burst.segment_bytes):
                    self._trial.take(datagram, now)
        self._is_unreachable |= self._address in self._port.unreachable()

    def _look(self) -> None:
        """Draws conclusions from what has come so far."""
        report, trial = self._report, self._trial
        trial.look(clock.now())
        report.leased, report.receipt, report.copy = trial.is_leased, trial.has_receipt, trial.has_copy
        if trial.lease_refusal:
            report.why = f"refuses a new lease: {trial.lease_refusal}"
        elif trial.is_too_dear:
            report.why = "asks more work for a new lease than any client does"
        if trial.session.is_draining:
            report.why = "it is draining"
            self._end(False)
        elif trial.lease_refusal and trial.lease_refusal not in _LIMITS:
            self._end(False)
        elif trial.publish_refusal and trial.publish_refusal not in _LIMITS:
            report.why = f"refuses to forward: {trial.publish_refusal}"
            self._end(False)
        elif trial.publish_refusal:
            report.why = report.why or "refuses to forward more from here"
            self._end(True)
        elif self._port.send_errors:
            report.why = f"cannot ask: {next(iter(self._port.send_errors))}"
            self._end(False)
        elif self._is_unreachable and not trial.is_answered:
            report.why = "nobody listens there"
            self._end(False)
        elif trial.is_done:
            self._end(True)

    def _give_up(self, timeout_s: float) -> None:
        report = self._report
        if not self._trial.is_answered:
            report.why = f"no answer in {timeout_s:g} s"
        elif self._trial.session.is_minting:
            # It does answer, and finding a stamp in time is a matter of luck.
            report.why = f"a new lease costs more than {timeout_s:g} s of work"
            report.healthy = True
        elif not report.leased and not report.why:
            report.why = f"no lease in {timeout_s:g} s"
        elif not report.receipt:
            report.why = f"no receipt in {timeout_s:g} s"
        else:
            report.why = f"no copy of a message that it forwarded in {timeout_s:g} s"

    def _end(self, healthy: bool) -> None:
        self._report.healthy = healthy
        self._is_over = True
