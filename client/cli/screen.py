"""A terminal's whole screen, drawn again and again, and given back as it was.

Plain control sequences, as every terminal of today knows them (ECMA-48, and xterm's alternate screen).
"""

import os
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"  # the alternate screen, no cursor, clear
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def is_screen() -> bool:
    """Returns whether standard output is a terminal that can be drawn on."""
    try:
        return os.isatty(sys.stdout.fileno()) and os.environ.get("TERM", "dumb") != "dumb"
    except (OSError, ValueError, AttributeError):
        return False


class Screen:
    """The screen of the terminal that standard output is. Use it with `with`."""

    def __init__(self) -> None:
        self._keys: int | None = None
        self._settings: list[int | list[bytes | int]] = []
        with suppress(OSError, ValueError, AttributeError):
            if os.isatty(sys.stdin.fileno()):
                self._keys = sys.stdin.fileno()

    @property
    def keys(self) -> int | None:
        """The descriptor from which keys are read, one by one; None where there is no keyboard."""
        return self._keys

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        return columns or 80, rows or 24

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def enter(self) -> None:
        """Takes the screen, and keys as they are typed."""
        if self._keys is not None:
            self._settings = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys, termios.TCSANOW)
        self._write(_ENTER)

    def leave(self) -> None:
        """Gives back the screen and the keyboard as they were."""
        with suppress(OSError):
            self._write(_LEAVE)
        if self._keys is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(self._keys, termios.TCSANOW, self._settings)

    def draw(self, lines: Sequence[str]) -> None:
        """Draws lines, which must fit the size, in place of what is there, without flicker."""
        drawn = "\n".join(f"{line}{_CLEAR_LINE}" for line in lines)
        self._write(f"{_HOME}{drawn}{_CLEAR_BELOW}")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
