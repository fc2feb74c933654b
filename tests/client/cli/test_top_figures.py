"""What `kcast top` shows, with virtual time: neither sockets nor clocks."""

import json

import pytest

from kcast.client.cli.scrape import Metrics
from kcast.client.cli.top_figures import PINGS_KEPT, Figures, Table, Watched, short


def metrics(
    messages: float = 0, copies: float = 0, drops: float = 0, leases: int = 0, at: float = 1
) -> Metrics:
    return Metrics(at, messages, copies, drops, leases)


def ping(
    server: Watched, *rtts_s: float, lost: int = 0, refused: bool = False, draining: bool = False
) -> str:
    server.pinged(rtts_s, lost, refused=refused, draining=draining)
    return server.figures().state


def page(servers: list[Figures], has_metrics: bool = False) -> Table:
    return Table("2027-01-15T08:00:00.000Z", "live", "5/3/5", tuple(servers), has_metrics)


# --- One server ---------------------------------------------------------------------------------------


def test_before_anything_came_nothing_is_known() -> None:
    assert Watched("s").figures() == Figures("s")


def test_two_lost_pings_make_a_server_down_and_an_answer_makes_it_up() -> None:
    server = Watched("s")
    assert ping(server, 0.001) == "up"
    assert ping(server, lost=1) == "up"
    assert ping(server, lost=1) == "down"
    assert ping(server) == "down", "nothing new"
    assert ping(server, 0.003) == "up"
    figures = server.figures()
    assert figures.rtt_ms == pytest.approx(2.0)
    assert figures.loss == 0.5


def test_a_port_where_nobody_listens_is_down_at_once() -> None:
    server = Watched("s")
    assert ping(server, 0.001) == "up"
    assert ping(server, lost=1, refused=True) == "down"
    assert ping(server, 0.001, refused=True) == "up", "it came back meanwhile"


def test_a_draining_server_is_stopping() -> None:
    assert ping(Watched("s"), 0.001, draining=True) == "stopping"


def test_old_pings_are_forgotten() -> None:
    server = Watched("s")
    ping(server, lost=10**9)
    for _ in range(PINGS_KEPT):
        ping(server, 0.004)
    assert server.figures().loss == 0.0
    assert server.figures().rtt_ms == pytest.approx(4.0)


def test_rates_are_differences_of_two_scrapes() -> None:
    server = Watched("s")
    server.scraped(metrics(100, 300, 5, leases=7), 10.0)
    assert (server.figures().messages_per_s, server.figures().leases) == (None, 7)
    server.scraped(metrics(150, 500, 6, leases=8), 12.0)
    figures = server.figures()
    assert (figures.messages_per_s, figures.copies_per_s, figures.drops_per_s) == (25.0, 100.0, 0.5)
    assert figures.leases == 8


def test_where_a_scrape_fails_nothing_is_shown_and_the_next_rate_is_of_the_whole_time() -> None:
    server = Watched("s")
    server.scraped(metrics(100), 10.0)
    server.scraped(None, 12.0)
    assert (server.figures().messages_per_s, server.figures().leases) == (None, None)
    server.scraped(metrics(140), 14.0)
    assert server.figures().messages_per_s == 10.0


@pytest.mark.parametrize("after", [metrics(5, 500), metrics(200, 400, at=2), metrics(200, 400, 0)])
def test_a_restart_shows_no_nonsense(after: Metrics) -> None:
    server = Watched("s")
    server.scraped(metrics(100, 300, 1), 10.0)
    server.scraped(after, 12.0)
    assert server.figures().messages_per_s is None
    server.scraped(after._replace(messages=after.messages + 8), 14.0)
    assert server.figures().messages_per_s == 4.0


def test_a_clock_that_stands_still_divides_nothing_by_0() -> None:
    server = Watched("s")
    server.scraped(metrics(1), 10.0)
    server.scraped(metrics(2), 10.0)
    assert server.figures().messages_per_s is None


# --- The table ----------------------------------------------------------------------------------------

BUSY = Figures("192.0.2.7:7400", "up", 0.4321, 0.05, 1234.0, 98_765.0, 0.25, 4321)


