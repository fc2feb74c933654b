"""Tidiness of the project's files: what a reviewer should never have to look for."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.project_files import PACKAGES, dotted, everywhere, modules, texts

LINE_CHARS_MAX = 110
MODULE_LINES_MAX = 520

# Patterns stand here in pieces, so that this file is tidy by its own rules.
BUILD_PLACES = ("/wo" + "rk/", "/fa" + "rm/", "/root" + "/.", "/opt" + "/wheels", "/opt" + "/pypi")
REGISTRIES = (
    *("pypi" + ".org", "python" + "hosted.org", "ana" + "conda.org", "piwheels" + ".org"),
    *("deb.debian" + ".org", "registry-1.docker" + ".io", "gh" + "cr.io", "npmjs" + ".org"),
)
MARKER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)( *; *(?P<marker>.+))?")
RELEASE = re.compile(
    r"## (?P<version>\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)|## \d+\.\d+\.\d+ \(not yet released\)"
)


# What is looked at.


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(texts()["pyproject.toml"])["project"]
    return table


# What is checked: each takes a file's text and names what is wrong with it.


def strangers(text: str, needles: tuple[str, ...]) -> list[str]:
    return [f"{number}: {needle}" for number, line in numbered(text) for needle in needles if needle in line]


def markers(text: str) -> list[str]:
    return [f"{number}: {found[0]}" for number, line in numbered(text) if (found := MARKER.search(line))]


def long_lines(text: str) -> list[str]:
    return [
        f"{number}: {len(line)} characters" for number, line in numbered(text) if len(line) > LINE_CHARS_MAX
    ]


def numbered(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.split("\n"), 1)


def pins(text: str) -> list[re.Match[str]]:
    """The pins of a constraints file. Anything else there (option, address, range) is an error."""
    found = []
    for number, line in numbered(text):
        if line and not line.startswith("#"):
            pin = PIN.fullmatch(line)
            assert pin, f"constraints.txt:{number}: {line!r} is no pin"
            found.append(pin)
    return found


def unpinned(requirements: list[str], constraints: str) -> list[str]:
    """The requirements that no pin meets."""
    versions: dict[str, list[str]] = {}
    for pin in pins(constraints):
        versions.setdefault(canonicalize_name(pin["name"]), []).append(pin["version"])
    bad = []
    for requirement in map(Requirement, requirements):
        pinned = versions.get(canonicalize_name(requirement.name), [])
        if not pinned or not all(requirement.specifier.contains(version) for version in pinned):
            bad.append(f"{requirement}: pinned {pinned or 'nowhere'}")
    return bad


def latest_release(changelog: str) -> re.Match[str]:
    heading = next((line for line in changelog.splitlines() if line.startswith("## ")), "")
    release = RELEASE.fullmatch(heading)
    assert release, f"CHANGELOG.md: the first entry is headed {heading!r}"
    return release


# The checks on the project.


def test_no_file_names_the_place_where_it_was_built() -> None:
    assert everywhere(lambda text: strangers(text, BUILD_PLACES), texts()) == []


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert everywhere(lambda text: strangers(text, REGISTRIES), texts()) == []


def test_nothing_is_left_for_later() -> None:
    assert everywhere(markers, texts()) == []


def test_lines_fit() -> None:
    assert everywhere(long_lines, modules()) == []


def test_modules_are_short_enough_to_be_read_at_one_sitting() -> None:
    sizes = {name: text.count("\n") for name, text in modules().items() if name.startswith(PACKAGES)}
    assert {name: lines for name, lines in sizes.items() if lines > MODULE_LINES_MAX} == {}


def test_every_package_says_what_it_is_for() -> None:
    inits = {name: text for name, text in modules().items() if name.endswith("/__init__.py")}
    ours = {name: text for name, text in inits.items() if name.split("/")[0] in PACKAGES}
    assert {f"{package}/__init__.py" for package in PACKAGES} <= set(ours)
    assert [name for name, text in ours.items() if not ast.get_docstring(ast.parse(text))] == []


def test_every_folder_of_modules_is_a_package_that_gets_installed() -> None:
    folders = {Path(name).parent for name in modules() if name.startswith(tuple(f"{p}/" for p in PACKAGES))}
    listed = tomllib.loads(texts()["pyproject.toml"])["tool"]["setuptools"]["packages"]
    assert {dotted(folder.as_posix()) for folder in folders} == set(listed)


def test_the_changelog_begins_with_this_version() -> None:
    version = latest_release(texts()["CHANGELOG.md"])["version"]
    assert version in (None, project()["version"])


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    extras = project()["optional-dependencies"]
    requirements = [*project()["dependencies"], *(name for extra in extras.values() for name in extra)]
    assert unpinned(requirements, texts()["constraints.txt"]) == []


# The checks on the checks.


def test_what_is_untidy_is_found() -> None:
    for needle in BUILD_PLACES + REGISTRIES:
        assert strangers(f"fine\nsee {needle}x", BUILD_PLACES + REGISTRIES) == [f"2: {needle}"]
    word = "TO" + "DO"
    assert markers(f"fine\n# {word}: later\n{word}{word}") == [f"2: {word}"]
    assert long_lines("x" * LINE_CHARS_MAX + "\n" + "x" * (LINE_CHARS_MAX + 1)) == ["2: 111 characters"]


def test_a_missing_and_an_outgrown_pin_are_found() -> None:
    constraints = "# comment\nZope.Interface==8.7\nnumpy==2.4.6 ; python_version < '3.12'\nnumpy==2.5.5\n"
    assert unpinned(["zope-interface>=8", "numpy>=1.26"], constraints) == []
    assert unpinned(["rich>=13", "numpy<2.5"], constraints) == [
        "rich>=13: pinned nowhere",
        "numpy<2.5: pinned ['2.4.6', '2.5.5']",
    ]
    for line in ("-f wheels", "--index-url https://example.net", "rich>=13", "rich @ file:///x"):
        with pytest.raises(AssertionError, match="is no pin"):
            pins(line)
