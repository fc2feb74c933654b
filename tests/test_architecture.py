"""The arrows between the rooms, and the purity of the sans-IO cores, read from the source.

The command line of `client` reaches the other rooms' commands by name, at the moment they are run; that
is no import, and is not looked at here.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

# The sans-IO cores. Every file named here must exist; a new core is added here.
CORES = (
    *("pubsub/endpoint.py", "pubsub/limits.py", "pubsub/wire.py"),
    *("pubsub/cookie.py", "pubsub/stamp.py", "pubsub/rates.py"),
    *("pubsub/table.py", "pubsub/router.py", "pubsub/server.py", "pubsub/tap_format.py"),
    *("client/view.py", "client/envelope.py", "client/dedup.py", "client/gaps.py"),
    *("client/leases.py", "client/rtt.py", "client/session.py", "client/core.py", "client/events.py"),
    *("client/requests.py", "client/minting.py", "client/lessee.py", "client/publishing.py"),
    "client/numbering.py",
    "hashring/*.py",
    *("loadtest/faults/plan.py", "loadtest/faults/impairment.py"),
)

# Room -> what of ours its modules may import.
ARROWS = {
    "hashring": ("hashring",),
    "pubsub": ("pubsub",),
    "client": (
        *("client", "hashring"),
        *("pubsub.wire", "pubsub.limits", "pubsub.endpoint", "pubsub.udp", "pubsub.stamp"),
    ),
    "loadtest": ("loadtest", "client", "hashring", "pubsub"),
    # Spark reads what load tests wrote, as they describe it, and walks the real ring in its simulation.
    "spark": (
        *("spark", "hashring", "client.cli.common"),
        *("loadtest.scenario", "loadtest.capture.schema", "loadtest.capture.manifest"),
        *("loadtest.results.causes", "loadtest.results.verdicts"),
        *("loadtest.results.prediction", "loadtest.results.luck", "loadtest.results.planned"),
    ),
}
OURS = (*ARROWS, "tests")

# What a core may not touch: the network, clocks, schedulers, chance, and ways around this list.
IMPURE = (
    *("socket", "select", "selectors", "ssl", "time", "datetime"),
    *("asyncio", "threading", "_thread", "multiprocessing", "subprocess", "concurrent", "gevent", "signal"),
    *("secrets", "uuid", "os.urandom", "os.getrandom", "numpy.random", "importlib"),
)

# What single cores may not import on top of that.
NOT_EVEN = {"hashring/model.py": ("numpy",)}

ROOT = Path(__file__).parent.parent


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def imports(tree: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of all that a module imports, also under `if` and in functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = Path(path).parts[: -node.level] if node.level else ()
            start = ".".join((*base, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of every `module.name`, whatever the module is called locally."""
    local = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                local[alias.asname or top] = alias.name if alias.asname else top
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in local:
            yield node.lineno, f"{local[node.value.id]}.{node.attr}"


def forbidden_arrows(source: str, path: str) -> list[str]:
    room = Path(path).parts[0]
    names = imports(ast.parse(source), path)
    return [
        f"{path}:{line}: {room} may not import {name}"
        for line, name in names
        if within(name, OURS) and not within(name, ARROWS[room])
    ]


