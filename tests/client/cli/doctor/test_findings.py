"""What `kcast doctor` concludes from what it has seen: each kind of finding, by tables."""

import re
from dataclasses import replace
from string import Formatter
from typing import Any

import pytest

from kcast.client.cli.doctor.findings import Finding, of_machine, of_server
from kcast.client.cli.doctor.kinds import KINDS, Level
from kcast.client.cli.doctor.seen import Dealing, Idle, ListTimes, Machine, Pings, Seen
from kcast.pubsub.metrics import _REFUSALS
from tests.support.checkout import ROOT

ROW = re.compile(r"^\| `([a-z-]+)` \| (ok|note|fault) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)

ADDRESS = ("192.0.2.7", 7400)
V6 = ("2001:db8::7", 7400)
RTTS = [0.01] * 10

GOOD = Dealing(
    3.0,
    took_s=0.03,
    is_answered=True,
    is_leased=True,
    has_receipt=True,
    has_copy=True,
    has_full_copy=True,
    tells_credit=True,
    ttl_s=60.0,
)
MACHINE = Machine((4, 6), 4 << 20, 4 << 20, 0, (), 0.0, 0.0, 1000.0)
SMALL = replace(MACHINE, receive_buffer_bytes=212_992)
TIMES = ListTimes(500, 2000, 3000)


def seen(**changes: Any) -> Seen:
    """What a server is like that does all that it should, but for some changes."""
    fields: dict[str, Any] = {
        "small": Pings(64, 10, RTTS),
        "full": Pings(1200, 10, RTTS),
        "path_bytes": 1500,
        "dealing": GOOD,
    }
    return Seen("s", "s", **{"address": ADDRESS, **fields, **changes})


def unanswered(**changes: Any) -> Seen:
    return seen(small=Pings(64, 10), full=Pings(1200, 10), dealing=Dealing(3.0), **changes)


def dealt(**changes: Any) -> Seen:
    return seen(dealing=replace(GOOD, **changes))


def without_lease(**changes: Any) -> Seen:
    return dealt(is_leased=False, has_copy=False, has_full_copy=None, ttl_s=None, **changes)


def idle(*outcomes: tuple[float, bool | None], interval_s: float = 20.0) -> Seen:
    return seen(idle=Idle(list(outcomes), interval_s))


FINE = ["answers", "leases", "copies"]

SERVERS: list[tuple[Seen, list[str]]] = [
    (seen(), FINE),
    # reaching it
    (seen(address=None), ["no-address"]),
    (seen(address=V6, no_family="Network is unreachable"), ["only-other-family"]),
    (seen(address=V6, no_family="Network is unreachable", has_other=True), ["no-family"]),
    (unanswered(), ["silent"]),
    (unanswered(is_closed=True), ["closed"]),
    (unanswered(send_error="EPERM"), ["cannot-send"]),
    (unanswered(elsewhere=("192.0.2.8", 7400)), ["elsewhere"]),
    (unanswered(elsewhere=("192.0.2.7", 7401)), ["other-port"]),
    (unanswered(elsewhere=("192.0.2.8", 7401)), ["other-port"]),
    (unanswered(address=("0.0.0.0", 7400), elsewhere=("127.0.0.1", 7400)), ["no-destination"]),
    (seen(address=("::", 7400)), ["no-destination"]),
    (unanswered(network_error="EHOSTUNREACH"), ["unreachable"]),
    (unanswered(unasked_count=20), ["unasked"]),
    (seen(is_closed=True), FINE),  # it was started meanwhile
    (seen(send_error="ENOBUFS"), FINE),
    (seen(small=Pings(64, 10), full=Pings(1200, 10)), ["no-pongs", "leases", "copies"]),
    (seen(dealing=Dealing(3.0)), ["answers", "no-cookie"]),
    (seen(dealing=None), ["answers"]),
    # the path
    (seen(small=Pings(64, 10, RTTS[:9])), ["some-loss", "leases", "copies"]),
    (seen(small=Pings(64, 10, RTTS[:8])), ["loss", "leases", "copies"]),
    (seen(small=Pings(64, 10), full=Pings(1200, 10, RTTS)), ["loss", "leases", "copies"]),
    (seen(full=Pings(1200, 10)), ["full-lost", *FINE]),
    (seen(full=Pings(1200, 10), small=Pings(64, 10, RTTS[:5])), ["full-lost", "loss", "leases", "copies"]),
    (seen(small=Pings(64, 10, [1.5] * 10), full=Pings(1200)), ["answers", "slow", "leases", "copies"]),
    (seen(path_bytes=1228), FINE),
    (seen(path_bytes=1227), ["answers", "fragments", "leases", "copies"]),
    (seen(address=V6, path_bytes=1247), ["answers", "fragments", "leases", "copies"]),
    (seen(path_bytes=None), FINE),
    (seen(small=Pings(64, 10, RTTS, doubled_count=2)), ["answers", "doubled", "leases", "copies"]),
    (seen(unasked_count=1), ["answers", "unasked", "leases", "copies"]),
    # the lease and the copies
    (dealt(is_draining=True), ["answers", "draining"]),
    (without_lease(forgotten_count=3), ["answers", "cookie-forgotten"]),
    (without_lease(has_receipt=False), ["answers", "no-lease"]),
    (without_lease(lease_refusal="full"), ["answers", "refused-full"]),
    (without_lease(lease_refusal="maintenance"), ["answers", "refused-other"]),
    (dealt(lease_refusal="full"), FINE),  # there was room a moment later
    (without_lease(lease_refusal="full", publish_refusal="rate"), ["answers", "refused-full"]),
    (dealt(publish_refusal="rate", has_receipt=False, has_copy=False), ["answers", "leases", "refused-rate"]),
    (without_lease(is_too_dear=True, price_bits=30), ["answers", "too-dear"]),
    (without_lease(is_minting=True, price_bits=24), ["answers", "work-long"]),
    (dealt(price_bits=12), ["answers", "leases", "work", "copies"]),
    (dealt(ttl_s=5.0), ["answers", "short-ttl", "copies"]),
    (dealt(has_receipt=False, has_copy=False), ["answers", "leases", "no-receipt"]),
    (dealt(has_copy=False), ["answers", "leases", "no-copy"]),
    (dealt(has_full_copy=False), ["answers", "leases", "full-copies-lost"]),
    (dealt(has_full_copy=None), FINE),
    (dealt(tells_credit=False), [*FINE, "no-credit"]),
    (seen(address=("127.0.0.1", 1), dealing=replace(GOOD, tells_credit=False)), FINE),
    (dealt(is_copy_marked=True), [*FINE, "open"]),  # 192.0.2.0/24 is nobody's, so private
    (seen(address=("1.1.1.1", 1), dealing=replace(GOOD, is_copy_marked=True)), [*FINE, "open-to-all"]),
    # the way back without traffic
    (idle((10.0, True), (20.0, True), (30.0, True)), [*FINE, "idle"]),
    (idle((10.0, True), (20.0, True), (30.0, False)), [*FINE, "idle"]),
    (idle((10.0, True), (20.0, False), (30.0, False)), [*FINE, "idle-short"]),
    (idle((10.0, False), (20.0, True), (30.0, True)), [*FINE, "idle-short"]),
    (idle((10.0, None), (20.0, None)), [*FINE, "idle-unknown"]),
    (idle((10.0, True), (20.0, None), (30.0, True)), [*FINE, "idle"]),
]
SERVERS += [(without_lease(lease_refusal=why), ["answers", f"refused-{why}"]) for why in _REFUSALS]

HERE: list[tuple[Machine, ListTimes | None, list[str]]] = [
    (MACHINE, None, ["families", "buffers", "clock"]),
    (replace(MACHINE, dropped_count=None), TIMES, ["families", "buffers", "clock"]),
    (SMALL, None, ["families", "buffer-small", "clock"]),
    (
        replace(SMALL, dropped_count=3),
        None,
        ["families", "dropped-here", "clock"],
    ),
    (replace(MACHINE, suspended_s=3.0), None, ["families", "buffers", "suspended", "clock"]),
    (replace(MACHINE, clock_jump_s=-3.0), None, ["families", "buffers", "clock-jumped"]),
    (replace(MACHINE, unix_s=499.0), TIMES, ["families", "buffers", "list-early"]),
    (replace(MACHINE, unix_s=2001.0), TIMES, ["families", "buffers", "list-stale"]),
    (replace(MACHINE, unix_s=3001.0), TIMES, ["families", "buffers", "list-over"]),
]


def ids(found: list[Finding]) -> list[str]:
    return [finding.id for finding in found]


@pytest.mark.parametrize(("what", "expected"), SERVERS)
def test_what_follows_at_a_server(what: Seen, expected: list[str]) -> None:
    assert ids(of_server(what)) == expected


@pytest.mark.parametrize(("machine", "times", "expected"), HERE)
def test_what_follows_about_this_machine(
    machine: Machine, times: ListTimes | None, expected: list[str]
) -> None:
    assert ids(of_machine(machine, times)) == expected


def all_findings() -> list[Finding]:
    return [
        *(finding for what, _ in SERVERS for finding in of_server(what)),
        *(finding for machine, times, _ in HERE for finding in of_machine(machine, times)),
    ]


def test_each_kind_is_in_the_tables_above() -> None:
    assert {finding.id for finding in all_findings()} == set(KINDS)


def test_each_says_what_to_do_unless_all_is_well() -> None:
    for finding in all_findings():
        assert bool(finding.advice) is (finding.level is not Level.OK), finding
        # A line is text, colon, advice.
        text = re.sub(r":\d+|::", "", finding.advice + finding.text)
        assert not re.search(r"[{:]", text)


def test_figures_of_a_kind_have_the_same_names_always() -> None:
    names: dict[str, set[str]] = {}
    for finding in all_findings():
        assert names.setdefault(finding.id, set(finding.figures)) == set(finding.figures), finding
        wanted = {field for _, field, _, _ in Formatter().parse(finding.kind.advice) if field}
        assert wanted <= set(finding.figures)


def test_docs_explain_each_kind_with_its_level() -> None:
    rows = ROW.findall((ROOT / "docs/doctor.md").read_text())
    assert [(kind, Level(level)) for kind, level in rows] == [(kind, KINDS[kind].level) for kind in KINDS]


@pytest.mark.parametrize(
    ("ports", "where"), [((), "slowly"), ((9,), "port 9)"), ((1, 2, 3, 4), "port 1, 2, 3)")]
)
def test_where_datagrams_are_dropped(ports: tuple[int, ...], where: str) -> None:
    found = of_machine(replace(MACHINE, dropped_count=3, dropping_ports=ports), None)
    assert found[1].text.endswith(where)


@pytest.mark.parametrize(
    ("unix_s", "by_s", "text"),
    [
        (500 - 172_800.0, 172_800, "the signed list begins in 2 days"),
        (2000 + 90.0, 90, "the signed list should have been renewed 90 s ago"),
        (3000 + 300.0, 300, "the signed list ended 5 minutes ago"),
        (3000 + 10_800.0, 10_800, "the signed list ended 3 hours ago"),
    ],
)
def test_how_a_clock_does_not_fit(unix_s: float, by_s: int, text: str) -> None:
    found = of_machine(replace(MACHINE, unix_s=unix_s), TIMES)
    assert found[-1].text == f"by its clock, {text}"
    assert found[-1].figures == {"by_s": by_s}


@pytest.mark.parametrize(
    ("what", "text", "advice"),
    [
        (unanswered(is_closed=True), "nobody listens on UDP port 7400 there", "start kcast serve there"),
        (unanswered(elsewhere=("192.0.2.7", 9)), "answers come from 192.0.2.7:9", "put 192.0.2.7:9 into the"),
        (unanswered(unasked_count=3, unasked_first=b"x\x1b"), "answered 3 times is no answer", "forges"),
        (unanswered(unasked_count=3, unasked_first=b"x\x1b"), "was asked (x\\x1b)", "forges"),
        (unanswered(elsewhere=("192.0.2.8", 7400)), "answers come from 192.0.2.8:7400", "--host 192.0.2.7"),
        (seen(full=Pings(1200, 10)), "those of 1200 are not", "raise the MTU on the way there to 1228"),
        (seen(address=V6, path_bytes=1200), "takes 1200 bytes at once", "raise the MTU to 1248"),
        (
            idle((10.0, True), (20.0, False), interval_s=25.0),
            "copies stop after 20 s without traffic, clients renew every 25 s",
            "lower the servers' --ttl to 30",
        ),
        (without_lease(lease_refusal="evil\x1b"), "does not know (evil\\x1b)", "kcast --version"),
    ],
)
def test_words_and_figures(what: Seen, text: str, advice: str) -> None:
    found = [finding for finding in of_server(what) if finding.level is not Level.OK]
    assert text in found[0].text
    assert advice in found[0].advice


@pytest.mark.parametrize(("ttl_s", "text"), [(60.0, "leases for 60 s"), (9_999_999.0, "leases for 116 days")])
def test_how_long_leases_last(ttl_s: float, text: str) -> None:
    assert of_server(dealt(ttl_s=ttl_s))[1].text == text
