"""What packages and their folders may import, and what sans-IO cores may use, read from the source.

The command line of `client` reaches other packages' commands by name, at the moment they are run; that
is no import, and is not looked at here.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.project_files import dotted

# The sans-IO cores. Every file named here must exist; a new core is added here.
CORES = (
    *("pubsub/endpoint.py", "pubsub/errors.py", "pubsub/limits.py", "pubsub/wire.py", "pubsub/drops.py"),
    *("pubsub/cookie.py", "pubsub/stamp.py", "pubsub/rates.py", "pubsub/set_aside.py"),
    *("pubsub/kernel_filter.py", "pubsub/flood.py", "pubsub/strangers.py", "pubsub/networks.py"),
    *("pubsub/table.py", "pubsub/audience.py", "pubsub/linked_list.py", "pubsub/probation.py"),
    *("pubsub/leasing.py", "pubsub/publishing.py", "pubsub/router.py", "pubsub/native.py"),
    *("pubsub/egress.py", "pubsub/queues.py", "pubsub/batch.py", "pubsub/subscribers.py"),
    *("pubsub/server.py", "pubsub/tap_format.py"),
    *("client/core.py", "client/events.py", "client/driving/event_log.py"),
    *(
        "client/history/arrivals.py",
        "client/history/entries.py",
        "client/history/having.py",
        "client/history/holder.py",
        "client/history/host.py",
        "client/history/ids.py",
        "client/history/index.py",
        "client/history/puller.py",
        "client/history/runs.py",
        "client/history/sync.py",
        "client/history/words.py",
    ),
    *("client/layers/*.py", "client/messages/*.py", "client/receiving/*.py", "client/session/*.py"),
    *("client/publishing/batches.py", "client/publishing/publications.py", "client/publishing/routes.py"),
    *("client/clusters/facts.py", "client/clusters/reader.py"),
    *("client/clusters/view.py", "client/clusters/views.py"),
    *("client/cli/probe.py", "client/cli/doctor/findings.py"),
    *("client/sealed/dhkem.py", "client/sealed/frame.py"),
    *("client/sealed/beacon.py", "client/sealed/group_file.py", "client/sealed/membership.py"),
    *("client/sealed/sealing.py", "client/sealed/signing.py", "client/sealed/topics.py"),
    *("client/sealed/doubts.py", "client/sealed/guards.py", "client/sealed/replay.py"),
    *("client/sealed/cover.py", "client/sealed/writers.py"),
    *("client/trust/forms/*.py", "client/trust/checks/*.py"),
    *(
        "client/trust/publisher/editing.py",
        "client/trust/publisher/founding.py",
        "client/trust/publisher/signing.py",
        "client/trust/reach/bus.py",
        "client/trust/state/standing.py",
        "client/trust/witness/witnessing.py",
    ),
    "hashring/*.py",
    *("loadtest/faults/plan.py", "loadtest/faults/impairment.py"),
    *("loadtest/bench/counts.py", "loadtest/bench/plan.py"),
)

CORE_LINES_MAX = 500

# Package -> what of ours its modules may import.
ARROWS = {
    "hashring": ("kcast.hashring",),
    "pubsub": ("kcast.pubsub",),
    "client/kcast": ("kcast.testing", "kcast.client", "kcast.hashring", "kcast.pubsub"),  # kcast itself
    "client": (
        *("kcast.client", "kcast.hashring"),
        *("kcast.pubsub.wire", "kcast.pubsub.limits", "kcast.pubsub.endpoint", "kcast.pubsub.udp"),
        *(
            "kcast.pubsub.stamp",
            "kcast.pubsub.errors",
            "kcast.pubsub.drops",
            "kcast.pubsub.http",
            "kcast.pubsub.clock",
        ),
        *("kcast.pubsub.networks", "kcast.pubsub.sockets", "kcast.pubsub.native"),
    ),
    "loadtest": ("kcast.loadtest", "kcast.client", "kcast.hashring", "kcast.pubsub"),
    # Spark reads what load tests wrote, as they describe it, and walks the real ring in its simulation.
    "spark": (
        *(
            "kcast.spark",
            "kcast.hashring",
            "kcast.client.cli.common",
            "kcast.client.cli.text",
            "kcast.pubsub.errors",
        ),
        *(
            "kcast.loadtest.charts",
            "kcast.loadtest.scenario",
            "kcast.loadtest.capture.folder",
            "kcast.loadtest.capture.schema",
            "kcast.loadtest.capture.manifest",
        ),
        *("kcast.loadtest.results.causes", "kcast.loadtest.results.verdicts"),
        *("kcast.loadtest.results.prediction", "kcast.loadtest.results.effective_trials"),
        *("kcast.loadtest.results.planned_variance", "kcast.loadtest.results.percentiles"),
        *("kcast.loadtest.results.attribution", "kcast.loadtest.results.admissions"),
        *("kcast.loadtest.results.surroundings", "kcast.loadtest.results.contradictions"),
        "kcast.loadtest.results.copy_counts",
        *("kcast.loadtest.results.health", "kcast.loadtest.results.message"),
        *("kcast.loadtest.results.joins", "kcast.loadtest.results.tables"),
        *("kcast.loadtest.results.plan_simulator", "kcast.loadtest.results.simulated_law"),
        *("kcast.loadtest.results.leg_lines", "kcast.loadtest.results.loss_estimates"),
        *("kcast.loadtest.results.loss_words", "kcast.loadtest.results.given_events"),
        "kcast.loadtest.results.chances",
    ),
}

# The layers of each package, and of a folder with many modules, from the top down. A folder imports from
# folders of lower layers only, and not from others of its own layer. A module that is in none of these
# folders stands for itself.
LAYERS = {
    "client": (
        ("kcast", "arguments", "cluster", "cluster_facts", "view"),  # for programs
        ("cli",),
        ("aio", "blocking"),
        ("aio_layers", "blocking_layers"),
        ("driving",),
        ("source",),
        ("history",),
        ("layers",),
        ("sealed",),
        ("trust",),
        ("core",),
        ("receiving",),
        ("publishing",),
        ("messages",),
        ("session",),
        ("clusters",),
        ("errors",),
        ("events",),
    ),
    "client/trust": (("publisher",), ("reach", "witness"), ("state",), ("checks",), ("forms",), ("",)),
    "loadtest": (
        ("locustfile",),
        ("bench", "demo", "load"),
        ("users", "results"),
        ("faults",),
        ("capture", "clusters"),
        ("charts", "scenario", "timerfd"),
    ),
    "spark": (
        ("",),
        ("submit",),
        ("command",),
        ("launch",),
        ("run", "notebook", "why"),
        ("analysis", "gate", "outcome", "simulation"),
        ("judging", "report", "request"),
        ("jobs",),
        ("capture",),
        ("findings", "session"),
    ),
}

# The names by which Python would find the folders from the checkout's top. They are nobody's to import.
FOLDERS = tuple(ARROWS)
OURS = ("kcast", *FOLDERS, "tests", "bench")

# What a core may not touch: the network, clocks, schedulers, chance, and ways around this list.
IMPURE = (
    *("socket", "select", "selectors", "ssl", "time", "datetime"),
    *("asyncio", "threading", "_thread", "multiprocessing", "subprocess", "concurrent", "gevent", "signal"),
    *("secrets", "uuid", "os.urandom", "os.getrandom", "numpy.random", "importlib"),
)

# What single cores may not import on top of that.
NOT_EVEN = {"hashring/model.py": ("numpy",)}


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@cache  # several tests ask for those of all modules
def imports(source: str, path: str) -> tuple[tuple[int, str], ...]:
    """Line and full dotted name of all that a module imports, also under `if` and in functions."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ("kcast", *Path(path).parts[: -node.level]) if node.level else ()
            start = ".".join((*base, *([node.module] if node.module else [])))
            found += ((node.lineno, f"{start}.{alias.name}") for alias in node.names)
    return tuple(found)


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


