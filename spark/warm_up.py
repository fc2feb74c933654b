"""Makes an archive of Java's classes, with which Spark starts in half the time.

    python -m kcast.spark.warm_up [--once]

With `--once`, it does nothing where there is one. It analyses a capture of a single message, and has Java
write down the classes that this takes: 180 MB, in the folder of this installation
(`session.class_archive`). It takes about half a minute.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kcast.client.cli.common import EXIT_FAILURE, EXIT_USAGE, say
from kcast.client.cli.text import tell
from kcast.loadtest.capture.sample import write_sample
from kcast.spark.analysis import analyse
from kcast.spark.capture.captures import CaptureError, open_captures
from kcast.spark.session import class_archive
from kcast.spark.session.failures import SparkFailed
from kcast.spark.session.java import JavaMissing, java_home
from kcast.spark.session.start import start

_NAME = "warm-up"


def main(*arguments: str) -> int:
    """Makes the archive; returns the exit code."""
    if arguments not in ((), ("--once",)):
        say(_NAME, "wrong usage: give nothing, or --once")
        return EXIT_USAGE
    try:
        with TemporaryDirectory(prefix="kcast-warm-up-") as folder:
            if arguments and class_archive.options(java_home(Path(folder) / "java")):
                return 0
            run = write_sample(Path(folder) / "run")
            with start("local[2]", archives=True) as spark:
                analyse(spark, open_captures(spark, [str(run)]))
    except (CaptureError, JavaMissing, SparkFailed, OSError) as error:
        say(_NAME, f"{error}; kcast works all the same, and starts as before")
        return EXIT_FAILURE
    tell(f"in {class_archive.folder()}: an archive of Java's classes, with which kcast analyse starts sooner")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
