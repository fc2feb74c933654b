"""The lines to publish at one server: those that wait for its cookie, and how they leave. Sans-IO.

PROTOCOL §4.2, §6.3, §7.2. A line leaves *vouched for*, with a cookie and for a receipt, or *bare* under a
publish lease, with a ping among the lines about once a second. A line that was not answered is not sent here
again: the core may draw another server for it. A line that was refused because of its cookie gets a second
chance, and so does one that waits for an answer when a cookie like its own is refused; one whose datagram was
too large gets as many as it takes.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from math import inf
from typing import NamedTuple

from kcast.client.cookies import Cookie
from kcast.client.events import Outcome
from kcast.client.requests import VOUCH_BYTES_MAX, Kind, PublishLine, Requests
from kcast.pubsub import wire
from kcast.pubsub.endpoint import datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX

PING_INTERVAL_S = 1.0
_PONG_BYTES = len("%: 11-of-nonce 1000000 drain=1\n")  # a ping's datagram must be no shorter than its answer


class Settled(NamedTuple):
    """What became of publish lines at this server.

    `audience` is the one that their receipt told, if it did; `reason` that of their refusal, "" for all else.
    """

    lines: Collection[PublishLine]
    outcome: Outcome
    audience: int | None = None
    reason: str = ""


class Outbox:
    """The lines to publish at one server; at most `lines_max` of them wait."""

    def __init__(self, requests: Requests, lines_max: int) -> None:
        self.lease_until = -inf  # of the publish lease
        self._lines_max = lines_max
        self._requests = requests
        self._queue: deque[PublishLine] = deque()
        self._again: list[PublishLine] = []  # to be sent again, before the queue
        self._settled: list[Settled] = []
        self._pinged_at = -inf

    def __len__(self) -> int:
        return len(self._queue) + len(self._again)

    def put(self, line: bytes, handle: int, confirm: bool) -> bool:
        """Sends a line (with its LF) with the next datagrams; returns False where too many wait already."""
        if len(self._queue) + len(self._again) >= self._lines_max:
            return False
        self._queue.append(PublishLine(line, handle, confirm))
        return True

    def take_settled(self) -> list[Settled]:
        """Returns what became of lines since the last call."""
        settled, self._settled = self._settled, []
        return settled

    def settle(
        self,
        lines: Collection[PublishLine],
        outcome: Outcome,
        audience: int | None = None,
        reason: str = "",
    ) -> None:
        """Notes what became of these lines."""
        if lines:
            self._settled.append(Settled(lines, outcome, audience, reason))

    def send_again(self, lines: Collection[PublishLine]) -> None:
        """Sends lines again that the server could not carry out."""
        self._again += lines

    def try_again(self, lines: Collection[PublishLine]) -> None:
        """Sends lines again that the server did not carry out, as often as each may be sent."""
        for line in lines:
            line.tries_left -= 1
        self.settle([line for line in lines if line.tries_left < 0], Outcome.NO_ANSWER)
        self._again += [line for line in lines if line.tries_left >= 0]

    def wait_again(self) -> None:
        """Takes one try from each line, since the cookie that all wait for was asked for in vain."""
        waiting, self._queue, self._again = [*self._again, *self._queue], deque(), []
        self.try_again(waiting)

    def give_up(self) -> None:
        """Gives up all lines, since there is no way to send them."""
        self.settle([*self._again, *self._queue], Outcome.NO_ANSWER)
        self._queue.clear()
        self._again = []

    def datagrams_to_send(
        self, now: float, cookie: Cookie | None, lines_max: int, *, may_go_bare: bool
    ) -> list[tuple[bytes, int]]:
        """Returns what can leave now: buffers, each with the size in bytes of the datagrams in it.

        `cookie` is one that serves to publish; without it, lines wait unless they may go bare. `lines_max`
        counts all lines of a datagram.
        """
        if not self._queue and not self._again:
            return []
        # Lines of refused datagrams go back in order, sorted once for all of them.
        self._queue.extendleft(sorted(self._again, key=lambda line: line.handle, reverse=True))
        self._again = []
        bare = [line for line in self._queue if may_go_bare and not line.confirm]
        rest = [line for line in self._queue if not (may_go_bare and not line.confirm)]
        self._queue = deque(() if cookie is not None else rest)
        sending = self._bare(bare, lines_max, now) if bare else []
        if cookie is not None and rest:
            sending.append(_joined(list(self._vouched(rest, cookie, lines_max, now))))
        return sending

    def _bare(self, lines: list[PublishLine], lines_max: int, now: float) -> list[tuple[bytes, int]]:
        self.settle(lines, Outcome.SENT)
        texts = [line.line[:-1] for line in lines]
        if now < self._pinged_at + PING_INTERVAL_S:
            return [wire.pack_lines(texts, lines_max)]
        self._pinged_at = now
        ping = wire.Ping(self._requests.open(Kind.PING, now).nonce)
        data, segment_bytes = wire.pack_lines([wire.format_line(ping)[:-1], *texts], lines_max)
        if segment_bytes < _PONG_BYTES:
            data = b"".join([wire.pad(datagram, _PONG_BYTES) for datagram in datagrams(data, segment_bytes)])
            segment_bytes = _PONG_BYTES
        return [(data, segment_bytes)]

    def _vouched(
        self, lines: list[PublishLine], cookie: Cookie, lines_max: int, now: float
    ) -> Iterator[bytes]:
        batch: list[PublishLine] = []
        size_bytes = VOUCH_BYTES_MAX
        for line in lines:
            size_bytes += len(line.line)
            if size_bytes > DATAGRAM_BYTES_MAX or len(batch) == lines_max - 1:
                yield self._datagram(batch, cookie, now)
                batch, size_bytes = [], VOUCH_BYTES_MAX + len(line.line)
            batch.append(line)
        if batch:
            yield self._datagram(batch, cookie, now)

    def _datagram(self, lines: list[PublishLine], cookie: Cookie, now: float) -> bytes:
        request = self._requests.open(Kind.PUBLISH, now, cookie=cookie, lines=lines)
        vouch = wire.Vouch(request.nonce, cookie.text, None)
        return wire.request_datagram(vouch, [line.line for line in lines])


def _joined(several: Sequence[bytes]) -> tuple[bytes, int]:
    """Returns datagrams in one buffer, and their size in bytes: all but the last are padded to the same size,
    so that the kernel can cut them (UDP_SEGMENT)."""
    size_bytes = max(map(len, several))
    return b"".join([*[wire.pad(datagram, size_bytes) for datagram in several[:-1]], several[-1]]), size_bytes
