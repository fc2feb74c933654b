"""The examples of the Python guide do what it says, and it leaves out nothing that programs can use."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

from kcast.client import aio, blocking
from kcast.client.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.checkout import ROOT
from tests.support.page_programs import programs
from tests.support.pages import python_examples
from tests.support.shape import has_shape

GUIDE = (ROOT / "docs/python.md").read_text()
PAGES = {"README.md": (ROOT / "README.md").read_text(), "docs/python.md": GUIDE}
WAIT_S = 30.0
GIVEN = ("self", "options", "sources")  # they have no name where they are given


def cases() -> list[object]:
    """Each example, for each driver that it is for."""
    return [
        pytest.param(program, example.output, id=f"{page}-{example.line}-{driver}")
        for page, text in PAGES.items()
        for example in python_examples(text)
        for driver, program in programs(example).items()
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the examples run: with the cluster file of README's lab."""
    folder = tmp_path_factory.mktemp("guide")
    with ProcessCluster(3, ttl_s=60) as servers:
        (folder / "lab.txt").write_text(format_cluster(servers.cluster(Policy(3, 2, 3))))
        yield folder


@pytest.mark.world
@pytest.mark.parametrize(("program", "output"), cases())
def test_an_example_prints_what_the_page_says(program: str, output: str, folder: Path) -> None:
    ran = subprocess.run(
        (sys.executable, "-c", program),
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ran.returncode == 0, f"{program}\n{ran.stdout}"
    assert has_shape(ran.stdout, output), f"{program}\nprinted\n{ran.stdout}\nand the page says\n{output}"


# --- Nothing is left out ------------------------------------------------------------------------------


def words() -> set[str]:
    """The words of the guide's code, in its blocks and its lines."""
    code = re.findall(r"```.*?```|`[^`\n]+`", GUIDE, re.DOTALL)
    return {word for part in code for word in re.findall(r"[\w-]+", part)}


def public_names() -> Iterator[str]:
    """All that a program can name: what is exported, methods, options, fields and values."""
    for module in (aio, blocking):
        for name in module.__all__:
            yield name
            thing = getattr(module, name)
            if inspect.isclass(thing) and thing not in (aio.Cluster, aio.KcastError):
                yield from members(thing)
    yield from blocking.Client(lab([("127.0.0.1", 9)])).counters()


def members(thing: type) -> Iterator[str]:
    """A class's fields or values; its methods with their options, and its properties."""
    if issubclass(thing, Enum):
        yield from (each.value for each in thing)
        return
    yield from getattr(thing, "__annotations__", {})
    for name, member in inspect.getmembers(thing):
        module = getattr(getattr(member, "fget", member), "__module__", None) or ""
        if not module.startswith("kcast.client."):
            continue
        if inspect.isfunction(member) and name == "__init__" and thing.__name__ == "Client":
            yield from list(inspect.signature(member).parameters)[1:]
        elif inspect.isfunction(member) and not name.startswith("_"):
            yield name
            yield from (each for each in inspect.signature(member).parameters if each not in GIVEN)
        elif isinstance(member, property):
            yield name


def test_the_guide_leaves_out_nothing_that_a_program_can_name() -> None:
    named = set(public_names())
    assert len(named) > 100
    assert sorted(name for name in named - words() if not name.startswith("_")) == []
