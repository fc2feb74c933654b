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

from kcast.client.allowance import Spending
from kcast.client.cli.text import tell, to_json
from kcast.client.cli.times import utc
from kcast.client.cluster import ServerEntry, parse_address
from kcast.client.events import Outcome
from kcast.client.notices import Change
from kcast.client.session import Session
from kcast.pubsub import clock, wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams, format_address
from kcast.pubsub.errors import KcastError
from kcast.pubsub.udp import UdpPort, open_socket

COPY_TIMEOUT_S = 0.5  # a copy or its publish may get lost; after this the publish is repeated
WORK_TRIES = 4096  # for a stamp, before the socket is looked at again: about 2 ms

_HANDLE = 0  # for the one message
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
    """One check: a client's session with the server, on one socket."""

    def __init__(self, address: Address, port: UdpPort, report: HealthReport) -> None:
        self._address = address
        self._port = port
        self._report = report
        rng = SystemRandom()
        # The timeout bounds what a stamp may cost.
        self._session = Session(ServerEntry((address,), report.address), rng, spending=Spending(try_s=0.0))
        message = b"%016x" % rng.getrandbits(64)  # no other check's copy is taken for ours
        self._line = wire.publish_line(wire.HEALTH_TOPIC, message)
        self._is_answered = False
        self._is_unreachable = False
        self._refusal = ""  # the reason of the last one
        self._is_refused_unduly = False
        self._published_at = -math.inf
        self._is_awaiting_receipt = False
        self._is_over = False

    def run(self, deadline: float, timeout_s: float) -> None:
        """Fills in the report; returns at the deadline at the latest."""
        self._session.want(wire.HEALTH_TOPIC, clock.now())
        while not self._is_over:
            now = clock.now()
            if now >= deadline:
                self._give_up(timeout_s)
                return
            due = self._session.next_timeout()
            if due is not None and due <= now:
                self._session.handle_timeout(now)
            for data, segment_bytes in self._session.datagrams_to_send(now):
                self._port.send([Transmit(data, segment_bytes, (self._address,))])
            self._take_what_came(deadline)
            self._look()

    def _take_what_came(self, deadline: float) -> None:
        """Waits until something happens; looks for a stamp meanwhile, if one is needed."""
        now = clock.now()
        self._session.work(WORK_TRIES, now)
        times = [deadline, now if self._session.is_minting else deadline]
        if (due := self._session.next_timeout()) is not None:
            times.append(due)
        if self._report.receipt:
            times.append(self._published_at + COPY_TIMEOUT_S)
        select.select([self._port], [], [], max(0.0, min(times) - clock.now()))
        now = clock.now()
        for burst in self._port.receive():
            if burst.source == self._address:
                for datagram in datagrams(burst.data, burst.segment_bytes):
                    self._take(datagram, now)
        self._is_unreachable |= self._address in self._port.unreachable()

    def _take(self, datagram: bytes, now: float) -> None:
        lines, _ = wire.split_lines(datagram)
        self._report.copy |= self._line[:-1] in lines
        replies = [reply for line in lines if (reply := wire.parse_reply(line)) is not None]
        if replies:
            unasked = self._session.handle_replies(replies, now)
            self._is_answered |= unasked < len(replies)
            self._refusal = next((r.reason for r in replies if isinstance(r, wire.Refusal)), self._refusal)

    def _look(self) -> None:
        """Draws conclusions from what has come so far."""
        report, session, now = self._report, self._session, clock.now()
        for notice in session.notices:
            if notice.change is Change.REFUSED:
                report.why = f"refuses a new lease: {notice.reason}"
                self._is_refused_unduly |= notice.reason not in _LIMITS
            elif notice.change is Change.LOST and notice.reason == "price":
                report.why = "asks more work for a new lease than any client does"
        session.notices.clear()
        report.leased = session.is_leased(wire.HEALTH_TOPIC)
        for settled in session.take_settled():
            self._is_awaiting_receipt = False
            report.receipt |= settled.outcome is Outcome.RECEIPT
            if settled.outcome is Outcome.REFUSED and self._refusal not in _LIMITS:
                report.why = f"refuses to forward: {self._refusal}"
                self._is_refused_unduly = True
            elif settled.outcome is Outcome.REFUSED:
                report.why = report.why or "refuses to forward more from here"
                self._end(True)
        if session.is_draining:
            report.why = "it is draining"
            self._end(False)
        elif self._is_refused_unduly:
            self._end(False)
        elif self._port.send_errors:
            report.why = f"cannot ask: {next(iter(self._port.send_errors))}"
            self._end(False)
        elif self._is_unreachable and not self._is_answered:
            report.why = "nobody listens there"
            self._end(False)
        elif report.receipt and (report.copy or not report.leased):
            self._end(True)
        elif (report.leased or report.why) and not self._is_awaiting_receipt:
            self._publish(now)

    def _publish(self, now: float) -> None:
        if now >= self._published_at + COPY_TIMEOUT_S:
            self._published_at = now
            self._is_awaiting_receipt = True
            self._session.publish(self._line, _HANDLE, confirm=True)

    def _give_up(self, timeout_s: float) -> None:
        report = self._report
        if not self._is_answered:
            report.why = f"no answer in {timeout_s:g} s"
        elif self._session.is_minting:
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