def imported(path: Path) -> list[str]:
    return [name for _, name in imports(path.read_text(), path.relative_to(ROOT).as_posix())]


def forbidden_arrows(source: str, path: str) -> list[str]:
    package = next(folder for folder in ARROWS if path.startswith(f"{folder}/"))
    names = imports(source, path)
    return [
        f"{path}:{line}: {package} may not import {name}"
        for line, name in names
        if within(name, OURS) and not within(name, ARROWS[package])
    ]


def impurities(source: str, path: str) -> list[str]:
    tree = ast.parse(source)
    taboo = IMPURE + NOT_EVEN.get(path, ())
    found = set()
    for line, name in (*imports(source, path), *uses(tree)):
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


def imported_modules(modules: dict[str, str]) -> dict[str, set[str]]:
    """Module -> those of `modules`, path -> source, that it imports; all by their full names."""
    known = {dotted(path) for path in modules}
    found: dict[str, set[str]] = {}
    for path, source in modules.items():
        names = {name for _, name in imports(source, path)}
        parents = {name.rpartition(".")[0] for name in names - known}
        found[dotted(path)] = (names | parents) & known - {dotted(path)}
    return found


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or by way of others: what is left once all else is cleared."""
    left = {name: set(targets) for name, targets in arrows.items()}
    while clear := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in clear:
            del left[name]
    return [sorted(left)] if left else []


def folder_of(module: str, package: str, folders: tuple[str, ...]) -> str:
    """The folder of a package's module, or the module itself where it is listed like a folder."""
    first = module.removeprefix(package).removeprefix(".").partition(".")[0]
    return first if first in folders else ""


