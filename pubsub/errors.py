"""The base of all errors that kcast raises on purpose, and names for the system's."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath


class KcastError(Exception):
    """An error of the caller, or of what the caller was given. The message says what to do.

    Most subclasses are also the nearest built-in error, such as ValueError. What peers do wrong raises
    nothing: it is counted.
    """

    is_misuse = False
    """Whether an argument is none, whatever else there is: then commands end as after other wrong usage."""


@contextmanager
def named(path: str | PathLike[str]) -> Iterator[None]:
    """Lets an OSError say which file it is about, where the system does not: of a disk that is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = fspath(path)
        raise
