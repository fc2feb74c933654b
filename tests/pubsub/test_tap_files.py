"""pubsub/tap_files.py: a bound on disk that holds at every moment, and nobody else's files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcast.pubsub.tap_files import FILES_MAX, FILES_PER_BOUND, TapFiles, numbered
from kcast.pubsub.tap_format import MAGIC, TapError

pytestmark = pytest.mark.world

BOUND = 8000
FULL = BOUND // FILES_PER_BOUND


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.parent.iterdir())}


def tap(number: int = 0, size_bytes: int = 20) -> bytes:
    """What passes for a tap file."""
    return (MAGIC + b"%d " % number).ljust(size_bytes, b".")


def write_files(path: Path, sizes: dict[int, int]) -> None:
    for number, size_bytes in sizes.items():
        numbered(path, number).write_bytes(tap(number, size_bytes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tap"


def test_files_move_on_when_the_next_begins(path: Path) -> None:
    files = TapFiles(path, BOUND)
    for number in range(3):
        files.write(tap(number))
        if number < 2:
            files.rotate()
    files.close()
    assert contents(path) == {"tap": tap(2), "tap.1": tap(1), "tap.2": tap(0)}


def test_bound_is_shared_out_so_that_the_oldest_eighth_goes(path: Path) -> None:
    files = TapFiles(path, BOUND)
    assert files.file_bytes_max == FULL
    for number in range(20):
        files.write(tap(number, FULL))
        files.rotate()
    files.close()
    kept = range(19, 19 - FILES_PER_BOUND + 1, -1)
    assert contents(path) == {"tap": b""} | {f"tap.{20 - n}": tap(n, FULL) for n in kept}


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.dictionaries(st.integers(0, FILES_MAX - 1), st.integers(0, BOUND), max_size=12),
    st.lists(st.none() | st.integers(1, FULL), max_size=30),
)
def test_bound_holds_at_every_moment(
    tmp_path_factory: pytest.TempPathFactory, before: dict[int, int], steps: list[int | None]
) -> None:
    """None begins the next file, a number is written. Looked at after each change to the folder."""
    path = tmp_path_factory.mktemp("bound") / "tap"
    write_files(path, before)
    is_bound_to_hold = False

    def look() -> None:
        size_bytes = sum(file.stat().st_size for file in path.parent.iterdir())
        assert not is_bound_to_hold or size_bytes <= BOUND

    with pytest.MonkeyPatch.context() as patch:
        watch(patch, look)
        files = TapFiles(path, BOUND)
        is_bound_to_hold = True
        look()
        file_bytes = 0
        for step in steps:
            if step is None or file_bytes + step > files.file_bytes_max:
                files.rotate()
                file_bytes = 0
            if step is not None:
                files.write(tap(0, step))
                file_bytes += step
        files.close()
    assert len(list(path.parent.iterdir())) <= FILES_MAX


def watch(patch: pytest.MonkeyPatch, look: Callable[[], None]) -> None:
    """Has `look` called after each call that changes a folder or a file."""
    for owner, name in ((os, "write"), (os, "open"), (Path, "rename"), (Path, "unlink")):
        original = getattr(owner, name)

        def watched(
            *arguments: object, original: Callable[..., object] = original, **options: object
        ) -> object:
            result = original(*arguments, **options)
            look()
            return result

        patch.setattr(owner, name, watched)


def test_files_of_an_earlier_life_are_kept(path: Path) -> None:
    write_files(path, {0: 100, 1: 200, 4: 300})
    TapFiles(path, BOUND).close()
    assert contents(path) == {"tap": b"", "tap.1": tap(0, 100), "tap.2": tap(1, 200), "tap.5": tap(4, 300)}


def test_server_that_keeps_crashing_leaves_a_bounded_number_of_files(path: Path) -> None:
    for number in range(FILES_MAX + 5):
        files = TapFiles(path, 1024 * 1024)
        files.write(tap(number))
        files.close()
    found = contents(path)
    assert len(found) == FILES_MAX
    assert found[f"tap.{FILES_MAX - 1}"] == tap(5)


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    TapFiles(tmp_path / "tap", BOUND).close()
    assert (tmp_path / "tap").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [0, 1, 7, FILES_MAX - 1])
@pytest.mark.parametrize("content", [b"thesis", b"\x89PNG\r\n\x1a\n", b"\x89kcast\n"])
def test_foreign_file_is_refused_and_nothing_moved(number: int, content: bytes, path: Path) -> None:
    write_files(path, {0: 100, 1: 100})
    numbered(path, number).write_bytes(content)
    before = contents(path)
    with pytest.raises(TapError, match="is no tap file, and would be moved or deleted"):
        TapFiles(path, BOUND)
    assert contents(path) == before


def test_what_is_no_regular_file_is_refused(tmp_path: Path, path: Path) -> None:
    path.mkdir()
    with pytest.raises(TapError, match="is no regular file"):
        TapFiles(path, BOUND)
    path.rmdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TapError, match="is no regular file"):
        TapFiles(path, BOUND)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(TapError, match="is no regular file"):
        TapFiles(path, BOUND)
    with pytest.raises(TapError, match="is no regular file"):
        TapFiles(Path("/dev/null"), BOUND)


def test_file_that_is_being_written_is_refused(path: Path) -> None:
    files = TapFiles(path, BOUND)
    for _ in range(2):
        files.write(tap(1))
        before = contents(path)
        with pytest.raises(TapError, match="is being written by another server"):
            TapFiles(path, BOUND)
        assert contents(path) == before
        files.rotate()  # the next file is held as well
    files.close()
    TapFiles(path, BOUND).close()


def test_short_writes_are_carried_on(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    files = TapFiles(path, BOUND)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
    for data in (tap(1, 70), bytearray(tap(1, 71)), b"", tap(1, 7)):
        files.write(data)
    files.close()
    assert path.read_bytes() == tap(1, 70) + tap(1, 71) + tap(1, 7)
