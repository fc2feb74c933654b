"""spark/session/class_archive.py: an archive is used where it fits, and its absence changes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcast.spark.session import class_archive

LIMIT_S = 200


def fake_home(folder: Path, release: str | None, *, has_base: bool = True, dumps: bool = True) -> Path:
    """A JAVA_HOME that says what it is, whose Java writes an archive if it is asked to."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / "server").mkdir(parents=True)
    if has_base:
        (folder / "lib" / "server" / "classes.jsa").touch()
    if release is not None:
        (folder / "release").write_text(release)
    java = folder / "bin" / "java"
    writes = 'for a do case $a in -XX:SharedArchiveFile=*) : >"${a#*=}";; esac; done' if dumps else "exit 1"
    java.write_text(f"#!/bin/sh\n{writes}\n")
    java.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archive, "folder", lambda: tmp_path / "archives")
    return tmp_path / "archives"


def test_an_archive_is_used_once_it_is_there(tmp_path: Path, own_folder: Path) -> None:
    home, other = fake_home(tmp_path / "a", "JAVA 17"), fake_home(tmp_path / "b", "JAVA 21")
    assert class_archive.options(home) == ()
    (making,) = class_archive.making_options(home)
    assert class_archive.options(home) == ()
    Path(making.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(b"archive")
    kept = class_archive.keep(home)
    assert kept.parent == own_folder
    assert class_archive.options(home)[0] == f"-XX:SharedArchiveFile={kept}"
    assert class_archive.options(other) == ()


def test_a_java_without_an_archive_of_its_own_gets_one_below(tmp_path: Path) -> None:
    home = fake_home(tmp_path / "a", "JAVA 25", has_base=False)
    below, making = class_archive.making_options(home)
    Path(making.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(b"archive")
    kept = class_archive.keep(home)
    base = below.removeprefix("-XX:SharedArchiveFile=")
    assert class_archive.options(home)[0] == f"-XX:SharedArchiveFile={base}:{kept}"


@pytest.mark.parametrize(
    ("release", "dumps", "why"),
    [(None, True, "no file `release`"), ("JAVA", False, "cannot write an archive of its classes")],
)
def test_a_java_that_cannot_make_one_is_named(
    tmp_path: Path, release: str | None, dumps: bool, why: str
) -> None:
    home = fake_home(tmp_path / "a", release, has_base=False, dumps=dumps)
    with pytest.raises(OSError, match=why):
        class_archive.making_options(home)
    assert class_archive.options(home) == ()


def test_a_java_that_ended_without_writing_one_is_named(tmp_path: Path) -> None:
    home = fake_home(tmp_path / "a", "JAVA")
    class_archive.making_options(home)
    with pytest.raises(OSError, match="has written no archive"):
        class_archive.keep(home)


USE = """
import sys
from kcast.spark import warm_up
from kcast.spark.session.start import start
code = warm_up.main("--once")
with start("local[1]", memory="1g", conf={"spark.driver.extraJavaOptions": "-Xshare:on"}) as spark:
    print(spark.range(1000).count())
    print(*spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
sys.exit(code)
"""


@pytest.mark.spark
def test_java_can_use_the_one_of_this_installation(tmp_path: Path) -> None:
    """`make test-spark` makes it first, which takes half a minute; without make this test does."""
    done = subprocess.run(
        [sys.executable, "-c", USE],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    # -Xshare:on: Java would not start with an archive that does not fit.
    assert done.returncode == 0, done.stderr
    *_, counted, options = done.stdout.splitlines()
    assert counted == "1000"
    assert "-XX:SharedArchiveFile=" in options
    assert not list(tmp_path.iterdir()), "something was left behind"
