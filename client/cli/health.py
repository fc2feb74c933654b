"""`kcast health`: whether one server serves, by using it as a client does. For health checks.

A lease, a publish and its copy, from a socket of its own, on a topic of kcast's own. It is run every few
seconds, so it imports little. A server that refuses something for a limit is healthy all the same: it serves
those who have leases, and to kill it for that would take these away. Any other refusal is not: none is due.
"""

import json
import math
import select
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from random import SystemRandom
from time import monotonic

import click

from kcast.client.cluster import ServerEntry, parse_address
from kcast.client.events import Outcome
from kcast.client.notices import Change
from kcast.client.session import Session
from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams, format_address
from kcast.pubsub.udp import UdpPort, open_socket

COPY_TIMEOUT_S = 0.5  # a copy, or its publish, may get lost; then once more
WORK_TRIES = 4096  # for the stamp, between looks at the socket: 2 ms or so

_HANDLE = 0  # of our one message
_LIMITS = frozenset(("full", "address", "prefix", "topics", "work", "rate"))  # PROTOCOL §5.8


@dataclass
class Verdict:
    """What came of a check. `why` says what is wrong, or worth a remark although all is well."""

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


@click.command("health", short_help="whether one server serves, for health checks")
@click.argument("address", default="127.0.0.1:7400", callback=_address)
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=3.0,
    show_default=True,
    callback=_timeout,
    metavar="SECONDS",
    help="How long all of it may take.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(address: Address, timeout_s: float, as_json: bool) -> None:
    """Check one server: take a lease, publish, and get the copy back.

    ADDRESS is IP:PORT, by default 127.0.0.1:7400.

    The exit code is 0 if the server serves, also where it refuses a new lease because of a limit: then the
    line says so. It is 1 if it does not answer, refuses for another reason, or is draining.

    With --json the keys are address, healthy, why, leased, receipt, copy (what was got) and seconds.

    \b
    Examples
      kcast health
      kcast health 192.0.2.7:7400 --timeout 1
    """
    verdict = Verdict(format_address(address))
    began = monotonic()
    try:
        sock = open_socket("::" if ":" in address[0] else "0.0.0.0", 0, report_unreachable=True)
    except OSError as error:
        verdict.why = f"cannot ask: {error.strerror or error}"
    else:
        with UdpPort(sock) as port:
            _Check(address, port, verdict).run(began + timeout_s, timeout_s)
    verdict.seconds = round(monotonic() - began, 6)
    _tell(verdict, as_json)
    sys.exit(0 if verdict.healthy else 1)


def _tell(verdict: Verdict, as_json: bool) -> None:
    if as_json:
        line = json.dumps(asdict(verdict))
    elif verdict.healthy:
        line = f"{verdict.address} is healthy"
        line += (
            f", but {verdict.why}" if verdict.why else f" (lease and copy in {verdict.seconds * 1000:.1f} ms)"
        )
    else:
        line = f"kcast health: {verdict.address} is not healthy: {verdict.why}"
    with suppress(OSError):  # the exit code says it too
        click.echo(line, err=not (as_json or verdict.healthy))