def test_the_table_of_figures() -> None:
    down = Figures("192.0.2.8:7400", "down", None, 1.0)
    assert page([BUSY, down], has_metrics=True).lines(80) == [
        "live  policy 5/3/5  1 of 2 up  2027-01-15T08:00:00.000Z",
        "1.2k messages/s  99k copies/s  0.2 drops/s  4.3k leases  (from 1 server)",
        "",
        "server          state  rtt ms   lost  msgs/s  copies/s  drops/s  leases",
        "192.0.2.7:7400  up       0.43    5 %    1.2k       99k      0.2    4.3k",
        "192.0.2.8:7400  down        -  100 %       -         -        -       -",
    ]
    assert page([BUSY]).lines(80)[1:] == [
        "",
        "server          state  rtt ms  lost",
        "192.0.2.7:7400  up       0.43   5 %",
    ]


@pytest.mark.parametrize("columns", [20, 40, 79, 80, 200])
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 8, 24, 200])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_it_fits_every_screen(columns: int, rows: int, count: int) -> None:
    names = [f"[2001:db8:1234:5678:9abc:def0:1234:{n:x}]:7400" for n in range(count)]
    servers = [Figures(name, "stopping", 12345.6, 1.0, 1e5, 1e5, 1e5, 99_999) for name in names]
    lines = page(servers, has_metrics=True).lines(columns, rows, "q quits")
    assert len(lines) <= rows
    assert max(map(len, lines)) <= columns
    assert lines[-1] == "q quits"


def test_long_names_keep_their_end() -> None:
    lines = page(
        [Figures("[2001:db8:1234:5678:9abc:def0:1234:5678]:7401", "up", 1.0, 0.0, 1, 1, 1, 1)], True
    ).lines(80)
    assert "…" in lines[-1]
    assert ":7401  up" in lines[-1]
    assert len(lines[-1]) <= 80


def test_where_not_all_have_room_the_worst_come_first() -> None:
    servers = [Figures(f"s{n}", "up", 1.0, 0.0) for n in range(30)]
    servers[20] = Figures("lossy", "up", 1.0, 0.3)
    servers[25] = Figures("gone", "down", None, 1.0)
    servers[27] = Figures("ending", "stopping", 1.0, 0.0)
    lines = page(servers).lines(80, 9, "q quits")
    assert [line.split()[0] for line in lines[3:6]] == ["gone", "ending", "lossy"]
    assert lines[-2:] == ["and 26 more: 26 up", "q quits"]
    assert [line.split()[0] for line in page(servers).lines(80, 40)[3:]] == [each.server for each in servers]


def test_json_has_everything() -> None:
    fields = page([BUSY, Figures("gone", "down", None, 1.0)], has_metrics=True).as_json()
    assert json.loads(json.dumps(fields)) == {
        **{"time": "2027-01-15T08:00:00.000Z", "cluster": "live", "policy": "5/3/5", "up": 1, "total": 2},
        **{"messages_per_s": 1234.0, "copies_per_s": 98_765.0, "drops_per_s": 0.25, "leases": 4321},
        "servers": [
            {
                **{"server": "192.0.2.7:7400", "state": "up", "rtt_ms": 0.4321, "loss": 0.05},
                **{"messages_per_s": 1234.0, "copies_per_s": 98_765.0, "drops_per_s": 0.25, "leases": 4321},
            },
            {
                **{"server": "gone", "state": "down", "rtt_ms": None, "loss": 1.0},
                **dict.fromkeys(("messages_per_s", "copies_per_s", "drops_per_s", "leases")),
            },
        ],
    }


def test_names_from_files_move_no_cursor() -> None:
    table = Table("t", "li\x1bve", "5/3/5", (Figures("a\x1b[2Jb"),), False)
    assert not any("\x1b" in line for line in table.lines(80, 24))


@pytest.mark.parametrize(
    "number", [None, 0, 0.001, 0.96, 9.949, 9.951, 99.6, 999.4, 999.6, 1e4, 123_456, 9.99e16]
)
def test_numbers_are_short(number: float | None) -> None:
    assert len(short(number)) <= 4
