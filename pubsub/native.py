"""The native router, if it was built when kcast was installed. Sans-IO.

Building takes a compiler. Where there was none, or what was built does not fit this Python, servers route in
Python, which does the same more slowly (`kcast.pubsub.router`).
"""

from kcast.pubsub.router import PYTHON, Router

try:
    import kcast.pubsub._router as _router  # else what is missing is not told from what is wrong
except ImportError as error:
    NATIVE: Router | None = None
    """The native router; None if there is none."""
    is_missing = isinstance(error, ModuleNotFoundError)
    MISSING = "native code was not built, for want of a C compiler" if is_missing else str(error)
    """Why there is none."""
else:
    NATIVE, MISSING = Router(_router.survey, _router.Packer), ""

BEST = NATIVE or PYTHON
"""The fastest router there is."""

DESCRIPTION = f"routing in Python: {MISSING}" if MISSING else "routing in native code"
