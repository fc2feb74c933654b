"""What follows from what was observed: findings, in the order in which to look at them. Pure functions.

docs/doctor.md explains each. What would make others meaningless comes alone: where nothing answers, nothing
is said of leases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from statistics import median
from typing import NamedTuple

from kcast.client.cli.doctor.machine import Machine
from kcast.client.cli.probe import Pings, Probe
from kcast.client.cli.text import escaped
from kcast.client.clusters.facts import ListFacts
from kcast.pubsub.endpoint import format_address
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

HEADER_BYTES = {4: 28, 6: 48}  # of IP and UDP
LOSS_FAULT = 0.1
TTL_SHORT_S = 10.0
JUMP_S = 0.5
SUSPENDED_S = 1.0
PORTS_SHOWN_MAX = 3

# The option of kcast serve that a reason to refuse comes from (PROTOCOL §5.8).
_FLAGS = {
    "full": "--capacity",
    "address": "--leases-per-address",
    "prefix": "--leases-per-prefix",
    "topics": "--topics",
    "rate": "--publish-rate, --copy-rate and --egress-rate",
}


class Level(StrEnum):
    """How grave a finding is: all is well, worth knowing, or something is to be done about it."""

    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


class Finding(NamedTuple):
    """One result: `text` says what is so, `advice` what to do; nothing where all is well. `figures` are for
    programs."""

    id: str
    level: Level
    text: str
    advice: str
    figures: Mapping[str, object]


def _ok(name: str, text: str, **figures: object) -> Finding:
    return Finding(name, Level.OK, text, "", figures)


def _note(name: str, text: str, advice: str, **figures: object) -> Finding:
    return Finding(name, Level.NOTE, text, advice, figures)


def _fault(name: str, text: str, advice: str, **figures: object) -> Finding:
    return Finding(name, Level.FAULT, text, advice, figures)


@dataclass
class Idle:
    """Pauses without traffic, each with whether a copy came after it; None where the server did not forward
    one. Clients make pauses of `renewal_interval_s` at most."""

    renewal_interval_s: float
    outcomes: list[tuple[float, bool | None]] = field(default_factory=list)


@dataclass
class Seen:
    """What was observed at an address of a server.

    `no_family` says why this machine has no way there, and `has_other` that it has one to another address of
    the server. `path_bytes` is the largest packet that the kernel believes the path to take; None where it
    does not tell.
    """

    probe: Probe
    has_other: bool = False
    no_family: str = ""
    path_bytes: int | None = None
    idle: Idle | None = None

    @property
    def needed_bytes(self) -> int:
        """The size of the packet in which a full datagram travels to the address."""
        assert self.probe.address is not None
        return DATAGRAM_BYTES_MAX + HEADER_BYTES[6 if ":" in self.probe.address[0] else 4]


def of_server(seen: Seen) -> list[Finding]:
    """Returns the findings at one address of a server."""
    reach = _reach(seen)
    return [reach] if reach else [*_path(seen), *_dealings(seen), *_idle(seen.idle)]


def _reach(seen: Seen) -> Finding | None:
    """Returns why it cannot be asked at all, if it cannot."""
    probe = seen.probe
    if probe.address is None:
        advice = "correct it in the cluster file, or see to this machine's DNS"
        return _fault("no-address", "its name leads to no address", advice)
    host, port = probe.address
    if ip_address(host).is_unspecified:
        text = f"{host} stands for all addresses of a machine, and is none of them"
        return _fault("no-address", text, "write the address at which clients reach the server")
    if seen.no_family:
        version = 6 if ":" in host else 4
        text = f"this machine has no way to its IPv{version} address ({seen.no_family})"
        if seen.has_other:
            return _note("no-family", text, "clients here use its other address", family=version)
        advice = "give the server an address of a family that clients have, or this machine a route"
        return _fault("only-other-family", text, advice, family=version)
    if probe.rtts_s or probe.is_answered:
        return None
    if error := probe.send_error:
        text = f"the system does not send to it ({error})"
        return _fault("cannot-send", text, "see to the firewall and the routes of this machine", error=error)
    if probe.elsewhere is not None:
        where = format_address(probe.elsewhere)
        text = f"answers come from {where}, so clients drop them"
        advice = f"start it with --host {host}, put {where} into the cluster file, or look for a NAT that"
        return _fault("elsewhere", text, f"{advice} changes addresses", host=host, answered_from=where)
    if probe.is_closed:
        advice = "start kcast serve there, or correct the address and port"
        return _fault("closed", f"nobody listens on UDP port {port} there", advice, port=port)
    if error := probe.network_error:
        text = f"the network says that it cannot be reached ({error})"
        advice = "see whether that machine is up and has this address, and to the route there"
        return _fault("unreachable", text, advice, error=error)
    sent, others = probe.small.sent + probe.full.sent, probe.strange_count
    text = f"nothing answers {sent} pings" + (
        f", though {_datagrams(others)} came from there" if others else ""
    )
    advice = (
        f"see whether it is up; see that firewalls let UDP port {port} in there, and answers out and in here"
    )
    return _fault("silent", text, advice, port=port, sent=sent, others=others)


# --- The path ----------------------------------------------------------------------------------------

_FRAGMENTS_PASS = "or let fragments and ICMP through firewalls"


def _path(seen: Seen) -> Iterable[Finding]:
    small, full, needed_bytes = seen.probe.small, seen.probe.full, seen.needed_bytes
    if not seen.probe.rtts_s:
        yield _no_answer("answers requests, but no pings")
    elif full.sent and not full.rtts_s:
        text = f"pings of {small.size_bytes} bytes are answered, those of {full.size_bytes} are not"
        advice = f"raise the MTU on the way there to {needed_bytes}, {_FRAGMENTS_PASS}"
        yield _fault("full-lost", text, advice, needed_bytes=needed_bytes)
        yield _loss([small], seen.path_bytes)
    else:
        yield _loss([small, full], seen.path_bytes)
    if seen.path_bytes is not None and seen.path_bytes < needed_bytes:
        text = f"long datagrams go there in pieces, since the path takes {seen.path_bytes} bytes at once"
        advice = f"raise the MTU to {needed_bytes}; where one piece gets lost, all is lost"
        yield _note("fragments", text, advice, path_bytes=seen.path_bytes, needed_bytes=needed_bytes)


def _no_answer(text: str) -> Finding:
    return _fault("no-answer", text, "look at its log; in a flood, raise its --challenge-rate")


def _loss(pings: list[Pings], path_bytes: int | None) -> Finding:
    """Returns how pings of these sizes are answered."""
    sent, lost = sum(each.sent for each in pings), sum(each.lost for each in pings)
    rtts_s = [rtt_s for each in pings for rtt_s in each.rtts_s]
    times = {"rtt_median_ms": _ms(median(rtts_s)), "rtt_max_ms": _ms(max(rtts_s))}
    figures: dict[str, object] = {"sent": sent, "lost": lost, **times, "path_bytes": path_bytes}
    text = f"{lost} of {sent} pings get no answer"
    if lost / sent >= LOSS_FAULT:
        advice = "look for a full link or weak radio, and whether the server's machine is busy"
        return _fault("loss", text, advice, **figures)
    if lost:
        advice = "if it is always so, raise k and publish in the cluster's policy"
        return _note("some-loss", text, advice, **figures)
    return _ok("answers", f"answers {sent} pings in {times['rtt_median_ms']:.1f} ms", **figures)


# --- The handshake, the lease, the copy --------------------------------------------------------------


def _dealings(seen: Seen) -> Iterable[Finding]:
    probe = seen.probe
    assert probe.address is not None
    if not probe.is_answered:
        yield _no_answer(f"does not answer a request for a cookie in {probe.waited_s:g} s")
        return
    if probe.forgotten_count:
        text = "a cookie that it made is refused a moment later"
        advice = "look for a NAT that changes ports each time, or for several servers behind one address"
        yield _fault("cookie-forgotten", text, advice, count=probe.forgotten_count)
    if probe.is_draining:
        yield _fault("draining", "it is about to stop", "wait if it is being restarted; else start it again")
    else:
        yield from _lease(probe)
        yield from _copies(seen)
    if probe.version:
        yield _ok("version", f"version {escaped(probe.version)}", version=probe.version)
    if probe.is_copy_marked:
        text = "takes leases and messages without a handshake"
        if ip_address(probe.address[0]).is_private:
            yield _note("open", text, "leave out --open where others can reach it")
        else:
            yield _fault("open-to-all", text, "leave out --open, since anybody can have it flood others")


def _lease(probe: Probe) -> Iterable[Finding]:
    ttl_s, bits = probe.session.ttl_s, probe.work_bits or 0
    if probe.is_leased and ttl_s is not None:
        if ttl_s < TTL_SHORT_S:
            advice = "raise its --ttl, since one lost datagram can end such a lease"
            yield _fault("short-ttl", f"leases last {ttl_s:g} s only", advice, ttl_s=ttl_s, work_bits=bits)
        else:
            text = f"leases for {_span(ttl_s)}" + (f", for {bits} bits of work" if bits else "")
            yield _ok("leases", text, ttl_s=ttl_s, work_bits=bits)
    elif probe.lease_refusal:
        yield _refused("a lease", probe.lease_refusal)
    elif probe.is_too_dear or probe.session.is_minting:
        text = f"asks {bits} bits of work for a lease, which was not done in {probe.waited_s:g} s"
        yield _fault(
            "work", text, "lower its --work-bits, or look for a flood of leases there", work_bits=bits
        )
    elif not probe.forgotten_count:
        yield _no_answer(f"does not answer a request for a lease in {probe.waited_s:g} s")


def _refused(what: str, reason: str) -> Finding:
    flag = _FLAGS.get(reason)
    advice = f"raise its {flag}" if flag else "look at its log"
    return _fault("refused", f"refuses {what} ({escaped(reason)})", advice, reason=reason, flag=flag)


def _copies(seen: Seen) -> Iterable[Finding]:
    probe = seen.probe
    if not (probe.is_leased or probe.lease_refusal or probe.is_too_dear):
        return
    if not probe.has_receipt:
        if probe.publish_refusal:
            yield _refused("a message", probe.publish_refusal)
        else:
            yield _no_answer(f"does not answer a message in {probe.waited_s:g} s")
    elif probe.is_leased and not probe.has_copy:
        text = f"forwards a message, but no copy of it came in {probe.waited_s:g} s"
        yield _fault("no-copy", text, "look at its log and at kcast top, since it may drop copies")
    elif probe.is_leased and probe.has_full_copy is False:
        text = f"short copies come back, those of {DATAGRAM_BYTES_MAX} bytes do not"
        advice = f"raise the MTU on the way back to {seen.needed_bytes}, {_FRAGMENTS_PASS}"
        yield _fault("full-copies-lost", text, advice, needed_bytes=seen.needed_bytes)
    elif probe.is_leased:
        text = f"copies of {DATAGRAM_BYTES_MAX} bytes" if probe.has_full_copy else "copies"
        yield _ok("copies", text, took_ms=_ms(probe.took_s), full=probe.has_full_copy)


# --- The way back without traffic --------------------------------------------------------------------


def _idle(idle: Idle | None) -> Iterable[Finding]:
    if idle is None:
        return
    interval_s = idle.renewal_interval_s
    died_s = min((pause_s for pause_s, came in idle.outcomes if came is False), default=None)
    alive = [pause_s for pause_s, came in idle.outcomes if came and (died_s is None or pause_s < died_s)]
    lived_s = max(alive, default=0.0)
    figures = {"lived_s": lived_s, "died_s": died_s, "renewal_interval_s": interval_s}
    if died_s is not None and died_s <= interval_s:
        text = f"copies stop after {died_s:g} s without traffic, clients renew every {interval_s:.0f} s"
        ttl_s = max(1.0, 3 * lived_s)  # clients renew three times a ttl
        advice = f"let NAT and firewall remember UDP for 30 s, or lower the servers' --ttl to {ttl_s:.0f}"
        yield _fault("idle-short", text, advice, **figures, ttl_needed_s=ttl_s)
    elif lived_s < interval_s:
        text = "it could not be seen how long the way back stays open"
        yield _note("idle-unknown", text, "ask again when the server forwards everything", **figures)
    else:
        yield _ok("idle", f"the way back stays open for {lived_s:g} s without traffic", **figures)


# --- This machine ------------------------------------------------------------------------------------


def of_machine(machine: Machine, signed: ListFacts | None) -> list[Finding]:
    """Returns the findings about this machine, and about the clock by which it judges a signed list."""
    names = " and ".join(f"IPv{version}" for version in machine.families)
    families = _ok("families", f"{names or 'no IP'} sockets", families=list(machine.families))
    return [families, _buffers(machine), *_clock(machine, signed)]


def _buffers(machine: Machine) -> Finding:
    got, wanted, ports = machine.receive_buffer_bytes, machine.wanted_buffer_bytes, machine.dropping_ports
    figures: dict[str, object] = {"receive_buffer_bytes": got, "wanted_bytes": wanted}
    figures |= {"dropped": machine.dropped_count, "dropping_ports": ports}
    todo = f"sysctl -w net.core.rmem_max={wanted}"
    if machine.dropped_count:
        at = f"port {', '.join(map(str, ports[:PORTS_SHOWN_MAX]))}"
        text = (
            f"dropped {_datagrams(machine.dropped_count)} meanwhile, since a program read too slowly ({at})"
        )
        return _note("dropped-here", text, f"see which it is (ss -uamp); for clients, {todo}", **figures)
    if got < wanted:
        text = f"clients get a buffer of {got >> 10} KiB, and want {wanted >> 10} KiB"
        return _note("buffer-small", text, f"where many messages come at once, {todo}", **figures)
    return _ok("buffers", f"buffers of {wanted >> 20} MiB", **figures)


def _clock(machine: Machine, signed: ListFacts | None) -> Iterable[Finding]:
    if (suspended_s := machine.suspended_s) >= SUSPENDED_S:
        text = f"was suspended for {suspended_s:.0f} s meanwhile"
        yield _note(
            "suspended", text, "ask again, since answers were late", suspended_s=round(suspended_s, 3)
        )
    if has_jumped := abs(machine.clock_jump_s) >= JUMP_S:
        text = f"its clock jumped by {machine.clock_jump_s:+.1f} s meanwhile"
        advice = "run one time service, and let it slew the clock"
        yield _fault("clock-jumped", text, advice, jump_s=round(machine.clock_jump_s, 3))
    if signed is not None and (late := _late(machine.unix_s, signed)):
        yield late
    elif not has_jumped:
        # Servers tell no time: without a signed list, there is nothing to compare the clock with.
        text = "a clock that fits the signed list" if signed else "an even clock"
        yield _ok("clock", text, unix_s=round(machine.unix_s, 3))


def _late(now: float, signed: ListFacts) -> Finding | None:
    """Returns how a signed list does not fit the time of day (PROTOCOL §10.4), if it does not."""
    if (by_s := signed.valid_after_s - now) > 0:
        text = f"the signed list begins in {_span(by_s)}"
    elif (by_s := now - signed.valid_until_s) > 0:
        text = f"the signed list ended {_span(by_s)} ago"
    elif (by_s := now - signed.fresh_until_s) > 0:
        text = f"the signed list should have been renewed {_span(by_s)} ago"
    else:
        return None
    advice = "see whether the clock here is right; else have its publisher renew it (kcast servers publish)"
    return _fault("list-times", f"by its clock, {text}", advice, by_s=round(by_s))


# --- Numbers for people ------------------------------------------------------------------------------


def _span(seconds: float) -> str:
    for unit_s, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"


def _datagrams(count: int) -> str:
    return "1 datagram" if count == 1 else f"{count} datagrams"


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