def arrows_up(package: str, arrows: dict[str, set[str]]) -> list[str]:
    """What of a package imports from other folders of its own layer, or from a layer above."""
    height = {folder: -depth for depth, layer in enumerate(LAYERS[package]) for folder in layer}
    whole = dotted(package)
    found = []
    for module, targets in arrows.items():
        for target in targets:
            if within(module, (whole,)) and within(target, (whole,)):
                here, there = (folder_of(name, whole, tuple(height)) for name in (module, target))
                if here != there and height[here] <= height[there]:
                    found.append(f"{module} -> {target}")
    return sorted(found)


@cache
def sources() -> dict[str, str]:
    paths = (path for package in ARROWS for path in sorted((ROOT / package).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def test_packages_import_only_along_the_arrows() -> None:
    assert [bad for path, source in sources().items() for bad in forbidden_arrows(source, path)] == []


def test_no_test_imports_benchmarks() -> None:
    names = ((path, name) for path in sorted((ROOT / "tests").rglob("*.py")) for name in imported(path))
    assert [f"{path}: {name}" for path, name in names if within(name, ("bench",))] == []


def test_nothing_imports_in_a_circle() -> None:
    assert circles(imported_modules(sources())) == []


def test_no_arrow_within_a_package_leads_up() -> None:
    modules = imported_modules(sources())
    assert [bad for package in LAYERS for bad in arrows_up(package, modules)] == []


@pytest.mark.parametrize("package", LAYERS)
def test_each_folder_has_a_layer(package: str) -> None:
    folders = {folder for layer in LAYERS[package] for folder in layer} - {""}
    there = {path.name for path in (ROOT / package).iterdir() if (path / "__init__.py").exists()}
    single = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert folders <= there | single
    assert there <= folders
    assert ("",) in LAYERS[package] or single <= folders


def test_cores_touch_no_world_and_are_short() -> None:
    for core in CORES:
        matching = {path: text for path, text in sources().items() if Path(path).match(core)}
        assert matching, f"{core} is listed in CORES but does not exist"
        assert [bad for path, text in matching.items() for bad in impurities(text, path)] == []
        assert [path for path, text in matching.items() if text.count("\n") > CORE_LINES_MAX] == []


# Sabotage: each rule is broken once, and must say so.


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("hashring/ring.py", "from kcast.client import view", "kcast.client.view"),
        ("pubsub/server.py", "def later():\n    import kcast.client", "kcast.client"),
        ("pubsub/server.py", "from kcast import client", "kcast.client"),
        ("pubsub/server.py", "from pubsub import table", "pubsub.table"),
        ("client/core.py", "from kcast.pubsub.table import Table", "kcast.pubsub.table.Table"),
        ("client/core.py", "import kcast.pubsub", "kcast.pubsub"),
        ("client/core.py", "import kcast", "kcast"),
        ("client/cli/sub.py", "from kcast import Client", "kcast.Client"),
        ("client/kcast/__init__.py", "from kcast.loadtest import load", "kcast.loadtest.load"),
        ("client/core.py", "from kcast.pubsub.wired import x", "kcast.pubsub.wired.x"),
        ("client/cli/sub.py", "from ...pubsub import serve", "kcast.pubsub.serve"),
        ("loadtest/demo.py", "from kcast.spark import report", "kcast.spark.report"),
        ("spark/report.py", "if TYPE_CHECKING:\n    import kcast.client.view", "kcast.client.view"),
        ("spark/x.py", "from tests.network import Network", "tests.network.Network"),
    ],
)
def test_a_forbidden_arrow_is_found(path: str, source: str, name: str) -> None:
    (problem,) = forbidden_arrows(source, path)
    assert problem.endswith(f"may not import {name}")


