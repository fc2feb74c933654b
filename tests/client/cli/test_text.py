"""client/cli/text.py: nothing that peers or users chose acts on a terminal; tables and paragraphs fit it."""

import ast
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.client.cli import text as text_module
from kcast.client.cli.text import escaped, paragraph, table, tell, text_fields, to_json
from kcast.client.clusters.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from tests.support.checkout import ROOT

EVIL = "a\x1b[2J\x1b]0;t\x07\x9b31m\u202eb\x7f"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def test_escaped() -> None:
    expected_of: dict[str | bytes, str] = {
        "plain \u00e6\u4e2d\U0001f600": "plain \u00e6\u4e2d\U0001f600",
        "\n\r\t\x00\x1b\x7f\x85": "\\n\\r\\t\\x00\\x1b\\x7f\\x85",
        "\u2028\u202e\u200e\u200f\u061c": "\\u2028\\u202e\\u200e\\u200f\\u061c",
        b"\xff\xc3\xa6": "\\xff\u00e6",
    }
    for text, expected in expected_of.items():
        assert escaped(text) == expected


def test_tell_keeps_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"one {EVIL}\ntwo\r")
    tell(EVIL, err=True)
    told = capsys.readouterr()
    assert told.out.splitlines() == [f"one {escaped(EVIL)}", "two\\r"]
    assert not UNSAFE.search(told.out + told.err)


def test_json_is_ascii_without_control_characters() -> None:
    line = to_json(text_fields("topic", EVIL.encode()))
    assert line.isascii()
    assert not UNSAFE.search(line)


FILE = "lab.cluster"
L = ("--cluster", FILE)
LINES: list[tuple[str, ...]] = [
    (EVIL,),
    *((verb, f"--{EVIL}") for verb in ("sub", "pub", "serve", "help", "servers")),
    *((verb, "--cluster", EVIL, "t") for verb in ("sub", "where", "plan", "top")),
    ("sub", "--cluster", f"@{EVIL}", "t"),
    *((verb, "--cluster", "bad.cluster") for verb in ("ping", "doctor")),
    ("where", *L, EVIL),
    ("where", *L, EVIL, "--json"),
    ("sub", *L, EVIL + "/#", "b", "--timeout", "0.1"),
    ("sub", *L, "t", "--format", "%" + EVIL),
    ("sub", *L, "t", "--timeout", EVIL),
    ("pub", *L, EVIL, "m", EVIL),
    ("pub", *L, "t", "--file", EVIL + "x"),
    ("top", *L, "--metrics", EVIL),
    ("health", EVIL),
    ("context", "add", EVIL, FILE),
    ("context", "add", "x", EVIL),
    ("servers", "init", EVIL, "127.0.0.1:1"),
]


def test_what_users_type_and_files_say_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    Path(FILE).write_text(format_cluster(lab([("127.0.0.1", 1)], Policy(1, 1, 1))))
    Path("bad.cluster").write_text(f"kcast 1\nserver {EVIL}\n")
    for line in LINES:
        # With a color click leaves escape sequences as they are, as it does on terminals.
        run = CliRunner().invoke(main, line, color=True)
        assert run.exception is None or isinstance(run.exception, SystemExit), line
        assert run.output, line
        assert not UNSAFE.search(run.output), (line, run.output)


def test_commands_print_text_by_way_of_tell() -> None:
    """`click.echo` prints JSON, and what click and the completion of shells make; all else `tell` prints."""
    for path in (ROOT / "client" / "cli").rglob("*.py"):
        if path.name in ("text.py", "completion.py", "help.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "click.echo":
                assert ast.unparse(node.args[0]).startswith("to_json("), (
                    f"{path.name}:{node.lineno}: use tell()"
                )


# --- Pages -------------------------------------------------------------------------------------------

HEADS = ("server", "state", "median ms", "lost")
ROWS = [("127.0.0.1:7401", "up", "0.39", "0 %"), ("127.0.0.1:7402", "down: nobody listens", "-", "100 %")]


def test_a_table_is_as_wide_as_its_cells_and_a_row_is_a_line() -> None:
    assert table(HEADS, ROWS, left=2) == [
        "server          state                 median ms   lost",
        "127.0.0.1:7401  up                         0.39    0 %",
        "127.0.0.1:7402  down: nobody listens          -  100 %",
    ]
    wide = table(("state", "median ms"), [("x" * 200, "1"), ("", "-")])
    assert [line.split() for line in wide] == [["median"], ["state", "ms"], ["x" * 200, "1"], ["-"]]


def test_on_a_narrow_terminal_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (40, 60, 100):
        monkeypatch.setattr(text_module, "terminal_columns", lambda columns=columns: columns)
        lines = table(HEADS, ROWS, left=2)
        assert max(map(len, lines)) <= columns
        assert sorted("".join("".join(lines).split())) == sorted(
            "".join("".join((*HEADS, *sum(ROWS, ()))).split())
        )


def test_paragraphs_hang_below_their_first_word() -> None:
    assert paragraph("publishers send to 2 of 3, drawn at random; 100 % of them", "used  ", columns=48) == [
        "used  publishers send to 2 of 3, drawn at",
        "      random; 100 % of them",
    ]
    assert max(map(len, paragraph("word " * 100))) <= 80