class _Check:
    """One check: a client's session with the server, on one socket."""

    def __init__(self, address: Address, port: UdpPort, verdict: Verdict) -> None:
        self._address = address
        self._port = port
        self._verdict = verdict
        rng = SystemRandom()
        self._session = Session(ServerEntry((address,), verdict.address), rng)
        message = b"%016x" % rng.getrandbits(64)  # so that no other check's copy passes for ours
        self._line = wire.publish_line(wire.HEALTH_TOPIC, message)
        self._is_answered = False
        self._is_unreachable = False
        self._refusal = ""  # the reason of the last one
        self._is_refused_unduly = False
        self._published_at = -math.inf
        self._is_awaiting_receipt = False
        self._is_over = False

    def run(self, deadline: float, timeout_s: float) -> None:
        """Fills in the verdict; returns at the deadline at the latest."""
        self._session.want(wire.HEALTH_TOPIC, monotonic())
        while not self._is_over:
            now = monotonic()
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
        """Waits for something to happen, or looks for a stamp meanwhile."""
        now = monotonic()
        self._session.work(WORK_TRIES, now)
        times = [deadline, now if self._session.is_minting else deadline]
        if (due := self._session.next_timeout()) is not None:
            times.append(due)
        if self._verdict.receipt:
            times.append(self._published_at + COPY_TIMEOUT_S)
        select.select([self._port], [], [], max(0.0, min(times) - monotonic()))
        now = monotonic()
        for burst in self._port.receive():
            if burst.source == self._address:
                for datagram in datagrams(burst.data, burst.segment_bytes):
                    self._take(datagram, now)
        self._is_unreachable |= self._address in self._port.unreachable()

    def _take(self, datagram: bytes, now: float) -> None:
        lines, _ = wire.split_lines(datagram)
        self._verdict.copy |= self._line[:-1] in lines
        replies = [reply for line in lines if (reply := wire.parse_reply(line)) is not None]
        if replies:
            unasked = self._session.handle_replies(replies, now)
            self._is_answered |= unasked < len(replies)
            self._refusal = next((r.reason for r in replies if isinstance(r, wire.Refusal)), self._refusal)

    def _look(self) -> None:
        """What follows from what has come so far."""
        verdict, session, now = self._verdict, self._session, monotonic()
        for notice in session.notices:
            if notice.change is Change.REFUSED:
                verdict.why = f"refuses a new lease: {notice.reason}"
                self._is_refused_unduly |= notice.reason not in _LIMITS
            elif notice.change is Change.LOST and notice.reason == "price":
                verdict.why = "asks more work for a new lease than a client does"
        session.notices.clear()
        verdict.leased = session.is_leased(wire.HEALTH_TOPIC)
        for settled in session.take_settled():
            self._is_awaiting_receipt = False
            verdict.receipt |= settled.outcome is Outcome.RECEIPT
            if settled.outcome is Outcome.REFUSED and self._refusal not in _LIMITS:
                verdict.why = f"refuses to forward: {self._refusal}"
                self._is_refused_unduly = True
            elif settled.outcome is Outcome.REFUSED:
                verdict.why = verdict.why or "refuses to forward more from here"
                self._end(True)
        if session.is_draining:
            verdict.why = "it is draining"
            self._end(False)
        elif self._is_refused_unduly:
            self._end(False)
        elif self._port.send_errors:
            verdict.why = f"cannot ask: {next(iter(self._port.send_errors))}"
            self._end(False)
        elif self._is_unreachable and not self._is_answered:
            verdict.why = "nobody listens there"
            self._end(False)
        elif verdict.receipt and (verdict.copy or not verdict.leased):
            self._end(True)
        elif (verdict.leased or verdict.why) and not self._is_awaiting_receipt:
            self._publish(now)

    def _publish(self, now: float) -> None:
        if now >= self._published_at + COPY_TIMEOUT_S:
            self._published_at = now
            self._is_awaiting_receipt = True
            self._session.publish(self._line, _HANDLE, confirm=True)

    def _give_up(self, timeout_s: float) -> None:
        verdict = self._verdict
        if not self._is_answered:
            verdict.why = f"no answer in {timeout_s:g} s"
        elif self._session.is_minting:
            # It does answer, and whether a stamp is found in time is chance.
            verdict.why = f"a new lease costs more work than {timeout_s:g} s of it"
            verdict.healthy = True
        elif not verdict.leased and not verdict.why:
            verdict.why = f"no lease in {timeout_s:g} s"
        elif not verdict.receipt:
            verdict.why = f"no receipt in {timeout_s:g} s"
        else:
            verdict.why = f"no copy of what it has forwarded in {timeout_s:g} s"

    def _end(self, healthy: bool) -> None:
        self._verdict.healthy = healthy
        self._is_over = True
