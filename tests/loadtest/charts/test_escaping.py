"""loadtest/charts/escaping.py: text is escaped, markup is not, and nothing else makes markup."""

import ast
from collections.abc import Iterator

import pytest

from kcast.loadtest.charts.escaping import Html, joined, markup, trusted
from tests.support.checkout import ROOT

FOLDERS = ("loadtest", "spark")
# Files of the package that become markup as they are.
TRUSTED = {"loadtest/charts/curves.py": 1, "loadtest/charts/svg.py": 1, "spark/report/page.py": 1}


def test_text_is_escaped_once() -> None:
    once = Html('<a href="x">&\'')
    assert once == "&lt;a href=&quot;x&quot;&gt;&amp;&#x27;"
    assert Html(once) == once == Html(Html(once))
    assert Html() == ""


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\r", "\x7f", "\x9b31m", "\u202e"])
def test_control_characters_of_text_are_escaped_too(hostile: str) -> None:
    """A page may be looked at on a terminal, and text that runs backwards misleads anywhere."""
    assert hostile not in Html(f"a{hostile}b") and "a\\" in Html(f"a{hostile}b")
    assert Html("a\nb") == "a\nb"


def test_templates_and_what_is_joined_escape_text_alone() -> None:
    bold = markup("<b>{}</b>", "1 < 2")
    assert bold == "<b>1 &lt; 2</b>"
    assert markup('<p title="{title}">{bold}</p>', title='"', bold=bold) == f'<p title="&quot;">{bold}</p>'
    assert joined([bold, "<"], " & ") == "<b>1 &lt; 2</b> &amp; &lt;"
    assert markup("{}", "{}") == "{}"
    assert trusted("a>b{}") == "a>b{}"
    for made in (bold, joined([]), trusted("x")):
        assert type(made) is Html


def test_a_string_made_of_markup_is_text_again() -> None:
    bold = markup("<b></b>")
    assert Html(f"{bold}") == "&lt;b&gt;&lt;/b&gt;"
    assert Html(bold + bold) == "&lt;b&gt;&lt;/b&gt;" * 2


def made(source: str) -> Iterator[tuple[str, ast.expr | None]]:
    """Calls that make markup of a string as it is, with that string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id="markup" | "trusted" as name):
                    yield name, node.args[0]
                case ast.Attribute(attr="__new__"):
                    yield "__new__", None


def constants(source: str) -> set[str]:
    """Names of the module's own that are literal strings."""
    return {
        target.id
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def problems(source: str, path: str) -> list[str]:
    found = []
    literal = constants(source)
    for name, given in made(source):
        is_literal = isinstance(given, ast.Constant) or (isinstance(given, ast.Name) and given.id in literal)
        if name == "markup" and not is_literal:
            found.append(f"{path}: a template that is no literal")
    trusts = sum(name == "trusted" for name, _ in made(source))
    if trusts != TRUSTED.get(path, 0):
        found.append(f"{path}: trusts {trusts} strings")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_literals_and_style_sheets_become_markup(folder: str) -> None:
    for file in sorted((ROOT / folder).rglob("*.py")):
        path = str(file.relative_to(ROOT))
        source = file.read_text()
        if path != "loadtest/charts/escaping.py" and "escaping import" in source:
            assert problems(source, path) == []
            assert not any(name == "__new__" for name, _ in made(source)), path


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('markup("<b>{}</b>", name)', 0),
        ('_T = "<b>{}</b>"\nmarkup(_T, name)', 0),
        ('markup(f"<b>{name}</b>")', 1),
        ("markup(template, name)", 1),
        ('markup("<b>" + name)', 1),
        ("trusted(name)", 1),
    ],
)
def test_the_check_finds_what_it_looks_for(source: str, count: int) -> None:
    assert len(problems(source, "x.py")) == count
