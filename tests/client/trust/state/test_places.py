"""client/trust/state/places.py: where a name is looked up. None of it needs an extra."""

from pathlib import Path

import pytest

from kcast.client.trust.state import places
from kcast.client.trust.state.places import (
    StateError,
    bundle_beside,
    dropped,
    folder_of,
    is_known,
    known_names,
    state_root,
)

NAME = "example.org/lab"


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(places.PATH_VARIABLE, "")


def drop(folder: Path, name: str, file: str = "lab.trust") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(f"kcast-trust 1\nname {name}\nversion 1\n")
    return folder / file


def test_the_state_stands_where_the_specification_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state_root() == tmp_path / "state/kcast/trust"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_root() == tmp_path / ".local/state/kcast/trust"
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    with pytest.raises(StateError, match="set HOME or XDG_STATE_HOME"):
        state_root()
    assert not is_known(NAME)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("lab", "lab"),
        (NAME, "example.org%2Flab"),
        (".", "%2E"),
        ("..", "%2E."),
        ("../x", "%2E.%2Fx"),
        ("a%2Fb", "a%252Fb"),
    ],
)
def test_no_name_leads_out(name: str, folder: str, tmp_path: Path) -> None:
    assert folder_of(name, tmp_path) == tmp_path / folder


def test_a_name_is_known_by_its_state(tmp_path: Path) -> None:
    assert not is_known(NAME) and known_names() == []
    folder_of(NAME).mkdir(parents=True)
    assert not is_known(NAME)
    (folder_of(NAME) / "current").symlink_to("1.1")  # whether or not it leads anywhere
    assert is_known(NAME) and known_names() == [NAME]


def test_a_name_is_known_where_a_document_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setenv(places.PATH_VARIABLE, f"{first}:{tmp_path / 'missing'}:{second}")
    assert dropped(NAME) is None
    later = drop(second, NAME)
    assert dropped(NAME) == later and is_known(NAME) and known_names() == [NAME]
    assert bundle_beside(later) is None
    later.with_suffix(".bundle").touch()
    assert bundle_beside(later) == second / "lab.bundle"
    assert dropped(NAME) == later
    earlier = drop(first, NAME)
    drop(first, "example.org/other", "other.trust")
    (first / "odd.trust").mkdir()
    (first / "bad.trust").write_bytes(b"\xff name x")
    assert dropped(NAME) == earlier and known_names() == [NAME, "example.org/other"]
