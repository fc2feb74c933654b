"""`kcast analyse` for spark-submit, whose options choose master, memory and all else of Spark.

    spark-submit --master spark://HOST:7077 "$(python -m kcast.spark.submit)" RUN... --out DIR

Run by itself it prints its path, which spark-submit needs. Workers need kcast, too.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


def main() -> None:
    """Runs the command if spark-submit has started this file; else prints its path."""
    if _SUBMITTED not in os.environ:
        print(Path(__file__).resolve())
        return
    # Python has put this folder on its path, under which our modules would have other names.
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
    if find_spec("kcast") is None:  # in a checkout, whose folders are the packages of this name
        namespace = ModuleType("kcast")
        namespace.__path__ = [str(_HERE.parent)]
        sys.modules["kcast"] = namespace
    from kcast.spark.command import command

    command(prog_name="spark-submit submit.py")


if __name__ == "__main__":
    main()
