"""What `kcast doctor` concludes from what it has seen: each kind of finding, by tables."""

import re
from dataclasses import replace
from random import Random
from typing import Any

from kcast.client.cli.doctor.findings import Finding, Idle, Level, Seen, of_machine, of_server
from kcast.client.cli.doctor.machine import Machine
from kcast.client.cli.probe import Probe
from kcast.client.clusters.facts import ListFacts
from kcast.pubsub.endpoint import Address
from tests.support.checkout import ROOT

ROW = re.compile(r"^\| `([a-z-]+)` \| (ok|note|fault) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)

ADDRESS, V6 = ("192.0.2.7", 7400), ("2001:db8::7", 7400)
MACHINE = Machine((4, 6), 4 << 20, 4 << 20, 0, (), 0.0, 0.0, 1000.0)
SIGNED = ListFacts(1, 1, valid_after_s=500, fresh_until_s=2000, valid_until_s=3000, min_servers=1)


class _Probe(Probe):
    """One that has leased, or not, as it is told."""

    is_leased = True
    is_draining = False


def seen(
    address: Address | None = ADDRESS,
    *,
    small: int = 10,
    full: int = 10,
    rtt_s: float = 0.01,
    ttl_s: float = 60.0,
    is_minting: bool = False,
    of_seen: dict[str, Any] | None = None,
    **changes: Any,
) -> Seen:
    """What a server is like that does all that it should, but for some changes. Of 10 pings each, `small` and
    `full` are answered."""
    probe = _Probe("s", address, Random(1))
    probe.small.sent = probe.full.sent = 10
    probe.small.rtts_s, probe.full.rtts_s = [rtt_s] * small, [rtt_s] * full
    probe.is_answered = probe.has_receipt = probe.has_copy = True
    probe.has_full_copy, probe.waited_s, probe.session.ttl_s = True, 3.0, ttl_s
    if is_minting:
        probe.session = type("Minting", (), {"is_minting": True, "ttl_s": None})()
    for name, value in changes.items():
        setattr(probe, name, value)
    return Seen(probe, **{"path_bytes": 1500, **(of_seen or {})})


def unanswered(address: Address = ADDRESS, **changes: Any) -> Seen:
    return seen(address, small=0, full=0, is_answered=False, is_leased=False, **changes)


def unleased(**changes: Any) -> Seen:
    return seen(is_leased=False, has_copy=False, has_full_copy=None, **changes)


def idle(*outcomes: tuple[float, bool | None]) -> Seen:
    return seen(of_seen={"idle": Idle(20.0, list(outcomes))})


FINE = ["answers", "leases", "copies"]
NO_WAY = {"no_family": "Network is unreachable"}

SERVERS: list[tuple[Seen, list[str]]] = [
    (seen(), FINE),
    # reaching it
    (seen(None), ["no-address"]),
    (seen(("::", 7400)), ["no-address"]),
    (seen(V6, of_seen=NO_WAY), ["only-other-family"]),
    (seen(V6, of_seen=NO_WAY | {"has_other": True}), ["no-family"]),
    (unanswered(), ["silent"]),
    (unanswered(is_closed=True), ["closed"]),
    (unanswered(send_error="EPERM"), ["cannot-send"]),
    (unanswered(elsewhere=("192.0.2.8", 7400)), ["elsewhere"]),
    (unanswered(network_error="EHOSTUNREACH"), ["unreachable"]),
    (seen(is_closed=True, send_error="ENOBUFS"), FINE),  # it was started meanwhile
    (seen(small=0, full=0), ["no-answer", "leases", "copies"]),
    (seen(is_answered=False), ["answers", "no-answer"]),
    # the path
    (seen(small=9), ["some-loss", "leases", "copies"]),
    (seen(small=8), ["loss", "leases", "copies"]),
    (seen(small=0), ["loss", "leases", "copies"]),
    (seen(full=0), ["full-lost", *FINE]),
    (seen(full=0, small=5), ["full-lost", "loss", "leases", "copies"]),
    (seen(of_seen={"path_bytes": 1228}), FINE),
    (seen(of_seen={"path_bytes": 1227}), ["answers", "fragments", "leases", "copies"]),
    (seen(V6, of_seen={"path_bytes": 1247}), ["answers", "fragments", "leases", "copies"]),
    (seen(of_seen={"path_bytes": None}), FINE),
    # the lease and the copies
    (seen(is_draining=True), ["answers", "draining"]),
    (unleased(forgotten_count=3), ["answers", "cookie-forgotten"]),
    (unleased(has_receipt=False), ["answers", "no-answer"]),
    (unleased(lease_refusal="full"), ["answers", "refused"]),
    (seen(lease_refusal="full"), FINE),  # there was room a moment later
    (unleased(lease_refusal="full", publish_refusal="rate"), ["answers", "refused"]),
    (seen(publish_refusal="rate", has_receipt=False, has_copy=False), ["answers", "leases", "refused"]),
    (unleased(is_too_dear=True, work_bits=30), ["answers", "work"]),
    (unleased(is_minting=True, work_bits=24), ["answers", "work"]),
    (seen(ttl_s=5.0), ["answers", "short-ttl", "copies"]),
    (seen(has_receipt=False, has_copy=False), ["answers", "leases", "no-answer"]),
    (seen(has_copy=False), ["answers", "leases", "no-copy"]),
    (seen(has_full_copy=False), ["answers", "leases", "full-copies-lost"]),
    (seen(has_full_copy=None), FINE),
    (seen(is_copy_marked=True), [*FINE, "open"]),  # 192.0.2.0/24 is nobody's, so private
    (seen(("1.1.1.1", 1), is_copy_marked=True), [*FINE, "open-to-all"]),
    (seen(version="0.5.0"), [*FINE, "version"]),
    (seen(version=""), FINE),  # it is older, and does not tell
    # the way back without traffic
    (idle((10.0, True), (20.0, True), (30.0, True)), [*FINE, "idle"]),
    (idle((10.0, True), (20.0, True), (30.0, False)), [*FINE, "idle"]),
    (idle((10.0, True), (20.0, False), (30.0, False)), [*FINE, "idle-short"]),
    (idle((10.0, False), (20.0, True), (30.0, True)), [*FINE, "idle-short"]),
    (idle((10.0, None), (20.0, None)), [*FINE, "idle-unknown"]),
    (idle((10.0, True), (20.0, None), (30.0, True)), [*FINE, "idle"]),
]

HERE: list[tuple[Machine, ListFacts | None, list[str]]] = [
    (MACHINE, None, ["families", "buffers", "clock"]),
    (MACHINE, SIGNED, ["families", "buffers", "clock"]),
    (replace(MACHINE, receive_buffer_bytes=212_992), None, ["families", "buffer-small", "clock"]),
    (replace(MACHINE, dropped_count=3, dropping_ports=(9,)), None, ["families", "dropped-here", "clock"]),
    (replace(MACHINE, suspended_s=3.0), None, ["families", "buffers", "suspended", "clock"]),
    (replace(MACHINE, clock_jump_s=-3.0), None, ["families", "buffers", "clock-jumped"]),
    *((replace(MACHINE, unix_s=s), SIGNED, ["families", "buffers", "list-times"]) for s in (499, 2001, 3001)),
]


def all_findings() -> list[Finding]:
    return [
        *(finding for what, _ in SERVERS for finding in of_server(what)),
        *(finding for machine, signed, _ in HERE for finding in of_machine(machine, signed)),
    ]


def test_what_follows_from_what_was_seen() -> None:
    for what, expected in SERVERS:
        assert [finding.id for finding in of_server(what)] == expected, vars(what.probe)
    for machine, signed, expected in HERE:
        assert [finding.id for finding in of_machine(machine, signed)] == expected, machine


def test_each_says_what_to_do_unless_all_is_well_and_docs_explain_it() -> None:
    rows = dict(ROW.findall((ROOT / "docs/doctor.md").read_text()))
    for finding in all_findings():
        assert bool(finding.advice) is (finding.level is not Level.OK), finding
        # A line is text, colon, advice.
        assert ":" not in re.sub(r":\d+|::", "", finding.advice + finding.text)
        assert rows[finding.id] == finding.level
    assert {finding.id for finding in all_findings()} == set(rows)


def test_words_and_figures() -> None:
    for what, text, advice in (
        (unanswered(is_closed=True), "nobody listens on UDP port 7400 there", "start kcast serve there"),
        (unanswered(strange_count=3), "pings, though 3 datagrams came from there", "see whether it is up"),
        (
            unanswered(elsewhere=("192.0.2.8", 9)),
            "answers come from 192.0.2.8:9",
            "--host 192.0.2.7",
        ),
        (seen(full=0), "those of 1200 are not", "raise the MTU on the way there to 1228"),
        (seen(V6, of_seen={"path_bytes": 1200}), "takes 1200 bytes at once", "raise the MTU to 1248"),
        (
            idle((10.0, True), (20.0, False)),
            "copies stop after 20 s without traffic",
            "to 30",
        ),
        (unleased(lease_refusal="prefix"), "refuses a lease (prefix)", "raise its --leases-per-prefix"),
        (unleased(lease_refusal="evil\x1b"), "refuses a lease (evil\\x1b)", "look at its log"),
    ):
        found = next(finding for finding in of_server(what) if finding.level is not Level.OK)
        assert text in found.text
        assert advice in found.advice
    late = of_machine(replace(MACHINE, unix_s=3000 + 10_800.0), SIGNED)[-1]
    assert (late.text, late.figures) == ("by its clock, the signed list ended 3 hours ago", {"by_s": 10_800})
