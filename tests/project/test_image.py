"""Dockerfile, compose.yaml, and what the image is built from: versions with hashes; bounds."""

import re
import tomllib
from importlib.metadata import requires
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kcast.pubsub.limits import Limits
from tests.support.checkout import ROOT

yaml: Any = pytest.importorskip("yaml")

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


@pytest.mark.parametrize("name", [RUNTIME, BUILD])
def test_the_locks_have_the_versions_that_kcast_is_tested_with(name: str) -> None:
    """Else `make lock` is due."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", text_of("constraints.txt"), re.MULTILINE))
    tested = {str(canonicalize_name(each)): version for each, version in pins.items()}
    assert {each: tested[each] for each in locked(name)} == locked(name)


def test_compiled_packages_have_a_hash_for_each_python_and_machine() -> None:
    pythons = sum("Python :: 3." in line for line in about()["project"]["classifiers"])
    for entry in ENTRY.finditer(text_of(RUNTIME)):
        if entry["name"] in ("numpy", "uvloop", "xxhash"):
            assert entry["hashes"].count("sha256:") == 2 * pythons, entry["name"]


def test_pip_installs_nothing_in_the_image_without_a_hash() -> None:
    text = text_of("Dockerfile").replace("\\\n", " ")
    installs = [command for command in re.split(r"&&|\n", text) if re.search(r"\bpip\b.* install ", command)]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or "--no-index" in command, command
    (wheel,) = (command for command in re.split(r"&&|\n", text) if "pip wheel" in command)
    assert "--no-deps" in wheel and "--no-build-isolation" in wheel


def test_containers_are_bounded() -> None:
    """Memory, cores, processes, logs; and one network does not have the whole table."""
    compose = yaml.safe_load(text_of("compose.yaml"))
    for service in compose["services"].values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert {"mem_limit", "pids_limit", "cpus"} <= set(service)
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    (share,) = {
        int(option.partition("=")[2])
        for service in compose["services"].values()
        for option in service["command"]
        if option.startswith("--leases-per-prefix=")
    }
    assert share <= Limits().leases // 2


def test_the_base_image_can_be_pinned_by_its_digest() -> None:
    build = yaml.safe_load(text_of("compose.yaml"))["services"]["server-1"]["build"]
    assert build["args"] == {"BASE_IMAGE": "${KCAST_BASE_IMAGE:-python:3.12-slim}"}
    assert text_of("Dockerfile").count("FROM ${BASE_IMAGE}") == 2
    assert "ARG BASE_IMAGE=python:3.12-slim" in text_of("Dockerfile")


def test_the_locks_reach_the_engine() -> None:
    assert {f"!{RUNTIME}", f"!{BUILD}"} <= set(text_of(".dockerignore").split())
