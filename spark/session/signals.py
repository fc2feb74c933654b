"""Ctrl-C and SIGTERM while Spark works."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_AGAIN_S = 0.5  # jobs that were not yet begun are then


class Signals:
    """Makes Ctrl-C, and SIGTERM, which would leave temporary files, end what Spark does and then the program.

    Not where the program has a say in what they do. Within a call to Java Python may make another one before
    it lets an exception through, and that one waits for the first: so all jobs are cancelled, those too that
    are only being planned now, and whatever error comes of that is told as what it is.
    """

    _DEFAULTS: Final = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

    def __init__(self, cancel: Callable[[], None]) -> None:
        """`cancel` ends Spark's jobs, from another thread; it is called until all is over."""
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
        """Handles those that the program leaves to their defaults; the others as it does."""
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
        """Lets the first that comes wait until this is over; a second one does not."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._raised is not None:
            raise self._raised

    @contextmanager
    def come_first(self) -> Iterator[None]:
        """Lets nothing else through once one has come."""
        try:
            yield
        except BaseException:
            if self._raised is not None:
                raise self._raised from None
            raise
