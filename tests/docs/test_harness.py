"""A page that says what does not happen is found out."""

from pathlib import Path

import pytest

from tests.support.forms import few_of
from tests.support.pages import PageError, shell_blocks
from tests.support.shape import has_shape, shape
from tests.support.terminals import Failed, can_isolate, open_terminals

EITHER_WAY = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(not can_isolate(), reason="not allowed here")),
]


def type_page(text: str, folder: Path, *, isolated: bool = False, wait_s: float = 20.0) -> None:
    """Types all blocks of a page into two terminals."""
    with open_terminals(folder, 2, isolated=isolated, activated=True, variables={}, wait_s=wait_s) as shells:
        for block in shell_blocks(text):
            shells.type(block)


TALK = """
```sh
place=oslo
echo "$place: 4 degrees at 12:30"
(sleep 0.2; echo "late rain") &
```

It says

```
oslo: 11 degrees at 07:15
late rain
```

<!-- terminal 2, goes on -->
```sh
test -f README.md && echo listening
touch heard; tail -f heard
```

```
listening
...
```

```sh
echo "snow in 3 h" >>heard
```

<!-- terminal 2 -->
```
snow in 12 h
```

<!-- exit code 3 -->
```sh
(exit 3)
```

<!-- terminal 2 -->
```sh
echo "interrupted"
```

```
interrupted
```
"""


@pytest.mark.world
@pytest.mark.parametrize("isolated", EITHER_WAY)
def test_what_is_typed_in_two_terminals_is_compared_in_shape(isolated: bool, tmp_path: Path) -> None:
    type_page(TALK, tmp_path, isolated=isolated)


WRONG = {
    "another word": ("```sh\necho 4 degrees\n```\n```\n4 metres\n```\n", "line 4: the page shows"),
    "a line more": ("```sh\necho rain\n```\n```\nrain\nsnow\n```\n", "line 4: the page shows"),
    "a line less": ("```sh\nprintf 'rain\\nsnow\\n'\n```\n```\nrain\n```\n", "line 4: the page shows"),
    "an error": ("```sh\nfalse\necho rain\n```\n", "line 1: exit code 1 of: false"),
    "another error": ("<!-- exit code 3 -->\n```sh\nfalse\n```\n", "line 2: exit code 1 of: false"),
    "no error": ("<!-- exit code 3 -->\n```sh\ntrue\n```\n", "line 2: no exit code but 0"),
    "an unknown command": ("```sh\nkcsat pub\n```\n", "exit code 127"),
    "an end": ("<!-- goes on -->\n```sh\necho rain\n```\n", "line 2: should go on, but ended: rain"),
    "no end": ("```sh\nsleep 60\n```\n", "line 1: does not end"),
}


@pytest.mark.world
@pytest.mark.parametrize("name", few_of(WRONG, 4))
def test_a_wrong_page_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.terminals.SETTLE_S", 0.3)
    text, complaint = WRONG[name]
    with pytest.raises(Failed, match=complaint):
        type_page(text, tmp_path, wait_s=2.0 if name == "no end" else 20.0)


def test_the_shape_is_words_and_lines() -> None:
    assert shape("127.0.0.1:7401  up       0.38       0.39    0.40   0 %") == "# up # # # # %"
    assert shape("[2001:db8::7]:7400  up  12,664 < 0.1") == "# up # #"
    assert has_shape("a 93.1 %* yes\nb 2\n", "a 92 % yes\nb 3\n")
    assert not has_shape("a * yes\n", "a yes\n")
    assert has_shape("a 1\nb 2\n", "a 7\nb 3,000\n")
    assert has_shape("a 1\nb 2\nc\n\n", "a 1\n...\n")
    assert has_shape("a 1\n", "...\na 1")
    assert has_shape("dropped 3 of 4 (late)\n", "dropped ...\n")
    assert not has_shape("a 1\nb 2\n", "a 1\n")
    assert not has_shape("a 1 %\n", "a 1\n")
    assert not has_shape("up\n", "down\n")


MISTAKES = {
    "```sh\necho": "has no end",
    "```bash\necho\n```": "mark blocks of the shell `sh`",
    "<!-- not run: -->\n```sh\necho\n```": "say why",
    "<!-- terminal two -->\n```sh\necho\n```": "'terminal two' says nothing",
    "<!-- run by: make tea -->\n```sh\necho\n```": "make tea runs no blocks",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_comment_that_says_nothing_is_an_error(text: str) -> None:
    with pytest.raises(PageError, match=MISTAKES[text]):
        shell_blocks(text)
