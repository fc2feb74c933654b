"""The files of the project, as the tests of tidiness see them."""

import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.support.checkout import ROOT

PACKAGES = ("pubsub", "client", "hashring", "loadtest", "spark")


def dotted(path: str) -> str:
    """The name by which the module, or the package, at a path of the checkout is imported."""
    name = ".".join(Path(path.removesuffix("/__init__.py")).with_suffix("").parts)
    return name.removeprefix("client.") if name.startswith("client.kcast") else f"kcast.{name}"


@cache
def files() -> tuple[Path, ...]:
    """The files of the project: those that git knows or would add, else all that are not generated."""
    found = set(walk(ROOT))
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if listed.returncode == 0:
            found = {ROOT / name for name in listed.stdout.decode().split("\0") if name}
    return tuple(sorted(path for path in found if path.is_file() and not path.is_symlink()))


def walk(folder: Path) -> Iterator[Path]:
    generated = {".git", ".venv", "build", "dist", "__pycache__", "demo-out", "load-out", "analysis-out"}
    for path in folder.iterdir():
        if path.name in generated or path.name.endswith(("_cache", ".egg-info", ".hypothesis")):
            continue
        if path.is_dir():
            yield from walk(path)
        else:
            yield path


@cache
def texts() -> dict[str, str]:
    """Name -> content of every file that is text."""
    found = {}
    for path in files():
        content = path.read_bytes()
        if b"\0" not in content:
            try:
                found[path.relative_to(ROOT).as_posix()] = content.decode()
            except UnicodeDecodeError:
                continue
    return found


def modules() -> dict[str, str]:
    return {name: text for name, text in texts().items() if name.endswith(".py")}


def everywhere(check: Callable[[str], list[str]], found: dict[str, str]) -> list[str]:
    assert found
    return [f"{name}:{problem}" for name, text in found.items() for problem in check(text)]