def impurities(source: str, path: str) -> list[str]:
    tree = ast.parse(source)
    taboo = IMPURE + NOT_EVEN.get(path, ())
    found = set()
    for line, name in (*imports(tree, path), *uses(tree)):
        chance = within(name, ("random",)) and name != "random" and not within(name, ("random.Random",))
        if within(name, taboo) or chance:
            found.add((line, name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in (
            "hash",
            "__import__",
        ):  # hash() differs between processes
            found.add((node.lineno, f"{node.id}()"))
        elif isinstance(node, ast.Call) and not node.args and not node.keywords:
            called = ast.unparse(node.func)
            if called == "Random" or called.endswith(".Random"):
                found.add((node.lineno, f"{called}() without a seed"))
    return [f"{path}:{line}: a core may not use {name}" for line, name in sorted(found)]


@cache
def sources() -> dict[str, str]:
    paths = (path for room in ARROWS for path in sorted((ROOT / room).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def test_rooms_import_only_along_the_arrows() -> None:
    assert [bad for path, source in sources().items() for bad in forbidden_arrows(source, path)] == []


@pytest.mark.parametrize("core", CORES)
def test_cores_touch_no_world(core: str) -> None:
    matching = [path for path in sources() if Path(path).match(core)]
    assert matching, f"{core} is listed in CORES but does not exist"
    assert [bad for path in matching for bad in impurities(sources()[path], path)] == []


# Sabotage: each rule is broken once, and must say so.


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("hashring/ring.py", "import pubsub.wire", "pubsub.wire"),
        ("hashring/ring.py", "from client import view", "client.view"),
        ("pubsub/server.py", "from hashring.ring import rank", "hashring.ring.rank"),
        ("pubsub/server.py", "def later():\n    import client", "client"),
        ("client/core.py", "from pubsub import server", "pubsub.server"),
        ("client/core.py", "from pubsub.table import Table", "pubsub.table.Table"),
        ("client/core.py", "import pubsub.cookie", "pubsub.cookie"),
        ("client/cli/serve.py", "from pubsub.serve import main", "pubsub.serve.main"),
        ("client/core.py", "import pubsub", "pubsub"),
        ("client/core.py", "from loadtest.demo import run", "loadtest.demo.run"),
        ("client/core.py", "from pubsub.wired import x", "pubsub.wired.x"),
        ("loadtest/demo.py", "from spark import report", "spark.report"),
        ("spark/report.py", "from pubsub import tap", "pubsub.tap"),
        ("spark/report.py", "from loadtest.results import attribution", "loadtest.results.attribution"),
        ("spark/report.py", "if TYPE_CHECKING:\n    from client.view import View", "client.view.View"),
        ("client/cli/sub.py", "from ...pubsub import serve", "pubsub.serve"),
        *((f"{room}/x.py", "from tests.network import Network", "tests.network.Network") for room in ARROWS),
    ],
)
def test_a_forbidden_arrow_is_found(path: str, source: str, name: str) -> None:
    (problem,) = forbidden_arrows(source, path)
    assert problem.endswith(f"{Path(path).parts[0]} may not import {name}")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("hashring/ring.py", "import numpy\nfrom . import model\nfrom hashring.policy import Policy"),
        ("pubsub/server.py", "from pubsub import table\nimport pubsub.cookie"),
        (
            "client/core.py",
            "from pubsub import wire, limits\nfrom pubsub.endpoint import Burst\nimport hashring.ring",
        ),
        ("client/cli/sub.py", "from ..core import Client\nfrom client.view import View"),
        (
            "loadtest/demo.py",
            "from pubsub.server import Server\nfrom client import core\nimport hashring.model",
        ),
        (
            "spark/report.py",
            "from hashring.model import delivery\nfrom hashring import model\nimport pyspark",
        ),
        ("spark/report.py", "import testsuite, clients"),
    ],
)
def test_an_arrow_of_the_design_passes(path: str, source: str) -> None:
    assert forbidden_arrows(source, path) == []


@pytest.mark.parametrize("module", IMPURE)
def test_an_impure_import_is_found(module: str) -> None:
    parent, _, name = module.rpartition(".")
    ways = [f"import {module} as m", f"from {module} import x", f"def f():\n    import {module}"]
    if parent:
        ways = [
            f"from {parent} import {name}",
            f"import {parent}\n{parent}.{name}",
            f"import {parent} as p\np.{name}",
        ]
    for way in ways:
        assert len(impurities(way, "client/core.py")) == 1, way


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("client/core.py", "from random import choice", "random.choice"),
        ("client/core.py", "from random import SystemRandom", "random.SystemRandom"),
        ("client/core.py", "import random\nx = random.random()", "random.random"),
        ("client/core.py", "import random as chance\nf = chance.shuffle", "random.shuffle"),
        ("client/core.py", "from random import Random\nchance = Random()", "Random() without a seed"),
        ("client/core.py", "import random\nchance = random.Random()", "random.Random() without a seed"),
        ("hashring/ring.py", "import numpy as np\nnp.random.default_rng()", "numpy.random"),
        ("pubsub/table.py", "arc = hash(topic) % 1024", "hash()"),
        ("pubsub/table.py", "topics.sort(key=hash)", "hash()"),
        ("pubsub/table.py", "clock = __import__('time')", "__import__()"),
        ("hashring/model.py", "import numpy as np", "numpy"),
        ("hashring/model.py", "from numpy.typing import NDArray", "numpy.typing.NDArray"),
    ],
)
def test_an_impurity_is_found(path: str, source: str, name: str) -> None:
    (problem,) = impurities(source, path)
    assert problem.endswith(f"a core may not use {name}")


@pytest.mark.parametrize(
    "source",
    [
        "from random import Random\ndef f(chance: Random): return chance.choice([1, 2])",
        "import random\ndef f(chance: random.Random): return chance.random()",
        "import random\nx = random.Random(7).random()",
        "import hashlib\nx = hashlib.blake2b(b'').digest()",
        "class T:\n    def __hash__(self): return 1",
        "def f(now: float, socket: str, time: float): return time.hex()",
        "import numpy as np\nx = np.sort(y)",
        "from timeit import x\nimport selection",
    ],
)
def test_what_a_core_needs_passes(source: str) -> None:
    assert impurities(source, "hashring/ring.py") == []
