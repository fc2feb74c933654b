"""client/cli/text.py: nothing that peers or users chose acts on a terminal, whichever command prints it."""

import ast
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kcast.client.cli import main
from kcast.client.cli.text import escaped, tell, text_fields, to_json
from kcast.client.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from tests.support.checkout import ROOT

EVIL = "a\x1b[2J\x1b]0;t\x07\x9b31m\u202eb\x7f"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \u00e6\u4e2d\U0001f600", "plain \u00e6\u4e2d\U0001f600"),
        ("\n\r\t\x00\x1b\x7f\x85", "\\n\\r\\t\\x00\\x1b\\x7f\\x85"),
        ("\u2028\u202e", "\\u2028\\u202e"),
        ("\u200e\u200f\u061c", "\\u200e\\u200f\\u061c"),
        (b"\xff\xc3\xa6", "\\xff\u00e6"),
    ],
)
def test_escaped(text: str | bytes, expected: str) -> None:
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
VERBS = (
    *("sub", "pub", "where", "plan", "ping", "top", "health", "context", "serve", "load", "analyse", "demo"),
    *("help", "servers", "doctor"),
)
LINES: list[tuple[str, ...]] = [
    (EVIL,),
    *((verb, EVIL) for verb in VERBS if verb not in ("sub", "pub", "analyse", "load", "demo")),
    *((verb, f"--{EVIL}") for verb in VERBS),
    *((verb, "--cluster", EVIL, "t") for verb in ("sub", "pub", "where", "plan", "ping", "top")),
    *((verb, "--cluster", f"@{EVIL}", "t") for verb in ("sub", "pub", "where", "plan", "ping", "top")),
    *((verb, "--cluster", "bad.cluster", "t") for verb in ("sub", "pub", "where")),
    ("ping", "--cluster", "bad.cluster"),
    ("doctor", "--cluster", "bad.cluster"),
    ("where", *L, EVIL),
    ("where", *L, EVIL, "--json"),
    ("sub", *L, EVIL, "--timeout", "0.1"),
    ("sub", *L, EVIL + "/#", "--timeout", "0.1"),
    ("sub", *L, EVIL, "b", "--timeout", "0.1"),
    *(("sub", *L, "t", "--format", sign + EVIL) for sign in "%@\\"),
    ("sub", *L, "t", "--timeout", EVIL),
    ("pub", *L, EVIL, "m", EVIL),
    ("pub", *L, "t", "--file", EVIL + "x"),
    ("pub", *L, "t", "--rate", EVIL),
    ("top", *L, "--metrics", EVIL),
    ("context", "add", EVIL, FILE),
    ("context", "add", "x", EVIL),
    ("context", "use", EVIL),
    ("servers", "show", EVIL),
    ("servers", "init", EVIL, "127.0.0.1:1"),
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line).replace(EVIL, "EVIL"))
def test_what_users_type_and_files_say_is_escaped(
    line: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    Path(FILE).write_text(format_cluster(lab([("127.0.0.1", 1)], Policy(1, 1, 1))))
    Path("bad.cluster").write_text(f"kcast 1\nserver {EVIL}\n")
    # With a color click leaves escape sequences as they are, as it does on terminals.
    run = CliRunner().invoke(main, line, color=True)
    assert run.exception is None or isinstance(run.exception, SystemExit)
    assert run.output
    assert not UNSAFE.search(run.output), repr(run.output)


@pytest.mark.parametrize("path", sorted((ROOT / "client" / "cli").rglob("*.py")), ids=lambda path: path.stem)
def test_commands_print_text_by_way_of_tell(path: Path) -> None:
    """`click.echo` prints JSON, and what click and the completion of shells make; all else `tell` prints."""
    if path.name in ("text.py", "completion.py", "help.py"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "click.echo":
            assert ast.unparse(node.args[0]).startswith("to_json("), f"{path.name}:{node.lineno}: use tell()"
