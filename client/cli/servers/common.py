"""What the verbs of `kcast servers` share: errors in one line, also where an extra is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from kcast.client.cli.common import EXIT_USAGE, errors_as_lines, fail, how_to_install

# What is imported only where a verb needs it -> the extra that brings it, and what it is for.
_EXTRAS = {
    "nacl": ("trust", "signatures"),
    "cryptography": ("trust", "keys"),
    "pymerkle": ("list-log", "the log of a list"),
}


@contextmanager
def errors_of(verb: str) -> Iterator[None]:
    """Turns the errors that users can meet into one line and an exit code."""
    with errors_as_lines(f"servers {verb}"):
        try:
            yield
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in _EXTRAS:
                raise
            extra, purpose = _EXTRAS[missing]
            install = how_to_install(extra)
            fail(f"servers {verb}", f"{purpose}: {missing} is missing: {install} brings it", EXIT_USAGE)
