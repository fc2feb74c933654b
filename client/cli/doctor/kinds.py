"""The kinds of findings: how grave each is, and what to do about it. docs/doctor.md explains each."""

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How grave a finding is: all is well, worth knowing, or something is to be done about it."""

    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


class Kind(NamedTuple):
    """`advice` may name figures of the finding in braces."""

    level: Level
    advice: str = ""


_OK, _NOTE, _FAULT = Level.OK, Level.NOTE, Level.FAULT

KINDS = {
    # reaching it
    "answers": Kind(_OK),
    "no-address": Kind(_FAULT, "correct it in the cluster file, or see to this machine's DNS"),
    "no-destination": Kind(_FAULT, "write the address at which clients reach the server"),
    "no-family": Kind(_NOTE, "clients here use its other address"),
    "only-other-family": Kind(
        _FAULT, "give the server an address of a family that clients have, or this machine a route"
    ),
    "cannot-send": Kind(_FAULT, "see to the firewall and the routes of this machine"),
    "closed": Kind(_FAULT, "start kcast serve there, or correct the address and port"),
    "elsewhere": Kind(
        _FAULT, "start it with --host {host}, or put the address that answers into the cluster file"
    ),
    "other-port": Kind(
        _FAULT,
        "put {answered_from} into the cluster file, if that is the server; else look for a NAT or proxy there"
        " that changes ports",
    ),
    "silent": Kind(
        _FAULT,
        "see whether it is up; see that firewalls let UDP port {port} in there, and answers out and in here",
    ),
    "unreachable": Kind(
        _FAULT, "see whether that machine is up and has this address, and to the route there"
    ),
    "no-pongs": Kind(_NOTE, "it may be flooded with strangers; look at its log"),
    "no-cookie": Kind(
        _FAULT, "see whether that is kcast serve; if so, raise its --challenge-rate, or look for a flood"
    ),
    # the path
    "some-loss": Kind(_NOTE, "if it is always so, raise k and publish in the cluster's policy"),
    "loss": Kind(_FAULT, "look for a full link or weak radio, and whether the server's machine is busy"),
    "slow": Kind(_NOTE, "use servers that are nearer where you can; a client waits 3 s for an answer"),
    "full-lost": Kind(
        _FAULT,
        "raise the MTU on the way there to {needed_bytes}, or let fragments and ICMP through firewalls",
    ),
    "full-copies-lost": Kind(
        _FAULT, "raise the MTU on the way back to {needed_bytes}, or let fragments and ICMP through firewalls"
    ),
    "fragments": Kind(_NOTE, "raise the MTU to {needed_bytes}; where one piece gets lost, all is lost"),
    "doubled": Kind(_NOTE, "copies are delivered once all the same; look for a loop or a bridge"),
    "unasked": Kind(_FAULT, "see whether that is kcast serve; if it is, somebody forges its answers"),
    # the handshake and the lease
    "leases": Kind(_OK),
    "copies": Kind(_OK),
    "draining": Kind(_FAULT, "wait if it is being restarted; else start it again"),
    "cookie-forgotten": Kind(
        _FAULT, "look for a NAT that changes ports each time, or for several servers behind one address"
    ),
    "no-lease": Kind(_FAULT, "see whether that is kcast serve, and look at its log"),
    "refused-full": Kind(_FAULT, "raise its --capacity, or add servers"),
    "refused-address": Kind(_FAULT, "raise its --leases-per-address"),
    "refused-prefix": Kind(_FAULT, "raise its --leases-per-prefix"),
    "refused-topics": Kind(_FAULT, "raise its --topics"),
    "refused-topic": Kind(_FAULT, "see whether that is kcast serve, as the topic is well-formed"),
    "refused-rate": Kind(
        _FAULT, "publish less from here, or raise its --publish-rate, --copy-rate and --egress-rate"
    ),
    "refused-size": Kind(_FAULT, "see whether that is kcast serve, as two lines are never too many"),
    "refused-drain": Kind(_FAULT, "wait if it is being restarted; else start it again"),
    "refused-work": Kind(_FAULT, "see whether that is kcast serve, as the work was done"),
    "refused-other": Kind(_FAULT, "see whether this client is older than the server (kcast --version)"),
    "too-dear": Kind(_FAULT, "lower its --work-bits, since clients pay 24 bits at most"),
    "work-long": Kind(_FAULT, "lower its --work-bits, or look for a flood of leases there"),
    "work": Kind(_NOTE, "raise its --capacity, unless its --work-bits is why"),
    "short-ttl": Kind(_FAULT, "raise its --ttl, since one lost datagram can end such a lease"),
    "no-receipt": Kind(_FAULT, "see whether that is kcast serve, and look at its log"),
    "no-copy": Kind(
        _FAULT, "look at its log and at kcast top, since it may drop copies, or be no kcast serve"
    ),
    "no-credit": Kind(_NOTE, "upgrade it, since servers before 0.5 do not tell clients when to renew"),
    "open": Kind(_NOTE, "leave out --open where others can reach it"),
    "open-to-all": Kind(_FAULT, "leave out --open, since anybody can have it flood others"),
    # the way back without traffic (--slow)
    "idle": Kind(_OK),
    "idle-short": Kind(
        _FAULT,
        "let NAT and firewall remember UDP for 30 s, or lower the servers' --ttl to {ttl_needed_s:.0f}",
    ),
    "idle-unknown": Kind(_NOTE, "ask again when the server forwards everything"),
    # this machine
    "families": Kind(_OK),
    "buffers": Kind(_OK),
    "buffer-small": Kind(
        _NOTE, "where many messages come at once, sysctl -w net.core.rmem_max={wanted_bytes}"
    ),
    "dropped-here": Kind(
        _NOTE,
        "see which it is (ss -uamp); for clients, sysctl -w net.core.rmem_max={wanted_bytes}",
    ),
    "clock": Kind(_OK),
    "clock-jumped": Kind(_FAULT, "run one time service, and let it slew the clock"),
    "suspended": Kind(_NOTE, "ask again, since answers were late"),
    "list-early": Kind(_FAULT, "set the clock of this machine"),
    "list-stale": Kind(
        _FAULT,
        "see whether the clock here is ahead; else have its publisher renew it (kcast servers publish)",
    ),
    "list-over": Kind(
        _FAULT,
        "see whether the clock here is ahead; else have its publisher renew it (kcast servers publish)",
    ),
}
