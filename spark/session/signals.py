"""Ctrl-C and SIGTERM while Spark works."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_AGAIN_S = 0.5  # jobs are cancelled again, since more may have begun


class Signals:
    """Lets Ctrl-C and SIGTERM cancel Spark's jobs and then end the program, so that no temporary files stay.

    Signals for which the program has a handler of its own are left to it. An exception alone does not
    interrupt a call to Java: before Python lets it through it may make another call, which waits for the
    first. So all jobs are cancelled, also those that are only being planned; and an error that follows from
    that is replaced by KeyboardInterrupt, or SystemExit.
    """

    _DEFAULTS: Final = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

    def __init__(self, cancel: Callable[[], None]) -> None:
        """`cancel` ends Spark's jobs. It is called from another thread, again and again until `__exit__`."""
        self._cancel = cancel
        self._raised: BaseException | None = None
        self._is_held = False
        self._is_over = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in self._DEFAULTS}
            self.claim()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for number, before in self._before.items():
            signal.signal(number, before)

    def claim(self) -> None:
        """Handles the signals for which the program has no handler; restores its handlers of the others."""
        for number, before in self._before.items():
            signal.signal(number, self._handle if before == self._DEFAULTS[number] else before)

    def _handle(self, number: int, _: FrameType | None) -> None:
        is_first = self._raised is None
        self._raised = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        if self._is_held and is_first:
            return
        threading.Thread(target=self._cancel_all, daemon=True).start()
        raise self._raised

    def _cancel_all(self) -> None:
        while True:
            self._cancel()
            if self._is_over.wait(_AGAIN_S):
                return

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delays the first signal until the `with` has ended; a second one acts at once."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._raised is not None:
            raise self._raised

    @contextmanager
    def come_first(self) -> Iterator[None]:
        """Raises the signal's exception instead of any other, once a signal has come."""
        try:
            yield
        except BaseException:
            if self._raised is not None:
                raise self._raised from None
            raise
