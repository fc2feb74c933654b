"""How much may be on its way to one server, so that bursts do not overrun buffers. Sans-IO.

A burst that is longer than the receive buffer of a server is lost there, in part, and nobody is told. So a
client sends a window's worth, and goes on when the server answers to some of it: by a receipt, or to a ping
behind lines that need none. A server that is slow, or far away, or whose answer is lost, holds the rest up
for a moment only.
"""

from math import inf

WINDOW_BYTES = 65_536  # fits a buffer of 208 KiB, Linux' default, three times
WAIT_S = 0.01  # after which nothing counts as on its way any more; so a far server gets 6 MB/s at least


class Window:
    """What is on its way to one server. `sent_bytes` counts all that was ever sent there."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self._taken_bytes = 0
        self._sent_at = -inf

    def room_bytes(self, now: float) -> int:
        """Returns how many bytes may leave now; at most those of one datagram less, where any may."""
        if now >= self._sent_at + WAIT_S:
            self._taken_bytes = self.sent_bytes
        return WINDOW_BYTES - (self.sent_bytes - self._taken_bytes)

    @property
    def opens_at(self) -> float:
        """When the wait is over, if no answer comes before."""
        return self._sent_at + WAIT_S

    def sent(self, size_bytes: int, now: float) -> int:
        """Notes what leaves; returns the mark of it, for `answered`."""
        self.sent_bytes += size_bytes
        self._sent_at = now
        return self.sent_bytes

    def answered(self, mark: int) -> None:
        """Takes it that the server has taken all up to a mark, since it has answered to what left then."""
        self._taken_bytes = max(self._taken_bytes, mark)
