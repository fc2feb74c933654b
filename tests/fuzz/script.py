"""Bytes read as a script: what is to be done, and with what. Any bytes are one."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Script:
    """Reads bytes from the first to the last. Beyond the end all are 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def has_more(self) -> bool:
        """Whether there are bytes left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """Returns the next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def choice(self, items: Sequence[Item]) -> Item:
        """Returns one of these, by the next byte."""
        return items[self.byte() % len(items)]

    def text(self) -> bytes:
        """Returns the bytes up to the next NUL, which ends them."""
        end = self._data.find(b"\0", self._at)
        end = len(self._data) if end < 0 else end
        text = self._data[self._at : end]
        self._at = end + 1
        return text
