"""What pages tell readers to type is typed, and does what they say."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.support.checkout import ROOT
from tests.support.compose_project import ComposeProject
from tests.support.pages import SLOW_TARGETS, Block, lines_apart, shell_blocks
from tests.support.quick_java import QUICK
from tests.support.terminals import LAB_VARIABLES, WAIT_S, Failed, can_isolate, open_terminals

NOT_RUN_MAX = 15
SLOW_WAIT_S = 600.0
# A load test on a machine that is busy with other things misses messages, and ends with an error. A page that
# is wrong is wrong each time.
TRIES: dict[str | None, int] = {"test-load": 3, "test-spark": 3}
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "pubsub/PROTOCOL.md")
PAGES = {
    page: shell_blocks((ROOT / page).read_text())
    for page in (*DOCUMENTS, *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")))
}
READ_FIRST = ("README.md", "docs/tutorial.md")
ACTIVATE = ". .venv/bin/activate"
VARIABLES = {"test-spark": QUICK}


def typed(page: str, target: str | None) -> Iterator[tuple[str, list[Block]]]:
    """What a target of make types of a page, each with a name; None is `make test`.

    What stands alone is a case of its own, so that it can be typed beside the others.
    """
    blocks = [block for block in PAGES[page] if block.notes.reason is None and block.notes.target == target]
    name = f"{page}-{target or 'test'}"
    together = [block for block in blocks if not block.notes.stands_alone]
    if together:
        yield name, together
    alone = [block for block in blocks if block.notes.stands_alone]
    for number, block in enumerate(alone, 1):
        yield f"{name}-alone-{number}", [block]


def cases() -> list[object]:
    """What is typed together of each page, with the target that types it."""
    return [
        pytest.param(
            target,
            blocks,
            id=name,
            marks=marks_of(page, target),
        )
        for page in PAGES
        for target in (None, *SLOW_TARGETS)
        for name, blocks in typed(page, target)
    ]


def marks_of(page: str, target: str | None) -> list[pytest.MarkDecorator]:
    """`make test` types what is read first; a sixth of the rest types the other pages."""
    if target:
        return [getattr(pytest.mark, target.removeprefix("test-"))]
    return [pytest.mark.world] + [pytest.mark.rest] * (page not in READ_FIRST)


@pytest.mark.parametrize(("target", "blocks"), cases())
def test_the_blocks_of_a_page_do_what_it_says(
    target: str | None, blocks: list[Block], tmp_path: Path
) -> None:
    for tries_left in reversed(range(TRIES.get(target, 1))):
        folder = tmp_path / str(tries_left)
        folder.mkdir()
        try:
            type_blocks(target, blocks, folder)
            return
        except Failed:
            if not tries_left:
                raise


def type_blocks(target: str | None, blocks: list[Block], folder: Path) -> None:
    """Types blocks of a page. Raises Failed where something else happens than the page says."""
    if any(command in block.text for command in ("kcast servers", "kcast key") for block in blocks):
        for library in ("nacl", "cryptography", "pymerkle"):
            pytest.importorskip(library)
    # Containers need the network of this machine.
    isolated = target != "test-containers" and can_isolate()
    if not isolated and any("192.0.2.7" in block.text for block in blocks):
        pytest.skip("this machine lets nobody have a network of his own, with the addresses of the page")
    activated = target is not None or not any(ACTIVATE in block.text for block in blocks)
    terminals = max(block.notes.terminal for block in blocks)
    wait_s = SLOW_WAIT_S if target else WAIT_S
    has_lab = any(block.notes.has_lab for block in blocks)
    runs_load = target is not None and any("kcast load" in block.text for block in blocks)
    variables = {**VARIABLES.get(target or "", {}), **(LAB_VARIABLES if has_lab else {})}
    with ExitStack() as stack:
        if not isolated:
            stack.enter_context(one_after_another())
        if target == "test-containers":
            variables |= compose_variables(stack.enter_context(ComposeProject()))
        shells = stack.enter_context(
            open_terminals(
                folder,
                terminals,
                isolated=isolated,
                activated=activated,
                variables=variables,
                wait_s=wait_s,
                goes_first=runs_load,  # its users must send when it is time
            )
        )
        if has_lab:
            shells.start_lab()
        for block in blocks:
            for part in lines_apart(block):
                shells.type(part)


@contextmanager
def one_after_another() -> Iterator[None]:
    """Waits until no other page is typed on this machine's own network: their ports are the same."""
    with Path(gettempdir(), f"kcast-pages-{os.getuid()}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compose_variables(project: ComposeProject) -> dict[str, str]:
    """What leads compose commands without options to a project of the test's own."""
    own = {name: value for name, value in project.environment.items() if name.startswith("KCAST_")}
    return {**own, "COMPOSE_PROJECT_NAME": project.name}


def test_few_blocks_are_not_run_and_each_has_a_reason() -> None:
    reasons = [
        f"{page}:{block.line}: {block.notes.reason}"
        for page, blocks in PAGES.items()
        for block in blocks
        if block.notes.reason is not None
    ]
    assert len(reasons) <= NOT_RUN_MAX, "\n".join(reasons)
