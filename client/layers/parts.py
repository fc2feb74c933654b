"""Answers that do not fit into a line: cut into parts by the worker, put together by the caller. Sans-IO.

PROTOCOL §9.11. The worker sends 32 parts; the caller asks for the first one that it lacks, and thereby sets
the pace.
"""

from collections.abc import Sequence

PART_BYTES = 560  # fit on the longest topic, where all is signed or sealed
WINDOW_PARTS = 32
ANSWER_BYTES_MAX = 256 * 1024


def cut(payload: bytes) -> Sequence[bytes]:
    """Returns the parts of an answer, one at least."""
    return [payload[at : at + PART_BYTES] for at in range(0, max(1, len(payload)), PART_BYTES)]


class Assembly:
    """The parts of an answer that have come; `missing` is the first that has not."""

    def __init__(self, parts: int) -> None:
        self.missing = 0
        self.asked_from = 0
        self._parts = parts
        self._left_bytes = ANSWER_BYTES_MAX
        self._came: dict[int, bytes] = {}

    def put(self, part: int, parts: int, payload: bytes) -> bool:
        """Takes a part; returns False where it is too long, another one than before, or one of another number
        of them."""
        if parts != self._parts or self._came.get(part, payload) != payload:
            return False
        if part not in self._came:
            if len(payload) > min(PART_BYTES, self._left_bytes):
                return False
            self._came[part] = payload
            self._left_bytes -= len(payload)
        while self.missing in self._came:
            self.missing += 1
        return True

    @property
    def is_whole(self) -> bool:
        """Whether all have come."""
        return self.missing == self._parts

    @property
    def is_to_go_on(self) -> bool:
        """Whether all have come that were asked for. There may be no more."""
        return self.missing >= self.asked_from + WINDOW_PARTS

    def payload(self) -> bytes:
        """Returns the answer."""
        return b"".join(self._came[part] for part in range(self._parts))
