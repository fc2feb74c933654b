"""The blocks of Markdown pages that tests run, with what is said about each: CONTRIBUTING, "Documentation".

What a reader does not need to know stands in a comment on the line before the fence:

    <!-- terminal 2, goes on -->

- `terminal 2`: typed into the second terminal; before an output: this is then seen there.
- `goes on`: does not end by itself; Ctrl-C ends it before the next block of its terminal.
- `terminal 2, Ctrl-C`: before an output: this is seen there after Ctrl-C.
- `each line`: each line is run by itself, one after the other.
- `a lab runs`: three servers run while this page is tested, and KCAST_CLUSTER names them.
- `exit code 3`: one command of it ends so.
- `run by: make test-load`: another target runs it.
- `stands alone`: needs no other block of the page, and none needs it.
- `saved as try.py`: before a program in another language: the file is written before what follows is typed.
- `not run: REASON`: no test runs it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

SLOW_TARGETS = ("test-containers", "test-spark", "test-load")
NOT_SHELL = ("bash", "shell", "console", "shell-session", "zsh")

_FENCE = re.compile(r" *```(\S*)$")
_COMMENT = re.compile(r" *<!-- (.+) -->$")
_NOTE = re.compile(
    r"terminal (?P<terminal>[1-9])|(?P<goes_on>goes on)|(?P<each_line>each line)|(?P<lab>a lab runs)"
    r"|(?P<interrupted>Ctrl-C)|exit code (?P<exit_code>\d+)|run by: make (?P<target>[^\s,]+)"
    r"|(?P<alone>stands alone)"
)
_SAVED = re.compile(r"saved as ([\w.-]+)")


class PageError(Exception):
    """A page that says something about a block that nobody understands."""


@dataclass(frozen=True)
class Notes:
    """What a comment says of a block.

    `terminal` is where it is typed. One that `goes_on` does not end by itself. Of `each_line`, every line is
    typed and watched by itself. With `has_lab`, README's lab of three servers runs. `target` runs it
    instead of `make test`. One that `stands_alone` needs no other block of its page, and none needs it. With
    `reason` it is not run. An output is seen after Ctrl-C where that is what `is_interrupted` says.
    """

    terminal: int = 1
    goes_on: bool = False
    each_line: bool = False
    has_lab: bool = False
    exit_code: int = 0
    target: str | None = None
    stands_alone: bool = False
    reason: str | None = None
    is_interrupted: bool = False


@dataclass(frozen=True)
class Output:
    """What is to be seen in a terminal, in its shape; after Ctrl-C there, if it `is_interrupted`."""

    terminal: int
    line: int
    text: str
    is_interrupted: bool = False


@dataclass(frozen=True)
class Block:
    """What is typed, from line `line` of its page on, and what is then to be seen."""

    line: int
    text: str
    notes: Notes
    outputs: list[Output] = field(default_factory=list)


@dataclass(frozen=True)
class Example:
    """A block of Python from line `line` of its page on, the comment before it, and what it prints."""

    line: int
    text: str
    comment: str
    output: str


@dataclass(frozen=True)
class _Fence:
    language: str
    line: int
    text: str
    comment: str | None


def shell_blocks(text: str) -> list[Block]:
    """Returns the blocks marked `sh` in their order, each with the unmarked ones that follow it.

    A program that is `saved as` a file is a block that writes the file.
    """
    blocks: list[Block] = []
    follows_shell = False
    for fence in _fences(text):
        if fence.language == "sh":
            blocks.append(Block(fence.line, fence.text, _notes(fence)))
            follows_shell = True
        elif fence.language in NOT_SHELL:
            raise PageError(f"line {fence.line}: mark blocks of the shell `sh`, not `{fence.language}`")
        elif fence.language:
            follows_shell = False
            if saved := _SAVED.fullmatch(fence.comment or ""):
                blocks.append(Block(fence.line, _writing(saved[1], fence.text), Notes()))
        elif follows_shell:
            typed = blocks[-1]
            notes = _notes(fence) if fence.comment else typed.notes
            typed.outputs.append(Output(notes.terminal, fence.line, fence.text, notes.is_interrupted))
    return blocks


def python_examples(text: str) -> list[Example]:
    """Returns the blocks marked `python` in their order, each with the unmarked one that follows it."""
    examples: list[Example] = []
    follows_python = False
    for fence in _fences(text):
        if fence.language == "python":
            examples.append(Example(fence.line, fence.text, fence.comment or "", ""))
        elif follows_python and not fence.language:
            examples[-1] = replace(examples[-1], output=fence.text)
        follows_python = fence.language == "python"
    return examples


def lines_apart(block: Block) -> list[Block]:
    """The block itself; or one for each of its lines, of which the last shows what the block does."""
    if not block.notes.each_line:
        return [block]
    lines = block.text.splitlines(keepends=True)
    apart = [Block(block.line + number, line, block.notes) for number, line in enumerate(lines, 1)]
    return [*apart[:-1], replace(apart[-1], outputs=block.outputs)]


def _writing(name: str, text: str) -> str:
    """What a shell is told to write a file."""
    return f"cat >{name} <<'END OF {name}'\n{text}END OF {name}\n"


def _fences(text: str) -> Iterator[_Fence]:
    opened: tuple[str, int, str | None] | None = None
    inside: list[str] = []
    comment = None
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if opened is not None and match:
            yield _Fence(opened[0], opened[1], "".join(inside), opened[2])
            opened, comment = None, None
        elif opened is not None:
            inside.append(line + "\n")
        elif match:
            opened, inside = (match[1], number, comment), []
        else:
            said = _COMMENT.match(line)
            comment = said[1] if said else None
    if opened is not None:
        raise PageError(f"line {opened[1]}: this block has no end")


def _notes(fence: _Fence) -> Notes:
    comment = fence.comment or ""
    if comment.startswith("not run"):
        reason = comment.removeprefix("not run").removeprefix(":").strip()
        if not reason:
            raise PageError(f"line {fence.line}: say why it is not run")
        return Notes(reason=reason)
    notes = Notes()
    for part in comment.split(", ") if comment else ():
        match = _NOTE.fullmatch(part)
        if match is None:
            raise PageError(f"line {fence.line}: {part!r} says nothing about a block")
        if match["target"] and match["target"] not in SLOW_TARGETS:
            raise PageError(f"line {fence.line}: make {match['target']} runs no blocks")
        notes = replace(
            notes,
            terminal=int(match["terminal"] or notes.terminal),
            goes_on=notes.goes_on or bool(match["goes_on"]),
            each_line=notes.each_line or bool(match["each_line"]),
            has_lab=notes.has_lab or bool(match["lab"]),
            is_interrupted=notes.is_interrupted or bool(match["interrupted"]),
            exit_code=int(match["exit_code"] or notes.exit_code),
            target=match["target"] or notes.target,
            stands_alone=notes.stands_alone or bool(match["alone"]),
        )
    return notes
