"""client/cli/layout.py: tables and paragraphs that fit their page."""

import pytest

from kcast.client.cli import layout
from kcast.client.cli.layout import folded, paragraph, table

HEADS = ("server", "state", "median ms", "lost")
ROWS = [("127.0.0.1:7401", "up", "0.39", "0 %"), ("127.0.0.1:7402", "down: nobody listens", "-", "100 %")]


def test_a_table_that_fits_is_as_wide_as_its_cells() -> None:
    assert table(HEADS, ROWS, left=2) == [
        "server          state                 median ms   lost",
        "127.0.0.1:7401  up                         0.39    0 %",
        "127.0.0.1:7402  down: nobody listens          -  100 %",
    ]


def test_on_a_narrow_terminal_heads_and_cells_break_between_words() -> None:
    assert table(HEADS, ROWS, left=2, columns=40) == [
        "                           median",
        "server          state          ms   lost",
        "127.0.0.1:7401  up           0.39    0 %",
        "127.0.0.1:7402  down:           -  100 %",
        "                nobody",
        "                listens",
    ]


def test_where_words_alone_are_too_wide_each_cell_has_its_line() -> None:
    assert table(HEADS, ROWS, left=2, columns=30) == [
        "server     127.0.0.1:7401",
        "state      up",
        "median ms  0.39",
        "lost       0 %",
        "",
        "server     127.0.0.1:7402",
        "state      down: nobody listens",
        "median ms  -",
        "lost       100 %",
    ]


def test_without_a_terminal_only_heads_break_and_a_row_stays_a_line() -> None:
    row = ("[2001:db8:85a3::8a2e:370:7334]:7400", "down: cannot send (ENETUNREACH)", "-", "100 %")
    assert len(table(HEADS, [row], left=2)) == 2, "unless it is asked for, heads do not break either"
    lines = table(HEADS, [row], left=2, breaks_heads=True)
    assert lines[:2] == [
        "                                                                      median",
        "server                               state                                ms   lost",
    ]
    assert lines[2].split() == " ".join(row).split()
    assert len(lines) == 3


@pytest.mark.parametrize("interval", ["99-99.9", "98.78-99.994", "98.92-99.9998"])
def test_heads_break_alike_whatever_the_numbers_below_them(interval: str) -> None:
    theory = ("for this many servers", "given what happened")
    heads = ("scenario", "pairs", "delivered", "interval", *theory, "copies", "valid")
    row = ("5-3-5", "19,595", "99.91 %", interval, "99.84 %", "99.98 %", "2.75", "yes")
    lines = table(heads, [row], breaks_heads=True)
    assert [line.split() for line in lines[:-1]] == [
        ["for"],
        ["this", "given"],
        ["many", "what"],
        ["scenario", "pairs", "delivered", "interval", "servers", "happened", "copies", "valid"],
    ]


@pytest.mark.parametrize("columns", [*range(10, 60), None])
def test_no_word_is_ever_broken_or_lost(columns: int | None) -> None:
    told = " ".join(table(HEADS, ROWS, left=2, columns=columns)).split()
    words = " ".join(" ".join(row) for row in ROWS).split()
    assert all(told.count(word) >= words.count(word) for word in words)


def test_paragraphs_hang_below_their_first_word() -> None:
    line = "used      publishers send to 2 of 3, drawn at random; 100 % of them"
    assert folded(line, 10)[0] == line
    assert paragraph(line[10:], line[:10], columns=48) == [
        "used      publishers send to 2 of 3, drawn at",
        "          random; 100 % of them",
    ]
    assert folded("", 10) == [""]
    assert max(map(len, folded("x " * 100, 0))) <= 80


def test_the_terminal_says_how_wide_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "terminal_columns", lambda: 42)
    assert table(HEADS, ROWS, left=2) == table(HEADS, ROWS, left=2, columns=42)
    assert max(map(len, paragraph("word " * 40))) <= 42
