"""Whether what is printed can be drawn over."""

import os
from typing import TextIO


def can_redraw(stream: TextIO) -> bool:
    """Returns whether the stream is a terminal on which a line can change: not one that calls itself dumb."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
