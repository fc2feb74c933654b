"""All native code, the client's too: no access out of bounds, no undefined behaviour, no leak.

And Python takes their place where they were not built.
"""

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest

from kcast.pubsub.native import NATIVE
from kcast.pubsub.router import Many
from tests.support.checkout import ROOT
from tests.support.naive_router import RouteTable

SOURCES = sorted([*(ROOT / "pubsub").glob("*.c"), *(ROOT / "client").rglob("*.c")])
TESTS = (
    "tests/pubsub/test_router.py",
    "tests/pubsub/test_inlet.py",
    "tests/pubsub/test_outlet.py",
    "tests/client/receiving/test_deliveries.py",
    "tests/client/receiving/test_native.py",
    "tests/fuzz/test_corpus.py",
)
WARNINGS = (
    *("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"),
    # Methods have the types that Python wants; and a type's slots that it does not name are empty.
    *("-Wno-cast-function-type", "-Wno-missing-field-initializers", "-Wno-sign-conversion"),
)
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
)


def build(folder: Path, *flags: str) -> None:
    include = sysconfig.get_paths()["include"]
    for source in SOURCES:
        to = folder / f"{source.parent.name}.{source.stem}.abi3.so"
        subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", *flags, source, "-o", to], check=True)


def runtime() -> str | None:
    """The sanitizer's library, which must be loaded before all others."""
    if shutil.which("cc") is None:
        return None
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    return str(path) if path.is_absolute() and path.exists() else None


@pytest.mark.rest
@pytest.mark.world
@pytest.mark.skipif(runtime() is None, reason="no C compiler, or it has no AddressSanitizer")
def test_tests_pass_under_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    build(tmp_path, *SANITIZERS, *WARNINGS)
    environment = os.environ | {
        "KCAST_INSTRUMENTED": str(tmp_path),
        "LD_PRELOAD": str(runtime()),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much until it ends
        "PYTHONMALLOC": "malloc",  # else a block of Python's pools hides what is beyond a small object
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.instrumented",
        "-k",
        # What a test does once in Python and once natively, [python] and [native], is done natively alone.
        "(router or native or inlet or outlet or copies) and not python]",
    ]
    found = subprocess.run(
        [*command, "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert all(f"instrumented: {each.parent.name}.{each.stem}" in found.stderr for each in SOURCES)


@pytest.mark.skipif(NATIVE is None, reason="native code is not built")
def test_nothing_is_kept_of_what_was_routed() -> None:
    assert NATIVE is not None
    routes = RouteTable({b"t": (("192.0.2.1", 1), ("192.0.2.2", 1)), b"many": Many(3)})

    def route() -> None:
        packer = NATIVE.make_packer()
        for text in (b"t 1\nt 2\nnobody 3\nmany 4\n" * 9, b"t 5\n"):
            assert NATIVE.survey(text, len(text), 64, routes)
            packer.add(text, routes)
            packer.add_for(text, (("192.0.2.3", 1),))
        packer.pack(b"\n")
        packer.add(b"t 6\n", routes)  # and never packed
        assert NATIVE.survey(b"t\n", 2, 64, routes) is None
        with suppress(ValueError):
            NATIVE.survey(b"t 1\n", 0, 64, routes)
        with suppress(TypeError):
            packer.pack("")  # type: ignore[arg-type]

    route()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(2000):
        route()
    gc.collect()
    assert sys.getallocatedblocks() - before < 200


WITHOUT = """
import sys
for name in ("_router", "_receiver", "_sender"):
    sys.modules[f"kcast.pubsub.{name}"] = None
from kcast.pubsub import inlet, native, outlet, router
assert native.NATIVE is None and native.BEST is router.PYTHON
assert inlet._native is None and outlet._native is None
from kcast.client.cli import main
sys.argv = ["kcast", "--version"]
main()
"""


def test_without_native_code_it_is_python_that_routes() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert found.stdout.endswith(", routing in Python: native code was not built, for want of a C compiler\n")


WRONG = """
import sys
class Loader:
    def find_spec(self, name, path=None, target=None):
        if name == "kcast.pubsub._router":
            raise ImportError("_router.abi3.so: wrong ELF class")
sys.meta_path.insert(0, Loader())
from kcast.pubsub import native, router
assert native.BEST is router.PYTHON
print(native.DESCRIPTION)
"""


def test_code_that_was_built_for_something_else_is_told() -> None:
    found = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True)
    assert found.stdout == "routing in Python: _router.abi3.so: wrong ELF class\n"
