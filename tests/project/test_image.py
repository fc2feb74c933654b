"""What the image is built from: versions with hashes."""

import re
import tomllib
from importlib.metadata import requires
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.checkout import ROOT

RUNTIME, BUILD = "requirements.lock", "requirements-build.lock"
ENTRY = re.compile(
    r"(?P<name>[a-z0-9.-]+)==(?P<version>[\w.]+)(?P<hashes>( \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def locked(name: str) -> dict[str, str]:
    """Name -> version. Anything else in the file than pins with hashes is an error."""
    text = re.sub(r"^#.*\n", "", text_of(name), flags=re.MULTILINE)
    entries = list(ENTRY.finditer(text))
    assert "".join(entry[0] for entry in entries) == text
    for entry in entries:
        hashes = re.findall("[0-9a-f]{64}", entry["hashes"])
        assert hashes == sorted(set(hashes))
    return {entry["name"]: entry["version"] for entry in entries}


def closure(wanted: list[str]) -> set[str]:
    """The names of all that these requirements bring, by what is installed here."""
    found: set[str] = set()
    waiting = [Requirement(each) for each in wanted]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        waiting += map(Requirement, requires(name) or ())
    return found


def about() -> dict[str, Any]:
    return tomllib.loads(text_of("pyproject.toml"))


def test_the_locks_have_all_that_kcast_needs_and_nothing_else() -> None:
    assert set(locked(RUNTIME)) == closure(about()["project"]["dependencies"])
    assert set(locked(BUILD)) == closure(about()["build-system"]["requires"])


def test_the_locks_have_the_versions_that_kcast_is_tested_with() -> None:
    """Else `make lock` is due."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", text_of("constraints.txt"), re.MULTILINE))
    tested = {str(canonicalize_name(each)): version for each, version in pins.items()}
    for name in (RUNTIME, BUILD):
        assert {each: tested[each] for each in locked(name)} == locked(name)


def test_pip_installs_nothing_in_the_image_without_a_hash() -> None:
    text = text_of("Dockerfile").replace("\\\n", " ")
    installs = [command for command in re.split(r"&&|\n", text) if re.search(r"\bpip\b.* install ", command)]
    assert len(installs) == 3
    assert [each for each in installs if "--require-hashes" not in each and "--no-index" not in each] == []
