"""Captures in, reliability versus K out: what arrived, beside theory, and why the rest did not.

The folders, in the order in which data flows:

capture/      the captures of load tests: files checked, tables read as DataFrames
judging/      all rows of a message brought together, judged and counted
jobs/         counts of pairs and messages, and small sums of them. No Spark
findings/     sums -> tables, theory, verdicts. No Spark
report/       findings -> one HTML page, JSON, CSV, Parquet. No Spark
simulation/   the note of 2004 at its own scale, on Spark
session/      Java, a Spark that is started quietly, its files, its progress

Begin with command.py (`kcast analyse`), request.py (what is asked, and what is wrong with it already),
launch.py (starts Spark), run.py and analysis.py, which calls one folder after the other. outcome.py is what
the screen shows at the end; gate.py judges conditions. submit.py is for spark-submit; notebook.py is for
programs and notebooks, which find its `open_run` here. why.py tells of one message, and needs no Spark.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcast.spark.notebook import open_run as open_run

__all__ = ["open_run"]


def __getattr__(name: str) -> Any:
    # Not before it is asked for: who imports a part of this package need not wait for Spark.
    if name == "open_run":
        try:
            from kcast.spark.notebook import open_run
        except ModuleNotFoundError as error:
            from kcast.client.cli.common import how_to_install

            library = (error.name or "").partition(".")[0]
            words = f"{library} is missing: {how_to_install('spark')} brings it"
            raise ModuleNotFoundError(words, name=library) from None
        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
