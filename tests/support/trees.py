"""Other versions of the project, whose servers and commands tests and benchmarks start beside this one's."""

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.checkout import ROOT

_PACKAGES = ("pubsub", "client", "hashring", "loadtest", "spark")


@dataclass(frozen=True)
class Tree:
    """A version's files. `prefix` stands before the names of its packages: `kcast.` since 0.2.0."""

    folder: Path
    prefix: str
    python_path: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Python imports this version."""
        path = {"PYTHONPATH": self.python_path} if self.python_path else {}
        return {**os.environ, **path, "PYTHONUTF8": "1"}

    def serve(self, *options: str) -> tuple[str, ...]:
        """Returns the command that starts its server."""
        module = f"{self.prefix}pubsub.serve"
        return (sys.executable, "-c", f"from {module} import command; command()", *options)

    def kcast(self, *arguments: str) -> tuple[str, ...]:
        """Returns the command `kcast ...` of this version."""
        return (sys.executable, "-m", f"{self.prefix}client.cli", *arguments)

    def has_option(self, option: str) -> bool:
        """Whether its `kcast serve` knows an option, also a hidden one."""
        files = (self.folder / "pubsub").glob("serve*.py")
        return any(f'"{option}"' in file.read_text() for file in files)

    @property
    def has_native_client(self) -> bool:
        """Whether native code was built for its client."""
        return any((self.folder / "client").rglob("_copies.*so"))


HERE = Tree(ROOT, "kcast.", "")


class NoHistory(Exception):
    """A commit is not in this clone."""


def tree_of(name: str, scratch: Path) -> Tree:
    """Returns the version in a folder, or of a commit, whose files then come to `scratch`.

    Raises NoHistory where the commit is not in this clone.
    """
    folder = Path(name)
    if not folder.is_dir():
        folder = scratch / name
        if not folder.exists():
            archive = subprocess.run(("git", "archive", name), cwd=ROOT, capture_output=True, check=False)
            if archive.returncode:
                raise NoHistory(f"commit {name} is not in this clone: run git fetch --unshallow")
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
                files.extractall(folder, filter="data")
    folder = folder.resolve()
    if '"kcast.pubsub"' not in (folder / "pyproject.toml").read_text():
        return Tree(folder, "", str(folder))
    names = scratch / f"{folder.name}-names"
    (names / "kcast").mkdir(parents=True, exist_ok=True)
    for part in (*(folder / package for package in _PACKAGES), *(folder / "client" / "kcast").glob("*.py")):
        link = names / "kcast" / part.name
        if not link.is_symlink():
            link.symlink_to(part)
    own = names / "kcast" / "__init__.py"
    if not own.exists():  # an older version; without it Python takes the kcast that is installed
        own.touch()
    return Tree(folder, "kcast.", str(names))