def test_an_arrow_of_the_design_passes() -> None:
    for path, source in (
        ("hashring/ring.py", "import numpy\nfrom . import model\nfrom kcast.hashring.policy import Policy"),
        ("client/core.py", "from kcast.pubsub import wire, limits\nimport kcast.hashring.ring"),
        ("client/cli/sub.py", "from ..core import Client\nfrom kcast.client.view import View"),
        ("spark/report.py", "from kcast.hashring import model\nimport pyspark, testsuite, clients, kcastle"),
    ):
        assert forbidden_arrows(source, path) == []


def test_circles_and_arrows_up_are_found() -> None:
    modules = {
        "spark/a.py": "from kcast.spark import b",
        "spark/b.py": "def later():\n    from kcast.spark.c import x",
        "spark/c.py": "if TYPE_CHECKING:\n    import kcast.spark.a",
        "spark/d.py": "from kcast.spark import a, e",
        "spark/e.py": "",
    }
    assert circles(imported_modules(modules)) == [[f"kcast.spark.{each}" for each in "abcd"]]
    modules = {
        "spark/jobs/a.py": "from kcast.spark.judging import b\nfrom kcast.spark.report import c",
        "spark/judging/b.py": "",
        "spark/report/c.py": "",
        "client/trust/forms/a.py": "from kcast.client.trust.checks.b import b",
        "client/trust/checks/b.py": "",
    }
    assert arrows_up("spark", imported_modules(modules)) == [
        "kcast.spark.jobs.a -> kcast.spark.judging.b",
        "kcast.spark.jobs.a -> kcast.spark.report.c",
    ]
    assert arrows_up("client/trust", imported_modules(modules)) == [
        "kcast.client.trust.forms.a -> kcast.client.trust.checks.b"
    ]


def test_an_impure_import_is_found() -> None:
    for module in IMPURE:
        for way in (f"import {module} as m", f"from {module} import x", f"def f():\n    import {module}"):
            assert len(impurities(way, "client/core.py")) == 1, way


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("client/core.py", "from random import choice", "random.choice"),
        ("client/core.py", "import random\nx = random.random()", "random.random"),
        ("client/core.py", "import random as chance\nf = chance.shuffle", "random.shuffle"),
        ("client/core.py", "from random import Random\nchance = Random()", "Random() without a seed"),
        ("hashring/ring.py", "import numpy as np\nnp.random.default_rng()", "numpy.random"),
        ("pubsub/table.py", "topics.sort(key=hash)", "hash()"),
        ("pubsub/table.py", "clock = __import__('time')", "__import__()"),
        ("hashring/model.py", "from numpy.typing import NDArray", "numpy.typing.NDArray"),
    ],
)
def test_an_impurity_is_found(path: str, source: str, name: str) -> None:
    (problem,) = impurities(source, path)
    assert problem.endswith(f"a core may not use {name}")


def test_what_a_core_needs_passes() -> None:
    for source in (
        "from random import Random\ndef f(chance: Random): return chance.choice([1, 2])",
        "import random\nx = random.Random(7).random()",
        "class T:\n    def __hash__(self): return 1",
        "def f(now: float, socket: str, time: float): return time.hex()",
        "import numpy as np\nx = np.sort(y)",
        "from timeit import x\nimport selection",
    ):
        assert impurities(source, "hashring/ring.py") == []
