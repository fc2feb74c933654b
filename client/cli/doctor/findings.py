"""What follows from what was observed: findings, in the order in which to look at them. Pure functions.

What would make others meaningless comes alone: where nothing answers, nothing is said of leases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from statistics import median

from kcast.client.cli.doctor.kinds import KINDS, Kind, Level
from kcast.client.cli.doctor.seen import Dealing, ListTimes, Machine, Pings, Seen, packet_bytes
from kcast.client.cli.text import escaped
from kcast.pubsub.endpoint import Address, format_address

LOSS_FAULT = 0.1
RTT_SLOW_S = 1.0
TTL_SHORT_S = 10.0
JUMP_S = 0.5
SUSPENDED_S = 1.0
PORTS_SHOWN_MAX = 3


@dataclass(frozen=True)
class Finding:
    """One result: `text` says what is so, `advice` what to do. `figures` are for programs."""

    id: str
    text: str
    figures: Mapping[str, object] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return KINDS[self.id]

    @property
    def level(self) -> Level:
        """How grave it is."""
        return self.kind.level

    @property
    def advice(self) -> str:
        """What to do; nothing where all is well."""
        return self.kind.advice.format_map(self.figures)


def of_server(seen: Seen) -> list[Finding]:
    """Returns the findings at one address of a server."""
    reach = _reach(seen)
    if reach is not None:
        return [reach]
    return [*_path(seen), *_dealings(seen), *_idle(seen)]


def _reach(seen: Seen) -> Finding | None:
    """Returns why it cannot be asked at all, if it cannot."""
    if seen.address is None:
        return Finding("no-address", "its name leads to no address")
    host, port = seen.address
    if ip_address(host).is_unspecified:
        return Finding("no-destination", f"{host} stands for all addresses of a machine, and is none of them")
    if seen.no_family:
        version = 6 if ":" in host else 4
        text = f"this machine has no way to its IPv{version} address ({seen.no_family})"
        return Finding("no-family" if seen.has_other else "only-other-family", text, {"family": version})
    if seen.rtts_s or (seen.dealing is not None and seen.dealing.is_answered):
        return None
    if seen.send_error:
        return Finding(
            "cannot-send", f"the system does not send to it ({seen.send_error})", {"error": seen.send_error}
        )
    if seen.elsewhere is not None:
        where = format_address(seen.elsewhere)
        figures = {"host": host, "answered_from": where}
        kind = "elsewhere" if seen.elsewhere[1] == port else "other-port"
        return Finding(kind, f"answers come from {where}, so clients drop them", figures)
    if seen.unasked_count:
        return _unasked(seen)
    if seen.is_closed:
        return Finding("closed", f"nobody listens on UDP port {port} there", {"port": port})
    if seen.network_error:
        text = f"the network says that it cannot be reached ({seen.network_error})"
        return Finding("unreachable", text, {"error": seen.network_error})
    sent = seen.small.sent + seen.full.sent
    return Finding("silent", f"nothing answers {sent} pings", {"port": port, "sent": sent})


# --- The path ----------------------------------------------------------------------------------------


def _path(seen: Seen) -> list[Finding]:
    assert seen.address is not None
    found = []
    needed_bytes = packet_bytes(seen.address)
    small, full = seen.small, seen.full
    if not seen.rtts_s:
        found.append(Finding("no-pongs", "answers requests, but no pings"))
    elif full.sent and not full.rtts_s:
        text = f"pings of {small.size_bytes} bytes are answered, those of {full.size_bytes} are not"
        found.append(Finding("full-lost", text, {"needed_bytes": needed_bytes}))
        found += _loss([small], seen.path_bytes)
    else:
        found += _loss([small, full], seen.path_bytes)
    if seen.rtts_s and (rtt_s := median(seen.rtts_s)) > RTT_SLOW_S:
        found.append(Finding("slow", f"answers take {rtt_s:.1f} s", {"rtt_median_ms": _ms(rtt_s)}))
    if seen.path_bytes is not None and seen.path_bytes < needed_bytes:
        text = f"long datagrams go there in pieces, since the path takes {seen.path_bytes} bytes at once"
        figures = {"path_bytes": seen.path_bytes, "needed_bytes": needed_bytes}
        found.append(Finding("fragments", text, figures))
    if doubled := small.doubled_count + full.doubled_count:
        found.append(Finding("doubled", f"answers came again {_times_of(doubled)}", {"count": doubled}))
    if seen.unasked_count:
        found.append(_unasked(seen))
    return found


def _unasked(seen: Seen) -> Finding:
    count, first = seen.unasked_count, escaped(seen.unasked_first)
    text = f"what it answered {_times_of(count)} is no answer to anything that was asked ({first})"
    return Finding("unasked", text, {"count": count, "first": first})


def _loss(pings: list[Pings], path_bytes: int | None) -> list[Finding]:
    """Returns how pings of these sizes are answered."""
    sent, lost = sum(each.sent for each in pings), sum(each.lost for each in pings)
    rtts_s = [rtt_s for each in pings for rtt_s in each.rtts_s]
    rtt_s = median(rtts_s)
    figures = {
        "sent": sent,
        "lost": lost,
        "rtt_median_ms": _ms(rtt_s),
        "rtt_max_ms": _ms(max(rtts_s)),
        "path_bytes": path_bytes,
    }
    if lost:
        is_bad = lost / sent >= LOSS_FAULT
        text = f"{lost} of {sent} pings get no answer"
        return [Finding("loss" if is_bad else "some-loss", text, figures)]
    return [Finding("answers", f"answers {sent} pings in {_time(rtt_s)}", figures)]


# --- The handshake, the lease, the copy --------------------------------------------------------------

_REFUSALS = {
    "full": "its table is full",
    "address": "this address and port holds as many leases as it may",
    "prefix": "this network holds as many leases there as it may",
    "topics": "it has as many topics as it may",
    "topic": "it refuses the topic of health checks",
    "rate": "this address, or its network, publishes more than it may",
    "size": "it takes fewer lines in a datagram than any server does",
    "drain": "it is about to stop",
    "work": "it refuses the work that it asked for",
}


def _dealings(seen: Seen) -> list[Finding]:
    dealing = seen.dealing
    assert seen.address is not None
    if dealing is None:
        return []
    if not dealing.is_answered:
        return [Finding("no-cookie", f"answers pings, but no request for a cookie in {dealing.waited_s:g} s")]
    found = []
    if dealing.is_draining:
        found.append(Finding("draining", "it is about to stop"))
    if dealing.forgotten_count:
        text = "a cookie that it made is refused a moment later"
        found.append(Finding("cookie-forgotten", text, {"count": dealing.forgotten_count}))
    found += _lease(dealing)
    if dealing.is_leased or dealing.lease_refusal or dealing.is_too_dear:
        found += _copies(seen.address, dealing)
    if dealing.is_leased and not dealing.tells_credit and not ip_address(seen.address[0]).is_loopback:
        found.append(Finding("no-credit", "does not tell how much it will send before a renewal"))
    if dealing.is_copy_marked:
        is_private = ip_address(seen.address[0]).is_private
        found.append(
            Finding("open" if is_private else "open-to-all", "takes leases and messages without a handshake")
        )
    return found


def _lease(dealing: Dealing) -> list[Finding]:
    if dealing.is_draining:
        return []
    if dealing.lease_refusal and not dealing.is_leased:
        return [_refused(dealing.lease_refusal, "a lease")]
    bits = dealing.price_bits
    if dealing.is_too_dear:
        return [Finding("too-dear", f"asks {bits} bits of work for a lease", {"work_bits": bits})]
    if dealing.is_minting and not dealing.is_leased:
        text = f"asks {bits} bits of work for a lease, not done in {dealing.waited_s:g} s"
        return [Finding("work-long", text, {"work_bits": bits})]
    if not dealing.is_leased or dealing.ttl_s is None:
        return [] if dealing.forgotten_count else [Finding("no-lease", "gives a cookie, but no lease")]
    figures: dict[str, object] = {"ttl_s": dealing.ttl_s, "work_bits": bits}
    if dealing.ttl_s < TTL_SHORT_S:
        return [Finding("short-ttl", f"leases last {dealing.ttl_s:g} s only", figures)]
    found = [Finding("leases", f"leases for {_span(dealing.ttl_s)}", figures)]
    if bits:
        found.append(Finding("work", f"asks {bits} bits of work for a new lease", figures))
    return found


def _refused(reason: str, what: str) -> Finding:
    figures = {"reason": reason}
    if reason not in _REFUSALS:
        text = f"refuses {what}, for a reason that this client does not know ({escaped(reason)})"
        return Finding("refused-other", text, figures)
    return Finding(f"refused-{reason}", f"refuses {what}, since {_REFUSALS[reason]}", figures)


def _copies(address: Address, dealing: Dealing) -> list[Finding]:
    if dealing.is_draining:
        return []
    if dealing.publish_refusal and not dealing.has_receipt:
        return [_refused(dealing.publish_refusal, "a message")]
    if not dealing.has_receipt:
        return [Finding("no-receipt", f"no receipt for a message in {dealing.waited_s:g} s")]
    if not dealing.is_leased:
        return []  # it forwards; there is no lease to which a copy could come
    if not dealing.has_copy:
        text = f"forwards a message, but no copy of it came in {dealing.waited_s:g} s"
        return [Finding("no-copy", text)]
    if dealing.has_full_copy is False:
        text = "short copies come back, those of 1200 bytes do not"
        return [Finding("full-copies-lost", text, {"needed_bytes": packet_bytes(address)})]
    text = "copies of 1200 bytes" if dealing.has_full_copy else "copies"
    return [Finding("copies", text, {"took_ms": _ms(dealing.took_s), "full": dealing.has_full_copy})]


# --- The way back without traffic --------------------------------------------------------------------


def _idle(seen: Seen) -> list[Finding]:
    idle = seen.idle
    if idle is None:
        return []
    lived_s, died_s, interval_s = idle.lived_s, idle.died_s, idle.renewal_interval_s
    figures: dict[str, object] = {
        "lived_s": lived_s,
        "died_s": None if died_s == float("inf") else died_s,
        "renewal_interval_s": interval_s,
    }
    if died_s <= interval_s:
        # Clients renew three times a ttl.
        figures["ttl_needed_s"] = max(1.0, 3 * lived_s)
        text = f"copies stop after {died_s:g} s without traffic, clients renew every {interval_s:.0f} s"
        return [Finding("idle-short", text, figures)]
    if lived_s < interval_s:
        return [Finding("idle-unknown", "it could not be seen how long the way back stays open", figures)]
    return [Finding("idle", f"the way back stays open for {lived_s:g} s without traffic", figures)]


# --- This machine ------------------------------------------------------------------------------------


def of_machine(machine: Machine, times: ListTimes | None) -> list[Finding]:
    """Returns the findings about this machine, and about the clock by which it judges a signed list."""
    return [*_families(machine), *_buffers(machine), *_clock(machine, times)]


def _families(machine: Machine) -> Iterable[Finding]:
    names = " and ".join(f"IPv{version}" for version in machine.families)
    yield Finding("families", f"{names or 'no IP'} sockets", {"families": list(machine.families)})


def _buffers(machine: Machine) -> Iterable[Finding]:
    got, wanted = machine.receive_buffer_bytes, machine.wanted_buffer_bytes
    figures: dict[str, object] = {
        "receive_buffer_bytes": got,
        "wanted_bytes": wanted,
        "dropped": machine.dropped_count,
        "dropping_ports": machine.dropping_ports,
    }
    if machine.dropped_count:
        shown = ", ".join(map(str, machine.dropping_ports[:PORTS_SHOWN_MAX]))
        where = f" (at port {shown})" if shown else ""
        text = f"dropped {machine.dropped_count} datagrams meanwhile, since a program read too slowly{where}"
        yield Finding("dropped-here", text, figures)
    elif got < wanted:
        yield Finding(
            "buffer-small", f"clients get a buffer of {_bytes(got)}, and want {_bytes(wanted)}", figures
        )
    else:
        yield Finding("buffers", f"buffers of {_bytes(wanted)}", figures)


def _clock(machine: Machine, times: ListTimes | None) -> Iterable[Finding]:
    if machine.suspended_s >= SUSPENDED_S:
        text = f"was suspended for {machine.suspended_s:.0f} s meanwhile"
        yield Finding("suspended", text, {"suspended_s": round(machine.suspended_s, 3)})
    jumped = abs(machine.clock_jump_s) >= JUMP_S
    if jumped:
        text = f"its clock jumped by {machine.clock_jump_s:+.1f} s meanwhile"
        yield Finding("clock-jumped", text, {"jump_s": round(machine.clock_jump_s, 3)})
    unfit = None if times is None else _unfit(machine.unix_s, times)
    if unfit is not None:
        yield unfit
    elif not jumped:
        # Servers tell no time: without a signed list, there is nothing to compare the clock with.
        text = "a clock that fits the signed list" if times else "an even clock"
        yield Finding("clock", text, {"unix_s": round(machine.unix_s, 3)})


def _unfit(now: float, times: ListTimes) -> Finding | None:
    """Returns how a signed list does not fit the time of day, if it does not."""
    if (by_s := times.valid_after_s - now) > 0:
        kind, text = "list-early", f"the signed list begins in {_span(by_s)}"
    elif (by_s := now - times.valid_until_s) > 0:
        kind, text = "list-over", f"the signed list ended {_span(by_s)} ago"
    elif (by_s := now - times.fresh_until_s) > 0:
        kind, text = "list-stale", f"the signed list should have been renewed {_span(by_s)} ago"
    else:
        return None
    return Finding(kind, f"by its clock, {text}", {"by_s": round(by_s)})


# --- Numbers for people ------------------------------------------------------------------------------


def _span(seconds: float) -> str:
    for unit_s, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"


def _times_of(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _bytes(size_bytes: int) -> str:
    if size_bytes >= 1 << 20 and size_bytes % (1 << 20) == 0:
        return f"{size_bytes >> 20} MiB"
    return f"{size_bytes >> 10} KiB"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
