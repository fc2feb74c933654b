"""What the documents name is there: files, modules and what stands in them, targets of make, and links."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

TOP = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "pubsub/PROTOCOL.md"),
    *("client/sealed/PROTOCOL.md", "client/trust/PROTOCOL.md", "client/layers/PROTOCOL.md"),
    "client/history/PROTOCOL.md",
)
PAGES = sorted([*TOP, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))])

PACKAGES = ("pubsub", "client", "hashring", "loadtest", "spark")
FOLDERS = r"(?:pubsub|client|hashring|loadtest|spark|tests|docs|tools|\.ci|\.github)"
PLACE = re.compile(rf"(?<![\w/.<-])({FOLDERS}/[\w./*-]*[\w*/])(?::(\w+))?")
NAME = re.compile(r"(?<![\w.])((?:kcast\.(?:pubsub|client|hashring|loadtest|spark)|tests)(?:\.\w+)+)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
MAKE = re.compile(r"(?<![\w-])make ([a-z][a-z-]*)")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def stands_in(name: str, source: str) -> bool:
    """Whether a module's source defines a name, at its top or in a class, or imports it for others."""
    defined = (
        rf"^\s*(?:async )?(?:def|class) {name}\b|^\s*{name}\b(?:: .+)? ?=|^    {name},$| import .*\b{name}\b"
    )
    return re.search(defined, source, re.MULTILINE) is not None


def missing_places(text: str, root: Path = ROOT) -> list[str]:
    """The `folder/file` and `folder/file:name` of a text that are not in the checkout."""
    found = []
    for place, name in PLACE.findall(text):
        paths = list(root.glob(place.rstrip("/")))
        if not paths or (name and not stands_in(name, paths[0].read_text())):
            found.append(f"{place}:{name}" if name else place)
    return found


def missing_names(text: str, root: Path = ROOT) -> list[str]:
    """The dotted names of a text that are no module, package, or what a module defines."""
    found = []
    for name in NAME.findall(text):
        parts = name.removeprefix("kcast.").split(".")
        known = max(n for n in range(1, len(parts) + 1) if n == 1 or exists(root.joinpath(*parts[:n])))
        left, module = parts[known:], root.joinpath(*parts[:known])
        source = next((path.read_text() for path in sources(module) if path.exists()), "")
        if not all(stands_in(part, source) for part in left):
            found.append(name)
    return found


def exists(module: Path) -> bool:
    return any(path.exists() for path in sources(module))


def sources(module: Path) -> tuple[Path, Path]:
    return module.with_suffix(".py"), module / "__init__.py"


def slugs(text: str) -> set[str]:
    """The anchors that a page's headings have: those that are the same on GitHub and on the site."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    return {anchor for anchor in anchors if "--" not in anchor}  # the site makes one dash of several


def broken_links(page: str, text: str, root: Path = ROOT) -> list[str]:
    found = []
    for target, anchor in LINK.findall(CODE.sub("", text)):
        if ":" in target:
            continue
        path = (root / page).parent / target if target else root / page
        is_there = path.exists() and (path.suffix == ".md" or is_on_the_site(path.resolve(), root))
        if not is_there or (anchor and anchor not in slugs(path.read_text())):
            found.append(f"{target}#{anchor}" if anchor else target)
    return found


def is_on_the_site(path: Path, root: Path) -> bool:
    """Whether the site has a file that is no page. tools/site.py takes those of docs/, and names others."""
    name = path.relative_to(root).as_posix()
    return name.startswith("docs/") or f'"{name}"' in (ROOT / "tools/site.py").read_text()


def missing_targets(text: str, makefile: str) -> list[str]:
    wanted = {name for code in CODE.findall(text) for name in MAKE.findall(code)}
    return [name for name in sorted(wanted) if not re.search(rf"^{name}:", makefile, re.MULTILINE)]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    assert missing_places(text) == []
    assert missing_names(text) == []
    assert missing_targets(text, (ROOT / "Makefile").read_text()) == []
    assert broken_links(page, text) == []


def test_each_page_is_in_the_sites_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in PAGES if f": {page}\n" not in navigation] == []


def test_each_package_is_on_the_map() -> None:
    """CONTRIBUTING says which question each folder of modules answers."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("## The map")[1].split("\n## ")[0]
    folders = [
        path.parent.relative_to(ROOT)
        for package in PACKAGES
        for path in ROOT.glob(f"{package}/**/__init__.py")
    ]
    assert folders
    assert [str(folder) for folder in folders if len(folder.parts) < 3 and f"`{folder}/" not in table] == []


# The checks on the checks.


def test_what_is_not_there_is_found() -> None:
    text = (
        "see `spark/launch.py:launch`, spark/launch.py:walk, docs/*.md and (loadtest/nothing.py). kcast/spark"
    )
    assert missing_places(text) == ["spark/launch.py:walk", "loadtest/nothing.py"]
    text = "`kcast.client.core.ClientCore`, kcast.client.core.Nobody. Then kcast.spark.nothing; tests.support"
    assert missing_names(text) == ["kcast.client.core.Nobody", "kcast.spark.nothing"]
    assert missing_targets("make sure: `make test` and `make nothing`", "test: lint\n") == ["nothing"]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text("# A page, *first*\n```\n# no heading\n```\n")
    links = "[a](one.md) [b](one.md#a-page-first) [c](one.md#no-heading) [d](two.md) [e](https://example.net)"
    assert broken_links("other.md", links, tmp_path) == ["one.md#no-heading", "two.md"]


# The program of docs/sans-io.md.


def test_the_cores_work_without_a_network_as_the_page_says() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/sans-io.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == ("b'4 degrees'\n", "")
