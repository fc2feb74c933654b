"""What `mkdocs build` needs to know of this checkout; mkdocs.yml names this file.

Pages keep their paths in the checkout, so that a link that works there works in the site, and is checked.
"""

import re
from pathlib import Path
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PACKAGES = ("pubsub", "client", "hashring", "loadtest", "spark")
# Beside docs/: what is a page, or linked from one.
MORE = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"),
    *("pubsub/PROTOCOL.md", "client/sealed/PROTOCOL.md", "client/trust/PROTOCOL.md"),
    *("client/layers/PROTOCOL.md", "client/history/PROTOCOL.md", "compose.yaml", "Dockerfile"),
)


def on_startup(**_: object) -> None:
    """Puts the packages' folders under the names that they are imported by, for the API reference."""
    names = ROOT / "build/site-names/kcast"
    names.mkdir(parents=True, exist_ok=True)
    for path in (*map(ROOT.joinpath, PACKAGES), *(ROOT / "client/kcast").glob("*.py")):  # kcast's own modules
        link = names / path.name
        if not link.is_symlink():
            link.symlink_to(path)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The site's files, by their paths in the checkout; the theme's own stay as they are."""
    docs = Path(config.docs_dir)
    paths = [path for path in docs.rglob("*") if path.is_file()]
    paths += [ROOT / name for name in MORE]
    found = [file for file in files if not str(file.abs_src_path or "").startswith(f"{docs}/")]
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        found.append(File.generated(config, name, abs_src_path=str(path)))
    return Files(found)


class Markdown(Extension):
    """Docstrings as Markdown: examples (`>>>`) become blocks of code, lines `name: ...` a list."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrites an object's docstring."""
        if obj.docstring is not None:
            text = obj.docstring.value
            text = re.sub(r"^>>> (?:.+\n?)+", r"```pycon\n\g<0>\n```\n", text, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"^([a-z_]+): ", r"- `\1`: ", text, flags=re.MULTILINE)
