"""What `kcast top` shows, with virtual time: neither sockets nor clocks."""

import json
from random import Random

import pytest

from kcast.client.cli.probe import RECENT_MAX, Probe
from kcast.client.cli.scrape import Metrics
from kcast.client.cli.top_figures import Figures, Table, Watched, short
from kcast.pubsub import wire

ADDRESS = ("192.0.2.7", 7400)


def metrics(
    messages: float = 0, copies: float = 0, drops: float = 0, leases: int = 0, at: float = 1
) -> Metrics:
    return Metrics(at, messages, copies, drops, leases)


def watched() -> Watched:
    return Watched(Probe("s", ADDRESS, Random(1)))


def ping(server: Watched, rtt_s: float | None, attributes: bytes = b"") -> str:
    """The state after a ping, which is answered after this time, or gets lost."""
    datagram = server.probe.ping(0.0)
    if rtt_s is None:
        server.probe.give_up()
    else:
        request = wire.parse_request(wire.split_lines(datagram)[0][0])
        assert isinstance(request, wire.Ping)
        server.probe.take(b"%%: %b 0%b\n" % (request.nonce, attributes), ADDRESS, rtt_s)
    return server.figures().state


def page(servers: list[Figures], has_metrics: bool = False) -> Table:
    return Table("2027-01-15T08:00:00.000Z", "live", "5/3/5", tuple(servers), has_metrics)


# --- One server ---------------------------------------------------------------------------------------


def test_two_lost_pings_make_a_server_down_and_an_answer_makes_it_up() -> None:
    server = watched()
    assert server.figures() == Figures("s")
    assert [ping(server, rtt_s) for rtt_s in (0.001, None, None, 0.003)] == ["up", "up", "down", "up"]
    assert server.figures().rtt_ms == pytest.approx(2.0)
    assert server.figures().loss == 0.5
    assert ping(server, 0.001, b" drain=1") == "stopping"
    for _ in range(RECENT_MAX):
        ping(server, 0.004)
    assert server.figures().rtt_ms == pytest.approx(4.0)
    assert server.figures().loss == 0.0


def test_a_port_where_nobody_listens_is_down_at_once() -> None:
    server = watched()
    assert ping(server, 0.001) == "up"
    server.probe.ping(0.0)
    server.probe.close()
    assert server.figures().state == "down"
    assert ping(server, 0.001) == "up", "it came back meanwhile"
    assert Watched(Probe("nobody", None, Random(1))).figures() == Figures("nobody", "down", loss=1.0)


def test_rates_are_differences_of_two_scrapes() -> None:
    server = watched()
    server.scraped(metrics(100, 300, 5, leases=7), 10.0)
    assert (server.figures().messages_per_s, server.figures().leases) == (None, 7)
    server.scraped(metrics(150, 500, 6, leases=8), 12.0)
    figures = server.figures()
    assert (figures.messages_per_s, figures.copies_per_s, figures.drops_per_s) == (25.0, 100.0, 0.5)
    assert figures.leases == 8
    server.scraped(None, 14.0)
    assert (server.figures().messages_per_s, server.figures().leases) == (None, None)
    server.scraped(metrics(190, 500, 6), 16.0)
    assert server.figures().messages_per_s == 10.0, "over the whole time since the last that succeeded"
    server.scraped(metrics(200, 500, 6), 16.0)
    assert server.figures().messages_per_s is None, "a clock that stands still divides nothing by 0"


def test_a_restart_shows_no_nonsense() -> None:
    for after in (metrics(5, 500), metrics(200, 400, at=2), metrics(200, 400, 0)):
        server = watched()
        server.scraped(metrics(100, 300, 1), 10.0)
        server.scraped(after, 12.0)
        assert server.figures().messages_per_s is None
        server.scraped(after._replace(messages=after.messages + 8), 14.0)
        assert server.figures().messages_per_s == 4.0


# --- The table ----------------------------------------------------------------------------------------

BUSY = Figures("192.0.2.7:7400", "up", 0.4321, 0.05, 1234.0, 98_765.0, 0.25, 4321, "0.5.0")


def test_the_table_of_figures() -> None:
    down = Figures("192.0.2.8:7400", "down", None, 1.0)
    assert page([BUSY, down], has_metrics=True).lines() == [
        "live  policy 5/3/5  1 of 2 up  2027-01-15T08:00:00.000Z",
        "1.2k messages/s  99k copies/s  0.2 drops/s  4.3k leases  (from 1 server)",
        "",
        "server          state  version    ms   lost  msgs/s  copies/s  drops/s  leases",
        "192.0.2.7:7400  up     0.5.0    0.43    5 %    1.2k       99k      0.2    4.3k",
        "192.0.2.8:7400  down   -           -  100 %       -         -        -       -",
    ]
    evil = Table("t", "li\x1bve", "5/3/5", (Figures("a\x1b[2Jb"),), False)
    assert not any("\x1b" in line for line in evil.lines())


