"""kcast as its users install it: beside modules of other people's that bear our folders' names, and typed."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from kcast.hashring.policy import Policy
from tests.support.checkout import ROOT
from tests.support.cluster_of_processes import ClusterOfProcesses
from tests.support.forms import few_of

WAIT_S = 120
PACKAGES = ("pubsub", "client", "hashring", "loadtest", "spark")
SOURCES = (*PACKAGES, "pyproject.toml", "setup.py", "README.md", "LICENSE")
# One for asyncio, one without an event loop.
PAGES = ("README.md", "docs/tutorial.md")
PROGRAMS = [
    program
    for page in PAGES
    for program in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
]

# Lines 2 and 4 are wrong on purpose: only who sees our types can know.
MISTAKE = """from kcast import Client
topics: list[int] = Client("lab.txt").subscribe("weather/oslo")
import kcast
print(kcast.Clinet)
"""
NAMES = """import kcast
from kcast import AllServersLost, BlockingClient, Client, Delivery, Gap, KcastError, NoReceipt, Policy, lab
from kcast import FixedWindow, MemberJoined, MemberLeft, NoWorker, RemoteError, Reply, Request, RequestTimeout
clients: tuple[type[BlockingClient], type[Client]] = kcast.BlockingClient, kcast.Client
version: str = kcast.__version__
print(*clients, AllServersLost(1), lab([("127.0.0.1", 9)], Policy(1, 1, 1)).policy, version)
"""
# Modules of kcast that are others', in three folders; one is known only after kcast has been imported.
OTHERS = """
import sys
import kcast.pubsub.wire
assert not [name for name in sys.modules if name.startswith("kcast.client")]
sys.path.append("late")
import kcast.here, kcast.early, kcast.late
from pkgutil import iter_modules
assert {"client", "here", "early", "late"} <= {each.name for each in iter_modules(kcast.__path__)}
"""


def done(command: tuple[str | Path, ...], folder: Path, *, code: int = 0) -> str:
    """Returns the standard output of a command; fails with all that it said if its exit code is another."""
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def copy_sources(checkout: Path) -> None:
    """Copies the sources, since building leaves files among them."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, checkout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources."""
    checkout = tmp_path_factory.mktemp("checkout")
    copy_sources(checkout)
    done((sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", checkout), checkout)
    (found,) = checkout.glob("*.whl")
    return found


# What `tools/setup` asks pip for.
LINKED = """
from setuptools.build_meta import build_editable
build_editable("out", {"editable_mode": "strict"})
"""


@pytest.mark.parametrize("compiler", few_of(["/nonexistent", "false"]))
def test_without_a_compiler_that_works_native_code_is_left_out(tmp_path: Path, compiler: str) -> None:
    copy_sources(tmp_path)
    (tmp_path / "out").mkdir()
    for command in ((sys.executable, "-c", LINKED), (sys.executable, "-m", "build", "-wnx", "-o", "out")):
        ended = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"CC": compiler}, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert 'building extension "kcast.pubsub._router" failed' in ended.stdout + ended.stderr
    for wheel in (tmp_path / "out").glob("*.whl"):
        assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    linked = {path.name for path in (tmp_path / "build").glob("__editable__*/kcast/pubsub/*")}
    assert "native.py" in linked and not [name for name in linked if name.endswith(".so")]


@pytest.fixture(scope="module")
def users_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which the wheel is installed beside PyPubSub.

    What kcast depends on is taken from where these tests run; kcast itself is not, since links of .pth files
    are not followed from there.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps")
    done((*pip, wheel), folder)
    (packages,) = folder.glob("lib/python3*/site-packages")
    there = Path(str(distribution("Pypubsub").locate_file("pubsub")))
    shutil.copytree(there, packages / "pubsub")
    (packages / "dependencies.pth").write_text(f"{there.parent}\n")
    return python


@pytest.fixture(scope="module")
def users_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the pages' programs, a client.py of the user's own, and a cluster that runs."""
    folder = tmp_path_factory.mktemp("user")
    for number, program in enumerate(PROGRAMS):
        (folder / f"program{number}.py").write_text(program)
    (folder / "client.py").write_text("NAME = 'the users own'\n")
    (folder / "mistake.py").write_text(MISTAKE)
    (folder / "names.py").write_text(NAMES)
    with ClusterOfProcesses(folder, 3, Policy(3, 2, 3)) as servers:
        servers.file.rename(folder / "lab.txt")
        yield folder


def test_the_wheel_holds_kcast_alone_and_all_of_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kcast"}
    expected = set[str]()
    for package in PACKAGES:
        sources = (path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix != ".pyc")
        expected |= {f"kcast/{path.relative_to(ROOT).as_posix()}" for path in sources}
        assert f"kcast/{package}/py.typed" in expected
    expected = {name.replace("kcast/client/kcast/", "kcast/") for name in expected}
    assert {name for name in names if name.startswith("kcast/")} == expected


@pytest.mark.parametrize("number", few_of(range(len(PROGRAMS))))
def test_a_pages_program_runs_beside_pypubsub_and_a_client_of_ones_own(
    number: int, users_python: Path, users_folder: Path
) -> None:
    said = done((users_python, f"program{number}.py"), users_folder)
    assert said.count("'receipt'") == 2
    assert said.endswith("b'sun, 7 degrees'\n")
    names = (
        "import client, pubsub.pub, kcast.client; print(client.NAME, pubsub.__file__, kcast.client.__file__)"
    )
    own, pypubsub_file, kcast_file = done((users_python, "-c", names), users_folder).rsplit(maxsplit=2)
    assert own == "the users own"
    assert Path(pypubsub_file).parent.parent == Path(kcast_file).parent.parent.parent


def test_kcast_itself_is_a_package_to_which_others_may_add(
    wheel: Path, users_python: Path, users_folder: Path
) -> None:
    said = done((users_python, "names.py"), users_folder).split()
    version = wheel.name.split("-")[1]
    assert said[1::2][:2] == ["'kcast.client.blocking.Client'>", "'kcast.client.aio.Client'>"]
    assert said[-2:] == ["1/1/1", version]
    assert done((users_python, "-m", "kcast", "--version"), users_folder).startswith(f"kcast {version},")
    (packages,) = users_python.parent.parent.glob("lib/python3*/site-packages")
    for folder, name in (
        (packages, "here"),
        (users_folder / "early", "early"),
        (users_folder / "late", "late"),
    ):
        (folder / "kcast").mkdir(parents=True, exist_ok=True)
        (folder / "kcast" / f"{name}.py").touch()
    done(("env", "PYTHONPATH=early", users_python, "-c", OTHERS), users_folder)


# Two processes of pytest: the plugin has imported nothing, and pytest leaves kcast as it was built.
TESTS = """
import asyncio, sys
assert not [name for name in sys.modules if name.startswith("kcast.client")]
from kcast import BlockingClient, Client
from kcast.testing import LocalCluster

def test_blocking(kcast_cluster: LocalCluster) -> None:
    assert type(sys.modules["kcast.testing"].__loader__).__name__ == "SourceFileLoader"
    with BlockingClient(kcast_cluster) as client:
        assert client.publish("news", "x").receipts == 2

def test_a_loop_of_its_own(kcast_cluster: LocalCluster) -> None:
    async def main() -> None:
        async with Client(kcast_cluster) as client:
            assert await client.subscribe("news").ready(timeout_s=20) == (3, 3)
    asyncio.run(main())
"""


def test_pytest_finds_the_fixture(users_python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_news.py").write_text(TESTS)
    run = "import sys, kcast, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    said = done((users_python, "-c", run, "-q", "-W", "error", "-n", "2", "."), tmp_path)
    assert "2 passed" in said


# Python -> how kcast came there.
INSTALLS = ("wheel", "checkout")


@pytest.fixture
def python(request: pytest.FixtureRequest) -> Path:
    if request.param == "checkout":
        return Path(sys.executable)
    found: Path = request.getfixturevalue("users_python")
    return found


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds what mypy knows of Python itself, which takes it the most time. Each kcast lies elsewhere."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("python", few_of(INSTALLS, 0), indirect=True)
def test_mypy_sees_our_types(python: Path, users_folder: Path, mypy_cache: Path) -> None:
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python)
    programs = [f"program{number}.py" for number in range(len(PROGRAMS))]
    said = done((*mypy, "--cache-dir", mypy_cache, *programs, "names.py", "mistake.py"), users_folder, code=1)
    assert "mistake.py:2: error: Incompatible types in assignment" in said
    assert "mistake.py:4: error: Module has no attribute" in said
    assert "Found 2 errors in 1 file (checked 4 source files)" in said


@pytest.mark.parametrize("python", few_of(INSTALLS, 0), indirect=True)
def test_pyright_sees_our_types(python: Path, users_folder: Path) -> None:
    pyright = (
        sys.executable,
        "-m",
        "basedpyright",
        "--level",
        "error",
        "--outputjson",
        "--pythonpath",
        python,
    )
    programs = [f"program{number}.py" for number in range(len(PROGRAMS))]
    told = json.loads(done((*pyright, *programs, "names.py", "mistake.py"), users_folder, code=1))
    error, unknown = told["generalDiagnostics"]
    assert {Path(each["file"]).name for each in (error, unknown)} == {"mistake.py"}
    assert "Clinet" in unknown["message"]
    assert 'Type "Subscription" is not assignable to declared type "list[int]"' in error["message"]
