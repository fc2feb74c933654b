"""The time to wait for an answer, estimated from the times that answers have taken (RFC 6298)."""

TIMEOUT_S_FIRST = 1.0  # before the first answer
TIMEOUT_S_MIN = 0.5  # a loaded machine answers late; calling it dead costs more than waiting
TIMEOUT_S_MAX = 3.0


class RoundTripTime:
    """The smoothed round-trip time to one server, and its variation, in seconds."""

    def __init__(self) -> None:
        self._smoothed_s: float | None = None
        self._variation_s = 0.0

    def observe(self, rtt_s: float) -> None:
        """Takes the time of one answer. A nonce tells which request it answers, so every answer counts."""
        if self._smoothed_s is None:
            self._smoothed_s, self._variation_s = rtt_s, rtt_s / 2
            return
        self._variation_s += (abs(rtt_s - self._smoothed_s) - self._variation_s) / 4
        self._smoothed_s += (rtt_s - self._smoothed_s) / 8

    @property
    def timeout_s(self) -> float:
        """The time to wait: the smoothed time and four variations, within bounds."""
        if self._smoothed_s is None:
            return TIMEOUT_S_FIRST
        return min(max(self._smoothed_s + 4 * self._variation_s, TIMEOUT_S_MIN), TIMEOUT_S_MAX)