def test_where_not_all_have_room_the_worst_come_first() -> None:
    servers = [Figures(f"s{n}", "up", 1.0, 0.0) for n in range(30)]
    servers[20] = Figures("lossy", "up", 1.0, 0.3)
    servers[25] = Figures("gone", "down", None, 1.0)
    servers[27] = Figures("ending", "stopping", 1.0, 0.0)
    lines = page(servers).lines(8)
    assert len(lines) == 8
    assert [line.split()[0] for line in lines[3:]] == ["gone", "ending", "lossy", "s0", "and"]
    assert lines[-1] == "and 26 more: 26 up"
    assert [line.split()[0] for line in page(servers).lines(33)[3:]] == [each.server for each in servers]


def test_json_has_everything() -> None:
    fields = page([BUSY, Figures("gone", "down", None, 1.0)], has_metrics=True).as_json()
    assert json.loads(json.dumps(fields)) == {
        **{"time": "2027-01-15T08:00:00.000Z", "cluster": "live", "policy": "5/3/5", "up": 1, "total": 2},
        **{"messages_per_s": 1234.0, "copies_per_s": 98_765.0, "drops_per_s": 0.25, "leases": 4321},
        "servers": [
            {
                **{"server": "192.0.2.7:7400", "state": "up", "rtt_ms": 0.4321, "loss": 0.05},
                "version": "0.5.0",
                **{"messages_per_s": 1234.0, "copies_per_s": 98_765.0, "drops_per_s": 0.25, "leases": 4321},
            },
            {
                **{"server": "gone", "state": "down", "rtt_ms": None, "loss": 1.0},
                **dict.fromkeys(("messages_per_s", "copies_per_s", "drops_per_s", "leases", "version")),
            },
        ],
    }


def test_numbers_are_short() -> None:
    for number in (None, 0, 0.001, 0.96, 9.949, 9.951, 99.6, 999.4, 999.6, 1e4, 123_456, 9.99e16):
        assert len(short(number)) <= 4


# --- The version (PROTOCOL §5.1) ---------------------------------------------------------------------


def asked(probe: Probe, attributes: dict[str, str], *datagrams: bytes) -> list[bytes]:
    """What the probe sends at last, of a server that answers so whatever asks it."""
    sent = list(datagrams)
    for datagram in datagrams:
        request = wire.parse_request(wire.split_lines(datagram)[0][0])
        reply: wire.Reply
        if isinstance(request, wire.Vouch):
            reply = wire.Receipt(request.nonce, 60, b"d" * 32, 0, attributes if request.asks_version else {})
        else:
            assert isinstance(request, wire.Ask)
            reply = wire.Challenge(request.nonce, b"c" * 32, 0, attributes)
        sent += asked(probe, attributes, *probe.take(wire.format_line(reply), ADDRESS, 0.0))
    return sent


def test_a_version_is_asked_for_with_a_cookie_and_believed_of_a_receipt_alone() -> None:
    for told, believed in {
        "0.5.0.dev0": "0.5.0.dev0",
        "": "",  # as a server before 0.5
        "9" * 33: "",
        "<b>": "",
    }.items():
        probe = Probe("s", ADDRESS, Random(1))
        sent = asked(probe, {"version": told} if told else {}, probe.ask())
        assert probe.version == believed
        assert [datagram[:2] for datagram in sent] == [b"%?", b"%!"]
        assert all(len(datagram) >= 192 for datagram in sent)
    again = asked(probe, {"version": "2"}, probe.ask())
    assert (again[0][:2], len(again), probe.version) == (b"%!", 1, "2"), "a later look shows an upgrade"


def test_a_server_that_only_ever_gives_cookies_is_asked_once_a_look() -> None:
    probe = Probe("s", ADDRESS, Random(1))
    for _ in range(3):
        sent = [probe.ask()]
        for datagram in sent:
            nonce = datagram.split(b" ")[1].split()[0]
            challenge = wire.Challenge(nonce, b"c" * 32, 0, {"version": "1"})
            sent += probe.take(wire.format_line(challenge), ADDRESS, 0.0)
        assert len(sent) <= 2 and probe.version is None
