"""The folders beside a report that have what became of each pair: which are there from an earlier analysis.

No Spark: what is in the way is told before Spark starts.
"""

import shutil
from pathlib import Path

PAIRS_FOLDER, MISSES_FOLDER = "pairs", "misses"

_SPARKS = ("part-", ".part-", "_SUCCESS", "._SUCCESS", "_temporary")
"""How the names of files begin that Spark writes into a folder of its own."""


def refuse_others(out: Path) -> None:
    """Raises OSError if one of the folders has anything but what an earlier analysis wrote."""
    for name in (PAIRS_FOLDER, MISSES_FOLDER):
        folder = out / name
        if folder.exists() and not _is_ours(folder):
            raise FileExistsError(f"{folder} is no folder of an earlier analysis: give another --out")


def remove_earlier(out: Path) -> None:
    """Removes what an earlier analysis wrote: else a report would stand beside the pairs of another.

    Raises OSError.
    """
    for name in (PAIRS_FOLDER, MISSES_FOLDER):
        folder = out / name
        if folder.exists() and _is_ours(folder):
            shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and all(path.name.startswith(_SPARKS) for path in folder.iterdir())
    )
