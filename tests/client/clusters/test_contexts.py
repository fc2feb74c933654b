import os
from pathlib import Path

import pytest

from kcast.client.clusters import contexts
from kcast.client.clusters.contexts import ContextError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an own configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    return tmp_path / "configuration" / "kcast"


def kept(folder: Path) -> list[str]:
    return [path.name for path in (folder / "contexts").iterdir()]


def test_before_anything_is_kept_there_is_nothing(folder: Path) -> None:
    assert (contexts.names(), contexts.in_use(), contexts.meaning("prod")) == ([], None, None)
    assert not folder.exists(), "who reads writes nothing"


def test_what_is_kept_is_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    contexts.add("prod", "/etc/kcast/prod.cluster")
    contexts.add("here", "sub/lab.txt")
    contexts.add("signed", "@prod")
    assert contexts.names() == ["here", "prod", "signed"]
    assert contexts.meaning("prod") == "/etc/kcast/prod.cluster"
    assert contexts.meaning("here") == str(tmp_path / "sub/lab.txt"), "the path is absolute"
    assert contexts.meaning("signed") == "@prod"
    contexts.add("prod", "/elsewhere")
    assert contexts.meaning("prod") == "/elsewhere"
    assert sorted(kept(folder)) == ["here", "prod", "signed"], "nothing else is left behind"


def test_one_is_in_use_until_it_is_removed() -> None:
    contexts.add("prod", "/p")
    contexts.add("lab", "/l")
    contexts.use("prod")
    assert contexts.in_use() == "prod"
    contexts.remove("lab")
    assert contexts.in_use() == "prod"
    contexts.remove("prod")
    assert (contexts.in_use(), contexts.names()) == (None, [])
    contexts.add("lab", "/l")
    contexts.use("lab")
    contexts.use(None)
    assert (contexts.in_use(), contexts.names()) == (None, ["lab"])


@pytest.mark.parametrize("name", ["", "-x", "a.b", "a/b", "..", "@a", "a b", "é", "a\n", "x" * 65])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(ContextError, match="cannot be a context's name: give 1 to 64 of A-Z"):
        contexts.add(name, "/p")
    assert contexts.meaning(name) is None
    assert contexts.names() == []


@pytest.mark.parametrize("path", ["/with space", "/with\nline", "/not-utf-8-\udcff", f"/{'x' * 4000}"])
def test_any_path_is_kept(path: str) -> None:
    contexts.add("odd", path)
    assert contexts.meaning("odd") == path


@pytest.mark.parametrize("data", [b"", b"\n", b"relative\n", b"\xff\x00", b" /p"])
def test_what_is_no_path_is_told(folder: Path, data: bytes) -> None:
    contexts.add("odd", "/p")
    (folder / "contexts" / "odd").write_bytes(data)
    with pytest.raises(ContextError, match="context odd: it holds no path: 'kcast context add odd FILE'"):
        contexts.meaning("odd")


def test_the_configuration_is_where_the_specification_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        contexts.add("prod", f"/{value}")
        assert (tmp_path / ".config/kcast/contexts/prod").read_text() == f"/{value}\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_or_read_is_told(folder: Path) -> None:
    contexts.add("prod", "/p")
    (folder / "contexts").chmod(0)
    try:
        for use in (contexts.names, lambda: contexts.meaning("prod"), lambda: contexts.add("x", "/x")):
            with pytest.raises(ContextError, match=r"contexts cannot be kept or read: .*: Permission denied"):
                use()
    finally:
        (folder / "contexts").chmod(0o755)


def test_a_full_disk_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts.add("prod", "/before")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ContextError, match="No space left on device"):
        contexts.add("prod", "/after")
    assert contexts.meaning("prod") == "/before"
    assert kept(folder) == ["prod"]
