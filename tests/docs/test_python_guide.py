"""The examples of the Python guide do what it says, and it leaves out nothing that programs can use."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import Enum
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kcast.client import aio, blocking
from kcast.client.cluster import format_cluster, lab
from kcast.hashring.policy import Policy
from kcast.loadtest.clusters.processes import ProcessCluster
from tests.support.checkout import ROOT
from tests.support.forms import few_of
from tests.support.page_programs import DRIVERS, programs
from tests.support.pages import python_examples
from tests.support.shape import has_shape

Case = tuple[str, str, str]  # where it stands, the program, what it is to print

GUIDE = (ROOT / "docs/python.md").read_text()
LAYERS = "".join((ROOT / f"docs/{each}.md").read_text() for each in ("requests", "history"))  # linked there
PAGES = {page: (ROOT / page).read_text() for page in ("README.md", "docs/python.md", "docs/wildcards.md")}
GIVEN = ("self", "options", "sources")  # they have no name where they are given
NOT_HERE = (aio.Cluster, aio.KcastError, aio.Drop)  # docs/operations.md has each value of Drop
WAIT_S = 30.0
LANES = 3  # most examples wait most of their time


@pytest.mark.world
@pytest.mark.parametrize("driver", few_of(DRIVERS, 0))
def test_the_examples_print_what_their_pages_say(driver: str, tmp_path: Path) -> None:
    has_trust = find_spec("nacl") is not None
    cases = [
        (f"{page}:{example.line}", program, example.output)
        for page, text in PAGES.items()
        for example in python_examples(text)
        if (program := programs(example).get(driver)) and (has_trust or "identity=" not in program)
    ]
    assert len(cases) > 20
    with ThreadPoolExecutor(LANES) as lanes:
        complaints = lanes.map(run_lane, [cases[lane::LANES] for lane in range(LANES)])
        assert not (told := "\n\n".join(chain(*complaints))), told


def run_lane(cases: list[Case]) -> list[str]:
    """Runs programs, one after the other, where README's lab of three servers runs; what is wrong."""
    with TemporaryDirectory() as folder, ProcessCluster(3, ttl_s=60) as servers:
        (Path(folder) / "lab.txt").write_text(format_cluster(servers.cluster(Policy(3, 2, 3))))
        return [complaint for case in cases if (complaint := run(folder, *case))]


def run(folder: str, place: str, program: str, output: str) -> str:
    """Runs a program; returns what is wrong."""
    command = (
        "timeout",
        "--signal=INT",
        f"{WAIT_S:g}",
        sys.executable,
        "-c",
        program,
    )  # INT: it says where it is
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": os.defpath},  # as without activation
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ran.returncode == 0 and has_shape(ran.stdout, output):
        return ""
    shown = f"the page shows\n{output}\nand it prints\n{ran.stdout}\n{program}"
    return f"{place}: exit code {ran.returncode}; {shown}"


def test_an_example_is_made_a_program_of_each_client() -> None:
    (example,) = python_examples("```python\nimport asyncio\nawait asyncio.sleep(0)\n```\n```\n```\n")
    made = programs(example)
    assert "async with Client(" in made["asyncio"]
    assert "import asyncio\n        await asyncio.sleep(0)\n" in made["asyncio"]
    assert "from kcast import BlockingClient as Client" in made["blocking"]
    assert "import time\n        time.sleep(0)\n" in made["blocking"]
    assert "async" not in made["blocking"]
    assert list(programs(replace(example, comment="asyncio"))) == ["asyncio"]
    assert list(programs(replace(example, comment="blocking"))) == ["blocking"]
    assert programs(replace(example, comment="saved as try.py")) == {}


# --- Nothing is left out ------------------------------------------------------------------------------


def public_names() -> Iterator[str]:
    """All that a program can name: what is exported, methods, options, fields and values."""
    for module in (aio, blocking):
        for name in module.__all__:
            yield name
            thing = getattr(module, name)
            if inspect.isclass(thing) and thing not in NOT_HERE:
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
            options = list(inspect.signature(member).parameters.values())[1:]
            yield from (
                each.name for each in options if each.kind is not each.VAR_KEYWORD
            )  # those are refused
        elif inspect.isfunction(member) and not name.startswith("_"):
            yield name
            yield from (each for each in inspect.signature(member).parameters if each not in GIVEN)
        elif isinstance(member, property):
            yield name


def test_the_guide_leaves_out_nothing_that_a_program_can_name() -> None:
    """Each name stands in an example, in what that prints, or in the text as code, as fields of events do."""
    shown = "".join(each.text + each.output for each in python_examples(GUIDE))
    shown += " ".join(re.findall(r"`[^`\n]+`", GUIDE + LAYERS))
    named = {name for name in public_names() if not name.startswith("_")}
    assert len(named) > 100
    assert sorted(named - words(shown)) == []


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]+", text))
